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
//! - In a cluster the leader tells what leases have left (`Command::LeaseRemaining`), for the leader
//!   that comes next. What is recorded of a lease is never less than what it has left. So a lease of
//!   which something is recorded, or about to be, is not renewed before the record is gone: until
//!   then [`LeaseTable::renew`] says that the renewal is not final.
//! - What is told of a lease, and its expiry, name the entry that granted it: they do nothing to
//!   another lease that was granted under the same id meanwhile.
//! - An entry names lease L exactly when the attachment record of (L, key) exists.
//! - A put with a lease commits only if the lease exists at commit.
//! - Grants and ends of one lease happen one after the other, each with its record and its place in
//!   the table of deadlines: a lease is in both or in neither.

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::sync::{Mutex, MutexGuard};
use bowline_storage::{Clock, Index};

use crate::error::{Error, Result, show_key};
use crate::trees;

/// The id of a lease; 0 means "none" (or, for a grant, "choose one").
pub type LeaseId = i64;

/// The shortest time to live.
const TTL_MIN: Duration = Duration::from_millis(1);
/// The longest time to live, etcd's.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// A lease as `DbReader::leases` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// The time to live it was granted.
    pub ttl: Duration,
    /// What is left of it.
    pub remaining: Duration,
}

/// A lease as it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub ttl: Duration,
    /// The entry of the log that granted it; 0 for one of a database that is not replicated.
    pub index: Index,
}

/// What became of a renewal of a lease that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Its time to live has begun anew.
    Renewed {
        /// Its time to live.
        ttl: Duration,
    },
    /// The same, but something is recorded of what the lease had left, or is about to be: its holder must
    /// not be told that it is renewed before the record is gone.
    Recorded,
    /// Its time was over, and it is about to be ended. Nothing is known before it has been: the entry of the
    /// log that ends it may be lost with its leader, and then the lease lives on.
    Ending,
}

/// The remaining time of a lease, as the leader of a cluster records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLeft {
    /// Its id.
    pub id: LeaseId,
    /// The entry that granted it, 0 if none did. Nothing is told of another lease of this id.
    pub granted: Index,
    /// What it has left. `None` when it was renewed: what was told before is forgotten.
    pub left: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    grant: Grant,
    /// On the monotonic clock.
    deadline: Duration,
    is_expiring: bool,
    /// What is recorded of what it has left.
    recorded: Option<Duration>,
    /// Whether an entry that records it is on its way.
    is_telling: bool,
    /// Whether somebody waits for the record to go.
    is_awaited: bool,
}

impl Held {
    fn new(grant: Grant, deadline: Duration) -> Held {
        Held {
            grant,
            deadline,
            is_expiring: false,
            recorded: None,
            is_telling: false,
            is_awaited: false,
        }
    }

    fn is_recorded(&self) -> bool {
        self.recorded.is_some() || self.is_telling
    }
}

/// The deadlines of all leases.
#[derive(Debug, Default)]
pub struct LeaseTable {
    held: Mutex<HashMap<LeaseId, Held>>,
    /// One for all leases whose ids leave the same remainder; see [`LeaseTable::begin_change`].
    changing: [Mutex<()>; 32],
}

pub fn check_ttl(ttl: Duration) -> Result<()> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        Ok(())
    } else {
        Err(Error::InvalidTtl { ttl })
    }
}

