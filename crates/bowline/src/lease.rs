//! Leases: keys that go when their owner stops renewing.
//!
//! A lease has an id, a granted time to live, and the keys attached to it. Granting and revoking
//! are records in the system tree; a key is attached by the transaction that puts it
//! (`put_with_lease`), and each attachment is a record too, written in that same transaction.
//! When a lease expires, one transaction deletes its keys and the lease.
//!
//! Invariants:
//!
//! - A lease never expires before its TTL has passed on the monotonic clock since it was granted
//!   or last kept alive. Keep-alive writes nothing: the deadline lives in memory, and after a
//!   reopening every lease begins its TTL anew, so it may live longer, never shorter.
//! - An entry names lease L exactly when the attachment record of (L, key) exists.
//! - A put with a lease commits only if the lease exists at commit.
//! - Grants and ends of one lease happen one after the other, each with its record and its place in
//!   the table of deadlines: a lease is in both or in neither.

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use bowline_storage::Clock;
use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::sync::{Mutex, MutexGuard};
use bowline_storage::tree::{Engine, ScanDirection};

use crate::error::{Error, Result, show_key};
use crate::trees;

/// The id of a lease; 0 means "none" (or, for a grant, "choose one").
pub type LeaseId = i64;

/// The shortest time to live.
const TTL_MIN: Duration = Duration::from_millis(1);
/// The longest time to live, etcd's.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// A lease as [`Db::leases`](crate::Db::leases) lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// The time to live it was granted.
    pub ttl: Duration,
    /// What is left of it.
    pub remaining: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    ttl: Duration,
    /// On the monotonic clock.
    deadline: Duration,
    is_expiring: bool,
}

/// The deadlines of all leases.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    held: Mutex<HashMap<LeaseId, Held>>,
    /// One for all leases whose ids leave the same remainder; see [`LeaseTable::begin_change`].
    changing: [Mutex<()>; 32],
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<()> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        Ok(())
    } else {
        Err(Error::InvalidTtl { ttl })
    }
}

pub(crate) fn encode_ttl(ttl: Duration) -> Vec<u8> {
    let mut out = Vec::new();
    // Rounded up: a lease may live longer than asked, never shorter.
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    put_varint(&mut out, u64::try_from(ms).unwrap_or(u64::MAX));
    out
}

pub(crate) fn decode_ttl(bytes: &[u8]) -> Option<Duration> {
    let mut reader = Reader::new(bytes);
    let ms = reader.varint()?;
    reader.is_empty().then(|| Duration::from_millis(ms))
}

/// What leases had left when the leader of a cluster told it last.
fn load_remaining(engine: &Engine) -> Result<HashMap<LeaseId, Duration>> {
    let prefix = trees::leases_remaining_prefix();
    let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    let lower = Bound::Included(prefix.to_vec());
    let at = engine.visible();
    let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
    let mut remaining = HashMap::new();
    while scan.advance()? {
        let invalid = |reason| Error::InvalidRecord {
            what: "lease",
            key: show_key(scan.key()),
            reason,
        };
        let id = scan.key()[1..].try_into().map(i64::from_be_bytes);
        let id = id.map_err(|_| invalid("its key is not 9 bytes"))?;
        let left = decode_ttl(scan.bytes()).ok_or_else(|| invalid("its rest is damaged"))?;
        remaining.insert(id, left);
    }
    Ok(remaining)
}

impl LeaseTable {
    /// Reads every lease; each begins its TTL now.
    pub(crate) fn load(engine: &Engine, clock: &dyn Clock) -> Result<LeaseTable> {
        let prefix = trees::leases_prefix();
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let at = engine.visible();
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        let now = clock.monotonic();
        let remaining = load_remaining(engine)?;
        let mut held = HashMap::new();
        while scan.advance()? {
            let invalid = |reason| Error::InvalidRecord {
                what: "lease",
                key: show_key(scan.key()),
                reason,
            };
            let id = scan.key()[1..].try_into().map(i64::from_be_bytes);
            let id = id.map_err(|_| invalid("its key is not 9 bytes"))?;
            if id == 0 {
                return Err(invalid("its id is none that is given"));
            }
            let ttl = decode_ttl(scan.bytes()).ok_or_else(|| invalid("its TTL is damaged"))?;
            let left = remaining.get(&id).copied().unwrap_or(ttl);
            held.insert(
                id,
                Held {
                    ttl,
                    deadline: now + left.min(ttl),
                    is_expiring: false,
                },
            );
        }
        Ok(LeaseTable {
            held: Mutex::new(held),
            ..LeaseTable::default()
        })
    }

    /// Reads every lease anew; each begins its time now.
    pub(crate) fn reload(&self, engine: &Engine, clock: &dyn Clock) -> Result<()> {
        let read = LeaseTable::load(engine, clock)?;
        *self.held.lock() = std::mem::take(&mut *read.held.lock());
        Ok(())
    }

