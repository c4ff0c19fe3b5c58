//! Damaged tables are replaced by another member's, and members that differ are named. [`untrusted`] is about the members
//! whose data nobody may read.

mod untrusted;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bowline_replica::{AlarmKind, Compare, Relation, Target};
use bowline_storage::vfs::OpenMode;
use bowline_testing::crash::{CrashImage, Faults};

use super::*;

/// Spoils the tables with keys of a member: a byte in each kilobyte. The others are small, and what they hold is read
/// at the start.
fn spoil(disk: &SimDisk) {
    let dir = Path::new("db/tables");
    let mut spoiled = 0;
    for name in disk.read_dir(dir).unwrap() {
        let file = disk.open(&dir.join(name), OpenMode::ReadWrite).unwrap();
        if file.len().unwrap() < 5_000 {
            continue;
        }
        spoiled += 1;
        // The last pages say where all others are: without them nothing opens.
        for at in (0..file.len().unwrap() / 2).step_by(1000) {
            let mut byte = [0];
            assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
            byte[0] ^= 1;
            assert_eq!(file.write_at(&byte, at).unwrap(), 1);
        }
    }
    assert!(spoiled > 0, "it has no large table");
}

/// A cluster whose members have tables with so many keys. No member scrubs or compares by itself.
async fn filled(change: impl Fn(&mut NodeConfig)) -> Three {
    let three = Three::start(|config| {
        config.snapshot_entries = 20;
        config.kept_entries = 5;
        config.scrub_interval = Duration::ZERO;
        config.corrupt_check_interval = Duration::ZERO;
        change(config);
    })
    .await;
    let leader = three.leader().await;
    for number in 0..100 {
        // Nothing that shrinks when it is compressed.
        let mut random = fastrand::Rng::with_seed(number);
        let value: String = (0..400).map(|_| random.alphanumeric()).collect();
        surely(
            &three.client(leader),
            &put(&format!("k{number:02}"), &value),
        )
        .await;
    }
    three.assert_equal().await;
    for number in 0..3 {
        three.client(number).db().flush().unwrap();
    }
    three
}

pub(super) async fn is_sound(three: &Three, number: usize) {
    eventually("the member is repaired", || {
        let client = three.client(number);
        let check = client.db().check();
        !client.core().repairs.is_wanted() && check.is_ok_and(|check| check.is_clean())
    })
    .await;
    three.assert_equal().await;
}

