//! Blocks, edges and neighbors.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_types::Revision;

use super::wire::{FromWire, IntoWire, id_bytes};
use super::{Block, BlockId, Direction, Edge, EdgeKey, GraphClient, Neighbor, ask, collect};
use crate::caller::Caller;
use crate::v1::{awaits, cut_off, header, read_settings, senseless};
use crate::{Header, ReadLevel, Result};

/// How many blocks or edges are asked for with one request.
const ASKED_MAX: usize = 1_000;

/// A read of blocks. [`GraphClient::blocks`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::BlockId;
/// use bowline_client::{ReadLevel, Revision};
///
/// // As they were at revision 100, without their contents.
/// let found = client
///     .graph()
///     .blocks(["app", "lib"].map(BlockId::from_name))
///     .without_content()
///     .revision(Revision::new(100))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for block in found.blocks {
///     println!("{} {:?}", block.kinds, block.attributes);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Blocks {
    caller: Arc<Caller>,
    request: pb::GetBlocksRequest,
}

/// A read of edges. [`GraphClient::edges`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::ReadLevel;
/// use bowline_client::graph::{BlockId, EdgeKey};
///
/// let [app, lib, log] = ["app", "lib", "log"].map(BlockId::from_name);
/// let keys = [EdgeKey::new(app, "depends_on", lib), EdgeKey::new(app, "depends_on", log)];
/// let now = client.graph().edges(keys.clone()).level(ReadLevel::Lease).await?;
/// let before = client.graph().edges(keys).revision(now.revision.saturating_sub(100)).await?;
/// println!("{} of 2 edges exist, and {} did", now.edges.len(), before.edges.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Edges {
    caller: Arc<Caller>,
    request: pb::GetEdgesRequest,
}

/// A look around a block. [`GraphClient::neighbors`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, Direction};
/// use bowline_client::{ReadLevel, Revision};
///
/// // The first hundred packages that used lib at revision 1,000, from any member.
/// let users = client
///     .graph()
///     .neighbors(BlockId::from_name("lib"))
///     .direction(Direction::In)
///     .kinds(["depends_on", "builds_with"])
///     .limit(100)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for user in &users.neighbors {
///     println!("{} by {}", user.id, user.kind);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Neighbors {
    caller: Arc<Caller>,
    request: pb::NeighborsRequest,
}

impl GraphClient {
    /// Reads blocks. However many there are, all are of one revision.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let found = client.graph().blocks([app, lib]).without_content().await?;
    /// println!("{} of 2 exist", found.blocks.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocks(&self, ids: impl IntoIterator<Item = BlockId>) -> Blocks {
        let ids = ids.into_iter().map(id_bytes).collect();
        Blocks {
            caller: Arc::clone(&self.caller),
            request: pb::GetBlocksRequest {
                ids,
                ..pb::GetBlocksRequest::default()
            },
        }
    }

    /// Reads edges. However many there are, all are of one revision.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, EdgeKey};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let found = client.graph().edges([EdgeKey::new(app, "depends_on", lib)]).await?;
    /// println!("{:?}", found.edges);
    /// # Ok(())
    /// # }
    /// ```
    pub fn edges(&self, keys: impl IntoIterator<Item = EdgeKey>) -> Edges {
        let keys = keys.into_iter().map(EdgeKey::into_wire).collect();
        Edges {
            caller: Arc::clone(&self.caller),
            request: pb::GetEdgesRequest { keys, read: None },
        }
    }

    /// Finds the blocks one edge away.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Direction};
    /// # let (_, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let users = client.graph().neighbors(lib).direction(Direction::In).limit(100).await?;
    /// println!("{:?}", users.neighbors);
    /// # Ok(())
    /// # }
    /// ```
    pub fn neighbors(&self, id: BlockId) -> Neighbors {
        Neighbors {
            caller: Arc::clone(&self.caller),
            request: pb::NeighborsRequest {
                id: id_bytes(id),
                ..pb::NeighborsRequest::default()
            },
        }
    }
}

read_settings!(Blocks);
read_settings!(Edges);
read_settings!(Neighbors);
awaits!(Blocks, BlocksReply);
awaits!(Edges, EdgesReply);
awaits!(Neighbors, NeighborsReply);

/// How many of what was asked for are answered.
fn answered(count: u64, asked: usize) -> Result<usize> {
    match usize::try_from(count) {
        Ok(count) if (1..=asked).contains(&count) => Ok(count),
        _ => Err(senseless("it answers more or fewer than were asked for")),
    }
}

impl Blocks {
    /// Leaves out the contents.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().blocks([app]).without_content().await?;
    /// println!("{:?}", found.blocks);
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_content(mut self) -> Blocks {
        self.request.without_content = true;
        self
    }

