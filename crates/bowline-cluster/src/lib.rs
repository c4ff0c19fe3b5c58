//! One database on several nodes that agree through Raft.
//!
//! The protocol is `openraft`'s; here is what it runs on, each behind an adapter:
//!
//! | module | what it is for |
//! |---|---|
//! | [`types`] | the types that Raft is instantiated with |
//! | [`record`] | how an entry looks, on disk and on the wire |
//! | [`log_store`] | Raft's log over the engine's log |
//! | [`peer`] | what members say to each other |
//! | [`read_turn`] | how much a connection reads before others run |
//! | [`member_file`] | which member a data directory is, and what it has voted |

pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod in_place;
mod log_limit;
pub mod log_store;
pub mod member_file;
pub mod node;
pub mod peer;
pub mod read_turn;
pub mod record;
pub mod types;

pub use error::{Error, Result};
pub use histogram::{Histogram, HistogramSnapshot};
pub use node::{
    Applied, Frozen, FrozenTable, Leadership, LeaseStatus, LocalClient, MemberInfo, Node,
    NodeConfig, NodeMetrics, Read, ReadLevel, ReadPoint, Restored, Saved, Status, frozen_contents,
    restore,
};
