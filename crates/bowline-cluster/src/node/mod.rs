//! A member of a cluster, in this process.
//!
//! ```text
//!  LocalClient ──execute──► Proposer ──► raft ──► log store (engine's log) ──► peers
//!      ▲   │                            │
//!      │   └─read──► ReadRounds         └─committed──► StateMachine ──► Replica (trees)
//!      └───────────────────── replies ◄────────────────────┘
//! ```
//!
//! | module | what it is for |
//! |---|---|
//! | `start` | which member a directory is, and putting the parts together |
//! | `admission` | how an empty directory becomes a member |
//! | `owed` | what a member has acknowledged and lost |
//! | `proposer` | commands into the log, replies out of the state machine |
//! | `proposal` | what may enter a log |
//! | `vouching` | whether one who asks for a vote is a member |
//! | `reads` | the three levels |
//! | `abdication`, `suspension` | when the leader's lease is not believed |
//! | `leader`, `leader_request`, `service` | what the leader decides, for requests of this member and of others |
//! | `lessor`, `maintenance` | background tasks: leases, membership, the log |

mod abdication;
mod admission;
mod client;
mod config;
mod core;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod info;
mod leader;
mod leader_request;
mod lessor;
mod limits;
mod maintenance;
mod owed;
mod proposal;
mod proposer;
mod reads;
mod restore;
mod service;
mod start;
mod suspension;
#[cfg(test)]
pub(crate) mod tests;
mod vouching;

pub use crate::raft::waiters::Applied;
pub use client::{Frozen, FrozenTable, LocalClient, NodeMetrics, Status};
pub use config::NodeConfig;
pub use core::Leadership;
pub use info::{LeaseStatus, MemberInfo};
pub use reads::{Read, ReadLevel, ReadPoint};
pub use restore::{Restored, Saved, frozen_contents, restore};
pub use start::Node;