    async fn send(self) -> Result<BlocksReply> {
        let mut request = self.request;
        let mut rest = std::mem::take(&mut request.ids);
        let mut found = Vec::new();
        loop {
            let count = rest.len().min(ASKED_MAX);
            request.ids = rest[..count].to_vec();
            let reply = ask(
                &self.caller,
                request.clone(),
                |mut service, request| async move { service.get_blocks(request).await },
            )
            .await?;
            let (header, revision) = header(reply.header)?;
            // What follows is to be of the same revision.
            request.read.get_or_insert_default().revision = revision.get();
            for block in reply.blocks {
                found.push(Block::of_wire(block)?);
            }
            rest.drain(..answered(reply.answered, count)?);
            if rest.is_empty() {
                return Ok(BlocksReply {
                    header,
                    revision,
                    blocks: found,
                });
            }
        }
    }
}

/// The result of a read of blocks.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, BlocksReply};
///
/// let found: BlocksReply = client.graph().blocks([BlockId::from_name("app")]).await?;
/// match found.blocks.first() {
///     Some(block) => println!("{} bytes at revision {}", block.content.len(), found.revision),
///     None => println!("no such block at revision {}", found.revision),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlocksReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// Those that exist, in the order they were asked for.
    pub blocks: Vec<Block>,
}

impl Edges {
    async fn send(self) -> Result<EdgesReply> {
        let mut request = self.request;
        let mut rest = std::mem::take(&mut request.keys);
        let mut found = Vec::new();
        loop {
            let count = rest.len().min(ASKED_MAX);
            request.keys = rest[..count].to_vec();
            let reply = ask(
                &self.caller,
                request.clone(),
                |mut service, request| async move { service.get_edges(request).await },
            )
            .await?;
            let (header, revision) = header(reply.header)?;
            request.read.get_or_insert_default().revision = revision.get();
            for edge in reply.edges {
                found.push(Edge::of_wire(edge)?);
            }
            rest.drain(..answered(reply.answered, count)?);
            if rest.is_empty() {
                return Ok(EdgesReply {
                    header,
                    revision,
                    edges: found,
                });
            }
        }
    }
}

/// The result of a read of edges.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, EdgeKey, EdgesReply};
///
/// let key = EdgeKey::new(BlockId::from_name("app"), "depends_on", BlockId::from_name("lib"));
/// let found: EdgesReply = client.graph().edges([key]).await?;
/// for edge in &found.edges {
///     println!("{:?} as of revision {}", edge.attributes, found.revision);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgesReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// Those that exist, in the order they were asked for.
    pub edges: Vec<Edge>,
}

impl Neighbors {
    /// The direction in which edges are followed. Default: [`Direction::Out`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Direction};
    /// # let lib = BlockId::from_name("lib");
    /// let users = client.graph().neighbors(lib).direction(Direction::In).await?;
    /// println!("{} users", users.neighbors.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn direction(mut self, direction: Direction) -> Neighbors {
        self.request.set_direction(direction.into_wire());
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let needed = client.graph().neighbors(app).kinds(["depends_on", "builds_with"]).await?;
    /// println!("{} packages", needed.neighbors.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Neighbors {
        self.request.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// At most this many. [`NeighborsReply::more`] says whether there are others. 0 is no limit, as in etcd.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let first = client.graph().neighbors(app).limit(10).await?;
    /// println!("{}", if first.more { "there are more" } else { "that is all" });
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, limit: u64) -> Neighbors {
        self.request.limit = limit;
        self
    }

    async fn send(self) -> Result<NeighborsReply> {
        let is_last = |part: &pb::NeighborsReply| part.is_last;
        let parts = collect(
            &self.caller,
            self.request,
            is_last,
            |mut service, request| async move { service.neighbors(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let more = parts.last().is_some_and(|part| part.more);
        let neighbors = parts.into_iter().flat_map(|part| part.neighbors);
        Ok(NeighborsReply {
            header,
            revision,
            neighbors: neighbors.map(Neighbor::of_wire).collect::<Result<_>>()?,
            more,
        })
    }
}

/// The neighbors of a block.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, NeighborsReply};
///
/// let lib = BlockId::from_name("lib");
/// let found: NeighborsReply = client.graph().neighbors(lib).limit(10).await?;
/// let more = if found.more { " and more" } else { "" };
/// println!("{}{more} at revision {}", found.neighbors.len(), found.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NeighborsReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// By kind, then by id; for both directions those it points to come first.
    pub neighbors: Vec<Neighbor>,
    /// Whether the limit left some out.
    pub more: bool,
}
