//! Segments that have their name before anything goes into them.

use super::*;
use crate::error::Error;
use crate::log::frame::{FrameKind, Life, bare_frame};
use crate::log::segment::{SegmentHeader, segment_name};

/// The length of a `Begin` frame.
const BEGIN_BYTES: u64 = 48;
/// Fills the first segment so far that another one does not fit.
const LARGE: [u8; 2500] = [1; 2500];

/// A log with one durable group in its first segment, and the second one prepared.
fn prepared() -> (Disk, Log) {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[&LARGE]);
    log.prepare_now();
    assert_eq!(names(&disk, Path::new(DIR)).0.len(), 2);
    (disk, log)
}

/// Lets `action`, which says whether it succeeded, get as far as each of its steps, and gives states
/// that a crash can leave then to `check`.
fn at_every_step(
    start: impl Fn() -> (Disk, Log),
    action: impl Fn(Log) -> bool,
    check: impl Fn(&Disk, &str),
) {
    at_every_step_on(start, |_, log| action(log), check);
}

/// [`at_every_step`] for an action that needs the disk.
fn at_every_step_on(
    start: impl Fn() -> (Disk, Log),
    action: impl Fn(&Disk, Log) -> bool,
    check: impl Fn(&Disk, &str),
) {
    let mut is_done = false;
    let mut steps = 0;
    while !is_done {
        let (disk, log) = start();
        disk.stop_after(steps);
        is_done = action(&disk, log);
        for seed in crate::seeds(0..12) {
            let mut random = fastrand::Rng::with_seed(seed);
            let crash = match seed {
                0 => Crash::Kill,
                1 => Crash::PowerLoss,
                _ => Crash::Torn(&mut random),
            };
            check(&disk.crashed(crash), &format!("step {steps}, seed {seed}"));
        }
        steps += 1;
    }
    assert!(steps > 1, "the action does something");
}

#[test]
fn a_rotation_into_a_prepared_segment_writes_and_flushes_nothing_else() {
    let (disk, mut log) = prepared();
    let all = [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::SyncDir,
        Operation::Rename,
    ];
    let before = all.map(|operation| disk.count(operation));
    write(&mut log, &[&LARGE]);
    let after = all.map(|operation| disk.count(operation));
    assert_eq!(log.segment_count(), 2);
    // The beginning with the group.
    assert_eq!(
        [0, 1, 2, 3, 4].map(|at| after[at] - before[at]),
        [0, 1, 0, 0, 0]
    );
    log.sync().expect("sync");
    let (log, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
    assert_eq!(found, entries(1, &[&LARGE, &LARGE]));
    assert_eq!(log.read(1, 1 << 20).expect("read").len(), 2);
}

#[test]
fn a_segment_that_was_not_begun_changes_nothing() {
    let (disk, log) = prepared();
    drop(log);
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let disk = disk.crashed(crash);
        let report = Log::verify(&disk, Path::new(DIR)).expect("sound");
        assert_eq!((report.segments, report.next_index), (1, 2));
        let (mut log, found) = open(&disk, 0).expect("open");
        assert_eq!(found, entries(1, &[&LARGE]));
        let (segments, spares) = names(&disk, Path::new(DIR));
        assert_eq!((segments.len(), spares.len()), (2, 0), "{segments:?}");
        commit_each(&mut log, &[b"more"]);
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(found, entries(1, &[&LARGE, b"more"]));
    }
}

#[test]
fn a_prepared_segment_that_is_missing_is_an_error_begun_or_not() {
    for is_begun in [false, true] {
        let (disk, mut log) = prepared();
        if is_begun {
            commit_each(&mut log, &[&LARGE]);
        }
        drop(log);
        for id in [1, 2] {
            let damaged = disk.crashed(Crash::Kill);
            damaged.remove_file(&segment(id)).expect("remove");
            let error = open(&damaged, 0).expect_err("missing");
            assert!(matches!(error, Error::MissingFile { .. }), "{id}: {error}");
        }
    }
}

