//! The server: etcd v3 and `bowline.v1` (graph, store, leases) over a node of Bowline.
//!
//! ```text
//!  connection ──▶ transport::Dispatch ──▶ service::* ──▶ convert ──▶ bowline_cluster::LocalClient
//!                       │                     │
//!                       ├── gateway           └── watch (threads of its own)
//!                       ├── http
//!                       └── metrics
//! ```
//!
//! Modules use only modules below them:
//!
//! ```text
//!  run, restore         the process; a directory from a snapshot
//!  server               the node and its ports
//!  notify, open_files   the service manager; the limit of open files
//!  auto_compaction      trims old history
//!  config               flags, environment and file
//!  transport            connections and calls
//!  front                HTTP/2 of the hot calls
//!  gateway              JSON
//!  http, service        checks and metrics; the gRPC services
//!  audited              a call in the audit log
//!  context              state shared by the services
//!  watch                all watches
//!  audit                the audit log
//!  convert, memory      messages and types; budgets
//!  read_threads, metrics, reply_header, snapshot_file
//!  settings, status     settings of the services; errors and their codes
//!  hosts, url, version
//! ```
//!
//! The server has no storage and no consensus. A service checks a request, converts it to the node's types,
//! and converts the result back. The error codes and texts, which clients compare byte for byte, are one
//! table ([`Fault`]).

// Calls into the consensus have deeply nested futures.
#![recursion_limit = "256"]

mod admission;
mod audit;
mod audited;
mod auto_compaction;
mod callers;
pub mod config;
mod context;
mod convert;
mod credentials;
mod front;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod hosts;
mod http;
mod jwt;
mod login;
mod memory;
mod metrics;
mod notify;
mod open_directory;
mod open_files;
mod passwords;
mod rates;
mod read_threads;
mod reply_header;
mod restore;
mod run;
mod server;
mod service;
mod settings;
mod snapshot_file;
mod status;
#[cfg(test)]
mod test_server;
mod transport;
pub mod url;
mod version;
mod watch;

pub use restore::{RestoreError, SnapshotSummary, restore_snapshot, snapshot_summary};
pub use run::run;
pub use server::{AuditError, ServeError, Server};
pub use snapshot_file::{BadSnapshot, SnapshotFile};
pub use status::Fault;
pub use version::VERSION as ETCD_VERSION;
