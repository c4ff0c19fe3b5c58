//! Watching: order, completeness, resumption, the way from history to live, and its errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline::{
    Background, Block, BlockId, ChangeKind, Changes, Db, Error, Expected, History, Range, Result,
    Revision, Watcher,
};
use bowline_testing::fault::Call;
use bowline_testing::{FaultVfs, SimDisk};

use crate::support::{Disk, assert_error, in_every_stage, manual, next};

const SHORT: Duration = Duration::from_millis(20);

/// A change as text: `k=v`, or `-k`.
fn show(changes: &Changes) -> String {
    let show = |change: &bowline::Change| {
        let key = String::from_utf8_lossy(&change.entry.key).into_owned();
        match change.kind {
            ChangeKind::Put => format!("{key}={}", String::from_utf8_lossy(&change.entry.value)),
            ChangeKind::Delete => format!("-{key}"),
        }
    };
    let all: Vec<_> = changes.changes.iter().map(show).collect();
    format!("{}: {}", changes.revision, all.join(" "))
}

/// Everything that is there already.
fn drain(watcher: &mut Watcher) -> Result<Vec<String>> {
    let mut found = Vec::new();
    while let Some(changes) = watcher.try_recv()? {
        found.push(show(&changes));
    }
    Ok(found)
}

#[test]
fn a_watch_begins_with_the_next_change() -> Result<()> {
    let db = Disk::new().open(manual());
    db.put("before", "x")?;
    let mut watcher = db.watch(..).start()?;
    assert_eq!(watcher.next_revision(), 3);
    assert_eq!(watcher.try_recv()?, None);
    assert_eq!(watcher.recv_timeout(Duration::ZERO)?, None);
    db.put("a", "1")?;
    db.delete("before")?;
    db.delete("absent")?;
    db.compare_and_swap("b", Expected::Absent, "2")?;
    assert_eq!(drain(&mut watcher)?, ["3: a=1", "4: -before", "5: b=2"]);
    assert_eq!(watcher.next_revision(), 6);
    Ok(())
}

#[test]
fn a_watch_reads_the_past_wherever_it_lies() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            db.put("a", "1")?; // 2
            db.put("b", "1")?; // 3
            db.delete("a")?; // 4
            db.flush()?;
            db.transact(|tx| {
                tx.put("c", "1")?;
                tx.put("a", "2")?;
                tx.delete("b").map(drop)
            })?; // 5
            db.put("z", "1") // 6
        },
        |db, _, stage| {
            let all = ["2: a=1", "3: b=1", "4: -a", "5: a=2 -b c=1", "6: z=1"];
            for from in 1..=8u64 {
                let mut watcher = db.watch(..).from(Revision::new(from)).start()?;
                let skipped = from.saturating_sub(2).min(5) as usize;
                assert_eq!(
                    drain(&mut watcher)?,
                    all[skipped..],
                    "{stage:?} from {from}"
                );
            }
            let mut one = db.watch(Range::key("b")).from(Revision::new(1)).start()?;
            assert_eq!(drain(&mut one)?, ["3: b=1", "5: -b"], "{stage:?}");
            let mut some = db.watch("b".."d").from(Revision::new(3)).start()?;
            assert_eq!(drain(&mut some)?, ["3: b=1", "5: -b c=1"], "{stage:?}");
            let mut none = db
                .watch(Range::prefix("nothing"))
                .from(Revision::new(2))
                .start()?;
            assert_eq!(drain(&mut none)?.len(), 0, "{stage:?}");
            // And each goes on into the present.
            db.put("b", "9")?;
            for watcher in [&mut one, &mut some] {
                assert_eq!(drain(watcher)?, ["7: b=9"], "{stage:?}");
            }
            assert_eq!(drain(&mut none)?.len(), 0, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn the_past_carries_whole_entries() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            db.put("k", "1")?;
            db.put("k", "2")?;
            db.delete("k")?;
            db.put("k", "3")
        },
        |db, _, stage| {
            let mut watcher = db
                .watch(..)
                .from(Revision::new(2))
                .with_previous()
                .start()?;
            let mut previous = None;
            for (revision, create, version) in [(2, 2, 1), (3, 2, 2), (4, 0, 0), (5, 5, 1)] {
                let changes = watcher.try_recv()?.expect("it is there");
                let change = &changes.changes[0];
                let meta = (
                    change.entry.create_revision,
                    change.entry.mod_revision,
                    change.entry.version,
                );
                assert_eq!(
                    meta,
                    (Revision::new(create), Revision::new(revision), version),
                    "{stage:?}"
                );
                assert_eq!(change.previous, previous, "{stage:?} {revision}");
                previous = (version > 0).then(|| change.entry.clone());
            }
            // Live, too.
            db.delete("k")?;
            let changes = watcher.try_recv()?.expect("it is there");
            assert_eq!(changes.changes[0].previous, previous, "{stage:?}");
            assert_eq!(
                changes.changes[0].entry.value,
                b""[..],
                "a deletion has no value"
            );
            Ok(())
        },
    );
}

