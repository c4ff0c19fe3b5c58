//! Traversals and shortest paths.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_types::Revision;

use super::wire::{FromWire, IntoWire, id_bytes};
use super::{BlockId, Direction, GraphClient, Path, Stop, Visit, ask, collect};
use crate::caller::Caller;
use crate::v1::{awaits, cut_off, header, read_settings};
use crate::{Header, ReadLevel, Result};

/// A traversal to be bounded and run. [`GraphClient::traverse`] gives one; `await` runs it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::ReadLevel;
/// use bowline_client::graph::{BlockId, Direction, Stop};
///
/// // What is affected when lib or log changes: within three steps, 10,000 blocks and 16 MiB.
/// let affected = client
///     .graph()
///     .traverse(BlockId::from_name("lib"))
///     .also_from(BlockId::from_name("log"))
///     .direction(Direction::In)
///     .kinds(["depends_on"])
///     .depth_first()
///     .max_depth(3)
///     .limit(10_000)
///     .max_bytes(16 << 20)
///     .level(ReadLevel::Lease)
///     .await?;
/// if affected.stop != Stop::Exhausted {
///     println!("there are more, beyond {} blocks", affected.visits.len());
/// }
///
/// // What they need, in the same state of the graph.
/// let graph = client.graph();
/// for visit in affected.visits {
///     let needed = graph.traverse(visit.id).revision(affected.revision).await?;
///     println!("{} needs {} blocks", visit.id, needed.visits.len() - 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Traverse {
    caller: Arc<Caller>,
    request: pb::TraverseRequest,
}

/// A search for a path. [`GraphClient::shortest_path`] gives one; `await` runs it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::ReadLevel;
/// use bowline_client::graph::{BlockId, Direction};
///
/// let (paris, rome) = (BlockId::from_name("paris"), BlockId::from_name("rome"));
/// let graph = client.graph();
/// // The fewest edges, at most six, in either direction.
/// let short = graph.shortest_path(paris, rome).direction(Direction::Both).max_depth(6).await?;
/// // The least latency over the links, in the same state of the graph, from any member. A link without the
/// // attribute counts as 50.
/// let fast = graph
///     .shortest_path(paris, rome)
///     .kinds(["link"])
///     .weight("latency_ms")
///     .default_weight(50.0)
///     .revision(short.revision)
///     .level(ReadLevel::Eventual)
///     .await?;
/// println!("{:?} and {:?}", short.path, fast.path);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct ShortestPath {
    caller: Arc<Caller>,
    request: pb::ShortestPathRequest,
}

impl GraphClient {
    /// Finds what can be reached from a block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Direction};
    /// # let (_, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let affected = client
    ///     .graph()
    ///     .traverse(lib)
    ///     .direction(Direction::In)
    ///     .kinds(["depends_on"])
    ///     .max_depth(3)
    ///     .limit(10_000)
    ///     .max_bytes(16 << 20)
    ///     .await?;
    /// println!("{} blocks, {:?}", affected.visits.len(), affected.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn traverse(&self, start: BlockId) -> Traverse {
        Traverse {
            caller: Arc::clone(&self.caller),
            request: pb::TraverseRequest {
                starts: vec![id_bytes(start)],
                ..pb::TraverseRequest::default()
            },
        }
    }

    /// Finds a shortest path from one block to another.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let found = client.graph().shortest_path(app, lib).weight("latency_ms").await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shortest_path(&self, from: BlockId, to: BlockId) -> ShortestPath {
        ShortestPath {
            caller: Arc::clone(&self.caller),
            request: pb::ShortestPathRequest {
                from: id_bytes(from),
                to: id_bytes(to),
                ..pb::ShortestPathRequest::default()
            },
        }
    }
}

read_settings!(Traverse);
read_settings!(ShortestPath);
awaits!(Traverse, TraverseReply);
awaits!(ShortestPath, PathReply);

impl Traverse {
    /// Adds a start block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId};
    /// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let found = client.graph().traverse(app).also_from(lib).depth_first().await?;
    /// println!("{}", found.edges_touched);
    /// # Ok(())
    /// # }
    /// ```
    pub fn also_from(mut self, start: BlockId) -> Traverse {
        self.request.starts.push(id_bytes(start));
        self
    }

