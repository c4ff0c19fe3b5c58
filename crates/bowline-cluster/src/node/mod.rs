//! A member of a cluster, in this process.
//!
//! ```text
//!  LocalClient ──execute──► Proposer ──► raft ──► log store (engine's log) ──► peers
//!      ▲   │                            │
//!      │   └─read──► ReadRounds         └─committed──► StateMachine ──► Replica (trees)
//!      └───────────────────── replies ◄────────────────────┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `start` | the identity of a directory, and the start of a node |
//! | `parents` | the directories above that of a node |
//! | `admission` | admission of an empty or restored directory |
//! | `owed` | acknowledged entries that a member has lost |
//! | `memory` | what members remember of each other's acknowledgements |
//! | `restored` | the proof that a restored member may vote |
//! | `proposer` | commands into the log, replies out of the state machine |
//! | `proposal` | checks of proposals |
//! | `heavy_turns` | turns of transactions that read much and write |
//! | `vouching` | membership checks of candidates |
//! | `reads` | the three read levels |
//! | `frozen` | copies of the state, for backups |
//! | `abdication`, `suspension` | when the leader's lease is not valid |
//! | `leader`, `leader_request`, `service` | requests to the leader, from this member and from others |
//! | `indexing` | indexes of blocks: the steps in which members build and clear them |
//! | `space` | the quota, before a request reaches the log |
//! | `lessor`, `maintenance` | background tasks: leases, membership, the log |

mod abdication;
mod admission;
mod asking;
mod caller;
mod client;
mod comparison;
mod config;
mod core;
mod damage;
mod frozen;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod heavy_turns;
mod indexing;
mod info;
mod leader;
mod leader_request;
mod lessor;
mod limits;
mod maintenance;
mod memory;
mod owed;
mod parents;
mod proposal;
mod proposer;
mod reads;
mod repair;
mod restore;
mod restored;
mod scrubber;
mod service;
mod space;
mod start;
mod suspension;
#[cfg(test)]
pub(crate) mod tests;
mod vouching;

pub use crate::raft::waiters::Applied;
pub use bowline_types::ReadLevel;
pub use caller::{CallerClient, VisitNeeds};
pub use client::{LocalClient, NodeMetrics};
pub use config::NodeConfig;
pub use core::Leadership;
pub use frozen::{Frozen, FrozenTable};
pub use info::{LeaseStatus, MemberInfo, Status};
pub use proposer::command_bytes;
pub use reads::{Read, ReadPoint};
pub use restore::{Restored, Saved, frozen_contents, restore};
pub use start::Node;