#[test]
fn a_watch_in_the_future_waits_for_its_revision() -> Result<()> {
    let db = Disk::new().open(manual());
    let mut watcher = db.watch(..).from(Revision::new(5)).start()?;
    for value in ["2", "3", "4"] {
        db.put("k", value)?;
        assert_eq!(watcher.recv_timeout(Duration::ZERO)?, None);
    }
    db.flush()?;
    db.put("k", "5")?;
    assert_eq!(drain(&mut watcher)?, ["5: k=5"]);
    Ok(())
}

#[test]
fn revisions_without_keys_in_range_are_passed_over() -> Result<()> {
    let db = Disk::new().open(manual());
    let mut watcher = db.watch(Range::prefix("in/")).start()?;
    db.put("out", "x")?;
    db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "kind")))?;
    db.put("in/k", "x")?;
    db.grant_lease(Duration::from_secs(9))?;
    db.transact(|tx| tx.delete_block(BlockId(1)).map(drop))?;
    assert_eq!(drain(&mut watcher)?, ["4: in/k=x"]);
    assert_eq!(watcher.next_revision(), 6);
    Ok(())
}

/// Found by this test: a revision that changed only the graph was not put into the ring, so each
/// watcher read the versions of its range from the trees, for each such revision.
#[test]
fn a_watch_of_keys_costs_nothing_while_only_the_graph_changes() -> Result<()> {
    let db = Disk::new().open(manual());
    db.transact(|tx| (0..100_000u32).try_for_each(|at| tx.put(at.to_be_bytes(), "x")))?;
    let mut watcher = db.watch(..).start()?;
    let start = Instant::now();
    for id in 0..1_000 {
        db.transact(|tx| tx.put_block(&Block::new(BlockId(id), "kind")))?;
        assert_eq!(watcher.try_recv()?, None);
    }
    // A thousand scans of a hundred thousand keys take far longer.
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

#[test]
fn every_watcher_gets_everything_of_its_range() -> Result<()> {
    let db = Disk::new().open(manual());
    let mut all: Vec<_> = (0..20)
        .map(|_| db.watch(..).start())
        .collect::<Result<_>>()?;
    let mut odd = db.watch(Range::prefix("1/")).start()?;
    assert_eq!(db.stats().watchers, 21);
    for at in 0..50 {
        db.put(format!("{}/{at}", at % 2), "x")?;
    }
    for watcher in &mut all {
        assert_eq!(drain(watcher)?.len(), 50);
    }
    assert_eq!(drain(&mut odd)?.len(), 25);
    drop((all, odd));
    assert_eq!(db.stats().watchers, 0);
    Ok(())
}

#[test]
fn a_watcher_resumes_where_another_ended() -> Result<()> {
    let disk = Disk::new();
    let settings = || manual().history(History::All);
    let mut db = disk.open(settings());
    let mut from = db.revision() + 1;
    let mut seen = Vec::new();
    let mut written = Vec::new();
    for round in 0..20 {
        for at in 0..5 {
            let revision = db.put("k", format!("{round}.{at}"))?;
            written.push(format!("{revision}: k={round}.{at}"));
        }
        let mut watcher = db.watch(..).from(from).start()?;
        // Takes some, not all.
        for _ in 0..3 + round % 4 {
            if let Some(changes) = watcher.try_recv()? {
                seen.push(show(&changes));
            }
        }
        from = watcher.next_revision();
        drop(watcher);
        match round % 4 {
            0 => db.flush()?,
            1 => db.compact()?,
            2 => {
                drop(db);
                db = disk.open(settings());
            }
            _ => {}
        }
    }
    seen.extend(drain(&mut db.watch(..).from(from).start()?)?);
    assert_eq!(seen, written);
    Ok(())
}

/// Far more changes than the ring holds, with flushes and merges in between: a slow watcher reads
/// them from history, also with a history setting that keeps nothing for others.
#[test]
fn a_slow_watcher_gets_everything_from_history() -> Result<()> {
    let settings = manual().watch_ring_bytes(2_000).memtable_bytes(64 << 10);
    let db = Disk::new().open(settings);
    let mut slow = db.watch(..).start()?;
    let mut slower = db.watch(Range::prefix("k1")).start()?;
    let mut expected = Vec::new();
    for at in 0..3_000 {
        let key = format!("k{}", at % 30);
        let revision = db.put(&key, at.to_string())?;
        expected.push(format!("{revision}: {key}={at}"));
        if at % 1_000 == 700 {
            db.compact()?;
            // It takes a few, and the rest stays for later.
            for _ in 0..10 {
                assert!(slow.try_recv()?.is_some());
            }
        }
    }
    assert!(db.stats().engine.counters.flushes >= 3);
    let rest = drain(&mut slow)?;
    assert_eq!(rest, expected[30..]);
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|text| text.contains(": k1"))
        .collect();
    assert_eq!(drain(&mut slower)?, expected);
    Ok(())
}