#[test]
fn a_beginning_garbled_at_any_byte_is_damage() {
    // Proven by the group that was written together with it, by a later one, and by both.
    for (is_first_whole, has_second) in [(true, false), (false, true), (true, true)] {
        let (disk, mut log) = prepared();
        commit_each(&mut log, &[&LARGE]);
        if has_second {
            commit_each(&mut log, &[b"a proof"]);
        }
        drop(log);
        if !is_first_whole {
            overwrite(&disk, &segment(2), FRAMES_START + BEGIN_BYTES, &[0; 8]);
        }
        garble_the_beginning(&disk);
    }
}

fn garble_the_beginning(disk: &Disk) {
    for position in FRAMES_START..FRAMES_START + BEGIN_BYTES {
        let damaged = disk.crashed(Crash::Kill);
        let byte = bytes_of(disk, &segment(2))[position as usize];
        overwrite(&damaged, &segment(2), position, &[byte ^ 0x04]);
        match open(&damaged, 0) {
            Err(Error::Corrupt { path, offset, .. }) => {
                assert_eq!(
                    (path, offset),
                    (segment(2), FRAMES_START),
                    "byte {position}"
                );
            }
            other => panic!("byte {position}: {:?}", other.map(|(_, found)| found)),
        }
        assert!(Log::verify(&damaged, Path::new(DIR)).is_err());
    }
}

/// Without its beginning nothing of a segment was flushed: neither what it holds nor what was
/// prepared behind it counts.
#[test]
fn groups_whose_beginning_never_reached_the_disk_are_cut_off() {
    for is_next_prepared in [false, true] {
        let (disk, mut log) = prepared();
        write(&mut log, &[b"in the first"]);
        write(&mut log, &[&LARGE, &LARGE]);
        write(&mut log, &[b"lost, too"]);
        assert_eq!(log.segment_count(), 2);
        if is_next_prepared {
            log.prepare_now();
        }
        drop(log);
        // The sector of the beginning, which the header of the first group shares.
        overwrite(&disk, &segment(2), FRAMES_START, &[0; 512]);
        for _ in 0..2 {
            let (_, found) = open(&disk, 0).expect("a torn end, not damage");
            assert_eq!(found, entries(1, &[&LARGE, b"in the first"]));
        }
    }
}

/// Room was reserved in a segment for a group that was given up, and the next one was too large for it. The segment after
/// that named one whose beginning was never written: the log did not open any more, with all that was acknowledged.
#[test]
fn a_segment_that_nothing_was_written_to_has_its_beginning() {
    for is_closed in [false, true] {
        let (disk, mut log) = prepared();
        log.reserve(5000).expect("reserve");
        assert_eq!(log.segment_count(), 2);
        commit_each(&mut log, &[&[7; 20_000]]);
        assert_eq!(log.segment_count(), 3);
        if is_closed {
            log.close().expect("close");
        }
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let (mut log, found) = open(&disk.crashed(crash), 0).expect("open");
            assert_eq!(found, entries(1, &[&LARGE, &[7; 20_000]]));
            commit_each(&mut log, &[b"more"]);
        }
    }
}

/// A power loss undid the removal of the later one of two segments that were never begun, and kept that of the earlier
/// one, which the later one names.
#[test]
fn segments_that_were_never_begun_are_removed_from_the_last_on() {
    let start = || {
        let (disk, mut log) = prepared();
        write(&mut log, &[b"in the first"]);
        write(&mut log, &[&LARGE, &LARGE]);
        log.prepare_now();
        drop(log);
        overwrite(&disk, &segment(2), FRAMES_START, &[0; 512]);
        let disk = disk.crashed(Crash::Kill);
        disk.fill_up();
        disk
    };
    let mut is_done = false;
    let mut steps = 0;
    while !is_done {
        let disk = start();
        disk.stop_after(steps);
        is_done = open(&disk, 0).is_ok();
        for seed in crate::seeds(0..40) {
            let mut random = fastrand::Rng::with_seed(seed);
            let crashed = disk.crashed(Crash::Torn(&mut random));
            let (_, found) = open(&crashed, 0).unwrap_or_else(|why| panic!("step {steps}: {why}"));
            assert_eq!(found, entries(1, &[&LARGE, b"in the first"]));
        }
        steps += 1;
    }
    assert!(steps > 2, "it removes them");
}

