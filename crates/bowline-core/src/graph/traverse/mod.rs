//! Bounded breadth-first and depth-first traversal from one or several blocks.
//!
//! # Breadth-first
//!
//! The list of visits is its own queue: a cursor runs through it while newly found blocks are
//! appended. Blocks come in the order of their distance, and each knows a shortest way back. Each
//! reached block's edges are read once: O(blocks + edges) time, O(blocks + largest degree) memory.
//!
//! # Depth-first
//!
//! Preorder with an explicit stack, neighbors in key order. The neighbors still to be tried of
//! all blocks on the stack share one buffer, whose tail belongs to the top. O(blocks + edges of
//! the current path) memory.
//!
//! A depth bound needs care. The first way to a block may be so long that the bound cuts off what
//! lies behind it, though a shorter way follows:
//!
//! ```text
//!     a -> b -> c -> d        max_depth 2: c is first found at depth 2, and d is out of reach.
//!      \_______/              Later a -> c finds c at depth 1, from where d is within the bound.
//! ```
//!
//! So a block that is found again at a smaller depth moves below its new parent and is expanded
//! again. The result is the preorder of the tree that remains: every block within `max_depth` edges
//! of a start is in it exactly once, at a depth not above the bound, one below its parent's.
//! A block moves at most `max_depth` times, so the cost is O(max_depth * edges) at worst. As long
//! as nothing was cut off, nothing needs to move: a finished block has all its neighbors
//! visited, and those still on the stack lie above the block that found it again. A bound that is
//! never met therefore costs nothing.
//!
//! # Bounds
//!
//! The stop is exact: [`Stop::Exhausted`] means that everything reachable was visited, also when
//! the last block just fitted. To tell, the walk goes on after the last block that fits, until it
//! finds one more or none.

use std::ops::ControlFlow;

use super::kind_id::KindId;
use super::source::{GraphSource, KindFilter, dangling_edge, require_block};
use super::walk::{ByIds, Marks, Places, Row, RowBuffer, Walk};
use crate::Result;
use bowline_types::{BlockId, Direction, Stop, Visit};

/// How many rows are on their way to the cache while one is read.
const AHEAD: usize = 8;
/// The parent of a start.
const NONE: u32 = u32::MAX;

/// A traversal whose kinds are numbers.
pub type Traversal = bowline_types::Traversal<KindId>;

/// The visits of a traversal, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Visits<N> {
    entries: Vec<Entry<N>>,
    /// Which bound ended the traversal.
    pub stop: Stop,
    /// How many ends of edges were read.
    pub edges_touched: u64,
}

/// A visit: 16 bytes for an ordinal.
#[derive(Clone, Copy, Debug)]
struct Entry<N> {
    node: N,
    depth: u32,
    /// The place of the parent; [`NONE`] for a start.
    parent: u32,
    /// The kind of the edge to the parent; 0 for a start.
    kind: KindId,
}

impl<N: Copy> Visits<N> {
    fn new() -> Visits<N> {
        Visits {
            entries: Vec::with_capacity(64),
            stop: Stop::Exhausted,
            edges_touched: 0,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The node of a visit by its place, below the length.
    #[inline]
    pub fn node(&self, place: usize) -> N {
        self.entries[place].node
    }

    /// The kind of the edge to the parent of a visit; `None` for a start.
    #[inline]
    pub fn kind(&self, place: usize) -> Option<KindId> {
        let entry = &self.entries[place];
        (entry.parent != NONE).then_some(entry.kind)
    }

    /// A visit by its place, below the length; `id` gives the block of a node.
    #[inline]
    pub fn get(&self, place: usize, id: impl Fn(N) -> BlockId) -> Visit<KindId> {
        let Entry {
            node,
            depth,
            parent,
            ..
        } = self.entries[place];
        let parent = (parent != NONE).then(|| id(self.entries[parent as usize].node));
        Visit {
            id: id(node),
            depth,
            parent,
            kind: self.kind(place),
        }
    }
}

/// In which order blocks are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TraverseOrder {
    /// Nearest first.
    #[default]
    BreadthFirst,
    /// A block, then all that is reached from its first neighbor, then from its second, …
    DepthFirst,
}

/// How to traverse; the default follows every leaving edge without bounds.
#[derive(Clone, Debug, Default)]
pub struct TraverseSpec {
    pub order: TraverseOrder,
    pub direction: Direction,
    pub kinds: KindFilter,
    /// The largest depth visited; starts are at depth 0.
    pub max_depth: Option<u32>,
    /// The maximal number of visited blocks.
    pub limit: Option<u64>,
    /// The maximal total size of the visited blocks' records, in bytes.
    pub max_bytes: Option<u64>,
}

/// Visits what can be reached from `starts`, which must exist; a start named twice counts once.
pub fn traverse(
    graph: &impl GraphSource,
    starts: &[BlockId],
    spec: &TraverseSpec,
) -> Result<Traversal> {
    for &start in starts {
        require_block(graph, start)?;
    }
    let visits = walk(&ByIds::new(graph), starts, spec)?;
    Ok(Traversal {
        visits: (0..visits.count())
            .map(|place| visits.get(place, |id| id))
            .collect(),
        stop: visits.stop,
        edges_touched: visits.edges_touched,
    })
}

/// As [`traverse`], in columns. The starts exist.
pub fn walk<W: Walk>(
    graph: &W,
    starts: &[W::Node],
    spec: &TraverseSpec,
) -> Result<Visits<W::Node>> {
    let budget = Budget {
        graph,
        spec,
        visited: 0,
        bytes: 0,
    };
    match spec.order {
        TraverseOrder::BreadthFirst => breadth_first(budget, starts),
        TraverseOrder::DepthFirst => DepthFirst::new(budget).run(starts),
    }
}

/// The remaining bounds.
struct Budget<'a, W> {
    graph: &'a W,
    spec: &'a TraverseSpec,
    visited: u64,
    bytes: u64,
}

