//! Operations that fail: what poisons the log, what may be tried again, what survives.

use std::io::ErrorKind;

use super::*;
use crate::error::Error;

/// A log with one durable entry.
fn started() -> (Disk, Log) {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"durable"]);
    (disk, log)
}

fn assert_poisoned(mut log: Log, disk: &Disk) {
    assert!(log.poisoned().is_some());
    log.stage(b"later");
    let (writes, syncs) = (disk.count(Operation::Write), disk.count(Operation::Sync));
    let handle = log.sync_handle();
    for result in [
        log.write(),
        log.write(),
        log.sync().map(drop),
        handle.sync().map(drop),
        log.reserve(1),
        log.cut_suffix(1),
        log.release_prefix(1),
    ] {
        assert!(matches!(result, Err(Error::Poisoned { .. })), "{result:?}");
    }
    assert_eq!(
        log.durable_index(),
        1,
        "what was durable still is, and no more"
    );
    assert_eq!(log.read(1, 100).expect("reads go on")[0].1, b"durable"[..]);
    assert!(matches!(log.close(), Err(Error::Poisoned { .. })));
    let after = (disk.count(Operation::Write), disk.count(Operation::Sync));
    assert_eq!(after, (writes, syncs), "nothing was tried again");
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let (_, found) = open(&disk.crashed(crash), 0).expect("open");
        assert!(found.starts_with(&entries(1, &[b"durable"])), "{found:?}");
    }
}

#[test]
fn a_failed_write_poisons() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let (disk, mut log) = started();
        log.stage(b"unlucky");
        disk.fail(Operation::Write, 1, kind);
        assert!(matches!(log.write(), Err(Error::Poisoned { .. })));
        assert_poisoned(log, &disk);
    }
}

#[test]
fn a_failed_sync_poisons() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let (disk, mut log) = started();
        write(&mut log, &[b"unlucky"]);
        disk.fail(Operation::Sync, 1, kind);
        assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
        assert_poisoned(log, &disk);
    }
}

#[test]
fn a_failed_sync_of_the_old_segment_at_a_rotation_poisons() {
    let (disk, mut log) = started();
    write(&mut log, &[b"not synced"]);
    log.stage(&[0; 6000]);
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    assert!(matches!(log.write(), Err(Error::Poisoned { .. })));
    assert_poisoned(log, &disk);
}

#[test]
fn a_failure_from_the_naming_of_a_segment_on_poisons() {
    for (operation, nth) in [
        (Operation::Rename, 1),
        (Operation::SyncDir, 1),
        // The old segment has nothing unsynced: header, then the mark of continuation.
        (Operation::Sync, 2),
    ] {
        let (disk, mut log) = started();
        log.stage(&[0; 6000]);
        disk.fail(operation, nth, ErrorKind::Other);
        let result = log.write();
        assert!(
            matches!(result, Err(Error::Poisoned { .. })),
            "{operation:?}: {result:?}"
        );
        assert_poisoned(log, &disk);
    }
}

/// Larger than the next segment, so that no smaller one would do.
const LARGE: usize = 20_000;

#[test]
fn no_space_for_a_segment_can_be_tried_again() {
    for (operation, nth) in [
        (Operation::Create, 1),
        (Operation::Write, 1),
        // Zeros, then the header.
        (Operation::Write, 2),
        (Operation::Sync, 1),
        (Operation::Rename, 1),
    ] {
        let (disk, mut log) = started();
        disk.fail(operation, nth, ErrorKind::StorageFull);
        let result = log.reserve(LARGE as u64);
        assert!(
            matches!(result, Err(Error::NoSpace { .. })),
            "{operation:?}: {result:?}"
        );
        assert!(log.poisoned().is_none());
        let (segments, spares) = names(&disk, Path::new(DIR));
        assert_eq!(
            (segments.len(), spares.len()),
            (1, 0),
            "{operation:?}: nothing is left"
        );
        commit_each(&mut log, &[b"small ones go on"]);
        log.reserve(LARGE as u64).expect("there is space again");
        commit_each(&mut log, &[&[1; LARGE]]);
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(
            found,
            entries(1, &[b"durable", b"small ones go on", &[1; LARGE]])
        );
    }
}

#[test]
fn a_group_refused_for_lack_of_space_stays_staged() {
    let (disk, mut log) = started();
    log.stage(&[2; LARGE]);
    disk.fail(Operation::Create, 1, ErrorKind::StorageFull);
    assert!(matches!(log.write(), Err(Error::NoSpace { .. })));
    assert_eq!((log.next_index(), log.written_index()), (3, 1));
    log.write().expect("now it fits");
    assert_eq!(log.sync().expect("sync"), 2);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
    assert_eq!(found, entries(1, &[b"durable", &[2; LARGE]]));
}

#[test]
fn a_failing_thread_does_not_fail_the_writer() {
    let disk = Disk::new();
    let options = LogOptions {
        background: Background::Threads,
        ..small()
    };
    let (mut log, _) =
        open_with(Arc::new(disk.clone()), Path::new(DIR), options, 0, false).expect("open");
    disk.fail(Operation::Create, 1, ErrorKind::StorageFull);
    commit_each(&mut log, &[&[1; 2500]]);
    for _ in 0..500 {
        if disk.count(Operation::Create) == 4 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(
        disk.count(Operation::Create),
        4,
        "two directories, a segment, a failed spare"
    );
    commit_each(&mut log, &[&[2; 2500]]);
    log.close().expect("close");
}

#[test]
fn an_opening_that_fails_anywhere_can_be_tried_again() {
    let (disk, mut log) = started();
    write(&mut log, &[b"written"]);
    drop(log);
    for operation in [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDir,
    ] {
        for nth in 1.. {
            let disk = disk.crashed(Crash::Kill);
            disk.fail(operation, nth, ErrorKind::Other);
            let failed = open(&disk, 0).is_err();
            disk.heal();
            let (_, found) = open(&disk, 0).expect("again");
            assert_eq!(
                found,
                entries(1, &[b"durable", b"written"]),
                "{operation:?} {nth}"
            );
            let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("again");
            assert_eq!(
                found,
                entries(1, &[b"durable", b"written"]),
                "{operation:?} {nth}"
            );
            if !failed {
                assert!(nth > 1, "{operation:?} was reached");
                break;
            }
        }
    }
}
