//! An async client for Bowline servers and clusters, and for other servers of the etcd v3 API.
//!
//! ```no_run
//! # async fn example() -> bowline_client::Result<()> {
//! let client = bowline_client::Client::connect(["127.0.0.1:2379"]).await?;
//! client.put("greeting", "hello").await?;
//! let found = client.get("greeting").await?;
//! let mut watcher = client.watch(bowline_client::KeyRange::key("greeting")).await?;
//! while let Some(batch) = watcher.next().await? { println!("{:?}", batch.events); }
//! # Ok(())
//! # }
//! ```
//!
//! With a lease, and a watch from where it was put:
//!
//! ```no_run
//! # async fn example() -> bowline_client::Result<()> {
//! use std::time::Duration;
//! use bowline_client::{Client, KeyRange};
//!
//! let client = Client::connect(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"]).await?;
//!
//! let lease = client.grant_lease(Duration::from_secs(10)).await?;
//! let alive = client.keep_alive(lease.id).await?;
//! let put = client.put("workers/7", "up").lease(lease.id).await?;
//!
//! let mut watcher = client
//!     .watch(KeyRange::prefix("workers/"))
//!     .from(put.header.revision)
//!     .await?;
//! while let Some(batch) = watcher.next().await? {
//!     println!("revision {}: {} changes", batch.revision, batch.events.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Failures and retries
//!
//! - The client uses one endpoint, and the next one when that fails.
//! - It retries reads, and any request for which no connection could be made: nothing was sent then.
//! - It sends the creation of an index again, too, which is the same twice, and waits for it as long as it takes.
//! - It never sends a put, a deletion, a transaction that writes, a commit, a write of the graph, a query that may
//!   write, a grant, a quota or a change of members a second time. If no reply confirms or denies it:
//!   [`Error::UnknownOutcome`].
//! - A [`Watcher`] resumes after a broken connection: every change once, in order, or an error.
//! - A [`KeepAlive`] reports a lease as lost as soon as it may be lost.
//! - With a [user](ClientBuilder::user), it logs in by itself, and again when a server refuses its token: requests are
//!   repeated, as they were refused before anything was done, and watches and keep-alives go on.
//!
//! # How it is built
//!
//! ```text
//!   builder ──▶ client        the calls a user sees; it hands out the verbs
//!                 │
//!   verbs         ▼           kv, graph, transaction, history, lease, watch, cluster, auth, maintenance,
//!                 │           quota, index; a verb holds what it calls with, and knows no client
//!                 ▼
//!   v1 ───────▶ caller        the one retry rule
//!                 ▼
//!      login, endpoints       the token that requests show; which server, and the connections to it
//!                 ▼
//!          settings, error
//!                 ▼
//!         key_range, reply
//! ```
//!
//! Arrows only point down.
//!
//! Replies carry a [`Header`], and where the server is Bowline, the level that served a read and the
//! log index it had applied.

#![warn(clippy::missing_errors_doc)]

/// The examples of the guides, compiled as documentation tests. Those that need no server run: the
/// guide to the graph and the page about Cypher have some of the library, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/graph.md")]
#[doc = include_str!("../../../docs/guide/from-etcd.md")]
#[doc = include_str!("../../../docs/guide/users.md")]
#[doc = include_str!("../../../docs/transactions.md")]
#[doc = include_str!("../../../docs/cypher.md")]
struct Guides;

pub mod auth;
mod builder;
mod caller;
mod client;
mod cluster;
mod endpoints;
mod error;
#[cfg(test)]
mod fake;
pub mod graph;
mod history;
mod index;
mod key_range;
mod kv;
mod lease;
mod login;
mod maintenance;
mod problem;
mod quota;
mod reply;
mod settings;
#[cfg(test)]
mod silent;
mod transaction;
mod update;
mod v1;
mod watch;

/// Certificates, keys and CAs, for [`ClientBuilder::tls`].
pub mod tls {
    pub use bowline_tls::{ClientOptions, ClientTls, KeyPairFiles, Protocol, TlsError, Version};
}

pub use bowline_types::{
    Expected, Index, Isolation, LeaseId, MemberId, ParseLeaseIdError, ParseMemberIdError, Quota,
    QuotaLimits, QuotaUse, ReadLevel, Revision, Touched, Update,
};
pub use builder::ClientBuilder;
pub use caller::BoxFuture;
pub use client::Client;
pub use cluster::{AddReply, Member, Members};
pub use error::{Error, Result, code_name};
pub use history::{Author, History, HistoryReply, Version};
pub use key_range::KeyRange;
pub use kv::{
    Compare, Comparison, Delete, DeleteReply, Get, Operation, OperationReply, Put, PutReply,
    RangeReply, SortBy, Txn, TxnReply,
};
pub use lease::{GrantReply, KeepAlive, RevokeReply, TimeToLive};
pub use maintenance::{Alarm, AlarmKind, HashKv, Snapshot, Status};
pub use problem::{QueryProblem, QueryProblemKind};
pub use reply::{Entry, Header};
pub use tonic::Code;
pub use transaction::{Committed, Transaction, TransactionOptions};
pub use update::Updated;
pub use watch::{Batch, Event, EventKind, Watch, Watcher};
