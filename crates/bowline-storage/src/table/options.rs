//! Options for writing a table. Reading needs none of them: the file describes itself.

/// The compression of the pages of a table. Each page records its own compression, so reads do not depend
/// on the current setting.
///
/// ```
/// # use bowline_storage::compaction::CompactionOptions;
/// # use bowline_storage::table::Compression;
/// // With `DbBuilder::compaction`: nothing is compressed once it has arrived in the last level.
/// let options = CompactionOptions {
///     last_level_compression: Some(Compression::None),
///     ..CompactionOptions::default()
/// };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Pages are stored as they are.
    None,
    /// Each page is an LZ4 block, unless that saves less than an eighth of it.
    Lz4,
    /// Each page is a zstd frame, on the same terms; smaller, and slower to make and to open. What
    /// zstd cannot do is done as with [`Compression::Lz4`].
    #[cfg(feature = "zstd")]
    Zstd {
        /// zstd's level, from the fastest (1) to the smallest (22); taken as the nearest there is.
        level: i32,
    },
}

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
