//! Options for writing a table. Reading needs none of them: the file describes itself.

use crate::frame::Compression;

/// How a table is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOptions {
    /// A page is closed before it would grow beyond this many bytes; an entry that is larger
    /// gets a page of its own. At most `TableOptions::PAGE_BYTES_MAX`.
    pub page_bytes: usize,
    /// Every how many entries, at most, a key is written in full, so that a search can start
    /// there. Large entries make it happen sooner.
    pub restart_interval: usize,
    /// Bits of filter per distinct key; 0 writes no filter.
    pub filter_bits_per_key: usize,
    /// How pages are compressed.
    pub compression: Compression,
}

impl TableOptions {
    /// The largest useful page target. Larger ones are taken as this.
    pub(crate) const PAGE_BYTES_MAX: usize = 16 << 20;
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            page_bytes: 8 << 10,
            restart_interval: 16,
            filter_bits_per_key: 16,
            compression: Compression::Lz4,
        }
    }
}
