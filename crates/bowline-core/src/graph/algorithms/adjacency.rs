//! [`Adjacency`]: the graph as rows of vertex numbers, which is all that the global algorithms know of it.
//!
//! A vertex is the number of a block, by its rank among the sorted ids. Rows are iterators and not slices, so that a
//! view that merges a row with newer changes can implement the trait; over an array they compile to the same loop.

use crate::Result;
use crate::graph::cancel::Cancel;
use crate::graph::view::DenseView;

/// How many vertices an algorithm handles between two looks at its [`Cancel`].
const CANCEL_INTERVAL: u32 = 1024;

/// A graph whose vertices are the numbers below [`vertex_count`](Adjacency::vertex_count).
pub trait Adjacency {
    /// The number of vertices.
    fn vertex_count(&self) -> u32;

    /// The targets of the edges that leave a vertex: one for each edge, in key order.
    fn out_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_;

    /// The sources of the edges that arrive at a vertex: one for each edge, ascending.
    fn in_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_;

    /// The number of edges that leave a vertex.
    fn out_degree(&self, vertex: u32) -> usize;

    /// The number of edges that arrive at a vertex.
    fn in_degree(&self, vertex: u32) -> usize;
}

/// A graph whose edges have weights.
pub trait WeightedAdjacency: Adjacency {
    /// [`Adjacency::out_row`] with the weight of each edge; a weight that cannot be used is not a number.
    fn weighted_out_row(&self, vertex: u32) -> impl Iterator<Item = (u32, f64)> + '_;

    /// [`Adjacency::in_row`] with the weight of each edge.
    fn weighted_in_row(&self, vertex: u32) -> impl Iterator<Item = (u32, f64)> + '_;
}

impl Adjacency for DenseView<'_> {
    fn vertex_count(&self) -> u32 {
        self.block_count()
    }

    #[inline]
    fn out_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        self.outgoing().row(vertex).iter().copied()
    }

    #[inline]
    fn in_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        self.incoming_or_transposed().row(vertex).iter().copied()
    }

    fn out_degree(&self, vertex: u32) -> usize {
        self.outgoing().row(vertex).len()
    }

    fn in_degree(&self, vertex: u32) -> usize {
        self.incoming_or_transposed().row(vertex).len()
    }
}

/// Calls `visit` with every vertex, ascending, until `cancel` is set.
#[inline]
pub(super) fn for_each_vertex(
    vertices: u32,
    cancel: &Cancel,
    mut visit: impl FnMut(u32),
) -> Result<()> {
    let mut first = 0;
    while first < vertices {
        cancel.check()?;
        let end = vertices.min(first.saturating_add(CANCEL_INTERVAL));
        // The inner loop has no exit, so the compiler treats it like one over an array.
        (first..end).for_each(&mut visit);
        first = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn every_vertex_is_visited_once_and_a_canceled_run_ends() {
        for vertices in [
            0,
            1,
            CANCEL_INTERVAL - 1,
            CANCEL_INTERVAL,
            3 * CANCEL_INTERVAL + 1,
        ] {
            let mut visited = Vec::new();
            for_each_vertex(vertices, &Cancel::never(), |vertex| visited.push(vertex)).unwrap();
            assert!(visited.into_iter().eq(0..vertices), "{vertices}");
        }
        let cancel = Cancel::new();
        let mut visited = 0;
        let ended = for_each_vertex(u32::MAX, &cancel, |_| {
            visited += 1;
            cancel.cancel();
        });
        assert!(matches!(ended, Err(Error::Canceled)));
        assert_eq!(visited, CANCEL_INTERVAL);
    }
}
