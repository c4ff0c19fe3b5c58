//! Readers beside writers, flushes and merges: the super-version, the visible revision, and pins.

use bowline_storage::sync::thread;

use crate::explore::explore;
use crate::{bytes, database, get};

/// One writer commits two keys together, again and again; another thread flushes and merges. No
/// reader ever misses a version that was visible, sees one go back, or sees half a commit.
#[test]
fn reads_beside_flush_and_merge_never_go_back() {
    explore("reads_beside_flush_and_merge_never_go_back", 200, || {
        let db = database();
        let commit = |db: &bowline::Db, number| {
            let tx = db.begin();
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
                db.compact_tables().expect("a merge");
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

/// A snapshot taken at any moment of a flush or merge reads the same before and after it, although
/// no history is kept.
#[test]
fn a_pin_holds_its_versions_whenever_it_is_taken() {
    explore("a_pin_holds_its_versions_whenever_it_is_taken", 200, || {
        let db = database();
        db.put("k", bytes(1)).expect("a put");
        let writer = {
            let db = db.clone();
            thread::spawn(move || {
                for number in 2..4 {
                    db.put("k", bytes(number)).expect("a put");
                }
            })
        };
        let keeper = {
            let db = db.clone();
            thread::spawn(move || db.compact_tables().expect("a merge"))
        };
        let snapshot = db.snapshot();
        let expected = snapshot.revision();
        let read = || {
            let entry = snapshot.entry("k").expect("a read").expect("it is there");
            (entry.mod_revision, crate::number(Some(&entry.value[..])))
        };
        let first = read();
        assert!(first.0 <= expected);
        assert_eq!(first.1 + 1, first.0, "the n-th put has revision n + 1");
        assert_eq!(first.0, expected, "every revision wrote it");
        writer.join().expect("no panic");
        keeper.join().expect("no panic");
        assert_eq!(read(), first);
        db.compact_tables().expect("a merge");
        assert_eq!(read(), first);
    });
}
