//! Bowline's storage engine.
//!
//! Several ordered maps of versioned byte keys ([`TreeId`]) over one log. Keys have no
//! meaning here: transactions, graphs, leases and watches are built on top, in the crate `bowline`.
//!
//! The parts, bottom-up: a module uses only modules above it in this table. Each starts with its algorithm and its
//! invariants:
//!
//! | module | purpose |
//! |---|---|
//! | [`clock`] | every reading of time, so that tests can be the clock |
//! | [`workers`] | work on other threads that is not on the path of a commit |
//! | [`vfs`] | every byte to and from disk, so that tests can be the disk |
//! | [`log`] | the one segmented log: group append, one flush per group, recovery |
//! | [`memtable`] | the newest versions in memory: hash for point reads, skiplist for order |
//! | [`frame`] | the envelope of pages and large values: compression and checksum |
//! | [`blob`] | large values beside the tables |
//! | [`table`] | one immutable sorted file: pages, filter, index, footer |
//! | [`version`] | which tables make up the database: manifest and its atomic edits |
//! | [`compaction`] | which tables to merge, and the merge |
//! | [`engine`] | the engine: reads, group commit, flush, compaction, recovery, history |
//!
//! A *revision* orders writes. A key has one entry per revision that wrote it; a reader at
//! revision `r` sees, for each key, the entry with the largest revision not above `r`.

pub mod blob;
mod cache;
pub mod clock;
pub mod codec;
pub mod compaction;
pub mod counters;
pub mod engine;
mod error;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod histogram;
pub mod log;
pub mod memtable;
#[doc(hidden)]
pub mod prefetch;
#[doc(hidden)]
pub mod sync;
pub mod table;
mod types;
mod value;
pub mod version;
pub mod vfs;
pub mod workers;

pub use clock::{Clock, SystemClock};
pub use error::{Error, Result};
pub(crate) use types::Revision;
pub use types::{EntryKind, Index, TreeId};
pub use value::Value;

/// The seeds of a random test: `fixed`, and fresh ones.
#[cfg(test)]
fn seeds(fixed: std::ops::Range<u64>) -> bowline_testing::seed::Seeds {
    bowline_testing::Seed::many(fixed, "-p bowline-storage --lib")
}