/// The history of large values does not fit one chunk of what a watcher reads at once.
#[test]
fn history_is_read_in_chunks_without_gaps() -> Result<()> {
    let db = Disk::new().open(manual().history(History::All));
    for at in 0..60u8 {
        db.put(format!("k{}", at % 7), vec![at; 300_000])?;
        if at % 20 == 9 {
            db.flush()?;
        }
    }
    let mut watcher = db.watch(..).from(Revision::new(2)).start()?;
    for at in 0..60u8 {
        let changes = watcher.try_recv()?.expect("it is there");
        assert_eq!(
            (changes.revision, changes.changes[0].entry.value[0]),
            (Revision::new(u64::from(at) + 2), at)
        );
    }
    assert_eq!(watcher.try_recv()?, None);
    Ok(())
}

/// Each chunk read all large values of the rest of history, and kept those of four megabytes: the square of the lag.
/// Found by review.
#[test]
fn the_large_values_of_history_are_read_about_once() -> Result<()> {
    let vfs = FaultVfs::new(SimDisk::new());
    let settings = manual().history(History::All).vfs(Arc::new(vfs.clone()));
    let db = settings.open("db")?;
    for at in 0..200u8 {
        // Nothing that shrinks when it is compressed.
        let mut random = fastrand::Rng::with_seed(u64::from(at));
        let mut value = vec![0; 100_000];
        random.fill(&mut value);
        value[0] = at;
        db.put([at], value)?;
    }
    db.flush()?;
    let mut watcher = db.watch(..).from(Revision::new(2)).start()?;
    let before = vfs.counts().get(Call::Read);
    for at in 0..200u8 {
        let changes = watcher.try_recv()?.expect("it is there");
        assert_eq!(changes.changes[0].entry.value[0], at);
    }
    let reads = vfs.counts().get(Call::Read) - before;
    assert!(reads < 2 * 200, "{reads} reads");
    Ok(())
}

#[test]
fn a_start_in_compacted_history_is_refused_with_the_oldest_revision() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            for value in 0..9 {
                db.put("k", value.to_string())?; // 2..=10
            }
            db.trim_history(Revision::new(6))
        },
        |db, (), stage| {
            for from in [0, 1, 5] {
                let refused = db.watch(..).from(Revision::new(from)).start();
                assert_error!(refused, Error::Compacted { requested, oldest, current } if oldest == 6 && current == 10 && requested == from);
            }
            assert_eq!(
                db.stats().watchers,
                0,
                "{stage:?}: a refused watch leaves nothing"
            );
            let mut watcher = db.watch(..).from(Revision::new(6)).start()?;
            assert_eq!(
                drain(&mut watcher)?.len(),
                5,
                "{stage:?}: the oldest revision is whole"
            );
            Ok(())
        },
    );
}

#[test]
fn a_deletion_at_the_oldest_revision_is_still_told() -> Result<()> {
    let db = Disk::new().open(manual().history(History::All));
    db.put("k", "1")?;
    db.put("other", "1")?;
    db.delete("k")?; // 4
    db.put("other", "2")?;
    db.trim_history(Revision::new(4))?;
    db.compact()?;
    let mut watcher = db.watch(..).from(Revision::new(4)).start()?;
    assert_eq!(drain(&mut watcher)?, ["4: -k", "5: other=2"]);
    Ok(())
}

