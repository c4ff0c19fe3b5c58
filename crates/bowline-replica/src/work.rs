//! The bound of a transaction's work: a budget of keys and bytes.
//!
//! A request of a few bytes can cause much work. A condition on a range visits each of its keys, and nested
//! transactions hold tens of thousands of conditions and operations. All of that runs where entries are
//! applied, one after the other, on every member: it delayed the whole cluster.
//!
//! | what | costs |
//! |---|---|
//! | a condition, an operation | [`LOOK_UP_KEYS`] keys |
//! | a key visited by a condition, a range or a deletion of a range | a key, and its bytes |
//! | a value that is read: for a condition on values, for a reply | its bytes |
//!
//! The updates of a commit have such a budget, too: each costs a key, and the bytes of the value that it reads and of the one
//! that it makes. They are told in the reply.
//!
//! A transaction of a single deletion of a range costs nothing, unless its reply has the deleted entries: it is bounded by
//! the writes of a command instead ([`Refusal::TooManyWrites`]), and reads no key beyond that.
//!
//! The check is made twice, by the same rules. The proposing member evaluates the transaction against its own
//! state (`weigh`), so that an excessive one costs the other members nothing, and allows it fewer bytes
//! ([`PROPOSAL_BYTES_MAX`]). Meanwhile the state may have grown: so every member checks again when it applies the command,
//! and that decides.
//!
//! Invariants:
//!
//! - The check on applying depends on the command and the replicated state alone. So the budget is a part of
//!   the meaning of [`Command::Txn`]: another budget would need another command, and that of a proposal may
//!   differ. Numbers that differ between members are not counted: tombstones, versions, bytes of records.
//! - The check precedes every write.
//! - Of a range at an old revision only the look-up is counted on applying, as a member that applies it again
//!   after a crash may have trimmed that history. The state at a revision does not grow: the proposing member
//!   has counted all of it.
//!
//! [`Command::Txn`]: super::Command::Txn

use std::cell::Cell;
use std::time::Duration;

use bowline_storage::EntryKind;
use bowline_storage::engine::Engine;
use bowline_types::Revision;

use super::command::{Compare, DeleteRangeOp, Op, PutOp, Refusal, Target, Txn};
use bowline_core::error::Result;
use bowline_core::kv::record;
use bowline_core::trees;

/// The most keys that a transaction may visit.
pub const TXN_KEYS_MAX: u64 = 1_000_000;
/// The most bytes of keys and values that a transaction may read.
pub const TXN_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of keys and values that a transaction may read to be proposed. All other requests wait while a member
/// reads them: 64 MiB take some 10 ms, and beside four such transactions every 300 ms a put's p99 was 10 ms and not 1.5.
pub const PROPOSAL_BYTES_MAX: u64 = 8 << 20;
/// The most keys, and bytes of keys and values, of a transaction that is proposed without a turn: about 0.1 ms of every
/// member.
const LIGHT_KEYS: u64 = 1_000;
const LIGHT_BYTES: u64 = 512 << 10;
/// The cost of a look-up, in keys: about as much as so many steps of a scan.
pub(crate) const LOOK_UP_KEYS: u64 = 16;

/// What a transaction reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    /// Keys that are looked at; a look-up counts as several.
    pub keys: u64,
    /// Of keys and values that are read.
    pub bytes: u64,
}

impl Weight {
    /// That of a transaction that was refused: what was read until then.
    pub const REFUSED: Weight = Weight {
        keys: 0,
        bytes: PROPOSAL_BYTES_MAX,
    };

    /// Whether it is proposed without a turn.
    #[must_use]
    pub fn is_light(self) -> bool {
        self.keys <= LIGHT_KEYS && self.bytes <= LIGHT_BYTES
    }

    /// About how long each member takes to apply it.
    #[must_use]
    pub fn apply_time(self) -> Duration {
        const KEY_NS: u64 = 100;
        /// Some 6 GB/s.
        const BYTES_PER_NS: u64 = 6;
        Duration::from_nanos(self.keys * KEY_NS + self.bytes / BYTES_PER_NS)
    }
}

/// The remainder of a budget.
#[derive(Debug)]
pub(crate) struct Work {
    keys_left: Cell<u64>,
    bytes_left: Cell<u64>,
    keys_max: u64,
    bytes_max: u64,
    is_exceeded: Cell<bool>,
}

impl Work {
    /// The budget of a transaction.
    pub(crate) fn of_txn() -> Work {
        Work::new(TXN_KEYS_MAX, TXN_BYTES_MAX)
    }

    /// The budget of a transaction that is to be proposed.
    pub(crate) fn of_proposal() -> Work {
        Work::new(TXN_KEYS_MAX, PROPOSAL_BYTES_MAX)
    }

    /// The budget of a transaction that is proposed without a turn.
    pub(crate) fn of_light() -> Work {
        Work::new(LIGHT_KEYS, LIGHT_BYTES)
    }

    /// A budget without a bound.
    pub(crate) fn unlimited() -> Work {
        Work::new(u64::MAX, u64::MAX)
    }

