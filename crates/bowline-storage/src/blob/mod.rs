//! Blob files: large values beside the tables, so that merges move pointers and not values.
//!
//! A value of [`BlobOptions::threshold_bytes`] and more is written once, when its memtable is
//! flushed, into a blob file; the table's entry holds a [`BlobPointer`] and the value's first
//! [`HEAD_BYTES`], which is all that most looks at a previous version need.
//!
//! ```text
//! table entry:  key | revision | pointer (file, offset, lengths) | head
//!                                   │
//! +--------+----------+----------+--▼-------+-----+--------+
//! | header | record 0 | record 1 | record 2 |  …  | footer |     tables/<id>.blob
//! +--------+----------+----------+----------+-----+--------+
//!   who,     owner, lengths, value, checksum        counts
//!   salt
//! ```
//!
//! A blob file belongs to one tree and is written once, from first to last byte, by one flush or
//! one range of a merge, and then made durable before the manifest's edit that names it. Its records stand in the
//! order of the run that it was written for, and are referred to by the tables of one run only, as
//! merges take runs as a whole.
//!
//! # Garbage
//!
//! The manifest records, with each table, how many bytes of which blob files its pointers refer to.
//! What no table refers to is garbage: it needs no count of its own that could go wrong, and it
//! changes with the very edit that changes the tables. A blob file without a reference is gone from
//! the state by the same edit, and its file is removed when its last reader lets go of it, as a
//! table's is.
//!
//! A merge that meets a pointer into a file with more garbage than
//! [`BlobOptions::garbage_percent_max`] writes the value anew, into a file of its own, so that the
//! old one ends with the merge. That bounds what is paid: with values overwritten at random and a
//! bound g, a byte of new values causes at most (1 - g) / g bytes of old ones to be moved, so
//! values are written at most 1 / g times in all, and 1 / (1 - g) times their length lies on the
//! disk. At one half, the default, both factors are two. What is written stays below that, as merges
//! come in bulk and mostly find much more garbage than the bound; the tables' copies of key, pointer
//! and head take a part of the rest. A bound of 30 percent writes far more for little space, since
//! then whole files are moved for a third of them.
//!
//! Merges come where data comes. For a range that nobody writes to, there is another rule: when
//! the blob files of a tree have more garbage *together* than the bound, the run that refers to the
//! worst file has those of its tables rewritten in their place that refer to files over the bound
//! ([`crate::compaction::pick_blobs`]). Some file is over the bound then, and ends with the job, so
//! this comes to an end. In the end the blob files of a tree are at most 1 / (1 - g) times as long
//! as what is referred to, wherever the garbage lies.
//!
//! # Reading
//!
//! A point read costs one read of the file beside those of the table. Values do not go through
//! the page cache: they would crowd out pages that lead to a hundred of them, and the operating
//! system caches the file. Scans and merges read ahead ([`BlobReader`]), as long as they find
//! values that follow each other. A scan reads the values it shows, and no others.
//!
//! Invariants:
//!
//! - Every byte of a file is covered by a checksum with the file's salt and the byte's place, or
//!   compared with the one value it can have. A record's checksum covers its owner, too (key and
//!   revision): a pointer that leads to a value of another entry is an error, never an answer.
//! - A file is named by the manifest from the edit on that brings the first pointer into it, and
//!   as long as there is one. Each of its records is referred to by at most one entry of a version; one that
//!   a finished range of a merge has is a copy of such.
//! - Nothing is allocated because of a length on disk before that length has been bounded by the
//!   file's own.

mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod meta;
mod pointer;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use file::{BlobFile, BlobReport};
pub use meta::BlobMeta;
pub use pointer::BlobPointer;
pub use reader::BlobReader;
pub use writer::BlobWriter;

use crate::Revision;

/// How much of a value stays in the table.
pub const HEAD_BYTES: usize = 32;

/// What is before a record's frame: owner, length of the frame, length of the value.
const RECORD_HEAD_BYTES: usize = 8 + 4 + 4;

/// Settings of blob files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobOptions {
    /// Values of this many bytes and more go to blob files; `None`: none do. What is there already
    /// stays readable whatever this says. Less than [`BlobOptions::THRESHOLD_BYTES_MIN`] is taken
    /// as that: a pointer and a head would be longer than the value.
    pub threshold_bytes: Option<usize>,
    /// How much of a file may be garbage, in percent, before what is left of it is moved. A lower
    /// bound costs writes, a higher one space.
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
    pub fn takes(&self, len: usize) -> bool {
        self.threshold_bytes
            .is_some_and(|threshold| len >= threshold.max(BlobOptions::THRESHOLD_BYTES_MIN))
    }

    /// Whether so much garbage is too much.
    #[must_use]
    pub fn is_over(&self, garbage_bytes: u64, all_bytes: u64) -> bool {
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
