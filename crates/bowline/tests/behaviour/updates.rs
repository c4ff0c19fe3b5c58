//! Updates: changes of one key that depend on its value, decided in the order of commits.
//!
//! What `Db::update` promises:
//!
//! 1. An update is decided against the newest value of its key, staged or published, in the order of commits. It never
//!    gives `Error::Conflict`.
//! 2. Many updates of one key in one commit group share one flush.
//! 3. An update that changes nothing takes no revision, gives no event to watchers, and returns the present value.
//! 4. The key keeps its lease and its create revision, and its version grows by 1. A `Swap` to `None` deletes the key and
//!    detaches it from its lease. Watchers receive the event.
//! 5. A refused update writes nothing, and the others of its group are decided as if it was not there.
//! 6. After a failed flush every update of that group, and every later one, fails.
//! 7. An append that has outgrown its reserved room is tried again, and is neither lost nor doubled.
//! 8. On a full disk a `Swap` to `None` still commits; other updates give `NoSpace`.
//! 9. What a serializable transaction read, and an update changed since, is a conflict for the transaction.
//! 10. Updates survive a crash whole, in the order of their revisions (see the program `crash`).
//!
//! Here are 3 and 4, and what each update makes of a value; `updates_in_groups` has the others.

use std::time::Duration;

use bowline::{
    BlobOptions, ChangeKind, Db, Entry, Error, History, Limits, Result, Revision, Update,
    UpdateError, Updated,
};

use crate::support::{Disk, assert_error, in_every_stage, manual, next};

const HOUR: Duration = Duration::from_secs(3600);

pub fn append(bytes: &str) -> Update {
    Update::Append(bytes.into())
}

pub fn set_if_absent(value: &str) -> Update {
    Update::SetIfAbsent(value.into())
}

pub fn swap(expected: Option<&str>, new: Option<&str>) -> Update {
    Update::Swap {
        expected: expected.map(Into::into),
        new: new.map(Into::into),
    }
}

fn within(amount: i64, min: i64, max: i64) -> Update {
    Update::AddWithin { amount, min, max }
}

pub fn text(bytes: Option<&[u8]>) -> Option<&str> {
    bytes.map(|bytes| std::str::from_utf8(bytes).expect("a text"))
}

pub fn value(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key).expect("a read");
    text(value.as_deref()).map(str::to_owned)
}

pub fn entry(db: &Db, key: &str) -> Entry {
    db.entry(key).expect("a read").expect("it is there")
}

/// Asserts what an update gave.
#[track_caller]
pub fn assert_updated(updated: &Updated, revision: Revision, changed: bool, value: Option<&str>) {
    assert_eq!((updated.revision, updated.changed), (revision, changed));
    assert_eq!(text(updated.value.as_deref()), value);
}

// --- what an update makes of a value ---

/// A value, an update, and the value that it leaves; `None` is a refusal.
type Case<'a> = (Option<&'a str>, Update, Option<Option<&'a str>>);

