//! The super-version: everything that a read needs, in one immutable value.

use std::sync::Arc;

use crate::memtable::Memtable;
use crate::version::Version;

/// The memtables and tables at one moment.
///
/// A reader loads one with a single atomic read. It can then read at any revision that was visible at
/// the load, no matter what flushes and compactions do meanwhile.
#[derive(Debug)]
pub struct SuperVersion {
    /// The memtable that takes new entries.
    pub active: Arc<Memtable>,
    /// Full memtables that wait to be flushed; newest first.
    pub sealed: Vec<Arc<Memtable>>,
    /// The tables and blob files.
    pub(crate) version: Arc<Version>,
}

impl SuperVersion {
    /// Every memtable, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}
