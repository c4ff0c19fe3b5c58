//! The connections between members: messages of `bowline.peer.v1`, as `frames` where there are many of them, and over gRPC
//! otherwise.
//!
//! *Lanes.* Replication, heartbeats and snapshots have a connection each, so that a heartbeat never waits
//! behind a megabyte. Connections are made on demand, move to the peer's next URL when they fail, and are
//! kept alive by pings.
//!
//! *Snapshots* arrive in `incoming` of the data directory, in chunks of up to a megabyte; every chunk and
//! every file is checked against its CRC-32C and synced before the state machine sees it. Rot does not
//! spread: the sender verifies each table and blob file before it sends anything, and the receiver verifies
//! each one against the state. A snapshot without room on the disk is refused before the first file.
//!
//! *Certificates.* With TLS ([`TlsNetwork`]) each side of a connection verifies the other, and a member is bound to the
//! hosts of its peer URLs: a request that names a member is refused unless the certificate of its connection is for one
//! of them.
//!
//! *The port* (`serve`) bounds what a peer can make this member hold: connections, requests, incomplete
//! messages, silence.
//!
//! Invariants: a request for another cluster, member or incarnation is refused before anything else of it is
//! read (see `peers`); input from the wire is bounded and checked before it is used.

mod address;
mod body;
mod client;
pub(crate) mod frames;
pub(crate) mod link;
mod listener;
pub(crate) mod network;
mod options;
mod peers;
pub(crate) mod port;
pub(crate) mod receiver;
mod secure;
mod snapshot_data;
mod traffic;
mod types;

pub use client::PeerClient;
pub(crate) use client::is_unsent;
pub(crate) use listener::serve;
pub use network::{Connection, Listener, Network, Secured};
pub use options::PeerOptions;
pub(crate) use peers::Memory;
pub use peers::{Acknowledgements, MemberIdentity, Peers};
pub(crate) use port::Port;
pub use port::PortLimits;
pub use secure::TlsNetwork;
pub use snapshot_data::{OutgoingFile, SnapshotData, SnapshotFile};
pub use traffic::PeerMetrics;
pub(crate) use traffic::Traffic;
pub use types::{ClusterMember, ClusterMembers, Confirmation, Unfit};

/// The directory for an arriving snapshot, in the data directory.
pub(crate) const INCOMING_DIR: &str = "incoming";
/// The largest part of a file in one message.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