#[test]
fn every_update_gives_the_value_that_it_leaves() -> Result<()> {
    const MOST: &str = "9223372036854775807";
    const LEAST: &str = "-9223372036854775808";
    let cases: &[Case<'_>] = &[
        (None, Update::Add(5), Some(Some("5"))),
        (Some("5"), Update::Add(-7), Some(Some("-2"))),
        (
            Some("9223372036854775806"),
            Update::Add(1),
            Some(Some(MOST)),
        ),
        (Some(MOST), Update::Add(1), None),
        (Some(MOST), Update::Add(i64::MIN), Some(Some("-1"))),
        (Some(LEAST), Update::Add(-1), None),
        (Some(LEAST), Update::Add(i64::MAX), Some(Some("-1"))),
        (None, Update::Add(i64::MIN), Some(Some(LEAST))),
        (Some("many"), Update::Add(1), None),
        (Some(""), Update::Add(1), None),
        (Some("2"), within(1, 0, 3), Some(Some("3"))),
        (Some("3"), within(1, 0, 3), Some(Some("3"))),
        (Some("0"), within(-1, 0, 3), Some(Some("0"))),
        (None, within(1, 2, 9), Some(None)),
        (Some("1"), within(1, 3, 0), Some(Some("1"))),
        (None, within(0, 1, -1), Some(None)),
        (Some(MOST), within(1, i64::MIN, i64::MAX), Some(Some(MOST))),
        (
            Some(LEAST),
            within(-1, i64::MIN, i64::MAX),
            Some(Some(LEAST)),
        ),
        (Some("x"), within(1, 0, 3), None),
        (None, Update::Max(i64::MIN), Some(Some(LEAST))),
        (Some("3"), Update::Max(4), Some(Some("4"))),
        (Some("5"), Update::Max(4), Some(Some("5"))),
        (Some("x"), Update::Max(4), None),
        (None, Update::Min(i64::MAX), Some(Some(MOST))),
        (Some("5"), Update::Min(4), Some(Some("4"))),
        (Some("3"), Update::Min(4), Some(Some("3"))),
        (None, append("a"), Some(Some("a"))),
        (Some("a"), append("b"), Some(Some("ab"))),
        (None, append(""), Some(Some(""))),
        (None, set_if_absent("v"), Some(Some("v"))),
        (Some(""), set_if_absent("v"), Some(Some(""))),
        (Some("a"), swap(Some("a"), Some("b")), Some(Some("b"))),
        (Some("c"), swap(Some("a"), Some("b")), Some(Some("c"))),
        (None, swap(Some("a"), Some("b")), Some(None)),
        (None, swap(None, Some("b")), Some(Some("b"))),
        (Some("a"), swap(None, Some("b")), Some(Some("a"))),
        (Some("a"), swap(Some("a"), None), Some(None)),
        (Some("b"), swap(Some("a"), None), Some(Some("b"))),
        (None, swap(Some("a"), None), Some(None)),
        (None, swap(None, None), Some(None)),
    ];
    let db = Db::in_memory()?;
    for (number, (before, update, expected)) in cases.iter().enumerate() {
        let key = format!("k{number}");
        if let Some(before) = before {
            db.put(&key, before)?;
        }
        let revision = db.revision();
        let made = db.update(&key, update.clone());
        let after = match (expected, made) {
            (Some(expected), Ok(updated)) => {
                let changed = expected != before;
                let revision = revision + u64::from(changed);
                assert_updated(&updated, revision, changed, *expected);
                *expected
            }
            (None, Err(Error::NotUpdatable { key: named, .. })) => {
                assert_eq!(*named, *format!("{key:?}"));
                *before
            }
            (_, other) => panic!("{update} of {before:?}: {other:?}"),
        };
        assert_eq!(value(&db, &key).as_deref(), after, "{update} of {before:?}");
        let changed = expected.is_some_and(|expected| expected != *before);
        assert_eq!(db.revision(), revision + u64::from(changed));
    }
    Ok(())
}

#[test]
fn what_cannot_be_updated_is_refused_and_says_why() -> Result<()> {
    let limits = Limits {
        key_size_max_bytes: 100,
        value_size_max_bytes: 50,
        transaction_size_max_bytes: 120,
    };
    let db = Disk::new().open(manual().limits(limits));
    db.put("k", "x")?;
    db.put("most", i64::MAX.to_string())?;
    let revision = db.revision();
    assert_error!(db.update("", Update::Add(1)), Error::EmptyKey);
    assert_error!(
        db.update([b'k'; 101], Update::Add(1)),
        Error::KeyTooLarge {
            size: 101,
            limit: 100
        }
    );
    for too_large in [
        Update::Append(vec![0; 51]),
        Update::SetIfAbsent(vec![0; 51]),
    ] {
        let refused = db.update("new", too_large);
        assert_error!(
            refused,
            Error::ValueTooLarge {
                size: 51,
                limit: 50
            }
        );
    }
    assert_error!(
        db.update([b'k'; 90], Update::SetIfAbsent(vec![0; 50])),
        Error::TransactionTooLarge {
            size: 140,
            limit: 120
        }
    );
    // By what it makes, not only by what it is.
    let refused = db.update("k", Update::Append(vec![b'y'; 50]));
    assert_error!(
        refused,
        Error::ValueTooLarge {
            size: 51,
            limit: 50
        }
    );
    assert_error!(
        db.update("k", Update::Add(1)),
        Error::NotUpdatable {
            source: UpdateError::NotANumber,
            ..
        }
    );
    assert_error!(
        db.update("most", Update::Add(1)),
        Error::NotUpdatable {
            source: UpdateError::Overflow,
            ..
        }
    );
    assert_eq!(db.revision(), revision);
    assert_eq!(value(&db, "k").as_deref(), Some("x"));
    // Up to the limits it goes.
    let longest = db.update("k", Update::Append(vec![b'y'; 49]))?;
    assert_eq!(longest.value.expect("a value").len(), 50);
    assert!(
        db.update([b'k'; 70], set_if_absent(&"v".repeat(50)))?
            .changed
    );
    db.close()?;
    assert_error!(db.update("k", Update::Add(1)), Error::Closed);
    Ok(())
}

