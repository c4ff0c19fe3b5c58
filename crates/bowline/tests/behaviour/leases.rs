//! Leases: keys that go when their owner stops renewing, not before, and no others.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bowline::{Db, DbBuilder, Error, Expected, History, LeaseId, Limits, Result};
use bowline_testing::fault::{Call, Failure, Rule};
use bowline_testing::lease_id;
use bowline_testing::{FaultVfs, ManualClock, SimDisk};

use crate::support::{Disk, Stage, TIMEOUT, assert_error, in_every_stage, keys_of, manual, next};

const SECOND: Duration = Duration::from_secs(1);

fn with_clock() -> (ManualClock, DbBuilder) {
    let clock = ManualClock::new();
    (clock.clone(), manual().clock(Arc::new(clock)))
}

fn keys(db: &Db, lease: LeaseId) -> Result<Vec<String>> {
    let keys = db.lease_keys(lease)?.collect::<Result<Vec<_>>>()?;
    Ok(keys
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect())
}

#[test]
fn a_lease_expires_at_its_deadline_and_not_before() -> Result<()> {
    let (clock, settings) = with_clock();
    let db = Disk::new().open(settings);
    let lease = db.grant_lease(SECOND * 10)?;
    assert!(lease.get() > 0);
    db.put_with_lease("k", "v", lease)?;
    db.put("other", "v")?;
    clock.advance(SECOND * 10 - Duration::from_nanos(1));
    assert_eq!(db.expire_leases()?, 0);
    assert!(db.get("k")?.is_some());
    clock.advance(Duration::from_nanos(1));
    assert!(db.get("k")?.is_some(), "until somebody expires it");
    assert_eq!(db.expire_leases()?, 1);
    assert_eq!(keys_of(db.range(..)?)?, ["other"]);
    assert_eq!((db.leases().len(), db.stats().leases), (0, 0));
    assert_eq!(db.expire_leases()?, 0);
    assert_error!(db.keep_alive(lease), Error::LeaseNotFound { id } if id == lease);
    assert_error!(db.revoke_lease(lease), Error::LeaseNotFound { .. });
    assert_error!(db.lease_keys(lease), Error::LeaseNotFound { .. });
    assert_error!(
        db.put_with_lease("k", "v", lease),
        Error::LeaseNotFound { .. }
    );
    Ok(())
}

#[test]
fn a_wall_clock_that_jumps_expires_nothing() -> Result<()> {
    let (clock, settings) = with_clock();
    let db = Disk::new().open(settings);
    let lease = db.grant_lease(SECOND)?;
    for wall_ms in [u64::MAX / 2, 0, 1] {
        clock.jump_wall_to(wall_ms);
        assert_eq!(db.expire_leases()?, 0);
        assert_eq!(db.leases()[0].remaining, SECOND);
    }
    assert_eq!(db.keep_alive(lease)?, SECOND);
    Ok(())
}

#[test]
fn keep_alive_begins_the_time_anew() -> Result<()> {
    let (clock, settings) = with_clock();
    let db = Disk::new().open(settings);
    let lease = db.grant_lease(SECOND * 10)?;
    db.put_with_lease("k", "v", lease)?;
    let revision = db.revision();
    for _ in 0..20 {
        clock.advance(SECOND * 9);
        assert_eq!(db.leases()[0].remaining, SECOND);
        assert_eq!(db.keep_alive(lease)?, SECOND * 10);
        assert_eq!(db.leases()[0].remaining, SECOND * 10);
        assert_eq!(db.expire_leases()?, 0);
    }
    assert_eq!(db.revision(), revision, "keep-alive takes no revision");
    clock.advance(SECOND * 10);
    assert_eq!(db.expire_leases()?, 1);
    assert_eq!(db.get("k")?, None);
    Ok(())
}