#[test]
fn a_running_watch_that_loses_its_history_says_so() -> Result<()> {
    let db = Disk::new().open(manual().watch_ring_bytes(500).history(History::All));
    let mut watcher = db.watch(..).start()?;
    for value in 0..100 {
        db.put("k", value.to_string())?;
    }
    db.trim_history(Revision::new(90))?;
    assert_error!(
        watcher.try_recv(),
        Error::Compacted {
            requested,
            oldest,
            current
        } if requested == 2 && oldest == 90 && current == 101
    );
    assert_error!(
        watcher.recv_timeout(SHORT),
        Error::Compacted { oldest, .. } if oldest == 90
    );
    assert_eq!(watcher.next_revision(), 2, "nothing was skipped in silence");
    let mut resumed = db.watch(..).from(Revision::new(90)).start()?;
    assert_eq!(drain(&mut resumed)?.len(), 12);
    Ok(())
}

#[test]
fn a_watch_that_lags_beyond_the_limit_loses_its_history() -> Result<()> {
    let settings = || manual().watch_ring_bytes(500).watch_lag_max(50);
    let db = Disk::new().open(settings());
    let mut fast = db.watch(..).start()?;
    let mut slow = db.watch(..).start()?;
    for value in 0..200 {
        db.put("k", value.to_string())?;
        if value % 10 == 0 {
            db.flush()?;
        }
        assert!(fast.try_recv()?.is_some());
    }
    let error = slow.try_recv().expect_err("200 revisions behind");
    let Error::Compacted {
        requested,
        oldest,
        current,
    } = error
    else {
        panic!("another error: {error:?}");
    };
    assert_eq!([requested, current], [2, 201]);
    assert!((140..=201).contains(&oldest.get()), "{oldest}");
    assert_eq!(fast.try_recv()?, None);

    // Within the limit nothing is lost.
    let db = Disk::new().open(settings());
    let mut slow = db.watch(..).start()?;
    for value in 0..45 {
        db.put("k", value.to_string())?;
        db.flush()?;
    }
    db.compact()?;
    assert_eq!(drain(&mut slow)?.len(), 45);
    Ok(())
}

#[test]
fn waiting_ends_at_the_timeout_or_with_the_change() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    let mut watcher = db.watch(Range::prefix("in/")).start()?;
    let start = Instant::now();
    assert_eq!(watcher.recv_timeout(Duration::from_millis(80))?, None);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(80), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            // Changes elsewhere wake it and do not end the wait.
            db.put("out", "x").expect("a put");
            thread::sleep(SHORT);
            db.put("in/k", "x").expect("a put");
        });
        // Without any bound: a wait of all time must not overflow.
        let changes = watcher.recv_timeout(Duration::MAX)?.expect("a change");
        assert_eq!(show(&changes), "3: in/k=x");
        Ok(())
    })
}

#[test]
fn close_wakes_a_waiting_watcher_with_closed() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    let mut watcher = db.watch(..).start()?;
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let result = watcher.recv_timeout(Duration::from_secs(60));
            (result, Instant::now(), watcher)
        });
        thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        db.close()?;
        let (result, ended, mut watcher) = waiting.join().expect("no panic");
        assert_error!(result, Error::Closed);
        let took = ended.saturating_duration_since(start);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_error!(watcher.try_recv(), Error::Closed);
        assert_error!(db.watch(..).start(), Error::Closed);
        Ok(())
    })
}

