//! Quotas of prefixes: their changes, and why a command is refused for them.
//!
//! What a quota is, and how keys are counted, is in [`bowline_core::quota`]; how a command is charged, in `plan/quotas.rs`.

use std::fmt;

use bowline_core::quota::{PREFIX_BYTES_MAX, QUOTAS_MAX};
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
