//! The adapter of openraft, and the only module that names it.
//!
//! ```text
//!   handle          the node's calls, and its view of the state
//!   network         openraft's messages over the links to peers, both ways
//!   state_machine   committed entries into the replica, and replies to `waiters`
//!   log_store       the log and the vote over the engine's log
//!   types           the types that openraft is instantiated with
//! ```
//!
//! Imports point down, and none of these modules knows the node. The node sees this crate's types: errors are
//! [`Error`](crate::Error), calls take and return terms, indices and members. Entries, log ids and
//! memberships are openraft's values under the names of [`types`](crate::types).

pub(crate) mod handle;
pub mod log_store;
pub mod network;
pub(crate) mod repairs;
mod runtime;
pub(crate) mod state_machine;
pub(crate) mod types;
pub(crate) mod waiters;

pub(crate) use handle::{MembershipChange, Outcome, Raft, Settings, Transfer};

/// The target of the log events of the Raft library, by which a subscriber filters them.
pub const LOG_TARGET: &str = "openraft";
