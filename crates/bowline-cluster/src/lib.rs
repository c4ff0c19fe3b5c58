//! One database replicated by Raft on several nodes.
//!
//! The protocol is `openraft`'s, behind one adapter; this crate has the rest. A module uses only modules above it; but
//! [`types`] has the names of Raft's values from [`raft`], which alone names openraft:
//!
//! | module | contents |
//! |---|---|
//! | [`types`] | members, proposals, and the names of Raft's values |
//! | [`record`] | the encoding of an entry, on disk and on the wire |
//! | [`error`] | the errors of a node and of its log |
//! | [`member_file`] | the identity and the vote of a member's directory |
//! | [`read_turn`] | the read budget of a connection |
//! | [`unread`] | deadlines for what the other side of a connection does not read |
//! | [`peer`] | connections and messages between members |
//! | [`raft`] | the adapter of openraft: log, state machine, network, calls |
//! | [`node`] | a member: proposals, reads, leases, membership |

#[doc(hidden)]
pub mod blocking;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod in_place;
mod log_limit;
pub mod member_file;
pub mod node;
pub mod peer;
pub mod raft;
pub mod read_turn;
pub mod record;
pub mod types;
pub mod unread;

pub use bowline_storage::histogram::{Histogram, HistogramSnapshot};
pub use error::{Error, Result};
pub use node::{
    Applied, CallerClient, Frozen, FrozenTable, Leadership, LeaseStatus, LocalClient, MemberInfo,
    Node, NodeConfig, NodeMetrics, Read, ReadLevel, ReadPoint, Restored, Saved, Status, VisitNeeds,
    command_bytes, frozen_contents, restore,
};
pub use peer::PeerMetrics;
