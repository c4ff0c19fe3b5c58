//! Many blocks and edges, and the neighbors of many blocks, by one call.

use std::ops::ControlFlow;

use bowline_core::error::Result;
use bowline_core::graph::{Block, BlockId, Direction, Edge};

use super::reader::Sources;
use super::records::unregistered;
use super::{Graph, NeighborRef};

/// Blocks that are read between two looks at whether the question was canceled.
const UNCHECKED: usize = 1024;

impl Graph {
    /// Reads several blocks, in the order of the ids. Faster than as many calls of [`Graph::block`].
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let ids = ["app", "absent"].map(BlockId::from_name);
    /// db.transact(|tx| tx.put_block(&Block::new(ids[0], "package")))?;
    /// let blocks = db.snapshot().graph().many_blocks(&ids)?;
    /// assert_eq!(blocks[0].as_ref().and_then(|block| block.kinds.only()), Some("package"));
    /// assert!(blocks[1].is_none());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn many_blocks(&self, ids: &[BlockId]) -> Result<Vec<Option<Block>>> {
        self.snapshot.many_blocks(ids)
    }

    /// Reads several edges, each given by its source, kind and target, in the order asked for. Faster than as many calls of
    /// [`Graph::edge`].
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # let [a, b] = ["a", "b"].map(BlockId::from_name);
    /// db.transact(|tx| {
    ///     tx.put_block(&Block::new(a, "host"))?;
    ///     tx.put_block(&Block::new(b, "host"))?;
    ///     tx.put_edge(&Edge::new(a, "link", b))
    /// })?;
    /// let edges = db.snapshot().graph().many_edges(&[(a, "link", b), (a, "never used", b)])?;
    /// assert!(edges[0].is_some() && edges[1].is_none());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn many_edges(&self, edges: &[(BlockId, &str, BlockId)]) -> Result<Vec<Option<Edge>>> {
        self.snapshot.many_edges(edges)
    }

    /// Calls `visit` with the neighbors of each of some blocks: with the place of the block in `ids`, and a neighbor as
    /// [`Graph::visit_neighbors`] lends it. Blocks come in the order of `ids`, the neighbors of each in theirs. Where the
    /// graph view answers, the memory of many blocks is read at once, which takes less time than to ask for one block after
    /// the other.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Direction, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # let [app, cli, lib] = ["app", "cli", "lib"].map(BlockId::from_name);
    /// # db.transact(|tx| {
    /// #     for id in [app, cli, lib] {
    /// #         tx.put_block(&Block::new(id, "package"))?;
    /// #     }
    /// #     tx.put_edge(&Edge::new(app, "depends_on", lib))?;
    /// #     tx.put_edge(&Edge::new(cli, "depends_on", lib))
    /// # })?;
    /// let mut needs = vec![0; 3];
    /// let graph = db.snapshot().graph();
    /// graph.visit_neighbors_of_many(&[app, lib, cli], Direction::Out, ["depends_on"], |place, neighbor| {
    ///     assert_eq!(neighbor.id, lib);
    ///     needs[place] += 1;
    /// })?;
    /// assert_eq!(needs, [1, 0, 1]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `MissingBlock` for the first block that does not exist, after the neighbors of the others were visited;
    /// `UnknownKind`; `InvalidRecord`, `Storage`.
    pub fn visit_neighbors_of_many<N: AsRef<str>>(
        &self,
        ids: &[BlockId],
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
        mut visit: impl FnMut(usize, NeighborRef<'_>),
    ) -> Result<()> {
        let filter = self.filter(kinds)?;
        let names = self.names();
        // The first block of which it is not known whether it has a neighbor, and those that have none.
        let (mut next, mut alone) = (0, Vec::new());
        let (mut last, mut name) = (None, "");
        let mut lend = |place: usize, id, kind, direction| {
            if last != Some(kind) {
                let Some(found) = names.name(kind) else {
                    return ControlFlow::Break(kind);
                };
                (last, name) = (Some(kind), &**found);
            }
            if place >= next {
                alone.extend_from_slice(&ids[next..place]);
                next = place + 1;
            }
            visit(
                place,
                NeighborRef {
                    id,
                    kind: name,
                    direction,
                },
            );
            ControlFlow::Continue(())
        };
        let mut ended = ControlFlow::Continue(());
        match self.view() {
            Some(view) => {
                let at = self.snapshot.revision().get();
                for (part, ids) in ids.chunks(UNCHECKED).enumerate() {
                    self.cancel.check()?;
                    ended =
                        view.visit_many(ids, direction, at, &filter, |place, far, kind, way| {
                            lend(part * UNCHECKED + place, view.id(far), kind, way)
                        });
                    if ended.is_break() {
                        break;
                    }
                }
            }
            None => {
                let sources = Sources::of(self)?;
                let reader = sources.reader(self);
                for (place, &id) in ids.iter().enumerate() {
                    reader.visit_neighbors(id, direction, &filter, |near| {
                        ended = lend(place, near.id, near.kind, near.direction);
                        ended.is_continue()
                    })?;
                    if ended.is_break() {
                        break;
                    }
                }
            }
        }
        if let ControlFlow::Break(kind) = ended {
            return Err(unregistered(kind));
        }
        // A block with an edge exists.
        alone.extend_from_slice(&ids[next..]);
        self.require_blocks(&alone)
    }
}
