//! An async client of a Bowline server or cluster, and of anything else that speaks etcd v3.
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
//! # What it does by itself, and what it never does
//!
//! - It stays with one endpoint, and goes on to the next when that fails.
//! - It tries reads again, and anything for which no connection could be made: nothing was sent then.
//! - It never sends a put, a deletion, a transaction that writes, a commit, a write of the graph, a grant or a
//!   change of members a second time. If no answer says what came of one, that is [`Error::UnknownOutcome`].
//! - A [`Watcher`] resumes after a broken connection, where it was: every change once, in order, or an
//!   error.
//! - A [`KeepAlive`] says that a lease is lost when it may be, not when it certainly is.
//!
//! # How it is built
//!
//! ```text
//!   client                           hands out the verbs
//!     │
//!   kv  watch  lease  cluster  maintenance  history  transaction ──▶ graph
//!     │                                                │
//!     │                                              v1   levels, headers and answers in parts
//!     │                                                │
//!   caller     one endpoint until it fails, then the next; the one retry rule; deadlines, token
//!     │
//!   error  ──▶ types                 keys, levels, headers, ids: they know nothing of the rest
//! ```
//!
//! Imports point down only. A verb holds the caller, which is cheap to clone, never the client.
//!
//! Replies carry a [`Header`], and where the server is Bowline, the level that served a read and the
//! log index it had applied.

mod caller;
mod client;
mod cluster;
mod error;
pub mod graph;
mod history;
mod kv;
mod lease;
mod maintenance;
mod request;
#[cfg(test)]
mod silent;
mod transaction;
mod types;
mod v1;
mod watch;

pub use client::{Client, ClientBuilder};
pub use cluster::{AddReply, Member, Members};
pub use error::{Error, Result, code_name};
pub use history::{History, HistoryReply, Version};
pub use kv::{
    Compare, Comparison, Delete, DeleteReply, Get, Operation, OperationReply, Put, PutReply,
    RangeReply, SortBy, Txn, TxnReply,
};
pub use lease::{GrantReply, KeepAlive, TimeToLive};
pub use maintenance::{Alarm, AlarmKind, HashKv, Snapshot, Status};
pub use request::BoxFuture;
pub use tonic::Code;
pub use transaction::{Committed, Isolation, Transaction, TransactionOptions};
pub use types::{Entry, Header, KeyRange, ReadLevel, Touched};
pub use watch::{Batch, Event, EventKind, Watch, Watcher};
