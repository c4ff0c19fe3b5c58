//! Blob files: large values are stored apart from the tables, so that merges move pointers, not values.
//!
//! A value of at least [`BlobOptions::threshold_bytes`] is written to a blob file once, when its memtable
//! is flushed. The entry in the table has a `BlobPointer` and the first [`HEAD_BYTES`] of the value,
//! which is all that most reads of a previous version need.
//!
//! ```text
//! table entry:  key | revision | pointer (file, offset, lengths) | head
//!                                   │
//! +--------+----------+----------+--▼-------+-----+--------+
//! | header | record 0 | record 1 | record 2 |  …  | footer |     tables/<id>.blob
//! +--------+----------+----------+----------+-----+--------+
//!   id,      owner, lengths, value, checksum        counts
//!   salt
//! ```
//!
//! A blob file belongs to one tree. One flush, or one range of a merge, writes it from the first to the
//! last byte, and makes it durable before the manifest edit that names it. Its records have the order of
//! the run that it was written for. Only the tables of one run refer to it, since a merge takes whole
//! runs.
//!
//! # Garbage
//!
//! The manifest records with each table how many bytes of which blob files its pointers refer to. The
//! bytes that no table refers to are garbage. So garbage needs no count of its own that could be wrong,
//! and it changes with the same edit that changes the tables. The edit that removes the last reference to
//! a blob file also removes the blob file from the state. Its file is removed when its last reader drops
//! it, like that of a table.
//!
//! A merge that finds a pointer into a file with more garbage than [`BlobOptions::garbage_percent_max`]
//! writes the value again, into its own blob file, so that the old file is not needed after the merge.
//! This bounds the cost. With values overwritten at random and a bound g, each byte of new values moves
//! at most (1 - g) / g bytes of old values. So values are written at most 1 / g times in total, and take
//! 1 / (1 - g) times their length on the disk. At one half, the default, both factors are two. In practice
//! less is written, since merges work in bulk and mostly find much more garbage than the bound; the keys,
//! pointers and heads in the tables take a part of the rest. A bound of 30 percent writes far more and
//! saves little space, since then whole files are moved for a third of them.
//!
//! Merges happen where new data arrives. Another rule covers key ranges without writes: when the blob
//! files of a tree have more garbage *together* than the bound, tables of the run that refers to the worst
//! file are rewritten in place, namely those that refer to files over the bound
//! (`crate::compaction::pick_blobs`). At least one file is over the bound then, and is removed by the
//! job, so the process terminates. At the end the blob files of a tree are at most 1 / (1 - g) times as
//! long as the referenced data, wherever the garbage is.
//!
//! # Reading
//!
//! A point read costs one read of the blob file in addition to those of the table. Records of at most 4 KiB are read
//! through the page cache, in chunks of 16 KiB (`Chunk`): beside a copy of a value so short the system call is what costs.
//! A chunk is read as a whole when a second value of it is wanted soon after the first one, or by a scan that goes
//! through it: so values that are read once do not displace pages that lead to a hundred of them. Longer values bypass
//! the cache; the operating system caches the file. A record is checked when it is first found in a chunk. Where it
//! proves damaged there, it is read anew.
//!
//! Scans and merges read ahead (`BlobReader`) while they find adjacent values; a merge leaves the cache alone. A scan
//! reads only the values that it returns.
//!
//! Invariants:
//!
//! - Every byte of a file is covered by a checksum with the file's salt and the byte's place, or
//!   compared with the one value it can have. A record's checksum covers its owner, too (key and
//!   revision): a pointer that leads to a value of another entry is an error, never an answer.
//! - The manifest names a blob file from the edit that adds the first pointer into it, as long as there is
//!   such a pointer. At most one entry of a version refers to a record; an entry in the output of a
//!   finished range of a merge is a copy of it.
//! - A length read from disk is checked against the length of the file before memory is allocated for it.

mod cached;
mod chunk;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod meta;
mod pointer;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use chunk::Loaded;
pub(crate) use file::BlobFile;
pub use meta::BlobMeta;
pub(crate) use pointer::BlobPointer;
pub(crate) use reader::BlobReader;
pub(crate) use writer::BlobWriter;

use crate::Revision;

/// How much of a value stays in the table.
pub const HEAD_BYTES: usize = 32;

/// The head of a record: owner, length of the frame, length of the value.
const RECORD_HEAD_BYTES: usize = 8 + 4 + 4;

/// Settings of blob files.
///
/// ```
/// # use bowline_storage::blob::BlobOptions;
/// // With `DbBuilder::blobs`: values of 4 KiB and more stay where they are written, until two thirds of
/// // their file are garbage.
/// let options = BlobOptions {
///     threshold_bytes: Some(4 << 10),
///     garbage_percent_max: 66,
///     ..BlobOptions::default()
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobOptions {
    /// Values of at least this many bytes go to blob files; with `None` no value does. Existing blob
    /// files stay readable in any case. A smaller number than [`BlobOptions::THRESHOLD_BYTES_MIN`] is
    /// raised to that: otherwise pointer and head would be longer than the value.
    pub threshold_bytes: Option<usize>,
    /// The maximum share of garbage in a blob file, in percent, before its values are moved. A lower
    /// bound costs writes, a higher one costs space.
    pub garbage_percent_max: u8,
    /// Where a blob file is cut, in bytes.
    pub file_bytes: u64,
}

impl BlobOptions {
    /// The least useful threshold, in bytes.
    pub const THRESHOLD_BYTES_MIN: usize = 64;

    /// Whether a value of `len` bytes belongs into a blob file.
    #[must_use]
    #[inline]
    pub(crate) fn takes(&self, len: usize) -> bool {
        self.threshold_bytes
            .is_some_and(|threshold| len >= threshold.max(BlobOptions::THRESHOLD_BYTES_MIN))
    }

    /// Whether so much garbage is too much.
    #[must_use]
    pub(crate) fn is_over(&self, garbage_bytes: u64, all_bytes: u64) -> bool {
        let percent = u128::from(self.garbage_percent_max.min(99));
        u128::from(garbage_bytes) * 100 > u128::from(all_bytes) * percent
    }
}

impl Default for BlobOptions {
    fn default() -> Self {
        BlobOptions {
            threshold_bytes: Some(1 << 10),
            garbage_percent_max: 50,
            file_bytes: 256 << 20,
        }
    }
}

/// The entry a value belongs to, as a number that its record carries.
fn owner_of(key: &[u8], revision: Revision) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, revision)
}
