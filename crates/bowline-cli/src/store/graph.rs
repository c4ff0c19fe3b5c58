//! Graph queries of a view, each for a directory and for a cluster.

use bowline::{
    Attributes, Block, BlockId, Edge, EdgeKey, Error, GraphStats, Neighbor, Path, Precedence,
    Revision, Traversal,
};
use bowline_client::graph as wire;

use super::algorithms::local;
use super::view::{RemoteView, View, Visit};
use crate::args::{Bounds, Direction, EdgeFilter, Scope};
use crate::context::at_most;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::Field;

/// Sets the bounds and the order of a traversal.
macro_rules! bounded {
    ($traversal:expr, $bounds:expr, $depth_first:expr) => {{
        let bounds: &Bounds = $bounds;
        let mut traversal = set!(
            $traversal,
            max_depth(bounds.max_depth),
            limit(bounds.limit),
            max_bytes(bounds.max_bytes),
            max_neighbors(bounds.max_neighbors)
        );
        for (name, value) in &bounds.attributes {
            traversal = traversal.attribute(name, value);
        }
        if $depth_first {
            traversal.depth_first()
        } else {
            traversal
        }
    }};
}

/// The statistics of a graph, each under its name.
fn named(revision: Revision, stats: &GraphStats) -> Vec<(&'static str, Field)> {
    vec![
        ("revision", revision.into()),
        ("blocks", stats.blocks.into()),
        ("edges", stats.edges.into()),
        (
            "blocks_by_kind",
            Field::Counts(stats.blocks_by_kind.clone()),
        ),
        ("edges_by_kind", Field::Counts(stats.edges_by_kind.clone())),
        ("self_loops", stats.self_loops.into()),
        ("out_degree_max", stats.out_degree_max.into()),
        ("in_degree_max", stats.in_degree_max.into()),
        ("degree_mean", Field::Real(stats.degree_mean)),
        ("strong_components", stats.strong_components.into()),
        ("weak_components", stats.weak_components.into()),
        ("triangles", stats.triangles.into()),
        ("average_clustering", Field::Real(stats.average_clustering)),
        ("view_memory", Field::Size(stats.view_memory_bytes)),
    ]
}

/// The direction of the library.
pub(crate) fn direction(direction: Direction) -> bowline::Direction {
    match direction {
        Direction::Out => bowline::Direction::Out,
        Direction::In => bowline::Direction::In,
        Direction::Both => bowline::Direction::Both,
    }
}

