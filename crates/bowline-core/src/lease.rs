//! Leases: keys that are deleted when their owner stops renewing.
//!
//! A lease has an id, a granted time to live (TTL) and attached keys. A grant is a record in the system
//! tree. `put_with_lease` attaches a key, and writes an attachment record in the same transaction. When a
//! lease expires, one transaction deletes its keys and the lease.
//!
//! Invariants:
//!
//! - While a database is open, a lease never expires before its TTL has passed on the monotonic clock since
//!   its grant or last keep-alive: the deadlines are in memory.
//! - The library's record of a lease also has a deadline on the wall clock, which is never earlier than the
//!   one in memory. An opened database goes on from it ([`LeaseTable::resume`]), so the time during which the
//!   database was closed counts. The record of a grant has the exact deadline. A keep-alive that passes the
//!   recorded deadline writes one that is `slack` later than needed, so few keep-alives write, and after a
//!   crash a lease lives longer by at most that.
//! - In a cluster the leader records remaining times (`Command::LeaseRemaining`) for the next leader. A
//!   recorded time is never less than the true remaining time. So while a lease has such a record, or one
//!   is on its way, its renewal is not final until the record is deleted ([`LeaseTable::renew`]).
//! - Records of remaining time and expiries name the log entry of the grant: they do not affect a later
//!   lease with the same id.
//! - An entry names lease L exactly when the attachment record of (L, key) exists.
//! - A put with a lease commits only if the lease exists at the commit.
//! - Grants and ends of one lease are serialized, and each changes the record and the table of deadlines
//!   together: a lease is in both or in neither.

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::sync::{Mutex, MutexGuard};
use bowline_storage::{Clock, Index};

use crate::error::{Error, Result, show_key};
use crate::trees;

pub use bowline_types::LeaseId;

/// The reason why a key names no lease.
const NO_ID: &str = "its key is not a tag and the eight bytes of an id";

/// The shortest time to live.
const TTL_MIN: Duration = Duration::from_millis(1);
/// The longest time to live, etcd's.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// A lease as `DbReader::leases` lists it.
///
/// ```
/// use bowline::Lease;
/// # let db = bowline::Db::in_memory()?;
/// let ttl = std::time::Duration::from_secs(10);
/// let id = db.grant_lease(ttl)?;
/// for lease in db.leases() {
///     println!("lease {} ends in {:?} of {:?}", lease.id, lease.remaining, lease.ttl);
/// }
/// let lease: Lease = db.lease(id).expect("it is alive");
/// assert_eq!((lease.id, lease.ttl), (id, ttl));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// The time to live it was granted.
    pub ttl: Duration,
    /// The remaining time.
    pub remaining: Duration,
}

/// A grant of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub ttl: Duration,
    /// What the record has beside the TTL.
    pub origin: Origin,
}

/// The party that measures the time of a lease, and what the lease's record holds for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A cluster: the index of the log entry that granted it, from 1.
    Entry(Index),
    /// The library: milliseconds since the Unix epoch, by the wall clock, before which the lease does not
    /// expire.
    Deadline(u64),
    /// The library before it recorded deadlines.
    Unknown,
}

impl Grant {
    /// A grant by the library at this time of the wall clock.
    pub fn starting_at(wall_ms: u64, ttl: Duration) -> Grant {
        Grant {
            ttl,
            origin: Origin::Deadline(deadline_of(wall_ms, ttl)),
        }
    }

    /// The index of the log entry that granted it; 0 in a database that is not replicated.
    pub fn index(&self) -> Index {
        match self.origin {
            Origin::Entry(index) => index,
            Origin::Deadline(_) | Origin::Unknown => 0,
        }
    }
}

/// The time of the wall clock at which a duration that starts now is over. A millisecond more makes up for the
/// part of one that the clock does not show.
fn deadline_of(wall_ms: u64, left: Duration) -> u64 {
    wall_ms.saturating_add(ms_of(left)).saturating_add(1)
}

/// By how much the recorded deadline of a lease may be later than the one in memory: its TTL, or ten seconds
/// if those are more.
fn slack(ttl: Duration) -> Duration {
    const LEAST: Duration = Duration::from_secs(10);
    ttl.max(LEAST)
}

/// A keep-alive in the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptAlive {
    /// The time to live was restarted; the recorded deadline is late enough.
    Restarted,
    /// First this record must be written: then [`LeaseTable::restart`].
    Unrecorded(Grant),
}