/// The file of a prepared segment that was replaced could not be removed: it hides no lost segment,
/// and is none itself when those before it are released.
#[test]
fn a_prepared_segment_that_stays_is_in_nobodys_way() {
    let start = || {
        let (disk, mut log) = prepared();
        disk.fail(Operation::Remove, 1, std::io::ErrorKind::Other);
        commit_each(&mut log, &[&[7; 30_000]]);
        let there = |id| disk.metadata(&segment(id)).expect("stat").is_some();
        assert!([1, 2, 3].into_iter().all(there));
        (disk, log)
    };
    let (disk, log) = start();
    drop(log);
    let damaged = disk.crashed(Crash::Kill);
    damaged.remove_file(&segment(3)).expect("remove");
    let error = open(&damaged, 0).expect_err("missing");
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");

    let (disk, mut log) = start();
    commit_each(&mut log, &[&[8; 40_000], b"last"]);
    log.release_prefix(3).expect("release");
    assert!(disk.metadata(&segment(2)).expect("stat").is_some());
    Log::verify(&disk, Path::new(DIR)).expect("sound");
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 3).expect("open");
    assert_eq!(found, entries(4, &[b"last"]));
}

/// What was prepared is room that an opening may need, also where the opening before it was killed.
#[test]
fn a_full_disk_at_reopening_takes_the_room_of_what_was_prepared() {
    let mut is_first_over = false;
    let mut first_steps = 0;
    while !is_first_over {
        let killed = || {
            let (disk, log) = prepared();
            drop(log);
            let disk = disk.crashed(Crash::Kill);
            disk.stop_after(first_steps);
            let is_open = open(&disk, 0).is_ok();
            (disk.crashed(Crash::Kill), is_open)
        };
        is_first_over = killed().1;
        let has_prepared = || {
            names(&killed().0, Path::new(DIR))
                .0
                .contains(&segment_name(2))
        };
        if is_first_over || !has_prepared() {
            break;
        }
        let full = || {
            let (disk, _) = killed();
            disk.fill_up();
            let log = open(&Disk::new(), 0).expect("open").0;
            (disk, log)
        };
        at_every_step_on(
            full,
            |disk, _| open(disk, 0).is_ok(),
            |disk, state| {
                let (_, found) = open(disk, 0).expect(state);
                assert_eq!(found, entries(1, &[&LARGE]), "{first_steps} steps, {state}");
            },
        );
        first_steps += 1;
    }
    assert!(first_steps > 5, "{first_steps}");
}

#[test]
fn a_segment_behind_which_the_log_goes_on_must_have_begun() {
    let (disk, mut log) = prepared();
    commit_each(&mut log, &[&LARGE]);
    log.prepare_now();
    commit_each(&mut log, &[&[2; 12_000]]);
    assert_eq!(log.segment_count(), 3);
    drop(log);
    overwrite(&disk, &segment(2), FRAMES_START, &[0; 40]);
    match open(&disk, 0) {
        Err(Error::Corrupt { path, offset, .. }) => {
            assert_eq!((path, offset), (segment(2), FRAMES_START));
        }
        other => panic!("{:?}", other.map(|(_, found)| found)),
    }
}

#[test]
fn whatever_step_of_a_rotation_a_crash_hits_the_log_is_whole() {
    let start = || {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        commit_each(&mut log, &[&LARGE]);
        (disk, log)
    };
    for is_prepared in [false, true] {
        at_every_step(
            start,
            |mut log| {
                if is_prepared {
                    log.prepare_now();
                }
                log.stage(&LARGE);
                log.write().and_then(|()| log.sync()).is_ok()
            },
            |disk, state| {
                Log::verify(disk, Path::new(DIR)).expect(state);
                let (_, found) = open(disk, 0).expect(state);
                let all = entries(1, &[&LARGE, &LARGE]);
                assert!(found == all || found == all[..1], "{state}: {found:?}");
            },
        );
    }
}

#[test]
fn a_prepared_segment_that_is_too_small_is_replaced() {
    let group = [7; 30_000];
    at_every_step(
        prepared,
        |mut log| {
            log.stage(&group);
            log.write().and_then(|()| log.sync()).is_ok()
        },
        |disk, state| {
            let (_, found) = open(disk, 0).expect(state);
            let all = entries(1, &[&LARGE, &group]);
            assert!(found == all || found == all[..1], "{state}");
        },
    );
    let (disk, mut log) = prepared();
    commit_each(&mut log, &[&group]);
    let (segments, _) = names(&disk, Path::new(DIR));
    assert_eq!(segments.len(), 2, "{segments:?}");
    assert!(disk.metadata(&segment(2)).expect("stat").is_none());
}

