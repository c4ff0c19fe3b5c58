//! Updates in the order of commits: in commit groups, beside other threads, and when a flush fails. The promises that the
//! tests name are written down in `updates`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use bowline::vfs::MemoryVfs;
use bowline::{
    Db, DbBuilder, Durability, Error, Limits, Result, Revision, StorageError, Ticket, Update,
    UpdateError, Updated,
};
use bowline_testing::FaultVfs;
use bowline_testing::fault::{Call, Failure, Rule};

use crate::gated::{Gate, Gated, queue_up};
use crate::support::{Disk, assert_error, manual};
use crate::updates::{append, assert_updated, entry, set_if_absent, swap, text, value};

/// Commit groups, commits and flushes of the log so far.
fn counts(db: &Db) -> [u64; 3] {
    let counters = db.stats().engine.counters;
    [counters.commit_rounds, counters.commits, counters.log_syncs]
}

/// By how much the counts grew.
fn counted(db: &Db, before: [u64; 3]) -> [u64; 3] {
    let after = counts(db);
    [0, 1, 2].map(|at| after[at] - before[at])
}

/// What a member of a group does.
type Work<'a, T> = Box<dyn FnOnce(&Db) -> T + Send + 'a>;

fn update(key: &'static str, update: Update) -> Work<'static, Result<Updated>> {
    Box::new(move |db| db.update(key, update))
}

/// Does all of `works` in one commit group, in this order. `first` is a group before them, whose flush lasts until all wait.
fn in_one_group<T: Send>(db: &Db, gate: &Gate, works: Vec<Work<'_, T>>) -> Vec<T> {
    thread::scope(|scope| {
        let shut = gate.shut();
        let first = scope.spawn(|| db.put("first", "x"));
        gate.wait_until_somebody_waits();
        let mut threads = Vec::new();
        for work in works {
            threads.push(queue_up(scope, move || work(db)));
        }
        drop(shut);
        first.join().expect("no panic").expect("the first commit");
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    })
}

/// Promise 1, with tickets: an update is decided behind what stands before it, which nobody can read yet.
#[test]
fn an_update_is_decided_against_what_is_staged_before_it() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("k", "1")?;
    let (revision, before) = (db.revision(), counts(&db));
    let put = db.put_later("k", "5")?;
    assert_updated(
        &db.update("k", Update::Add(1))?,
        revision + 2,
        true,
        Some("6"),
    );
    assert_eq!(counted(&db, before), [1, 2, 1], "one group with one flush");
    let mut delete = db.begin();
    delete.delete("k")?;
    let delete = db.commit_later(delete)?;
    let claimed = db.update("k", set_if_absent("mine"))?;
    assert_updated(&claimed, revision + 4, true, Some("mine"));
    assert_eq!(entry(&db, "k").create_revision, revision + 4);
    let again = db.put_later("k", "theirs")?;
    let kept = db.update("k", swap(Some("mine"), Some("again")))?;
    assert_updated(&kept, revision + 5, false, Some("theirs"));
    for ticket in [put, delete, again] {
        assert!(ticket.is_done() && ticket.wait()?.changed);
    }
    Ok(())
}

/// Promises 1 and 2: each member of the group goes on from the value that the member before it leaves.
#[test]
fn updates_of_one_key_in_one_group_share_a_flush_and_lose_nothing() -> Result<()> {
    const ADDS: usize = 6;
    let disk = Gated::default();
    let db = manual().vfs(Arc::new(disk.clone())).open("/db")?;
    let created = db.put("n", "1")?;
    let (revision, before) = (db.revision(), counts(&db));
    let works = (0..ADDS).map(|_| update("n", Update::Add(1)));
    let all = in_one_group(&db, &disk.gate, works.collect());
    for (number, updated) in (2_u64..).zip(&all) {
        let updated = updated.as_ref().expect("no update conflicts");
        let number_text = number.to_string();
        assert_updated(updated, revision + number, true, Some(&number_text));
    }
    // The first commit has a group of its own.
    assert_eq!(counted(&db, before), [2, 1 + ADDS as u64, 2]);
    let found = entry(&db, "n");
    assert_eq!(found.create_revision, created);
    assert_eq!(found.version, 1 + ADDS as u64);
    Ok(())
}

/// Promise 1, by threads that meet by chance: every number is given out once, in the order of the revisions.
#[test]
fn counters_of_many_threads_give_out_each_number_once() -> Result<()> {
    const THREADS: usize = 8;
    const EACH: u64 = 50;
    let every = Duration::from_millis(1);
    for durability in [
        Durability::Sync,
        Durability::Memory,
        Durability::Batched { every },
    ] {
        let disk = Disk::new();
        let settings = || -> DbBuilder { Db::builder().durability(durability) };
        let db = disk.open(settings());
        let add = || -> Result<Vec<(Revision, u64)>> {
            let give = |_| {
                let given = db.update("n", Update::Add(1))?;
                let number = text(given.value.as_deref()).expect("a number");
                Ok((given.revision, number.parse().expect("a number")))
            };
            (0..EACH).map(give).collect()
        };
        let mut given: Vec<(Revision, u64)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
            let all: Result<Vec<Vec<_>>> = threads.into_iter().map(join).collect();
            all.map(|all| all.concat())
        })?;
        given.sort_unstable();
        let expected =
            (1..=THREADS as u64 * EACH).map(|number| (Revision::new(1 + number), number));
        assert!(given.iter().copied().eq(expected), "{durability:?}");
        if durability != Durability::Memory {
            db.close()?;
            drop(db);
            let db = disk.open(settings());
            assert_eq!(value(&db, "n").as_deref(), Some("400"), "{durability:?}");
        }
    }
    Ok(())
}

