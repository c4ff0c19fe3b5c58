//! Algorithms: a value for each block, communities, neighborhoods, and the search for simple paths.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_types::Revision;
use bytes::Bytes;
use tonic::Request;

use super::parts::Parts;
use super::path_stream::PathStream;
use super::wire::{IntoWire, id_bytes, id_of, ids_of};
use super::{BlockId, Direction, GraphClient, collect, service};
use crate::caller::{Caller, Repeat};
use crate::v1::{awaits, cut_off, header, read_settings, senseless, typed};
use crate::{Header, ReadLevel, Result};

/// A request for PageRank: how often one who follows edges at random comes to each block.
/// [`GraphClient::page_rank`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::Direction;
/// use bowline_client::{ReadLevel, Revision};
///
/// // The ten packages that most others need, directly or not, as of revision 1,000.
/// let ranks = client
///     .graph()
///     .page_rank()
///     .kinds(["depends_on"])
///     .direction(Direction::Out)
///     .damping(0.9)
///     .iterations(50)
///     .limit(10)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for (block, rank) in &ranks.values {
///     println!("{rank:.4} {block}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct PageRank {
    caller: Arc<Caller>,
    request: pb::PageRankRequest,
}

/// A request for communities, blocks with more edges among themselves than to others, by label propagation.
/// [`GraphClient::communities`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// let found = client
///     .graph()
///     .communities()
///     .kinds(["knows"])
///     .iterations(20)
///     .limit(5)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for community in &found.communities {
///     println!("{} blocks", community.len());
/// }
/// println!("{} communities in all", found.count);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Communities {
    caller: Arc<Caller>,
    request: pb::CommunitiesRequest,
}

/// A request for the number of triangles that each block is a corner of. [`GraphClient::triangles`] gives one;
/// `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// let found = client
///     .graph()
///     .triangles()
///     .kinds(["knows"])
///     .limit(10)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// // Each is counted at its three corners.
/// println!("{} triangles, most of them at {:?}", found.sum / 3, found.values.first());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Triangles {
    caller: Arc<Caller>,
    request: pb::TrianglesRequest,
}

/// A request for local clustering coefficients: of the edges that are possible among a block's neighbors, the
/// share that exists. [`GraphClient::clustering_coefficients`] gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// let found = client
///     .graph()
///     .clustering_coefficients()
///     .kinds(["knows"])
///     .undirected()
///     .limit(10)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// println!("{:.3} on average", found.sum / found.count as f64);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct ClusteringCoefficients {
    caller: Arc<Caller>,
    request: pb::ClusteringRequest,
}

/// A request for the blocks within a number of edges of a block. [`GraphClient::k_hop`] gives one; `await`
/// sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, Direction};
/// use bowline_client::{ReadLevel, Revision};
///
/// let near = client
///     .graph()
///     .k_hop(BlockId::from_name("ann"), 2)
///     .direction(Direction::Both)
///     .kinds(["knows"])
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for (block, hops) in &near.blocks {
///     println!("{block} is {hops} away");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct KHop {
    caller: Arc<Caller>,
    request: pb::KHopRequest,
}

/// A search for the paths between two blocks on which no block occurs twice. [`GraphClient::simple_paths`]
/// gives one; `await` begins it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, Direction};
/// use bowline_client::{ReadLevel, Revision};
///
/// // There may be very many: bound their length, or their number.
/// let (ann, dan) = (BlockId::from_name("ann"), BlockId::from_name("dan"));
/// let mut paths = client
///     .graph()
///     .simple_paths(ann, dan)
///     .direction(Direction::Out)
///     .kinds(["knows"])
///     .max_depth(4)
///     .limit(100)
///     .revision(Revision::new(1_000))
///     .level(ReadLevel::Eventual)
///     .await?;
/// while let Some(path) = paths.next().await? {
///     println!("{:?}", path.blocks);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct SimplePaths {
    caller: Arc<Caller>,
    request: pb::SimplePathsRequest,
}

