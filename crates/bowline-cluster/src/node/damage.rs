//! The condition of this member's data: damage found in its tables, and the hashes of its trees.

use std::sync::Arc;

use bowline::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::raft::repairs::ASKED;

/// What is known of damage in the tables of this member.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    found: watch::Sender<Option<String>>,
}

impl Damage {
    /// Notes damage in the tables of this member, or that somebody wants them replaced: that is done, whatever else is
    /// noted, and whether or not there is damage.
    pub(crate) fn note(&self, reason: String) {
        self.found.send_if_modified(|found| {
            let is_new = found.is_none();
            if is_new || reason == ASKED {
                *found = Some(reason);
            }
            is_new
        });
    }

    /// What was noted.
    pub(crate) fn found(&self) -> Option<String> {
        self.found.borrow().clone()
    }

    /// Watches for damage.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.found.subscribe()
    }

    /// Notes that the tables are sound.
    pub(crate) fn is_mended(&self) {
        self.found.send_replace(None);
    }

    /// Notes that there is no damage of this kind after all.
    pub(crate) fn is_none_of(&self, reason: &str) {
        self.found.send_if_modified(|found| {
            let is_it = found.as_deref() == Some(reason);
            if is_it {
                *found = None;
            }
            is_it
        });
    }
}

/// The hashes of keys, blocks, and edges by source and by target.
pub(crate) type Hashes = [u64; 4];

/// The hashes that this member computes, or has computed last: at which revision, and they themselves once they are
/// known.
pub(crate) type Latest = Option<(Revision, Option<Hashes>)>;

/// The hashes of this member.
#[derive(Debug, Default)]
pub(crate) struct Hashing(pub(crate) Arc<Mutex<Latest>>);