#[test]
fn ids_and_times_out_of_bounds_are_refused() -> Result<()> {
    let db = Disk::new().open(manual());
    for ttl in [
        Duration::ZERO,
        Duration::from_nanos(999_999),
        Duration::from_secs(9_000_000_001),
        Duration::MAX,
    ] {
        assert_error!(db.grant_lease(ttl), Error::InvalidTtl { ttl: named } if named == ttl);
        assert_error!(
            db.grant_lease_with_id(lease_id(7), ttl),
            Error::InvalidTtl { .. }
        );
    }
    // As in etcd, an id below 0 is one.
    for id in [lease_id(-1), lease_id(i64::MIN)] {
        assert_error!(db.keep_alive(id), Error::LeaseNotFound { .. });
        assert_error!(db.revoke_lease(id), Error::LeaseNotFound { .. });
        db.grant_lease_with_id(id, SECOND)?;
        assert_eq!(db.keep_alive(id)?, SECOND);
        assert_eq!(db.revoke_lease(id)?, 0);
    }
    assert_error!(
        db.put_with_lease("k", "v", lease_id(-5)),
        Error::LeaseNotFound { id } if id == lease_id(-5)
    );
    let mut tx = db.begin();
    tx.put_with_lease("k", "v", lease_id(12_345))?;
    assert_error!(tx.commit(), Error::LeaseNotFound { id } if id == lease_id(12_345));
    assert_eq!(db.get("k")?, None);
    for (id, ttl) in [
        (1, Duration::from_millis(1)),
        (i64::MAX, Duration::from_secs(9_000_000_000)),
    ] {
        db.grant_lease_with_id(lease_id(id), ttl)?;
        assert_error!(db.grant_lease_with_id(lease_id(id), SECOND), Error::LeaseExists { id: named } if named == lease_id(id));
    }
    let leases = db.leases();
    assert_eq!(
        leases.iter().map(|lease| lease.id).collect::<Vec<_>>(),
        [lease_id(1), lease_id(i64::MAX)]
    );
    assert_eq!(leases[1].ttl, Duration::from_secs(9_000_000_000));
    assert_eq!(db.revision(), 1, "leases take no revision");
    Ok(())
}

#[test]
fn revoking_deletes_the_attached_keys_in_one_revision_and_no_others() {
    in_every_stage(
        manual(),
        |db| {
            db.grant_lease_with_id(lease_id(1), SECOND * 1000)?;
            db.grant_lease_with_id(lease_id(2), SECOND * 1000)?;
            for at in 0..20 {
                db.put_with_lease(format!("one/{at:02}"), "v", lease_id(1))?;
                db.put_with_lease(format!("two/{at:02}"), "v", lease_id(2))?;
                db.put(format!("none/{at:02}"), "v")?;
            }
            Ok(())
        },
        |db, (), stage| {
            assert_eq!(keys(db, lease_id(1))?.len(), 20, "{stage:?}");
            assert_eq!(
                db.entry("one/07")?.expect("it is there").lease,
                Some(lease_id(1))
            );
            let mut watcher = db.watch(..).start()?;
            let before = db.revision();
            assert_eq!(db.revoke_lease(lease_id(1))?, 20, "{stage:?}");
            assert_eq!(db.revision(), before + 1, "{stage:?}");
            let changes = next(&mut watcher);
            assert_eq!((changes.revision, changes.changes.len()), (before + 1, 20));
            assert_eq!(db.range("one/".."one0")?.count(), 0, "{stage:?}");
            assert_eq!(db.range(..)?.count(), 40, "{stage:?}");
            assert_eq!(keys(db, lease_id(2))?.len(), 20, "{stage:?}");
            assert_error!(db.revoke_lease(lease_id(1)), Error::LeaseNotFound { id } if id == lease_id(1));
            // The keys are free, and so is the id.
            db.put("one/07", "back")?;
            db.grant_lease_with_id(lease_id(1), SECOND)?;
            assert_eq!(keys(db, lease_id(1))?.len(), 0, "{stage:?}");
            Ok(())
        },
    );
}

