//! [`Visits`]: the result of a traversal, in a column that the traversal itself uses as its queue.
//!
//! A traversal of the view reuses the memory of an earlier result of its thread, so it allocates none.

use std::cell::Cell;
use std::thread::LocalKey;

use super::kind_id::KindId;
use bowline_types::{BlockId, Stop, Visit};

/// A thread keeps memory for so many visits, 1 MiB, from one traversal of the view to the next.
const POOLED_MAX: usize = 1 << 16;
/// The parent of a start.
pub(super) const NONE: u32 = u32::MAX;

/// What stands for a visited block.
pub trait Visited: Copy + Eq + 'static {
    /// Where a thread keeps memory for visits; `None` for new memory each time.
    fn pool() -> Option<&'static LocalKey<Cell<Vec<VisitEntry<Self>>>>>;
}

thread_local! {
    /// Empty, with room.
    static POOL: Cell<Vec<VisitEntry<u32>>> = const { Cell::new(Vec::new()) };
}

impl Visited for u32 {
    fn pool() -> Option<&'static LocalKey<Cell<Vec<VisitEntry<u32>>>>> {
        Some(&POOL)
    }
}

impl Visited for BlockId {
    fn pool() -> Option<&'static LocalKey<Cell<Vec<VisitEntry<BlockId>>>>> {
        None
    }
}

/// The visits of a traversal, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Visits<N: Visited> {
    pub(super) entries: Vec<VisitEntry<N>>,
    /// Which bound ended the traversal.
    pub stop: Stop,
    /// How many ends of edges were read.
    pub edges_touched: u64,
}

/// A visit: 16 bytes for an ordinal.
#[derive(Clone, Copy, Debug)]
pub struct VisitEntry<N> {
    pub(super) node: N,
    pub(super) depth: u32,
    /// The place of the parent; [`NONE`] for a start.
    pub(super) parent: u32,
    /// The kind of the edge to the parent; 0 for a start.
    pub(super) kind: KindId,
}

impl<N: Visited> Visits<N> {
    /// None, perhaps with room that an earlier traversal of this thread left.
    pub(super) fn new() -> Visits<N> {
        Visits {
            entries: match N::pool() {
                Some(pool) => pool.take(),
                None => Vec::new(),
            },
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
        let VisitEntry {
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

impl<N: Visited> Drop for Visits<N> {
    fn drop(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        if let Some(pool) = N::pool()
            && entries.capacity() <= POOLED_MAX
        {
            entries.clear();
            // A thread that ends keeps nothing.
            let _ = pool.try_with(|pool| {
                let held = pool.take();
                pool.set(match held.capacity() < entries.capacity() {
                    true => entries,
                    false => held,
                });
            });
        }
    }
}
