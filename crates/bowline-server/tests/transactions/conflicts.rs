//! What transactions guarantee, and what each of their reads conflicts with.

use std::time::Duration;

use bowline_client::graph::{Block, BlockId, Direction, Edge, EdgeKey};
use bowline_client::{
    Client, Committed, Error, Expected, Isolation, KeyRange, Result, Touched, Transaction,
    TransactionOptions, Update,
};
use bowline_testing::lease_id;

use crate::{Cluster, number};

/// Runs a transaction in which somebody else's change comes between its reads and its commit.
async fn raced(
    client: &Client,
    isolation: Isolation,
    read: impl AsyncFnOnce(&mut Transaction),
    change: impl AsyncFnOnce(),
) -> Result<Committed> {
    let mut tx = client.begin_with(TransactionOptions::default().isolation(isolation));
    read(&mut tx).await;
    change().await;
    tx.put("written", "w").unwrap();
    tx.commit().await
}

fn touched(result: Result<Committed>) -> Touched {
    match result {
        Err(Error::Conflict { what, .. }) => what,
        other => panic!("no conflict: {other:?}"),
    }
}

fn id(number: u128) -> BlockId {
    BlockId(number)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_count_is_lost_and_every_conflict_is_repeated() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        writers.spawn(async move {
            for _ in 0..10 {
                client
                    .transact(async |tx| {
                        let count = number(tx.get("count").await?);
                        tx.put("count", (count + 1).to_string())
                    })
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let reply = client.get("count").await.unwrap();
    assert_eq!(number(reply.value().map(|v| v.to_vec().into())), 80);
    assert_eq!(reply.entry().unwrap().version, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_skew_is_forbidden_under_serializable_and_allowed_under_snapshot_isolation() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    for (isolation, is_allowed) in [
        (Isolation::Serializable, false),
        (Isolation::Snapshot, true),
    ] {
        client.put("a", "on call").await.unwrap();
        client.put("b", "on call").await.unwrap();
        let begin = || client.begin_with(TransactionOptions::default().isolation(isolation));
        // Each sees the other on call, and leaves.
        let (mut one, mut two) = (begin(), begin());
        for tx in [&mut one, &mut two] {
            assert!(tx.get("a").await.unwrap().is_some() && tx.get("b").await.unwrap().is_some());
        }
        assert!(one.delete("a").await.unwrap());
        assert!(two.delete("b").await.unwrap());
        one.commit().await.unwrap();
        let second = two.commit().await;
        assert_eq!(second.is_ok(), is_allowed, "{second:?}");
        if !is_allowed {
            assert_eq!(touched(second), Touched::Key("a".into()));
        }
        let left = client.range("a".."c").await.unwrap().count;
        assert_eq!(left, u64::from(!is_allowed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_conflicts_with_what_changes_it() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let graph = client.graph();
    for number in 1..=3 {
        let block = Block::new(id(number), "node");
        graph.put_block(block).await.unwrap();
    }
    client.put("r/a", "v").await.unwrap();
    let serializable = Isolation::Serializable;

    let phantom = raced(
        &client,
        serializable,
        async |tx| {
            assert_eq!(tx.range(KeyRange::prefix("r/")).await.unwrap().len(), 1);
        },
        async || {
            client.put("r/b", "v").await.unwrap();
        },
    );
    assert_eq!(touched(phantom.await), Touched::Key("r/b".into()));

    let deleted = raced(
        &client,
        serializable,
        async |tx| {
            assert!(tx.get("r/b").await.unwrap().is_some());
        },
        async || {
            client.delete("r/b").await.unwrap();
        },
    );
    assert_eq!(touched(deleted.await), Touched::Key("r/b".into()));

    let edge = || Edge::new(id(1), "tie", id(2));
    for direction in [Direction::Out, Direction::Both] {
        let neighbors = raced(
            &client,
            serializable,
            async |tx| {
                let near = tx.neighbors(id(1), direction, [""; 0]).await.unwrap();
                assert_eq!(near, []);
            },
            async || {
                client.graph().put_edge(edge()).await.unwrap();
            },
        );
        let what = Touched::Edge(EdgeKey::new(id(1), "tie", id(2)));
        assert_eq!(touched(neighbors.await), what);
        client.graph().delete_edge(edge().key()).await.unwrap();
    }
    // The edge that comes is at its other end, and the block is the same.
    let other_way = raced(
        &client,
        serializable,
        async |tx| {
            assert!(tx.block(id(1)).await.unwrap().is_some());
            tx.neighbors(id(1), Direction::In, [""; 0]).await.unwrap();
        },
        async || {
            client.graph().put_edge(edge()).await.unwrap();
        },
    );
    other_way.await.unwrap();
    let absent = raced(
        &client,
        serializable,
        async |tx| {
            assert!(tx.block(id(9)).await.unwrap().is_none());
            assert!(tx.neighbors(id(9), Direction::Out, [""; 0]).await.is_err());
        },
        async || {
            let block = Block::new(id(9), "node");
            client.graph().put_block(block).await.unwrap();
        },
    );
    assert_eq!(touched(absent.await), Touched::Block(id(9)));

    // What is only written never conflicts; under snapshot isolation it does, once something was read.
    for (isolation, is_conflict) in [(serializable, false), (Isolation::Snapshot, true)] {
        let blind = raced(
            &client,
            isolation,
            async |tx| {
                tx.get("unrelated").await.unwrap();
            },
            async || {
                client.put("written", "theirs").await.unwrap();
            },
        );
        let blind = blind.await;
        assert_eq!(blind.is_err(), is_conflict, "{blind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_between_read_and_commit_is_told_and_run_again() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    client.put("k", "1").await.unwrap();
    let newest = client.put("other", "v").await.unwrap().header.revision;
    let mut tx = client.begin();
    tx.get("k").await.unwrap();
    let at = tx.read_revision().unwrap();
    assert_eq!(at, newest);
    client.put("other", "w").await.unwrap();
    // The revision it reads at stays, and with it the commit is decided as ever, also on merged tables.
    client.trim_history(at, true).await.unwrap();
    let mut later = client.begin();
    later.get("k").await.unwrap();
    tx.put("seen", "v").unwrap();
    tx.commit().await.unwrap();

    client.delete("k").await.unwrap();
    let newest = client.put("other", "x").await.unwrap().header.revision;
    client.trim_history(newest, true).await.unwrap();
    later.put("seen", "w").unwrap();
    let refused = later.commit().await;
    assert!(
        matches!(refused, Err(Error::Compacted { .. })),
        "{refused:?}"
    );
    // Reads of a revision that is gone fail alike, and the body is run again.
    let mut runs = 0;
    client
        .transact(async |tx| {
            runs += 1;
            let count = number(tx.get("count").await?);
            if runs == 1 {
                let newest = client.put("other", "y").await?.header.revision;
                client.trim_history(newest, false).await?;
            }
            tx.get("other").await?;
            tx.put("count", (count + 1).to_string())
        })
        .await
        .unwrap();
    assert_eq!(runs, 2);
    assert_eq!(client.get("count").await.unwrap().value().unwrap(), b"1");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_are_read_and_the_rest_is_of_one_revision() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    for key in ["a", "b", "c"] {
        client.put(key, "before").await.unwrap();
    }
    let mut tx = client.begin();
    assert_eq!(tx.get("a").await.unwrap().unwrap(), "before");
    client.put("b", "after").await.unwrap();
    assert_eq!(tx.get("b").await.unwrap().unwrap(), "before");
    tx.put("aa", "own").unwrap();
    assert_eq!(tx.entry("aa").await.unwrap().unwrap().version, 0);
    assert!(tx.delete("c").await.unwrap());
    let keys: Vec<_> = tx.range("a"..).await.unwrap();
    let keys: Vec<_> = keys.iter().map(|e| (&e.key[..], &e.value[..])).collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"a", b"before"), (b"aa", b"own"), (b"b", b"before")];
    assert_eq!(keys, expected);
    assert_eq!(tx.delete_range("a".."b").await.unwrap(), 2);
    tx.put("a", "again").unwrap();
    assert_eq!(tx.range("a".."b").await.unwrap().len(), 1);
    let (x, y) = (id(1), id(2));
    tx.put_block(Block::new(x, "node"));
    tx.put_block(Block::new(y, "node"));
    tx.put_edge(Edge::new(x, "tie", y));
    assert_eq!(
        tx.neighbors(y, Direction::In, ["tie"]).await.unwrap().len(),
        1
    );
    assert_eq!(
        tx.neighbors(y, Direction::In, ["other"])
            .await
            .unwrap()
            .len(),
        0
    );
    drop(tx);
    assert!(client.graph().blocks([x]).await.unwrap().blocks.is_empty());

    // A swap that fails takes everything with it, and says what it found.
    let revision = client.get("a").await.unwrap().entry().unwrap().mod_revision;
    let mut tx = client.begin();
    tx.compare_and_swap("a", Expected::Revision(revision + 1), "mine")
        .unwrap();
    tx.put("d", "v").unwrap();
    match tx.commit().await {
        Err(Error::CompareFailed {
            key,
            expected,
            actual,
        }) => {
            assert_eq!(
                (&key[..], expected, actual),
                (&b"a"[..], Expected::Revision(revision + 1), Some(revision))
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(client.get("d").await.unwrap().entry().is_none());
    let mut tx = client.begin();
    tx.expect("d", Expected::Absent).unwrap();
    tx.compare_and_swap("a", Expected::Revision(revision), "mine")
        .unwrap();
    assert!(tx.commit().await.unwrap().changed);
    // What is missing at commit is told by name.
    let mut tx = client.begin();
    tx.put_edge(Edge::new(x, "tie", y));
    assert!(matches!(tx.commit().await, Err(Error::NotFound { .. })));
    let mut tx = client.begin();
    tx.put_with_lease("k", "v", lease_id(77)).unwrap();
    assert!(matches!(tx.commit().await, Err(Error::LeaseNotFound)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_of_a_key_is_told_newest_first_and_up_to_a_revision() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client_of(0);
    let first = client.put("k", "1").await.unwrap().header.revision;
    client.put("k", "2").await.unwrap();
    client.delete("k").await.unwrap();
    client.put("k", "3").await.unwrap();
    let told = |reply: bowline_client::HistoryReply| {
        let versions = reply.versions.into_iter();
        let told = versions.map(|v| (v.revision - first, v.entry.map(|e| e.value)));
        told.collect::<Vec<_>>()
    };
    let all = told(client.history("k").await.unwrap());
    let value = |text: &'static str| Some(bytes::Bytes::from(text));
    assert_eq!(
        all,
        [(3, value("3")), (2, None), (1, value("2")), (0, value("1"))]
    );
    assert_eq!(told(client.history("k").limit(2).await.unwrap()), all[..2]);
    let at = client.history("k").revision(first + 2).await.unwrap();
    assert_eq!(at.revision, first + 2);
    assert_eq!(told(at), all[1..]);
    assert_eq!(told(client.history("never").await.unwrap()), []);
    client.trim_history(first + 1, false).await.unwrap();
    assert_eq!(told(client.history("k").await.unwrap()), all[..3]);
    // In parts: more than one message has.
    for number in 0..1_200 {
        client.put("many", number.to_string()).await.unwrap();
    }
    let many = client.history("many").await.unwrap().versions;
    assert_eq!(many.len(), 1_200);
    assert!(many.is_sorted_by(|a, b| a.revision > b.revision));
    let past = client.history("k").revision(first).await;
    assert!(matches!(past, Err(Error::Compacted { .. })), "{past:?}");
}

/// Each caller is told a value of its own: no update is lost, and none is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn updates_of_one_key_by_all_members_clients_are_all_done_once() {
    const CALLERS: usize = 6;
    const UPDATES: usize = 20;
    let cluster = Cluster::start(3).await;
    // Members announce what they can read when they have started.
    let known = || Update::SetIfAbsent(Vec::new());
    while let Err(error) = cluster.client_of(0).update("known", known()).await {
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let client = cluster.client_of(caller % 3);
        callers.spawn(async move {
            let mut told = Vec::new();
            for _ in 0..UPDATES {
                let updated = client.update("counter", Update::Add(1)).await.unwrap();
                assert!(updated.changed);
                let number = String::from_utf8(updated.value.unwrap().into()).unwrap();
                told.push(number.parse::<usize>().unwrap());
            }
            told
        });
    }
    let mut told: Vec<usize> = callers.join_all().await.concat();
    told.sort_unstable();
    let all: Vec<usize> = (1..=CALLERS * UPDATES).collect();
    assert_eq!(told, all);
    let entry = cluster.client_of(0).get("counter").await.unwrap();
    assert_eq!(entry.entry().unwrap().version, all.len() as u64);
}
