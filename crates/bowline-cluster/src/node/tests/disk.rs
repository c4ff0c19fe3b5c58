//! Members with full or failing disks: the others continue, acknowledged data stays, and a repaired member
//! comes back.

use bowline_replica::AlarmKind;
use bowline_testing::fault::{Call, Failure, FaultVfs, Rule};

use super::*;

/// Three members, each on a disk whose space can be limited.
async fn three_on_limited_disks() -> (Three, Vec<FaultVfs>) {
    let disks: Vec<FaultVfs> = (0..3).map(|_| FaultVfs::new(SimDisk::new())).collect();
    let three = Three::start(|config| {
        let number = ["a", "b", "c"].iter().position(|name| *name == config.name);
        config.vfs = Arc::new(disks[number.unwrap()].clone());
        config.request_timeout = Duration::from_secs(3);
        // Snapshots are built, and the log is trimmed, all the time.
        config.snapshot_entries = 20;
        config.kept_entries = 5;
    })
    .await;
    eventually("each log has its reserve", || {
        let mut nodes = three.nodes.iter().flatten();
        nodes.all(|node| node.client().metrics().log_bytes >= 3 * (256 << 10))
    })
    .await;
    three.assert_equal().await;
    (three, disks)
}

/// Leaves no free byte, whatever is removed.
fn fill_up(disk: &FaultVfs) {
    disk.limit_space(0);
    disk.add(Rule::on(Call::Create).for_ever().fail(Failure::NoSpace));
}

fn make_room(disk: &FaultVfs) {
    disk.clear();
    disk.lift_space_limit();
}

fn large(key: &str, bytes: usize) -> Command {
    put(key, &"x".repeat(bytes))
}

fn delete(key: &str) -> Command {
    Command::Txn(Txn::of(Op::DeleteRange(bowline_replica::DeleteRangeOp {
        key: key.into(),
        ..Default::default()
    })))
}

/// Whether the reply, or an error before it, says that the space is used up.
fn is_refused(outcome: &crate::error::Result<Applied>) -> bool {
    match outcome {
        Ok(applied) => applied.reply.result == Err(Refusal::NoSpace),
        Err(Error::Refused(Refusal::NoSpace)) => true,
        Err(error) => panic!("neither done nor refused: {error:?}"),
    }
}

/// Puts some keys, and waits until every member has them: a member behind the start of the log needs a
/// snapshot, for which a full disk has no room, and does not detect that it is full.
async fn some_keys(three: &Three) -> Vec<String> {
    let client = three.client(three.leader().await);
    let names: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    for name in &names {
        client.execute(put(name, "v")).await.unwrap();
    }
    three.assert_equal().await;
    names
}

/// Puts keys until the space is used up; adds the acknowledged ones.
async fn fill(client: &LocalClient, acknowledged: &mut Vec<String>) {
    for number in 0..2000 {
        let name = format!("fill{number:04}");
        let outcome = client.execute(large(&name, 4096)).await;
        if is_refused(&outcome) {
            return;
        }
        acknowledged.push(name);
    }
    panic!("2000 puts of 4 KiB, and the disk is not full");
}

/// A member whose log waits for room applies the alarm later, but refuses all the same.
async fn until_the_alarm_is(three: &Three, is_raised: bool) {
    eventually(&format!("the alarm is raised: {is_raised}"), || {
        let mut nodes = three.nodes.iter().flatten();
        nodes.all(|node| {
            let client = node.client();
            let alarms = client.alarms();
            let knows = alarms.iter().any(|(_, kind)| *kind == AlarmKind::NoSpace);
            knows == is_raised || (is_raised && client.core().log.waits_for_room())
        })
    })
    .await;
}