/// The result of renewing an existing lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The time to live was restarted.
    Renewed {
        /// Its time to live.
        ttl: Duration,
    },
    /// Restarted, but a record of the remaining time exists or is on its way: the holder must not get
    /// an answer before that record is deleted.
    Recorded,
    /// The lease expired and is being ended. The outcome is open: the log entry that ends it may be lost
    /// with its leader, and then the lease lives on.
    Ending,
}

/// The remaining time of a lease, as a cluster's leader records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLeft {
    /// Its id.
    pub id: LeaseId,
    /// The index of the entry that granted it, or 0. Identifies the lease among those with this id.
    pub granted: Index,
    /// The remaining time. `None` after a renewal: deletes the record.
    pub left: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    grant: Grant,
    /// On the monotonic clock.
    deadline: Duration,
    /// When the TTL was restarted last, on that clock.
    restarted: Duration,
    is_expiring: bool,
    /// The recorded remaining time.
    recorded: Option<Duration>,
    /// Whether an entry that records the remaining time is on its way.
    is_telling: bool,
    /// Whether a renewal waits for the record to be deleted.
    is_awaited: bool,
}

impl Held {
    fn new(grant: Grant, deadline: Duration) -> Held {
        Held {
            grant,
            deadline,
            restarted: Duration::ZERO,
            is_expiring: false,
            recorded: None,
            is_telling: false,
            is_awaited: false,
        }
    }

    /// Restarts the TTL from `now`. Another call may have read the clock later and come here before.
    fn restart(&mut self, now: Duration) {
        self.restarted = self.restarted.max(now);
        self.deadline = self.restarted + self.grant.ttl;
    }

    fn is_recorded(&self) -> bool {
        self.recorded.is_some() || self.is_telling
    }
}

/// The deadlines of all leases.
#[derive(Debug, Default)]
pub struct LeaseTable {
    held: Mutex<HashMap<LeaseId, Held>>,
    /// Locks by the remainder of the lease id; see [`LeaseTable::begin_change`].
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
    put_varint(&mut out, ms_of(ttl));
    out
}

/// Rounded up: a lease may live longer than requested, never shorter.
fn ms_of(ttl: Duration) -> u64 {
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

pub(crate) fn decode_ttl(bytes: &[u8]) -> Option<Duration> {
    let mut reader = Reader::new(bytes);
    let ms = reader.varint()?;
    reader.is_empty().then(|| Duration::from_millis(ms))
}

/// Encodes the record of a lease: its TTL, and the index of the granting entry, or 0 and the deadline.
pub(crate) fn encode_grant(grant: Grant) -> Vec<u8> {
    let mut out = encode_ttl(grant.ttl);
    match grant.origin {
        Origin::Entry(index) => put_varint(&mut out, index),
        Origin::Deadline(wall_ms) => {
            put_varint(&mut out, 0);
            put_varint(&mut out, wall_ms);
        }
        Origin::Unknown => {}
    }
    out
}

pub fn decode_grant(bytes: &[u8]) -> Option<Grant> {
    let mut reader = Reader::new(bytes);
    let ttl = Duration::from_millis(reader.varint()?);
    let origin = match reader.is_empty() {
        true => Origin::Unknown,
        false => match reader.varint()? {
            0 => Origin::Deadline(reader.varint()?),
            index => Origin::Entry(index),
        },
    };
    reader.is_empty().then_some(Grant { ttl, origin })
}

/// Loads the recorded remaining times.
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
        let id = trees::lease_of_key(scan.key()).ok_or_else(|| invalid(NO_ID))?;
        let left = decode_ttl(scan.bytes()).ok_or_else(|| invalid("its rest is damaged"))?;
        remaining.insert(id, left);
    }
    Ok(remaining)
}

impl LeaseTable {
    /// Loads every lease; each TTL starts now.
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
            let id = trees::lease_of_key(scan.key()).ok_or_else(|| invalid(NO_ID))?;
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

    /// Loads every lease again; each TTL starts now.
    pub fn reload(&self, engine: &Engine, clock: &dyn Clock) -> Result<()> {
        // Locked until replaced: a renewal in between would be lost.
        let mut held = self.held.lock();
        let read = LeaseTable::load(engine, clock)?;
        *held = std::mem::take(&mut *read.held.lock());
        Ok(())
    }

    /// Extends the deadline of every lease.
    pub fn extend(&self, by: Duration) {
        for lease in self.held.lock().values_mut() {
            lease.deadline += by;
        }
    }