#[test]
fn a_key_belongs_to_the_lease_it_was_last_put_with() {
    in_every_stage(
        manual().history(History::All),
        |db| {
            for id in 1..=3 {
                db.grant_lease_with_id(lease_id(id), SECOND * 1000)?;
            }
            for key in [
                "kept", "moved", "freed", "deleted", "swapped", "again", "twice",
            ] {
                db.put_with_lease(key, "1", lease_id(1))?;
            }
            db.flush()?;
            db.put_with_lease("moved", "2", lease_id(2))?;
            db.put("freed", "2")?;
            db.delete("deleted")?;
            let revision = db.entry("swapped")?.expect("it is there").mod_revision;
            db.compare_and_swap("swapped", Expected::Revision(revision), "2")?;
            db.delete("again")?;
            db.put_with_lease("again", "2", lease_id(1))?;
            db.transact(|tx| {
                tx.put_with_lease("twice", "2", lease_id(2))?;
                tx.put_with_lease("twice", "3", lease_id(3))
            })
        },
        |db, (), stage| {
            assert_eq!(keys(db, lease_id(1))?, ["again", "kept"], "{stage:?}");
            assert_eq!(keys(db, lease_id(2))?, ["moved"], "{stage:?}");
            assert_eq!(keys(db, lease_id(3))?, ["twice"], "{stage:?}");
            assert_eq!(db.revoke_lease(lease_id(1))?, 2, "{stage:?}");
            assert_eq!(
                keys_of(db.range(..)?)?,
                ["freed", "moved", "swapped", "twice"],
                "{stage:?}"
            );
            assert_eq!(db.revoke_lease(lease_id(3))?, 1, "{stage:?}");
            assert_eq!(db.revoke_lease(lease_id(2))?, 1, "{stage:?}");
            assert_eq!(keys_of(db.range(..)?)?, ["freed", "swapped"], "{stage:?}");
            Ok(())
        },
    );
}

/// Leases take no revision, so grant, revoke and grant again all write the same record at the
/// same revision; the last must win wherever the three lie.
#[test]
fn a_lease_granted_and_revoked_at_one_revision_is_gone() -> Result<()> {
    for history in [History::None, History::All] {
        for flush_mask in 0..8u32 {
            for grants in 1..=2 {
                let disk = Disk::new();
                let db = disk.open(manual().history(history));
                let flush = |step: u32| {
                    if flush_mask & (1 << step) != 0 {
                        db.flush()
                    } else {
                        Ok(())
                    }
                };
                db.grant_lease_with_id(lease_id(7), SECOND)?;
                flush(0)?;
                assert_eq!(db.revoke_lease(lease_id(7))?, 0);
                flush(1)?;
                if grants == 2 {
                    db.grant_lease_with_id(lease_id(7), SECOND * 2)?;
                }
                flush(2)?;
                assert_eq!(db.revision(), 1);
                let mut db = db;
                for stage in [
                    Stage::Reopened,
                    Stage::CompactedAndReopened,
                    Stage::Reopened,
                ] {
                    db = stage.reach(db, &disk, manual().history(history))?;
                    let left: Vec<_> = db.leases().iter().map(|lease| lease.ttl).collect();
                    let expected = if grants == 2 {
                        vec![SECOND * 2]
                    } else {
                        vec![]
                    };
                    assert_eq!(
                        left, expected,
                        "{history:?} flushes {flush_mask:b} {stage:?}"
                    );
                    assert!(db.check()?.is_clean());
                }
            }
        }
    }
    Ok(())
}

/// Each opening started the time of every lease anew, so a lease in a directory that only short-lived programs open never
/// expired.
#[test]
fn the_time_of_a_lease_goes_on_while_the_database_is_closed() -> Result<()> {
    for is_flushed in [false, true] {
        let (clock, settings) = with_clock();
        let disk = Disk::new();
        let db = disk.open(settings.clone());
        let lease = db.grant_lease(SECOND * 10)?;
        db.put_with_lease("k", "v", lease)?;
        for _ in 0..3 {
            clock.advance(SECOND);
            if is_flushed {
                db.compact()?;
            }
        }
        drop(db);
        clock.advance(SECOND * 3);
        let db = disk.open(settings.clone());
        let left = &db.leases()[0];
        assert_eq!((left.id, left.ttl), (lease, SECOND * 10));
        assert_near(left.remaining, SECOND * 4);
        assert_eq!(keys(&db, lease)?, ["k"]);
        drop(db);
        let db = disk.open(settings.clone());
        assert_near(db.leases()[0].remaining, SECOND * 4);
        clock.advance(SECOND * 4 - Duration::from_nanos(1));
        assert_eq!(db.expire_leases()?, 0, "longer, never shorter");
        drop(db);
        clock.advance(SECOND);
        let db = disk.open(settings);
        assert_eq!(db.expire_leases()?, 1);
        assert_eq!(db.get("k")?, None);
    }
    Ok(())
}

/// What is left may be a millisecond more: the wall clock has no parts of one.
fn assert_near(left: Duration, expected: Duration) {
    let most = expected + Duration::from_millis(2);
    assert!((expected..=most).contains(&left), "{left:?}");
}

