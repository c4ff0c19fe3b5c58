//! The condition of this member's data: damage found in its tables, and the hashes of its trees.

use std::sync::Arc;

use bowline::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;

/// What is known of damage in the tables of this member.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    found: watch::Sender<Option<String>>,
}

impl Damage {
    /// Notes damage in the tables of this member, or that somebody wants them replaced.
    pub(crate) fn note(&self, reason: String) {
        self.found.send_if_modified(|found| {
            let is_new = found.is_none();
            found.get_or_insert(reason);
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
}

/// The hashes of keys, blocks, and edges by source and by target.
pub(crate) type Hashes = [u64; 4];

/// The hashes that this member computes, or has computed last: at which revision, and they themselves once they are
/// known.
pub(crate) type Latest = Option<(Revision, Option<Hashes>)>;

/// The hashes of this member.
#[derive(Debug, Default)]
pub(crate) struct Hashing(pub(crate) Arc<Mutex<Latest>>);