/// Promise 5: a refused member is as if it was not there.
#[test]
fn a_refused_update_does_not_touch_the_others_of_its_group() -> Result<()> {
    let disk = Gated::default();
    let limits = Limits {
        value_size_max_bytes: 40,
        ..Limits::default()
    };
    let settings = manual().vfs(Arc::new(disk.clone())).limits(limits);
    let db = settings.open("/db")?;
    db.put("n", "1")?;
    db.put("s", "x".repeat(30))?;
    let (revision, before) = (db.revision(), counts(&db));
    let works = vec![
        update("n", Update::Add(1)),
        update("s", Update::Add(1)),
        update("n", Update::Add(i64::MAX)),
        update("n", Update::Add(1)),
        update("s", append("01234567890")),
        update("s", append("0123456789")),
    ];
    let all = in_one_group(&db, &disk.gate, works);
    let [one, not_a_number, overflow, two, too_large, last] = &all[..] else {
        panic!("{all:?}");
    };
    // The first commit has the revision before.
    let changed = |updated: &Result<Updated>, behind, value: &str| {
        let updated = updated.as_ref().expect("it is decided");
        assert_updated(updated, revision + behind, true, Some(value));
    };
    changed(one, 2, "2");
    changed(two, 3, "3");
    changed(last, 4, &format!("{}0123456789", "x".repeat(30)));
    assert_error!(
        not_a_number,
        Error::NotUpdatable {
            source: UpdateError::NotANumber,
            ..
        }
    );
    assert_error!(
        overflow,
        Error::NotUpdatable {
            source: UpdateError::Overflow,
            ..
        }
    );
    assert_error!(
        too_large,
        Error::ValueTooLarge {
            size: 41,
            limit: 40
        }
    );
    assert_eq!(counted(&db, before), [2, 4, 2]);
    assert_eq!(db.revision(), revision + 4);
    assert_eq!((entry(&db, "n").version, entry(&db, "s").version), (3, 2));
    Ok(())
}

/// Promise 6: also an update that changed nothing, or was refused, was decided against what is lost.
#[test]
fn a_failed_flush_fails_every_update_of_its_group_and_behind_it() -> Result<()> {
    let disk = Gated::default();
    let faults = FaultVfs::new(disk.clone());
    let db = manual().vfs(Arc::new(faults.clone())).open("/db")?;
    db.put("n", "1")?;
    let mut watcher = db.watch("n"..="n").start()?;
    // The first flush is that of the commit before the group.
    faults.add(Rule::on(Call::Sync).path(".log").nth(2).fail(Failure::Io));
    let works = vec![
        update("n", Update::Add(1)),
        update("n", Update::Max(2)),
        update("first", Update::Add(1)),
        update("n", swap(Some("2"), None)),
        update("absent", swap(None, None)),
    ];
    for outcome in in_one_group(&db, &disk.gate, works) {
        assert_error!(outcome, Error::Storage(_));
    }
    assert_eq!(faults.injected().len(), 1);
    let revision = db.revision();
    for behind in [Update::Add(1), Update::Max(0)] {
        let refused = db.update("n", behind);
        assert_error!(refused, Error::Storage(StorageError::Poisoned { .. }));
    }
    assert_eq!(db.revision(), revision);
    assert_eq!(value(&db, "n").as_deref(), Some("1"));
    assert!(watcher.try_recv()?.is_none(), "nobody is told");
    Ok(())
}

/// Promise 7: the value has grown beyond the room between the look-up of an append and its turn, so its first turn decides
/// nothing.
#[test]
fn an_append_that_has_outgrown_its_room_is_tried_again() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("k", "old")?;
    let (revision, before) = (db.revision(), counts(&db));
    let large = "x".repeat(100_000);
    let ticket = db.put_later("k", &large)?;
    let longer = format!("{large}end");
    let appended = db.update("k", append("end"))?;
    assert_updated(&appended, revision + 2, true, Some(&longer));
    assert_eq!(ticket.wait()?.revision, revision + 1);
    assert_eq!(counted(&db, before)[..2], [2, 2], "in a group of its own");
    assert_eq!(value(&db, "k"), Some(longer));
    assert_eq!(entry(&db, "k").version, 3);
    Ok(())
}

