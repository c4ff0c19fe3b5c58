//! What a member answers while it executes commands: a call for its status does not stop it, and a reply to a read
//! holds everything up to the revision that it names.

use super::*;

/// A status call held a read lock and took it a second time. If Raft waited for the write lock in between,
/// each waited for the other: the member was deadlocked. Found by `faults` of the program, where a follower
/// neither voted nor stood for election.
#[test]
fn asking_a_member_how_it_is_does_not_stop_it() {
    let (done, is_done) = std::sync::mpsc::channel();
    // Blocked threads are left behind: the test must end.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let disk = SimDisk::new();
            let urls = free_urls(1);
            let node = start(&NodeConfig {
                listen_peer_urls: urls.clone(),
                initial_cluster: vec![("a".to_owned(), urls[0].clone())],
                ..config("a", &disk)
            })
            .await;
            let client = node.client();
            client.read_barrier(ReadLevel::Linearizable).await.unwrap();
            for _ in 0..2 {
                let (client, done) = (client.clone(), done.clone());
                std::thread::spawn(move || {
                    // Until the receiver is gone.
                    while done.send(false).is_ok() {
                        std::hint::black_box((client.status(), client.metrics()));
                    }
                });
            }
            for number in 0..500 {
                client.execute(put("k", &number.to_string())).await.unwrap();
            }
            done.send(true).unwrap();
        });
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        match is_done.recv_timeout(left) {
            Ok(true) => return,
            Ok(false) if !left.is_zero() => {}
            other => panic!("the member stands still: {other:?}"),
        }
    }
}

/// The revision of a reply was looked up after the read: it could be newer than the data, and a client that
/// then watched from the next one missed changes. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_holds_everything_up_to_the_revision_that_it_names() {
    let node = start(&config("one", &SimDisk::new())).await;
    let client = node.client();
    client.execute(put("k", "first")).await.unwrap();
    let writer = node.client();
    let writing = tokio::spawn(async move {
        for number in 0..500 {
            writer.execute(put("k", &number.to_string())).await.unwrap();
        }
    });
    // Every revision writes this key, so the newest entry shows the revision that was read.
    let range = RangeOp {
        range_end: b"l".to_vec(),
        ..key("k")
    };
    let mut reads = 0u64;
    while !writing.is_finished() {
        for op in [&range, &key("k")] {
            let read = client.range(op, ReadLevel::Eventual).await.unwrap();
            assert_eq!(read.value.entries[0].mod_revision, read.point.revision);
            reads += 1;
        }
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    assert!(reads > 100, "{reads}");
    drop(client);
    node.shutdown().await.unwrap();
}
