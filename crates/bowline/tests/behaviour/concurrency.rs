//! Many threads at once; handles that go in any order; and one interleaving that once went wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline::{
    Block, BlockId, Db, Edge, Entry, Error, Graph, History, Isolation, RangeIter, Result, Revision,
    Snapshot,
};
use bowline::{Transaction, TransactionRange, Watcher};
use bowline_testing::lease_id;

use crate::gated::{Gated, queue_up};
use crate::support::{Disk, assert_error, contents, keys_of, manual, number};

#[test]
fn handles_are_send_and_sync_and_cheap_to_clone() {
    fn shared<T: Send + Sync + 'static>() {}
    fn cloned<T: Clone>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Db>();
    shared::<Snapshot>();
    shared::<Transaction>();
    shared::<Graph>();
    shared::<Error>();
    shared::<Entry>();
    sent::<RangeIter>();
    sent::<TransactionRange>();
    sent::<Watcher>();
    cloned::<Db>();
    cloned::<Snapshot>();
    cloned::<Graph>();
    cloned::<Error>();
}

/// What the big test below keeps true in every commit: `pair/a` and `pair/b` are equal, `log/…`
/// has as many keys as `count` says, each ring of the graph is whole or absent.
fn assert_invariants(snapshot: &Snapshot) -> Result<()> {
    for pair in 0..4 {
        let read = |side| snapshot.get(format!("pair/{pair}/{side}"));
        assert_eq!(
            read("a")?,
            read("b")?,
            "at revision {}",
            snapshot.revision()
        );
    }
    let entries = snapshot.range("log/".."log0")?.count() as u64;
    assert_eq!(entries, number(snapshot.get("count")?));
    let graph = snapshot.graph();
    for ring in 0..3u128 {
        let first = BlockId(ring * 10);
        let size = if graph.has_block(first)? {
            graph.traverse(first).run()?.len()
        } else {
            0
        };
        assert!(size == 0 || size == 5, "ring {ring} has {size} blocks");
    }
    Ok(())
}

/// One random transaction that keeps the invariants.
fn work(db: &Db, random: &mut fastrand::Rng) -> Result<()> {
    db.transact(|tx| match random.u8(..8) {
        0..=2 => {
            let pair = random.u8(..4);
            let value = random.u64(..).to_be_bytes();
            tx.put(format!("pair/{pair}/a"), value)?;
            tx.put(format!("pair/{pair}/b"), value)
        }
        3..=5 => {
            let count = number(tx.get("count")?);
            let key = format!("log/{:03}", random.u32(..400));
            let count = match tx.get(&key)? {
                Some(_) => {
                    tx.delete(&key)?;
                    count - 1
                }
                None => {
                    tx.put(&key, vec![7; random.usize(..2_000)])?;
                    count + 1
                }
            };
            tx.put("count", count.to_be_bytes())
        }
        6 => {
            let first = random.u128(..3) * 10;
            for at in 0..5 {
                let block =
                    Block::new(BlockId(first + at), "node").content(vec![1; random.usize(..500)]);
                tx.put_block(&block)?;
            }
            for at in 0..5 {
                let edge = Edge::new(BlockId(first + at), "next", BlockId(first + (at + 1) % 5));
                tx.put_edge(&edge)?;
            }
            Ok(())
        }
        _ => {
            let first = random.u128(..3) * 10;
            (0..5).try_for_each(|at| tx.delete_block(BlockId(first + at)).map(drop))
        }
    })
}

