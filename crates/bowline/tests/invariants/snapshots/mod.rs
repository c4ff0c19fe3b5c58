//! What snapshots and transactions promise: stable reads, one's own writes, conflicts, atomicity.
//!
//! Each scenario is a *round* that asserts its invariant as it goes. Rounds run before the crash, and
//! again on what every image recovered to, where the reads, versions and conflicts of the new round
//! rest on what the old ones left.

mod anomalies;
mod conflicts;
mod own_writes;
mod reads;

use bowline_testing::model::Change;

pub fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Change {
    Change::put(key.as_ref(), value.as_ref())
}

pub fn delete(key: impl AsRef<[u8]>) -> Change {
    Change::delete(key.as_ref())
}

/// A text as a value.
pub fn some(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    Some(text.as_ref().to_vec())
}