/// A number is as long as it is: it was refused where a value may not have the 20 bytes of the longest one.
#[test]
fn a_number_is_measured_by_its_own_digits() -> Result<()> {
    let limits = Limits {
        value_size_max_bytes: 5,
        transaction_size_max_bytes: 8,
        ..Limits::default()
    };
    let db = Disk::new().open(manual().limits(limits));
    assert_eq!(
        db.update("k", Update::Add(99_998))?.value,
        Some("99998".into())
    );
    assert_eq!(
        db.update("k", Update::Max(99_999))?.value,
        Some("99999".into())
    );
    let refused = db.update("k", Update::Add(1));
    assert_error!(refused, Error::ValueTooLarge { size: 6, limit: 5 });
    assert_eq!(db.update("k", within(1, 0, 9))?.value, Some("99999".into()));
    assert_eq!(db.update("k", Update::Min(-7))?.value, Some("-7".into()));
    Ok(())
}

/// An append grew a value beyond the limit of a transaction, where a put of the same value is refused.
#[test]
fn an_append_keeps_to_the_limit_of_a_transaction() -> Result<()> {
    let limits = Limits {
        transaction_size_max_bytes: 8,
        ..Limits::default()
    };
    let db = Disk::new().open(manual().limits(limits));
    db.put("k", "1234")?;
    let append = |more: &str| db.update("k", Update::Append(more.into()));
    assert_eq!(append("567")?.value, Some("1234567".into()));
    assert_error!(
        append("8"),
        Error::TransactionTooLarge { size: 9, limit: 8 }
    );
    assert_eq!(db.get("k")?, Some("1234567".into()));
    Ok(())
}

/// Promise 3.
#[test]
fn an_update_that_changes_nothing_leaves_no_trace() -> Result<()> {
    let disk = Disk::new();
    let db = disk.open(manual().history(History::All));
    db.put("n", "3")?;
    db.put("s", "text")?;
    let nothing = [
        ("n", Update::Add(0)),
        ("n", within(1, 0, 3)),
        ("n", Update::Max(2)),
        ("n", Update::Min(3)),
        ("s", append("")),
        ("s", set_if_absent("other")),
        ("s", swap(Some("text"), Some("text"))),
        ("s", swap(Some("other"), None)),
        ("absent", swap(Some("a"), Some("b"))),
        ("absent", swap(None, None)),
        ("absent", within(1, 2, 3)),
    ];
    let (revision, mut watcher) = (db.revision(), db.watch(..).start()?);
    let before = ["n", "s"].map(|key| entry(&db, key));
    for (key, update) in nothing {
        let updated = db.update(key, update.clone())?;
        let present = value(&db, key);
        assert_updated(&updated, revision, false, present.as_deref());
        assert_eq!(db.revision(), revision, "{update} of {key}");
    }
    assert_eq!(watcher.try_recv()?, None);
    assert_eq!(["n", "s"].map(|key| entry(&db, key)), before);
    assert!(db.history("absent")?.is_empty());
    // The next one that changes something has the next revision, and is the first event.
    assert_updated(
        &db.update("n", Update::Add(1))?,
        revision + 1,
        true,
        Some("4"),
    );
    assert_eq!(next(&mut watcher).revision, revision + 1);
    Ok(())
}

// --- what stays of the key ---

