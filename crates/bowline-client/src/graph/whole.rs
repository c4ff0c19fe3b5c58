//! Global algorithms, and reads of the whole graph.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_types::Revision;
use tonic::Request;

use super::parts::Parts;
use super::wire::{FromWire, ids_of};
use super::{Block, BlockId, Edge, GraphClient, GraphStats, ask, collect, service};
use crate::caller::{Caller, Repeat};
use crate::v1::{awaits, cut_off, header, read_settings, typed};
use crate::{Header, ReadLevel, Result};

/// A request for a topological order. [`GraphClient::order`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::Ordering;
/// use bowline_client::{ReadLevel, Revision};
///
/// // Dependencies before their users, as they were at revision 1,000.
/// let reply = client
///     .graph()
///     .order()
///     .kinds(["depends_on"])
///     .target_first()
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// match reply.order {
///     Ordering::Order(blocks) => println!("{} blocks, the first is {:?}", blocks.len(), blocks.first()),
///     Ordering::Cycle(cycle) => println!("a cycle of {} blocks", cycle.len() - 1),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Order {
    caller: Arc<Caller>,
    request: pb::OrderRequest,
}

/// A request for the connected components. [`GraphClient::components`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// // Packages that depended on each other at revision 1,000.
/// let found = client
///     .graph()
///     .components()
///     .kinds(["depends_on"])
///     .strong()
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for component in found.components.iter().filter(|component| component.len() > 1) {
///     println!("{component:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Components {
    caller: Arc<Caller>,
    request: pb::ComponentsRequest,
}

/// A request for statistics. [`GraphClient::stats`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// // Of one kind of edges, as of revision 1,000.
/// let reply = client
///     .graph()
///     .stats()
///     .kinds(["depends_on"])
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// println!("{} triangles", reply.stats.triangles);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Stats {
    caller: Arc<Caller>,
    request: pb::StatsRequest,
}

/// A read of every block. [`GraphClient::list_blocks`] gives one; `await` begins it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// // The packages that were not maintained at revision 1,000, without their contents.
/// let mut blocks = client
///     .graph()
///     .list_blocks()
///     .attribute("state", "unmaintained")
///     .without_content()
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// while let Some(part) = blocks.next().await? {
///     for block in part {
///         println!("{} {:?}", block.id, block.attributes);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct BlockList {
    caller: Arc<Caller>,
    request: pb::ListBlocksRequest,
}

/// A read of every edge. [`GraphClient::list_edges`] gives one; `await` begins it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::ReadLevel;
///
/// // The blocks, and then the edges between just these blocks: both of one revision.
/// let mut blocks = client.graph().list_blocks().await?;
/// while let Some(part) = blocks.next().await? {
///     println!("{} blocks", part.len());
/// }
/// let edges = client.graph().list_edges().kinds(["depends_on"]).revision(blocks.revision());
/// let mut edges = edges.level(ReadLevel::Eventual).await?;
/// while let Some(part) = edges.next().await? {
///     println!("{} edges", part.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct EdgeList {
    caller: Arc<Caller>,
    request: pb::ListEdgesRequest,
}

impl GraphClient {
    /// Finds a topological order of all blocks, or a cycle.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // Dependencies before their users.
    /// let order = client.graph().order().kinds(["depends_on"]).target_first().await?;
    /// println!("{order:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn order(&self) -> Order {
        Order {
            caller: Arc::clone(&self.caller),
            request: pb::OrderRequest::default(),
        }
    }

    /// Finds the weakly connected components.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let components = client.graph().components().strong().await?;
    /// println!("{components:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn components(&self) -> Components {
        Components {
            caller: Arc::clone(&self.caller),
            request: pb::ComponentsRequest::default(),
        }
    }

    /// Computes statistics: counts, degrees, components, triangles.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let stats = client.graph().stats().await?;
    /// println!("{} blocks, {} edges", stats.stats.blocks, stats.stats.edges);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        Stats {
            caller: Arc::clone(&self.caller),
            request: pb::StatsRequest::default(),
        }
    }

    /// Reads every block, by id.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut blocks = client.graph().list_blocks().without_content().await?;
    /// while let Some(part) = blocks.next().await? {
    ///     println!("{} blocks", part.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_blocks(&self) -> BlockList {
        BlockList {
            caller: Arc::clone(&self.caller),
            request: pb::ListBlocksRequest::default(),
        }
    }

    /// Reads every edge, by source, kind and target.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut edges = client.graph().list_edges().kinds(["depends_on"]).await?;
    /// while let Some(part) = edges.next().await? {
    ///     println!("{} edges", part.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_edges(&self) -> EdgeList {
        EdgeList {
            caller: Arc::clone(&self.caller),
            request: pb::ListEdgesRequest::default(),
        }
    }
}

