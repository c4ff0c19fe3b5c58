//! What watches are told, in which order, and that nobody waits for a slow one.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::event::EventType;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::plain_http::get;
use crate::support::{Running, delete, put, start};

/// A stream of watches.
pub(crate) struct Watching {
    requests: mpsc::Sender<pb::WatchRequest>,
    replies: Streaming<pb::WatchResponse>,
}

impl Watching {
    pub(crate) async fn open(running: &Running) -> Watching {
        let (requests, receiver) = mpsc::channel(64);
        let mut client = running.watch().await;
        let replies = client.watch(ReceiverStream::new(receiver)).await.unwrap();
        Watching {
            requests,
            replies: replies.into_inner(),
        }
    }

    async fn ask(&self, request: RequestUnion) {
        let request_union = Some(request);
        self.requests
            .send(pb::WatchRequest { request_union })
            .await
            .unwrap();
    }

    pub(crate) async fn create(&self, create: pb::WatchCreateRequest) {
        self.ask(RequestUnion::CreateRequest(create)).await;
    }

    pub(crate) async fn cancel(&self, watch_id: i64) {
        let cancel = pb::WatchCancelRequest { watch_id };
        self.ask(RequestUnion::CancelRequest(cancel)).await;
    }

    pub(crate) async fn ask_progress(&self) {
        self.ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
            .await;
    }

    async fn try_next(&mut self) -> Result<Option<pb::WatchResponse>, Status> {
        let next = timeout(Duration::from_secs(20), self.replies.message()).await;
        next.expect("a message in time")
    }

    pub(crate) async fn next(&mut self) -> pb::WatchResponse {
        self.try_next().await.unwrap().expect("the stream goes on")
    }

    /// The next so many events.
    async fn events(&mut self, count: usize) -> Vec<(i64, i64, EventType)> {
        let mut events = Vec::new();
        while events.len() < count {
            let reply = self.next().await;
            assert!(!reply.created && !reply.canceled, "{reply:?}");
            for event in reply.events {
                let revision = event.kv.as_ref().unwrap().mod_revision;
                events.push((reply.watch_id, revision, event.r#type()));
            }
        }
        assert_eq!(events.len(), count);
        events
    }
}

pub(crate) fn of(key: &str, range_end: &str) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: key.to_owned().into(),
        range_end: range_end.to_owned().into(),
        ..pb::WatchCreateRequest::default()
    }
}

#[tokio::test]
async fn many_watches_share_a_stream() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut watching = Watching::open(&running).await;
    watching.create(of("a", "b")).await;
    watching.create(of("a/1", "")).await;
    for id in [0, 1] {
        let created = watching.next().await;
        assert!(created.created && created.watch_id == id, "{created:?}");
        assert!(created.header.unwrap().cluster_id != 0);
    }
    kv.put(put("a/1", "x")).await.unwrap();
    kv.put(put("b", "x")).await.unwrap();
    kv.delete_range(delete("a/1")).await.unwrap();
    let mut events = watching.events(4).await;
    events.sort_by_key(|(id, revision, _)| (*id, *revision));
    let (put, delete) = (EventType::Put, EventType::Delete);
    assert_eq!(
        events,
        [(0, 2, put), (0, 4, delete), (1, 2, put), (1, 4, delete)]
    );
    watching.cancel(0).await;
    let canceled = watching.next().await;
    assert!(canceled.canceled && canceled.watch_id == 0);
    kv.put(crate::support::put("a/1", "y")).await.unwrap();
    assert_eq!(watching.events(1).await, [(1, 5, put)]);
}

/// A member that the alarm names refused reads, and went on to tell watches of its data.
#[tokio::test]
async fn a_member_whose_data_differs_opens_no_watches() {
    let running = start(&[]).await;
    let written = running.kv().await.put(put("k", "1")).await.unwrap();
    let alarm = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Activate.into(),
        member_id: written.into_inner().header.unwrap().member_id,
        alarm: pb::AlarmType::Corrupt.into(),
    };
    running.maintenance().await.alarm(alarm).await.unwrap();
    let (_requests, receiver) = mpsc::channel::<pb::WatchRequest>(1);
    let mut client = running.watch().await;
    let refused = client.watch(ReceiverStream::new(receiver)).await;
    let refused = refused.expect_err("it is refused");
    assert_eq!(refused.code(), Code::DataLoss, "{refused}");
    assert_eq!(refused.message(), "etcdserver: corrupt cluster");
}

