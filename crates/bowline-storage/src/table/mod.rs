//! Tables: immutable sorted files of versioned entries, and the cache of their pages.
//!
//! A table holds entries of one tree, ordered by key ascending and, within a key, by revision
//! descending; no (key, revision) occurs twice. It is written once, from first to last byte, made
//! durable, and never changed.
//!
//! ```text
//! +--------+--------+-----+--------+--------+-------+------------+--------+
//! | page 0 | page 1 |  …  | page n | filter | index | properties | footer |
//! +--------+--------+-----+--------+--------+-------+------------+--------+
//!   sorted entries                   keys     last    TableMeta    lengths,
//!   ~8 KiB each                      maybe    entry   again        version,
//!                                    here     of each              magic
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `writer`, `page_builder` | entries in order → file |
//! | `reader` | an open table: point reads |
//! | `read_cursor`, `version_cursor` | the table in order: as of a revision; everything |
//! | `entry_cursor`, `page_cursor`, `read_ahead` | the basis of the cursors |
//! | `page`, `filter`, `index`, `meta`, `footer` | one part of the file each |
//! | `cache` | pages in memory |
//! | `verify` | the whole file, checked |
//!
//! Invariants:
//!
//! - Every byte of the file is covered by a checksum that also covers the table's salt and the
//!   byte's place in the file, or (the magic, and the file's length) is compared with the one
//!   value it can have. Bytes that are damaged, misplaced or from another table are an error,
//!   never an answer.
//! - Nothing is allocated because of a length on disk before that length has been bounded by the
//!   file's own.
//! - The versions of a key may fill many pages. The index knows the last revision of each page,
//!   so one page is enough for any point read.
//! - A page in the cache has been verified and decompressed; reading from it allocates nothing
//!   but the value that is returned.

mod entry_cursor;
mod filter;
mod footer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod meta;
mod options;
mod page;
mod page_builder;
mod page_cursor;
mod read_ahead;
mod read_cursor;
mod reader;
#[cfg(test)]
mod tests;
mod verify;
mod version_cursor;
mod writer;

pub use crate::cache::PageCache;
pub(crate) use filter::KeyHash;
pub use meta::TableMeta;
pub use options::TableOptions;
pub use read_cursor::TableReadCursor;
pub(crate) use reader::TableHit;
pub use reader::{Table, TableEntry};
pub(crate) use version_cursor::TableVersionCursor;
pub use writer::TableWriter;
