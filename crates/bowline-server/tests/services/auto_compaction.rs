//! History that is older than the settings say is trimmed, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_testing::ManualClock;
use tonic::Code;

use crate::support::{Running, put, range, start_with};

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than anything takes.
const IN_TIME: Duration = Duration::from_secs(20);
/// The interval in which the server reads its clock, and more.
const TICK: Duration = Duration::from_millis(300);

async fn start(mode: &str, retention: &str) -> (ManualClock, Running) {
    let clock = ManualClock::new();
    let shared = clock.clone();
    let flags = [
        ("auto-compaction-mode", mode),
        ("auto-compaction-retention", retention),
    ];
    let running = start_with(&flags, |config| {
        config.node.database = config.node.database.clone().clock(Arc::new(shared));
    })
    .await;
    (clock, running)
}

/// Puts a key; returns the revision.
async fn write(running: &Running) -> i64 {
    let reply = running.kv().await.put(put("k", "v")).await.unwrap();
    reply.into_inner().header.unwrap().revision
}

/// The oldest revision that can be read, up to the present one.
async fn oldest(running: &Running, present: i64) -> i64 {
    let mut kv = running.kv().await;
    for revision in 1..present {
        let request = pb::RangeRequest {
            revision,
            ..range("k")
        };
        match kv.range(request).await {
            Ok(_) => return revision,
            Err(status) => assert_eq!(
                (status.code(), status.message()),
                (
                    Code::OutOfRange,
                    "etcdserver: mvcc: required revision has been compacted"
                )
            ),
        }
    }
    present
}

/// Waits until the oldest revision is `expected`.
async fn becomes(running: &Running, present: i64, expected: i64) {
    let seen = async {
        while oldest(running, present).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(IN_TIME, seen).await.is_err() {
        let oldest = oldest(running, present).await;
        panic!("the oldest revision is {oldest}, not {expected}");
    }
}

#[tokio::test]
async fn a_time_keeps_the_revisions_of_that_time() {
    let (clock, running) = start("periodic", "30m").await;
    let early = write(&running).await;
    for minutes in [3, 6, 9, 12, 15, 18, 21, 24, 27] {
        clock.advance(3 * MINUTE);
        // The server notes its revision of these minutes.
        tokio::time::sleep(TICK).await;
        assert!(write(&running).await > early, "{minutes}");
    }
    let present = write(&running).await;
    assert_eq!(oldest(&running, present).await, 1, "27 minutes have passed");
    clock.advance(3 * MINUTE);
    // What was noted at the start, before any put.
    tokio::time::sleep(TICK).await;
    assert_eq!(oldest(&running, present).await, 1);
    for _ in 0..10 {
        clock.advance(3 * MINUTE);
        tokio::time::sleep(TICK).await;
    }
    // That of 33 minutes ago, and of no less than 30: it was noted in minute 27.
    becomes(&running, present, present - 2).await;
}

#[tokio::test]
async fn a_number_keeps_so_many_revisions() {
    let (clock, running) = start("revision", "3").await;
    for _ in 0..9 {
        write(&running).await;
    }
    let present = write(&running).await;
    clock.advance(4 * MINUTE);
    tokio::time::sleep(TICK).await;
    assert_eq!(oldest(&running, present).await, 1, "four minutes");
    clock.advance(MINUTE);
    becomes(&running, present, present - 3).await;
}

#[tokio::test]
async fn nothing_is_compacted_unless_it_is_asked_for() {
    let (clock, running) = start("periodic", "0").await;
    let present = write(&running).await;
    for _ in 0..5 {
        clock.advance(600 * MINUTE);
        tokio::time::sleep(TICK).await;
    }
    assert_eq!(oldest(&running, present).await, 1);
}