    /// The direction in which edges are followed. Default: [`Direction::Out`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Direction};
    /// # let lib = BlockId::from_name("lib");
    /// let affected = client.graph().traverse(lib).direction(Direction::In).await?;
    /// println!("{} blocks", affected.visits.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn direction(mut self, direction: Direction) -> Traverse {
        self.request.set_direction(direction.into_wire());
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).kinds(["depends_on"]).await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Traverse {
        self.request.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Follows each path to its end before the next, instead of the nearest blocks first.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).depth_first().await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn depth_first(mut self) -> Traverse {
        self.request.set_order(pb::TraverseOrder::DepthFirst);
        self
    }

    /// At most this many edges from the start. Default: no bound.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).max_depth(3).await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_depth(mut self, depth: u32) -> Traverse {
        self.request.max_depth = Some(depth);
        self
    }

    /// Bounds the number of blocks. Default: the limit of the server.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).limit(1_000).await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, blocks: u64) -> Traverse {
        self.request.limit = Some(blocks);
        self
    }

    /// Bounds the size of the visited blocks as stored, in bytes. Default: no bound.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).max_bytes(16 << 20).await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_bytes(mut self, bytes: u64) -> Traverse {
        self.request.max_bytes = Some(bytes);
        self
    }

    /// Follows at most this many edges of each block, the first in the order of its neighbors. Default: no bound.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).max_neighbors(100).await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_neighbors(mut self, edges: u64) -> Traverse {
        self.request.max_neighbors = Some(edges);
        self
    }

    /// Follows only edges that have this attribute with this value; called several times, only edges that have all.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let app = BlockId::from_name("app");
    /// let found = client.graph().traverse(app).attribute("scope", "build").await?;
    /// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
    /// # Ok(())
    /// # }
    /// ```
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Traverse {
        let (name, value) = (name.into(), value.into());
        self.request.attributes.push(pb::Attribute { name, value });
        self
    }

    async fn send(self) -> Result<TraverseReply> {
        let is_last = |part: &pb::TraverseReply| part.end.is_some();
        let parts = collect(
            &self.caller,
            self.request,
            is_last,
            |mut service, request| async move { service.traverse(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let end = parts.last().and_then(|part| part.end).ok_or_else(cut_off)?;
        let visits = parts.into_iter().flat_map(|part| part.visits);
        Ok(TraverseReply {
            header,
            revision,
            visits: visits.map(Visit::of_wire).collect::<Result<_>>()?,
            stop: Stop::of_wire(end)?,
            edges_touched: end.edges_touched,
        })
    }
}

/// The result of a traversal.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, TraverseReply};
///
/// let found: TraverseReply = client.graph().traverse(BlockId::from_name("app")).await?;
/// for visit in &found.visits {
///     println!("{}{}", "  ".repeat(visit.depth as usize), visit.id);
/// }
/// println!("{} edges of revision {}, {:?}", found.edges_touched, found.revision, found.stop);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraverseReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The blocks, in the order visited, each once.
    pub visits: Vec<Visit>,
    /// Why it ended.
    pub stop: Stop,
    /// The number of edges read.
    pub edges_touched: u64,
}

impl ShortestPath {
    /// The direction in which edges are followed. Default: [`Direction::Out`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::{BlockId, Direction};
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let found = client.graph().shortest_path(app, lib).direction(Direction::Both).await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn direction(mut self, direction: Direction) -> ShortestPath {
        self.request.set_direction(direction.into_wire());
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let found = client.graph().shortest_path(app, lib).kinds(["link"]).await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> ShortestPath {
        self.request.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Minimizes the sum of this numeric edge attribute instead of the number of edges. An edge on the
    /// way without the attribute is an error, unless there is a default weight.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let found = client.graph().shortest_path(app, lib).weight("latency_ms").await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn weight(mut self, attribute: impl Into<String>) -> ShortestPath {
        self.request.weight = Some(attribute.into());
        self
    }

    /// What an edge without the attribute weighs: a finite number of at least 0. Only together with
    /// [`weight`](ShortestPath::weight).
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let found = client.graph().shortest_path(app, lib).weight("latency_ms").default_weight(50.0).await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn default_weight(mut self, weight: f64) -> ShortestPath {
        self.request.default_weight = Some(weight);
        self
    }

    /// Bounds the number of edges, for unweighted paths only. Default: no bound.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let found = client.graph().shortest_path(app, lib).max_depth(6).await?;
    /// println!("{:?}", found.path);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_depth(mut self, depth: u32) -> ShortestPath {
        self.request.max_depth = Some(depth);
        self
    }

    async fn send(self) -> Result<PathReply> {
        let reply = ask(
            &self.caller,
            self.request,
            |mut service, request| async move { service.shortest_path(request).await },
        )
        .await?;
        let (header, revision) = header(reply.header)?;
        Ok(PathReply {
            header,
            revision,
            path: reply.path.map(Path::of_wire).transpose()?,
        })
    }
}

/// The result of a search for a shortest path.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, PathReply};
///
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// let found: PathReply = client.graph().shortest_path(app, lib).await?;
/// match found.path {
///     Some(path) => println!("{} edges: {:?}", path.cost, path.kinds),
///     None => println!("no path at revision {}", found.revision),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PathReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// `None` when no path leads there.
    pub path: Option<Path>,
}
