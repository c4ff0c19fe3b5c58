//! What the log knows of the room on its disk.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Shared by the writer, the maker of spares, and whoever wants to know.
#[derive(Debug, Default)]
pub(super) struct Space {
    is_full: AtomicBool,
    is_short: AtomicBool,
}

impl Space {
    /// Whether the last attempt to get a segment to go on in found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }

    /// Whether the last attempt to make a spare ahead found no room.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    pub(super) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Release);
    }
}