#[test]
fn writers_readers_watchers_and_upkeep_together_keep_every_invariant() -> Result<()> {
    let disk = Disk::new();
    let settings = Db::builder()
        .memtable_bytes(256 << 10)
        .log_segment_bytes(256 << 10)
        .watch_ring_bytes(50_000);
    let db = disk.open(settings.clone());
    let mut watcher = db.watch(..).start()?;
    let end = Instant::now() + Duration::from_secs(2);
    let is_done = AtomicBool::new(false);
    let commits = AtomicU64::new(0);
    let mut mirror = std::collections::BTreeMap::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (db, commits) = (&db, &commits);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer);
                    while Instant::now() < end {
                        work(db, &mut random).expect("a commit");
                        commits.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot();
                    assert!(snapshot.revision() >= last, "revisions never go back");
                    last = snapshot.revision().get();
                    assert_invariants(&snapshot).expect("readable");
                    let first = contents(&snapshot);
                    assert!(contents(&snapshot) == first, "a snapshot does not change");
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let slow = db.range(..).expect("valid");
                let mut last: Option<Entry> = None;
                for entry in slow {
                    let entry = entry.expect("readable");
                    assert!(
                        last.is_none_or(|last| last.key < entry.key),
                        "in order, each once"
                    );
                    last = Some(entry);
                    thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.compact().expect("a merge");
                thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let check = db.check().expect("a check");
                assert!(check.is_clean(), "{check:?}");
                thread::sleep(Duration::from_millis(100));
            }
        });
        // A copy made from changes alone must come out as the database itself.
        let watching = scope.spawn(|| {
            let mut last = 1;
            loop {
                let ended = is_done.load(Ordering::Acquire);
                let next = watcher
                    .recv_timeout(Duration::from_millis(20))
                    .expect("no error");
                let Some(changes) = next else {
                    if ended {
                        break;
                    }
                    continue;
                };
                assert!(changes.revision > last, "in order");
                last = changes.revision.get();
                for change in changes.changes {
                    let key = change.entry.key.to_vec();
                    match change.kind {
                        bowline::ChangeKind::Put => mirror.insert(key, change.entry.value.to_vec()),
                        bowline::ChangeKind::Delete => mirror.remove(&key),
                    };
                }
            }
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_done.store(true, Ordering::Release);
        watching.join().expect("no panic");
    });
    assert!(commits.load(Ordering::Relaxed) > 100);
    let stats = db.stats().engine.counters;
    assert!(stats.flushes > 0 && stats.compactions > 0, "{stats:?}");
    let found = contents(&db.snapshot());
    assert!(
        mirror.into_iter().collect::<Vec<_>>() == found,
        "the watch missed something"
    );
    assert_invariants(&db.snapshot())?;
    assert!(db.check()?.is_clean());
    let revision = db.revision();
    drop(watcher);
    db.close()?;
    drop(db);
    let db = disk.open(settings);
    assert_eq!(db.revision(), revision);
    assert!(
        contents(&db.snapshot()) == found,
        "reopened, it is another database"
    );
    assert_invariants(&db.snapshot())?;
    assert!(db.check()?.is_clean());
    Ok(())
}

#[test]
fn an_iterator_outlives_handles_merges_and_reopening() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(manual());
    for at in 0..2_000 {
        db.put(format!("k{at:04}"), vec![1; 100])?;
        if at == 1_000 {
            db.flush()?;
        }
    }
    let mut iter = db.range(..)?;
    for _ in 0..10 {
        assert!(iter.next().is_some_and(|entry| entry.is_ok()));
        assert!(iter.next_back().is_some_and(|entry| entry.is_ok()));
    }
    db.delete_range(..)?;
    db.compact()?;
    drop(db);
    // Another one has the directory now, and has removed what the iterator still reads.
    let db = disk.open(manual());
    assert_eq!(db.range(..)?.count(), 0);
    db.put("new", "x")?;
    db.compact()?;
    let left = keys_of(iter)?;
    assert_eq!(left.len(), 1_980);
    assert_eq!((&left[0][..], &left[1_979][..]), ("k0010", "k1989"));
    Ok(())
}

#[test]
fn whatever_is_held_keeps_the_database_open_in_any_order() -> Result<()> {
    type Hold = fn(&Db) -> Result<Box<dyn std::any::Any>>;
    let holds: [Hold; 5] = [
        |db| Ok(Box::new(db.snapshot())),
        |db| Ok(Box::new(db.begin())),
        |db| Ok(Box::new(db.watch(..).start()?)),
        |db| Ok(Box::new(db.snapshot().graph())),
        |db| Ok(Box::new(db.clone())),
    ];
    for settings in [manual(), Db::builder()] {
        for (number, hold) in holds.iter().enumerate() {
            let disk = Disk::new();
            let db = disk.open(settings.clone());
            db.put("k", "v")?;
            let held = hold(&db)?;
            drop(db);
            let refused = disk.try_open(settings.clone());
            assert!(refused.is_err(), "hold {number}");
            drop(held);
            assert_eq!(disk.open(settings.clone()).revision(), 2, "hold {number}");
        }
    }
    let disk = Disk::new();
    let db = disk.open(manual());
    db.put("k", "v")?;
    let snapshot = db.snapshot();
    let mut tx = db.begin();
    drop(db);
    tx.put("k", "w")?;
    tx.commit()?;
    assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"v"[..]));
    Ok(())
}