/// The edge that a block was found by.
#[derive(Clone, Copy)]
struct FoundBy<N> {
    from: N,
    kind: KindId,
    direction: Direction,
}

impl<W: Walk> Budget<'_, W> {
    /// Charges for one more block; `Some` when it does not fit.
    #[inline]
    fn admit(
        &mut self,
        node: W::Node,
        found_by: impl FnOnce() -> Option<FoundBy<W::Node>>,
    ) -> Result<Option<Stop>> {
        if self.spec.limit == Some(self.visited) {
            return Ok(Some(Stop::Limit));
        }
        if let Some(max_bytes) = self.spec.max_bytes {
            let size = self.size_bytes(node, found_by())?;
            if size > max_bytes - self.bytes {
                return Ok(Some(Stop::MaxBytes));
            }
            self.bytes += size;
        }
        self.visited += 1;
        Ok(None)
    }

    #[cold]
    fn size_bytes(&self, node: W::Node, found_by: Option<FoundBy<W::Node>>) -> Result<u64> {
        let id = self.graph.id(node);
        match (self.graph.block_size_bytes(id)?, found_by) {
            (Some(size), _) => Ok(size),
            (None, Some(by)) => {
                let from = self.graph.id(by.from);
                let (source, target) = match by.direction {
                    Direction::In => (id, from),
                    Direction::Out | Direction::Both => (from, id),
                };
                Err(dangling_edge(source, by.kind, target))
            }
            (None, None) => Err(crate::Error::MissingBlock { id }),
        }
    }
}

fn breadth_first<W: Walk>(
    mut budget: Budget<'_, W>,
    starts: &[W::Node],
) -> Result<Visits<W::Node>> {
    let (graph, spec) = (budget.graph, budget.spec);
    let mut found = graph.marks();
    let mut visits = Visits::new();
    for &start in starts {
        if !found.insert(start) {
            continue;
        }
        if let Some(stop) = budget.admit(start, || None)? {
            visits.stop = stop;
            return Ok(visits);
        }
        visits.entries.push(Entry {
            node: start,
            depth: 0,
            parent: NONE,
            kind: KindId(0),
        });
    }

    let mut buffer = RowBuffer::default();
    let mut cursor = 0;
    while let Some(&Entry { node, depth, .. }) = visits.entries.get(cursor) {
        graph.check()?;
        // A row waits for two loads, of its start and of its first end: those of the next ones are under way.
        let soon = |ahead: usize| visits.entries.get(cursor + ahead).map(|visit| visit.node);
        graph.prefetch(soon(2 * AHEAD), soon(AHEAD), spec.direction);
        let from = Expanded {
            node,
            depth,
            place: cursor as u32,
        };
        let stop = match graph.lent_row(node, spec.direction, &spec.kinds) {
            Some(row) => from.take(&row, &mut budget, &mut found, &mut visits)?,
            None => from.take_parts(&mut buffer, &mut budget, &mut found, &mut visits)?,
        };
        if let Some(stop) = stop {
            visits.stop = stop;
            return Ok(visits);
        }
        cursor += 1;
    }
    Ok(visits)
}

/// A block whose neighbors are taken breadth-first.
#[derive(Clone, Copy)]
struct Expanded<N> {
    node: N,
    depth: u32,
    place: u32,
}

