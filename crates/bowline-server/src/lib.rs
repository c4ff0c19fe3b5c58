//! Serves a node of Bowline to clients of etcd v3, and its graph to those of `bowline.v1`.
//!
//! ```text
//!  connection ──▶ transport::Dispatch ──▶ service::* ──▶ convert ──▶ bowline_cluster::LocalClient
//!                       │                     │
//!                       ├── gateway           └── watch (its own threads, see there)
//!                       ├── http
//!                       └── metrics
//! ```
//!
//! Nothing in here stores or agrees on anything: a service checks a request, turns it into the
//! node's own types, and turns the answer back. What clients compare byte for byte, codes and texts
//! of errors, is one table ([`Fault`]).

// The futures of a call into the consensus are nested deeply.
#![recursion_limit = "256"]

mod checks;
pub mod config;
mod context;
mod convert;
mod counters;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod hosts;
mod http;
mod memory;
mod metrics;
mod open_files;
mod read_threads;
mod restore;
mod run;
mod server;
mod service;
mod settings;
mod snapshot_file;
mod status;
mod transport;
mod version;
mod watch;

pub use restore::{RestoreError, SnapshotSummary, restore_snapshot, snapshot_summary};
pub use run::run;
pub use server::{ServeError, Server};
pub use snapshot_file::{BadSnapshot, SnapshotFile};
pub use status::Fault;
