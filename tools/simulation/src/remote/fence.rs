//! The judge of locks. A holder's token is the create revision of the key that its lock is.
//!
//! - Nobody takes a lock while another holds it: until it begins to give it back, or as long as its lease was promised.
//! - Who asks for a lock after another was told that it has it gets a newer token.
//! - What is written under the lock's condition is written for as long as the lock is held, and refused later: in the order
//!   of revisions the tokens of the writes never go back, so that nothing of an older holder comes after a newer one's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::Revision;
use parking_lot::Mutex;

/// The key that only the holder of the lock may write.
pub(crate) const GUARDED: &[u8] = b"guarded";

/// One who was told that it has the lock.
struct Holding {
    name: String,
    token: Revision,
    taken: Duration,
    /// Until then nobody else has it.
    promised: Duration,
}

/// All who had the lock. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Fence(Arc<Mutex<Vec<Holding>>>);

impl Fence {
    /// Somebody who asked at a time is told now that it has the lock, until a time.
    pub(super) fn is_taken(
        &self,
        name: &str,
        token: Revision,
        asked: Duration,
        now: Duration,
        promised: Duration,
    ) -> Result<(), String> {
        if now >= promised {
            // It may have lost it before it knew that it had it.
            return Ok(());
        }
        let mut all = self.0.lock();
        for other in all.iter() {
            let holder = &other.name;
            if now > other.taken && now < other.promised {
                let until = other.promised;
                return Err(format!(
                    "{name} has the lock with token {token}, which {holder} holds until {until:?}"
                ));
            }
            if other.taken < asked && other.token >= token {
                let older = other.token;
                return Err(format!(
                    "{name} has the lock with token {token}, after {holder} had it with token {older}"
                ));
            }
        }
        all.push(Holding {
            name: name.to_owned(),
            token,
            taken: now,
            promised,
        });
        Ok(())
    }

    /// The holder with this token has it until then; earlier than before if it begins to give it back.
    pub(super) fn promise(&self, token: Revision, until: Duration) {
        let mut all = self.0.lock();
        if let Some(own) = all.iter_mut().rfind(|own| own.token == token) {
            own.promised = until;
        }
    }
}

/// What is written: the token, and a number that makes each write another.
pub(super) fn value(token: Revision, number: u64) -> String {
    format!("{token}:{number}")
}

/// The token of what was written.
pub(crate) fn token_of(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split_once(':')?.0.parse().ok()
}

/// Judges the writes under the lock's condition, by the tokens at their revisions.
pub(crate) fn judge(writes: &BTreeMap<Revision, u64>) -> Result<(), String> {
    let mut newest = (0, Revision::ZERO);
    for (&revision, &token) in writes {
        if token < newest.0 {
            let (newer, at) = newest;
            return Err(format!(
                "a write of the holder with token {token} landed at revision {revision}, after one with token {newer} at {at}"
            ));
        }
        newest = (token, revision);
    }
    Ok(())
}
