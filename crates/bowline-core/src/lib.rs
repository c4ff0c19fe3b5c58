//! The internals that the library and the cluster share: the state of an open database and the rules of
//! writing.
//!
//! ```text
//!   state        the state of an open database, without handles
//!   write        the rules of writing, each of them once
//!   watch        changes, and the ring that watchers read
//!   lease  kinds deadlines of leases; names of kinds
//!   graph  kv    records, keys, algorithms; entries, ranges, metadata
//!   options  error  trees  text
//! ```
//!
//! A module uses only modules below it; but `kv` knows the changes that watchers get. Users depend on the crate
//! `bowline`, which re-exports the public part.

#![expect(
    missing_docs,
    reason = "most items are between the crates of the project; what users see is documented"
)]

pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod graph;
pub mod kinds;
pub mod kv;
pub mod lease;
pub mod options;
pub mod state;
pub mod text;
pub mod trees;
pub mod watch;
pub mod write;

pub use bowline_storage::Value;
pub use bowline_types::Revision;
pub use error::{Error, Result};
pub use graph::BlockId;

/// The seeds of a random test: `fixed`, and fresh ones.
#[cfg(test)]
fn seeds(fixed: std::ops::Range<u64>) -> bowline_testing::seed::Seeds {
    bowline_testing::Seed::many(fixed, "-p bowline-core --lib")
}