impl View<'_> {
    /// A block.
    pub(crate) fn block(&self, id: BlockId) -> Result<Option<Block>, Failure> {
        match self {
            View::Local(snapshot) => Ok(snapshot.graph().block(id)?),
            View::Remote(view) => Ok(view.blocks(&[id], true)?.pop()),
        }
    }

    /// The attributes of those of the blocks that exist.
    pub(crate) fn attributes(
        &self,
        ids: &[BlockId],
    ) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        match self {
            View::Local(snapshot) => {
                let graph = snapshot.graph();
                let blocks = ids.iter().map(|id| graph.block(*id));
                let found = blocks.filter_map(Result::transpose);
                Ok(found
                    .map(|found| found.map(|block| (block.id, block.attributes)))
                    .collect::<bowline::Result<_>>()?)
            }
            View::Remote(view) => {
                let blocks = view.blocks(ids, false)?.into_iter();
                Ok(blocks.map(|block| (block.id, block.attributes)).collect())
            }
        }
    }

    /// Every block with an attribute, by id.
    pub(crate) fn having(
        &self,
        name: &str,
        value: &str,
    ) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        let mut found = Vec::new();
        match self {
            View::Local(_) => self.for_each_block(&mut |block| {
                if block
                    .attributes
                    .get(name)
                    .is_some_and(|held| held.reads(value))
                {
                    found.push((block.id, block.attributes));
                }
                Ok(())
            })?,
            View::Remote(view) => {
                let list = view.remote.graph.list_blocks().without_content();
                let mut stream = ask!(view, list.attribute(name, value), revision());
                while let Some(part) = view.remote.wait(stream.next())? {
                    let part = part.into_iter();
                    found.extend(part.map(|block| (block.id, block.attributes)));
                }
            }
        }
        Ok(found)
    }

    /// The blocks one edge away; more than `limit` need not be given.
    pub(crate) fn neighbors(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        limit: Option<u64>,
    ) -> Result<Vec<Neighbor>, Failure> {
        let view = match self {
            View::Local(snapshot) => {
                let kinds = &edges.scope.kinds;
                let way = direction(edges.direction);
                return Ok(local(snapshot).first_neighbors(start, way, kinds, at_most(limit))?);
            }
            View::Remote(view) => view,
        };
        let request = view
            .remote
            .graph
            .neighbors(start)
            .direction(direction(edges.direction))
            .kinds(&edges.scope.kinds);
        // 0 would be all.
        let asked = limit.map(|limit| limit.max(1));
        let reply = ask!(view, set!(request, limit(asked)));
        let count = reply.neighbors.len();
        if reply.more && asked.is_none_or(|asked| (count as u64) < asked) {
            let text = format!(
                "the block has more neighbors than the {count} that the server tells at once: \
                 give --limit, or raise the server's --max-traversal-blocks"
            );
            return Err(Failure::new(Exit::Invalid, text));
        }
        Ok(reply.neighbors)
    }

    /// What can be reached.
    pub(crate) fn traverse(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        bounds: &Bounds,
        depth_first: bool,
    ) -> Result<Traversal, Failure> {
        match self {
            View::Local(snapshot) => {
                let traversal = local(snapshot)
                    .traverse(start)
                    .direction(direction(edges.direction))
                    .kinds(&edges.scope.kinds);
                let found = bounded!(traversal, bounds, depth_first).run()?;
                Ok(found.to_traversal())
            }
            View::Remote(view) => {
                let traversal = view
                    .remote
                    .graph
                    .traverse(start)
                    .direction(direction(edges.direction))
                    .kinds(&edges.scope.kinds);
                let reply = ask!(view, bounded!(traversal, bounds, depth_first));
                Ok(Traversal {
                    visits: reply.visits,
                    stop: reply.stop,
                    edges_touched: reply.edges_touched,
                })
            }
        }
    }

    /// A shortest path.
    pub(crate) fn path(
        &self,
        (from, to): (BlockId, BlockId),
        (weight, default_weight): (Option<&str>, Option<f64>),
        edges: &EdgeFilter,
        max_depth: Option<u32>,
    ) -> Result<Option<Path>, Failure> {
        let kinds = &edges.scope.kinds;
        macro_rules! set_all {
            ($search:expr) => {
                set!(
                    $search,
                    weight(weight),
                    default_weight(default_weight),
                    max_depth(max_depth)
                )
            };
        }
        match self {
            View::Local(snapshot) => {
                let search = local(snapshot).shortest_path(from, to);
                let search = search.direction(direction(edges.direction)).kinds(kinds);
                Ok(set_all!(search).find()?)
            }
            View::Remote(view) => {
                let graph = &view.remote.graph;
                let search = graph.shortest_path(from, to);
                let search = search.direction(direction(edges.direction)).kinds(kinds);
                let reply = ask!(view, set_all!(search));
                Ok(reply.path)
            }
        }
    }

    /// An order of all blocks in which every edge leads forward; or else a cycle.
    pub(crate) fn order(
        &self,
        scope: &Scope,
    ) -> Result<Result<Vec<BlockId>, Vec<BlockId>>, Failure> {
        match self {
            View::Local(snapshot) => {
                let first = Precedence::SourceFirst;
                match local(snapshot).topological_order(&scope.kinds, first) {
                    Ok(ids) => Ok(Ok(ids)),
                    Err(Error::Cycle { cycle }) => Ok(Err(cycle)),
                    Err(error) => Err(error.into()),
                }
            }
            View::Remote(view) => {
                let reply = ask!(view, view.remote.graph.order().kinds(&scope.kinds));
                Ok(match reply.order {
                    wire::Ordering::Order(order) => Ok(order),
                    wire::Ordering::Cycle(cycle) => Err(cycle),
                })
            }
        }
    }

    /// The connected components, each sorted, by their first blocks.
    pub(crate) fn components(
        &self,
        scope: &Scope,
        strong: bool,
    ) -> Result<Vec<Vec<BlockId>>, Failure> {
        let kinds = &scope.kinds;
        match self {
            View::Local(snapshot) if strong => {
                Ok(local(snapshot).strongly_connected_components(kinds)?)
            }
            View::Local(snapshot) => Ok(local(snapshot).weakly_connected_components(kinds)?),
            View::Remote(view) => {
                let request = view.remote.graph.components().kinds(kinds);
                let reply = match strong {
                    true => ask!(view, request.strong()),
                    false => ask!(view, request),
                };
                Ok(reply.components)
            }
        }
    }

    /// Statistics, each under its name.
    pub(crate) fn statistics(&self, scope: &Scope) -> Result<Vec<(&'static str, Field)>, Failure> {
        Ok(match self {
            View::Local(snapshot) => {
                named(snapshot.revision(), &local(snapshot).stats(&scope.kinds)?)
            }
            View::Remote(view) => {
                let reply = ask!(view, view.remote.graph.stats().kinds(&scope.kinds));
                named(reply.revision, &reply.stats)
            }
        })
    }

    /// Those of the edges that exist, in the order of the keys.
    pub(crate) fn edges(&self, keys: Vec<EdgeKey>) -> Result<Vec<Edge>, Failure> {
        match self {
            View::Local(snapshot) => {
                let graph = local(snapshot);
                let read = |key: &EdgeKey| graph.edge(key.source, &key.kind, key.target);
                let found = keys.iter().map(read).filter_map(Result::transpose);
                Ok(found.collect::<bowline::Result<_>>()?)
            }
            View::Remote(view) => view.edges(keys),
        }
    }

    /// Visits every block, by id, perhaps without its content.
    pub(crate) fn for_each_block_head(&self, visit: Visit<'_, Block>) -> Result<(), Failure> {
        let view = match self {
            View::Local(_) => return self.for_each_block(visit),
            View::Remote(view) => view,
        };
        let list = view.remote.graph.list_blocks().without_content();
        let mut stream = ask!(view, list, revision());
        while let Some(part) = view.remote.wait(stream.next())? {
            part.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }

    /// Visits every block, by id.
    pub(crate) fn for_each_block(&self, visit: Visit<'_, Block>) -> Result<(), Failure> {
        match self {
            View::Local(snapshot) => {
                let graph = local(snapshot);
                scan(|stopping| graph.for_each_block(|block| stopping(visit(block))))
            }
            View::Remote(view) => {
                let mut stream = ask!(view, view.remote.graph.list_blocks(), revision());
                while let Some(part) = view.remote.wait(stream.next())? {
                    part.into_iter().try_for_each(&mut *visit)?;
                }
                Ok(())
            }
        }
    }

    /// Visits every edge, by source, kind and target.
    pub(crate) fn for_each_edge(&self, visit: Visit<'_, Edge>) -> Result<(), Failure> {
        match self {
            View::Local(snapshot) => {
                let graph = local(snapshot);
                scan(|stopping| graph.for_each_edge(|edge| stopping(visit(edge))))
            }
            View::Remote(view) => {
                let mut stream = ask!(view, view.remote.graph.list_edges(), revision());
                while let Some(part) = view.remote.wait(stream.next())? {
                    part.into_iter().try_for_each(&mut *visit)?;
                }
                Ok(())
            }
        }
    }
}