#[test]
fn what_expired_while_the_database_was_closed_is_not_seen_again() -> Result<()> {
    let clock = ManualClock::new();
    let settings = Db::builder().clock(Arc::new(clock.clone()));
    let disk = Disk::new();
    let db = disk.open(settings.clone());
    let lease = db.grant_lease(SECOND * 10)?;
    db.put_with_lease("k", "v", lease)?;
    drop(db);
    clock.advance(SECOND * 11);
    let db = disk.open(settings);
    assert_eq!(db.get("k")?, None);
    assert_eq!(db.leases(), []);
    Ok(())
}

/// A process that keeps its lease alive and is then killed has written its last deadlines in advance.
#[test]
fn after_a_crash_a_lease_that_was_kept_alive_lives_for_its_time() -> Result<()> {
    for ttl in [SECOND, SECOND * 10, SECOND * 100] {
        let slack = ttl.max(SECOND * 10);
        let (clock, settings) = with_clock();
        let mut disk = SimDisk::new();
        let open = |disk: &SimDisk| settings.clone().vfs(Arc::new(disk.clone())).open("/db");
        let mut db = open(&disk)?;
        let lease = db.grant_lease(ttl)?;
        for _ in 0..10 {
            for _ in 0..7 {
                clock.advance(ttl / 3);
                assert_eq!(db.keep_alive(lease)?, ttl);
            }
            // Nothing is written at the end.
            let killed = disk.after_kill();
            drop(db);
            disk = killed;
            db = open(&disk)?;
            let left = db.leases()[0].remaining;
            let most = ttl + slack + Duration::from_millis(2);
            assert!((ttl..=most).contains(&left), "{ttl:?}: {left:?}");
            db.keep_alive(lease)?;
        }
        drop(db);
        // A wall clock that was set back adds no more than that.
        clock.jump_wall_to(1);
        let db = open(&disk)?;
        assert_eq!(db.leases()[0].remaining, ttl + slack);
    }
    Ok(())
}

#[test]
fn a_keep_alive_whose_deadline_cannot_be_recorded_is_refused() -> Result<()> {
    let (clock, settings) = with_clock();
    let disk = FaultVfs::new(SimDisk::new());
    let db = settings.vfs(Arc::new(disk.clone())).open("/db")?;
    let lease = db.grant_lease(SECOND * 10)?;
    clock.advance(SECOND * 4);
    disk.add(Rule::on(Call::Sync).fail(Failure::Io));
    let refused = db.keep_alive(lease);
    assert_error!(refused, Error::Storage(_));
    assert_eq!(db.leases()[0].remaining, SECOND * 6);
    Ok(())
}

#[test]
fn many_leases_expire_each_at_its_own_time() -> Result<()> {
    let (clock, settings) = with_clock();
    let db = Disk::new().open(settings);
    for id in 1..=50 {
        db.grant_lease_with_id(lease_id(id), SECOND * u32::try_from(id).expect("small"))?;
        db.put_with_lease(format!("k{id:02}"), "v", lease_id(id))?;
    }
    for expired in 1..=50 {
        clock.advance(SECOND);
        assert_eq!(db.expire_leases()?, 1);
        assert_eq!(db.leases().len(), 50 - expired);
        assert_eq!(db.range(..)?.count(), 50 - expired);
    }
    Ok(())
}

