//! Invalid records of the system tree, the visibility of a lease that ends, and what the check finds in indexes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bowline_core::error::Error;
use bowline_core::kinds::Kinds;
use bowline_core::lease::{self, LeaseId, LeaseTable};
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_storage::SystemClock;

use crate::commit_queue::Request;
use crate::turns::LOSSES;
use crate::{Block, BlockId, Db, expiry};

/// The next kind's number is one more than the largest registered number. With `u32::MAX` registered it
/// overflowed; a release build assigned 0, which means no kind.
#[test]
fn a_number_that_is_never_given_is_damage() {
    for (id, is_given) in [
        (0, false),
        (1, true),
        (u32::MAX - 1, true),
        (u32::MAX, false),
    ] {
        let db = Db::in_memory().unwrap();
        db.handle()
            .commit(Request {
                writes: Mutations::from_buf([Mutation::new(
                    trees::SYSTEM,
                    &trees::kind_key(id),
                    Action::PutRaw {
                        value: b"crate".to_vec(),
                    },
                )]),
                ..Request::default()
            })
            .unwrap();
        match Kinds::load(&db.handle().engine) {
            Ok(kinds) => assert!(is_given && kinds.next_id().0 == id + 1, "{id}"),
            Err(Error::InvalidRecord { what, .. }) => assert!(!is_given && what == "kind"),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A record with lease id 0 is never written. It was loaded as a lease that could not be revoked.
#[test]
fn an_id_that_is_never_given_is_damage() {
    let key_of = |id: i64| {
        let mut key = trees::lease_key(LeaseId::new(1).unwrap());
        key[1..].copy_from_slice(&id.to_be_bytes());
        key
    };
    for (id, is_given) in [(i64::MIN, true), (-1, true), (0, false), (1, true)] {
        let db = Db::in_memory().unwrap();
        db.handle()
            .commit(Request {
                writes: Mutations::from_buf([Mutation::new(
                    trees::SYSTEM,
                    &key_of(id),
                    Action::PutRaw {
                        value: lease::encode_ttl(Duration::from_millis(1)),
                    },
                )]),
                ..Request::default()
            })
            .unwrap();
        match LeaseTable::load(&db.handle().engine, &SystemClock::new()) {
            Ok(_) => assert!(is_given, "{id}"),
            Err(Error::InvalidRecord { what, .. }) => assert!(!is_given && what == "lease"),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A lease was listed for a moment after the deletion of its keys was visible.
#[test]
fn a_lease_is_listed_as_long_as_its_record_can_be_seen() {
    let db = Db::in_memory().unwrap();
    let id = db.grant_lease(Duration::from_secs(60)).unwrap();
    assert_eq!((db.leases().len(), db.lease(id).is_some()), (1, true));
    // Deletes the lease's record, but not its entry in the table of deadlines.
    expiry::end(db.handle(), id).unwrap();
    assert!(db.handle().leases.contains(id));
    assert_eq!((db.leases().len(), db.lease(id)), (0, None));
}

/// The check finds an entry that is not of its block, one that is missing, one of no index, and equal values.
#[test]
fn a_missing_and_a_surplus_entry_of_an_index_are_found() {
    let db = Db::in_memory().unwrap();
    db.create_unique_index("person", ["name"]).unwrap();
    let put = |id: u128, name: &str| {
        let block = Block::new(BlockId(id), "person").attribute("name", name);
        db.transact(|tx| tx.put_block(&block)).unwrap();
    };
    put(1, "a");
    put(2, "b");
    assert!(db.check().unwrap().is_clean());
    let index = db.handle().indexes.now().kept[0].clone();
    let entry = |name: &str, id: u128| {
        let mut key = index.prefix().to_vec();
        key.extend([0x30, name.as_bytes()[0], 0, 1]);
        key.extend(BlockId(id).to_bytes());
        key
    };
    let write = |key: &[u8], action: Action| {
        let write = Mutation::new(trees::INDEX, key, action);
        db.handle().commit(Request::of(write)).unwrap();
    };
    let put_raw = || Action::PutRaw { value: Vec::new() };
    let problems = |expected: &[&str]| {
        let found = db.check().unwrap().problems;
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}: {expected}");
        }
    };
    write(&entry("a", 1), Action::Delete);
    problems(&["is missing"]);
    write(&entry("a", 1), put_raw());
    write(&entry("c", 2), put_raw());
    problems(&["is not of its values"]);
    write(&entry("c", 2), Action::Delete);
    write(&entry("a", 9), put_raw());
    problems(&["is not of its values", "has the values of another"]);
    write(&entry("a", 9), Action::Delete);
    problems(&[]);
    write(&[0, 0, 0, 77, 1], put_raw());
    problems(&["is of no index"]);
}

/// One transaction that takes long, beside writers of its key that never rest: without turns it is beaten each time, for
/// ten seconds.
#[test]
fn a_long_transaction_wins_beside_writers_that_never_rest() {
    const ATTEMPTS_MAX: u32 = 50;
    let db = Db::in_memory().unwrap();
    let (is_done, attempts) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for writer in 0..3 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut puts = 0;
                while !is_done.load(Ordering::Relaxed) {
                    // One of them by transactions without reads.
                    match writer {
                        0 => db.transact(|tx| tx.put("hot", "w")).unwrap(),
                        _ => drop(db.put("hot", "w").unwrap()),
                    }
                    puts += 1;
                }
                assert!(puts > 0);
            });
        }
        let outcome = db.transact(|tx| {
            attempts.fetch_add(1, Ordering::Relaxed);
            tx.get("hot")?;
            thread::sleep(Duration::from_millis(1));
            tx.put("hot", "read and written")
        });
        is_done.store(true, Ordering::Relaxed);
        outcome.expect("it wins");
    });
    let attempts = attempts.into_inner();
    assert!(attempts <= ATTEMPTS_MAX, "{attempts} attempts");
}

/// The body of a transaction that has its turn waits for a thread that commits the same key.
#[test]
fn who_waits_for_a_writer_in_its_turn_is_not_waited_for_forever() {
    let db = Db::in_memory().unwrap();
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        tx.get("hot")?;
        if attempts <= LOSSES + 1 {
            thread::scope(|scope| scope.spawn(|| db.put("hot", "other")).join())
                .expect("it is put")?;
        }
        tx.put("hot", "own")
    })
    .unwrap();
    assert_eq!(attempts, LOSSES + 2);
}

/// Without an end: gives up as before.
#[test]
fn a_turn_is_left_when_a_transaction_fails() {
    let db = Db::in_memory().unwrap();
    let mut attempts = 0;
    let failed: crate::Result<()> = db.transact(|tx| {
        attempts += 1;
        if attempts > LOSSES {
            return Err(Error::Canceled);
        }
        tx.get("hot")?;
        db.put("hot", "other")?;
        tx.put("hot", "own")
    });
    assert!(matches!(failed, Err(Error::Canceled)));
    assert!(db.handle().turns.are_unused());
}
