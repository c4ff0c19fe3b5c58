//! Replication: what one member acknowledges is read on all members, also after a stop, a power loss, a change of
//! leader, or a lag beyond the log.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_node_writes_reads_and_comes_back() {
    let disk = SimDisk::new();
    let config = config("one", &disk);
    let node = start(&config).await;
    let client = node.client();
    for number in 0..50 {
        let applied = client
            .execute(put(&format!("k{number}"), "v"))
            .await
            .unwrap();
        assert_eq!(applied.reply.revision, 2 + number);
    }
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Lease,
        ReadLevel::Eventual,
    ] {
        let read = client.range(&key("k49"), level).await.unwrap();
        assert_eq!(value_of(&read), Some(b"v".to_vec()), "{level:?}");
        assert_eq!((read.point.level, read.point.revision.get()), (level, 51));
    }
    let before = client.status();
    drop(client);
    node.shutdown().await.unwrap();
    // Also after a power loss instead of a shutdown.
    for disk in [disk.clone(), disk.after_power_loss()] {
        let config = NodeConfig {
            vfs: Arc::new(disk),
            ..config.clone()
        };
        let node = start(&config).await;
        let client = node.client();
        let read = client
            .range(&key("k49"), ReadLevel::Linearizable)
            .await
            .unwrap();
        assert_eq!(value_of(&read), Some(b"v".to_vec()));
        assert_eq!(read.point.revision, 51);
        let status = client.status();
        assert_eq!(status.cluster_id, before.cluster_id);
        assert_eq!(status.member_id, before.member_id);
        drop(client);
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_agree_and_any_of_them_takes_any_call() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    for number in 0..3 {
        let client = three.client(number);
        client
            .execute(put("from", &number.to_string()))
            .await
            .unwrap();
        // What one member acknowledged is read on all.
        for reader in 0..3 {
            for level in [ReadLevel::Linearizable, ReadLevel::Lease] {
                let read = three
                    .client(reader)
                    .range(&key("from"), level)
                    .await
                    .unwrap();
                assert_eq!(
                    value_of(&read),
                    Some(number.to_string().into_bytes()),
                    "{level:?}"
                );
            }
        }
    }
    let refused = Command::Txn(Txn::of(Op::Put(PutOp {
        key: b"k".to_vec(),
        lease: 99,
        ..PutOp::default()
    })));
    let applied = three
        .client((leader + 1) % 3)
        .execute(refused)
        .await
        .unwrap();
    assert_eq!(applied.reply.result, Err(Refusal::LeaseNotFound { id: 99 }));
    // A follower stops, the others continue, it comes back and catches up.
    let follower = (leader + 1) % 3;
    three.stop(follower).await;
    for number in 0..20 {
        three
            .client(leader)
            .execute(put(&format!("k{number}"), "v"))
            .await
            .unwrap();
    }
    let config = three.configs[follower].clone();
    three.nodes[follower] = Some(start(&config).await);
    three.assert_equal().await;
    // The leader stops, another takes over.
    three.stop(leader).await;
    let client = three.client(follower);
    surely(&client, &put("after", "the leader")).await;
    let read = client
        .range(&key("after"), ReadLevel::Linearizable)
        .await
        .unwrap();
    assert_eq!(value_of(&read), Some(b"the leader".to_vec()));
    let config = three.configs[leader].clone();
    three.nodes[leader] = Some(start(&config).await);
    three.assert_equal().await;
    let members = three.client(0).members();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| !member.is_learner));
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lags_beyond_the_log_gets_the_tables() {
    let mut three = Three::start(|config| {
        config.snapshot_entries = 20;
        config.kept_entries = 5;
    })
    .await;
    let leader = three.leader().await;
    let follower = (leader + 1) % 3;
    three
        .client(leader)
        .execute(put("before", "v"))
        .await
        .unwrap();
    for round in 0..2 {
        three.stop(follower).await;
        for number in 0..100 {
            let client = three.client(leader);
            client
                .execute(put(&format!("k{number}"), &format!("{round}")))
                .await
                .unwrap();
        }
        let purged = || {
            let client = three.client(leader);
            client
                .core()
                .log
                .last_purged_log_id()
                .map_or(0, |id| id.index)
        };
        let enough = 60 + 100 * round;
        eventually("the log is trimmed", || purged() > enough).await;
        if round == 1 {
            // Again from the disk after a power loss.
            let disk = three.disks[follower].after_power_loss();
            three.configs[follower].vfs = Arc::new(disk);
        }
        let config = three.configs[follower].clone();
        three.nodes[follower] = Some(start(&config).await);
        three.assert_equal().await;
    }
    let check = three.client(follower).db().check().unwrap();
    assert!(check.is_clean(), "{check:?}");
    three.shutdown().await;
}
