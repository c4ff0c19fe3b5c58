//! Invalid records of the system tree, the visibility of a lease that ends, what the check finds in indexes, what a
//! transaction notes of its reads, and when a graph view is wanted.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bowline_core::error::Error;
use bowline_core::index::{Definition, State};
use bowline_core::kinds::Kinds;
use bowline_core::lease::{self, LeaseId, LeaseTable};
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_storage::SystemClock;

use crate::commit_queue::Request;
use crate::cypher::Parameters;
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
    // On a busy machine it was over before a writer had begun.
    let all_run = Barrier::new(4);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (db, is_done, all_run) = (&db, &is_done, &all_run);
            scope.spawn(move || {
                // One of them by transactions without reads.
                let put = || match writer {
                    0 => db.transact(|tx| tx.put("hot", "w")).unwrap(),
                    _ => drop(db.put("hot", "w").unwrap()),
                };
                put();
                all_run.wait();
                while !is_done.load(Ordering::Relaxed) {
                    put();
                }
            });
        }
        all_run.wait();
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

/// A query that writes reads a block for each of its rows. Each of these reads was noted anew: the memory of a transaction
/// grew with the square of the blocks, and its commit checked all of them while everybody else waited.
#[test]
fn what_is_read_again_is_noted_once() {
    const NOTED_MAX: usize = 1_024;
    let db = Db::in_memory().unwrap();
    for id in 0..100 {
        let block = Block::new(BlockId(id), "p").attribute("x", 1);
        db.transact(|tx| tx.put_block(&block)).unwrap();
    }
    let mut tx = db.begin();
    let pairs = "MATCH (a:p), (b:p) WHERE a.x + b.x = 2 RETURN count(*)";
    let answer = tx.query(pairs, &Parameters::new()).unwrap();
    assert_eq!(answer.rows[0][0].to_string(), "10000");
    for _ in 0..5_000 {
        assert!(tx.get("k").unwrap().is_none());
        assert_eq!(tx.range("l".."m").unwrap().count(), 0);
        let edge = tx.edge(BlockId(1), "never_used", BlockId(2));
        assert!(edge.unwrap().is_none());
    }
    let draft = tx.draft_mut();
    let keys = std::mem::take(&mut draft.keys).into_vec().len();
    let ranges = std::mem::take(&mut draft.ranges).into_vec().len();
    let edges = std::mem::take(&mut draft.unregistered).into_vec().len();
    let noted = [keys, ranges, edges];
    assert!(noted.iter().all(|it| *it <= NOTED_MAX), "{noted:?}");
}

/// However often: what was read conflicts, and what lies between does not.
#[test]
fn what_is_read_often_is_in_the_read_set_and_nothing_else() {
    let db = Db::in_memory().unwrap();
    let conflicts_with = |changed: &str| {
        let mut tx = db.begin();
        for number in 0..4_000 {
            let key = format!("k{:04}", number % 1_000);
            assert_eq!(
                tx.get(&key).unwrap().is_some(),
                db.get(&key).unwrap().is_some()
            );
            let range = match number % 2 {
                0 => "l".."m",
                _ => "n".."o",
            };
            drop(tx.range(range).unwrap());
        }
        tx.put("own", "v").unwrap();
        db.put(changed, "v").unwrap();
        match tx.commit() {
            Ok(_) => false,
            Err(Error::Conflict { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    };
    for read in ["k0000", "k0777", "k0999", "l", "lz", "n", "nz"] {
        assert!(conflicts_with(read), "{read}");
    }
    for other in ["j", "k1000", "m", "mz", "o"] {
        assert!(!conflicts_with(other), "{other}");
    }
}

/// The record of a dropped index is visible a moment before commits know of it. Who began in that moment read by the index,
/// and no commit wrote any more what it would have found: two transactions that looked for one name both put it.
#[test]
fn who_reads_by_an_index_as_it_is_dropped_conflicts_with_what_it_would_have_found() {
    let db = Db::in_memory().unwrap();
    db.create_index("person", ["name"]).unwrap();
    let put = |id: u128, name: &str| {
        let block = Block::new(BlockId(id), "person").attribute("name", name);
        db.transact(|tx| tx.put_block(&block)).unwrap();
    };
    put(1, "b");
    let count = "MATCH (p:person {name: 'a'}) RETURN count(p)";
    let before = db.snapshot();
    let shown = before.build_query(count).explain(&before.graph()).unwrap();
    assert!(shown.contains("Seek"), "{shown}");
    let handle = db.handle();
    let index = handle.indexes.now().kept[0].clone();
    let dropped = Definition {
        state: State::Dropped,
        ..Definition::clone(&index)
    };
    let record = Action::PutRaw {
        value: dropped.encode(),
    };
    let request = Request::of(Mutation::new(trees::INDEX, &dropped.key(), record));
    let mut begun = None;
    let queue = &handle.queue;
    let committed = queue.commit_alone(&handle.core, request, |_| {
        // The commit is visible, and the set of indexes is that of before.
        let mut tx = db.begin();
        let answer = tx.query(count, &Parameters::new()).unwrap();
        assert_eq!(answer.rows[0][0].to_string(), "0");
        tx.put("is the first", "a").unwrap();
        begun = Some(tx);
        handle.indexes.put(dropped);
    });
    let tx = begun.expect("the drop is committed");
    assert_eq!(tx.snapshot_revision(), committed.unwrap().revision);
    put(2, "a");
    let outcome = tx.commit();
    assert!(
        matches!(outcome, Err(Error::Conflict { .. })),
        "{outcome:?}"
    );
}

/// Queries at revisions older than the graph view read the trees, and their rows were counted on while it was ready. Once they
/// were enough for a build, a view that forgot itself later was never wanted again: every walk read the trees until a restart.
#[test]
fn a_view_that_is_forgotten_is_wanted_again_however_many_rows_were_read_beside_it() {
    let db = Db::in_memory().unwrap();
    assert!(db.build_graph_view().unwrap());
    let view = &db.handle().graph_view;
    let wishes = || (0..5_000).filter(|_| view.note_tree_rows(1)).count();
    assert_eq!(wishes(), 2, "a look at the first row, and a build");
    // As the thread of the view does, which finds it ready.
    assert!(db.build_graph_view().unwrap());
    view.forget();
    assert_eq!(wishes(), 2);
}