    /// Locks a lease. Held from before its record is written or deleted until the table is updated.
    pub fn begin_change(&self, id: LeaseId) -> MutexGuard<'_, ()> {
        self.changing[(id.get() as u64 % self.changing.len() as u64) as usize].lock()
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

    /// Whether the lease was marked as expired.
    pub fn is_expiring(&self, id: LeaseId) -> bool {
        self.held
            .lock()
            .get(&id)
            .is_some_and(|lease| lease.is_expiring)
    }

    /// Goes on from the recorded deadlines. A lease without one starts its TTL now, and one that has
    /// more left than a record can promise starts with that: the wall clock was set back.
    pub fn resume(&self, now: Duration, wall_ms: u64) {
        for lease in self.held.lock().values_mut() {
            if let Origin::Deadline(deadline_ms) = lease.grant.origin {
                let left = Duration::from_millis(deadline_ms.saturating_sub(wall_ms));
                lease.deadline = now + left.min(lease.grant.ttl + slack(lease.grant.ttl));
            }
        }
    }

    /// Restarts the TTL in the library; returns it. `None` when the lease does not exist.
    pub fn keep_alive(
        &self,
        id: LeaseId,
        now: Duration,
        wall_ms: u64,
    ) -> Option<(Duration, KeptAlive)> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id).filter(|lease| !lease.is_expiring)?;
        let ttl = lease.grant.ttl;
        let needed = deadline_of(wall_ms, ttl);
        let is_recorded = matches!(lease.grant.origin, Origin::Deadline(at) if at >= needed);
        if !is_recorded {
            let later = Grant {
                ttl,
                origin: Origin::Deadline(deadline_of(wall_ms, ttl + slack(ttl))),
            };
            return Some((ttl, KeptAlive::Unrecorded(later)));
        }
        lease.restart(now);
        Some((ttl, KeptAlive::Restarted))
    }

    /// Restarts the TTL of a lease whose new record was written, from `now`. Whether it exists and has not
    /// expired meanwhile.
    pub fn restart(&self, id: LeaseId, grant: Grant, now: Duration) -> bool {
        let mut held = self.held.lock();
        let Some(lease) = held.get_mut(&id).filter(|lease| !lease.is_expiring) else {
            return false;
        };
        lease.grant = grant;
        lease.restart(now);
        true
    }

    /// [`LeaseTable::keep_alive`] on a cluster's leader. A record of the remaining time must be deleted:
    /// [`LeaseTable::awaited`] lists the lease until then.
    pub fn renew(&self, id: LeaseId, now: Duration) -> Option<Renewal> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id)?;
        if lease.is_expiring {
            return Some(Renewal::Ending);
        }
        // The deadline first: later records are of the renewed lease.
        lease.restart(now);
        lease.is_awaited = lease.is_recorded();
        Some(match lease.is_awaited {
            true => Renewal::Recorded,
            false => Renewal::Renewed {
                ttl: lease.grant.ttl,
            },
        })
    }

    /// Up to `most` leases whose record must be deleted and is not still on its way.
    pub fn awaited(&self, most: usize) -> Vec<LeaseLeft> {
        let held = self.held.lock();
        let is_due = |lease: &Held| lease.is_awaited && lease.recorded.is_some();
        let due = held
            .iter()
            .filter(|(_, lease)| is_due(lease) && !lease.is_telling);
        let left = due.map(|(id, lease)| LeaseLeft {
            id: *id,
            granted: lease.grant.index(),
            left: None,
        });
        left.take(most).collect()
    }

    /// Up to `most` leases whose recorded time (or, without a record, TTL) exceeds the remaining time by
    /// `interval` or more. Their renewals are not final until [`LeaseTable::end_telling`].
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
            // An expired lease is ended instead.
            if is_due && !lease.is_telling && !left.is_zero() {
                lease.is_telling = true;
                told.push(LeaseLeft {
                    id: *id,
                    granted: lease.grant.index(),
                    left: Some(left),
                });
            }
        }
        told
    }

    /// The entry that records remaining times is applied, or will never be in any log.
    pub fn end_telling(&self, told: &[LeaseLeft]) {
        let mut held = self.held.lock();
        for one in told {
            if let Some(lease) = held.get_mut(&one.id) {
                lease.is_telling = false;
            }
        }
    }

    /// The recorded remaining time of a lease.
    pub fn recorded(&self, id: LeaseId) -> Option<Duration> {
        self.held.lock().get(&id)?.recorded
    }

    /// Sets the recorded remaining time of a lease.
    pub fn set_recorded(&self, id: LeaseId, left: Option<Duration>) {
        if let Some(lease) = self.held.lock().get_mut(&id) {
            lease.recorded = left;
            // A waiting holder renews once more. If it is gone, no later record must be deleted.
            lease.is_awaited &= left.is_some();
        }
    }

    /// Marks the expired leases, which can no longer be kept alive. Returns them with the index of the
    /// entry that granted each.
    pub fn take_expired(&self, now: Duration) -> Vec<(LeaseId, Index)> {
        let mut held = self.held.lock();
        let mut expired = Vec::new();
        for (id, lease) in held.iter_mut() {
            if now >= lease.deadline {
                lease.is_expiring = true;
                expired.push((*id, lease.grant.index()));
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
    use bowline_testing::lease_id;

    use super::*;

    fn granted(ttl: Duration) -> Grant {
        Grant {
            ttl,
            origin: Origin::Entry(1),
        }
    }

    #[test]
    fn a_lease_expires_at_its_deadline_and_not_before() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        table.insert(lease_id(7), granted(second * 10), second * 100);
        assert!(
            table
                .take_expired(second * 110 - Duration::from_nanos(1))
                .is_empty()
        );
        assert_eq!(
            table.renew(lease_id(7), second * 105),
            Some(Renewal::Renewed { ttl: second * 10 })
        );
        assert!(table.take_expired(second * 110).is_empty(), "kept alive");
        assert_eq!(table.take_expired(second * 115), [(lease_id(7), 1)]);
        assert_eq!(
            table.keep_alive(lease_id(7), second * 115, 0),
            None,
            "too late"
        );
        assert_eq!(
            table.renew(lease_id(7), second * 115),
            Some(Renewal::Ending)
        );
        assert_eq!(table.renew(lease_id(8), second * 115), None);
    }

    /// A keep-alive writes a record only when the recorded deadline would be too early, and then one that is late
    /// enough for some time.
    #[test]
    fn a_recorded_deadline_is_never_earlier_than_needed() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        for ttl in [Duration::from_millis(1), second * 3, second * 60] {
            let id = lease_id(7);
            let grant = Grant::starting_at(0, ttl);
            let mut recorded_ms = ttl.as_millis() as u64 + 1;
            assert_eq!(grant.origin, Origin::Deadline(recorded_ms));
            table.insert(id, grant, Duration::ZERO);
            let mut records = 0;
            let step = ttl / 2;
            for at in (1..200).map(|count| step * count) {
                let wall_ms = at.as_millis() as u64;
                match table.keep_alive(id, at, wall_ms) {
                    Some((_, KeptAlive::Restarted)) => {}
                    Some((_, KeptAlive::Unrecorded(grant))) => {
                        records += 1;
                        let Origin::Deadline(later_ms) = grant.origin else {
                            panic!("{grant:?}");
                        };
                        let most = at + ttl + slack(ttl);
                        assert!(later_ms <= most.as_millis() as u64 + 1, "{later_ms}");
                        recorded_ms = later_ms;
                        assert!(table.restart(id, grant, at));
                    }
                    None => panic!("it has not expired"),
                }
                let needed = at + ttl;
                assert!(recorded_ms >= needed.as_millis() as u64, "{recorded_ms}");
                assert_eq!(table.get(id, at).unwrap().remaining, ttl);
            }
            let time = step * 199;
            let most = time.as_millis() / slack(ttl).as_millis() + 1;
            assert!((1..=most).contains(&records), "{records} of {most}");
        }
    }

    /// Of two keep-alives at once, the one that had read the clock first and came last took back what the other had been
    /// told: the lease expired before its time.
    #[test]
    fn an_older_keep_alive_takes_nothing_back() {
        type Renew = fn(&LeaseTable, Duration);
        let second = Duration::from_secs(1);
        let id = lease_id(7);
        let recorded = Grant::starting_at(1_000_000, second * 10);
        let renewals: [Renew; 3] = [
            |table, now| {
                let kept = table.keep_alive(lease_id(7), now, 0);
                assert!(matches!(kept, Some((_, KeptAlive::Restarted))), "{kept:?}");
            },
            |table, now| {
                let later = Grant::starting_at(2_000_000, Duration::from_secs(10));
                assert!(table.restart(lease_id(7), later, now));
            },
            |table, now| {
                let renewed = table.renew(lease_id(7), now);
                assert!(matches!(renewed, Some(Renewal::Renewed { .. })));
            },
        ];
        for renew in renewals {
            let table = LeaseTable::default();
            table.insert(id, recorded, Duration::ZERO);
            renew(&table, second * 5);
            renew(&table, second * 4);
            assert!(table.take_expired(second * 14).is_empty());
            assert_eq!(table.take_expired(second * 15), [(id, 0)]);
        }
    }

    #[test]
    fn what_is_left_is_told_when_it_is_an_interval_less_than_believed() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let due = |now: u32| table.begin_telling(second * now, second * 60, 10);
        table.insert(lease_id(1), granted(second * 60), Duration::ZERO);
        table.insert(lease_id(2), granted(second * 600), Duration::ZERO);
        assert!(due(59).is_empty());
        let told = due(60);
        let left = |id, seconds: u32| LeaseLeft {
            id,
            granted: 1,
            left: Some(second * seconds),
        };
        assert_eq!(
            told,
            [left(lease_id(2), 540)],
            "not one that lives no longer than that"
        );
        assert!(due(200).is_empty(), "it is on its way");
        table.set_recorded(lease_id(2), told[0].left);
        table.end_telling(&told);
        assert_eq!(due(199), [left(lease_id(2), 401)]);
    }

    /// A record on its way counts: one from before a renewal may enter the log after it.
    #[test]
    fn a_renewal_is_final_only_when_nothing_is_recorded_or_about_to_be() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let is_final = |now: u32| table.renew(lease_id(7), second * now) != Some(Renewal::Recorded);
        table.insert(lease_id(7), granted(second * 100), Duration::ZERO);
        assert!(is_final(10));
        let told = table.begin_telling(second * 70, second * 60, 10);
        assert_eq!(told.len(), 1);
        assert!(!is_final(71), "it is on its way");
        assert!(
            table.awaited(10).is_empty(),
            "nothing is there to clear yet"
        );
        table.set_recorded(lease_id(7), told[0].left);
        table.end_telling(&told);
        assert!(!is_final(72), "it is recorded");
        let cleared = table.awaited(10);
        assert_eq!((cleared[0].id, cleared[0].left), (lease_id(7), None));
        table.set_recorded(lease_id(7), None);
        assert!(table.awaited(10).is_empty(), "once for each record");
        assert!(is_final(72));
        // A record that never enters the log.
        let told = table.begin_telling(second * 150, second * 60, 10);
        assert!(!is_final(151));
        table.end_telling(&told);
        assert!(is_final(152));
    }

    /// The holder left before the answer to its renewal. Every later record was then deleted at once and
    /// written again: two log entries per check of the leases, until the lease ended.
    #[test]
    fn a_renewal_that_nobody_waits_for_any_more_clears_one_record() {
        let table = LeaseTable::default();
        let second = Duration::from_secs(1);
        let tell = |now: u32| {
            let told = table.begin_telling(second * now, second * 60, 10);
            assert_eq!(told.len(), 1, "at {now} s");
            table.set_recorded(lease_id(7), told[0].left);
            table.end_telling(&told);
        };
        table.insert(lease_id(7), granted(second * 600), Duration::ZERO);
        tell(60);
        // The only renewal of a holder that then leaves.
        assert_eq!(
            table.renew(lease_id(7), second * 61),
            Some(Renewal::Recorded)
        );
        assert_eq!(table.awaited(10).len(), 1);
        table.set_recorded(lease_id(7), None);
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
        for origin in [
            Origin::Unknown,
            Origin::Entry(1),
            Origin::Entry(Index::MAX),
            Origin::Deadline(0),
            Origin::Deadline(u64::MAX),
        ] {
            let grant = Grant {
                ttl: TTL_MAX,
                origin,
            };
            assert_eq!(decode_grant(&encode_grant(grant)), Some(grant));
        }
        assert_eq!(decode_grant(&[1, 0]), None, "no entry, and no deadline");
        assert_eq!(decode_grant(&[1, 0, 1, 1]), None, "more than a deadline");
        assert!(check_ttl(Duration::ZERO).is_err());
        assert!(check_ttl(TTL_MAX + TTL_MIN).is_err());
        assert!(check_ttl(TTL_MAX).is_ok());
    }
}