#[test]
fn a_put_races_with_the_end_of_its_lease() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    for round in 1..=60 {
        db.grant_lease_with_id(lease_id(round), SECOND * 1000)?;
        let attached = thread::scope(|scope| {
            let put = scope.spawn(|| {
                let mut attached = 0;
                for at in 0..1_000 {
                    match db.put_with_lease(format!("{round}/{at}"), "v", lease_id(round)) {
                        Ok(_) => attached += 1,
                        Err(Error::LeaseNotFound { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                attached
            });
            thread::sleep(Duration::from_micros(200));
            let deleted = db.revoke_lease(lease_id(round))?;
            let attached = put.join().expect("no panic");
            assert_eq!(
                deleted, attached,
                "every put that succeeded was before the end"
            );
            Ok::<_, Error>(attached)
        })?;
        assert_eq!(
            db.range(format!("{round}/")..format!("{round}0"))?.count(),
            0,
            "{attached}"
        );
    }
    assert!(db.check()?.is_clean());
    Ok(())
}

/// The table of deadlines and the database must agree on which leases there are.
#[test]
fn a_lease_that_is_granted_while_it_is_revoked_is_one_or_the_other() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    for round in 0..40 {
        thread::scope(|scope| {
            for _ in 0..2 {
                // Others lead most commit groups, so that grants and ends learn of their outcome late.
                scope.spawn(|| {
                    for _ in 0..50 {
                        db.put("k", "v").expect("a put");
                    }
                });
                scope.spawn(|| {
                    for _ in 0..50 {
                        match db.grant_lease_with_id(lease_id(7), SECOND * 1000) {
                            Ok(()) | Err(Error::LeaseExists { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..50 {
                        match db.revoke_lease(lease_id(7)) {
                            Ok(_) | Err(Error::LeaseNotFound { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let is_listed = !db.leases().is_empty();
        let is_stored = match db.grant_lease_with_id(lease_id(7), SECOND * 1000) {
            Ok(()) => false,
            Err(Error::LeaseExists { .. }) => true,
            Err(error) => return Err(error),
        };
        assert_eq!(is_listed, is_stored, "round {round}");
        db.revoke_lease(lease_id(7))?;
    }
    Ok(())
}

#[test]
fn the_background_thread_expires_leases_in_time() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    let long = db.grant_lease(SECOND * 1000)?;
    db.put_with_lease("long", "v", long)?;
    let ttl = Duration::from_millis(400);
    let start = Instant::now();
    let mut watcher = db.watch(..).start()?;
    // Granted after the thread has gone to sleep for the long one.
    let short = db.grant_lease(ttl)?;
    db.put_with_lease("short", "v", short)?;
    assert_eq!(next(&mut watcher).changes[0].entry.lease, Some(short));
    let changes = next(&mut watcher);
    assert!(start.elapsed() >= ttl, "{:?}", start.elapsed());
    assert!(start.elapsed() < ttl + SECOND * 5, "{:?}", start.elapsed());
    assert_eq!(&changes.changes[0].entry.key[..], b"short");
    assert_eq!(keys_of(db.range(..)?)?, ["long"]);

    // Kept alive, it stays.
    let lease = db.grant_lease(ttl)?;
    db.put_with_lease("kept", "v", lease)?;
    let until = Instant::now() + ttl * 3;
    while Instant::now() < until {
        // A machine that is stopped for longer than the TTL makes this fail, rightly.
        db.keep_alive(lease)?;
        thread::sleep(Duration::from_millis(5));
    }
    assert!(db.get("kept")?.is_some());
    let deadline = Instant::now() + TIMEOUT;
    while db.get("kept")?.is_some() {
        assert!(Instant::now() < deadline, "it never expired");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A lease whose keys are too many for one transaction was never ended, and all that had expired with it and have a
/// higher id stayed, too. Found by review.
#[test]
fn a_lease_too_large_for_one_transaction_ends_with_the_others() -> Result<()> {
    let (clock, settings) = with_clock();
    let limits = Limits {
        transaction_size_max_bytes: 1000,
        ..Limits::default()
    };
    for is_revoked in [false, true] {
        let disk = Disk::new();
        let db = disk.open(settings.clone().limits(limits));
        let [large, small] = [1, 2].map(lease_id);
        for lease in [large, small] {
            db.grant_lease_with_id(lease, SECOND)?;
        }
        for number in 0..300 {
            db.put_with_lease(format!("large{number}"), "", large)?;
        }
        db.put_with_lease("small", "", small)?;
        db.put("other", "")?;
        if is_revoked {
            assert_eq!(db.revoke_lease(large)?, 300);
        }
        clock.advance(SECOND);
        assert_eq!(db.expire_leases()?, 2 - u64::from(is_revoked));
        assert_eq!(keys_of(db.range(..)?)?, ["other"]);
        assert_eq!(db.leases().len(), 0);
        assert!(db.check()?.is_clean());
    }
    Ok(())
}

/// Found by this test: the lease thread held a handle while it expired leases, so a database whose
/// last handle was dropped in that moment was still locked afterwards.
#[test]
fn dropping_the_last_handle_closes_also_while_leases_expire() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    for round in 0..20 {
        let db = Db::open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        for _ in 0..20 {
            let lease = db.grant_lease(Duration::from_millis(1 + round % 4))?;
            match db.put_with_lease(format!("k{lease}"), vec![0; 1_000], lease) {
                Ok(_) | Err(Error::LeaseNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
