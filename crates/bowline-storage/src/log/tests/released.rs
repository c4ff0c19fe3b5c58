//! Released segments: a thread removes them, oldest first, or a writer that needs their room.

use std::io::ErrorKind;
use std::time::Duration;

use super::*;
use crate::error::Error;

/// A log of five segments, each entry a group of its own. The last is too young for another to be
/// prepared.
fn filled(background: Background, spares_max: usize) -> (Disk, Log, Vec<Vec<u8>>) {
    let disk = Disk::new();
    let options = LogOptions {
        background,
        spares_max,
        ..small()
    };
    let (mut log, _) =
        open_with(Arc::new(disk.clone()), Path::new(DIR), options, 0, false).expect("open");
    let mut payloads = Vec::new();
    while log.segment_count() < 5 {
        let payload = vec![payloads.len() as u8; 1500];
        commit_each(&mut log, &[&payload]);
        payloads.push(payload);
    }
    (disk, log, payloads)
}

fn segments(disk: &Disk) -> Vec<String> {
    names(disk, Path::new(DIR)).0
}

/// Waits for what a thread does.
fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

/// Gives up all segments but the last, of which the oldest cannot be removed at the first attempt; returns
/// when that was noted.
fn release_in_vain(disk: &Disk, log: &mut Log, operation: Operation) -> Result<()> {
    disk.fail(operation, 1, ErrorKind::Other);
    let released = log.release_prefix(log.written_index());
    wait_for("nothing was tried", || log.has_failed_to_remove());
    released
}

/// Whatever crash comes now, the log is there from where it begins, or from before.
fn assert_whole(disk: &Disk, log: &Log, payloads: &[Vec<u8>]) {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let first = log.first_index();
        let (_, found) = open(&disk.crashed(crash), first - 1).expect("no segment is missing");
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        assert_eq!(found, entries(first, &payloads[first as usize - 1..]));
    }
}

#[test]
fn those_behind_one_that_cannot_be_removed_stay() {
    for background in [Background::Manual, Background::Threads] {
        let (disk, mut log, mut payloads) = filled(background, 0);
        let before = segments(&disk);
        let (attempts, size) = (disk.count(Operation::Remove), log.size_bytes());
        let released = release_in_vain(&disk, &mut log, Operation::Remove);
        assert_eq!(released.is_err(), background == Background::Manual);
        assert_eq!(disk.count(Operation::Remove), attempts + 1);
        assert_eq!(segments(&disk), before);
        assert_eq!(log.size_bytes(), size, "they take room still");
        assert!(log.first_index() > 1, "and are of no use");
        assert_whole(&disk, &log, &payloads);
        payloads.push(b"more".to_vec());
        commit_each(&mut log, &[b"more"]);
        // The next release takes them along, though it has nothing of its own.
        let told = log.release_prefix(0);
        assert_eq!(told.is_err(), background == Background::Threads, "{told:?}");
        wait_for("they stay for ever", || {
            segments(&disk).len() == before.len() - 4
        });
        assert_eq!(segments(&disk), before[4..], "the oldest are gone");
        assert_whole(&disk, &log, &payloads);
        log.close().expect("close");
        assert_eq!(segments(&disk).len(), 1);
    }
}

#[test]
fn closing_removes_what_is_not_removed_yet() {
    let (disk, mut log, payloads) = filled(Background::Threads, 0);
    release_in_vain(&disk, &mut log, Operation::Remove).expect("the thread meets it");
    assert_eq!(segments(&disk).len(), 5);
    let first = log.first_index();
    log.close().expect("close");
    assert_eq!(segments(&disk).len(), 1);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), first - 1).expect("open");
    assert_eq!(found.len(), payloads.len() + 1 - first as usize);
}

/// The first look for room of a writer that finds the disk full is at what is released: those files
/// can be used again, whether the thread has come to them or not.
#[test]
fn on_a_full_disk_a_writer_goes_on_in_what_is_released() {
    let (disk, mut log, _) = filled(Background::Threads, 2);
    release_in_vain(&disk, &mut log, Operation::Rename).expect("the thread meets it");
    disk.fill_up();
    let creations = names(&disk, Path::new(DIR)).0.len();
    for _ in 0..40 {
        commit_each(&mut log, &[&[1; 1500]]);
    }
    assert!(log.segment_count() > 1, "it has gone on in another segment");
    assert!(segments(&disk).len() <= creations, "files were used again");
    log.close().expect("close");
}

/// Who meets a full disk waits for the room, and is told at once why there is none.
#[test]
fn on_a_full_disk_who_releases_removes() {
    // A thread could come first, and meet the failure.
    let (disk, mut log, _) = filled(Background::Manual, 0);
    log.leave_releases();
    disk.fill_up();
    let refused = (0..100).find_map(|_| {
        log.stage(&[1; 1500]);
        let written = log.write();
        if written.is_err() {
            log.discard_staged();
        }
        written.err()
    });
    assert!(
        matches!(refused, Some(Error::NoSpace { .. })),
        "{refused:?}"
    );
    log.sync().expect("what was written");
    let before = segments(&disk);
    disk.fail(Operation::Remove, 1, ErrorKind::Other);
    let released = log.release_prefix(log.written_index());
    released.expect_err("it was tried here");
    assert_eq!(segments(&disk), before);
    log.release_prefix(0).expect("the disk works again");
    assert_eq!(segments(&disk).len(), 1, "they are gone when it returns");
    log.close().expect("close");
}

/// What a restart leaves would lie below a segment that continues nothing.
#[test]
fn a_restart_leaves_nothing_of_what_was_released() {
    let (disk, mut log, _) = filled(Background::Threads, 0);
    release_in_vain(&disk, &mut log, Operation::Remove).expect("the thread meets it");
    log.restart_at(1_000).expect("restart");
    assert_eq!(segments(&disk).len(), 1);
    commit_each(&mut log, &[b"new"]);
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let (_, found) = open(&disk.crashed(crash), 999).expect("open");
        assert_eq!(found, entries(1_000, &[b"new"]));
    }
}

#[test]
fn who_needs_the_room_more_gets_that_of_what_is_released() {
    let (disk, mut log, _) = filled(Background::Threads, 2);
    release_in_vain(&disk, &mut log, Operation::Rename).expect("the thread meets it");
    assert_eq!(segments(&disk).len(), 3, "two are too small to be spares");
    assert!(log.discard_spares());
    assert!(!log.discard_spares(), "nothing is left to give");
    let (segments, spares) = names(&disk, Path::new(DIR));
    assert_eq!((segments.len(), spares.len()), (1, 0));
    assert!(!log.sync_handle().finish_releases());
}

/// A flush of the directory that failed says nothing of which names are gone: if the next segment went,
/// the one before could come back, and what lies between were missing.
#[test]
fn nothing_is_removed_after_a_failed_flush_of_the_directory() {
    for background in [Background::Manual, Background::Threads] {
        let (disk, mut log, payloads) = filled(background, 0);
        let (before, syncs) = (segments(&disk), disk.count(Operation::SyncDir));
        let first = log.first_index();
        disk.fail(Operation::SyncDir, 1, ErrorKind::Other);
        let released = log.release_prefix(log.written_index());
        assert_eq!(released.is_err(), background == Background::Manual);
        wait_for("nothing was tried", || {
            disk.count(Operation::SyncDir) == syncs + 1
        });
        wait_for("it takes writes still", || log.poisoned().is_some());
        assert!(log.close().is_err(), "it is poisoned");
        assert_eq!(segments(&disk), before[1..], "one has lost its name");
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), first - 1).expect("it is back");
        assert_eq!(found.len(), payloads.len());
    }
}
