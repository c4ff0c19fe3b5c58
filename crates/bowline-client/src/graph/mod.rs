//! The graph of a Bowline server: blocks, edges, and questions about how they hang together.
//!
//! ```text
//!   Client::graph ──▶ GraphClient ──▶ write     one request, one revision, sent once
//!                          │
//!                          ├────────▶ lookup    blocks, edges, neighbours
//!                          ├────────▶ walk      traversals, shortest paths
//!                          └────────▶ whole     order, components, figures; every block, every edge
//! ```
//!
//! etcd has no such service: its servers answer with [`Error::Unimplemented`](crate::Error::Unimplemented).
//!
//! Invariants: a write is put on a connection at most once. An answer in parts that ends without its end is
//! an error, never a short answer; a value of an enumeration that is not known is one, too.

mod block_id;
mod lookup;
mod types;
mod walk;
mod whole;
mod write;

use std::future::Future;
use std::sync::Arc;

use bowline_proto::v1::graph_client::GraphClient as Service;
use bytes::Bytes;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::Result;
use crate::pool::Pool;
use crate::v1::{self, cut_off, header, senseless, typed};

pub use block_id::{BlockId, ParseBlockIdError};
pub use lookup::{Blocks, BlocksReply, Edges, EdgesReply, Neighbors, NeighborsReply};
pub use types::{Attributes, Block, Direction, Edge, EdgeKey, Neighbor, Path, Stop, Visit};
pub use walk::{PathReply, ShortestPath, Traverse, TraverseReply};
pub use whole::{
    BlockList, BlockStream, Components, ComponentsReply, EdgeList, EdgeStream, GraphStats, Order,
    OrderReply, Ordering, Stats,
};
pub use write::{GraphWrite, Write, WriteReply};

/// The verbs of the graph. [`Client::graph`](crate::Client::graph) gives it; clones share connections.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{Block, BlockId, Direction, Edge, GraphWrite};
///
/// let graph = client.graph();
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// // All at one revision, or none of it.
/// graph
///     .write([
///         GraphWrite::PutBlock(Block::new(app, "package")),
///         GraphWrite::PutBlock(Block::new(lib, "package")),
///         GraphWrite::PutEdge(Edge::new(app, "depends_on", lib)),
///     ])
///     .await?;
/// let users = graph.traverse(lib).direction(Direction::In).max_depth(3).await?;
/// println!("{} blocks, stopped: {:?}", users.visits.len(), users.stop);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GraphClient {
    pool: Arc<Pool>,
}

impl GraphClient {
    pub(crate) fn new(pool: Arc<Pool>) -> GraphClient {
        GraphClient { pool }
    }
}

/// Gives a request the two settings that every read has.
macro_rules! read_settings {
    ($name:ident) => {
        impl $name {
            /// Replaces both.
            #[allow(dead_code, reason = "not every read is one of a transaction")]
            pub(crate) fn read_at(mut self, read: bowline_proto::v1::Read) -> $name {
                self.request.read = Some(read);
                self
            }

            /// How fresh it has to be. Default: [`ReadLevel::Linearizable`].
            pub fn level(mut self, level: ReadLevel) -> $name {
                self.request
                    .read
                    .get_or_insert_default()
                    .set_level(crate::v1::wire_level(level));
                self
            }

            /// As it was at this revision.
            pub fn revision(mut self, revision: u64) -> $name {
                self.request.read.get_or_insert_default().revision = revision;
                self
            }
        }
    };
}

/// Lets a request be awaited.
macro_rules! awaits {
    ($name:ident, $reply:ty) => {
        impl std::future::IntoFuture for $name {
            type Output = Result<$reply>;
            type IntoFuture = crate::BoxFuture<$reply>;

            fn into_future(self) -> crate::BoxFuture<$reply> {
                Box::pin(self.send())
            }
        }
    };
}

pub(crate) use {awaits, read_settings};

pub(crate) fn id_bytes(id: BlockId) -> Bytes {
    Bytes::copy_from_slice(&id.to_bytes())
}

pub(crate) fn id_of(bytes: &[u8]) -> Result<BlockId> {
    let bytes = bytes.try_into();
    bytes
        .map(BlockId::from_bytes)
        .map_err(|_| senseless("a block's id has not 16 bytes"))
}

fn ids_of(all: &[Bytes]) -> Result<Vec<BlockId>> {
    all.iter().map(|bytes| id_of(bytes)).collect()
}

/// A client of the service on a connection.
fn service(pool: &Pool, channel: Channel) -> Service<Channel> {
    Service::new(channel).max_decoding_message_size(pool.settings().reply_bytes_max)
}

/// Sends a read.
async fn ask<M, R, F>(
    pool: &Pool,
    request: M,
    send: impl Fn(Service<Channel>, Request<M>) -> F,
) -> Result<R>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let sent = |channel, request| send(service(pool, channel), request);
    v1::ask(pool, request, sent).await
}

/// Sends a read that is answered in parts, and collects them. `is_last` tells which part is the last.
async fn collect<M, R, F>(
    pool: &Pool,
    request: M,
    is_last: fn(&R) -> bool,
    send: impl Fn(Service<Channel>, Request<M>) -> F,
) -> Result<Vec<R>>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<Streaming<R>>, Status>>,
{
    let sent = |channel, request| send(service(pool, channel), request);
    v1::collect(pool, request, is_last, sent).await
}