read_settings!(Order);
read_settings!(Components);
read_settings!(Stats);
read_settings!(BlockList);
read_settings!(EdgeList);
awaits!(Order, OrderReply);
awaits!(Components, ComponentsReply);
awaits!(Stats, StatsReply);
awaits!(BlockList, BlockStream);
awaits!(EdgeList, EdgeStream);

kinds_setting!(Order);
kinds_setting!(Components);
kinds_setting!(Stats);
kinds_setting!(EdgeList);

impl Order {
    /// Puts each block after the targets of its edges instead of before them.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let order = client.graph().order().target_first().await?.order;
    /// println!("dependencies come first: {order:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn target_first(mut self) -> Order {
        self.request.target_first = true;
        self
    }

    async fn send(self) -> Result<OrderReply> {
        let is_last = |part: &pb::OrderReply| part.is_last;
        let parts = collect(
            &self.caller,
            self.request,
            is_last,
            |mut service, request| async move { service.order(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let (mut blocks, mut cycle) = (Vec::new(), Vec::new());
        for part in parts {
            blocks.extend(ids_of(&part.blocks)?);
            cycle.extend(ids_of(&part.cycle)?);
        }
        let order = if cycle.is_empty() {
            Ordering::Order(blocks)
        } else {
            Ordering::Cycle(cycle)
        };
        Ok(OrderReply {
            header,
            revision,
            order,
        })
    }
}

/// How all blocks can be ordered.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{OrderReply, Ordering};
///
/// let reply: OrderReply = client.graph().order().await?;
/// let is_acyclic = matches!(reply.order, Ordering::Order(_));
/// println!("acyclic at revision {}: {is_acyclic}", reply.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The order, if there is one.
    pub order: Ordering,
}

/// An order of all blocks, or why there is none.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::Ordering;
///
/// if let Ordering::Cycle(cycle) = client.graph().order().await?.order {
///     let names: Vec<String> = cycle.iter().map(ToString::to_string).collect();
///     println!("{}", names.join(" -> "));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ordering {
    /// Of several orders, the one that has the smallest ids first.
    Order(Vec<BlockId>),
    /// The blocks of one cycle, the first repeated at the end.
    Cycle(Vec<BlockId>),
}

impl Components {
    /// Finds strongly connected components: blocks that all reach each other along edges.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().components().strong().await?;
    /// println!("{} components", found.components.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn strong(mut self) -> Components {
        self.request.strong = true;
        self
    }

    async fn send(self) -> Result<ComponentsReply> {
        let is_last = |part: &pb::ComponentsReply| part.is_last;
        let parts = collect(
            &self.caller,
            self.request,
            is_last,
            |mut service, request| async move { service.components(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let mut components: Vec<Vec<BlockId>> = Vec::new();
        for part in parts.into_iter().flat_map(|part| part.components) {
            let ids = ids_of(&part.blocks)?;
            match components.last_mut() {
                Some(last) if part.continues => last.extend(ids),
                _ => components.push(ids),
            }
        }
        Ok(ComponentsReply {
            header,
            revision,
            components,
        })
    }
}

/// The connected components.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::ComponentsReply;
///
/// let found: ComponentsReply = client.graph().components().await?;
/// let largest = found.components.iter().map(Vec::len).max();
/// println!("the largest of {} has {largest:?} blocks", found.components.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComponentsReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// Each is sorted, and they are sorted by their first block.
    pub components: Vec<Vec<BlockId>>,
}

impl Stats {
    async fn send(self) -> Result<StatsReply> {
        let reply = ask(
            &self.caller,
            self.request,
            |mut service, request| async move { service.stats(request).await },
        )
        .await?;
        let (header, revision) = header(reply.header)?;
        let stats = GraphStats {
            blocks: reply.blocks,
            edges: reply.edges,
            blocks_by_kind: reply.blocks_by_kind,
            edges_by_kind: reply.edges_by_kind,
            self_loops: reply.self_loops,
            out_degree_max: reply.out_degree_max,
            in_degree_max: reply.in_degree_max,
            degree_mean: reply.degree_mean,
            strong_components: reply.strong_components,
            weak_components: reply.weak_components,
            triangles: reply.triangles,
            average_clustering: reply.average_clustering,
            view_memory_bytes: reply.view_memory_bytes,
        };
        Ok(StatsReply {
            header,
            revision,
            stats,
        })
    }
}

/// Statistics of the graph.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::StatsReply;
///
/// let reply: StatsReply = client.graph().stats().await?;
/// for (kind, count) in &reply.stats.blocks_by_kind {
///     println!("{count} {kind} at revision {}", reply.revision);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StatsReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The statistics.
    pub stats: GraphStats,
}

