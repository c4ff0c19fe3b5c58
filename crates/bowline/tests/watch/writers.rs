//! Writers: threads that change the database and record the results.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline::{Block, BlockId, Db, Error, Range, Result, Revision};
use parking_lot::Mutex;

use crate::TIMEOUT;
use crate::truth::{Notes, Wanted};

/// Prefixes of the keys; the last belongs to the leases.
pub const PREFIXES: [&str; 5] = ["a/", "b/", "c/", "d/", "l/"];
const KEYS_EACH: u32 = 16;

/// A key that writers share.
pub fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let prefix = PREFIXES[rng.usize(0..PREFIXES.len() - 1)];
    format!("{prefix}{:02}", rng.u32(0..KEYS_EACH)).into_bytes()
}

fn random_value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = if rng.u8(0..20) == 0 {
        rng.usize(0..3_000)
    } else {
        rng.usize(0..60)
    };
    // Every second byte random, so that values differ and compress a little.
    (0..len)
        .map(|at| if at % 2 == 0 { b'v' } else { rng.u8(..) })
        .collect()
}

/// One random commit of keys, of a range, or of a block; a conflict is as good as none.
pub fn write_once(db: &Db, rng: &mut fastrand::Rng, notes: &Mutex<Notes>) -> Result<()> {
    let key = random_key(rng);
    let value = random_value(rng);
    match rng.u8(0..100) {
        0..45 => {
            let revision = db.put(&key, &value)?;
            notes
                .lock()
                .told(revision, vec![Wanted::put(&key, &value, None)]);
        }
        45..58 => {
            if let Some(revision) = db.delete(&key)? {
                notes.lock().told(revision, vec![Wanted::delete(&key)]);
            }
        }
        58..80 => in_transaction(db, rng, notes)?,
        80..87 => delete_range(db, rng, notes)?,
        87..95 => {
            let expected = db.entry(&key)?.map(|entry| entry.mod_revision).into();
            match db.compare_and_swap(&key, expected, &value) {
                Ok(revision) => notes
                    .lock()
                    .told(revision, vec![Wanted::put(&key, &value, None)]),
                Err(Error::CompareFailed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        _ => {
            // A revision without keys.
            let mut tx = db.begin();
            tx.put_block(&Block::new(BlockId(rng.u128(1..9)), "kind").content(value))?;
            notes.lock().told(tx.commit()?.revision, Vec::new());
        }
    }
    Ok(())
}

/// Notes a transaction that may have met a conflict or changed nothing.
fn note(
    notes: &Mutex<Notes>,
    committed: Result<bowline::Committed>,
    changes: Vec<Wanted>,
) -> Result<()> {
    match committed {
        Ok(committed) if committed.changed => notes.lock().told(committed.revision, changes),
        Ok(_) => assert!(changes.is_empty(), "{changes:?} changed nothing"),
        Err(Error::Conflict { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn in_transaction(db: &Db, rng: &mut fastrand::Rng, notes: &Mutex<Notes>) -> Result<()> {
    let keys: BTreeSet<_> = (0..rng.usize(2..8)).map(|_| random_key(rng)).collect();
    let mut tx = db.begin();
    let mut changes = Vec::new();
    for key in keys {
        if rng.u8(0..4) > 0 {
            let value = random_value(rng);
            tx.put(&key, &value)?;
            changes.push(Wanted::put(&key, &value, None));
        } else if tx.delete(&key)? {
            changes.push(Wanted::delete(&key));
        }
    }
    note(notes, tx.commit(), changes)
}

fn delete_range(db: &Db, rng: &mut fastrand::Rng, notes: &Mutex<Notes>) -> Result<()> {
    let prefix = PREFIXES[rng.usize(0..PREFIXES.len() - 1)];
    let start = rng.u32(0..KEYS_EACH);
    let range = Range::from(format!("{prefix}{start:02}")..format!("{prefix}{:02}", start + 4));
    let mut tx = db.begin();
    let mut changes = Vec::new();
    for entry in tx.range(range.clone())? {
        changes.push(Wanted::delete(&entry?.key));
    }
    assert_eq!(tx.delete_range(range)?, changes.len() as u64);
    note(notes, tx.commit(), changes)
}

/// Grants a lease, attaches keys, keeps it alive or not, and sees it end: by revocation or
/// (when somebody expires leases) by time.
pub fn one_lease(
    db: &Db,
    rng: &mut fastrand::Rng,
    notes: &Mutex<Notes>,
    by_time: bool,
) -> Result<()> {
    let ttl = if by_time {
        Duration::from_millis(rng.u64(2..12))
    } else {
        Duration::from_secs(600)
    };
    let id = db.grant_lease(ttl)?;
    let mut attached = BTreeSet::new();
    for _ in 0..rng.usize(1..4) {
        let mut tx = db.begin();
        let mut changes = Vec::new();
        let keys: BTreeSet<_> = (0..rng.usize(1..5)).map(|_| rng.u32(0..10)).collect();
        for number in &keys {
            let key = format!("l/{number}").into_bytes();
            let value = random_value(rng);
            tx.put_with_lease(&key, &value, id)?;
            changes.push(Wanted::put(&key, &value, Some(id)));
        }
        match tx.commit() {
            Ok(committed) => {
                attached.extend(changes.iter().map(|change| change.key.clone()));
                notes.lock().told(committed.revision, changes);
            }
            // Its time was over before.
            Err(Error::LeaseNotFound { .. }) if by_time => {}
            Err(error) => return Err(error),
        }
        match db.keep_alive(id) {
            Ok(_) => {}
            Err(Error::LeaseNotFound { .. }) if by_time => {}
            Err(error) => return Err(error),
        }
    }
    if by_time {
        let start = Instant::now();
        while db.leases().iter().any(|lease| lease.id == id) {
            assert!(start.elapsed() < TIMEOUT, "lease {id} does not expire");
            thread::sleep(Duration::from_millis(1));
        }
    } else {
        if rng.bool()
            && let Some(key) = attached.pop_first()
        {
            // Written without the lease, the key no longer belongs to it.
            let value = random_value(rng);
            let revision = db.put(&key, &value)?;
            notes
                .lock()
                .told(revision, vec![Wanted::put(&key, &value, None)]);
        }
        assert_eq!(db.revoke_lease(id)?, attached.len() as u64);
    }
    notes.lock().lease_ended(&attached);
    Ok(())
}

/// Flushes, merges and, when `compacts`, trims history at some revision near the newest.
/// `given_up` is at least what was trimmed, at any time.
pub fn upkeep(
    db: &Db,
    rng: &mut fastrand::Rng,
    compacts: bool,
    given_up: &AtomicU64,
) -> Result<()> {
    match rng.u8(0..4) {
        0 => db.flush()?,
        1 => db.compact()?,
        _ if compacts => {
            let revision: Revision = db
                .revision()
                .saturating_sub(rng.u64(0..120))
                .max(Revision::new(1));
            given_up.fetch_max(revision.get(), Ordering::SeqCst);
            match db.trim_history(revision) {
                Ok(()) | Err(Error::Compacted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        _ => {}
    }
    Ok(())
}
