//! Quotas: limits of the keys and bytes below a prefix, and counters of what is there.
//!
//! A quota and its counters are one record of the system tree, which the command that changes a key below the prefix
//! writes, too. So both are of one commit, whatever is lost, and no put looks at more than its own key.
//!
//! ```text
//! quota   q + prefix → | version 1 u8 | flags u8: 1 limits keys, 2 limits bytes | most keys, most bytes: varint each,
//!                        if limited | keys varint | bytes varint |
//! ```
//!
//! A key counts with its own length and that of its newest value. Quotas nest: a key counts for each prefix of it that
//! has a quota. They are found by one binary search and a walk to the enclosing ones:
//!
//! ```text
//! sorted      ""   "a/"   "a/b/"   "a/c/"   "d"
//! encloses     └────┴───────┴────────┘      │         "a/c" is behind "a/b/", which does not begin it;
//!              └─────────────────────────────┘         "a/", which encloses "a/b/", does
//! ```
//!
//! Invariants:
//!
//! - The counters of a quota are those of a scan over its prefix at the same revision ([`count`]).
//! - Every quota whose prefix begins a key is the last one that is not behind the key, or encloses it.

use std::collections::BTreeMap;
use std::ops::Bound;

use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::sync::atomic::{AtomicU64, Ordering};
use bowline_types::{Quota, QuotaLimits, QuotaUse, Revision};

use crate::error::{Error, Result, show_key};
use crate::kv::record;
use crate::trees;

const VERSION: u8 = 1;
const LIMITS_KEYS: u8 = 1;
const LIMITS_BYTES: u8 = 2;

/// The longest prefix, in bytes.
pub const PREFIX_BYTES_MAX: usize = 1 << 10;

/// The most quotas.
pub const QUOTAS_MAX: usize = 1_000;

/// Encodes the record of a quota.
pub fn encode(limits: QuotaLimits, used: QuotaUse) -> Vec<u8> {
    let mut flags = 0;
    if limits.keys.is_some() {
        flags |= LIMITS_KEYS;
    }
    if limits.bytes.is_some() {
        flags |= LIMITS_BYTES;
    }
    let mut out = vec![VERSION, flags];
    for number in [limits.keys, limits.bytes].into_iter().flatten() {
        put_varint(&mut out, number);
    }
    put_varint(&mut out, used.keys);
    put_varint(&mut out, used.bytes);
    out
}

/// Decodes the record of a quota.
pub fn decode(record: &[u8]) -> Option<(QuotaLimits, QuotaUse)> {
    let mut reader = Reader::new(record);
    if reader.u8()? != VERSION {
        return None;
    }
    let flags = reader.u8()?;
    if flags == 0 || flags & !(LIMITS_KEYS | LIMITS_BYTES) != 0 {
        return None;
    }
    let mut limit = |flag: u8| match flags & flag {
        0 => Some(None),
        _ => reader.varint().map(Some),
    };
    let limits = QuotaLimits {
        keys: limit(LIMITS_KEYS)?,
        bytes: limit(LIMITS_BYTES)?,
    };
    let used = QuotaUse {
        keys: reader.varint()?,
        bytes: reader.varint()?,
    };
    reader.is_empty().then_some((limits, used))
}

/// A change of what the keys below a prefix take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UseChange {
    pub keys: i64,
    pub bytes: i64,
}

impl UseChange {
    /// Adds the change of one key, of whose value the length is given before and after; `None` while it is absent.
    pub fn add(&mut self, key_bytes: usize, before: Option<u64>, after: Option<u64>) {
        let size = |value: Option<u64>| value.map_or(0, |bytes| (bytes + key_bytes as u64) as i64);
        self.keys += i64::from(after.is_some()) - i64::from(before.is_some());
        self.bytes += size(after) - size(before);
    }

    /// What is taken afterwards.
    #[must_use]
    pub fn after(self, used: QuotaUse) -> QuotaUse {
        QuotaUse {
            keys: used.keys.saturating_add_signed(self.keys),
            bytes: used.bytes.saturating_add_signed(self.bytes),
        }
    }
}