impl BlockList {
    /// Leaves out the contents.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut blocks = client.graph().list_blocks().without_content().await?;
    /// while let Some(part) = blocks.next().await? {
    ///     println!("{} blocks", part.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_content(mut self) -> BlockList {
        self.request.without_content = true;
        self
    }

    /// Only blocks that have this attribute.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut blocks = client.graph().list_blocks().attribute("license", "MIT").await?;
    /// while let Some(part) = blocks.next().await? {
    ///     println!("{} blocks", part.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> BlockList {
        self.request.attribute = Some(pb::Attribute {
            name: name.into(),
            value: value.into(),
        });
        self
    }

    async fn send(self) -> Result<BlockStream> {
        let caller = &*self.caller;
        let send = |channel, request: Request<pb::ListBlocksRequest>| async move {
            service(caller, channel).list_blocks(request).await
        };
        let called = caller.call(Repeat::Always, None, self.request, send).await;
        let (parts, _) = called.map_err(typed)?;
        let parts = Parts::begin(self.caller, parts, |part| (part.header, part.is_last)).await?;
        Ok(BlockStream { parts })
    }
}

impl EdgeList {
    async fn send(self) -> Result<EdgeStream> {
        let caller = &*self.caller;
        let send = |channel, request: Request<pb::ListEdgesRequest>| async move {
            service(caller, channel).list_edges(request).await
        };
        let called = caller.call(Repeat::Always, None, self.request, send).await;
        let (parts, _) = called.map_err(typed)?;
        let parts = Parts::begin(self.caller, parts, |part| (part.header, part.is_last)).await?;
        Ok(EdgeStream { parts })
    }
}

/// Every block, in parts.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// let mut blocks = client.graph().list_blocks().await?;
/// let mut bytes = 0;
/// while let Some(part) = blocks.next().await? {
///     bytes += part.iter().map(|block| block.content.len()).sum::<usize>();
/// }
/// println!("{bytes} bytes at revision {}", blocks.revision());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is read until it is asked for"]
pub struct BlockStream {
    parts: Parts<pb::ListBlocksReply>,
}

impl BlockStream {
    /// The revision that is read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let blocks = client.graph().list_blocks().await?;
    /// println!("every block is of revision {}", blocks.revision());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.parts.revision
    }

    /// The next blocks; `None` after the last.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut blocks = client.graph().list_blocks().await?;
    /// while let Some(part) = blocks.next().await? {
    ///     for block in part {
    ///         println!("{} {}", block.id, block.kinds);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Disconnected`, `TimedOut`, `InvalidReply` when the stream ends before its last part. What came before
    /// is right; read again from the start.
    pub async fn next(&mut self) -> Result<Option<Vec<Block>>> {
        let Some(part) = self.parts.next().await? else {
            return Ok(None);
        };
        part.blocks
            .into_iter()
            .map(Block::of_wire)
            .collect::<Result<_>>()
            .map(Some)
    }
}

/// Every edge, in parts.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// // Every edge of one revision, whatever is written meanwhile.
/// let mut edges = client.graph().list_edges().await?;
/// let mut count = 0;
/// while let Some(part) = edges.next().await? {
///     count += part.len();
/// }
/// println!("{count} edges at revision {}", edges.revision());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is read until it is asked for"]
pub struct EdgeStream {
    parts: Parts<pb::ListEdgesReply>,
}

impl EdgeStream {
    /// The revision that is read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let edges = client.graph().list_edges().await?;
    /// println!("every edge is of revision {}", edges.revision());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.parts.revision
    }

    /// The next edges; `None` after the last.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut edges = client.graph().list_edges().await?;
    /// while let Some(part) = edges.next().await? {
    ///     for edge in part {
    ///         println!("{} {} {}", edge.source, edge.kind, edge.target);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Disconnected`, `TimedOut`, `InvalidReply` when the stream ends before its last part. What came before
    /// is right; read again from the start.
    pub async fn next(&mut self) -> Result<Option<Vec<Edge>>> {
        let Some(part) = self.parts.next().await? else {
            return Ok(None);
        };
        part.edges
            .into_iter()
            .map(Edge::of_wire)
            .collect::<Result<_>>()
            .map(Some)
    }
}
