//! Damage does not spread with a snapshot.

use std::path::Path;

use bowline_storage::vfs::OpenMode;

use super::unreachable::Events;
use super::*;

/// The tables of a member.
fn tables(disk: &SimDisk) -> Vec<String> {
    disk.read_dir(Path::new("db/tables")).unwrap()
}

/// Flips one bit in each of these tables; the same call again restores them.
fn flip(disk: &SimDisk, names: &[String]) {
    for name in names {
        let path = Path::new("db/tables").join(name);
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        let at = file.len().unwrap() / 3;
        let mut byte = [0];
        assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
        byte[0] ^= 1;
        assert_eq!(file.write_at(&byte, at).unwrap(), 1);
    }
}

/// The checksum of a sent file was that of its present bytes, rotten or not: so the receiver of a snapshot
/// got the rot, too, and found it when it read.
#[tokio::test]
async fn a_rotten_table_is_not_sent() {
    let events = Events::default();
    let _here = tracing::subscriber::set_default(events.clone());
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
    for (number, names) in others.iter().zip(&rotten) {
        flip(&three.disks[*number], names);
    }
    three.assert_equal().await;
    let check = three.client(lagging).db().check().unwrap();
    assert!(check.is_clean(), "{check:?}");
    three.shutdown().await;
}
