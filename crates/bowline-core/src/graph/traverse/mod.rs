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

use std::collections::hash_map::Entry;

use super::id_map::IdMap;
use super::id_map::IdSet;
use super::kind_id::KindId;
use super::source::{GraphSource, KindFilter, NeighborRef, dangling_edge, require_block};
use crate::Result;
use bowline_types::{BlockId, Direction, Stop};

/// A traversal whose kinds are numbers.
pub type Traversal = bowline_types::Traversal<KindId>;
/// A visit whose kind is a number.
pub type Visit = bowline_types::Visit<KindId>;

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
struct Budget<'a, G> {
    graph: &'a G,
    spec: &'a TraverseSpec,
    visited: u64,
    bytes: u64,
}

impl<G: GraphSource> Budget<'_, G> {
    /// Charges for one more block; `Some` when it does not fit. `parent` is where it was found.
    fn admit(
        &mut self,
        id: BlockId,
        parent: Option<(BlockId, NeighborRef)>,
    ) -> Result<Option<Stop>> {
        if self.spec.limit == Some(self.visited) {
            return Ok(Some(Stop::Limit));
        }
        if let Some(max_bytes) = self.spec.max_bytes {
            let size = match (self.graph.block_size_bytes(id)?, parent) {
                (Some(size), _) => size,
                (None, Some((from, neighbor))) => {
                    let (source, target) = neighbor.ends(from);
                    return Err(dangling_edge(source, neighbor.kind, target));
                }
                (None, None) => return Err(crate::Error::MissingBlock { id }),
            };
            if size > max_bytes - self.bytes {
                return Ok(Some(Stop::MaxBytes));
            }
            self.bytes += size;
        }
        self.visited += 1;
        Ok(None)
    }

    fn neighbors(&self, id: BlockId, out: &mut Vec<NeighborRef>) -> Result<()> {
        self.graph
            .neighbors(id, self.spec.direction, &self.spec.kinds, out)
    }
}

fn breadth_first<G: GraphSource>(
    mut budget: Budget<'_, G>,
    starts: &[BlockId],
) -> Result<Traversal> {
    let mut found = IdSet::default();
    let mut visits: Vec<Visit> = Vec::new();
    let mut edges_touched = 0;
    let mut neighbors = Vec::new();

    for &start in starts {
        if !found.insert(start) {
            continue;
        }
        if let Some(stop) = budget.admit(start, None)? {
            return Ok(Traversal {
                visits,
                stop,
                edges_touched,
            });
        }
        visits.push(Visit {
            id: start,
            depth: 0,
            parent: None,
            kind: None,
        });
    }

    let mut cursor = 0;
    while let Some(&Visit { id, depth, .. }) = visits.get(cursor) {
        cursor += 1;
        neighbors.clear();
        budget.neighbors(id, &mut neighbors)?;
        edges_touched += neighbors.len() as u64;
        for &neighbor in &neighbors {
            // A block that is not admitted ends the traversal.
            if !found.insert(neighbor.id) {
                continue;
            }
            // When the first block of the deepest layer is read, all of that layer was found: a
            // block not found by now is beyond it.
            if budget.spec.max_depth == Some(depth) {
                return Ok(Traversal {
                    visits,
                    stop: Stop::MaxDepth,
                    edges_touched,
                });
            }
            if let Some(stop) = budget.admit(neighbor.id, Some((id, neighbor)))? {
                return Ok(Traversal {
                    visits,
                    stop,
                    edges_touched,
                });
            }
            visits.push(Visit {
                id: neighbor.id,
                depth: depth + 1,
                parent: Some(id),
                kind: Some(neighbor.kind),
            });
        }
    }
    Ok(Traversal {
        visits,
        stop: Stop::Exhausted,
        edges_touched,
    })
}

/// The state of a depth-first traversal.
struct DepthFirst<'a, G> {
    budget: Budget<'a, G>,
    /// In the order in which they were first found.
    nodes: Vec<Node>,
    index: IdMap<usize>,
    stack: Vec<Frame>,
    /// The neighbors of all frames, those of the top frame last.
    pending: Vec<NeighborRef>,
    /// How often a node was given a parent.
    attachments: u64,
    /// Whether a block at the depth bound was left unexpanded.
    cut: bool,
    /// Whether a node was given another parent later.
    moved: bool,
    edges_touched: u64,
}

struct Node {
    id: BlockId,
    depth: u32,
    parent: Option<usize>,
    kind: Option<KindId>,
    /// Orders the children of one parent.
    attachment: u64,
}

/// A block being expanded. Its depth is less than that of every frame above it.
struct Frame {
    node: usize,
    /// Where its neighbors start in `pending`.
    start: usize,
    /// The next of them to try.
    next: usize,
}

