//! A transaction sees its own writes over its snapshot, be that of the memtable, of tables, or of
//! what was recovered.

use bowline::{History, Revision};

use super::{delete, put, some};
use crate::harness::{Run, check, same, tx_range, tx_value};

fn tx_range_keys(tx: &mut bowline::Transaction) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let pairs = tx_range(tx).expect("read").into_iter();
    pairs.map(|(key, value)| (text(key), text(value))).collect()
}

#[test]
fn sees_own_puts() {
    fn round(run: &mut Run) {
        let new = format!("k{}", run.model.revision());
        let others = tx_range_keys(&mut run.db().begin());
        let mut tx = run.db().begin();
        assert_eq!(tx_value(&mut tx, &new).expect("read"), None);
        tx.put(&new, "own").expect("staged");
        assert_eq!(
            tx_value(&mut tx, &new).expect("read"),
            some("own"),
            "its own put"
        );
        let entry = tx.entry(&new).expect("read").expect("its own put");
        assert_eq!(
            (entry.create_revision, entry.mod_revision, entry.version),
            (Revision::new(0), Revision::new(0), 0)
        );
        let mut expected = others.clone();
        expected.push((new.clone(), "own".to_owned()));
        expected.sort();
        assert_eq!(tx_range_keys(&mut tx), expected, "its own put in a range");
        assert_eq!(
            tx_range_keys(&mut run.db().begin()),
            others,
            "in another transaction's range"
        );
        run.commit(tx, &[put(&new, "own")]);
        assert_eq!(run.value(&new), some("own"));
        run.upkeep();
    }
    check(
        "sees_own_puts",
        History::All,
        |run| (0..20).for_each(|_| round(run)),
        |found, ()| {
            for revision in 1..30 {
                let key = format!("k{revision}");
                same!(found.value(&key)?, found.expected_value(&key), "{key}");
            }
            found.run_on(round)
        },
    );
}

#[test]
fn sees_own_overwrites() {
    fn round(run: &mut Run) {
        let revision = run.model.revision();
        let before = run.model.get(b"k", revision).cloned().expect("it is there");
        let mut tx = run.db().begin();
        assert_eq!(
            tx_value(&mut tx, "k").expect("read").as_ref(),
            Some(&before.value)
        );
        for at in 0..3 {
            let own = format!("{revision}.{at}");
            tx.put("k", &own).expect("staged");
            assert_eq!(
                tx_value(&mut tx, "k").expect("read"),
                some(&own),
                "its last overwrite"
            );
            let entry = tx.entry("k").expect("read").expect("it is there");
            assert_eq!(
                *entry.value,
                *own.as_bytes(),
                "its last overwrite, as an entry"
            );
            assert_eq!(
                (entry.create_revision, entry.mod_revision, entry.version),
                (before.create_revision, before.mod_revision, before.version),
                "those of before"
            );
            assert_eq!(
                tx_range_keys(&mut tx),
                [("k".to_owned(), own)],
                "its last overwrite in a range"
            );
        }
        run.commit(tx, &[put("k", format!("{revision}.2"))]);
        let entry = run.db().entry("k").expect("read").expect("it is there");
        assert_eq!(
            entry.version,
            before.version + 1,
            "three overwrites are one write"
        );
        run.upkeep();
    }
    check(
        "sees_own_overwrites",
        History::All,
        |run| {
            run.put("k", "0");
            run.begin_recording();
            (0..20).for_each(|_| round(run));
        },
        |found, ()| {
            same!(found.value("k")?, found.expected_value("k"), "the key");
            found.run_on(round)
        },
    );
}

#[test]
fn sees_own_deletes() {
    fn round(run: &mut Run) {
        run.transact(&[put("k", "v"), put("l", "v"), put("m", "v")]);
        run.upkeep();
        let mut tx = run.db().begin();
        assert!(tx.delete("k").expect("staged"), "it was there");
        assert!(!tx.delete("k").expect("staged"), "gone already");
        assert_eq!(
            tx_value(&mut tx, "k").expect("read"),
            None,
            "its own deletion"
        );
        assert_eq!(
            tx.entry("k").expect("read"),
            None,
            "its own deletion, as an entry"
        );
        assert_eq!(
            tx.range(..).expect("read").count(),
            2,
            "its own deletion in a range"
        );
        assert_eq!(tx.delete_range("l".."m").expect("staged"), 1);
        assert_eq!(tx.range(..).expect("read").rev().count(), 1);
        let own = run.value("k");
        assert_eq!(own, some("v"), "another sees the deletion");
        run.commit(tx, &[delete("k"), delete("l")]);
        assert_eq!((run.value("k"), run.value("l")), (None, None));
        run.upkeep();
    }
    check(
        "sees_own_deletes",
        History::None,
        |run| (0..12).for_each(|_| round(run)),
        |found, ()| {
            for key in ["k", "l", "m"] {
                same!(found.value(key)?, found.expected_value(key), "{key}");
            }
            found.run_on(round)
        },
    );
}

/// Puts, overwrites and deletions of what is there, what is not, and what the transaction made.
#[test]
fn complex_ryw_sequence() {
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        run.step(&["a", "b", "bb", "c", "d"].map(delete), |db| {
            db.delete_range(..)?;
            Ok(db.revision())
        });
        run.transact(&[put("a", "0"), put("b", "0"), put("c", "0")]);
        run.upkeep();
        let mut tx = run.db().begin();
        let staged = |result: bowline::Result<()>| result.expect("staged");
        staged(tx.put("b", "1"));
        staged(tx.delete("a").map(drop));
        staged(tx.put("d", "1"));
        staged(tx.put("a", &name));
        staged(tx.delete("d").map(drop));
        staged(tx.delete("c").map(drop));
        staged(tx.put("c", "2"));
        staged(tx.delete("b").map(drop));
        staged(tx.put("bb", "1"));
        let expected = [("a", &name[..]), ("bb", "1"), ("c", "2")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(tx_range_keys(&mut tx), expected, "what it sees of a range");
        let single = [
            ("a", some(&name)),
            ("b", None),
            ("bb", some("1")),
            ("c", some("2")),
            ("d", None),
        ];
        for (key, value) in single {
            assert_eq!(
                tx_value(&mut tx, key).expect("read"),
                value,
                "what it sees of {key}"
            );
        }
        run.commit(
            tx,
            &[
                put("a", &name),
                put("c", "2"),
                delete("b"),
                put("bb", "1"),
                delete("d"),
            ],
        );
        assert_eq!(
            tx_range_keys(&mut run.db().begin()),
            expected,
            "what others see after the commit"
        );
    }
    check(
        "complex_ryw_sequence",
        History::All,
        |run| (0..10).for_each(|_| round(run)),
        |found, ()| {
            for key in ["a", "b", "bb", "c", "d"] {
                same!(found.value(key)?, found.expected_value(key), "{key}");
            }
            same!(
                found.db.history("d")?,
                [],
                "put and deleted in one transaction: never there"
            );
            found.run_on(round)
        },
    );
}