#[tokio::test]
async fn the_past_is_told_before_the_present_and_nothing_twice() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    for number in 0..1000 {
        kv.put(put("k", &number.to_string())).await.unwrap();
    }
    let mut watching = Watching::open(&running).await;
    watching
        .create(pb::WatchCreateRequest {
            start_revision: 2,
            prev_kv: true,
            ..of("k", "")
        })
        .await;
    watching
        .create(pb::WatchCreateRequest {
            start_revision: 1500,
            ..of("k", "")
        })
        .await;
    for number in 1000..2000 {
        kv.put(put("k", &number.to_string())).await.unwrap();
    }
    let mut next = [2, 1500];
    while next != [2002, 2002] {
        let reply = watching.next().await;
        for event in reply.events {
            let revision = event.kv.unwrap().mod_revision;
            let place = &mut next[usize::try_from(reply.watch_id).unwrap()];
            assert_eq!(revision, *place);
            *place += 1;
            if reply.watch_id == 0 && revision > 2 {
                let previous = event.prev_kv.expect("asked for");
                assert_eq!(previous.mod_revision, revision - 1);
            }
        }
    }
}

#[tokio::test]
async fn filters_ids_and_empty_ranges_are_as_in_etcd() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut watching = Watching::open(&running).await;
    watching
        .create(pb::WatchCreateRequest {
            watch_id: 7,
            filters: vec![0],
            ..of("k", "")
        })
        .await;
    assert_eq!(watching.next().await.watch_id, 7);
    watching
        .create(pb::WatchCreateRequest {
            watch_id: 7,
            ..of("k", "")
        })
        .await;
    let refused = watching.next().await;
    assert!(
        refused.created && refused.canceled && refused.watch_id == -1,
        "{refused:?}"
    );
    watching.create(of("b", "a")).await;
    let refused = watching.next().await;
    assert!(
        refused.created && refused.canceled && refused.watch_id == -1,
        "{refused:?}"
    );
    kv.put(put("k", "v")).await.unwrap();
    kv.delete_range(delete("k")).await.unwrap();
    assert_eq!(watching.events(1).await, [(7, 3, EventType::Delete)]);
}

#[tokio::test]
async fn a_start_that_was_compacted_ends_the_watch_and_names_the_oldest() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    for _ in 0..5 {
        kv.put(put("k", "v")).await.unwrap();
    }
    let compact = pb::CompactionRequest {
        revision: 4,
        physical: false,
    };
    kv.compact(compact).await.unwrap();
    let mut watching = Watching::open(&running).await;
    for start_revision in [2, 4] {
        watching
            .create(pb::WatchCreateRequest {
                start_revision,
                ..of("k", "")
            })
            .await;
    }
    assert!(watching.next().await.created);
    let canceled = watching.next().await;
    assert!(
        canceled.canceled && canceled.compact_revision == 4,
        "{canceled:?}"
    );
    assert!(watching.next().await.created);
    assert_eq!(watching.events(3).await.len(), 3);
}

