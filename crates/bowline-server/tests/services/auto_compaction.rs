//! History that is older than the settings say is trimmed, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_testing::ManualClock;
use tonic::Code;

use crate::support::{Running, put, range, start_with};

const MINUTE: Duration = Duration::from_secs(60);
/// A tenth of three seconds: the server looks at its clock more often where less is kept.
const TENTH: Duration = Duration::from_millis(300);
/// Longer than anything takes.
const IN_TIME: Duration = Duration::from_secs(20);

async fn start(clock: &ManualClock, mode: &str, retention: &str) -> Running {
    let shared = clock.clone();
    let flags = [
        ("auto-compaction-mode", mode),
        ("auto-compaction-retention", retention),
    ];
    start_with(&flags, |config| {
        config.node.database = config.node.database.clone().clock(Arc::new(shared));
    })
    .await
}

/// Moves the clock, and waits until the server has seen that and has done what is due.
async fn pass(clock: &ManualClock, running: &Running, time: Duration) {
    clock.advance(time);
    let looks = || running.server.compaction_looks();
    // One may be under way that has read the clock before.
    let enough = looks() + 2;
    let seen = async {
        while looks() < enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let seen = tokio::time::timeout(IN_TIME, seen).await;
    seen.expect("the server looks at its clock");
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
    let clock = ManualClock::new();
    let running = start(&clock, "periodic", "3s").await;
    let early = write(&running).await;
    for tenth in 1..=9 {
        // The server notes its revision of this tenth.
        pass(&clock, &running, TENTH).await;
        assert!(write(&running).await > early, "{tenth}");
    }
    let present = write(&running).await;
    assert_eq!(
        oldest(&running, present).await,
        1,
        "nine tenths have passed"
    );
    // What was noted at the start, before any put.
    pass(&clock, &running, TENTH).await;
    assert_eq!(oldest(&running, present).await, 1);
    for _ in 0..10 {
        pass(&clock, &running, TENTH).await;
    }
    // That of eleven tenths ago, and of no less than ten: it was noted with the ninth.
    becomes(&running, present, present - 2).await;
}

#[tokio::test]
async fn a_number_keeps_so_many_revisions() {
    let clock = ManualClock::new();
    let running = start(&clock, "revision", "3").await;
    for _ in 0..9 {
        write(&running).await;
    }
    let present = write(&running).await;
    pass(&clock, &running, 4 * MINUTE).await;
    assert_eq!(oldest(&running, present).await, 1, "four minutes");
    pass(&clock, &running, MINUTE).await;
    becomes(&running, present, present - 3).await;
}

#[tokio::test]
async fn nothing_is_compacted_unless_it_is_asked_for() {
    let clock = ManualClock::new();
    let running = start(&clock, "periodic", "0").await;
    // One that is asked shows when the other would have been done.
    let other = start(&clock, "periodic", "3s").await;
    let (present, of_other) = (write(&running).await, write(&other).await);
    for _ in 0..15 {
        pass(&clock, &other, 60 * MINUTE).await;
    }
    becomes(&other, of_other, of_other).await;
    assert_eq!(oldest(&running, present).await, 1);
    assert_eq!(running.server.compaction_looks(), 0);
}