#[test]
fn close_under_load_ends_every_call_and_loses_nothing() -> Result<()> {
    for _ in 0..10 {
        let disk = Disk::new();
        let db = disk.open(Db::builder().memtable_bytes(64 << 10));
        let acknowledged = thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|writer| {
                    let db = db.clone();
                    scope.spawn(move || {
                        for count in 0u64.. {
                            match db.put(format!("{writer}/{count}"), [0; 200]) {
                                Ok(_) => {}
                                Err(Error::Closed) => return count,
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                        unreachable!("it never ends by itself")
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(30));
            db.close().expect("it closes");
            let ended = writers
                .into_iter()
                .map(|writer| writer.join().expect("no panic"));
            ended.collect::<Vec<_>>()
        });
        drop(db);
        let db = disk.open(manual());
        for (writer, count) in acknowledged.iter().enumerate() {
            let kept = db
                .range(format!("{writer}/")..format!("{writer}0"))?
                .count() as u64;
            assert_eq!(kept, *count, "writer {writer}");
        }
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

/// Reads while a commit is on its way to the disk must not see it, and must not wait for it.
#[test]
fn a_commit_is_invisible_until_it_is_on_the_disk() -> Result<()> {
    let disk = Gated::default();
    let db = manual().vfs(Arc::new(disk.clone())).open("/db")?;
    db.put("k", "old")?;
    let mut watcher = db.watch(..).start()?;
    thread::scope(|scope| {
        let shut = disk.gate.shut();
        let writer = scope.spawn(|| db.put("k", "new"));
        disk.gate.wait_until_somebody_waits();
        for _ in 0..3 {
            assert_eq!(db.get("k")?.as_deref(), Some(&b"old"[..]));
            assert_eq!(db.entry("k")?.expect("it is there").version, 1);
            assert_eq!(db.range(..)?.next().expect("one")?.value, b"old"[..]);
            assert_eq!(db.snapshot().get("k")?.as_deref(), Some(&b"old"[..]));
            assert_eq!(db.revision(), 2);
            assert_eq!(watcher.try_recv()?, None);
            assert_error!(db.snapshot_at(Revision::new(3)), Error::FutureRevision { current, .. } if current == 2);
        }
        drop(shut);
        assert_eq!(writer.join().expect("no panic")?, 3);
        assert_eq!(db.get("k")?.as_deref(), Some(&b"new"[..]));
        assert!(watcher.try_recv()?.is_some());
        Ok(())
    })
}

/// Two transactions that have read the same, in the same commit group: the second is decided against what the
/// first writes, although that is not published yet. They come while a flush lasts, so that the
/// group after it has both; threads that only meet by chance need not, where there are few
/// processors and they are busy.
#[test]
fn of_two_in_one_group_that_have_read_the_same_one_wins() -> Result<()> {
    const ROUNDS: u64 = 3;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let disk = Gated::default();
        let db = manual().vfs(Arc::new(disk.clone())).open("/db")?;
        db.put("counter", 0_u64.to_be_bytes())?;
        for round in 1..=ROUNDS {
            let add = || {
                let mut tx = db.begin_with(isolation);
                let old = number(tx.get("counter")?);
                tx.put("counter", (old + 1).to_be_bytes())?;
                tx.commit()
            };
            thread::scope(|scope| {
                let shut = disk.gate.shut();
                let first = scope.spawn(|| db.put("first", "x"));
                disk.gate.wait_until_somebody_waits();
                let adding = [queue_up(scope, add), queue_up(scope, add)];
                drop(shut);
                first.join().expect("no panic")?;
                let ended = adding.map(|thread| thread.join().expect("no panic"));
                let lost = ended.iter().filter(|it| match it {
                    Ok(_) => false,
                    Err(Error::Conflict { .. }) => true,
                    Err(other) => panic!("{other:?}"),
                });
                assert_eq!(lost.count(), 1, "{isolation:?}, round {round}: {ended:?}");
                Ok::<_, Error>(())
            })?;
            assert_eq!(number(db.get("counter")?), round, "{isolation:?}");
        }
    }
    Ok(())
}

/// Found by reading, proven by this test. A put looks its key up before it joins a commit group. If
/// the key was deleted by the group before it, and that deletion was flushed and merged away, together
/// with what it deleted, before the put was decided, then nothing newer than the look-up was found,
/// and the put went on from an entry that was gone: its create revision and version were wrong.
#[test]
fn a_put_does_not_go_on_from_an_entry_that_was_deleted_and_merged_away() -> Result<()> {
    const LARGE: usize = 9 << 20;
    let disk = Gated::default();
    let settings = manual().history(History::None).memtable_bytes(6 << 20);
    let db = settings.vfs(Arc::new(disk.clone())).open("/db")?;
    db.put("k", "1")?;
    db.put("k", "2")?;
    thread::scope(|scope| {
        let shut = disk.gate.shut();
        let mut threads = Vec::new();
        let mut start = |job: fn(&Db) -> Result<()>| {
            let db = &db;
            threads.push(queue_up(scope, move || job(db)));
        };
        start(|db| db.put("first", "x").map(drop));
        disk.gate.wait_until_somebody_waits();
        start(|db| db.delete("k").map(drop));
        // Each is too large to be a member, so it leads a group of its own; the second finds the
        // memtable full, and after its group the deletion is flushed.
        start(|db| db.put("large1", vec![1; LARGE]).map(drop));
        start(|db| db.put("large2", vec![2; LARGE]).map(drop));
        start(|db| db.put("large3", vec![3; LARGE]).map(drop));
        start(|db| db.put("large4", vec![4; LARGE]).map(drop));
        start(|db| db.put("k", "3").map(drop));
        drop(shut);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let entry = db.entry("k")?.expect("it was put last");
    assert_eq!(entry.value, b"3"[..]);
    assert_eq!(
        (entry.create_revision, entry.version),
        (entry.mod_revision, 1)
    );
    Ok(())
}

/// Found by reading, proven by this test. A lease's record and its place in the table of deadlines
/// changed one after the other, in no order with other calls for the same lease. So a lease whose
/// time was over, that was revoked and then granted anew, could be ended by an expiry that had begun
/// with the old one: its grant succeeded, and it was gone at once.
#[test]
fn an_expiry_does_not_end_a_lease_that_was_granted_anew() -> Result<()> {
    let (disk, clock) = (Gated::default(), bowline_testing::ManualClock::new());
    let settings = manual()
        .vfs(Arc::new(disk.clone()))
        .clock(Arc::new(clock.clone()));
    let db = settings.open("/db")?;
    let ttl = Duration::from_secs(10);
    db.grant_lease_with_id(lease_id(7), ttl)?;
    clock.advance(ttl);
    let granted = thread::scope(|scope| {
        let shut = disk.gate.shut();
        scope.spawn(|| db.put("first", "x").expect("a put"));
        disk.gate.wait_until_somebody_waits();
        queue_up(scope, || match db.revoke_lease(lease_id(7)) {
            Ok(_) | Err(Error::LeaseNotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        });
        let grant = || match db.grant_lease_with_id(lease_id(7), ttl) {
            Ok(()) => true,
            Err(Error::LeaseExists { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let granted = queue_up(scope, grant);
        queue_up(scope, || db.expire_leases().expect("it goes on"));
        drop(shut);
        granted.join().expect("no panic")
    });
    if !granted {
        bowline_testing::skip("this machine was too slow for the order of the calls");
        return Ok(());
    }
    assert_eq!(db.keep_alive(lease_id(7))?, ttl);
    db.put_with_lease("k", "v", lease_id(7))?;
    assert_error!(db.grant_lease_with_id(lease_id(7), ttl), Error::LeaseExists { id } if id == lease_id(7));
    Ok(())
}

/// Writers that outrun the disk are held back so that neither memtables nor runs pile up, and are
/// never refused for it.
#[test]
fn memory_and_runs_stay_bounded_while_writers_outrun_flush_and_compaction() -> Result<()> {
    const WRITERS: u32 = 4;
    const PUTS: u32 = 8_000;
    let every = Duration::from_millis(50);
    let disk = Disk::new();
    let db = disk.open(
        Db::builder()
            .durability(bowline::Durability::Batched { every })
            .memtable_bytes(64 << 10),
    );
    let (mut sealed_max, mut runs_max) = (0, 0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || -> Result<()> {
                    for put in 0..PUTS {
                        db.put(format!("{writer}/{put:06}"), [7; 200])?;
                    }
                    Ok(())
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let stats = db.stats().engine;
            sealed_max = sealed_max.max(stats.sealed_memtables);
            let first_levels = stats.levels.iter().filter_map(|levels| levels.first());
            runs_max = runs_max.max(first_levels.map(|level| level.runs).max().unwrap_or(0));
            thread::sleep(Duration::from_millis(1));
        }
        for writer in writers {
            writer.join().expect("a writer ends well")?;
        }
        Ok::<_, Error>(())
    })?;
    let flushes = db.stats().engine.counters.flushes;
    assert!(flushes > 50, "only {flushes} flushes: nothing was outrun");
    // Four may wait before writers stop; one more is sealed by a group that was let in before.
    assert!(sealed_max <= 5, "{sealed_max} memtables waited");
    // Writers stop at six times the four runs that start a merge; four memtables may follow.
    assert!(runs_max <= 24 + 5, "{runs_max} runs in level 0");
    assert_eq!(db.range(..)?.count(), (WRITERS * PUTS) as usize);
    Ok(())
}
