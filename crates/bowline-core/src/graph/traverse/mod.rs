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
use super::visits::{NONE, VisitEntry, Visited, Visits};
use super::walk::{ByIds, Lend, Marks, Places, Row, RowBuffer, Walk};
use crate::Result;
use bowline_types::{BlockId, Direction, Stop};

/// Rows that are looked at between two looks at whether the traversal was canceled.
const UNCHECKED: usize = 64;

/// A traversal whose kinds are numbers.
pub type Traversal = bowline_types::Traversal<KindId>;

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
    /// Whether `more` blocks fit beside those that were visited, without a look at each of them.
    #[inline]
    fn fits(&self, visited: usize, more: usize) -> bool {
        let limit = self.spec.limit.unwrap_or(u64::MAX);
        self.spec.max_bytes.is_none() && (visited + more) as u64 <= limit
    }

    /// Charges for one block more than `visited`; `Some` when it does not fit.
    #[inline]
    fn admit(
        &mut self,
        visited: usize,
        node: W::Node,
        found_by: impl FnOnce() -> Option<FoundBy<W::Node>>,
    ) -> Result<Option<Stop>> {
        if self.spec.limit == Some(visited as u64) {
            return Ok(Some(Stop::Limit));
        }
        if let Some(max_bytes) = self.spec.max_bytes {
            let size = self.size_bytes(node, found_by())?;
            if size > max_bytes - self.bytes {
                return Ok(Some(Stop::MaxBytes));
            }
            self.bytes += size;
        }
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
        if let Some(stop) = budget.admit(visits.count(), start, || None)? {
            visits.stop = stop;
            return Ok(visits);
        }
        visits.entries.push(VisitEntry {
            node: start,
            depth: 0,
            parent: NONE,
            kind: KindId(0),
        });
    }

    let rows = graph.lender(spec.direction, &spec.kinds);
    let mut buffer = RowBuffer::default();
    let mut cursor = 0;
    while let Some(&VisitEntry { node, depth, .. }) = visits.entries.get(cursor) {
        if spec.max_depth == Some(depth) {
            // All of the deepest layer was found.
            if has_more_beyond(graph, spec, depth, &mut visits, cursor, |next| {
                found.contains(next)
            })? {
                visits.stop = Stop::MaxDepth;
            }
            return Ok(visits);
        }
        graph.check()?;
        rows.prefetch(|ahead| visits.entries.get(cursor + ahead).map(|visit| visit.node));
        let from = Expanded {
            node,
            depth,
            place: cursor as u32,
        };
        let stop = match rows.row(node) {
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

/// Whether a block at the depth bound, visited at the place `from` or later, has a neighbor that was not found.
fn has_more_beyond<W: Walk>(
    graph: &W,
    spec: &TraverseSpec,
    bound: u32,
    visits: &mut Visits<W::Node>,
    from: usize,
    is_found: impl Fn(W::Node) -> bool,
) -> Result<bool> {
    let rows = graph.lender(spec.direction, &spec.kinds);
    let mut buffer = RowBuffer::default();
    let entries = &visits.entries;
    let mut look = |row: Row<'_, W::Node>| {
        let new = row.nodes.iter().position(|&next| !is_found(next));
        visits.edges_touched += new.map_or(row.nodes.len(), |new| new + 1) as u64;
        match new {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    };
    let (mut place, count) = (from, entries.len());
    // Most often none has neighbors: that is seen in a loop that does nothing else.
    place += rows.skip_empty(&entries[place..], bound);
    while place < count {
        graph.check()?;
        let few = count.min(place + UNCHECKED);
        for (at, &VisitEntry { node, depth, .. }) in entries[place..few].iter().enumerate() {
            rows.prefetch(|ahead| entries.get(place + at + ahead).map(|visit| visit.node));
            if depth != bound || rows.is_empty(node) {
                continue;
            }
            let (direction, kinds) = (spec.direction, &spec.kinds);
            let looked = match rows.row(node) {
                Some(row) => look(row),
                None => graph.visit_row(node, direction, kinds, &mut buffer, &mut look)?,
            };
            if looked.is_break() {
                return Ok(true);
            }
        }
        place = few;
    }
    Ok(false)
}

/// A block whose neighbors are taken breadth-first.
#[derive(Clone, Copy)]
struct Expanded<N> {
    node: N,
    depth: u32,
    place: u32,
}

impl<N: Visited> Expanded<N> {
    /// Takes the neighbors of a part of the row; `Some` when one is beyond a bound.
    #[inline(always)]
    fn take<W: Walk<Node = N>>(
        self,
        row: &Row<'_, N>,
        budget: &mut Budget<'_, W>,
        found: &mut W::Marks,
        visits: &mut Visits<N>,
    ) -> Result<Option<Stop>> {
        if budget.fits(visits.count(), row.nodes.len()) {
            row.for_each(|next, kind, _| {
                if found.insert(next) {
                    visits.entries.push(self.entry(next, kind));
                }
            });
            visits.edges_touched += row.nodes.len() as u64;
            return Ok(None);
        }
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
            if let Some(stop) = budget.admit(visits.count(), next, found_by)? {
                visits.edges_touched += place as u64 + 1;
                return Ok(Some(stop));
            }
            visits.entries.push(self.entry(next, kind));
        }
        visits.edges_touched += row.nodes.len() as u64;
        Ok(None)
    }

    #[inline]
    fn entry(self, next: N, kind: KindId) -> VisitEntry<N> {
        VisitEntry {
            node: next,
            depth: self.depth + 1,
            parent: self.place,
            kind,
        }
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
    rows: W::Lender<'a>,
    /// All of them.
    marks: W::Marks,
    /// Their places, once one was found again that may have to move.
    places: Option<W::Places>,
    stack: Vec<Frame<'a, W::Node>>,
    /// The neighbors of all frames whose rows are not lent, those of the top frame last.
    pending: Vec<Neighbor<W::Node>>,
    buffer: RowBuffer<W::Node>,
    /// Whether a block at the depth bound was left unexpanded.
    cut: bool,
    /// Orders the children of one parent once a node was given another parent later.
    moves: Option<Moves>,
}

/// When each node was given its parent.
struct Moves {
    /// For each found node.
    attachments: Vec<u64>,
    /// How often a node was given a parent.
    attached: u64,
}

impl Moves {
    /// After so many nodes none of which moved.
    fn after(count: usize) -> Moves {
        let attached = count as u64;
        Moves {
            attachments: (0..attached).collect(),
            attached,
        }
    }

    fn moved(&mut self, place: usize) {
        self.attachments[place] = self.attached;
        self.attached += 1;
    }

    fn found(&mut self, more: usize) {
        let from = self.attached;
        self.attached += more as u64;
        self.attachments.extend(from..self.attached);
    }
}

/// A neighbor that is still to be tried.
#[derive(Clone, Copy)]
struct Neighbor<N> {
    node: N,
    kind: KindId,
    direction: Direction,
}

/// A block being expanded. Its depth is less than that of every frame above it.
struct Frame<'a, N> {
    place: u32,
    /// The next neighbor to try.
    next: usize,
    neighbors: Neighbors<'a, N>,
}

/// Where the neighbors of a frame are.
enum Neighbors<'a, N> {
    Lent(Row<'a, N>),
    /// In `pending`, from this place on.
    Pending(usize),
}

impl<N: Copy> Frame<'_, N> {
    #[inline]
    fn next(&mut self, pending: &[Neighbor<N>]) -> Option<Neighbor<N>> {
        let next = self.next;
        self.next += 1;
        match &self.neighbors {
            Neighbors::Lent(row) => Some(Neighbor {
                node: *row.nodes.get(next)?,
                kind: row.kind(next),
                direction: row.direction(next),
            }),
            Neighbors::Pending(start) => pending.get(start + next).copied(),
        }
    }
}

