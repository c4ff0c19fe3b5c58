//! Where memtables end: who lets go of one last does not give its memory back to the system.
//!
//! A memtable goes when the last reader of it does, which may be anybody's thread, and to unmap
//! tens of megabytes takes milliseconds. So it leaves its memory here, in the time of a push, and
//! a thread that nobody waits for [frees](Retirement::free) it. Nor does the push ask for memory or
//! give any back: of all that it does, that took longest.

use std::sync::Arc;

use super::Tree;
use super::arena::Arena;
use super::writer::WriterState;
use crate::sync::Mutex;

/// The memory of memtables that are no longer used. Shared by all memtables of an engine.
pub struct Retirement(Mutex<Vec<Retired>>);

/// What a memtable had of memory.
struct Retired {
    _arena: Arena,
    _trees: Box<[Tree]>,
    _writer: WriterState,
}

/// How many may be let go of between two turns of the thread that frees before one asks for memory.
const READY: usize = 16;

impl std::fmt::Debug for Retirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Retirement").finish_non_exhaustive()
    }
}

impl Retirement {
    /// One that has nothing.
    #[must_use]
    pub fn new() -> Arc<Retirement> {
        Arc::new(Retirement(Mutex::new(Vec::with_capacity(READY))))
    }

    pub(super) fn take_in(&self, arena: Arena, trees: Box<[Tree]>, writer: WriterState) {
        self.0.lock().push(Retired {
            _arena: arena,
            _trees: trees,
            _writer: writer,
        });
    }

    /// Gives everything back to the system; returns of how many memtables.
    pub fn free(&self) -> usize {
        if self.0.lock().is_empty() {
            return 0;
        }
        let ready = Vec::with_capacity(READY);
        let retired = std::mem::replace(&mut *self.0.lock(), ready);
        retired.len()
    }
}
