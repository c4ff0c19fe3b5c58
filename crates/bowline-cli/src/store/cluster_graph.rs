//! The graph of a cluster, as the graph commands ask for it.

use std::cell::Cell;
use std::future::IntoFuture;
use std::time::Duration;

use bowline::{Attributes, Block, BlockId, Edge, Neighbor, Path, Revision};
use bowline_client::graph as wire;
use bowline_client::{KeyRange, ReadLevel};
use bytes::Bytes;

use super::connection::{Remote, check_durability};
use super::graph_reader::{Figures, GraphReader, Order, Reached, Stop};
use crate::args::{Bounds, Direction, EdgeFilter, Scope, Write};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::import::KeyValue;

/// How many keys are asked for at once.
const PAGE: u64 = 1_000;

/// How long a question may take: one about the whole of a large graph takes a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// A cluster's graph at any revision.
pub(crate) struct RemoteGraphs {
    pub(super) remote: Remote,
    pub(super) graph: wire::GraphClient,
}

/// A cluster's graph at one revision.
pub(crate) struct RemoteGraph<'a> {
    pub(super) of: &'a RemoteGraphs,
    /// 0 until the first answer says which is the newest; everything after is asked at that one.
    revision: Cell<Revision>,
}

fn direction(direction: Direction) -> wire::Direction {
    match direction {
        Direction::Out => wire::Direction::Out,
        Direction::In => wire::Direction::In,
        Direction::Both => wire::Direction::Both,
    }
}

impl RemoteGraphs {
    pub(crate) fn of(context: &Context<'_, '_>) -> Result<RemoteGraphs, Failure> {
        let remote = Remote::with_patience(context.endpoints(), context.read_level(), PATIENCE)?;
        let graph = remote.client.graph();
        Ok(RemoteGraphs { remote, graph })
    }

    pub(crate) fn to_write(
        context: &Context<'_, '_>,
        write: &Write,
    ) -> Result<RemoteGraphs, Failure> {
        check_durability(write)?;
        // Finding a block by its name may list the whole graph.
        let remote = Remote::with_patience(context.endpoints(), context.read_level(), PATIENCE)?;
        let graph = remote.client.graph();
        Ok(RemoteGraphs { remote, graph })
    }

    /// To import into: what is there already is read as fresh as can be, whatever the command line says.
    pub(crate) fn to_import(
        context: &Context<'_, '_>,
        write: &Write,
    ) -> Result<RemoteGraphs, Failure> {
        check_durability(write)?;
        let remote = Remote::to(context.endpoints(), ReadLevel::Linearizable)?;
        let graph = remote.client.graph();
        Ok(RemoteGraphs { remote, graph })
    }

    pub(crate) fn at(&self, revision: Option<Revision>) -> Result<RemoteGraph<'_>, Failure> {
        if revision == Some(0) {
            // What a directory says; on the wire it would be the newest.
            return Err(bowline_client::Error::Compacted {
                compact_revision: None,
            }
            .into());
        }
        Ok(RemoteGraph {
            of: self,
            revision: Cell::new(revision.unwrap_or(0)),
        })
    }

    /// The newest revision.
    pub(crate) fn newest(&self) -> Result<Revision, Failure> {
        let get = self.remote.client.get("\0").level(self.remote.level);
        Ok(self.remote.wait(get.into_future())?.header.revision)
    }

    /// Visits every key at a revision, in order.
    pub(crate) fn for_each_pair(
        &self,
        revision: Revision,
        visit: &mut dyn FnMut(KeyValue) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut start = Bytes::from_static(b"\0");
        loop {
            let get = self.remote.client.range(KeyRange::starting_at(start));
            let get = get.level(self.remote.level).revision(revision).limit(PAGE);
            let reply = self.remote.wait(get.into_future())?;
            let next = reply
                .entries
                .last()
                .map(|last| [&last.key[..], b"\0"].concat());
            for entry in reply.entries {
                visit(KeyValue {
                    key: entry.key.to_vec(),
                    value: entry.value.to_vec(),
                })?;
            }
            match next {
                Some(next) if reply.more => start = next.into(),
                _ => return Ok(()),
            }
        }
    }

    /// Writes; gives whether something changed, and the revision.
    fn write(&self, write: wire::GraphWrite) -> Result<(bool, Revision), Failure> {
        let reply = self
            .remote
            .wait(async { self.graph.write([write]).await })?;
        let changed = reply.changed.first().copied().unwrap_or(false);
        Ok((changed, reply.header.revision))
    }

    pub(crate) fn put_block(&self, block: &Block) -> Result<Revision, Failure> {
        Ok(self.write(wire::GraphWrite::PutBlock(block.clone()))?.1)
    }

    pub(crate) fn delete_block(&self, id: BlockId) -> Result<Option<Revision>, Failure> {
        let (is_gone, revision) = self.write(wire::GraphWrite::DeleteBlock(id))?;
        Ok(is_gone.then_some(revision))
    }

    pub(crate) fn put_edge(&self, edge: &Edge) -> Result<Revision, Failure> {
        Ok(self.write(wire::GraphWrite::PutEdge(edge.clone()))?.1)
    }

    pub(crate) fn delete_edge(
        &self,
        source: BlockId,
        kind: &str,
        target: BlockId,
    ) -> Result<Option<Revision>, Failure> {
        let key = wire::EdgeKey::new(source, kind, target);
        let (is_gone, revision) = self.write(wire::GraphWrite::DeleteEdge(key))?;
        Ok(is_gone.then_some(revision))
    }
}

