//! What requests cost: concurrent clients share entries, members are not slowed down by the limit for strangers, and
//! a task that waits for the end of a node is not woken by puts.

use std::future::Future;

use bowline_replica::OpReply;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_share_entries_and_each_gets_its_own_reply() {
    let three = Three::start(|_| {}).await;
    three.leader().await;
    let mut tasks = Vec::new();
    for client_number in 0..60 {
        let client = three.client(client_number % 3);
        tasks.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for number in 0..20 {
                let put = Op::Put(PutOp {
                    key: format!("c{client_number}").into(),
                    value: Value::from(format!("{number}").into_bytes()),
                    prev_kv: true,
                    ..PutOp::default()
                });
                let applied = client.execute(Command::Txn(Txn::of(put))).await.unwrap();
                let Ok(Outcome::Txn(reply)) = applied.reply.result else {
                    panic!("refused");
                };
                let [OpReply::Put(previous)] = &reply.replies[..] else {
                    panic!("{reply:?}");
                };
                let previous = previous.as_ref().map(|entry| entry.value.to_vec());
                let expected = (number > 0).then(|| format!("{}", number - 1).into_bytes());
                assert_eq!(previous, expected);
                revisions.push(applied.reply.revision);
            }
            revisions
        }));
    }
    let mut all = std::collections::BTreeSet::new();
    for task in tasks {
        let revisions = task.await.unwrap();
        assert!(revisions.is_sorted());
        for revision in revisions {
            assert!(all.insert(revision), "{revision} twice");
        }
    }
    assert_eq!(all.len(), 1200);
    let entries = three.client(0).status().raft_index;
    assert!(entries < 1200, "{entries} entries: nobody shared one");
    three.assert_equal().await;
    three.shutdown().await;
}

/// Beside a crowd of transactions that read much and write, a good client's p99 was three times as long as alone: all of
/// them were proposed at once, and members applied one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_reads_much_waits_for_its_turn_and_no_other_does() {
    const LONG: Duration = Duration::from_secs(60);
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    let large = "v".repeat(64 << 10);
    for number in 0..20 {
        surely(&client, &put(&format!("k{number:02}"), &large)).await;
    }
    let reading = |range_end: &str| {
        let read = Op::Range(RangeOp {
            key: "k".into(),
            range_end: range_end.into(),
            ..RangeOp::default()
        });
        let written = Op::Put(PutOp {
            key: "done".into(),
            ..PutOp::default()
        });
        Command::Txn(Txn {
            success: vec![read, written],
            ..Txn::default()
        })
    };
    let turn = client.core().heavy_turns.wait(LONG).await.expect("a turn");
    let heavy = tokio::spawn({
        let (client, command) = (client.clone(), reading("l"));
        async move { client.execute(command).await }
    });
    let light = client.execute(reading("k02")).await.expect("at once");
    assert!(light.reply.result.is_ok());
    for number in 0..20 {
        surely(&client, &put("other", &number.to_string())).await;
    }
    assert!(!heavy.is_finished());
    turn.end(Duration::ZERO);
    let applied = heavy.await.unwrap().expect("in its turn");
    let Ok(Outcome::Txn(reply)) = applied.reply.result else {
        panic!("refused");
    };
    assert!(matches!(&reply.replies[0], OpReply::Range(found) if found.count == 20));
    drop(client);
    node.shutdown().await.unwrap();
}

/// Strangers are read at a rate. At that rate, what follows would take minutes.
#[tokio::test(flavor = "multi_thread")]
async fn members_are_not_read_at_the_rate_of_strangers() {
    let three = Three::start(|config| {
        config.peers.port.stranger_bytes_per_second = 32 << 10;
        config.request_timeout = Duration::from_secs(10);
    })
    .await;
    three.leader().await;
    let large = "v".repeat(1 << 20);
    for number in 0..12 {
        let proposed = three.client(number % 3).execute(put("large", &large)).await;
        proposed.expect("it is sent to the leader, and by the leader");
    }
}

/// The program's main thread, which waits for the end of its node, waited for any change of Raft's metrics,
/// and was woken five times by each put at each of three members: a tenth of all their time, and a delay
/// before each answer.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_the_end_of_a_node_is_not_woken_by_puts() {
    const PUTS: usize = 200;
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    eventually("it leads", || client.core().is_leading()).await;
    let polls = Arc::new(AtomicUsize::new(0));
    let (waiting, counted) = (node.client(), polls.clone());
    let waiting = tokio::spawn(async move {
        let mut stopped = std::pin::pin!(waiting.stopped());
        std::future::poll_fn(|task| {
            counted.fetch_add(1, Ordering::Relaxed);
            stopped.as_mut().poll(task)
        })
        .await
    });
    for number in 0..PUTS {
        surely(&client, &put("key", &number.to_string())).await;
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 10, "{polls} polls for {PUTS} puts");
    drop(client);
    node.shutdown().await.unwrap();
    let told = tokio::time::timeout(PATIENCE, waiting).await;
    told.expect("it is told of the end").unwrap();
}
