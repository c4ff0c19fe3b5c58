//! Watches: complete, in order, once, whatever breaks.

use std::time::Duration;

use bowline_client::{Batch, Client, Error, EventKind, KeyRange, Revision, Watcher};
use futures_util::StreamExt;

use crate::proxy::Proxy;
use crate::with_cluster;

/// The next batch, which has to come soon.
async fn next(watcher: &mut Watcher) -> Result<Batch, Error> {
    let next = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await;
    next.expect("it comes in time")
        .map(|batch| batch.expect("the watch goes on"))
}

/// Reads until the change of `last`, and sees that no revision is left out or comes twice.
async fn read_up_to(watcher: &mut Watcher, first: u64, last: u64) {
    let mut expected = first;
    while expected <= last {
        for event in next(watcher).await.unwrap().events {
            assert_eq!(event.revision(), expected, "every revision, once");
            expected += 1;
        }
    }
}

/// Puts until it is known to be done. Gives its revision.
async fn put(client: &Client, key: &str) -> u64 {
    loop {
        match client.put(key.to_owned(), "v").await {
            Ok(reply) => return reply.header.revision.get(),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[test]
fn a_watch_tells_of_the_past_and_the_present_with_what_was_there() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let first = client.put("a/1", "x").await.unwrap().header.revision;
        client.put("b", "x").await.unwrap();
        let mut watcher = client
            .watch("a/")
            .prefix()
            .from(first)
            .previous()
            .await
            .unwrap();
        let mut live = client.watch("a/1").await.unwrap();
        let mut no_puts = client.watch("a/1").no_puts().own_stream().await.unwrap();
        client.put("a/1", "y").await.unwrap();
        client.delete("a/1").await.unwrap();

        let mut events = Vec::new();
        while events.len() < 3 {
            events.extend(next(&mut watcher).await.unwrap().events);
        }
        let seen: Vec<_> = events
            .iter()
            .map(|event| (event.kind, event.revision()))
            .collect();
        let expected = [
            (EventKind::Put, first),
            (EventKind::Put, first + 2),
            (EventKind::Delete, first + 3),
        ];
        assert_eq!(seen, expected);
        assert_eq!(events[1].previous.as_ref().unwrap().value, "x");
        assert_eq!(events[2].previous.as_ref().unwrap().value, "y");
        assert_eq!(
            next(&mut live).await.unwrap().events[0].revision(),
            first + 2
        );
        assert_eq!(
            next(&mut no_puts).await.unwrap().events[0].kind,
            EventKind::Delete
        );
        assert_eq!(no_puts.next_revision(), first + 4);
    });
}

#[test]
fn a_compacted_start_is_an_error_that_names_the_oldest() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let mut revision = 0;
        for _ in 0..5 {
            revision = put(&client, "k").await;
        }
        client
            .trim_history(Revision::new(revision), true)
            .await
            .unwrap();
        let error = match client.watch("k").from(Revision::new(revision - 3)).await {
            Ok(mut watcher) => {
                let error = next(&mut watcher).await.unwrap_err();
                assert!(
                    watcher.next().await.unwrap().is_none(),
                    "it ends after an error"
                );
                error
            }
            Err(error) => error,
        };
        let Error::Compacted {
            compact_revision: Some(oldest),
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(oldest, revision);
        let mut watcher = client.watch("k").from(oldest).await.unwrap();
        assert_eq!(next(&mut watcher).await.unwrap().revision, oldest);
    });
}

#[test]
fn a_watch_resumes_when_its_server_was_killed_and_started_again() {
    with_cluster(1, |mut cluster| async move {
        let client = cluster.client().await;
        let first = put(&client, "k").await;
        let mut past = client.watch("k").from(Revision::new(first)).await.unwrap();
        // Nothing has happened yet that it could resume after.
        let mut idle = client.watch(KeyRange::all()).await.unwrap();
        let mut last = first;
        for _ in 0..3 {
            for _ in 0..20 {
                last = put(&client, "k").await;
            }
            cluster.kill(0);
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.run(0);
            last = put(&client, "k").await.max(last);
        }
        read_up_to(&mut past, first, last).await;
        read_up_to(&mut idle, first + 1, last).await;
    });
}