#[test]
fn a_prepared_segment_can_be_given_up_for_its_room() {
    at_every_step(
        prepared,
        |log| log.discard_spares(),
        |disk, state| {
            let (_, found) = open(disk, 0).expect(state);
            assert_eq!(found, entries(1, &[&LARGE]), "{state}");
        },
    );
    let (disk, mut log) = prepared();
    assert!(log.discard_spares());
    assert!(!log.discard_spares(), "nothing is left");
    assert_eq!(names(&disk, Path::new(DIR)).0.len(), 1);
    commit_each(&mut log, &[&LARGE]);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
    assert_eq!(found, entries(1, &[&LARGE, &LARGE]));
}

#[test]
fn closing_leaves_no_prepared_segment_behind() {
    at_every_step(
        prepared,
        |log| log.close().is_ok(),
        |disk, state| {
            for _ in 0..2 {
                let (_, found) = open(disk, 0).expect(state);
                assert_eq!(found, entries(1, &[&LARGE]), "{state}");
            }
        },
    );
    let (disk, log) = prepared();
    log.close().expect("close");
    assert_eq!(names(&disk, Path::new(DIR)).0.len(), 1);
    let report = Log::verify(&disk, Path::new(DIR)).expect("sound");
    assert!(report.is_sealed);
}

#[test]
fn a_restart_leaves_no_prepared_segment_behind() {
    let (disk, mut log) = prepared();
    log.restart_at(50).expect("restart");
    assert_eq!(names(&disk, Path::new(DIR)).0.len(), 1);
    commit_each(&mut log, &[b"fifty"]);
    log.prepare_now();
    commit_each(&mut log, &[&[3; 9000]]);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 49).expect("open");
    assert_eq!(found, entries(50, &[b"fifty", &[3; 9000]]));
}

#[test]
fn a_failure_to_name_or_mark_ahead_stops_the_log() {
    for (operation, nth, is_poisoned) in [
        (Operation::Write, 1, false),
        (Operation::Write, 2, false),
        // The zeros, then the header.
        (Operation::Sync, 1, false),
        (Operation::Sync, 2, false),
        (Operation::Rename, 1, true),
        (Operation::SyncDir, 1, true),
        // The mark.
        (Operation::Write, 3, true),
        (Operation::Sync, 3, true),
    ] {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        commit_each(&mut log, &[&LARGE]);
        disk.fail(operation, nth, std::io::ErrorKind::Other);
        log.prepare_now();
        disk.heal();
        assert_eq!(log.poisoned().is_some(), is_poisoned, "{operation:?} {nth}");
        if !is_poisoned {
            commit_each(&mut log, &[&LARGE]);
        }
        drop(log);
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(found.len(), 2 - usize::from(is_poisoned));
    }
}

/// Before version 2 the frame that is the mark now stood behind the last frame, and headers had no
/// mark.
#[test]
fn a_log_of_before_version_2_is_read() {
    let disk = Disk::new();
    for payload in [b"one", b"two"] {
        let (mut log, _) = open(&disk, 0).expect("open");
        commit_each(&mut log, &[payload]);
    }
    let file = disk.open(&segment(1), OpenMode::Read).expect("open");
    let header = SegmentHeader::read(&*file, &segment(1), 1).expect("header");
    for id in [1, 2] {
        let mut page = bytes_of(&disk, &segment(id));
        page.truncate(4096);
        page[8] = 1;
        page[3584..].fill(0);
        crate::log::segment::repair_header(&mut page);
        overwrite(&disk, &segment(id), 0, &page);
    }
    let end_offset = FRAMES_START + 48;
    let life = Life::new(header.id, header.salt);
    let frame = bare_frame(life, end_offset, FrameKind::Continued, 2, end_offset);
    overwrite(&disk, &segment(1), end_offset, &frame);
    let (_, found) = open(&disk.crashed(Crash::Kill), 0).expect("open");
    assert_eq!(found, entries(1, &[b"one", b"two"]));
    disk.remove_file(&segment(2)).expect("remove");
    let error = open(&disk, 0).expect_err("missing");
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
}