#[tokio::test]
async fn progress_is_never_ahead_of_events() {
    let running = start(&[("watch-progress-notify-interval", "300ms")]).await;
    let mut kv = running.kv().await;
    let mut watching = Watching::open(&running).await;
    watching.ask_progress().await;
    assert_eq!(watching.next().await.watch_id, -1);
    watching.create(of("k", "")).await;
    watching.next().await;
    let mut seen = 1;
    for round in 0..50 {
        let written = kv.put(put("k", "v")).await.unwrap().into_inner();
        if round % 2 == 0 {
            kv.put(put("other", "v")).await.unwrap();
        }
        watching.ask_progress().await;
        loop {
            let reply = watching.next().await;
            let revision = reply.header.unwrap().revision;
            if reply.watch_id == -1 {
                assert!(revision >= written.header.unwrap().revision);
                assert!(seen >= written.header.unwrap().revision);
                break;
            }
            seen = reply
                .events
                .last()
                .unwrap()
                .kv
                .as_ref()
                .unwrap()
                .mod_revision;
        }
    }
    // Who asks without end takes no memory for it, and is answered. On a stream of its own.
    let mut asking = Watching::open(&running).await;
    asking.create(of("asked", "")).await;
    asking.next().await;
    let written = kv.put(put("asked", "v")).await.unwrap().into_inner();
    let revision = written.header.unwrap().revision;
    for _ in 0..50 {
        asking.ask_progress().await;
    }
    loop {
        let reply = asking.next().await;
        if reply.watch_id == -1 && reply.header.unwrap().revision >= revision {
            break;
        }
    }
    watching
        .create(pb::WatchCreateRequest {
            progress_notify: true,
            ..of("idle", "")
        })
        .await;
    assert!(watching.next().await.created);
    let told = watching.next().await;
    assert!(told.watch_id == 1 && told.events.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_nobody_waiting_and_misses_nothing() {
    const COUNT: i64 = 4000;
    let running = start(&[("watch-queue-bytes", "65536")]).await;
    let mut kv = running.kv().await;
    let mut slow = Watching::open(&running).await;
    let mut quick = Watching::open(&running).await;
    for watching in [&mut slow, &mut quick] {
        watching.create(of("k", "")).await;
        watching.next().await;
    }
    let value = "v".repeat(10_000);
    let writing = tokio::spawn(async move {
        for _ in 0..COUNT {
            kv.put(put("k", &value)).await.unwrap();
        }
    });
    let mut next = 2;
    while next < COUNT + 2 {
        for event in quick.next().await.events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
    writing.await.unwrap();
    let metrics = get(&running, "/metrics").await.1;
    assert!(
        metrics.contains("\nbowline_watches_behind 1\n"),
        "{metrics}"
    );
    let mut next = 2;
    while next < COUNT + 2 {
        for event in slow.next().await.events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
}

/// The stream ended when the client had said all it wanted to watch: who sends its requests and closes its
/// side, as a client that only listens may, got nothing more. etcd goes on, and so does this server, until one
/// of both ends the stream.
#[tokio::test]
async fn a_watch_goes_on_when_its_client_has_nothing_more_to_ask() {
    for served in crate::beside::both().await {
        let create = pb::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(of("k", ""))),
        };
        let mut watch = WatchClient::new(served.channel.clone());
        let replies = watch.watch(tokio_stream::once(create)).await.unwrap();
        let mut replies = replies.into_inner();
        assert!(replies.message().await.unwrap().unwrap().created);
        for value in ["1", "2", "3"] {
            served.kv().put(put("k", value)).await.unwrap();
            let next = timeout(Duration::from_secs(20), replies.message()).await;
            let message = next.unwrap().unwrap().expect("the stream goes on");
            assert_eq!(message.events[0].kv.as_ref().unwrap().value, value);
        }
    }
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams() {
    let running = start(&[]).await;
    let mut watching = Watching::open(&running).await;
    watching.create(of("k", "")).await;
    watching.next().await;
    running.server.shutdown().await.unwrap();
    let ended = watching.try_next().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable);
    assert_eq!(ended.message(), "etcdserver: server stopped");
}

/// A member that could not read a table canceled the watch, which is the end of it for etcd's clients; now its stream ends,
/// and they go on at another member.
#[tokio::test]
async fn a_watch_whose_past_cannot_be_read_ends_with_its_stream() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100 {
        let value: String = (0..1_000).map(|_| random.alphanumeric()).collect();
        kv.put(put("key", &value)).await.unwrap();
    }
    let mut maintenance = running.maintenance().await;
    let defragment = pb::DefragmentRequest {};
    maintenance.defragment(defragment).await.unwrap();
    // The reply does not wait for the tables; what takes the next turn of maintenance does.
    maintenance.hash(pb::HashRequest {}).await.unwrap();
    let tables = running.data().join("tables");
    let running = running
        .restarted_after(&[], || {
            // That of the keys. The member needs the others to start.
            let files = std::fs::read_dir(&tables).unwrap();
            let files = files.map(|file| file.unwrap().path());
            let largest = files.max_by_key(|file| file.metadata().unwrap().len());
            let table = largest.unwrap();
            let mut bytes = std::fs::read(&table).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x20;
            std::fs::write(&table, bytes).unwrap();
        })
        .await;
    let mut watching = Watching::open(&running).await;
    let past = pb::WatchCreateRequest {
        start_revision: 2,
        ..of("key", "")
    };
    watching.create(past).await;
    let ended = loop {
        match watching.try_next().await {
            Ok(Some(reply)) => assert!(!reply.canceled && reply.events.is_empty(), "{reply:?}"),
            Ok(None) => panic!("the stream has ended without a reason"),
            Err(status) => break status,
        }
    };
    // It has no other member to go on at.
    assert_eq!(ended.code(), Code::DataLoss, "{ended:?}");
    assert!(ended.message().contains("damaged"), "{ended:?}");
}
