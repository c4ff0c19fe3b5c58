//! The graph of a Bowline server: blocks, edges and graph algorithms.
//!
//! ```text
//!   Client::graph ──▶ GraphClient ──▶ write     one request, one revision, sent once
//!                          │
//!                          ├────────▶ lookup    blocks, edges, neighbors
//!                          ├────────▶ walk      traversals, shortest paths
//!                          ├────────▶ whole     order, components, figures; every block, every edge
//!                          ├────────▶ query     queries in Cypher
//!                          └────────▶ algorithms   ranks, communities, triangles, neighborhoods, paths
//! ```
//!
//! etcd has no such service: its servers answer with [`Error::Unimplemented`](crate::Error::Unimplemented).
//!
//! Invariants: a write is put on a connection at most once. A streamed reply without its last part is an
//! error, never a short reply; so is an unknown value of an enumeration.

/// Adds the setting of kinds to a request.
macro_rules! kinds_setting {
    ($name:ident) => {
        impl $name {
            /// Only edges of these kinds. Default: every kind.
            ///
            /// ```no_run
            /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
            /// let order = client.graph().order().kinds(["depends_on"]).await?;
            /// println!("{:?}", order.order);
            /// # Ok(())
            /// # }
            /// ```
            pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> $name {
                self.request.kinds.extend(kinds.into_iter().map(Into::into));
                self
            }
        }
    };
}

mod algorithms;
mod lookup;
mod parts;
mod path_stream;
mod query;
mod walk;
mod whole;
mod wire;
mod write;

use std::future::Future;
use std::sync::Arc;

use bowline_proto::v1::graph_client::GraphClient as Service;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::Result;
use crate::caller::Caller;
use crate::v1;

pub use algorithms::{
    ClusteringCoefficients, Communities, CommunitiesReply, KHop, KHopReply, PageRank, SimplePaths,
    Triangles, ValuesReply,
};
pub use bowline_types::{
    AttributeValue, Attributes, Block, BlockId, BlockKinds, Direction, Edge, EdgeKey, GraphStats,
    GraphWrite, Neighbor, ParseBlockIdError, Path, Stop, Visit,
};
pub use lookup::{Blocks, BlocksReply, Edges, EdgesReply, Neighbors, NeighborsReply};
pub use path_stream::PathStream;
pub use query::{Effects, Node, Query, QueryReply, Relationship, RowStream, Value, Walk};
pub use walk::{PathReply, ShortestPath, Traverse, TraverseReply};
pub use whole::{
    BlockList, BlockStream, Components, ComponentsReply, EdgeList, EdgeStream, Order, OrderReply,
    Ordering, Stats, StatsReply,
};
pub use write::{Write, WriteReply};

pub(crate) use wire::{IntoWire, id_bytes, id_of};

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
    caller: Arc<Caller>,
}

impl GraphClient {
    pub(crate) fn new(caller: Arc<Caller>) -> GraphClient {
        GraphClient { caller }
    }
}

/// A client of the service on a connection.
fn service(caller: &Caller, channel: Channel) -> Service<Channel> {
    Service::new(channel).max_decoding_message_size(caller.settings().reply_bytes_max)
}

/// Sends a read.
async fn ask<M, R, F>(
    caller: &Caller,
    request: M,
    send: impl Fn(Service<Channel>, Request<M>) -> F,
) -> Result<R>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let sent = |channel, request| send(service(caller, channel), request);
    v1::ask(caller, request, sent).await
}

/// Sends a read that is answered in parts, and collects them. `is_last` tells which part is the last.
async fn collect<M, R, F>(
    caller: &Caller,
    request: M,
    is_last: fn(&R) -> bool,
    send: impl Fn(Service<Channel>, Request<M>) -> F,
) -> Result<Vec<R>>
where
    M: Message + Clone,
    F: Future<Output = Result<Response<Streaming<R>>, Status>>,
{
    let sent = |channel, request| send(service(caller, channel), request);
    v1::collect(caller, request, is_last, sent).await
}