impl GraphClient {
    /// Computes the PageRank of each block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let ranks = client.graph().page_rank().limit(10).await?;
    /// println!("{:?}", ranks.values);
    /// # Ok(())
    /// # }
    /// ```
    pub fn page_rank(&self) -> PageRank {
        PageRank {
            caller: Arc::clone(&self.caller),
            request: pb::PageRankRequest::default(),
        }
    }

    /// Divides the blocks into communities.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().communities().await?;
    /// println!("{} communities", found.count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn communities(&self) -> Communities {
        Communities {
            caller: Arc::clone(&self.caller),
            request: pb::CommunitiesRequest::default(),
        }
    }

    /// Counts the triangles that each block is a corner of.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().triangles().limit(0).await?;
    /// println!("{} triangles", found.sum / 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn triangles(&self) -> Triangles {
        Triangles {
            caller: Arc::clone(&self.caller),
            request: pb::TrianglesRequest::default(),
        }
    }

    /// Computes the local clustering coefficient of each block.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().clustering_coefficients().limit(10).await?;
    /// println!("{:?}", found.values);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clustering_coefficients(&self) -> ClusteringCoefficients {
        ClusteringCoefficients {
            caller: Arc::clone(&self.caller),
            request: pb::ClusteringRequest::default(),
        }
    }

    /// Finds the blocks within `hops` edges of `start`.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::BlockId;
    ///
    /// let near = client.graph().k_hop(BlockId::from_name("ann"), 2).await?;
    /// println!("{} blocks", near.blocks.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn k_hop(&self, start: BlockId, hops: u32) -> KHop {
        KHop {
            caller: Arc::clone(&self.caller),
            request: pb::KHopRequest {
                id: id_bytes(start),
                hops,
                ..pb::KHopRequest::default()
            },
        }
    }

    /// Finds the paths from one block to another on which no block occurs twice.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::BlockId;
    ///
    /// let (ann, dan) = (BlockId::from_name("ann"), BlockId::from_name("dan"));
    /// let mut paths = client.graph().simple_paths(ann, dan).max_depth(3).await?;
    /// println!("{:?}", paths.next().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn simple_paths(&self, from: BlockId, to: BlockId) -> SimplePaths {
        SimplePaths {
            caller: Arc::clone(&self.caller),
            request: pb::SimplePathsRequest {
                from: id_bytes(from),
                to: id_bytes(to),
                ..pb::SimplePathsRequest::default()
            },
        }
    }
}

read_settings!(PageRank);
kinds_setting!(PageRank);
read_settings!(Communities);
kinds_setting!(Communities);
read_settings!(Triangles);
kinds_setting!(Triangles);
read_settings!(ClusteringCoefficients);
kinds_setting!(ClusteringCoefficients);
read_settings!(KHop);
kinds_setting!(KHop);
read_settings!(SimplePaths);
kinds_setting!(SimplePaths);
awaits!(PageRank, ValuesReply<f64>);
awaits!(Communities, CommunitiesReply);
awaits!(Triangles, ValuesReply<u64>);
awaits!(ClusteringCoefficients, ValuesReply<f64>);
awaits!(KHop, KHopReply);
awaits!(SimplePaths, PathStream);

/// Adds the setting of the number of results to a request.
macro_rules! limit_setting {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = $what]
            ///
            /// ```no_run
            /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
            /// let largest = client.graph().page_rank().limit(10).await?;
            /// println!("{:?}", largest.values);
            /// # Ok(())
            /// # }
            /// ```
            pub fn limit(mut self, count: u64) -> $name {
                self.request.limit = Some(count);
                self
            }
        }
    };
}

limit_setting!(
    PageRank,
    "Only so many blocks with the largest ranks. Default: all."
);
limit_setting!(
    Communities,
    "Only so many of the largest communities. Default: all."
);
limit_setting!(
    Triangles,
    "Only so many blocks in most triangles. Default: all."
);
limit_setting!(
    ClusteringCoefficients,
    "Only so many blocks with the largest coefficients. Default: all."
);
limit_setting!(
    SimplePaths,
    "At most this many paths. Default: the limit of the server."
);

