//! The commit queue: leaders, members, hand-overs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bowline::{Db, Error, Expected, Revision, Update, Value};
use bowline_storage::sync::atomic::{AtomicU64, Ordering};
use bowline_storage::sync::thread;
use bowline_storage::vfs::MemoryVfs;
use bowline_testing::SimDisk;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes, database, get};

/// Committers of every kind at once: each gets the outcome of its own request, once, and finds it
/// done; revisions are given out without gap or repetition; of those who want the same, one wins.
/// A member that is forgotten is a deadlock.
#[test]
fn every_committer_gets_its_own_outcome() {
    explore("every_committer_gets_its_own_outcome", 24_000, || {
        let db = database();
        let start = db.put("shared", bytes(0)).expect("a put");
        let committers: Vec<_> = (0..4_u64)
            .map(|number| {
                let db = db.clone();
                thread::spawn(move || {
                    let own = format!("own-{number}");
                    let first = db.put(&own, bytes(number)).expect("a put");
                    assert!(db.revision() >= first, "visible before it is acknowledged");
                    assert_eq!(get(&db, &own), number);
                    let won = match db.compare_and_swap(
                        "shared",
                        Expected::Revision(start),
                        bytes(number),
                    ) {
                        Ok(revision) => {
                            assert!(revision > first);
                            let entry = db.entry("shared").expect("a read").expect("it is there");
                            assert_eq!(entry.mod_revision, revision);
                            assert_eq!(entry.value[..], bytes(number));
                            Some(revision)
                        }
                        Err(Error::CompareFailed {
                            actual: Some(actual),
                            ..
                        }) => {
                            assert!(actual > start);
                            None
                        }
                        Err(other) => panic!("{other}"),
                    };
                    (first, won)
                })
            })
            .collect();
        let outcomes: Vec<_> = committers
            .into_iter()
            .map(|committer| committer.join().expect("no panic"))
            .collect();
        let winners = outcomes.iter().filter_map(|(_, won)| *won).count();
        assert_eq!(winners, 1, "one of four swaps from the same revision wins");
        let mut revisions: Vec<_> = outcomes
            .iter()
            .flat_map(|(first, won)| [Some(*first), *won])
            .flatten()
            .collect();
        revisions.sort_unstable();
        assert!(
            revisions
                .into_iter()
                .map(Revision::get)
                .eq(start.get() + 1..=db.revision().get())
        );
    });
}