/// Issue: a damaged table page is fetched again from a peer while reads go on. Before, a member stopped at the
/// first entry whose application read the page, and stopped again at each start.
#[tokio::test]
async fn the_scrubber_finds_damage_and_the_tables_are_replaced() {
    let mut three = filled(|config| config.scrub_interval = Duration::from_millis(100)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let incarnation = three.client(member).core().incarnation;
    let scrubbed = || {
        let client = three.client(member);
        let core = client.core().clone();
        core.counts.tables_scrubbed.load(Ordering::Relaxed)
    };
    eventually("the tables are read", || scrubbed() > 0).await;
    let purged = three.client(member).core().log.last_purged_log_id();
    spoil(&three.disks[member]);
    eventually("the damage is found", || {
        three
            .client(member)
            .db()
            .check()
            .is_ok_and(|check| check.is_clean())
    })
    .await;
    is_sound(&three, member).await;
    // The same directory, with its log and its vote.
    let core = three.client(member).core().clone();
    assert_eq!(core.incarnation, incarnation);
    assert_eq!(core.log.last_purged_log_id(), purged, "the log has stayed");
    drop(core);
    surely(&three.client(member), &put("then", "v")).await;
    three.stop(member).await;
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    three.assert_equal().await;
    three.shutdown().await;
}

/// Inverts a bit of a file on a running member's disk.
fn spoil_file(disk: &SimDisk, path: &Path, at: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
    file.sync_data().unwrap();
}

/// Files in a directory of the disk whose names have such a start and end.
fn named(disk: &SimDisk, dir: &str, start: &str, end: &str) -> Vec<PathBuf> {
    let mut names = disk.read_dir(Path::new(dir)).unwrap();
    names.retain(|name| name.starts_with(start) && name.ends_with(end));
    names.sort();
    names.iter().map(|name| Path::new(dir).join(name)).collect()
}

/// The scrubber read tables only: what had rotted in the manifest, in `MEMBER` or in the log was found by the next start,
/// which it kept from happening, or not in time to be mended from what is in memory.
#[tokio::test]
async fn the_scrubber_reads_every_file_and_mends_those_that_are_in_memory() {
    let mut three = filled(|config| config.scrub_interval = Duration::from_millis(100)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let disk = three.disks[member].clone();
    let core = three.client(member).core().clone();
    let found = || core.counts.damage_found.load(Ordering::Relaxed);
    let read = || core.counts.tables_scrubbed.load(Ordering::Relaxed);
    eventually("all is read once", || read() > 20).await;
    assert_eq!(found(), 0, "all is sound");
    for slot in [0, 1] {
        let before = found();
        spoil_file(&disk, Path::new("db/MEMBER"), slot * 4096 + 50);
        eventually("a copy of the vote is mended", || found() > before).await;
    }
    let manifest = named(&disk, "db", "manifest-", "").pop().unwrap();
    for (path, at) in [(manifest, 40), (Path::new("db/BOWLINE").to_owned(), 20)] {
        let before = found();
        spoil_file(&disk, &path, at);
        eventually("it is replaced", || found() > before).await;
    }
    let before = (found(), read());
    eventually("all is read again", || read() > before.1 + 20).await;
    assert_eq!(found(), before.0, "nothing is damaged any more");
    drop(core);
    three.stop(member).await;
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    assert!(!three.client(member).core().owes());
    // The log is told of, and mended by the next start.
    let core = three.client(member).core().clone();
    surely(&three.client(member), &put("a", &"v".repeat(10_000))).await;
    surely(&three.client(member), &put("b", &"v".repeat(10_000))).await;
    three.assert_equal().await;
    let written = |path: &Path| {
        let file = disk.open(path, OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64
    };
    // The newest one is prepared, and empty yet.
    let mut segments = named(&disk, "db/log", "", ".log").into_iter();
    let segment = segments.rfind(|path| written(path) > 20_000).unwrap();
    // In the value of one of the last entries.
    spoil_file(&disk, &segment, written(&segment) - 5_000);
    let found = || core.counts.damage_found.load(Ordering::Relaxed);
    eventually("damage of the log is found", || found() > 0).await;
    drop(core);
    three.stop(member).await;
    three.nodes[member] = Some(start(&config).await);
    eventually("it has its log again", || {
        !three.client(member).core().owes()
    })
    .await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// Writes each key if it is there, which reads it.
async fn replace_each(writer: &LocalClient) {
    for number in 0..100 {
        let key = format!("k{number:02}");
        let compared = Command::Txn(Txn {
            compares: vec![Compare {
                key: key.clone().into_bytes(),
                range_end: Vec::new(),
                relation: Relation::Greater,
                target: Target::Version(0),
            }],
            success: vec![Op::Put(PutOp {
                key: key.into_bytes(),
                value: Value::from("new"),
                ..PutOp::default()
            })],
            failure: Vec::new(),
        });
        surely(writer, &compared).await;
    }
}

/// Damage that an entry meets when it is applied. Everything written meanwhile is there afterwards.
#[tokio::test]
async fn damage_that_an_entry_meets_stops_no_member() {
    let mut three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    three.stop(member).await;
    spoil(&three.disks[member]);
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    let writer = three.client(leader);
    replace_each(&writer).await;
    is_sound(&three, member).await;
    assert_eq!(three.client(member).core().stop_reason(), None);
    three.shutdown().await;
}

/// Bug 241: entries are applied while a member starts, before it can ask for a snapshot: it waited for one for ever.
/// Found by the simulation.
#[tokio::test]
async fn damage_that_is_met_while_a_member_starts_is_repaired_when_it_is_up() {
    // With a trimmed log, the start also makes a snapshot (bug 246).
    for snapshot_entries in [10_000, 60] {
        damage_is_met_at_the_start(snapshot_entries).await;
    }
}

async fn damage_is_met_at_the_start(snapshot_entries: u64) {
    let mut three = filled(|config| config.snapshot_entries = snapshot_entries).await;
    let member = (three.leader().await + 1) % 3;
    // Not in tables yet: a start applies them again.
    replace_each(&three.client(three.leader().await)).await;
    three.assert_equal().await;
    let image = three.disks[member].recording();
    three.stop(member).await;
    let image = CrashImage::at(&image, image.len(), Faults::AllKept).build();
    spoil(&image);
    three.disks[member] = image.clone();
    three.configs[member].vfs = Arc::new(image);
    // What no entry meets is found as well.
    three.configs[member].scrub_interval = Duration::from_millis(100);
    let config = three.configs[member].clone();
    let started = tokio::time::timeout(PATIENCE, start(&config)).await;
    three.nodes[member] = Some(started.expect("it starts"));
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// Bug 242: what an entry read was damaged, and entries of the same chunk had changed the memory before: the engine took
/// no more state, and the member stopped. Found by the simulation.
#[tokio::test]
async fn damage_in_the_middle_of_a_chunk_is_repaired() {
    let mut three = filled(|config| config.snapshot_entries = 10_000).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    three.stop(member).await;
    for number in 0..20 {
        surely(&three.client(leader), &put(&format!("new{number}"), "v")).await;
    }
    replace_each(&three.client(leader)).await;
    spoil(&three.disks[member]);
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    is_sound(&three, member).await;
    assert_eq!(three.client(member).core().stop_reason(), None);
    three.shutdown().await;
}

/// Bug 243: the leader has a table of the same number, as one member has it from the other. The file that was there
/// already was kept, damaged as it was. Found by the simulation.
#[tokio::test]
async fn a_damaged_file_that_the_leader_has_too_is_made_as_it_was() {
    let three = filled(|config| config.scrub_interval = Duration::from_millis(100)).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let names = |number: usize| {
        let mut names = three.disks[number]
            .read_dir(Path::new("db/tables"))
            .unwrap();
        names.sort();
        names
    };
    let id = three.client(member).core().member_id;
    three.client(leader).member_repair(id).await.unwrap();
    eventually("it has the tables of the leader", || {
        names(member) == names(leader)
    })
    .await;
    is_sound(&three, member).await;
    spoil(&three.disks[member]);
    eventually("the damage is found and repaired", || {
        let check = three.client(member).db().check();
        check.is_ok_and(|check| check.is_clean())
    })
    .await;
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// Bug 245: a member that waits for the snapshot of a repair lags too far, so the consensus sends one of its own. Each
/// waited for the other. Found by the simulation.
#[tokio::test]
async fn a_snapshot_of_the_consensus_ends_the_wait_for_another() {
    let mut three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    three.stop(member).await;
    for number in 0..100 {
        surely(&three.client(leader), &put(&format!("new{number}"), "v")).await;
    }
    let others: Vec<usize> = (0..3).filter(|number| *number != member).collect();
    eventually("the log is trimmed", || {
        let purged = |number: &usize| {
            let purged = three.client(*number).core().log.last_purged_log_id();
            purged.map_or(0, |id| id.index) > 150
        };
        others.iter().all(purged)
    })
    .await;
    let config = three.configs[member].clone();
    let id = three.client(leader).members();
    let id = id
        .iter()
        .find(|known| known.name == config.name)
        .unwrap()
        .id;
    for number in &others {
        // None is sent for the repair.
        let other = three.client(*number).core().clone();
        other.sending.lock().insert(id);
    }
    three.nodes[member] = Some(start(&config).await);
    let core = three.client(member).core().clone();
    let waiting = core.clone();
    // Before the leader has connected and sent anything.
    let rebuilt = tokio::spawn(async move {
        let raft = waiting.raft.clone();
        raft.rebuild("the test wants it".to_owned(), 10 * PATIENCE)
            .await
    });
    eventually("the snapshot of the consensus is installed", || {
        core.log.last_purged_log_id().map_or(0, |id| id.index) > 150
    })
    .await;
    rebuilt.await.unwrap().unwrap();
    drop(core);
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// A leader cannot be sent a snapshot: it hands over the lead first.
#[tokio::test]
async fn a_leader_with_damage_hands_over_and_is_repaired() {
    let three = filled(|config| config.scrub_interval = Duration::from_millis(100)).await;
    let leader = three.leader().await;
    spoil(&three.disks[leader]);
    is_sound(&three, leader).await;
    let led = three.leader().await;
    assert_ne!(led, leader, "it handed over the lead");
    surely(&three.client(led), &put("then", "v")).await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// An entry that a leader applies meets damage: the leader waits for a snapshot already, and still hands over the lead.
#[tokio::test]
async fn a_leader_that_meets_damage_as_it_applies_hands_over() {
    let mut three = filled(|_| {}).await;
    let member = (three.leader().await + 1) % 3;
    // After a start no page is in memory.
    three.stop(member).await;
    spoil(&three.disks[member]);
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    let id = three.client(member).status().member_id;
    three.move_leader(id).await;
    replace_each(&three.client((member + 1) % 3)).await;
    is_sound(&three, member).await;
    assert_ne!(three.leader().await, member, "it handed over the lead");
    three.shutdown().await;
}

/// A leader whose damage nobody had met reads it as it sends its tables to a member that is to be repaired. It logged
/// that, and the member asked in vain for as long as this one led. And of two that are to be repaired one handed the lead
/// to the other, which handed it back.
#[tokio::test]
async fn a_leader_that_finds_damage_as_it_sends_its_tables_is_repaired_first() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    spoil(&three.disks[leader]);
    let id = three.client(member).status().member_id;
    three.client(leader).member_repair(id).await.unwrap();
    is_sound(&three, leader).await;
    is_sound(&three, member).await;
    surely(&three.client(member), &put("then", "v")).await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// Of three members two have damage, and the third is away: nobody can repair, and nobody waits for it. What is not
/// damaged is served. Then the third is back, takes the lead, and both get its tables.
#[tokio::test]
async fn two_members_with_damage_go_on_until_a_sound_one_can_lead() {
    let mut three = filled(|config| {
        // Its log suffices when it is back.
        config.kept_entries = 5000;
        config.snapshot_entries = 5000;
    })
    .await;
    let leader = three.leader().await;
    let (other, away) = ((leader + 1) % 3, (leader + 2) % 3);
    three.stop(away).await;
    for number in [leader, other] {
        spoil(&three.disks[number]);
        let core = three.client(number).core().clone();
        core.damage.note("the test has seen to it".to_owned());
    }
    for number in 0..10 {
        surely(&three.client(leader), &put(&format!("new{number}"), "v")).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let config = three.configs[away].clone();
    three.nodes[away] = Some(start(&config).await);
    is_sound(&three, leader).await;
    is_sound(&three, other).await;
    three.shutdown().await;
}

/// If the target of a transfer refused the lead after all, and nobody else could stand, the old leader was to stand again.
/// Raft ignored that while it led, and nothing was accepted until somebody else could stand. Found by review.
#[tokio::test]
async fn a_lead_that_nobody_takes_is_taken_back() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let (target, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let client = three.client(leader);
    surely(&client, &put("k", "before")).await;
    let id = three.client(target).status().member_id;
    three.stop(target).await;
    let other = three.client(other);
    other.core().raft.may_stand(false);
    let refused = client.core().transfer_lead(id).await;
    let is_bad = matches!(refused, Err(Error::BadTransferee { .. }));
    assert!(is_bad, "{refused:?}");
    surely(&client, &put("k", "behind it")).await;
    drop((client, other));
    three.shutdown().await;
}

/// Has the others believe that a snapshot is under way to a member, or not any more.
pub(super) fn hold_back(three: &Three, member: usize, is_held: bool) {
    let id = three.client(member).status().member_id;
    for number in (0..3).filter(|number| *number != member) {
        let other = three.client(number).core().clone();
        let mut sending = other.sending.lock();
        match is_held {
            true => sending.insert(id),
            false => sending.remove(&id),
        };
    }
}

/// An administrator asked for a repair of a member whose state machine waited for a snapshot already: the alarm stayed, and
/// nobody could write, until it was asked for once more. Found by review.
#[tokio::test]
async fn a_repair_that_is_asked_for_while_one_waits_clears_the_alarm_too() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let id = three.client(member).status().member_id;
    hold_back(&three, member, true);
    let core = three.client(member).core().clone();
    let waiting = core.clone();
    let rebuilt = tokio::spawn(async move {
        let raft = waiting.raft.clone();
        raft.rebuild("the test wants it".to_owned(), 10 * PATIENCE)
            .await
    });
    eventually("it waits", || core.repairs.is_waiting()).await;
    let alarm = Command::Alarm {
        member: id,
        kind: AlarmKind::Corrupt,
        is_raised: true,
    };
    surely(&three.client(leader), &alarm).await;
    three.client(leader).member_repair(id).await.unwrap();
    hold_back(&three, member, false);
    rebuilt.await.unwrap().unwrap();
    let client = three.client(leader);
    eventually("the alarm is cleared", || {
        client.core().replica.alarms().is_empty()
    })
    .await;
    drop((core, client));
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// The transfer of large tables takes longer than a member waits for a leader that sends them: it gave up, wanted newer
/// ones, refused those that came, and so on.
#[tokio::test]
async fn a_member_waits_as_long_as_its_snapshot_is_under_way() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    hold_back(&three, member, true);
    let core = three.client(member).core().clone();
    let waiting = core.clone();
    // A leader answers each half second.
    let patience = Duration::from_secs(2);
    let rebuilt = tokio::spawn(async move {
        let raft = waiting.raft.clone();
        raft.rebuild("the test wants it".to_owned(), patience).await
    });
    eventually("it waits", || core.repairs.is_waiting()).await;
    let long_after = tokio::time::Instant::now() + 2 * patience;
    eventually("a leader still says that one is on its way", || {
        let said = core.repairs.promised_at();
        rebuilt.is_finished() || said.is_some_and(|at| at > long_after)
    })
    .await;
    assert!(core.repairs.is_waiting(), "it has given up");
    hold_back(&three, member, false);
    rebuilt.await.unwrap().unwrap();
    drop(core);
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// Has a member note damage, and wait until it is allowed to be repaired.
pub(super) async fn damaged_and_held_back(three: &Three, member: usize, reason: &str) {
    hold_back(three, member, true);
    let core = three.client(member).core().clone();
    core.damage.note(reason.to_owned());
    eventually("it waits", || core.repairs.is_waiting()).await;
}

async fn read_at(
    three: &Three,
    member: usize,
    key: &str,
    level: ReadLevel,
) -> Result<String, Error> {
    let read = three.client(member).range(&super::key(key), level).await?;
    let entry = read.value.entries.first().expect("it is there");
    Ok(String::from_utf8_lossy(&entry.value).into_owned())
}

/// Issue: a damaged page is fetched again from a peer while reads go on. The member refused all reads until its tables
/// were replaced.
#[tokio::test]
async fn reads_go_on_while_damaged_tables_are_replaced() {
    let mut three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    // A start empties the cache of pages.
    three.stop(member).await;
    spoil(&three.disks[member]);
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    surely(&three.client(leader), &put("sound", "1")).await;
    eventually("it has applied that", || {
        let client = three.client(member);
        client.db().revision() >= three.client(leader).db().revision()
    })
    .await;
    let core = three.client(member).core().clone();
    damaged_and_held_back(&three, member, "the test wants it").await;
    // In memory, and applied.
    for level in [ReadLevel::Eventual, ReadLevel::Linearizable] {
        let read = read_at(&three, member, "sound", level).await;
        assert_eq!(read.unwrap(), "1", "{level:?}");
    }
    // On pages that are damaged: never a wrong value, and a reason to ask another member.
    let mut refused = 0;
    for number in 0..100 {
        let key = format!("k{number:02}");
        let expected = read_at(&three, leader, &key, ReadLevel::Eventual).await;
        match read_at(&three, member, &key, ReadLevel::Eventual).await {
            Ok(value) => assert_eq!(value, expected.unwrap()),
            Err(error) => {
                assert!(matches!(error, Error::Repairing), "{error:?}");
                refused += 1;
            }
        }
    }
    assert!((1..100).contains(&refused), "{refused}");
    // Not applied yet: told at once, and not after a timeout.
    surely(&three.client(leader), &put("sound", "2")).await;
    let refused = read_at(&three, member, "sound", ReadLevel::Linearizable).await;
    assert!(matches!(refused, Err(Error::Repairing)), "{refused:?}");
    let read = read_at(&three, member, "sound", ReadLevel::Eventual).await;
    assert_eq!(read.unwrap(), "1");
    let refused = three.client(member).execute(put("sound", "3")).await;
    assert!(matches!(refused, Err(Error::Repairing)), "{refused:?}");
    assert!(core.repairs.is_waiting());
    hold_back(&three, member, false);
    drop(core);
    is_sound(&three, member).await;
    for number in 0..100 {
        let key = format!("k{number:02}");
        let read = read_at(&three, member, &key, ReadLevel::Linearizable).await;
        assert_eq!(read.unwrap().len(), 400);
    }
    three.shutdown().await;
}

/// Data that may be wrong without any damage is read by nobody: an administrator does not trust it, or entries were
/// passed over.
#[tokio::test]
async fn what_may_be_wrong_is_read_by_nobody() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let core = three.client(member).core().clone();
    damaged_and_held_back(&three, member, crate::raft::repairs::ASKED).await;
    let refused = read_at(&three, member, "k50", ReadLevel::Eventual).await;
    assert!(matches!(refused, Err(Error::Repairing)), "{refused:?}");
    hold_back(&three, member, false);
    is_sound(&three, member).await;
    {
        let _yielding = core.repairs.yield_to_consensus();
        core.damage.note("the test wants it".to_owned());
        eventually("it makes way", || core.repairs.was_put_off().is_some()).await;
        let refused = read_at(&three, member, "k50", ReadLevel::Eventual).await;
        assert!(matches!(refused, Err(Error::Repairing)), "{refused:?}");
    }
    drop(core);
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// A state machine that waits takes no orders to apply. Once 1,024 were queued, the consensus stood still: the member
/// neither voted nor acknowledged.
#[tokio::test]
async fn a_member_that_waits_for_tables_goes_on_acknowledging() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    hold_back(&three, member, true);
    let core = three.client(member).core().clone();
    core.damage.note("the test wants it".to_owned());
    eventually("it waits", || core.repairs.is_waiting()).await;
    for number in 0..2500 {
        surely(&three.client(leader), &put("many", &number.to_string())).await;
    }
    let last = three.client(leader).core().last_index();
    eventually("its log goes on", || core.last_index() >= last).await;
    assert!(core.repairs.is_waiting());
    hold_back(&three, member, false);
    drop(core);
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// A repair that made way for a snapshot of the consensus counted as done: the alarm was cleared, and nothing was
/// replaced.
#[tokio::test]
async fn a_repair_that_made_way_is_not_done() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let core = three.client(member).core().clone();
    let id = core.member_id;
    let raise = Command::Alarm {
        member: id,
        kind: AlarmKind::Corrupt,
        is_raised: true,
    };
    three.client(leader).execute(raise).await.unwrap();
    let is_raised = || three.client(leader).alarms() == [(id, AlarmKind::Corrupt)];
    {
        let _yielding = core.repairs.yield_to_consensus();
        three.client(leader).member_repair(id).await.unwrap();
        eventually("it makes way", || core.repairs.was_put_off().is_some()).await;
        let pauses = || core.counts.repair_pauses.load(Ordering::Relaxed);
        let before = pauses();
        eventually("it waits for that", || pauses() >= before + 2).await;
        assert!(is_raised());
    }
    eventually("it is repaired", || !is_raised()).await;
    assert!(core.repairs.counted() > 0);
    drop(core);
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// A member that has applied something else than the others: the comparison names it, and a repair makes it equal
/// and clears the alarm.
#[tokio::test]
async fn a_member_that_differs_is_named_and_repaired() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    let compare = || async {
        let client = three.client(three.leader().await);
        let core = client.core().clone();
        core.compare_voters().await
    };
    assert_eq!(compare().await, [], "nothing differs");
    let core = three.client(member).core().clone();
    {
        let mark = core.replica.applied().mark;
        let next = core.applied_next();
        let mut applier = core.replica.apply();
        applier
            .entry(next, 1, &[put("k05", "another")], &mark, None)
            .unwrap();
        applier.finish().unwrap();
    }
    surely(&three.client(leader), &put("k06", "new")).await;
    let id = core.member_id;
    assert_eq!(compare().await, [id]);
    let alarms = three.client(leader).alarms();
    assert_eq!(alarms, [(id, AlarmKind::Corrupt)]);
    let refused = three.client(leader).execute(put("k07", "v")).await;
    let refused = refused.unwrap().reply.result;
    assert_eq!(refused, Err(Refusal::Corrupt));
    eventually("it refuses reads", || {
        let client = three.client(member);
        let refused = client.core().check_serving();
        matches!(refused, Err(Error::Refused(Refusal::Corrupt)))
    })
    .await;
    let key = key("k06");
    let read = three.client(member).range(&key, ReadLevel::Eventual).await;
    assert!(matches!(read, Err(Error::Refused(Refusal::Corrupt))));
    let read = three.client(leader).range(&key, ReadLevel::Eventual).await;
    assert!(read.is_ok(), "the others serve reads");
    three.client(leader).member_repair(id).await.unwrap();
    eventually("the alarm is cleared", || {
        three.client(leader).alarms().is_empty()
    })
    .await;
    is_sound(&three, member).await;
    assert_eq!(compare().await, []);
    eventually("it serves again", || {
        three.client(member).core().check_serving().is_ok()
    })
    .await;
    surely(&three.client(member), &put("k07", "v")).await;
    three.assert_equal().await;
    three.shutdown().await;
}

#[tokio::test]
async fn a_member_that_is_alone_has_nobody_to_ask() {
    let disk = SimDisk::new();
    let node = start(&config("a", &disk)).await;
    let client = node.client();
    surely(&client, &put("k", "v")).await;
    let id = client.status().member_id;
    let refused = client.member_repair(id).await;
    assert!(matches!(refused, Err(Error::NoOtherVoter)), "{refused:?}");
    let unknown = client.member_repair(7).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 7 })),
        "{unknown:?}"
    );
    node.shutdown().await.unwrap();
}
