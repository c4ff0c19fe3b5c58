//! The internals that the library and the cluster share: the state of an open database and the rules of
//! writing.
//!
//! ```text
//!   state        the state of an open database, without handles
//!   write        the rules of writing, each of them once
//!   quota        what the keys below a prefix take
//!   watch        the ring that watchers read
//!   kv  kinds    entries, ranges, metadata, changes; names of kinds
//!   index        indexes of blocks by attributes: definitions, keys in the order of values
//!   graph lease  records, keys, algorithms; deadlines of leases
//!   options  error  trees  text
//! ```
//!
//! A module uses only modules below it. Users depend on the crate `bowline`, which re-exports the public part.

#![expect(
    missing_docs,
    reason = "most items are between the crates of the project; what users see is documented"
)]

pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod graph;
pub mod index;
pub mod kinds;
pub mod kv;
pub mod lease;
pub mod options;
pub mod quota;
pub mod state;
pub mod text;
pub mod trees;
pub mod watch;
pub mod write;

pub use bowline_storage::Value;
pub use bowline_types::{BlockId, Revision};
pub use error::{Error, Result};

/// The seeds of a random test: `fixed`, and fresh ones.
#[cfg(test)]
fn seeds(fixed: std::ops::Range<u64>) -> bowline_testing::seed::Seeds {
    bowline_testing::Seed::many(fixed, "-p bowline-core --lib")
}