    /// Gives every lease more time.
    pub(crate) fn extend(&self, by: Duration) {
        for lease in self.held.lock().values_mut() {
            lease.deadline += by;
        }
    }

    /// Held from before a lease's record is written or deleted until the table says so too.
    pub(crate) fn begin_change(&self, id: LeaseId) -> MutexGuard<'_, ()> {
        self.changing[(id as u64 % self.changing.len() as u64) as usize].lock()
    }

    pub(crate) fn insert(&self, id: LeaseId, ttl: Duration, now: Duration) {
        self.held.lock().insert(
            id,
            Held {
                ttl,
                deadline: now + ttl,
                is_expiring: false,
            },
        );
    }

    pub(crate) fn remove(&self, id: LeaseId) {
        self.held.lock().remove(&id);
    }

    pub(crate) fn contains(&self, id: LeaseId) -> bool {
        self.held.lock().contains_key(&id)
    }

    /// Whether its time was found to be over.
    pub(crate) fn is_expiring(&self, id: LeaseId) -> bool {
        self.held
            .lock()
            .get(&id)
            .is_some_and(|lease| lease.is_expiring)
    }

    /// Begins the TTL anew; returns it. `None` when there is no such lease (any more).
    pub(crate) fn keep_alive(&self, id: LeaseId, now: Duration) -> Option<Duration> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id).filter(|lease| !lease.is_expiring)?;
        lease.deadline = now + lease.ttl;
        Some(lease.ttl)
    }

    /// Marks the leases whose time is over; from now on they cannot be kept alive.
    pub(crate) fn take_expired(&self, now: Duration) -> Vec<LeaseId> {
        let mut held = self.held.lock();
        let mut expired = Vec::new();
        for (id, lease) in held.iter_mut() {
            if now >= lease.deadline {
                lease.is_expiring = true;
                expired.push(*id);
            }
        }
        expired.sort_unstable();
        expired
    }

    /// How long until the next lease expires.
    pub(crate) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let held = self.held.lock();
        held.values()
            .map(|lease| lease.deadline.saturating_sub(now))
            .min()
    }

    pub(crate) fn get(&self, id: LeaseId, now: Duration) -> Option<Lease> {
        self.held.lock().get(&id).map(|lease| Lease {
            id,
            ttl: lease.ttl,
            remaining: lease.deadline.saturating_sub(now),
        })
    }

    pub(crate) fn list(&self, now: Duration) -> Vec<Lease> {
        let held = self.held.lock();
        let mut leases: Vec<_> = held
            .iter()
            .map(|(id, lease)| Lease {
                id: *id,
                ttl: lease.ttl,
                remaining: lease.deadline.saturating_sub(now),
            })
            .collect();
        leases.sort_by_key(|lease| lease.id);
        leases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use crate::commit::{Action, Request, Write};
    use bowline_storage::SystemClock;

    #[test]
    fn a_lease_expires_at_its_deadline_and_not_before() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        table.insert(7, second * 10, second * 100);
        assert!(
            table
                .take_expired(second * 110 - Duration::from_nanos(1))
                .is_empty()
        );
        assert_eq!(table.keep_alive(7, second * 105), Some(second * 10));
        assert!(table.take_expired(second * 110).is_empty(), "kept alive");
        assert_eq!(table.take_expired(second * 115), [7]);
        assert_eq!(table.keep_alive(7, second * 115), None, "too late");
    }

    /// Such a record is never written; it was taken for a lease that nobody could revoke.
    #[test]
    fn an_id_that_is_never_given_is_damage() {
        for (id, is_given) in [(i64::MIN, true), (-1, true), (0, false), (1, true)] {
            let db = Db::in_memory().unwrap();
            db.commit(Request {
                writes: vec![Write {
                    tree: trees::SYSTEM,
                    key: trees::lease_key(id).to_vec(),
                    action: Action::PutRaw {
                        value: encode_ttl(TTL_MIN),
                    },
                }],
                ..Request::default()
            })
            .unwrap();
            match LeaseTable::load(&db.core().engine, &SystemClock::new()) {
                Ok(_) => assert!(is_given, "{id}"),
                Err(Error::InvalidRecord { what, .. }) => assert!(!is_given && what == "lease"),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn ttls_round_up_and_are_bounded() {
        assert_eq!(
            decode_ttl(&encode_ttl(Duration::from_micros(1))),
            Some(TTL_MIN)
        );
        assert_eq!(decode_ttl(&[]), None);
        assert!(check_ttl(Duration::ZERO).is_err());
        assert!(check_ttl(TTL_MAX + TTL_MIN).is_err());
        assert!(check_ttl(TTL_MAX).is_ok());
    }
}
