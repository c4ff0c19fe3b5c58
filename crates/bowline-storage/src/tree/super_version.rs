//! Everything a read needs, in one shared, immutable value.

use std::sync::Arc;

use crate::memtable::Memtable;
use crate::version::Version;

/// The memtables and tables at one moment.
///
/// A reader takes one with a single atomic load and can then read at any revision that was
/// visible when it took it, whatever flush and compaction do meanwhile.
#[derive(Debug)]
pub struct SuperVersion {
    /// Takes the writes.
    pub active: Arc<Memtable>,
    /// Full, waiting to be flushed; newest first.
    pub sealed: Vec<Arc<Memtable>>,
    /// The tables.
    pub version: Arc<Version>,
}

impl SuperVersion {
    /// Every memtable, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}