/// A quota with its counters, which the applier sets and readers load.
#[derive(Debug)]
pub struct Counted {
    prefix: Vec<u8>,
    limits: QuotaLimits,
    keys: AtomicU64,
    bytes: AtomicU64,
    /// The place of the nearest quota whose prefix begins this one.
    within: Option<usize>,
}

impl Counted {
    /// The prefix.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Its limits.
    pub fn limits(&self) -> QuotaLimits {
        self.limits
    }

    /// What its keys take.
    pub fn used(&self) -> QuotaUse {
        QuotaUse {
            keys: self.keys.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Sets what its keys take.
    pub fn set_used(&self, used: QuotaUse) {
        self.keys.store(used.keys, Ordering::Relaxed);
        self.bytes.store(used.bytes, Ordering::Relaxed);
    }
}

/// The quotas of a database, in the order of their prefixes.
#[derive(Debug, Default)]
pub struct Quotas {
    sorted: Vec<Counted>,
}

impl Quotas {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The one at a place.
    pub fn at(&self, place: usize) -> Option<&Counted> {
        self.sorted.get(place)
    }

    /// The one of a prefix.
    pub fn of(&self, prefix: &[u8]) -> Option<&Counted> {
        let place = self
            .sorted
            .binary_search_by(|quota| quota.prefix[..].cmp(prefix));
        place.ok().and_then(|place| self.sorted.get(place))
    }

    /// All of them.
    pub fn all(&self) -> Vec<Quota> {
        let quota = |quota: &Counted| Quota {
            prefix: quota.prefix.clone(),
            limits: quota.limits,
            used: quota.used(),
        };
        self.sorted.iter().map(quota).collect()
    }

    /// Calls `each` with the place of each quota that a key counts for.
    #[inline]
    pub fn for_each_of(&self, key: &[u8], mut each: impl FnMut(usize)) {
        let behind = self
            .sorted
            .partition_point(|quota| quota.prefix[..] <= *key);
        let mut place = behind.checked_sub(1);
        while let Some(at) = place
            && let Some(quota) = self.sorted.get(at)
        {
            if key.starts_with(&quota.prefix) {
                each(at);
            }
            place = quota.within;
        }
    }

    /// These with one that is added or replaced; with `None`, removed.
    #[must_use]
    pub fn with(&self, prefix: &[u8], quota: Option<(QuotaLimits, QuotaUse)>) -> Quotas {
        let all = self.all().into_iter();
        let mut all: BTreeMap<Vec<u8>, _> = all
            .map(|quota| (quota.prefix, (quota.limits, quota.used)))
            .collect();
        match quota {
            Some(quota) => drop(all.insert(prefix.to_vec(), quota)),
            None => drop(all.remove(prefix)),
        }
        all.into_iter().collect()
    }

    /// Loads the quotas of a database at a revision.
    pub fn load(engine: &Engine, at: Revision) -> Result<Quotas> {
        let prefix = trees::quotas_prefix();
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let mut scan = engine.scan(
            trees::SYSTEM,
            lower,
            upper,
            at.get(),
            ScanDirection::Forward,
        );
        let mut all = BTreeMap::new();
        while scan.advance()? {
            let decoded = decode(scan.bytes()).ok_or_else(|| Error::InvalidRecord {
                what: "quota",
                key: show_key(scan.key()),
                reason: "it does not decode",
            })?;
            let prefix = scan.key().get(prefix.len()..).unwrap_or_default();
            all.insert(prefix.to_vec(), decoded);
        }
        Ok(all.into_iter().collect())
    }
}

impl FromIterator<(Vec<u8>, (QuotaLimits, QuotaUse))> for Quotas {
    /// From quotas in the order of their prefixes.
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, (QuotaLimits, QuotaUse))>>(all: I) -> Quotas {
        let mut sorted: Vec<Counted> = Vec::new();
        // The places of those that enclose the last one, and of itself.
        let mut around: Vec<usize> = Vec::new();
        for (prefix, (limits, used)) in all {
            let begins = |place: &usize| {
                let quota = sorted.get(*place);
                quota.is_some_and(|quota| prefix.starts_with(&quota.prefix))
            };
            while around.last().is_some_and(|place| !begins(place)) {
                around.pop();
            }
            let within = around.last().copied();
            around.push(sorted.len());
            sorted.push(Counted {
                prefix,
                limits,
                keys: AtomicU64::new(used.keys),
                bytes: AtomicU64::new(used.bytes),
                within,
            });
        }
        Quotas { sorted }
    }
}

/// Visits each key of a prefix at a revision, with the length of its value, which is not read for that.
pub fn for_each_size(
    engine: &Engine,
    prefix: &[u8],
    at: Revision,
    mut visit: impl FnMut(&[u8], u64),
) -> Result<()> {
    let upper = trees::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    let lower = Bound::Included(prefix.to_vec());
    let scan = engine.scan(trees::KV, lower, upper, at.get(), ScanDirection::Forward);
    let mut scan = scan.heads();
    while scan.advance()? {
        let key = scan.key();
        let decoded = record::decode(scan.bytes(), Revision::new(scan.revision()));
        let (_, start) = decoded.ok_or_else(|| record::invalid(key))?;
        let bytes = scan.value_bytes()?;
        visit(key, bytes.saturating_sub(start as u64));
    }
    Ok(())
}

/// Counts the keys of a prefix at a revision, by a scan.
pub fn count(engine: &Engine, prefix: &[u8], at: Revision) -> Result<QuotaUse> {
    let mut used = QuotaUse::default();
    for_each_size(engine, prefix, at, |key, value_bytes| {
        used.keys += 1;
        used.bytes += key.len() as u64 + value_bytes;
    })?;
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(keys: Option<u64>, bytes: Option<u64>) -> QuotaLimits {
        QuotaLimits { keys, bytes }
    }

    #[test]
    fn records_round_trip_and_every_other_form_is_refused() {
        let used = QuotaUse {
            keys: 300,
            bytes: u64::MAX,
        };
        for limits in [
            limits(Some(0), None),
            limits(None, Some(7)),
            limits(Some(u64::MAX), Some(1)),
        ] {
            let record = encode(limits, used);
            assert_eq!(decode(&record), Some((limits, used)));
            for cut in 0..record.len() {
                assert_eq!(decode(&record[..cut]), None);
            }
            assert_eq!(decode(&[&record[..], &[0]].concat()), None);
        }
        assert_eq!(decode(&[VERSION, 0, 1, 1]), None, "it limits nothing");
        assert_eq!(decode(&[VERSION, 4, 1, 1]), None, "an unknown flag");
        assert_eq!(decode(&[2, 1, 1, 1, 1]), None, "an unknown version");
    }

    /// Compared with a look at every quota.
    #[test]
    fn a_key_counts_for_every_quota_whose_prefix_begins_it() {
        let mut random = fastrand::Rng::with_seed(24);
        let text = |random: &mut fastrand::Rng, max: usize| {
            let length = random.usize(0..=max);
            std::iter::repeat_with(|| random.choice(*b"ab\xff").unwrap_or_default())
                .take(length)
                .collect::<Vec<u8>>()
        };
        for _ in 0..500 {
            let mut quotas = Quotas::default();
            for _ in 0..random.usize(0..9) {
                let prefix = text(&mut random, 4);
                let quota = (limits(Some(1), None), QuotaUse::default());
                quotas = quotas.with(&prefix, (random.u8(0..5) > 0).then_some(quota));
            }
            for _ in 0..20 {
                let key = text(&mut random, 5);
                let mut found = Vec::new();
                quotas.for_each_of(&key, |place| found.push(place));
                found.sort_unstable();
                let all = quotas.sorted.iter().enumerate();
                let expected = all.filter(|(_, quota)| key.starts_with(&quota.prefix));
                let expected: Vec<usize> = expected.map(|(place, _)| place).collect();
                assert_eq!(found, expected, "{key:?} {quotas:?}");
            }
        }
    }
}
