//! What members say to each other, over gRPC (`bowline.peer.v1`).
//!
//! *Appending.* Each replication session of openraft is one long stream: requests go out without
//! waiting for replies, replies come in the order of requests, both carry the request's number.
//! Entries travel as records of the log, their payloads uncopied.
//!
//! *Lanes.* Replication, heartbeats and snapshots have a connection each, so that a heartbeat never
//! waits behind a megabyte. Connections are made when they are needed, go to the next URL of the
//! peer when they fail, and are kept alive by pings.
//!
//! *Snapshots* arrive in `incoming` of the data directory, in chunks of up to a megabyte; every
//! chunk and every file is checked against its CRC-32C and synced before the state machine sees it.
//!
//! Invariants: a request for another cluster is refused before anything else is looked at; what
//! comes from the wire is bounded and checked here, since openraft asserts what it is handed.

mod client;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod link;
mod network;
mod peers;
mod receiver;
mod sender;
mod service;
mod snapshot_data;
mod wire;

pub use client::{PeerClient, is_unsent};
pub use network::{Network, NetworkFactory};
pub use peers::{PeerOptions, Peers};
pub use service::{ClusterMember, ClusterMembers, PeerGrpc, PeerService, ReadLevel, peer_service};
pub use snapshot_data::{SnapshotData, SnapshotFile};

/// Where a snapshot arrives, in the data directory.
pub const INCOMING_DIR: &str = "incoming";
/// The largest part of a file that is sent at once.
const CHUNK_BYTES: usize = 1 << 20;
