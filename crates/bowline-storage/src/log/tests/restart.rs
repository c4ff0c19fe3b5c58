//! The log goes on behind a gap, because what lies below came from elsewhere.
//!
//! The tests play the owner's part of the contract: as long as the restart has not returned, what
//! an opening finds is discarded first.

use bowline_testing::Seed;

use super::*;

fn grown(disk: &Disk) -> Log {
    let (mut log, _) = open(disk, 0).expect("open");
    for number in 0..20u8 {
        write(&mut log, &[&vec![number; 900]]);
    }
    log.sync().expect("sync");
    assert!(log.segment_count() > 1);
    log
}

#[test]
fn a_restarted_log_holds_what_was_written_after_it() {
    let disk = Disk::new();
    let mut log = grown(&disk);
    log.restart_at(101).expect("restart");
    assert_eq!((log.first_index(), log.next_index()), (101, 101));
    assert_eq!((log.written_index(), log.durable_index()), (100, 100));
    assert_eq!(log.segment_count(), 1);
    assert_eq!(names(&disk, Path::new(DIR)).0.len(), 1);
    assert!(log.read(20, 1000).is_err());
    for number in 0..30u8 {
        write(&mut log, &[&vec![number; 900]]);
    }
    assert_eq!(log.sync().expect("sync"), 130);
    let read = log.read(101, 1 << 20).expect("read");
    assert_eq!(read.len(), 30);
    log.release_prefix(115).expect("release");
    drop(log);
    let (log, found) = open(&disk, 115).expect("open");
    assert_eq!(found.len(), 15);
    assert_eq!(log.next_index(), 131);
    Log::verify(&disk, Path::new(DIR)).expect("sound");
}

#[test]
fn a_restart_may_go_back_and_be_repeated() {
    let disk = Disk::new();
    let mut log = grown(&disk);
    log.restart_at(7).expect("restart");
    write(&mut log, &[b"seven"]);
    log.restart_at(8).expect("restart");
    log.restart_at(50).expect("restart");
    write(&mut log, &[b"fifty"]);
    log.sync().expect("sync");
    log.close().expect("close");
    let (_, found) = open(&disk, 49).expect("open");
    assert_eq!(found, entries(50, &[b"fifty"]));
}

#[test]
fn a_staged_group_and_an_impossible_index_are_refused() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    for index in [0, u64::MAX] {
        assert!(matches!(
            log.restart_at(index),
            Err(crate::Error::Internal(_))
        ));
    }
    log.stage(b"staged");
    assert!(matches!(log.restart_at(9), Err(crate::Error::Internal(_))));
    log.discard_staged();
    log.restart_at(9).expect("restart");
}

#[test]
fn whatever_step_of_a_restart_a_crash_hits_nothing_acknowledged_later_is_lost() {
    for seed in crate::seeds(0..1) {
        for (steps, kind) in (0..60).flat_map(|steps| (0..4u64).map(move |kind| (steps, kind))) {
            let mut random = Seed(seed).part(steps * 4 + kind).rng();
            let disk = Disk::new();
            let mut log = grown(&disk);
            disk.stop_after(steps);
            let mut acknowledged = 0;
            let is_restarted = log.restart_at(101).is_ok();
            if is_restarted {
                for number in 0..8u8 {
                    log.stage(&[number; 900]);
                    if log.write().is_err() || log.sync().is_err() {
                        break;
                    }
                    acknowledged += 1;
                }
            }
            drop(log);
            let crashed = disk.crashed(match kind {
                0 => Crash::Kill,
                1 => Crash::PowerLoss,
                _ => Crash::Torn(&mut random),
            });
            if !is_restarted {
                Log::discard(&crashed, Path::new(DIR)).expect("discard");
                assert_eq!(names(&crashed, Path::new(DIR)).0.len(), 0);
            }
            let (log, found) = open(&crashed, 100).expect("open");
            assert!(found.len() >= acknowledged, "{steps} steps, crash {kind}");
            let expected = (101..).zip((0..8u8).map(|number| vec![number; 900]));
            assert!(found.iter().cloned().eq(expected.take(found.len())));
            assert_eq!(log.next_index(), 101 + found.len() as u64);
        }
    }
}

#[test]
fn discarding_no_log_is_nothing() {
    let disk = Disk::new();
    Log::discard(&disk, Path::new(DIR)).expect("nothing there");
    drop(grown(&disk));
    Log::discard(&disk, Path::new(DIR)).expect("discard");
    let (log, found) = open(&disk, 70).expect("open");
    assert_eq!((log.next_index(), found.len()), (71, 0));
}
