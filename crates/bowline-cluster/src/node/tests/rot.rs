//! Damage does not spread with a snapshot.

use std::path::Path;

use bowline_storage::vfs::OpenMode;

use super::unreachable::Events;
use super::*;

/// The tables of a member.
fn tables(disk: &SimDisk) -> Vec<String> {
    disk.read_dir(Path::new("db/tables")).unwrap()
}

/// Flips one bit in each of these tables; the same call again restores them. A merge that had read its input before may
/// have replaced some.
fn flip(disk: &SimDisk, names: &[String]) {
    for name in names {
        let path = Path::new("db/tables").join(name);
        let file = match disk.open(&path, OpenMode::ReadWrite) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.unwrap(),
        };
        let at = file.len().unwrap() / 3;
        let mut byte = [0];
        assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
        byte[0] ^= 1;
        assert_eq!(file.write_at(&byte, at).unwrap(), 1);
    }
}

/// A copy for a client was sent with the hash of whatever bytes its tables had: a backup of a rotten one was found out
/// when it was restored. Found by review.
#[tokio::test]
async fn no_copy_of_a_rotten_table_is_handed_out() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    surely(&client, &put("k", "v")).await;
    three.assert_equal().await;
    let frozen = client.freeze().unwrap();
    assert!(!frozen.tables.is_empty(), "it has no tables");
    for table in &frozen.tables {
        client.check_table(table).unwrap();
    }
    let names: Vec<String> = frozen
        .tables
        .iter()
        .map(|table| table.name.clone())
        .collect();
    flip(&three.disks[leader], &names);
    let refused = client.check_table(&frozen.tables[0]);
    let Err(Error::Storage(bowline::Error::Storage(error))) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.is_corruption(), "{error}");
    eventually("it is repaired", || client.core().repairs.counted() > 0).await;
    drop((frozen, client));
    three.assert_equal().await;
    three.shutdown().await;
}

/// The checksum of a sent file was that of its present bytes, rotten or not: so the receiver of a snapshot
/// got the rot, too, and found it when it read.
#[tokio::test]
async fn a_rotten_table_is_not_sent() {
    let events = Events::default();
    let _here = bowline_testing::listen(events.clone());
    let mut three = Three::start(|config| {
        config.snapshot_entries = 20;
        config.kept_entries = 5;
    })
    .await;
    let leader = three.leader().await;
    let lagging = (leader + 1) % 3;
    let others: Vec<usize> = (0..3).filter(|number| *number != lagging).collect();
    // A record has the commit index of its time: the second one shows that the first is committed.
    for name in ["before", "then"] {
        surely(&three.client(leader), &put(name, "v")).await;
        three.assert_equal().await;
    }
    three.stop(lagging).await;
    for number in 0..100 {
        surely(&three.client(leader), &put(&format!("k{number}"), "v")).await;
    }
    eventually("the log is trimmed", || {
        let purged = |number: &usize| {
            let purged = three.client(*number).core().log.last_purged_log_id();
            purged.map_or(0, |id| id.index) > 60
        };
        others.iter().all(purged)
    })
    .await;
    let rotten: Vec<Vec<String>> = others
        .iter()
        .map(|number| tables(&three.disks[*number]))
        .collect();
    for (number, names) in others.iter().zip(&rotten) {
        assert!(!names.is_empty(), "it has no tables");
        flip(&three.disks[*number], names);
    }
    let config = three.configs[lagging].clone();
    three.nodes[lagging] = Some(start(&config).await);
    eventually("the damage is found and named", || {
        events.has_said("is damaged here, so no snapshot is sent")
    })
    .await;
    // The lagging member is unharmed and keeps its data, and the others continue.
    let client = three.client(lagging);
    assert_eq!(client.core().stop_reason(), None);
    let read = client
        .range(&key("before"), ReadLevel::Eventual)
        .await
        .unwrap();
    assert_eq!(value_of(&read), Some(b"v".to_vec()));
    assert!(client.status().applied_index < 60, "{:?}", client.status());
    drop(client);
    // Both may wait for each other's tables by now, for some minutes: they do not after a restart.
    for (number, names) in others.iter().zip(&rotten) {
        three.stop(*number).await;
        flip(&three.disks[*number], names);
    }
    for number in &others {
        let config = three.configs[*number].clone();
        three.nodes[*number] = Some(start(&config).await);
    }
    three.assert_equal().await;
    let check = three.client(lagging).db().check().unwrap();
    assert!(check.is_clean(), "{check:?}");
    three.shutdown().await;
}

/// A leader that has noted damage sends nobody a snapshot, and hands over the lead; but a member that waits for a
/// snapshot does not lead. Where both had misread, and their tables were sound, the one refused and the other waited for
/// two minutes. Found as `a_rotten_table_is_not_sent` failed on a loaded machine.
#[tokio::test]
async fn a_leader_that_has_misread_and_cannot_hand_over_finds_its_tables_sound() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    surely(&three.client(leader), &put("k", "v")).await;
    three.assert_equal().await;
    let (other, third) = ((leader + 1) % 3, (leader + 2) % 3);
    three.stop(third).await;
    // Neither hands over to the other before both have noted it: nothing is awaited between.
    for number in [other, leader] {
        let client = three.client(number);
        client.core().damage.note("a block was misread".to_owned());
    }
    eventually("both serve again", || {
        [leader, other].iter().all(|number| {
            let client = three.client(*number);
            client.core().damage.found().is_none() && !client.core().repairs.is_waiting()
        })
    })
    .await;
    surely(&three.client(leader), &put("k", "w")).await;
    three.assert_equal().await;
    three.shutdown().await;
}