impl<'a, G: GraphSource> DepthFirst<'a, G> {
    fn new(budget: Budget<'a, G>) -> DepthFirst<'a, G> {
        DepthFirst {
            budget,
            nodes: Vec::new(),
            index: IdMap::default(),
            stack: Vec::new(),
            pending: Vec::new(),
            attachments: 0,
            cut: false,
            moved: false,
            edges_touched: 0,
        }
    }

    fn run(mut self, starts: &[BlockId]) -> Result<Traversal> {
        let stop = match self.walk(starts)? {
            Some(stop) => stop,
            None if self.cut && self.has_more_beyond()? => Stop::MaxDepth,
            None => Stop::Exhausted,
        };
        let edges_touched = self.edges_touched;
        Ok(Traversal {
            visits: self.into_preorder(),
            stop,
            edges_touched,
        })
    }

    /// Visits all that the bounds allow; `Some` when a block did not fit.
    fn walk(&mut self, starts: &[BlockId]) -> Result<Option<Stop>> {
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
                if let Some(stop) = self.find(neighbor.id, Some((parent, neighbor)))? {
                    return Ok(Some(stop));
                }
            }
        }
        Ok(None)
    }

    /// Deals with a block found from `parent`, or as a start; `Some` when it does not fit.
    fn find(&mut self, id: BlockId, parent: Option<(usize, NeighborRef)>) -> Result<Option<Stop>> {
        let depth = parent.map_or(0, |(parent, _)| self.nodes[parent].depth + 1);
        let node = Node {
            id,
            depth,
            parent: parent.map(|(parent, _)| parent),
            kind: parent.map(|(_, neighbor)| neighbor.kind),
            attachment: self.attachments,
        };
        let at = match self.index.entry(id) {
            Entry::Occupied(held) => {
                let at = *held.get();
                if !self.cut || self.nodes[at].depth <= depth {
                    return Ok(None);
                }
                self.moved = true;
                self.nodes[at] = node;
                at
            }
            Entry::Vacant(place) => {
                let found_from = parent.map(|(parent, edge)| (self.nodes[parent].id, edge));
                if let Some(stop) = self.budget.admit(id, found_from)? {
                    return Ok(Some(stop));
                }
                place.insert(self.nodes.len());
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.attachments += 1;
        if self.budget.spec.max_depth == Some(depth) {
            self.cut = true;
        } else {
            let start = self.pending.len();
            self.budget.neighbors(id, &mut self.pending)?;
            self.edges_touched += (self.pending.len() - start) as u64;
            self.stack.push(Frame {
                node: at,
                start,
                next: start,
            });
        }
        Ok(None)
    }

    /// Whether a block at the depth bound has a neighbor that was not visited.
    fn has_more_beyond(&mut self) -> Result<bool> {
        for node in &self.nodes {
            if self.budget.spec.max_depth == Some(node.depth) {
                self.pending.clear();
                self.budget.neighbors(node.id, &mut self.pending)?;
                self.edges_touched += self.pending.len() as u64;
                if self
                    .pending
                    .iter()
                    .any(|neighbor| !self.index.contains_key(&neighbor.id))
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The visited blocks in preorder of the tree that their last parents make. If none moved, that
    /// is the order in which they were found.
    fn into_preorder(self) -> Vec<Visit> {
        let visit = |node: &Node, depth| Visit {
            id: node.id,
            depth,
            parent: node.parent.map(|parent| self.nodes[parent].id),
            kind: node.kind,
        };
        if !self.moved {
            return self
                .nodes
                .iter()
                .map(|node| visit(node, node.depth))
                .collect();
        }

        // Children as linked lists, filled from the last child to the first.
        let mut by_attachment: Vec<usize> = (0..self.nodes.len()).collect();
        by_attachment.sort_unstable_by_key(|&at| self.nodes[at].attachment);
        let mut first_root = None;
        let mut first_child = vec![None; self.nodes.len()];
        let mut next_sibling = vec![None; self.nodes.len()];
        for &at in by_attachment.iter().rev() {
            let first = match self.nodes[at].parent {
                Some(parent) => &mut first_child[parent],
                None => &mut first_root,
            };
            next_sibling[at] = first.replace(at);
        }

        // A walk ended by a bound may have moved a block without reaching its children again, so
        // depths are counted anew; they can only have become smaller.
        let mut visits = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<(usize, u32)> = first_root.map(|root| (root, 0)).into_iter().collect();
        while let Some((at, depth)) = stack.pop() {
            visits.push(visit(&self.nodes[at], depth));
            stack.extend(next_sibling[at].map(|sibling| (sibling, depth)));
            stack.extend(first_child[at].map(|child| (child, depth + 1)));
        }
        visits
    }
}

#[cfg(test)]
mod tests;
