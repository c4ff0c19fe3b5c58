//! One database on several nodes that agree through Raft.
//!
//! The protocol is `openraft`'s, behind one adapter; here is what it runs on:
//!
//! | module | what it is for |
//! |---|---|
//! | [`types`] | members, proposals, and the names of Raft's values |
//! | [`record`] | how an entry looks, on disk and on the wire |
//! | [`raft`] | the adapter of openraft: log, state machine, network, calls |
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
pub mod member_file;
pub mod node;
pub mod peer;
pub mod raft;
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