/// Adds the setting of the direction to a request.
macro_rules! direction_setting {
    ($name:ident) => {
        impl $name {
            /// The direction in which edges are followed. Default: [`Direction::Out`].
            ///
            /// ```no_run
            /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
            /// # use bowline_client::graph::{BlockId, Direction};
            /// # let lib = BlockId::from_name("lib");
            /// let near = client.graph().k_hop(lib, 2).direction(Direction::In).await?;
            /// println!("{} blocks", near.blocks.len());
            /// # Ok(())
            /// # }
            /// ```
            pub fn direction(mut self, direction: Direction) -> $name {
                self.request.set_direction(direction.into_wire());
                self
            }
        }
    };
}

direction_setting!(PageRank);
direction_setting!(KHop);
direction_setting!(SimplePaths);

/// Collects the parts of a reply with a value for each block.
macro_rules! values_of {
    ($parts:expr) => {{
        let parts = $parts;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let last = parts.last().ok_or_else(cut_off)?;
        let (count, sum) = (last.count, last.sum);
        let mut values = Vec::new();
        for part in parts {
            pair(&part.blocks, part.values, &mut values)?;
        }
        Ok(ValuesReply {
            header,
            revision,
            values,
            count,
            sum,
        })
    }};
}

/// Blocks with what belongs to each.
fn pair<T>(blocks: &[Bytes], values: Vec<T>, pairs: &mut Vec<(BlockId, T)>) -> Result<()> {
    if blocks.len() != values.len() {
        return Err(senseless("a part has not one value for each block"));
    }
    for (block, value) in blocks.iter().zip(values) {
        pairs.push((id_of(block)?, value));
    }
    Ok(())
}

impl PageRank {
    /// The probability of following an edge instead of going anywhere, between 0 and 1. Default: 0.85.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let ranks = client.graph().page_rank().damping(0.9).await?;
    /// println!("{:?}", ranks.values.first());
    /// # Ok(())
    /// # }
    /// ```
    pub fn damping(mut self, damping: f64) -> PageRank {
        self.request.damping = Some(damping);
        self
    }

    /// The number of iterations, at most 10,000. Default: 20.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let ranks = client.graph().page_rank().iterations(50).await?;
    /// println!("{:?}", ranks.values.first());
    /// # Ok(())
    /// # }
    /// ```
    pub fn iterations(mut self, iterations: u32) -> PageRank {
        self.request.iterations = Some(iterations);
        self
    }

    async fn send(self) -> Result<ValuesReply<f64>> {
        values_of!(
            collect(
                &self.caller,
                self.request,
                |part: &pb::RealValuesReply| part.is_last,
                |mut service, request| async move { service.page_rank(request).await },
            )
            .await?
        )
    }
}

impl Triangles {
    async fn send(self) -> Result<ValuesReply<u64>> {
        values_of!(
            collect(
                &self.caller,
                self.request,
                |part: &pb::WholeValuesReply| part.is_last,
                |mut service, request| async move { service.triangles(request).await },
            )
            .await?
        )
    }
}

impl ClusteringCoefficients {
    /// Ignores the directions of edges. Default: an edge each way is possible, and counts.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().clustering_coefficients().undirected().await?;
    /// println!("{:.3} on average", found.sum / found.count as f64);
    /// # Ok(())
    /// # }
    /// ```
    pub fn undirected(mut self) -> ClusteringCoefficients {
        self.request.undirected = true;
        self
    }

    async fn send(self) -> Result<ValuesReply<f64>> {
        values_of!(
            collect(
                &self.caller,
                self.request,
                |part: &pb::RealValuesReply| part.is_last,
                |mut service, request| async move { service.clustering(request).await },
            )
            .await?
        )
    }
}

/// A value for each block.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::ValuesReply;
///
/// let ranks: ValuesReply<f64> = client.graph().page_rank().limit(3).await?;
/// for (block, rank) in &ranks.values {
///     println!("{rank:.4} {block}");
/// }
/// println!("of {} blocks at revision {}", ranks.count, ranks.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValuesReply<T> {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The blocks with the largest values, the largest first; of equal ones by id.
    pub values: Vec<(BlockId, T)>,
    /// How many blocks have a value, those that the limit left out among them.
    pub count: u64,
    /// The sum of the values of all these blocks.
    pub sum: T,
}

