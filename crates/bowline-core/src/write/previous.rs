//! The version of a key before a write, and when it need not be known.
//!
//! A put needs the create revision, the version and the lease that its key had. A committer looks them up on
//! its own thread ([`Previous::prefetch`]); the leader of its group then reads only what is newer than that
//! ([`Previous::refresh`]). To look may mean to read a table, which costs several times what the put does. So
//! a short put without a lease may be *blind*: its record is completed later, by a merge or a reader (see
//! [`record`]).
//!
//! Invariant: no put is blind where somebody needs the version before it: a watcher, whose event carries the
//! metadata, or a lease, from which the key may have to be detached. Both are asked again at the decision.

use bowline_storage::Revision;
use bowline_storage::engine::{Engine, Found};

use super::mutation::Action;
use crate::error::Result;
use crate::kv::record::{self, Meta};
use crate::trees;

/// Up to this size of its value a put may be blind, in bytes. Beside a larger one the look-up costs
/// little, and a blob file takes only what is complete.
const BLIND_VALUE_MAX_BYTES: usize = 512;

/// The version of a key before a write.
#[derive(Debug, Clone, Copy)]
pub enum Previous {
    /// There is none.
    Absent,
    /// Its metadata.
    Present(Meta),
    /// Not looked up: a table would have to be read, for a put that can do without.
    Unknown {
        /// How many blind records the key has in memory, the newest of which is its newest version.
        blind_below: u8,
    },
}

impl Previous {
    /// Nothing is known, and memory has no version of the key.
    pub const UNKNOWN: Previous = Previous::Unknown { blind_below: 0 };

    /// The version that was found. Without a look below it where it is blind and may stay so.
    #[inline]
    fn of(key: &[u8], found: Option<&Found<'_>>, may_be_blind: bool) -> Result<Previous> {
        if may_be_blind
            && let Some(head) = record::head_of(key, found)?
            && head.is_blind
            && head.blind_below < record::BLIND_BELOW_MAX
        {
            let blind_below = head.blind_below + 1;
            return Ok(Previous::Unknown { blind_below });
        }
        let meta = record::meta_of(key, found)?;
        Ok(meta.map_or(Previous::Absent, Previous::Present))
    }

    /// Looks a key up ahead of the decision; memory alone where the write may be blind.
    #[inline]
    pub fn prefetch(engine: &Engine, key: &[u8], may_be_blind: bool) -> Result<Previous> {
        let read = |found: Option<Found<'_>>| Previous::of(key, found.as_ref(), may_be_blind);
        match may_be_blind {
            true => {
                let found = engine.peek_memtables(trees::KV, key, read);
                found.unwrap_or(Ok(Previous::UNKNOWN))
            }
            false => engine.peek_newest(trees::KV, key, read)?,
        }
    }

    /// The version at the decision, from what was prefetched at `looked_up_at`. `is_current` says that no
    /// key was committed since; `must_know` that no write may be blind any more.
    #[inline]
    pub fn refresh(
        self,
        engine: &Engine,
        key: &[u8],
        action: &Action,
        (looked_up_at, is_current): (Revision, bool),
        must_know: bool,
    ) -> Result<Previous> {
        let may_be_blind = !must_know && action.may_be_blind();
        let newer = if is_current {
            None
        } else {
            engine.peek_since(trees::KV, key, looked_up_at, |found| {
                let previous = found.map(|found| Previous::of(key, Some(&found), may_be_blind));
                previous.transpose()
            })??
        };
        let must_look = match self {
            Previous::Absent => false,
            // Nothing newer also when a newer deletion has been merged away since the look-up,
            // together with what it deleted. Asked after reading: a merge raises the floor first.
            Previous::Present(_) => engine.history_floor() > looked_up_at,
            Previous::Unknown { .. } => must_know,
        };
        match newer {
            None if must_look => engine.peek_since(trees::KV, key, 0, |found| {
                Previous::of(key, found.as_ref(), false)
            })?,
            None => Ok(self),
            Some(newer) => Ok(newer),
        }
    }
}

impl Action {
    /// Whether it can be written without the version before it.
    #[inline]
    pub fn may_be_blind(&self) -> bool {
        match self {
            Action::PutEntry { value, lease } => {
                *lease == 0 && value.len() <= BLIND_VALUE_MAX_BYTES
            }
            _ => false,
        }
    }
}
