//! Deferred reclamation of memtables: a background thread returns their memory to the system.
//!
//! The last reader of a memtable drops it, on any thread. Unmapping tens of megabytes takes
//! milliseconds. So a dropped memtable pushes its memory onto the list here, and a background thread
//! [frees](DeferredReclaim::free) the list later. The push itself neither allocates nor frees memory,
//! which would take longer than all the rest of it.

use std::sync::Arc;

use super::Tree;
use super::arena::Arena;
use super::writer::WriterState;
use crate::sync::Mutex;

/// The memory of dropped memtables, not yet returned to the system. All memtables of an engine share
/// one.
pub struct DeferredReclaim(Mutex<Vec<Dropped>>);

/// The memory of one dropped memtable.
struct Dropped {
    _arena: Arena,
    _trees: Box<[Tree]>,
    _writer: WriterState,
}

/// How many memtables can be dropped between two calls of [`DeferredReclaim::free`] before a push
/// allocates.
const CAPACITY: usize = 16;

impl std::fmt::Debug for DeferredReclaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeferredReclaim").finish_non_exhaustive()
    }
}

impl DeferredReclaim {
    /// An empty list.
    #[must_use]
    pub fn new() -> Arc<DeferredReclaim> {
        Arc::new(DeferredReclaim(Mutex::new(Vec::with_capacity(CAPACITY))))
    }

    pub(super) fn push(&self, arena: Arena, trees: Box<[Tree]>, writer: WriterState) {
        self.0.lock().push(Dropped {
            _arena: arena,
            _trees: trees,
            _writer: writer,
        });
    }

    /// Returns all memory of the list to the system. Returns the number of memtables.
    pub fn free(&self) -> usize {
        if self.0.lock().is_empty() {
            return 0;
        }
        let empty = Vec::with_capacity(CAPACITY);
        let dropped = std::mem::replace(&mut *self.0.lock(), empty);
        dropped.len()
    }
}
