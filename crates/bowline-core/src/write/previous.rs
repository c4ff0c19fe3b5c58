//! The previous version of a written key, and puts that do without it.
//!
//! A put needs the previous create revision, version and lease of its key. The committer looks them up on its
//! thread ([`Previous::prefetch`]); the leader of its group reads only newer versions
//! ([`Previous::refresh`]). A look-up may read a table, which costs several times as much as the put. So a
//! short put without a lease may be *blind*: a merge or a reader completes its record later (see [`record`]).
//!
//! Invariant: no put is blind when its previous version is needed: by a watcher, whose event carries the
//! metadata, or by a lease, from which the key may have to be detached. Both are checked again at the
//! decision.

use bowline_storage::engine::{Engine, Found};
use bowline_types::Revision;

use super::mutation::Action;
use crate::error::Result;
use crate::kv::record::{self, Meta};
use crate::trees;

/// The largest value of a blind put, in bytes. Next to a larger value the look-up is cheap, and blob files
/// take only complete records.
const BLIND_VALUE_MAX_BYTES: usize = 512;

/// The version of a key before a write.
#[derive(Debug, Clone, Copy)]
pub enum Previous {
    /// The key is absent.
    Absent,
    /// Its metadata.
    Present(Meta),
    /// Not looked up, because a blind put need not read a table.
    Unknown {
        /// The number of blind records of the key in memory; the newest one is its newest version.
        blind_below: u8,
    },
}

impl From<Option<Meta>> for Previous {
    #[inline]
    fn from(meta: Option<Meta>) -> Previous {
        meta.map_or(Previous::Absent, Previous::Present)
    }
}

impl Previous {
    /// Not looked up, and memory has no version of the key.
    pub const UNKNOWN: Previous = Previous::Unknown { blind_below: 0 };

    /// The found version. Does not read below a blind one if the put may be blind.
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
        Ok(record::meta_of(key, found)?.into())
    }

    /// Looks up a key before the decision; only in memory if the write may be blind.
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

    /// The version at the decision, from the one prefetched at `looked_up_at`. `is_current`: no key was
    /// committed since. `must_know`: no write may be blind any more.
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
            engine.peek_since(trees::KV, key, looked_up_at.get(), |found| {
                let previous = found.map(|found| Previous::of(key, Some(&found), may_be_blind));
                previous.transpose()
            })??
        };
        let must_look = match self {
            Previous::Absent => false,
            // A newer deletion may have been merged away since the look-up, together with the version it
            // deleted. The floor is read after the key: a merge raises the floor first.
            Previous::Present(_) => engine.history_floor() > looked_up_at.get(),
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
    /// Whether the key can be written without its previous version.
    #[inline]
    pub fn may_be_blind(&self) -> bool {
        match self {
            Action::PutEntry { value, lease } => {
                lease.is_none() && value.len() <= BLIND_VALUE_MAX_BYTES
            }
            _ => false,
        }
    }
}