/// Increments by updates and by optimistic transactions, of one key by all: a conflict that a commit group did not see
/// among its own members is a lost update, and an update that was not decided against the newest value another one.
#[test]
fn increments_within_a_group_are_not_lost() {
    explore("increments_within_a_group_are_not_lost", 12_000, || {
        let db = database();
        let number = |value: Option<Value>| -> u64 {
            let text = value.map(|value| String::from_utf8(value.to_vec()).expect("a text"));
            text.map_or(0, |text| text.parse().expect("a number"))
        };
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let db = db.clone();
                thread::spawn(move || {
                    if thread == 0 {
                        for _ in 0..2 {
                            let updated = db.update("counter", Update::Add(1));
                            let updated = updated.expect("it conflicts with nobody");
                            assert!(
                                db.revision() >= updated.revision,
                                "visible before it is done"
                            );
                        }
                        return 2;
                    }
                    for _ in 0..2 {
                        let mut tx = db.begin();
                        let next = number(tx.get("counter").expect("a read")) + 1;
                        tx.put("counter", next.to_string()).expect("a write");
                        match tx.commit() {
                            Ok(_) => return 1,
                            Err(Error::Conflict { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    0
                })
            })
            .collect();
        let added: u64 = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum();
        assert!(added >= 2, "an update always wins");
        assert_eq!(number(db.get("counter").expect("a read")), added);
    });
}

/// The leader of a commit group panics while it flushes. Nobody is left waiting: its members and all who
/// come later are refused, and what was visible stays readable.
#[test]
fn a_leader_that_panics_leaves_nobody_waiting() {
    explore("a_leader_that_panics_leaves_nobody_waiting", 3_600, || {
        let vfs = StepVfs::new(MemoryVfs::default());
        let db = builder(Arc::new(vfs.clone()))
            .open("/db")
            .expect("it opens");
        db.put("before", bytes(7)).expect("a put");
        vfs.panic_at_next_sync();
        let committers: Vec<_> = (0..3_u64)
            .map(|number| {
                let db = db.clone();
                thread::spawn(move || {
                    let put = || db.put("k", bytes(number));
                    match catch_unwind(AssertUnwindSafe(put)) {
                        Err(_) => 1,
                        Ok(Err(Error::Storage(_))) => 0,
                        Ok(Err(other)) => panic!("{other}"),
                        Ok(Ok(revision)) => panic!("acknowledged at {revision} without a flush"),
                    }
                })
            })
            .collect();
        let panicked: usize = committers
            .into_iter()
            .map(|committer| committer.join().expect("caught"))
            .sum();
        assert_eq!(panicked, 1);
        assert_eq!((get(&db, "before"), get(&db, "k")), (7, 0));
    });
}

/// Commits under way, waited for in every way and in any order, beside commits that are waited for: each is done, in the
/// order in which one thread made them, and visible when it is. A ticket that nobody leads is a deadlock.
#[test]
fn every_ticket_is_done() {
    explore("every_ticket_is_done", 6_000, || {
        let db = database();
        let threads: Vec<_> = (0..3_u64)
            .map(|number| {
                let db = db.clone();
                thread::spawn(move || {
                    let own = format!("own-{number}");
                    let first = db.put_later(&own, bytes(1)).expect("a place");
                    let second = db.put_later(&own, bytes(2)).expect("a place");
                    if number == 0 {
                        // Nobody waits for the first; the second has both done.
                        drop(first);
                        second.wait().expect("a put");
                        assert_eq!(get(&db, &own), 2);
                        return;
                    }
                    if number == 1 {
                        db.put("shared", bytes(1)).expect("a put");
                        // They stood before it. Their leader may still be about to say that they are done.
                        assert_eq!(get(&db, &own), 2);
                    }
                    let mut second = second;
                    let later = loop {
                        match second.wait_timeout(Duration::from_secs(1)) {
                            Ok(outcome) => break outcome.expect("a put").revision,
                            Err(ticket) => second = ticket,
                        }
                    };
                    assert!(db.revision() >= later, "visible before it is done");
                    assert!(first.wait().expect("a put").revision < later);
                })
            })
            .collect();
        // Dropped with nobody behind it.
        drop(db.put_later("dropped", bytes(3)).expect("a place"));
        for thread in threads {
            thread.join().expect("no panic");
        }
        let seen = db.wait_for_revision(Revision::new(9), Duration::from_secs(60));
        assert!(seen.expect("it is open"));
        assert_eq!(get(&db, "dropped"), 3);
    });
}

/// What a reader has seen is on the disk: it survives a power loss in the moment after.
#[test]
fn what_is_read_is_flushed() {
    explore("what_is_read_is_flushed", 6_000, || {
        let disk = SimDisk::new();
        let db = builder(Arc::new(StepVfs::new(disk.clone())))
            .open("/db")
            .expect("it opens");
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let db = db.clone();
                thread::spawn(move || {
                    for number in 1..3 {
                        let key = format!("k{writer}");
                        db.put(key, bytes(number)).expect("a put");
                    }
                })
            })
            .collect();
        let acknowledged = AtomicU64::new(0);
        while acknowledged.load(Ordering::Relaxed) < 2 {
            acknowledged.fetch_add(1, Ordering::Relaxed);
            let (seen, revision) = (["k0", "k1"].map(|key| get(&db, key)), db.revision());
            let image = disk.after_power_loss();
            let after = Db::builder()
                .vfs(Arc::new(image))
                .background(bowline::Background::Manual)
                .memtable_bytes(64 << 10)
                .log_segment_bytes(16 << 10)
                .open("/db")
                .expect("it opens");
            assert!(after.revision() >= revision);
            for (key, seen) in ["k0", "k1"].into_iter().zip(seen) {
                assert!(get(&after, key) >= seen, "{key} was {seen}");
            }
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
    });
}
