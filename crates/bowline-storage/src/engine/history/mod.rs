//! History: which versions stay readable.
//!
//! | file | contents |
//! |---|---|
//! | `pins` | the floor of history, and the pins of snapshots and watches |
//! | `tombstones` | the tombstones that a member of a cluster keeps in addition |

mod pins;
mod tombstones;

pub use pins::{History, HistoryPins, PinError, SnapshotPin, WatchPin};
