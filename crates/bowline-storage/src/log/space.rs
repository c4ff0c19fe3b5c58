//! The free space on the disk of the log, as far as the log knows it.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Flags that the writer and the segment allocator set, and that any thread may read.
#[derive(Debug, Default)]
pub(super) struct Space {
    is_full: AtomicBool,
    is_short: AtomicBool,
}

impl Space {
    /// Whether the disk had no space for a needed segment at the last attempt.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }

    /// Whether the disk had no space for a segment prepared in advance at the last attempt.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    pub(super) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Release);
    }
}