async fn assert_all_there(three: &Three, names: &[String]) {
    three.assert_equal().await;
    let mut hashes = Vec::new();
    for node in three.nodes.iter().flatten() {
        let client = node.client();
        for name in names {
            assert!(client.db().get(name).unwrap().is_some(), "{name} is lost");
        }
        hashes.push(client.hash_kv(None).unwrap());
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Operations that work without space: reads, deletions, compactions. They also free some.
async fn what_goes_on(client: &LocalClient, acknowledged: &mut Vec<String>) {
    for level in [ReadLevel::Linearizable, ReadLevel::Eventual] {
        let read = client.range(&key(&acknowledged[0]), level).await.unwrap();
        assert!(value_of(&read).is_some(), "{level:?}");
    }
    for _ in 0..2 {
        let gone = acknowledged.pop().unwrap();
        let deleted = client.execute(delete(&gone)).await.unwrap();
        assert!(deleted.reply.result.is_ok(), "{deleted:?}");
    }
    let revision = client.db().revision();
    let compacted = client.execute(Command::Compact { revision }).await.unwrap();
    assert_eq!(compacted.reply.result, Ok(Outcome::Done));
    // Whatever the result, a client's attempt to free space does not stop the member.
    let db = client.db().clone();
    let merged = tokio::task::spawn_blocking(move || db.compact()).await;
    match merged.unwrap() {
        Ok(()) | Err(bowline::Error::Storage(bowline_storage::Error::NoSpace { .. })) => {}
        Err(error) => panic!("{error:?}"),
    }
    assert!(is_refused(&client.execute(put("more", "v")).await));
}

/// A member stopped when its log found no room: the log failed, and so did everything after it.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_of_one_member_puts_are_refused_and_the_rest_goes_on() {
    for fills_the_leader in [false, true] {
        let (three, disks) = three_on_limited_disks().await;
        let leader = three.leader().await;
        let full = (leader + usize::from(!fills_the_leader)) % 3;
        let mut acknowledged = some_keys(&three).await;
        fill_up(&disks[full]);
        // Through another member, so that only the full one can know.
        let client = three.client((full + 1) % 3);
        fill(&client, &mut acknowledged).await;
        until_the_alarm_is(&three, true).await;
        let alarms = client.alarms();
        let member = three.client(full).status().member_id;
        assert_eq!(alarms, [(member, AlarmKind::NoSpace)]);
        what_goes_on(&client, &mut acknowledged).await;
        what_goes_on(&three.client(full), &mut acknowledged).await;
        make_room(&disks[full]);
        until_the_alarm_is(&three, false).await;
        client.execute(put("after", "v")).await.unwrap();
        acknowledged.push("after".to_owned());
        assert_all_there(&three, &acknowledged).await;
        three.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_full_disks_of_all_members_nothing_is_lost_and_writing_comes_back() {
    let (mut three, disks) = three_on_limited_disks().await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let mut acknowledged = some_keys(&three).await;
    for disk in &disks {
        fill_up(disk);
    }
    fill(&client, &mut acknowledged).await;
    until_the_alarm_is(&three, true).await;
    for number in 0..3 {
        what_goes_on(&three.client(number), &mut acknowledged).await;
    }
    // A restart in this state opens the log again, with little room.
    let follower = (leader + 1) % 3;
    three.nodes[follower]
        .take()
        .unwrap()
        .shutdown()
        .await
        .unwrap();
    make_room(&disks[follower]);
    disks[follower].limit_space(64 << 10);
    let config = three.configs[follower].clone();
    three.nodes[follower] = Some(start(&config).await);
    what_goes_on(&three.client(follower), &mut acknowledged).await;
    for disk in &disks {
        make_room(disk);
    }
    until_the_alarm_is(&three, false).await;
    surely(&client, &put("after", "v")).await;
    acknowledged.push("after".to_owned());
    assert_all_there(&three, &acknowledged).await;
    drop(client);
    three.shutdown().await;
}

/// The reserve is used up at once: then the member waits, and counts in no majority.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_room_waits_and_goes_on_when_there_is_some() {
    let (three, disks) = three_on_limited_disks().await;
    let leader = three.leader().await;
    let follower = (leader + 1) % 3;
    let client = three.client(leader);
    client.execute(put("k", "v")).await.unwrap();
    let log = |number: usize| three.client(number).core().log.clone();
    // First one, then all of them.
    fill_up(&disks[follower]);
    let done = client.execute(large("one", 1 << 20)).await.unwrap();
    assert!(done.reply.result.is_ok());
    eventually("the log waits", || log(follower).waits_for_room()).await;
    until_the_alarm_is(&three, true).await;
    let deleted = client.execute(delete("k")).await.unwrap();
    assert!(deleted.reply.result.is_ok(), "two are a majority");
    make_room(&disks[follower]);
    until_the_alarm_is(&three, false).await;
    assert_all_there(&three, &["one".to_owned()]).await;

    for disk in &disks {
        fill_up(disk);
    }
    let unknown = client.execute(large("all", 1 << 20)).await;
    assert!(matches!(unknown, Err(Error::Timeout)), "{unknown:?}");
    eventually("all logs wait", || (0..3).all(|n| log(n).waits_for_room())).await;
    let asked = std::time::Instant::now();
    for number in 0..3 {
        let client = three.client(number);
        assert!(is_refused(&client.execute(put("refused", "v")).await));
        let read = client
            .range(&key("one"), ReadLevel::Eventual)
            .await
            .unwrap();
        assert!(value_of(&read).is_some());
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "refused at once");
    for disk in &disks {
        make_room(disk);
    }
    let after = || async {
        let outcome = client.execute(put("after", "v")).await;
        matches!(outcome, Ok(applied) if applied.reply.result.is_ok())
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !after().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "no write comes through"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_the_alarm_is(&three, false).await;
    assert_all_there(&three, &["one".to_owned(), "after".to_owned()]).await;
    assert!(client.db().get("refused").unwrap().is_none());
    three.shutdown().await;
}

/// Connections used all file descriptors of the process, and the member stopped: it could not make the next
/// segment of its log, or read one, or write a table.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_may_open_no_more_files_waits_and_goes_on() {
    const PUTS_MAX: usize = 2000;
    for of_the_leader in [false, true] {
        let (three, disks) = three_on_limited_disks().await;
        let leader = three.leader().await;
        let short = (leader + usize::from(!of_the_leader)) % 3;
        let mut acknowledged = some_keys(&three).await;
        let disk = &disks[short];
        for call in [Call::Create, Call::Open, Call::SyncDir] {
            disk.add(Rule::on(call).for_ever().fail(Failure::NoFile));
        }
        let log = three.client(short).core().log.clone();
        let client = three.client((short + 1) % 3);
        for number in 0..PUTS_MAX {
            if log.waits_for_room() {
                break;
            }
            let name = format!("short{number:04}");
            match client.execute(large(&name, 16 << 10)).await {
                Ok(applied) if applied.reply.result.is_ok() => acknowledged.push(name),
                // The leader is the member that waits.
                Ok(_) | Err(_) => {}
            }
        }
        assert!(log.waits_for_room(), "it did not need another segment");
        for number in 0..3 {
            let client = three.client(number);
            assert_eq!(client.status().failure, None, "member {number}");
            assert_eq!(client.alarms(), [], "its disk is not full");
        }
        disk.clear();
        surely(&client, &put("after", "v")).await;
        acknowledged.push("after".to_owned());
        assert_all_there(&three, &acknowledged).await;
        eventually("the log goes on", || !log.waits_for_room()).await;
        drop((client, log));
        three.shutdown().await;
    }
}

/// Closing does not wait for the room that the log waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_waits_for_room_can_be_closed_and_comes_back() {
    let (mut three, disks) = three_on_limited_disks().await;
    let leader = three.leader().await;
    let follower = (leader + 1) % 3;
    let client = three.client(leader);
    fill_up(&disks[follower]);
    let done = client.execute(large("one", 1 << 20)).await.unwrap();
    assert!(done.reply.result.is_ok(), "{done:?}");
    let log = three.client(follower).core().log.clone();
    eventually("the log waits", || log.waits_for_room()).await;
    drop(log);
    let node = three.nodes[follower].take().unwrap();
    let closing = tokio::time::timeout(PATIENCE, node.shutdown()).await;
    closing
        .expect("it closes")
        .expect_err("the log ended without a seal");
    make_room(&disks[follower]);
    let config = three.configs[follower].clone();
    three.nodes[follower] = Some(start(&config).await);
    until_the_alarm_is(&three, false).await;
    surely(&client, &put("after", "v")).await;
    assert_all_there(&three, &["one".to_owned(), "after".to_owned()]).await;
    drop(client);
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_disk_fails_a_flush_stops_and_the_others_go_on() {
    for stops_the_leader in [false, true] {
        let mut three = Three::start(|_| {}).await;
        let leader = three.leader().await;
        let failing = (leader + usize::from(!stops_the_leader)) % 3;
        let other = (failing + 1) % 3;
        let mut acknowledged = Vec::new();
        for number in 0..10 {
            let name = format!("before{number}");
            three.client(leader).execute(put(&name, "v")).await.unwrap();
            acknowledged.push(name);
        }
        three.disks[failing].fail_syncs(1);
        let client = three.client(other);
        for number in 0..10 {
            let name = format!("while{number}");
            surely(&client, &put(&name, "v")).await;
            acknowledged.push(name);
        }
        let stopped = three.client(failing);
        let reason = tokio::time::timeout(PATIENCE, stopped.stopped()).await;
        let reason = reason.expect("it stops");
        // The flush of the log, or that of a vote if the leader was missed just then.
        let of_log = reason.contains("takes no more writes");
        assert!(of_log || reason.contains("cannot sync"), "{reason}");
        assert_eq!(stopped.status().failure.as_ref(), Some(&reason));
        let refused = stopped.execute(put("k", "v")).await;
        assert!(matches!(refused, Err(Error::Stopped { .. })), "{refused:?}");
        drop(stopped);
        let node = three.nodes[failing].take().unwrap();
        node.shutdown()
            .await
            .expect_err("what is on disk is unknown");
        // Data of the failed flush is lost.
        let disk = three.disks[failing].after_power_loss();
        three.configs[failing].vfs = Arc::new(disk);
        let config = three.configs[failing].clone();
        three.nodes[failing] = Some(start(&config).await);
        surely(&client, &put("after", "v")).await;
        acknowledged.push("after".to_owned());
        assert_all_there(&three, &acknowledged).await;
        drop(client);
        three.shutdown().await;
    }
}