    fn new(keys: u64, bytes: u64) -> Work {
        Work {
            keys_left: Cell::new(keys),
            bytes_left: Cell::new(bytes),
            keys_max: keys,
            bytes_max: bytes,
            is_exceeded: Cell::new(false),
        }
    }

    /// Whether there is a bound.
    pub(crate) fn is_limited(&self) -> bool {
        self.keys_left.get() <= TXN_KEYS_MAX
    }

    /// Charges keys and bytes; returns whether enough was left.
    pub(crate) fn take(&self, keys: u64, bytes: u64) -> bool {
        let keys = self.keys_left.get().checked_sub(keys);
        let bytes = self.bytes_left.get().checked_sub(bytes);
        if let (Some(keys), Some(bytes)) = (keys, bytes) {
            self.keys_left.set(keys);
            self.bytes_left.set(bytes);
        } else {
            self.is_exceeded.set(true);
        }
        !self.is_exceeded.get()
    }

    /// What was charged.
    pub(crate) fn weight(&self) -> Weight {
        Weight {
            keys: self.keys_max - self.keys_left.get(),
            bytes: self.bytes_max - self.bytes_left.get(),
        }
    }

    /// Charges a condition or an operation.
    pub(crate) fn look_up(&self) -> Result<(), Refusal> {
        self.take(LOOK_UP_KEYS, 0);
        self.check()
    }

    /// Refuses if more was charged than there was.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.is_exceeded.get() {
            true => Err(Refusal::TooMuchWork {
                keys: TXN_KEYS_MAX,
                bytes: self.bytes_max,
            }),
            false => Ok(()),
        }
    }
}

/// Whether a condition needs the values.
pub(crate) fn reads_values(compare: &Compare) -> bool {
    matches!(compare.target, Target::Value(_))
}

/// Whether a transaction is a single deletion of a range, with only a count in the reply.
pub(crate) fn is_plain_deletion(txn: &Txn) -> bool {
    plain_deletion(txn).is_some()
}

/// The deletion of a transaction that is nothing but that, with only a count in the reply.
pub(crate) fn plain_deletion(txn: &Txn) -> Option<&DeleteRangeOp> {
    match &txn.success[..] {
        [Op::DeleteRange(delete)] if txn.compares.is_empty() && !delete.prev_kv => Some(delete),
        _ => None,
    }
}

/// What a transaction names, in all branches.
#[derive(Default)]
struct Named {
    look_ups: u64,
    /// Values that are read.
    values: u64,
    has_range: bool,
}

impl Named {
    fn by(txn: &Txn) -> Named {
        let mut named = Named::default();
        named.add(txn);
        named
    }

    /// Stops at the first range.
    fn add(&mut self, txn: &Txn) {
        for compare in &txn.compares {
            self.look_ups += 1;
            self.values += u64::from(reads_values(compare));
            self.has_range |= !compare.range_end.is_empty();
        }
        for op in txn.success.iter().chain(&txn.failure) {
            if self.has_range {
                return;
            }
            self.look_ups += 1;
            let (range_end, is_read): (&[u8], bool) = match op {
                Op::Range(range) => (&range.range_end, true),
                Op::DeleteRange(delete) => (&delete.range_end, delete.prev_kv),
                Op::Put(put) => (&[], reads_previous(put)),
                Op::Txn(inner) => {
                    self.add(inner);
                    continue;
                }
            };
            self.values += u64::from(is_read);
            self.has_range |= !range_end.is_empty();
        }
    }
}

/// A cheap check whether a transaction may exceed the bound.
pub(crate) fn may_exceed(txn: &Txn) -> bool {
    /// Values of this size are larger than any request that is accepted by default.
    const VALUE_BYTES: u64 = 2 << 20;
    if let Some(delete) = plain_deletion(txn) {
        return !delete.range_end.is_empty();
    }
    let named = Named::by(txn);
    named.has_range
        || named.look_ups * LOOK_UP_KEYS > TXN_KEYS_MAX
        || named.values * VALUE_BYTES > PROPOSAL_BYTES_MAX
}

/// Whether a transaction names at most so many keys, and no range.
pub(crate) fn is_few_look_ups(txn: &Txn, keys_max: usize) -> bool {
    let named = Named::by(txn);
    !named.has_range && named.look_ups <= keys_max as u64
}

/// Whether a put reads the previous entry.
pub(crate) fn reads_previous(put: &PutOp) -> bool {
    put.prev_kv || put.ignore_value
}

/// The length of a key's newest value; 0 when there is none. A large value is not read for that.
pub(crate) fn value_bytes(engine: &Engine, key: &[u8]) -> Result<u64> {
    Ok(present_value_bytes(engine, key)?.unwrap_or(0))
}

/// [`value_bytes`] of a key that is present.
pub(crate) fn present_value_bytes(engine: &Engine, key: &[u8]) -> Result<Option<u64>> {
    engine.peek_since(trees::KV, key, 0, |found| {
        let Some(found) = found.filter(|found| found.kind == EntryKind::Put) else {
            return Ok(None);
        };
        let decoded = record::decode(found.bytes(), Revision::new(found.revision));
        let (_, start) = decoded.ok_or_else(|| record::invalid(key))?;
        Ok(Some(found.value_bytes().saturating_sub(start as u64)))
    })?
}