/// Four writers, one watcher from now, one on a tiny ring's history, one that starts again and
/// again, while memtables are flushed and merged: each gets each change once, in order.
#[test]
fn under_load_every_change_comes_once_and_in_order() -> Result<()> {
    const WRITERS: u64 = 4;
    const EACH: u64 = 5_000;
    let settings = Db::builder()
        .memtable_bytes(256 << 10)
        .watch_ring_bytes(20_000)
        .watch_lag_max(u64::MAX);
    let db = Disk::new().open(settings);
    let watchers = [
        db.watch(..).start()?,
        db.watch(..).start()?,
        db.watch(..).start()?,
    ];
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (number, mut watcher) in watchers.into_iter().enumerate() {
            let db = &db;
            readers.push(scope.spawn(move || {
                let mut revision = 1;
                let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
                let mut total = 0;
                while total < WRITERS * EACH {
                    let changes = next(&mut watcher);
                    assert_eq!(
                        changes.revision,
                        revision + 1,
                        "each revision has one change"
                    );
                    revision += 1;
                    for change in &changes.changes {
                        assert_eq!(change.entry.mod_revision, revision);
                        let count = counts.entry(change.entry.key[..1].to_vec()).or_default();
                        let value =
                            u64::from_be_bytes(change.entry.value[..].try_into().expect("8"));
                        assert_eq!(value, *count, "a writer's changes come in its order");
                        *count += 1;
                        total += 1;
                    }
                    match number {
                        1 if total % 2_000 == 0 => thread::sleep(Duration::from_millis(30)),
                        2 if total % 100 == 0 => {
                            let from = watcher.next_revision();
                            // The new one holds the history before the old one lets go of it.
                            let fresh = db.watch(..).from(from).start();
                            watcher = fresh.expect("its history is held");
                        }
                        _ => {}
                    }
                }
                assert_eq!(watcher.recv_timeout(SHORT).expect("no error"), None);
            }));
        }
        let is_done = &is_done;
        let upkeep = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.compact().expect("a merge");
                thread::sleep(Duration::from_millis(10));
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    for count in 0..EACH {
                        let key = format!("{writer}/{}", count % 50);
                        db.put(key, count.to_be_bytes()).expect("a put");
                    }
                })
            })
            .collect();
        for thread in writers.into_iter().chain(readers) {
            thread.join().expect("no panic");
        }
        is_done.store(true, Ordering::Relaxed);
        upkeep.join().expect("no panic");
    });
    assert_eq!(db.revision(), 1 + WRITERS * EACH);
    Ok(())
}

/// Watchers are started all the time while others write: what a watcher misses at its start is
/// below its first revision, and it misses nothing after it.
#[test]
fn watches_that_start_under_load_have_no_gap() -> Result<()> {
    let db = Disk::new().open(Db::builder().memtable_bytes(128 << 10));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        for writer in 0..2 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    db.put(format!("{writer}"), [0; 100]).expect("a put");
                }
            });
        }
        for _ in 0..300 {
            let before = db.revision();
            let mut watcher = db.watch(..).start()?;
            let first = watcher.next_revision();
            assert!(first > before);
            for expected in (first.get()..(first + 5).get()).map(Revision::new) {
                assert_eq!(next(&mut watcher).revision, expected);
            }
        }
        is_done.store(true, Ordering::Relaxed);
        Ok(())
    })
}

#[test]
fn a_watch_with_batched_durability_works_as_any() -> Result<()> {
    let every = Duration::from_millis(5);
    for background in [Background::Threads, Background::Manual] {
        let settings = Db::builder()
            .durability(bowline::Durability::Batched { every })
            .background(background);
        let db = Disk::new().open(settings);
        let mut watcher = db.watch(..).start()?;
        for at in 0..100 {
            db.put("k", at.to_string())?;
        }
        assert_eq!(drain(&mut watcher)?.len(), 100, "{background:?}");
        db.sync()?;
    }
    Ok(())
}

#[test]
fn a_watcher_and_its_database_may_go_in_any_order() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(manual());
    let mut watcher = db.watch(..).start()?;
    db.put("k", "v")?;
    drop(db);
    assert_error!(
        disk.try_open(manual()),
        Error::Storage(bowline::StorageError::Locked { .. })
    );
    assert_eq!(
        drain(&mut watcher)?,
        ["2: k=v"],
        "the watcher keeps the database open"
    );
    drop(watcher);
    let db = disk.open(manual());
    assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
    Ok(())
}

#[test]
fn a_thread_may_wait_for_a_revision_for_others() {
    let db = Db::in_memory().unwrap();
    assert!(
        db.wait_for_revision(Revision::new(1), Duration::ZERO)
            .unwrap()
    );
    assert!(
        !db.wait_for_revision(Revision::new(2), Duration::from_millis(1))
            .unwrap()
    );
    let waiting = db.clone();
    let waiter =
        thread::spawn(move || waiting.wait_for_revision(Revision::new(2), Duration::from_secs(60)));
    db.put(b"k", b"v").unwrap();
    assert!(waiter.join().unwrap().unwrap());
    // The wake-up by an earlier commit counted as the end of the time. Found by review.
    let waiting = db.clone();
    let waiter =
        thread::spawn(move || waiting.wait_for_revision(Revision::new(4), Duration::from_secs(60)));
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(50));
        db.put(b"k", b"v").unwrap();
    }
    assert!(waiter.join().unwrap().unwrap());
    let waiting = db.clone();
    let waiter =
        thread::spawn(move || waiting.wait_for_revision(Revision::new(9), Duration::from_secs(60)));
    db.close().unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
}
