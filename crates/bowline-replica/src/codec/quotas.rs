//! The encoding of changes of quotas.
//!
//! ```text
//! quota        | change u8: 0 removal, else 4 and 1 with a limit of keys, 2 of bytes | prefix bytes | limits varint |
//! ```

use bowline_storage::codec::{put_bytes, put_varint};
use bowline_types::QuotaLimits;

use super::{Decoded, Decoder};
use crate::quota::QuotaChange;

const REMOVE: u8 = 0;
const SET: u8 = 4;
const LIMITS_KEYS: u8 = 1;
const LIMITS_BYTES: u8 = 2;

pub(super) fn put_quota_change(change: &QuotaChange, out: &mut Vec<u8>) {
    match change {
        QuotaChange::Remove { prefix } => {
            out.push(REMOVE);
            put_bytes(out, prefix);
        }
        QuotaChange::Set { prefix, limits } => {
            let flag = |limit: Option<u64>, flag: u8| limit.map_or(0, |_| flag);
            out.push(SET | flag(limits.keys, LIMITS_KEYS) | flag(limits.bytes, LIMITS_BYTES));
            put_bytes(out, prefix);
            for limit in [limits.keys, limits.bytes].into_iter().flatten() {
                put_varint(out, limit);
            }
        }
    }
}

impl Decoder<'_> {
    pub(super) fn quota_change(&mut self) -> Decoded<QuotaChange> {
        let what = self.u8()?;
        let prefix = self.bytes()?;
        if what == REMOVE {
            return Ok(QuotaChange::Remove { prefix });
        }
        if what & !(LIMITS_KEYS | LIMITS_BYTES) != SET {
            return Err("a change of quotas that is unknown");
        }
        let mut limit = |flag: u8| match what & flag {
            0 => Ok(None),
            _ => self.number().map(Some),
        };
        let limits = QuotaLimits {
            keys: limit(LIMITS_KEYS)?,
            bytes: limit(LIMITS_BYTES)?,
        };
        Ok(QuotaChange::Set { prefix, limits })
    }
}