pub fn encode_ttl(ttl: Duration) -> Vec<u8> {
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

/// The record of a lease: its TTL, and the entry that granted it if there is one.
pub fn encode_grant(grant: Grant) -> Vec<u8> {
    let mut out = encode_ttl(grant.ttl);
    if grant.index > 0 {
        put_varint(&mut out, grant.index);
    }
    out
}

pub fn decode_grant(bytes: &[u8]) -> Option<Grant> {
    let mut reader = Reader::new(bytes);
    let ttl = Duration::from_millis(reader.varint()?);
    let index = match reader.is_empty() {
        true => 0,
        // One that is 0 is not written.
        false => reader.varint().filter(|index| *index > 0)?,
    };
    reader.is_empty().then_some(Grant { ttl, index })
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
    pub fn load(engine: &Engine, clock: &dyn Clock) -> Result<LeaseTable> {
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
            let grant = decode_grant(scan.bytes()).ok_or_else(|| invalid("its TTL is damaged"))?;
            let recorded = remaining.get(&id).copied();
            let left = recorded.unwrap_or(grant.ttl).min(grant.ttl);
            let lease = Held {
                recorded,
                ..Held::new(grant, now + left)
            };
            held.insert(id, lease);
        }
        Ok(LeaseTable {
            held: Mutex::new(held),
            ..LeaseTable::default()
        })
    }

    /// Reads every lease anew; each begins its time now.
    pub fn reload(&self, engine: &Engine, clock: &dyn Clock) -> Result<()> {
        // Held meanwhile: a renewal between the two would be forgotten.
        let mut held = self.held.lock();
        let read = LeaseTable::load(engine, clock)?;
        *held = std::mem::take(&mut *read.held.lock());
        Ok(())
    }

    /// Gives every lease more time.
    pub fn extend(&self, by: Duration) {
        for lease in self.held.lock().values_mut() {
            lease.deadline += by;
        }
    }

    /// Held from before a lease's record is written or deleted until the table says so too.
    pub fn begin_change(&self, id: LeaseId) -> MutexGuard<'_, ()> {
        self.changing[(id as u64 % self.changing.len() as u64) as usize].lock()
    }

    pub fn insert(&self, id: LeaseId, grant: Grant, now: Duration) {
        let lease = Held::new(grant, now + grant.ttl);
        self.held.lock().insert(id, lease);
    }

    pub fn remove(&self, id: LeaseId) {
        self.held.lock().remove(&id);
    }

    pub fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }

    pub fn contains(&self, id: LeaseId) -> bool {
        self.held.lock().contains_key(&id)
    }

    /// Whether its time was found to be over.
    pub fn is_expiring(&self, id: LeaseId) -> bool {
        self.held
            .lock()
            .get(&id)
            .is_some_and(|lease| lease.is_expiring)
    }

    /// Begins the TTL anew; returns it. `None` when there is no such lease (any more).
    pub fn keep_alive(&self, id: LeaseId, now: Duration) -> Option<Duration> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id).filter(|lease| !lease.is_expiring)?;
        lease.deadline = now + lease.grant.ttl;
        Some(lease.grant.ttl)
    }

    /// [`LeaseTable::keep_alive`] of a leader. What is recorded is to go: whoever carries the leader's
    /// news to the log finds the lease in [`LeaseTable::awaited`].
    pub fn renew(&self, id: LeaseId, now: Duration) -> Option<Renewal> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id)?;
        if lease.is_expiring {
            return Some(Renewal::Ending);
        }
        // First the deadline: whatever is told from now on is of the renewed lease.
        lease.deadline = now + lease.grant.ttl;
        lease.is_awaited = lease.is_recorded();
        Some(match lease.is_awaited {
            true => Renewal::Recorded,
            false => Renewal::Renewed {
                ttl: lease.grant.ttl,
            },
        })
    }

    /// Up to `most` of the leases whose record is to go and is not still on its way.
    pub fn awaited(&self, most: usize) -> Vec<LeaseLeft> {
        let held = self.held.lock();
        let is_due = |lease: &Held| lease.is_awaited && lease.recorded.is_some();
        let due = held
            .iter()
            .filter(|(_, lease)| is_due(lease) && !lease.is_telling);
        let left = due.map(|(id, lease)| LeaseLeft {
            id: *id,
            granted: lease.grant.index,
            left: None,
        });
        left.take(most).collect()
    }

    /// Up to `most` of the leases of which too much is recorded, or would be taken without a record,
    /// by `interval` or more. From now on their renewals are not final, until [`LeaseTable::end_telling`].
    pub fn begin_telling(&self, now: Duration, interval: Duration, most: usize) -> Vec<LeaseLeft> {
        let mut held = self.held.lock();
        let mut told = Vec::new();
        for (id, lease) in held.iter_mut() {
            if told.len() == most {
                break;
            }
            let left = lease.deadline.saturating_sub(now);
            let believed = lease.recorded.unwrap_or(lease.grant.ttl);
            let is_due = lease.grant.ttl > interval && left + interval <= believed;
            // One that is over is ended, which says more.
            if is_due && !lease.is_telling && !left.is_zero() {
                lease.is_telling = true;
                told.push(LeaseLeft {
                    id: *id,
                    granted: lease.grant.index,
                    left: Some(left),
                });
            }
        }
        told
    }

    /// The entry that tells of leases is applied, or will never be in any log.
    pub fn end_telling(&self, told: &[LeaseLeft]) {
        let mut held = self.held.lock();
        for one in told {
            if let Some(lease) = held.get_mut(&one.id) {
                lease.is_telling = false;
            }
        }
    }

    /// What is recorded of what a lease has left.
    pub fn recorded(&self, id: LeaseId) -> Option<Duration> {
        self.held.lock().get(&id)?.recorded
    }

    /// What is recorded of a lease has changed.
    pub fn set_recorded(&self, id: LeaseId, left: Option<Duration>) {
        if let Some(lease) = self.held.lock().get_mut(&id) {
            lease.recorded = left;
            // Who waited for it to go renews once more; who has gone meanwhile wants nothing more cleared.
            lease.is_awaited &= left.is_some();
        }
    }

    /// Marks the leases whose time is over; from now on they cannot be kept alive. Each comes with
    /// the entry that granted it.
    pub fn take_expired(&self, now: Duration) -> Vec<(LeaseId, Index)> {
        let mut held = self.held.lock();
        let mut expired = Vec::new();
        for (id, lease) in held.iter_mut() {
            if now >= lease.deadline {
                lease.is_expiring = true;
                expired.push((*id, lease.grant.index));
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

    pub fn get(&self, id: LeaseId, now: Duration) -> Option<Lease> {
        self.held.lock().get(&id).map(|lease| Lease {
            id,
            ttl: lease.grant.ttl,
            remaining: lease.deadline.saturating_sub(now),
        })
    }

    pub fn list(&self, now: Duration) -> Vec<Lease> {
        let held = self.held.lock();
        let mut leases: Vec<_> = held
            .iter()
            .map(|(id, lease)| Lease {
                id: *id,
                ttl: lease.grant.ttl,
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

    fn granted(ttl: Duration) -> Grant {
        Grant { ttl, index: 1 }
    }

    #[test]
    fn a_lease_expires_at_its_deadline_and_not_before() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        table.insert(7, granted(second * 10), second * 100);
        assert!(
            table
                .take_expired(second * 110 - Duration::from_nanos(1))
                .is_empty()
        );
        assert_eq!(table.keep_alive(7, second * 105), Some(second * 10));
        assert!(table.take_expired(second * 110).is_empty(), "kept alive");
        assert_eq!(table.take_expired(second * 115), [(7, 1)]);
        assert_eq!(table.keep_alive(7, second * 115), None, "too late");
        assert_eq!(table.renew(7, second * 115), Some(Renewal::Ending));
        assert_eq!(table.renew(8, second * 115), None);
    }

    #[test]
    fn what_is_left_is_told_when_it_is_an_interval_less_than_believed() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let due = |now: u32| table.begin_telling(second * now, second * 60, 10);
        table.insert(1, granted(second * 60), Duration::ZERO);
        table.insert(2, granted(second * 600), Duration::ZERO);
        assert!(due(59).is_empty());
        let told = due(60);
        let left = |id, seconds: u32| LeaseLeft {
            id,
            granted: 1,
            left: Some(second * seconds),
        };
        assert_eq!(
            told,
            [left(2, 540)],
            "not one that lives no longer than that"
        );
        assert!(due(200).is_empty(), "it is on its way");
        table.set_recorded(2, told[0].left);
        table.end_telling(&told);
        assert_eq!(due(199), [left(2, 401)]);
    }

    /// A record that is on its way counts: what was told before a renewal comes into the log after it.
    #[test]
    fn a_renewal_is_final_only_when_nothing_is_recorded_or_about_to_be() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let is_final = |now: u32| table.renew(7, second * now) != Some(Renewal::Recorded);
        table.insert(7, granted(second * 100), Duration::ZERO);
        assert!(is_final(10));
        let told = table.begin_telling(second * 70, second * 60, 10);
        assert_eq!(told.len(), 1);
        assert!(!is_final(71), "it is on its way");
        assert!(
            table.awaited(10).is_empty(),
            "nothing is there to clear yet"
        );
        table.set_recorded(7, told[0].left);
        table.end_telling(&told);
        assert!(!is_final(72), "it is recorded");
        let cleared = table.awaited(10);
        assert_eq!((cleared[0].id, cleared[0].left), (7, None));
        table.set_recorded(7, None);
        assert!(table.awaited(10).is_empty(), "once for each record");
        assert!(is_final(72));
        // And one that comes to nothing.
        let told = table.begin_telling(second * 150, second * 60, 10);
        assert!(!is_final(151));
        table.end_telling(&told);
        assert!(is_final(152));
    }

    /// Its holder went before it was answered, and every later record was cleared as soon as it was there, then
    /// written again: two entries of the log for each look at the leases, until the lease ended.
    #[test]
    fn a_renewal_that_nobody_waits_for_any_more_clears_one_record() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let tell = |now: u32| {
            let told = table.begin_telling(second * now, second * 60, 10);
            assert_eq!(told.len(), 1, "at {now} s");
            table.set_recorded(7, told[0].left);
            table.end_telling(&told);
        };
        table.insert(7, granted(second * 600), Duration::ZERO);
        tell(60);
        // The one renewal of whoever then goes.
        assert_eq!(table.renew(7, second * 61), Some(Renewal::Recorded));
        assert_eq!(table.awaited(10).len(), 1);
        table.set_recorded(7, None);
        tell(121);
        assert!(table.awaited(10).is_empty(), "nobody has asked for that");
    }

    #[test]
    fn ttls_round_up_and_are_bounded() {
        assert_eq!(
            decode_ttl(&encode_ttl(Duration::from_micros(1))),
            Some(TTL_MIN)
        );
        assert_eq!(decode_ttl(&[]), None);
        for index in [0, 1, Index::MAX] {
            let grant = Grant {
                ttl: TTL_MAX,
                index,
            };
            assert_eq!(decode_grant(&encode_grant(grant)), Some(grant));
        }
        assert_eq!(decode_grant(&[1, 0]), None, "a second encoding of no entry");
        assert!(check_ttl(Duration::ZERO).is_err());
        assert!(check_ttl(TTL_MAX + TTL_MIN).is_err());
        assert!(check_ttl(TTL_MAX).is_ok());
    }
}
