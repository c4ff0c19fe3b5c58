//! [`ItemWriter`]: the interface of the export formats.

use std::io;

use crate::import::Item;

/// Writes items in some format.
pub trait ItemWriter {
    /// Writes one item, or leaves it out if the format has no place for it.
    fn item(&mut self, item: &Item) -> io::Result<()>;

    /// Writes what belongs at the end, and flushes.
    fn finish(&mut self) -> io::Result<()>;
}