impl RemoteView<'_> {
    /// Those of the blocks that exist.
    pub(super) fn blocks(&self, ids: &[BlockId], content: bool) -> Result<Vec<Block>, Failure> {
        let request = self.remote.graph.blocks(ids.iter().copied());
        let reply = match content {
            true => ask!(self, request),
            false => ask!(self, request.without_content()),
        };
        Ok(reply.blocks)
    }

    /// Those of the edges that exist.
    pub(super) fn edges(
        &self,
        keys: impl IntoIterator<Item = EdgeKey>,
    ) -> Result<Vec<Edge>, Failure> {
        Ok(ask!(self, self.remote.graph.edges(keys)).edges)
    }
}

/// What was visited, for the library, which knows only its own errors.
type Stopping<'a> = &'a mut dyn FnMut(Result<(), Failure>) -> bowline::Result<()>;

/// Scans; a visitor's failure ends it by an error that stands for it, and so does an interrupt of the user.
fn scan(run: impl FnOnce(Stopping<'_>) -> bowline::Result<()>) -> Result<(), Failure> {
    let mut failure = None;
    let scanned = run(&mut |visited| {
        visited.and_then(|()| interrupt::check()).map_err(|error| {
            failure = Some(error);
            Error::Closed
        })
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(scanned?),
    }
}

#[cfg(test)]
mod tests {
    use bowline_server::Server;
    use bowline_server::config::{Config, Layers};

    use super::*;
    use crate::remote::{Credentials, Remote};

    /// A server with a directory of its own, on a runtime of its own.
    struct Served {
        runtime: tokio::runtime::Runtime,
        server: Option<Server>,
        _directory: tempfile::TempDir,
    }

    impl Served {
        fn start() -> (Served, Remote) {
            let directory = tempfile::tempdir().unwrap();
            let peer = format!("http://127.0.0.1:{}", bowline_testing::ports::free_port());
            let mut layers = Layers::default();
            for (key, value) in [
                (
                    "data-dir",
                    &*directory.path().join("data").display().to_string(),
                ),
                ("listen-client-urls", "http://127.0.0.1:0"),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
            ] {
                layers.add_flag(key, value.to_owned()).unwrap();
            }
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let config = Config::from_layers(&layers).unwrap();
            let server = runtime.block_on(Server::start(config)).unwrap();
            let endpoint = server.addresses()[0].to_string();
            let remote = Remote::member(&endpoint, &Credentials::default()).unwrap();
            let served = Served {
                runtime,
                server: Some(server),
                _directory: directory,
            };
            (served, remote)
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            if let Some(server) = self.server.take() {
                self.runtime.block_on(server.shutdown()).unwrap();
            }
        }
    }

    #[test]
    fn every_answer_of_one_reader_is_of_one_revision() {
        let (_served, remote) = Served::start();
        let ids: Vec<_> = (0..2_500).map(BlockId).collect();
        let puts = ids
            .iter()
            .map(|id| wire::GraphWrite::PutBlock(Block::new(*id, "b").attribute("a", "old")));
        remote.wait(remote.graph.write(puts)).unwrap();
        let at = |revision| View::Remote(RemoteView::new(&remote, revision).unwrap());
        let reader = at(None);
        // More than one request asks for: all of them, in order.
        let found = reader.attributes(&ids).unwrap();
        assert!(found.iter().map(|(id, _)| *id).eq(ids.iter().copied()));

        let new = Block::new(BlockId(7), "b").attribute("a", "new");
        remote.wait(remote.graph.put_block(new)).unwrap();
        let gone = remote.graph.delete_block(BlockId(8));
        remote.wait(gone).unwrap();
        assert_eq!(
            reader.block(BlockId(7)).unwrap().unwrap().attributes["a"],
            "old"
        );
        assert_eq!(reader.having("a", "old").unwrap().len(), 2_500);
        let mut count = 0;
        reader
            .for_each_block(&mut |_| {
                count += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(count, 2_500);
        let now = at(None);
        assert_eq!(
            now.block(BlockId(7)).unwrap().unwrap().attributes["a"],
            "new"
        );
        assert_eq!(now.having("a", "old").unwrap().len(), 2_498);
    }
}