impl<'a, W: Walk> DepthFirst<'a, W> {
    fn new(budget: Budget<'a, W>) -> DepthFirst<'a, W> {
        DepthFirst {
            found: Visits::new(),
            rows: budget
                .graph
                .lender(budget.spec.direction, &budget.spec.kinds),
            marks: budget.graph.marks(),
            places: None,
            budget,
            stack: Vec::new(),
            pending: Vec::new(),
            buffer: RowBuffer::default(),
            cut: false,
            moves: None,
        }
    }

    fn run(mut self, starts: &[W::Node]) -> Result<Visits<W::Node>> {
        let ended = self.walk(starts)?;
        let (graph, spec) = (self.budget.graph, self.budget.spec);
        let is_found = |next| self.marks.contains(next);
        self.found.stop = match ended {
            Some(stop) => stop,
            None => match spec.max_depth {
                Some(bound)
                    if self.cut
                        && has_more_beyond(graph, spec, bound, &mut self.found, 0, is_found)? =>
                {
                    Stop::MaxDepth
                }
                _ => Stop::Exhausted,
            },
        };
        Ok(self.into_preorder())
    }

    /// Visits all that the bounds allow; `Some` when a block did not fit.
    fn walk(&mut self, starts: &[W::Node]) -> Result<Option<Stop>> {
        for &start in starts {
            if let Some(stop) = self.find(start, None)? {
                return Ok(Some(stop));
            }
            while let Some(frame) = self.stack.last_mut() {
                let Some(neighbor) = frame.next(&self.pending) else {
                    if let Neighbors::Pending(start) = frame.neighbors {
                        self.pending.truncate(start);
                    }
                    self.stack.pop();
                    continue;
                };
                let parent = frame.place;
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
        // A block that is not admitted ends the traversal, so that its mark does not matter.
        let at = if self.marks.insert(node) {
            let entries = &self.found.entries;
            let found_by = || {
                parent.map(|(parent, neighbor)| FoundBy {
                    from: entries[parent as usize].node,
                    kind,
                    direction: neighbor.direction,
                })
            };
            if let Some(stop) = self.budget.admit(entries.len(), node, found_by)? {
                return Ok(Some(stop));
            }
            let at = self.found.count();
            // Made where it goes: a copy from elsewhere would wait for the four writes to there.
            self.found.entries.push(VisitEntry {
                node,
                depth,
                parent: from,
                kind,
            });
            self.note_found(at);
            at as u32
        } else if self.cut
            && let Some(at) = self.moved(node, depth, from, kind)
        {
            at
        } else {
            return Ok(None);
        };
        self.expand(node, at, depth)?;
        Ok(None)
    }

    /// Keeps the places and moves of what was found from the place `from` on, if they are kept by now.
    #[inline]
    fn note_found(&mut self, from: usize) {
        if let Some(places) = &mut self.places {
            for (more, entry) in self.found.entries[from..].iter().enumerate() {
                places.insert(entry.node, (from + more) as u32);
            }
        }
        if let Some(moves) = &mut self.moves {
            moves.found(self.found.count() - from);
        }
    }

    /// Gives a node that was found before another parent if it is less deep there; its place, if it moved.
    #[cold]
    fn moved(&mut self, node: W::Node, depth: u32, parent: u32, kind: KindId) -> Option<u32> {
        let entry = VisitEntry {
            node,
            depth,
            parent,
            kind,
        };
        let entries = &mut self.found.entries;
        let places = self.places.get_or_insert_with(|| {
            let mut places = self.budget.graph.places();
            for (place, entry) in entries.iter().enumerate() {
                places.insert(entry.node, place as u32);
            }
            places
        });
        let at = places.get(entry.node)?;
        let place = at as usize;
        if entries[place].depth <= entry.depth {
            return None;
        }
        let count = entries.len();
        entries[place] = entry;
        let moves = self.moves.get_or_insert_with(|| Moves::after(count));
        moves.moved(place);
        Some(at)
    }

    /// Makes the neighbors of a visited node the next to be tried.
    fn expand(&mut self, node: W::Node, place: u32, depth: u32) -> Result<()> {
        let (graph, spec) = (self.budget.graph, self.budget.spec);
        if spec.max_depth == Some(depth) {
            self.cut = true;
            return Ok(());
        }
        graph.check()?;
        if let Some(row) = self.rows.row(node) {
            self.found.edges_touched += row.nodes.len() as u64;
            let are_last = spec.max_depth == Some(depth + 1);
            if are_last && self.budget.fits(self.found.count(), row.nodes.len()) {
                self.take_last(&row, place, depth + 1);
            } else {
                self.stack.push(Frame {
                    place,
                    next: 0,
                    neighbors: Neighbors::Lent(row),
                });
            }
            return Ok(());
        }
        let start = self.pending.len();
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
        self.stack.push(Frame {
            place,
            next: 0,
            neighbors: Neighbors::Pending(start),
        });
        Ok(())
    }

    /// Visits neighbors at the depth bound, which all fit. They are not expanded, and one that was found before
    /// is nowhere deeper, so that it stays where it is.
    fn take_last(&mut self, row: &Row<'_, W::Node>, parent: u32, depth: u32) {
        let before = self.found.count();
        let (marks, entries) = (&mut self.marks, &mut self.found.entries);
        row.for_each(|node, kind, _| {
            if marks.insert(node) {
                entries.push(VisitEntry {
                    node,
                    depth,
                    parent,
                    kind,
                });
            }
        });
        self.cut |= self.found.count() > before;
        self.note_found(before);
    }

    /// The visited blocks in preorder of the tree that their last parents make. If none moved, that
    /// is the order in which they were found.
    fn into_preorder(self) -> Visits<W::Node> {
        let found = self.found;
        let Some(moves) = self.moves else {
            return found;
        };

        // Children as linked lists, filled from the last child to the first.
        let count = found.count();
        let mut by_attachment: Vec<usize> = (0..count).collect();
        by_attachment.sort_unstable_by_key(|&at| moves.attachments[at]);
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