impl<N: Copy + Eq> Expanded<N> {
    /// Takes the neighbors of a part of the row; `Some` when one is beyond a bound.
    #[inline(always)]
    fn take<W: Walk<Node = N>>(
        self,
        row: &Row<'_, N>,
        budget: &mut Budget<'_, W>,
        found: &mut W::Marks,
        visits: &mut Visits<N>,
    ) -> Result<Option<Stop>> {
        // When the first block of the deepest layer is read, all of that layer was found: a block not
        // found by now is beyond it.
        let is_deepest = budget.spec.max_depth == Some(self.depth);
        for (place, &next) in row.nodes.iter().enumerate() {
            if !found.insert(next) {
                continue;
            }
            let kind = row.kind(place);
            let found_by = || {
                Some(FoundBy {
                    from: self.node,
                    kind,
                    direction: row.direction(place),
                })
            };
            let stop = match is_deepest {
                true => Some(Stop::MaxDepth),
                false => budget.admit(next, found_by)?,
            };
            if stop.is_some() {
                visits.edges_touched += place as u64 + 1;
                return Ok(stop);
            }
            visits.entries.push(Entry {
                node: next,
                depth: self.depth + 1,
                parent: self.place,
                kind,
            });
        }
        visits.edges_touched += row.nodes.len() as u64;
        Ok(None)
    }

    /// The same for a row that comes in parts. It stays a function of its own, so that the common case keeps
    /// its state in registers.
    #[inline(never)]
    fn take_parts<W: Walk<Node = N>>(
        self,
        buffer: &mut RowBuffer<N>,
        budget: &mut Budget<'_, W>,
        found: &mut W::Marks,
        visits: &mut Visits<N>,
    ) -> Result<Option<Stop>> {
        let (graph, spec) = (budget.graph, budget.spec);
        let take = |row: Row<'_, N>| match self.take(&row, budget, found, visits) {
            Ok(None) => ControlFlow::Continue(()),
            ended => ControlFlow::Break(ended),
        };
        match graph.visit_row(self.node, spec.direction, &spec.kinds, buffer, take)? {
            ControlFlow::Continue(()) => Ok(None),
            ControlFlow::Break(ended) => ended,
        }
    }
}

/// The state of a depth-first traversal.
struct DepthFirst<'a, W: Walk> {
    budget: Budget<'a, W>,
    /// In the order in which they were first found.
    found: Visits<W::Node>,
    /// For each of them: orders the children of one parent.
    attachments: Vec<u64>,
    index: W::Places,
    stack: Vec<Frame>,
    /// The neighbors of all frames, those of the top frame last.
    pending: Vec<Neighbor<W::Node>>,
    buffer: RowBuffer<W::Node>,
    /// How often a node was given a parent.
    attached: u64,
    /// Whether a block at the depth bound was left unexpanded.
    cut: bool,
    /// Whether a node was given another parent later.
    moved: bool,
}

/// A neighbor that is still to be tried.
#[derive(Clone, Copy)]
struct Neighbor<N> {
    node: N,
    kind: KindId,
    direction: Direction,
}

/// A block being expanded. Its depth is less than that of every frame above it.
struct Frame {
    node: u32,
    /// Where its neighbors start in `pending`.
    start: usize,
    /// The next of them to try.
    next: usize,
}

