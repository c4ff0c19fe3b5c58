//! Where memtables end: who lets go of one last does not give its memory back to the system.
//!
//! A memtable goes when the last reader of it does, which may be anybody's thread, and to unmap
//! tens of megabytes takes milliseconds. So it leaves its memory here, in the time of a push, and
//! a thread that nobody waits for [frees](Retirement::free) it.

use std::sync::Arc;

use super::Tree;
use super::arena::Arena;
use crate::sync::Mutex;

/// The memory of memtables that are no longer used. Shared by all memtables of an engine.
#[derive(Default)]
pub struct Retirement(Mutex<Vec<(Arena, Box<[Tree]>)>>);

impl std::fmt::Debug for Retirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Retirement").finish_non_exhaustive()
    }
}

impl Retirement {
    /// One that has nothing.
    #[must_use]
    pub fn new() -> Arc<Retirement> {
        Arc::default()
    }

    pub(super) fn take_in(&self, arena: Arena, trees: Box<[Tree]>) {
        self.0.lock().push((arena, trees));
    }

    /// Gives everything back to the system; returns of how many memtables.
    pub fn free(&self) -> usize {
        let retired = std::mem::take(&mut *self.0.lock());
        retired.len()
    }
}
