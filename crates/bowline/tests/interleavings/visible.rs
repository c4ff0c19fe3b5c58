//! HistoryPins beside writers, flushes and merges: the super-version, the visible revision, and pins.

use std::sync::Arc;

use bowline::{Background, Db, Durability, Snapshot};
use bowline_storage::engine::{History, HistoryPins};
use bowline_storage::sync::atomic::{AtomicU64, Ordering};
use bowline_storage::sync::thread;

use crate::explore::explore;
use crate::{bytes, database, get};

/// No log, and with `Manual` no threads but the model's. Some bugs need one thread to stand still between two
/// steps while others do something long: the fewer steps there are, the likelier is that.
fn small(background: Background) -> Db {
    let builder = Db::builder().durability(Durability::Memory);
    let builder = builder.background(background);
    let builder = builder.memtable_bytes(16 << 10);
    builder.open("/db").expect("it opens")
}

/// A read that began before a commit, a flush and the end of the version it would have found.
#[test]
fn a_read_beside_a_flush_finds_the_newest() {
    explore("a_read_beside_a_flush_finds_the_newest", 18_000, || {
        let db = small(Background::Manual);
        db.put("k", bytes(1)).expect("a put");
        let reader = {
            let db = db.clone();
            thread::spawn(move || {
                let first = get(&db, "k");
                assert!(first >= 1, "it was there before");
                assert!(get(&db, "k") >= first);
            })
        };
        db.put("k", bytes(2)).expect("a put");
        db.flush().expect("a flush");
        reader.join().expect("no panic");
        assert_eq!(get(&db, "k"), 2);
    });
}

/// Two threads write, seal and flush at once while a third writes: no super-version is installed
/// without what another has put there meanwhile.
#[test]
fn flushes_at_once_lose_nothing() {
    explore("flushes_at_once_lose_nothing", 18_000, || {
        let db = small(Background::Threads);
        let flushers = ["a", "b"].map(|key| {
            let db = db.clone();
            thread::spawn(move || {
                db.put(key, bytes(1)).expect("a put");
                db.flush().expect("a flush");
                assert_eq!(get(&db, key), 1);
            })
        });
        db.put("c", bytes(1)).expect("a put");
        assert_eq!(get(&db, "c"), 1);
        for flusher in flushers {
            flusher.join().expect("no panic");
        }
        assert_eq!(["a", "b", "c"].map(|key| get(&db, key)), [1; 3]);
    });
}

/// A job asks what it must keep while snapshots and watches are made: it keeps each of them, or
/// each is at or above its floor.
#[test]
fn a_pin_is_kept_or_above_the_floor() {
    explore("a_pin_is_kept_or_above_the_floor", 60_000, || {
        let readers = Arc::new(HistoryPins::new(History::None, 100, 1));
        let visible = Arc::new(AtomicU64::new(1));
        let pinner = {
            let (readers, visible) = (readers.clone(), visible.clone());
            thread::spawn(move || {
                let snapshot = readers.pin_newest(&visible);
                let from = visible.load(Ordering::Acquire);
                let past = readers.pin_at(from, &visible).ok();
                (snapshot, past, readers.pin_watch(from, &visible).ok(), from)
            })
        };
        visible.store(2, Ordering::Release);
        let job = readers.retention(&visible, 0, 0);
        visible.store(3, Ordering::Release);
        let (snapshot, past, watch, from) = pinner.join().expect("no panic");
        let pins = [Some(snapshot.revision()), past.map(|pin| pin.revision())];
        for pin in pins.into_iter().flatten() {
            assert!(
                pin >= job.floor || job.snapshots.contains(&pin),
                "{pin}: {job:?}"
            );
        }
        // A watch reads what was written from its revision on.
        assert!(watch.is_none() || from >= job.floor, "{from}: {job:?}");
        let next = readers.retention(&visible, 0, 0);
        assert!(next.floor >= job.floor);
        assert!(next.snapshots.contains(&snapshot.revision()));
        assert!(watch.is_none() || from >= next.floor, "{from}: {next:?}");
    });
}

/// One writer commits two keys together, again and again; another thread flushes and merges. No
/// reader ever misses a version that was visible, sees one go back, or sees half a commit.
#[test]
fn reads_beside_flush_and_merge_never_go_back() {
    explore("reads_beside_flush_and_merge_never_go_back", 12_000, || {
        let db = database();
        let commit = |db: &Db, number| {
            let mut tx = db.begin();
            tx.put("a", bytes(number)).expect("a write");
            tx.put("b", bytes(number)).expect("a write");
            tx.commit().expect("nobody else writes");
        };
        commit(&db, 1);
        let writer = {
            let db = db.clone();
            thread::spawn(move || (2..5).for_each(|number| commit(&db, number)))
        };
        let keeper = {
            let db = db.clone();
            thread::spawn(move || {
                db.flush().expect("a flush");
                db.compact().expect("a merge");
            })
        };
        let reader = {
            let db = db.clone();
            thread::spawn(move || {
                let (mut last, mut revision) = (1, db.revision());
                for _ in 0..4 {
                    let a = get(&db, "a");
                    assert!(a >= last, "{a} after {last}");
                    let snapshot = db.snapshot();
                    assert!(snapshot.revision() >= revision);
                    let read = |key| {
                        let value = snapshot.get(key).expect("a read");
                        crate::number(value.as_deref())
                    };
                    let (first, second) = (read("a"), read("b"));
                    assert_eq!(first, second, "a commit is seen whole");
                    assert!(first >= a);
                    (last, revision) = (first, snapshot.revision());
                }
            })
        };
        for thread in [writer, keeper, reader] {
            thread.join().expect("no panic");
        }
        assert_eq!((get(&db, "a"), get(&db, "b")), (4, 4));
    });
}

/// Snapshots taken at any moment of a flush or merge read the same before and after it, although no
/// history is kept.
#[test]
fn a_pin_holds_its_versions_whenever_it_is_taken() {
    explore(
        "a_pin_holds_its_versions_whenever_it_is_taken",
        12_000,
        || {
            let db = database();
            db.put("k", bytes(2)).expect("a put");
            let writer = {
                let db = db.clone();
                thread::spawn(move || {
                    for revision in 3..6 {
                        db.put("k", bytes(revision)).expect("a put");
                    }
                })
            };
            let keeper = {
                let db = db.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        db.compact().expect("a merge");
                    }
                })
            };
            let read = |snapshot: &Snapshot| {
                let entry = snapshot.entry("k").expect("a read").expect("it is there");
                assert_eq!(entry.mod_revision, snapshot.revision());
                assert_eq!(entry.value[..], bytes(snapshot.revision().get()));
            };
            let mut held = Vec::new();
            for _ in 0..3 {
                let snapshot = db.snapshot();
                read(&snapshot);
                held.push(snapshot);
            }
            writer.join().expect("no panic");
            keeper.join().expect("no panic");
            held.iter().for_each(read);
            db.compact().expect("a merge");
            held.iter().for_each(read);
        },
    );
}