/// Promise 4, of keys without a lease, and wherever the value lies.
#[test]
fn an_update_goes_on_from_the_entry_wherever_it_lies() {
    in_every_stage(
        manual(),
        |db| {
            let created = db.put("n", "1")?;
            db.put("n", "2")?;
            db.put("gone", "7")?;
            db.delete("gone")?;
            Ok(created)
        },
        |db, created, _| {
            let revision = db.revision();
            assert_updated(
                &db.update("n", Update::Add(40))?,
                revision + 1,
                true,
                Some("42"),
            );
            let found = entry(db, "n");
            assert_eq!((found.create_revision, found.version), (*created, 3));
            assert_eq!((found.mod_revision, found.lease), (revision + 1, None));
            // What was deleted begins anew.
            assert_updated(
                &db.update("gone", Update::Add(1))?,
                revision + 2,
                true,
                Some("1"),
            );
            let found = entry(db, "gone");
            assert_eq!((found.create_revision, found.version), (revision + 2, 1));
            // And may go, and come again.
            let deleted = db.update("n", swap(Some("42"), None))?;
            assert_updated(&deleted, revision + 3, true, None);
            assert_eq!(db.entry("n")?, None);
            assert!(!db.update("n", swap(Some("42"), Some("43")))?.changed);
            db.update("n", append("x"))?;
            assert_eq!(entry(db, "n").create_revision, revision + 4);
            Ok(())
        },
    );
}

/// Blind puts do not look the key up, so the entry below an update is completed from several records.
#[test]
fn an_update_on_top_of_blind_puts_counts_all_of_them() {
    for puts in [1, 3, 12] {
        in_every_stage(
            manual(),
            |db| {
                let created = db.put("k", "v")?;
                for number in 1..puts {
                    db.put("other", "v")?;
                    db.put("k", number.to_string())?;
                }
                Ok(created)
            },
            |db, created, stage| {
                // Some in tables, some in memory.
                db.put("k", "a")?;
                db.put("k", "b")?;
                let updated = db.update("k", append("c"))?;
                assert_eq!(text(updated.value.as_deref()), Some("bc"));
                let found = entry(db, "k");
                let expected = (*created, puts + 3, updated.revision);
                let found = (found.create_revision, found.version, found.mod_revision);
                assert_eq!(found, expected, "{stage:?}");
                // And a blind put on top of an update.
                db.put("k", "d")?;
                assert_eq!(entry(db, "k").create_revision, *created);
                assert_eq!(entry(db, "k").version, puts + 4);
                Ok(())
            },
        );
    }
}

/// Promise 4, of keys with a lease.
#[test]
fn an_update_keeps_the_lease_and_a_deletion_detaches() {
    let keys = |db: &Db, lease| -> Result<Vec<String>> {
        let keys = db.lease_keys(lease)?;
        keys.map(|key| Ok(String::from_utf8_lossy(&key?).into_owned()))
            .collect()
    };
    in_every_stage(
        manual(),
        |db| {
            let lease = db.grant_lease(HOUR)?;
            let created = db.put_with_lease("a", "1", lease)?;
            db.put_with_lease("b", "1", lease)?;
            db.put("free", "1")?;
            Ok((lease, created))
        },
        |db, (lease, created), _| {
            for (key, held) in [("a", Some(*lease)), ("b", Some(*lease)), ("free", None)] {
                db.update(key, Update::Add(1))?;
                let found = entry(db, key);
                assert_eq!((found.lease, found.version), (held, 2), "{key}");
                assert_eq!(found.value, b"2");
            }
            assert_eq!(entry(db, "a").create_revision, *created);
            assert_eq!(keys(db, *lease)?, ["a", "b"]);
            assert!(db.update("b", swap(Some("2"), None))?.changed);
            assert_eq!(keys(db, *lease)?, ["a"]);
            // It comes again without a lease, and stays when that ends.
            db.update("b", append("new"))?;
            assert_eq!(entry(db, "b").lease, None);
            assert_eq!(keys(db, *lease)?, ["a"]);
            assert_eq!(db.revoke_lease(*lease)?, 1);
            assert_eq!(db.get("a")?, None);
            assert_eq!(value(db, "b").as_deref(), Some("new"));
            assert_eq!(value(db, "free").as_deref(), Some("2"));
            Ok(())
        },
    );
}

