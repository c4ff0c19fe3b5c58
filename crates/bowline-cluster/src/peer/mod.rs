//! What members say to each other.

mod snapshot_data;

pub use snapshot_data::{SnapshotData, SnapshotFile};
