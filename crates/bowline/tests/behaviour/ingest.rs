//! Bulk ingestion: what is there afterwards is what one transaction would have put, whoever else
//! reads, writes or watches meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::vfs::{MemoryVfs, Vfs};
use bowline::{
    ChangeKind, CompactionOptions, Db, DbBuilder, Durability, Error, Expected, History, Ingest,
    Isolation, Limits, Range, Result, Revision, StorageError,
};
use bowline_testing::fault::{Call, Failure, Rule};
use bowline_testing::{FaultVfs, SimDisk};

use crate::support::{Disk, TIMEOUT, assert_error, contents, entry, in_every_stage, manual, next};

/// So small that a few hundred entries fill several tables and pages.
fn small() -> DbBuilder {
    manual()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .page_bytes(512)
        .compaction(CompactionOptions {
            table_bytes: 4 << 10,
            ..CompactionOptions::default()
        })
}

fn key(number: u32) -> String {
    format!("key/{number:06}")
}

/// Adds entries with these numbers, which hold `value` and the number.
fn put_all(ingest: &mut Ingest, numbers: impl IntoIterator<Item = u32>, value: &str) -> Result<()> {
    for number in numbers {
        ingest.put(key(number), format!("{value} {number}"))?;
    }
    Ok(())
}

fn ingest_all(db: &Db, numbers: impl IntoIterator<Item = u32>, value: &str) -> Result<u64> {
    let mut ingest = db.ingest()?;
    put_all(&mut ingest, numbers, value)?;
    Ok((ingest.commit()?.revision).get())
}

/// The names of the files in the directory of tables.
fn tables(vfs: &dyn Vfs) -> Vec<String> {
    vfs.read_dir(Path::new("/db/tables")).expect("it lists")
}

#[test]
fn its_entries_are_those_of_one_transaction() {
    in_every_stage(
        small().history(History::All),
        |db| {
            db.put(key(1), "a")?; // 2
            db.put(key(1), "b")?; // 3
            db.flush()?;
            db.put(key(2), "c")?; // 4
            db.delete(key(2))?; // 5
            db.put(key(500), "d")?; // 6
            let before = db.snapshot();
            let mut ingest = db.ingest()?;
            put_all(&mut ingest, 0..400, "new")?;
            assert_eq!(ingest.entries(), 400);
            assert_eq!(db.get(key(3))?, None, "nothing is seen before the commit");
            let committed = ingest.commit()?;
            assert_eq!(
                (committed.revision, committed.changed, committed.deleted),
                (Revision::new(7), true, 0)
            );
            assert_eq!(contents(&before).len(), 2, "a snapshot does not see it");
            assert_eq!(before.get(key(1))?.as_deref(), Some(&b"b"[..]));
            db.put(key(3), "after") // 8
        },
        |db, last, stage| {
            assert_eq!(
                (*last, db.revision()),
                (Revision::new(8), Revision::new(8)),
                "{stage:?}"
            );
            let expected = [
                (key(0), entry(&key(0), "new 0", 7, 7, 1)),
                (key(1), entry(&key(1), "new 1", 2, 7, 3)),
                (key(2), entry(&key(2), "new 2", 7, 7, 1)),
                (key(3), entry(&key(3), "after", 7, 8, 2)),
                (key(399), entry(&key(399), "new 399", 7, 7, 1)),
                (key(500), entry(&key(500), "d", 6, 6, 1)),
            ];
            for (key, expected) in expected {
                assert_eq!(db.entry(&key)?, Some(expected), "{stage:?}");
            }
            assert_eq!(db.range(..)?.count(), 401, "{stage:?}");
            let past = db.snapshot_at(Revision::new(6))?;
            assert_eq!(
                contents(&past).len(),
                2,
                "{stage:?}: the past has none of it"
            );
            assert_eq!(
                contents(&db.snapshot_at(Revision::new(7))?).len(),
                401,
                "{stage:?}"
            );
            let history = db.history(key(1))?;
            let revisions: Vec<_> = history.iter().map(|version| version.revision).collect();
            assert_eq!(revisions, [7, 3, 2], "{stage:?}");
            Ok(())
        },
    );
}