impl Communities {
    /// The largest number of iterations, at most 10,000; it ends earlier once no label changes. Default: 10.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let found = client.graph().communities().iterations(30).await?;
    /// println!("{} communities", found.count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn iterations(mut self, iterations: u32) -> Communities {
        self.request.iterations = Some(iterations);
        self
    }

    async fn send(self) -> Result<CommunitiesReply> {
        let parts = collect(
            &self.caller,
            self.request,
            |part: &pb::CommunitiesReply| part.is_last,
            |mut service, request| async move { service.communities(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let count = parts.last().ok_or_else(cut_off)?.count;
        let mut communities: Vec<Vec<BlockId>> = Vec::new();
        for part in parts.into_iter().flat_map(|part| part.communities) {
            let ids = ids_of(&part.blocks)?;
            match communities.last_mut() {
                Some(last) if part.continues => last.extend(ids),
                _ => communities.push(ids),
            }
        }
        Ok(CommunitiesReply {
            header,
            revision,
            communities,
            count,
        })
    }
}

/// The communities.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::CommunitiesReply;
///
/// let found: CommunitiesReply = client.graph().communities().limit(1).await?;
/// let largest = found.communities.first().map(Vec::len);
/// println!("the largest of {} has {largest:?} blocks", found.count);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommunitiesReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The largest first, and of equally large ones by their first block. Each is sorted.
    pub communities: Vec<Vec<BlockId>>,
    /// How many there are, those that the limit left out among them.
    pub count: u64,
}

impl KHop {
    async fn send(self) -> Result<KHopReply> {
        let parts = collect(
            &self.caller,
            self.request,
            |part: &pb::KHopReply| part.is_last,
            |mut service, request| async move { service.k_hop(request).await },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let mut blocks = Vec::new();
        for part in parts {
            pair(&part.blocks, part.hops, &mut blocks)?;
        }
        Ok(KHopReply {
            header,
            revision,
            blocks,
        })
    }
}

/// The blocks around another.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{BlockId, KHopReply};
///
/// let near: KHopReply = client.graph().k_hop(BlockId::from_name("ann"), 2).await?;
/// let direct = near.blocks.iter().filter(|(_, hops)| *hops == 1);
/// println!("{} neighbors", direct.count());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KHopReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The blocks with their distances, the nearest first, and those of one distance by id. The start is not among
    /// them.
    pub blocks: Vec<(BlockId, u32)>,
}

impl SimplePaths {
    /// Bounds the number of edges of a path. Default: no bound.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::BlockId;
    /// # let [app, lib] = ["app", "lib"].map(BlockId::from_name);
    /// let mut paths = client.graph().simple_paths(app, lib).max_depth(4).await?;
    /// while let Some(path) = paths.next().await? {
    ///     println!("{:?}", path.blocks);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_depth(mut self, depth: u32) -> SimplePaths {
        self.request.max_depth = Some(depth);
        self
    }

    async fn send(self) -> Result<PathStream> {
        let caller = &*self.caller;
        let send = |channel, request: Request<pb::SimplePathsRequest>| async move {
            service(caller, channel).simple_paths(request).await
        };
        let called = caller.call(Repeat::Always, None, self.request, send).await;
        let (parts, _) = called.map_err(typed)?;
        let parts = Parts::begin(self.caller, parts, |part| (part.header, part.is_last)).await?;
        Ok(PathStream::new(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_part_has_one_value_for_each_block() {
        let mut pairs = Vec::new();
        let ids = [id_bytes(BlockId(1)), id_bytes(BlockId(2))];
        pair(&ids, vec![3u64, 4], &mut pairs).unwrap();
        assert_eq!(pairs, [(BlockId(1), 3), (BlockId(2), 4)]);
        let uneven = pair(&ids, vec![5u64], &mut pairs);
        assert!(matches!(uneven, Err(Error::InvalidReply { .. })));
    }
}