/// Promise 7, by threads: every piece is there once, and whole.
#[test]
fn appends_of_many_threads_are_neither_lost_nor_doubled_nor_torn() -> Result<()> {
    const THREADS: usize = 8;
    const EACH: usize = 40;
    let disk = Disk::new();
    let db = disk.open(Db::builder());
    let piece = |thread, number| format!("[{thread}/{number}:{}]", "x".repeat(number * 7));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for number in 0..EACH {
                    let piece = piece(thread, number);
                    let appended = db.update("log", append(&piece)).expect("an append");
                    let value = appended.value.expect("a value");
                    assert!(value.ends_with(piece.as_bytes()), "its own is the last");
                }
            });
        }
    });
    let found = value(&db, "log").expect("a value");
    let pieces = |thread| (0..EACH).map(move |number| piece(thread, number));
    let expected: BTreeSet<String> = (0..THREADS).flat_map(pieces).collect();
    let length: usize = expected.iter().map(String::len).sum();
    assert_eq!(found.len(), length);
    let found: BTreeSet<String> = found.split_inclusive(']').map(Into::into).collect();
    assert_eq!(found, expected);
    assert_eq!(entry(&db, "log").version, (THREADS * EACH) as u64);
    drop(db);
    assert_eq!(
        value(&disk.open(manual()), "log").expect("a value").len(),
        length
    );
    Ok(())
}

/// Promise 8, alone and in one group with a put that is refused.
#[test]
fn on_a_full_disk_a_swap_to_none_still_commits() -> Result<()> {
    let disk = FaultVfs::new(MemoryVfs::default());
    let settings = manual()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10);
    let db = settings.vfs(Arc::new(disk.clone())).open("/db")?;
    for key in ["a", "b", "n"] {
        db.put(key, "1")?;
    }
    disk.limit_space(100_000);
    let mut random = fastrand::Rng::with_seed(7);
    let mut fill = |number| {
        let mut value = vec![0; 900];
        random.fill(&mut value);
        db.update(format!("full{number}"), Update::SetIfAbsent(value))
    };
    let refused = (0..3_000).find_map(|number| fill(number).err());
    let is_full = |error: &Error| matches!(error, Error::Storage(StorageError::NoSpace { .. }));
    assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
    disk.limit_space(0);
    // What is small still finds some room, up to the part that is kept for deletions.
    let grown = (0..5_000).find_map(|_| db.update("n", Update::Add(1)).err());
    assert!(grown.as_ref().is_some_and(is_full), "{grown:?}");
    for update in [Update::Add(1), append("x"), set_if_absent(&"x".repeat(900))] {
        let refused = db.update("n", update);
        assert_error!(refused, Error::Storage(StorageError::NoSpace { .. }));
    }
    let (revision, numbered) = (db.revision(), value(&db, "n"));
    assert_updated(
        &db.update("a", swap(Some("1"), None))?,
        revision + 1,
        true,
        None,
    );
    let put = db.put_later("refused", vec![0; 100_000])?;
    assert_updated(
        &db.update("b", swap(Some("1"), None))?,
        revision + 2,
        true,
        None,
    );
    assert_error!(put.wait(), Error::Storage(StorageError::NoSpace { .. }));
    assert_eq!(value(&db, "n"), numbered);
    disk.lift_space_limit();
    db.update("n", Update::Add(1))?;
    assert_eq!((value(&db, "a"), value(&db, "b")), (None, None));
    assert!(db.check()?.is_clean());
    Ok(())
}

/// Promise 9: behind an update, and in one group with it.
#[test]
fn an_update_conflicts_with_a_transaction_that_has_read_its_key() -> Result<()> {
    let disk = Gated::default();
    let db = manual().vfs(Arc::new(disk.clone())).open("/db")?;
    db.put("n", "1")?;
    let readers = || -> Result<_> {
        let (mut one, mut range, mut other) = (db.begin(), db.begin(), db.begin());
        one.get("n")?;
        assert_eq!(range.range("m".."o")?.count(), 1);
        other.get("other")?;
        for tx in [&mut one, &mut range, &mut other] {
            tx.put("result", "v")?;
        }
        Ok([one, range, other])
    };
    let conflicts = |outcomes: &[bool]| assert_eq!(outcomes, [true, true, false]);
    let is_conflict = |outcome: Result<bowline::Committed>| match outcome {
        Ok(_) => false,
        Err(Error::Conflict { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    // One that changes nothing is no conflict.
    let [one, ..] = readers()?;
    db.update("n", Update::Max(1))?;
    assert!(!is_conflict(one.commit()));
    let read = readers()?;
    db.update("n", Update::Add(1))?;
    conflicts(&read.map(|tx| is_conflict(tx.commit())));
    let read = readers()?;
    let shut = disk.gate.shut();
    thread::scope(|scope| {
        let first = scope.spawn(|| db.put("first", "x"));
        disk.gate.wait_until_somebody_waits();
        let updated = queue_up(scope, || db.update("n", swap(Some("2"), None)));
        let tickets = read.map(|tx| db.commit_later(tx).expect("a place"));
        drop(shut);
        first.join().expect("no panic")?;
        assert!(updated.join().expect("no panic")?.changed);
        conflicts(&tickets.map(|ticket: Ticket| is_conflict(ticket.wait())));
        Ok(())
    })
}