/// Between keys that are far apart, close together, and behind the last one.
#[test]
fn what_keys_held_before_is_found_wherever_they_lie() -> Result<()> {
    for step in [1, 7, 100, 999] {
        let db = Disk::new().open(small());
        for number in 0..1000 {
            db.put(key(number), "old")?;
        }
        db.put(key(0), "old again")?;
        let ingested: Vec<u32> = (0..1100).step_by(step).collect();
        let revision = ingest_all(&db, ingested.iter().copied(), "new")?;
        for number in ingested {
            let found = db.entry(key(number))?.expect("it is there");
            let (created, version) = match number {
                0 => (2, 3),
                1..1000 => (u64::from(number) + 2, 2),
                _ => (revision, 1),
            };
            let seen = (found.create_revision, found.version, found.mod_revision);
            assert_eq!(
                seen,
                (Revision::new(created), version, Revision::new(revision)),
                "{step}: {number}"
            );
        }
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

#[test]
fn what_is_not_sorted_or_too_large_is_refused_and_leaves_nothing() -> Result<()> {
    let vfs = Arc::new(MemoryVfs::default());
    let limits = Limits {
        key_size_max_bytes: 30,
        value_size_max_bytes: 1000,
        ..Limits::default()
    };
    let db = small().limits(limits).vfs(vfs.clone()).open("/db")?;
    db.put("b", "old")?;
    db.flush()?;
    let (files, before) = (tables(&*vfs), db.revision());
    let refusals: [(&str, Vec<u8>, &[u8]); 6] = [
        ("NotAscending", key(10).into(), b"below"),
        ("NotAscending", key(3000).into(), b"twice"),
        ("NotAscending", b"a".to_vec(), b"the first of all"),
        ("EmptyKey", Vec::new(), b""),
        ("KeyTooLarge", vec![b'z'; 31], b""),
        ("ValueTooLarge", b"z".to_vec(), &[0; 1001]),
    ];
    for (name, key_given, value) in refusals {
        let mut ingest = db.ingest()?;
        put_all(&mut ingest, 0..=3000, "new")?;
        assert!(tables(&*vfs).len() > files.len() + 1, "it had begun");
        let error = ingest.put(&key_given, value).expect_err(name);
        assert!(format!("{error:?}").starts_with(name), "{name}: {error:?}");
        if let Error::NotAscending { key: given, after } = &error {
            assert_eq!(*given, format!("\"{}\"", key_given.escape_ascii()));
            assert_eq!(*after, format!("\"{}\"", key(3000)));
            assert!(!error.is_retryable() && error.to_string().contains(given));
        }
        // Then it is of no more use.
        let again = ingest.put(key(4000), "late").expect_err(name);
        assert_eq!(again.to_string(), error.to_string());
        let at_last = ingest.commit().expect_err(name);
        assert_eq!(at_last.to_string(), error.to_string());
        assert_eq!(tables(&*vfs), files, "{name}: no file stays");
        assert_eq!((db.revision(), contents(&db.snapshot()).len()), (before, 1));
    }
    // One that is given up, with one table unfinished and with none.
    for count in [0, 1, 3000] {
        let mut ingest = db.ingest()?;
        put_all(&mut ingest, 0..count, "new")?;
        drop(ingest);
        assert_eq!(tables(&*vfs), files);
    }
    let committed = db.ingest()?.commit()?;
    assert_eq!((committed.changed, committed.revision), (false, before));
    assert_eq!(db.put("c", "next")?, before + 1);
    Ok(())
}

#[test]
fn who_has_read_what_it_changes_conflicts_and_it_never_does() -> Result<()> {
    let db = Disk::new().open(small());
    db.put(key(5), "old")?;
    let begin = || -> Result<_> {
        let mut reads_key = db.begin();
        reads_key.get(key(5))?;
        let mut reads_absent = db.begin();
        reads_absent.get(key(7))?;
        let mut reads_range = db.begin();
        reads_range
            .range(Range::prefix("key/00000"))?
            .for_each(drop);
        let mut reads_elsewhere = db.begin();
        reads_elsewhere.get("other")?;
        reads_elsewhere.range("z"..)?.for_each(drop);
        let is_blind = db.begin();
        let mut writes_it = db.begin_with(Isolation::Snapshot);
        writes_it.put(key(8), "mine")?;
        Ok((
            [reads_key, reads_absent, reads_range, writes_it],
            [reads_elsewhere, is_blind],
        ))
    };
    for round in 0..3 {
        let (conflicting, free) = begin()?;
        // It never conflicts: not with what has changed since it began either.
        let mut ingest = db.ingest()?;
        put_all(&mut ingest, 0..200, &format!("{round}"))?;
        db.put(key(5), "meanwhile")?;
        if round == 1 {
            db.compact()?;
        }
        let revision = ingest.commit()?.revision;
        assert_eq!(
            db.entry(key(5))?.expect("it is there").mod_revision,
            revision
        );
        if round == 2 {
            db.compact()?;
        }
        for (number, mut tx) in conflicting.into_iter().enumerate() {
            tx.put("mark", "seen")?;
            assert_error!(tx.commit(), Error::Conflict { .. } if number < 4);
        }
        for mut tx in free {
            tx.put(key(5), "blind")?;
            tx.commit()?;
        }
        let expected = db.entry(key(6))?.expect("it is there").mod_revision;
        assert_error!(
            db.compare_and_swap(key(6), Expected::Revision(expected - 1), "x"),
            Error::CompareFailed { actual, .. } if actual == Some(revision)
        );
        db.compare_and_swap(key(6), Expected::Revision(expected), "x")?;
    }
    assert!(db.check()?.is_clean());
    Ok(())
}

/// Others commit while its tables are written: what its keys held before is what they hold then.
#[test]
fn beside_commits_it_is_written_for_the_revision_it_gets() -> Result<()> {
    let vfs = Arc::new(MemoryVfs::default());
    let db = small().history(History::All).vfs(vfs.clone()).open("/db")?;
    let mut ingest = db.ingest()?;
    put_all(&mut ingest, 0..300, "new")?;
    db.put(key(2), "old")?; // 2
    db.put(key(2), "old")?; // 3
    db.put(key(4), "old")?; // 4
    db.delete(key(4))?; // 5
    put_all(&mut ingest, 300..400, "new")?;
    db.put(key(350), "old")?; // 6
    let lease = db.grant_lease(Duration::from_secs(60))?;
    assert_eq!(ingest.commit()?.revision, 7);
    assert_eq!(db.entry(key(1))?, Some(entry(&key(1), "new 1", 7, 7, 1)));
    assert_eq!(db.entry(key(2))?, Some(entry(&key(2), "new 2", 2, 7, 3)));
    assert_eq!(db.entry(key(4))?, Some(entry(&key(4), "new 4", 7, 7, 1)));
    assert_eq!(
        db.entry(key(350))?,
        Some(entry(&key(350), "new 350", 6, 7, 2))
    );
    assert_eq!(contents(&db.snapshot_at(Revision::new(6))?).len(), 2);
    assert!(db.lease(lease).is_some());
    let check = db.check()?;
    assert!(check.is_clean(), "{check:?}");
    db.close()?;
    let named = tables(&*vfs);
    let db = small().history(History::All).vfs(vfs.clone()).open("/db")?;
    assert_eq!(
        tables(&*vfs),
        named,
        "the tables of the first attempt are gone"
    );
    assert_eq!(db.revision(), 7);
    Ok(())
}

#[test]
fn keys_of_leases_are_detached() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(small());
    let leases = [
        db.grant_lease(Duration::from_secs(60))?,
        db.grant_lease(Duration::from_secs(60))?,
    ];
    for number in 0..60 {
        db.put_with_lease(key(number), "leased", leases[number as usize % 2])?;
    }
    ingest_all(&db, 10..200, "new")?;
    let mut db = Some(db);
    for _ in 0..2 {
        let db = db.take().unwrap_or_else(|| disk.open(small()));
        let attached = db.lease_keys(leases[0])?.count() + db.lease_keys(leases[1])?.count();
        assert_eq!(attached, 10);
        assert!(db.check()?.is_clean());
        assert_eq!(db.entry(key(10))?.expect("it is there").lease, None);
        db.close()?;
    }
    let db = disk.open(small());
    assert_eq!(db.revoke_lease(leases[0])?, 5);
    assert_eq!(db.range(..)?.count(), 195, "what was ingested stays");
    Ok(())
}

/// A live watch, whose ring has no room for it, and one from the past; both see each key once, in
/// order, at one revision, between the commits around it.
#[test]
fn watches_see_each_key_once_and_in_order() -> Result<()> {
    for ring_bytes in [1 << 10, 16 << 20] {
        for beside in [false, true] {
            let db = Disk::new().open(small().history(History::All).watch_ring_bytes(ring_bytes));
            db.put(key(3), "old")?; // 2
            let mut live = db.watch(..).start()?;
            let mut part = db.watch(key(100)..key(103)).with_previous().start()?;
            db.put("before", "x")?; // 3
            let mut ingest = db.ingest()?;
            put_all(&mut ingest, 0..500, "new")?;
            if beside {
                db.put("beside", "x")?; // 4
            }
            let revision = ingest.commit()?.revision;
            db.put("after", "x")?;
            let late = db.watch(..).from(Revision::new(3)).start()?;
            for watch in [&mut live, &mut { late }] {
                let mut revisions = Vec::new();
                while let Some(changes) = watch.try_recv()? {
                    revisions.push(changes.revision);
                    if changes.revision != revision {
                        assert_eq!(changes.changes.len(), 1);
                        continue;
                    }
                    let keys = changes.changes.iter().map(|change| &change.entry.key[..]);
                    let expected: Vec<_> = (0..500).map(key).collect();
                    assert!(keys.eq(expected.iter().map(String::as_bytes)));
                    for change in &changes.changes {
                        assert_eq!(change.kind, ChangeKind::Put);
                        assert_eq!(change.entry.mod_revision, revision);
                        let is_old = change.entry.key[..] == *key(3).as_bytes();
                        assert_eq!(change.entry.version, if is_old { 2 } else { 1 });
                    }
                }
                let expected: Vec<_> = (3..=(revision + 1).get()).collect();
                assert_eq!(revisions, expected);
            }
            let changes = next(&mut part);
            assert_eq!((changes.revision, changes.changes.len()), (revision, 3));
            assert!(
                changes
                    .changes
                    .iter()
                    .all(|change| change.previous.is_none())
            );
            assert!(part.try_recv()?.is_none());
        }
    }
    Ok(())
}

#[test]
fn history_is_given_up_as_of_any_revision() -> Result<()> {
    let db = Disk::new().open(small().history(History::All));
    db.put(key(1), "old")?; // 2
    let held = db.snapshot();
    ingest_all(&db, 0..300, "one")?; // 3
    ingest_all(&db, 0..300, "two")?; // 4
    db.trim_history(Revision::new(4))?;
    db.compact()?;
    assert_error!(db.snapshot_at(Revision::new(3)), Error::Compacted { oldest, .. } if oldest == 4);
    assert_eq!(contents(&held).len(), 1, "but for who holds it");
    assert_eq!(held.get(key(1))?.as_deref(), Some(&b"old"[..]));
    assert_eq!(db.get(key(7))?.as_deref(), Some(&b"two 7"[..]));
    drop(held);
    db.compact()?;
    let stats = db.stats();
    let entries: u64 = stats.engine.levels[0]
        .iter()
        .map(|level| level.entries)
        .sum();
    assert_eq!(entries, 300, "what was ingested over is gone");
    assert_eq!(stats.engine.counters.ingestions, 2);
    assert!(stats.engine.counters.ingest_bytes_written > 0);
    Ok(())
}

#[test]
fn a_full_disk_refuses_it_whole_and_later_it_succeeds() -> Result<()> {
    let mut refused = 0;
    for space_bytes in (0..24_000).step_by(1_000) {
        let disk = FaultVfs::new(MemoryVfs::default());
        let db = small().vfs(Arc::new(disk.clone())).open("/db")?;
        db.put(key(1), "old")?;
        let numbers = 0..600;
        disk.limit_space(space_bytes);
        match ingest_all(&db, numbers.clone(), "new") {
            Ok(_) => {}
            Err(Error::Storage(StorageError::NoSpace { .. })) => {
                refused += 1;
                assert_eq!(contents(&db.snapshot()).len(), 1, "{space_bytes}");
                disk.lift_space_limit();
                db.put("other", "goes on")?;
                ingest_all(&db, numbers, "new")?;
            }
            Err(error) => panic!("{space_bytes}: {error}"),
        }
        disk.lift_space_limit();
        assert_eq!(db.range(Range::prefix("key/"))?.count(), 600);
        let revision = db.revision();
        db.close()?;
        let db = small().vfs(Arc::new(disk.clone())).open("/db")?;
        assert_eq!(db.revision(), revision);
        assert!(db.check()?.is_clean());
    }
    assert!(refused > 3, "{refused}");
    Ok(())
}

/// A closed directory may be somebody else's, who gives tables the same names.
#[test]
fn one_that_outlives_its_database_touches_nothing() -> Result<()> {
    let vfs = Arc::new(MemoryVfs::default());
    let db = small().vfs(vfs.clone()).open("/db")?;
    let mut finished = db.ingest()?;
    put_all(&mut finished, 0..500, "new")?;
    let mut begun = db.ingest()?;
    put_all(&mut begun, 0..3, "new")?;
    let fresh = db.ingest()?;
    db.close()?;
    let db = small().vfs(vfs.clone()).open("/db")?;
    assert_eq!(tables(&*vfs), [""; 0], "the next opening has removed them");
    for number in 0..10 {
        db.put(key(number), "another's")?;
        db.flush()?;
    }
    let files = tables(&*vfs);
    assert!(!files.is_empty());
    assert_error!(finished.put(key(600), "late"), Error::Closed);
    assert_error!(finished.commit(), Error::Closed);
    assert_error!(begun.commit(), Error::Closed);
    drop(fresh);
    assert_eq!(tables(&*vfs), files);
    assert!(db.check()?.is_clean());
    Ok(())
}

/// After a failure that leaves it open whether the manifest has it, no revision is given any more;
/// after any other, the next commit gets the revision that it did not.
#[test]
fn no_revision_is_given_twice_whatever_fails() -> Result<()> {
    let (mut stopped, mut went_on, mut ingested) = (0, 0, 0);
    let calls = [
        Call::Sync,
        Call::Write,
        Call::SetLen,
        // It is recorded in a new manifest: when that has its name and the directory is not flushed, nobody knows.
        Call::Rename,
        Call::SyncDir,
    ];
    for call in calls {
        for (nth, times) in (1..10).flat_map(|nth| [(nth, 1), (nth, 2), (nth, u64::MAX)]) {
            let sim = SimDisk::new();
            let disk = FaultVfs::new(sim.clone());
            let db = small().vfs(Arc::new(disk.clone())).open("/db")?;
            db.put(key(1), "old")?;
            let mut ingest = db.ingest()?;
            put_all(&mut ingest, 0..30, "new")?;
            // The manifest above all: what it says is what is there.
            disk.add(Rule::on(call).nth(nth).times(times).fail_after(Failure::Io));
            let result = ingest.commit();
            disk.clear();
            let put = db.put("next", "x");
            let allowed: &[(usize, u64)] = match (&result, &put) {
                (Ok(committed), Ok(next)) => {
                    ingested += 1;
                    assert_eq!(
                        (committed.revision, *next),
                        (Revision::new(3), Revision::new(4))
                    );
                    &[(31, 4)]
                }
                (Err(_), Ok(next)) => {
                    went_on += 1;
                    assert_eq!(*next, 3);
                    &[(2, 3)]
                }
                (_, Err(Error::Storage(StorageError::Poisoned { .. }))) => {
                    stopped += 1;
                    &[(1, 2), (30, 3)]
                }
                (_, Err(error)) => panic!("{call:?} {nth} {times}: {error}"),
            };
            for left in [sim.after_kill(), sim.after_power_loss()] {
                let db = small().vfs(Arc::new(left)).open("/db")?;
                let found = (db.range(..)?.count(), db.revision().get());
                assert!(
                    allowed.contains(&found),
                    "{call:?} {nth} {times}: {found:?}, not one of {allowed:?}"
                );
                assert!(db.check()?.is_clean());
            }
        }
    }
    let outcomes = (stopped, went_on, ingested);
    assert!(stopped > 0 && went_on > 0 && ingested > 0, "{outcomes:?}");
    Ok(())
}

/// Writers, readers and ingestions at once: everyone's commits are there, each at a revision of its
/// own, and no reader sees a part of an ingestion.
#[test]
fn it_stands_in_the_one_order_of_all_commits() -> Result<()> {
    const WRITERS: u32 = 3;
    const INGESTIONS: u32 = 12;
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Db::builder()
        .durability(Durability::Batched {
            every: Duration::from_secs(1),
        })
        .history(History::All)
        .memtable_bytes(256 << 10);
    let db = builder.clone().open(directory.path().join("data"))?;
    let mut watch = db.watch(..).start()?;
    let is_done = AtomicBool::new(false);
    let mut revisions = BTreeMap::new();
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let (db, is_done) = (&db, &is_done);
            threads.push(scope.spawn(move || -> Result<Vec<(Revision, usize)>> {
                let mut given = Vec::new();
                while !is_done.load(Ordering::Relaxed) {
                    let key = format!("own/{writer}/{}", given.len() % 50);
                    given.push((db.put(key, "x")?, 1));
                }
                Ok(given)
            }));
        }
        let reader = scope.spawn(|| -> Result<()> {
            while !is_done.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                let entries = snapshot.range(Range::prefix("key/"))?;
                let entries: Vec<_> = entries.collect::<Result<_>>()?;
                let of_one = entries.iter().all(|it| {
                    it.mod_revision == entries[0].mod_revision && it.version == entries[0].version
                });
                assert!(of_one && [0, 700].contains(&entries.len()));
            }
            Ok(())
        });
        for round in 0..INGESTIONS {
            let revision = ingest_all(&db, 0..700, &round.to_string())?;
            revisions.insert(revision, 700);
            let found = db.entry(key(9))?.expect("it is there");
            assert_eq!(
                (found.mod_revision, found.version),
                (Revision::new(revision), u64::from(round) + 1)
            );
        }
        is_done.store(true, Ordering::Relaxed);
        for thread in threads {
            let given = thread.join().expect("no panic")?;
            for (revision, count) in given {
                assert!(
                    revisions.insert(revision.get(), count).is_none(),
                    "given twice"
                );
            }
        }
        reader.join().expect("no panic")
    })?;
    let last = db.revision();
    assert!(
        revisions.keys().copied().eq(2..=last.get()),
        "each revision once"
    );
    for (revision, count) in &revisions {
        let changes = watch.recv_timeout(TIMEOUT)?.expect("they come");
        assert_eq!(
            (changes.revision, changes.changes.len()),
            (Revision::new(*revision), *count)
        );
    }
    assert!(db.check()?.is_clean());
    db.close()?;
    let db = builder.open(directory.path().join("data"))?;
    assert_eq!(db.revision(), last);
    assert_eq!(db.range(Range::prefix("key/"))?.count(), 700);
    Ok(())
}