impl RemoteGraph<'_> {
    /// Asks at the level of the command line and at one revision.
    pub(super) fn ask<T>(
        &self,
        question: impl AsyncFnOnce(
            &wire::GraphClient,
            ReadLevel,
            Revision,
        ) -> bowline_client::Result<(T, Revision)>,
    ) -> Result<T, Failure> {
        let remote = &self.of.remote;
        let asked = question(&self.of.graph, remote.level, self.revision.get());
        let (answer, revision) = remote.wait(asked)?;
        self.revision.set(revision);
        Ok(answer)
    }

    pub(super) fn blocks(&self, ids: &[BlockId], content: bool) -> Result<Vec<Block>, Failure> {
        self.ask(async |graph, level, revision| {
            let mut asked = graph.blocks(ids.iter().copied());
            if !content {
                asked = asked.without_content();
            }
            let reply = asked.level(level).revision(revision).await?;
            let blocks = reply.blocks;
            Ok((blocks, reply.revision))
        })
    }
}

impl GraphReader for RemoteGraph<'_> {
    fn block(&self, id: BlockId) -> Result<Option<Block>, Failure> {
        Ok(self.blocks(&[id], true)?.pop())
    }

    fn attributes(&self, ids: &[BlockId]) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        let blocks = self.blocks(ids, false)?.into_iter();
        Ok(blocks.map(|block| (block.id, block.attributes)).collect())
    }

    fn having(&self, name: &str, value: &str) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        self.ask(async |graph, level, revision| {
            let asked = graph.list_blocks().without_content().attribute(name, value);
            let mut stream = asked.level(level).revision(revision).await?;
            let mut found = Vec::new();
            while let Some(part) = stream.next().await? {
                let part = part.into_iter();
                found.extend(part.map(|block| (block.id, block.attributes)));
            }
            Ok((found, stream.revision()))
        })
    }

    fn neighbors(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        limit: Option<u64>,
    ) -> Result<Vec<Neighbor>, Failure> {
        let (found, more) = self.ask(async |graph, level, revision| {
            let mut asked = graph
                .neighbors(start)
                .direction(direction(edges.direction))
                .kinds(&edges.scope.kinds);
            if let Some(limit) = limit {
                // 0 would be all.
                asked = asked.limit(limit.max(1));
            }
            let reply = asked.level(level).revision(revision).await?;
            Ok(((reply.neighbors, reply.more), reply.revision))
        })?;
        let asked = limit.and_then(|limit| usize::try_from(limit).ok());
        if more && asked.is_none_or(|asked| found.len() < asked.max(1)) {
            let text = format!(
                "the block has more neighbours than the {} that the server tells at once: give \
                 --limit, or raise the server's --max-traversal-blocks",
                found.len()
            );
            return Err(Failure::new(Exit::Invalid, text));
        }
        Ok(found)
    }

    fn traverse(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        bounds: &Bounds,
        depth_first: bool,
    ) -> Result<Reached, Failure> {
        self.ask(async |graph, level, revision| {
            let mut asked = graph
                .traverse(start)
                .direction(direction(edges.direction))
                .kinds(&edges.scope.kinds);
            if depth_first {
                asked = asked.depth_first();
            }
            if let Some(depth) = bounds.max_depth {
                asked = asked.max_depth(depth);
            }
            if let Some(limit) = bounds.limit {
                asked = asked.limit(limit);
            }
            if let Some(bytes) = bounds.max_bytes {
                asked = asked.max_bytes(bytes);
            }
            let reply = asked.level(level).revision(revision).await?;
            let reached = Reached {
                visits: reply.visits,
                stop: match reply.stop {
                    wire::Stop::Exhausted => Stop::Exhausted,
                    wire::Stop::MaxDepth => Stop::MaxDepth,
                    wire::Stop::Limit => Stop::Limit,
                    wire::Stop::MaxBytes => Stop::MaxBytes,
                    wire::Stop::LimitOfServer => Stop::LimitOfServer,
                },
                edges_touched: reply.edges_touched,
            };
            Ok((reached, reply.revision))
        })
    }

    fn path(
        &self,
        (from, to): (BlockId, BlockId),
        weight: Option<&str>,
        edges: &EdgeFilter,
        max_depth: Option<u32>,
    ) -> Result<Option<Path>, Failure> {
        self.ask(async |graph, level, revision| {
            let mut asked = graph
                .shortest_path(from, to)
                .direction(direction(edges.direction))
                .kinds(&edges.scope.kinds);
            if let Some(weight) = weight {
                asked = asked.weight(weight);
            }
            if let Some(depth) = max_depth {
                asked = asked.max_depth(depth);
            }
            let reply = asked.level(level).revision(revision).await?;
            Ok((reply.path, reply.revision))
        })
    }

    fn order(&self, scope: &Scope) -> Result<Order, Failure> {
        self.ask(async |graph, level, revision| {
            let asked = graph.order().kinds(&scope.kinds);
            let reply = asked.level(level).revision(revision).await?;
            let order = match reply.order {
                wire::Ordering::Order(ids) => Order::Found(ids),
                wire::Ordering::Cycle(ids) => Order::Cycle(ids),
            };
            Ok((order, reply.revision))
        })
    }

    fn components(&self, scope: &Scope, strong: bool) -> Result<Vec<Vec<BlockId>>, Failure> {
        self.ask(async |graph, level, revision| {
            let mut asked = graph.components().kinds(&scope.kinds);
            if strong {
                asked = asked.strong();
            }
            let reply = asked.level(level).revision(revision).await?;
            Ok((reply.components, reply.revision))
        })
    }

    fn stats(&self, scope: &Scope) -> Result<Figures, Failure> {
        self.ask(async |graph, level, revision| {
            let asked = graph.stats().kinds(&scope.kinds);
            let reply = asked.level(level).revision(revision).await?;
            let stats = reply.stats;
            let figures = Figures {
                revision: reply.revision,
                blocks: stats.blocks,
                edges: stats.edges,
                blocks_by_kind: stats.blocks_by_kind,
                edges_by_kind: stats.edges_by_kind,
                self_loops: stats.self_loops,
                out_degree_max: stats.out_degree_max,
                in_degree_max: stats.in_degree_max,
                degree_mean: stats.degree_mean,
                strong_components: stats.strong_components,
                weak_components: stats.weak_components,
                triangles: stats.triangles,
                average_clustering: stats.average_clustering,
                view_memory_bytes: stats.view_memory_bytes,
            };
            Ok((figures, reply.revision))
        })
    }

    fn for_each_block(
        &self,
        visit: &mut dyn FnMut(Block) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stream = self.ask(async |graph, level, revision| {
            let stream = graph.list_blocks().level(level).revision(revision).await?;
            let revision = stream.revision();
            Ok((stream, revision))
        })?;
        while let Some(part) = self.of.remote.wait(stream.next())? {
            part.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }

    fn for_each_edge(
        &self,
        visit: &mut dyn FnMut(Edge) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stream = self.ask(async |graph, level, revision| {
            let stream = graph.list_edges().level(level).revision(revision).await?;
            let revision = stream.revision();
            Ok((stream, revision))
        })?;
        while let Some(part) = self.of.remote.wait(stream.next())? {
            part.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bowline_server::Server;
    use bowline_server::config::{Config, Layers};

    use super::*;

    /// A server with a directory of its own, on a runtime of its own.
    struct Served {
        runtime: tokio::runtime::Runtime,
        server: Option<Server>,
        _directory: tempfile::TempDir,
    }

    impl Served {
        fn start() -> (Served, RemoteGraphs) {
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
            let remote = Remote::to(vec![endpoint], ReadLevel::Linearizable).unwrap();
            let graph = remote.client.graph();
            let served = Served {
                runtime,
                server: Some(server),
                _directory: directory,
            };
            (served, RemoteGraphs { remote, graph })
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
        let (_served, graphs) = Served::start();
        let ids: Vec<_> = (0..2_500).map(BlockId).collect();
        let puts = ids
            .iter()
            .map(|id| wire::GraphWrite::PutBlock(Block::new(*id, "b").attribute("a", "old")));
        graphs
            .remote
            .wait(graphs.graph.write(puts).into_future())
            .unwrap();
        let reader = graphs.at(None).unwrap();
        // More than one request asks for: all of them, in order.
        let found = reader.attributes(&ids).unwrap();
        assert!(found.iter().map(|(id, _)| *id).eq(ids.iter().copied()));

        let new = Block::new(BlockId(7), "b").attribute("a", "new");
        graphs.put_block(&new).unwrap();
        graphs.delete_block(BlockId(8)).unwrap();
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
        let now = graphs.at(None).unwrap();
        assert_eq!(
            now.block(BlockId(7)).unwrap().unwrap().attributes["a"],
            "new"
        );
        assert_eq!(now.having("a", "old").unwrap().len(), 2_498);
    }
}