/// The first lease of a database is attached in the same group, before the update and behind its look-up.
#[test]
fn an_update_keeps_a_lease_that_is_attached_in_its_group() -> Result<()> {
    let db = Disk::new().open(manual());
    let lease = db.grant_lease(HOUR)?;
    db.put("k", "1")?;
    let mut tx = db.begin();
    tx.put_with_lease("k", "5", lease)?;
    let ticket = db.commit_later(tx)?;
    assert_eq!(db.update("k", Update::Add(1))?.value, Some("6".into()));
    assert!(ticket.is_done());
    assert_eq!(entry(&db, "k").lease, Some(lease));
    // And a put without it detaches.
    let ticket = db.put_later("k", "8")?;
    assert_eq!(db.update("k", Update::Add(1))?.value, Some("9".into()));
    ticket.wait()?;
    assert_eq!(entry(&db, "k").lease, None);
    assert_eq!(db.revoke_lease(lease)?, 0);
    assert_eq!(value(&db, "k").as_deref(), Some("9"));
    Ok(())
}

/// Promise 4: the events, and the history.
#[test]
fn watchers_receive_updates_as_changes_of_the_key() -> Result<()> {
    let db = Disk::new().open(manual().history(History::All));
    let lease = db.grant_lease(HOUR)?;
    let created = db.put_with_lease("k", "1", lease)?;
    let mut watcher = db.watch("k"..="k").with_previous().start()?;
    let added = db.update("k", Update::Add(1))?.revision;
    db.update("other", Update::Add(1))?;
    let deleted = db.update("k", swap(Some("2"), None))?.revision;
    let changes = watcher.try_recv()?.expect("it is told before it is done");
    let change = &changes.changes[0];
    assert_eq!((changes.revision, changes.changes.len()), (added, 1));
    assert_eq!(change.kind, ChangeKind::Put);
    let expected = Entry {
        key: "k".into(),
        value: "2".into(),
        create_revision: created,
        mod_revision: added,
        version: 2,
        lease: Some(lease),
    };
    assert_eq!(change.entry, expected);
    assert_eq!(change.previous.as_ref().expect("one").value, b"1");
    let changes = watcher.try_recv()?.expect("it is told before it is done");
    assert_eq!(changes.revision, deleted);
    assert_eq!(changes.changes[0].kind, ChangeKind::Delete);
    assert_eq!(changes.changes[0].previous.as_ref(), Some(&expected));
    assert_eq!(watcher.try_recv()?, None);
    let history = db.history("k")?;
    assert_eq!(history.len(), 3);
    assert_eq!((history[0].revision, &history[0].entry), (deleted, &None));
    assert_eq!(history[1].entry.as_ref(), Some(&expected));
    // The past is as it was.
    assert_eq!(db.snapshot_at(created)?.get("k")?, Some("1".into()));
    assert_eq!(db.snapshot_at(added)?.get("k")?, Some("2".into()));
    Ok(())
}

#[test]
fn a_large_value_in_a_file_of_its_own_is_updated_as_any_other() {
    let settings = manual().blobs(BlobOptions {
        threshold_bytes: Some(64),
        ..BlobOptions::default()
    });
    let large = "x".repeat(5_000);
    in_every_stage(
        settings,
        |db| db.put("k", &large),
        |db, created, stage| {
            assert_error!(
                db.update("k", Update::Add(1)),
                Error::NotUpdatable {
                    source: UpdateError::NotANumber,
                    ..
                }
            );
            assert_eq!(
                db.update("k", set_if_absent("v"))?.value,
                Some(large.as_str().into())
            );
            let longer = format!("{large}end");
            let updated = db.update("k", append("end"))?;
            assert_eq!(
                text(updated.value.as_deref()),
                Some(&longer[..]),
                "{stage:?}"
            );
            assert_eq!(entry(db, "k").create_revision, *created);
            db.flush()?;
            assert_eq!(value(db, "k").as_deref(), Some(&longer[..]));
            let small = db.update("k", swap(Some(&longer), Some("7")))?;
            assert!(small.changed);
            assert_eq!(db.update("k", Update::Add(1))?.value, Some("8".into()));
            assert_eq!(entry(db, "k").version, 4);
            Ok(())
        },
    );
}
