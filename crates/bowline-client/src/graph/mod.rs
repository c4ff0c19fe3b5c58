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
//! etcd has no such service: its servers answer with [`Error::Unimplemented`].
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

use bowline_proto::v1 as pb;
use bowline_proto::v1::graph_client::GraphClient as Service;
use bytes::Bytes;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::pool::{Pool, Repeat};
use crate::{Error, Header, ReadLevel, Result};

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
            /// How fresh it has to be. Default: [`ReadLevel::Linearizable`].
            pub fn level(mut self, level: ReadLevel) -> $name {
                self.request
                    .read
                    .get_or_insert_default()
                    .set_level(super::wire_level(level));
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

use {awaits, read_settings};

fn wire_level(level: ReadLevel) -> pb::ReadLevel {
    match level {
        ReadLevel::Linearizable => pb::ReadLevel::Linearizable,
        ReadLevel::Lease => pb::ReadLevel::Lease,
        ReadLevel::Eventual => pb::ReadLevel::Eventual,
    }
}

/// What a header says, and the revision that was read.
fn header(header: Option<pb::Header>) -> Result<(Header, u64)> {
    let header = header.ok_or_else(|| senseless("it has no header"))?;
    let level = match pb::ReadLevel::try_from(header.read_level) {
        Ok(pb::ReadLevel::Linearizable) => ReadLevel::Linearizable,
        Ok(pb::ReadLevel::Lease) => ReadLevel::Lease,
        Ok(pb::ReadLevel::Eventual) => ReadLevel::Eventual,
        Err(_) => return Err(senseless("its read level is not known")),
    };
    let known = Header {
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        revision: header.revision,
        raft_term: header.raft_term,
        // A write was read at no revision.
        read_level: (header.read_revision != 0).then_some(level),
        applied_index: Some(header.applied_index),
    };
    Ok((known, header.read_revision))
}

fn senseless(what: &str) -> Error {
    Error::InvalidReply {
        message: what.to_owned(),
    }
}

fn id_bytes(id: BlockId) -> Bytes {
    Bytes::copy_from_slice(&id.to_bytes())
}

fn id_of(bytes: &[u8]) -> Result<BlockId> {
    let bytes = bytes.try_into();
    bytes
        .map(BlockId::from_bytes)
        .map_err(|_| senseless("a block's id has not 16 bytes"))
}

fn ids_of(all: &[Bytes]) -> Result<Vec<BlockId>> {
    all.iter().map(|bytes| id_of(bytes)).collect()
}

/// The service's refusals have no texts to tell them apart by; their codes do.
fn typed(error: Error) -> Error {
    match error {
        Error::Other {
            code: Code::NotFound,
            message,
        } => Error::NotFound { message },
        Error::Other {
            code: Code::InvalidArgument | Code::FailedPrecondition,
            message,
        } => Error::Refused { message },
        other => other,
    }
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
    let (reply, _) = pool
        .call(Repeat::Always, None, request, sent)
        .await
        .map_err(typed)?;
    Ok(reply)
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
    let sent = |channel, request| {
        let answer = send(service(pool, channel), request);
        async move {
            let mut stream = answer.await?.into_inner();
            let mut parts = Vec::new();
            while let Some(part) = stream.message().await? {
                parts.push(part);
            }
            Ok(Response::new(parts))
        }
    };
    let called: Result<(Vec<R>, MetadataMap)> =
        pool.call(Repeat::Always, None, request, sent).await;
    let (parts, _) = called.map_err(typed)?;
    whole(parts, is_last)
}

/// The parts, if the last of them is the last there is.
fn whole<R>(parts: Vec<R>, is_last: fn(&R) -> bool) -> Result<Vec<R>> {
    if parts.last().is_some_and(is_last) {
        Ok(parts)
    } else {
        Err(cut_off())
    }
}

fn cut_off() -> Error {
    Error::Disconnected {
        message: "the answer ended before all of it had come".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_parts_that_ends_without_its_end_is_an_error() {
        let is_last = |part: &bool| *part;
        assert_eq!(whole(vec![false, true], is_last).unwrap(), [false, true]);
        for parts in [vec![], vec![false], vec![true, false]] {
            let cut = whole(parts, is_last).unwrap_err();
            assert!(matches!(cut, Error::Disconnected { .. }));
        }
    }

    #[test]
    fn a_refusal_has_a_type_and_the_words_of_the_server() {
        let of = |code| {
            let message = "do this".to_owned();
            typed(Error::Other { code, message })
        };
        assert!(matches!(of(Code::NotFound), Error::NotFound { .. }));
        for code in [Code::InvalidArgument, Code::FailedPrecondition] {
            assert!(matches!(of(code), Error::Refused { .. }));
            assert_eq!(of(code).to_string(), "do this");
        }
        assert!(matches!(of(Code::Internal), Error::Other { .. }));
    }
}
