//! Leases: keep-alive against expiry.

use std::sync::Arc;
use std::time::Duration;

use bowline::Error;
use bowline_storage::Clock;
use bowline_storage::sync::thread;
use bowline_storage::vfs::MemoryVfs;
use bowline_testing::ManualClock;

use crate::explore::explore;
use crate::vfs::StepVfs;
use crate::{builder, bytes, get};

/// A lease is kept alive while its time runs out and two threads expire what is over. Whoever is
/// told that it lives on finds its key until the new deadline; whoever is told that it is gone is
/// right, and the key goes with it.
#[test]
fn a_lease_that_was_kept_alive_keeps_its_key() {
    explore("a_lease_that_was_kept_alive_keeps_its_key", 12_000, || {
        let clock = ManualClock::new();
        let vfs = StepVfs::new(MemoryVfs::default());
        let db = builder(Arc::new(vfs)).clock(Arc::new(clock.clone()));
        let db = db.open("/db").expect("it opens");
        let ttl = Duration::from_secs(10);
        let lease = db.grant_lease(ttl).expect("a lease");
        db.put_with_lease("k", bytes(1), lease).expect("a put");
        let expirer = {
            let (db, clock) = (db.clone(), clock.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    clock.advance(Duration::from_secs(4));
                    db.expire_leases().expect("expiry");
                }
            })
        };
        let mut granted_from = Some(Duration::ZERO);
        for _ in 0..2 {
            let before = clock.monotonic();
            match db.keep_alive(lease) {
                Ok(renewed) => {
                    assert_eq!(renewed, ttl);
                    granted_from = Some(before);
                    let there = get(&db, "k");
                    // Asked after reading, so that it cannot have passed before.
                    let is_due = clock.monotonic() >= before + ttl;
                    assert!(there == 1 || is_due, "it went before its time");
                }
                Err(Error::LeaseNotFound { .. }) => {
                    granted_from = None;
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
        expirer.join().expect("no panic");
        match granted_from {
            Some(from) => {
                // From here on the clock stands still.
                let is_due = clock.monotonic() >= from + ttl;
                assert!(get(&db, "k") == 1 || is_due, "it went before its time");
            }
            None => {
                db.expire_leases().expect("expiry");
                assert!(
                    db.leases().is_empty(),
                    "a lease that was called gone is gone"
                );
            }
        }
        let alive = !db.leases().is_empty();
        assert!(alive || clock.monotonic() >= ttl);
        clock.advance(ttl * 2);
        db.expire_leases().expect("expiry");
        while !db.leases().is_empty() {
            // The lease thread may be about to do it.
            thread::yield_now();
        }
        assert_eq!(get(&db, "k"), 0);
    });
}

/// A put that does not look what its key held, since nothing is attached to a lease, and the first
/// attachment beside it: whichever comes last, the key belongs to the lease or it does not.
#[test]
fn a_put_that_does_not_look_leaves_no_attachment() {
    let test = "a_put_that_does_not_look_leaves_no_attachment";
    explore(test, 6_000, || {
        let vfs = StepVfs::new(MemoryVfs::default());
        let db = builder(Arc::new(vfs)).open("/db").expect("it opens");
        db.put("k", bytes(1)).expect("a put");
        // From here on a table would have to be read for it.
        db.flush().expect("a flush");
        let lease = db.grant_lease(Duration::from_secs(60)).expect("a lease");
        let attacher = {
            let db = db.clone();
            thread::spawn(move || {
                db.put_with_lease("k", bytes(2), lease).expect("a put");
                // In memory it would be seen without a look into tables.
                db.flush().expect("a flush");
            })
        };
        db.put("k", bytes(3)).expect("a put");
        attacher.join().expect("no panic");
        let entry = db.entry("k").expect("a read").expect("it is there");
        assert_eq!((entry.create_revision.get(), entry.version), (2, 3));
        let is_attached = get(&db, "k") == 2;
        assert_eq!(entry.lease, is_attached.then_some(lease));
        let keys = db.lease_keys(lease).expect("it exists");
        let keys: Vec<_> = keys.map(|key| key.expect("a read")).collect();
        assert_eq!(keys.len(), usize::from(is_attached));
        let deleted = db.revoke_lease(lease).expect("it exists");
        assert_eq!(deleted, u64::from(is_attached));
        assert_eq!(db.get("k").expect("a read").is_none(), is_attached);
    });
}
