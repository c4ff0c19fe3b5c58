//! Quotas of prefixes: their changes, and why a command is refused for them.
//!
//! What a quota is, and how keys are counted, is in [`bowline_core::quota`]; how a command is charged, in `plan/quotas.rs`.
//! A change is encoded as
//!
//! ```text
//! | change u8: 0 removal, else 4, and 1 with a limit of keys, 2 of bytes | prefix bytes | limits: varint each |
//! ```

use std::fmt;

use bowline_core::quota::{PREFIX_BYTES_MAX, QUOTAS_MAX};
use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_types::{QuotaLimits, show_key};

/// A change of the quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaChange {
    /// Sets or replaces the quota of a prefix. A new one counts the keys that are there.
    Set {
        /// The prefix; empty for all keys.
        prefix: Vec<u8>,
        /// What its keys may take.
        limits: QuotaLimits,
    },
    /// Removes the quota of a prefix. The keys stay.
    Remove {
        /// The prefix.
        prefix: Vec<u8>,
    },
}

impl QuotaChange {
    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        match self {
            QuotaChange::Set { prefix, .. } | QuotaChange::Remove { prefix } => prefix,
        }
    }
}

const REMOVE: u8 = 0;
const SET: u8 = 4;
const LIMITS_KEYS: u8 = 1;
const LIMITS_BYTES: u8 = 2;

/// Appends a change behind a tag.
pub(crate) fn put_quota_change(tag: u8, change: &QuotaChange, out: &mut Vec<u8>) {
    let (what, limits) = match change {
        QuotaChange::Remove { .. } => (REMOVE, QuotaLimits::default()),
        QuotaChange::Set { limits, .. } => {
            let flag = |limit: Option<u64>, flag: u8| limit.map_or(0, |_| flag);
            let flags = flag(limits.keys, LIMITS_KEYS) | flag(limits.bytes, LIMITS_BYTES);
            (SET | flags, *limits)
        }
    };
    out.extend_from_slice(&[tag, what]);
    put_bytes(out, change.prefix());
    for limit in [limits.keys, limits.bytes].into_iter().flatten() {
        put_varint(out, limit);
    }
}

/// Reads a change.
pub(crate) fn read_quota_change(reader: &mut Reader<'_>) -> Option<QuotaChange> {
    let what = reader.u8()?;
    let prefix = reader.bytes()?.to_vec();
    if what == REMOVE {
        return Some(QuotaChange::Remove { prefix });
    }
    if what & !(LIMITS_KEYS | LIMITS_BYTES) != SET {
        return None;
    }
    let mut limit = |flag: u8| match what & flag {
        0 => Some(None),
        _ => reader.varint().map(Some),
    };
    let limits = QuotaLimits {
        keys: limit(LIMITS_KEYS)?,
        bytes: limit(LIMITS_BYTES)?,
    };
    Some(QuotaChange::Set { prefix, limits })
}

/// What a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// The number of keys.
    Keys,
    /// The bytes of keys and newest values.
    Bytes,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limited::Keys => "keys",
            Limited::Bytes => "bytes",
        })
    }
}

/// Why a command is refused for a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaRefusal {
    /// A write would take more than a quota allows.
    #[error(
        "the quota of the prefix {} is {limit} {limited}: its keys take {used}, and with this write they would take \
         {asked}: delete some of them, or have the quota raised with `bowline quota set`",
        show_key(.prefix)
    )]
    Exceeded {
        /// The prefix.
        prefix: Vec<u8>,
        /// What is limited.
        limited: Limited,
        /// The most.
        limit: u64,
        /// What its keys take now.
        used: u64,
        /// What they would take.
        asked: u64,
    },
    /// There is no quota of the prefix.
    #[error("the prefix {} has no quota: see `bowline quota list`", show_key(.prefix))]
    NotFound {
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// A quota limits neither keys nor bytes.
    #[error("a quota limits keys, bytes, or both: give one of them")]
    Unlimited,
    /// A prefix is too long.
    #[error("the prefix of a quota has at most {PREFIX_BYTES_MAX} bytes")]
    PrefixTooLong,
    /// There are as many quotas as there may be.
    #[error("there are {QUOTAS_MAX} quotas, which is the most: remove one first")]
    TooMany,
}