impl<'a, W: Walk> DepthFirst<'a, W> {
    fn new(budget: Budget<'a, W>) -> DepthFirst<'a, W> {
        DepthFirst {
            found: Visits::new(),
            attachments: Vec::new(),
            index: budget.graph.places(),
            budget,
            stack: Vec::new(),
            pending: Vec::new(),
            buffer: RowBuffer::default(),
            attached: 0,
            cut: false,
            moved: false,
        }
    }

    fn run(mut self, starts: &[W::Node]) -> Result<Visits<W::Node>> {
        let stop = match self.walk(starts)? {
            Some(stop) => stop,
            None if self.cut && self.has_more_beyond()? => Stop::MaxDepth,
            None => Stop::Exhausted,
        };
        self.found.stop = stop;
        Ok(self.into_preorder())
    }

    /// Visits all that the bounds allow; `Some` when a block did not fit.
    fn walk(&mut self, starts: &[W::Node]) -> Result<Option<Stop>> {
        for &start in starts {
            if let Some(stop) = self.find(start, None)? {
                return Ok(Some(stop));
            }
            while let Some(frame) = self.stack.last_mut() {
                let Some(&neighbor) = self.pending.get(frame.next) else {
                    self.pending.truncate(frame.start);
                    self.stack.pop();
                    continue;
                };
                frame.next += 1;
                let parent = frame.node;
                if let Some(stop) = self.find(neighbor.node, Some((parent, neighbor)))? {
                    return Ok(Some(stop));
                }
            }
        }
        Ok(None)
    }

    /// Deals with a block found from `parent`, or as a start; `Some` when it does not fit.
    fn find(
        &mut self,
        node: W::Node,
        parent: Option<(u32, Neighbor<W::Node>)>,
    ) -> Result<Option<Stop>> {
        let depth = parent.map_or(0, |(parent, _)| {
            self.found.entries[parent as usize].depth + 1
        });
        let (from, kind) = match parent {
            Some((parent, neighbor)) => (parent, neighbor.kind),
            None => (NONE, KindId(0)),
        };
        let entry = Entry {
            node,
            depth,
            parent: from,
            kind,
        };
        // A block that is not admitted ends the traversal, so its place does not matter.
        let next = self.found.count() as u32;
        let at = match self.index.insert(node, next) {
            Some(at) => {
                let place = at as usize;
                if !self.cut || self.found.entries[place].depth <= depth {
                    return Ok(None);
                }
                self.moved = true;
                self.found.entries[place] = entry;
                self.attachments[place] = self.attached;
                at
            }
            None => {
                let entries = &self.found.entries;
                let found_by = || {
                    parent.map(|(parent, neighbor)| FoundBy {
                        from: entries[parent as usize].node,
                        kind,
                        direction: neighbor.direction,
                    })
                };
                if let Some(stop) = self.budget.admit(node, found_by)? {
                    return Ok(Some(stop));
                }
                self.found.entries.push(entry);
                self.attachments.push(self.attached);
                next
            }
        };
        self.attached += 1;
        if self.budget.spec.max_depth == Some(depth) {
            self.cut = true;
        } else {
            let start = self.pending.len();
            self.read_neighbors(node)?;
            self.stack.push(Frame {
                node: at,
                start,
                next: start,
            });
        }
        Ok(None)
    }

    /// Adds the neighbors of a node to `pending`.
    fn read_neighbors(&mut self, node: W::Node) -> Result<()> {
        let (graph, spec) = (self.budget.graph, self.budget.spec);
        graph.check()?;
        let row = graph.row(node, spec.direction, &spec.kinds, &mut self.buffer)?;
        let pending = &mut self.pending;
        row.for_each(|node, kind, direction| {
            pending.push(Neighbor {
                node,
                kind,
                direction,
            });
        });
        self.found.edges_touched += row.nodes.len() as u64;
        Ok(())
    }

    /// Whether a block at the depth bound has a neighbor that was not visited.
    fn has_more_beyond(&mut self) -> Result<bool> {
        let (graph, spec) = (self.budget.graph, self.budget.spec);
        for place in 0..self.found.count() {
            let Entry { node, depth, .. } = self.found.entries[place];
            if spec.max_depth != Some(depth) {
                continue;
            }
            graph.check()?;
            let row = graph.row(node, spec.direction, &spec.kinds, &mut self.buffer)?;
            self.found.edges_touched += row.nodes.len() as u64;
            let is_new = |next: &W::Node| self.index.get(*next).is_none();
            if row.nodes.iter().any(is_new) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The visited blocks in preorder of the tree that their last parents make. If none moved, that
    /// is the order in which they were found.
    fn into_preorder(self) -> Visits<W::Node> {
        let found = self.found;
        if !self.moved {
            return found;
        }

        // Children as linked lists, filled from the last child to the first.
        let count = found.count();
        let mut by_attachment: Vec<usize> = (0..count).collect();
        by_attachment.sort_unstable_by_key(|&at| self.attachments[at]);
        let mut first_root = None;
        let mut first_child = vec![None; count];
        let mut next_sibling = vec![None; count];
        for &at in by_attachment.iter().rev() {
            let first = match found.entries[at].parent {
                NONE => &mut first_root,
                parent => &mut first_child[parent as usize],
            };
            next_sibling[at] = first.replace(at);
        }

        // A walk ended by a bound may have moved a block without reaching its children again, so
        // depths are counted anew; they can only have become smaller.
        let mut visits = Visits::new();
        (visits.stop, visits.edges_touched) = (found.stop, found.edges_touched);
        let mut places = vec![NONE; count];
        let mut stack: Vec<(usize, u32)> = first_root.map(|root| (root, 0)).into_iter().collect();
        while let Some((at, depth)) = stack.pop() {
            places[at] = visits.count() as u32;
            let mut entry = found.entries[at];
            entry.depth = depth;
            if entry.parent != NONE {
                // A parent comes before its children.
                entry.parent = places[entry.parent as usize];
            }
            visits.entries.push(entry);
            stack.extend(next_sibling[at].map(|sibling| (sibling, depth)));
            stack.extend(first_child[at].map(|child| (child, depth + 1)));
        }
        visits
    }
}

#[cfg(test)]
mod tests;