#[test]
fn a_watch_goes_on_at_another_endpoint() {
    with_cluster(3, |mut cluster| async move {
        let client = cluster.client().await;
        let first = put(&client, "k").await;
        let mut watchers = Vec::new();
        for _ in 0..10 {
            watchers.push(client.watch("k").from(Revision::new(first)).await.unwrap());
        }
        let mut last = first;
        for victim in 0..3 {
            for _ in 0..10 {
                last = put(&client, "k").await;
            }
            cluster.kill(victim);
            for _ in 0..10 {
                last = put(&client, "k").await;
            }
            cluster.run(victim);
            cluster.wait_until_ready(victim).await;
        }
        for watcher in &mut watchers {
            read_up_to(watcher, first, last).await;
        }
    });
}

#[test]
fn a_watch_survives_a_connection_that_is_cut_again_and_again() {
    with_cluster(1, |cluster| async move {
        let proxy = Proxy::to(cluster.endpoint(0)).await;
        let direct = cluster.client().await;
        let watching = Client::connect([proxy.endpoint.clone()]).await.unwrap();
        let first = put(&direct, "k").await;
        let mut watcher = watching
            .watch("k")
            .from(Revision::new(first))
            .await
            .unwrap();
        let mut last = first;
        for round in 0..200 {
            if round % 20 != 7 {
                last = put(&direct, "k").await;
                continue;
            }
            // Puts are faster than a client comes back: it is waited for, to be cut off again.
            let connections = proxy.connections();
            proxy.cut_at_next_reply();
            let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
            while proxy.connections() == connections {
                assert!(tokio::time::Instant::now() < deadline, "it never came back");
                last = put(&direct, "k").await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        read_up_to(&mut watcher, first, last).await;
    });
}

#[test]
fn a_slow_watcher_loses_nothing_and_holds_no_other_up() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let first = put(&client, "k").await;
        let mut slow = client.watch("k").from(Revision::new(first)).await.unwrap();
        let mut quick = client.watch("k").from(Revision::new(first)).await.unwrap();
        let mut last = first;
        for revision in first..first + 1_500 {
            if revision > first {
                last = put(&client, "k").await;
            }
            let event = quick.next_revision();
            while quick.next_revision() <= last {
                next(&mut quick).await.unwrap();
            }
            assert!(quick.next_revision() > event);
        }
        // Far more than its queue holds.
        read_up_to(&mut slow, first, last).await;
        // And it is live again.
        let revision = put(&client, "k").await;
        assert_eq!(next(&mut slow).await.unwrap().revision, revision);
    });
}

#[test]
fn a_revision_too_large_for_a_message_comes_whole() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let value = vec![7_u8; 15_000];
        let mut watcher = client.watch("k").prefix().previous().await.unwrap();
        for _ in 0..2 {
            let operations = (0..90).map(|number| {
                let key = format!("k{number}");
                bowline_client::Operation::put(key, value.clone())
            });
            let revision = client.txn().then(operations).await.unwrap().header.revision;
            let batch = next(&mut watcher).await.unwrap();
            assert_eq!((batch.revision, batch.events.len()), (revision, 90));
        }
    });
}

#[test]
fn progress_is_told_when_asked_for() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let mut watcher = client.watch("k").own_stream().await.unwrap();
        let revision = put(&client, "other").await;
        // A server may not answer while it brings a watch up to date.
        let batch = loop {
            watcher.request_progress().unwrap();
            let wait = Duration::from_millis(300);
            if let Ok(batch) = tokio::time::timeout(wait, watcher.next()).await {
                break batch.unwrap().unwrap();
            }
        };
        assert!(
            batch.is_progress() && batch.revision >= revision,
            "{batch:?}"
        );
    });
}

#[test]
fn a_watcher_is_a_stream() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        let first = put(&client, "k").await;
        put(&client, "k").await;
        let watcher = client.watch("k").from(Revision::new(first)).await.unwrap();
        let revisions = watcher.flat_map(|batch| {
            let events = batch.unwrap().events;
            futures_util::stream::iter(events.into_iter().map(|event| event.revision()))
        });
        let revisions: Vec<Revision> = revisions.take(2).collect().await;
        assert_eq!(revisions, [first, first + 1]);
    });
}
