//! Opening again: cleanly, after a crash, many times, and in directories that do not fit.

use super::*;
use crate::error::Error;
use crate::log::plan::plan;
use crate::log::scan::scan;

#[test]
fn an_empty_closed_log_is_small() {
    let disk = Disk::new();
    let (log, _) = open(&disk, 0).expect("open");
    log.close().expect("close");
    let (segments, spares) = names(&disk, Path::new(DIR));
    assert_eq!((segments.len(), spares.len()), (1, 0));
    assert!(bytes_of(&disk, &segment(1)).len() <= 8192);
}

#[test]
fn twenty_reopenings_do_not_pile_up_files() {
    for is_clean in [true, false] {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        commit_each(&mut log, &[b"kept"]);
        for _ in 0..20 {
            if is_clean {
                log.close().expect("close");
            } else {
                drop(log);
            }
            let (again, found) = open(&disk, 0).expect("open");
            assert_eq!(found, entries(1, &[b"kept"]));
            let (segments, spares) = names(&disk, Path::new(DIR));
            assert_eq!(
                (segments.len(), spares.len()),
                (2, 0),
                "{segments:?} {spares:?}"
            );
            log = again;
        }
        commit_each(&mut log, &[b"more"]);
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(found, entries(1, &[b"kept", b"more"]));
    }
}

#[test]
fn every_opening_continues_where_the_one_before_ended() {
    let disk = Disk::new();
    let mut expected: Entries = Vec::new();
    for round in 0..12u8 {
        let (mut log, found) = open(&disk, 0).expect("open");
        assert_eq!(found, expected);
        assert_eq!(log.next_index(), u64::from(round) + 1);
        commit_each(&mut log, &[&[round; 30]]);
        expected.push((u64::from(round) + 1, vec![round; 30]));
        if round % 2 == 0 {
            log.close().expect("close");
        }
    }
}

#[test]
fn a_checkpoint_without_a_log_starts_behind_its_flushed_index() {
    let disk = Disk::new();
    let (mut log, found) = open(&disk, 1000).expect("open");
    assert_eq!(
        (found.len(), log.next_index(), log.first_index()),
        (0, 1001, 1001)
    );
    commit_each(&mut log, &[b"first"]);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 1000).expect("open");
    assert_eq!(found, entries(1001, &[b"first"]));
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 1001).expect("open");
    assert_eq!(found, []);
}

#[test]
fn a_log_that_does_not_connect_is_an_error() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 1000).expect("open");
    commit_each(&mut log, &[b"first"]);
    drop(log);
    let error = open(&disk, 1002).expect_err("the log ends before");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let error = open(&disk, 999).expect_err("the log begins behind");
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
    assert!(open(&disk, Index::MAX).is_err());
}

#[test]
fn a_log_that_must_exist_is_not_made_anew() {
    let disk = Disk::new();
    let open = |must_exist| {
        open_with(
            Arc::new(disk.clone()),
            Path::new(DIR),
            small(),
            5,
            must_exist,
        )
        .map(drop)
    };
    assert!(
        matches!(open(true), Err(Error::MissingFile { .. })),
        "no directory"
    );
    open(false).expect("a new log");
    open(true).expect("there now");
    for name in disk.read_dir(Path::new(DIR)).expect("list") {
        disk.remove_file(&Path::new(DIR).join(name))
            .expect("remove");
    }
    assert!(
        matches!(open(true), Err(Error::MissingFile { .. })),
        "an empty directory"
    );
}

#[test]
fn a_missing_segment_is_an_error_wherever_it_was() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    let payloads = [[7u8; 3000].as_slice(); 12];
    commit_each(&mut log, &payloads);
    drop(log);
    let count = names(&disk, Path::new(DIR)).0.len() as u64;
    assert!(count >= 3);
    for id in 1..=count {
        let damaged = disk.crashed(Crash::Kill);
        damaged.remove_file(&segment(id)).expect("remove");
        let error = open(&damaged, 0).expect_err("missing");
        assert!(matches!(error, Error::MissingFile { .. }), "{id}: {error}");
    }
}

#[test]
fn the_last_segment_missing_after_a_clean_close_is_an_error() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one"]);
    log.close().expect("close");
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"two"]);
    log.close().expect("close");
    disk.remove_file(&segment(2)).expect("remove");
    let error = open(&disk, 0).expect_err("missing");
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
}

#[test]
fn foreign_files_are_left_alone() {
    let disk = Disk::new();
    open(&disk, 0).expect("open").0.close().expect("close");
    let stranger = Path::new(DIR).join("notes.txt");
    disk.open(&stranger, OpenMode::CreateNew).expect("create");
    open(&disk, 0).expect("open");
    assert!(disk.metadata(&stranger).expect("stat").is_some());
}

#[test]
fn the_plan_tells_what_will_be_done() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one", b"two"]);
    drop(log);
    let before = disk.count(Operation::Write);
    let plan_of = |disk: &Disk| {
        let scan = scan(disk, Path::new(DIR), |_| 1).expect("scan");
        plan(scan, Path::new(DIR), 0, true).expect("plan")
    };
    let shown = plan_of(&disk).to_string();
    assert_eq!(
        shown,
        "rewrite and sync 0000000000000001.log 4144..4192\n\
         create 0000000000000002.log from index 3 behind 0000000000000001.log ending at 4192\n\
         mark 0000000000000001.log as continued\n"
    );
    assert_eq!(
        plan_of(&disk).to_string(),
        shown,
        "planning changes nothing"
    );
    assert_eq!(disk.count(Operation::Write), before);
    open(&disk, 0).expect("open");
    assert_eq!(
        plan_of(&disk).to_string(),
        "create 0000000000000003.log from index 3 behind 0000000000000001.log ending at 4192\n\
         mark 0000000000000001.log as continued\n\
         remove 0000000000000002.log: empty\n"
    );
}

#[test]
fn a_crash_at_every_step_of_recovery_changes_nothing() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one", b"two"]);
    write(&mut log, &[b"not synced"]);
    drop(log);
    let found = |disk: &Disk| open(disk, 0).expect("open").1;
    for lost_before in [false, true] {
        let start = || {
            disk.crashed(if lost_before {
                Crash::PowerLoss
            } else {
                Crash::Kill
            })
        };
        let expected = found(&start());
        assert_eq!(expected.len(), if lost_before { 2 } else { 3 });
        let mut steps = 0;
        loop {
            let first = start();
            first.stop_after(steps);
            let is_done = open(&first, 0).is_ok();
            for seed in crate::seeds(0..20) {
                let second = first.crashed(Crash::Torn(&mut fastrand::Rng::with_seed(seed)));
                let again = found(&second);
                if lost_before || is_done {
                    // What recovery has shown stays.
                    assert_eq!(again, expected, "step {steps}, seed {seed}");
                } else {
                    assert!(again == expected || again == expected[..2], "step {steps}");
                }
                assert_eq!(
                    found(&second),
                    again,
                    "step {steps}, seed {seed}: a third time"
                );
            }
            if is_done {
                break;
            }
            steps += 1;
        }
        assert!(steps > 5, "{steps}");
    }
}
