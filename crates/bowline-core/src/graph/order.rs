//! Topological order.
//!
//! Kahn's algorithm ("Topological sorting of large networks", 1962): take a block that no remaining
//! edge leads to, remove its edges, repeat. Ready blocks wait in a heap, so of all valid orders it
//! gives the one with the smallest ids first. O(blocks·log blocks + edges) time; 4 B per block
//! beside the heap and the result, and the arriving rows if they are needed and not in the view.
//!
//! When no block is ready, the remaining blocks are on cycles or behind them. Each has a predecessor among
//! the rest, so a walk back from any of them reaches a block twice, and the walk in between is a cycle.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cancel::Cancel;
use super::view::{DenseView, Rows};
use crate::{Error, Result};
use bowline_types::BlockId;

/// Which end of an edge comes first in a topological order.
///
/// ```
/// use bowline::{Block, BlockId, Edge, Precedence};
/// # let db = bowline::Db::in_memory()?;
/// # let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// # db.transact(|tx| {
/// #     tx.put_block(&Block::new(app, "package"))?;
/// #     tx.put_block(&Block::new(lib, "package"))?;
/// #     tx.put_edge(&Edge::new(app, "depends_on", lib))
/// # })?;
/// let graph = db.snapshot().graph();
/// // The order in which packages can be built, and in which they can be removed.
/// let build = graph.topological_order(["depends_on"], Precedence::TargetFirst)?;
/// let remove = graph.topological_order(["depends_on"], Precedence::SourceFirst)?;
/// assert_eq!((build, remove), (vec![lib, app], vec![app, lib]));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precedence {
    /// The source: `a -> b` puts `a` before `b`.
    #[default]
    SourceFirst,
    /// The target: `a -> b` puts `b` before `a`. Where an edge means "depends on", dependencies
    /// come first.
    TargetFirst,
}

/// All blocks in topological order by `precedence`, with the smallest possible ids first. Fails with
/// [`Error::Cycle`], a cycle along its edges from its smallest block.
pub fn topological_order(
    view: &DenseView<'_>,
    precedence: Precedence,
    cancel: &Cancel,
) -> Result<Vec<BlockId>> {
    let rows = match (precedence, view.incoming()) {
        (Precedence::SourceFirst, _) => Cow::Borrowed(view.outgoing()),
        (Precedence::TargetFirst, Some(incoming)) => Cow::Borrowed(incoming),
        (Precedence::TargetFirst, None) => Cow::Owned(view.outgoing().transposed()),
    };
    let mut waiting_for = vec![0u32; rows.len()];
    for (_, row) in rows.iter() {
        row.iter()
            .for_each(|&later| waiting_for[later as usize] += 1);
    }
    let mut ready: BinaryHeap<Reverse<u32>> = (0..view.block_count())
        .filter(|&n| waiting_for[n as usize] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(rows.len());
    while let Some(Reverse(number)) = ready.pop() {
        cancel.check()?;
        order.push(view.id(number));
        for &later in rows.row(number) {
            waiting_for[later as usize] -= 1;
            if waiting_for[later as usize] == 0 {
                ready.push(Reverse(later));
            }
        }
    }
    if order.len() == rows.len() {
        return Ok(order);
    }
    let mut cycle = find_cycle(&rows, &waiting_for);
    if precedence == Precedence::TargetFirst {
        cycle.reverse();
    }
    Err(Error::Cycle {
        cycle: cycle.into_iter().map(|number| view.id(number)).collect(),
    })
}

/// A cycle along `rows` among the remaining blocks, from its smallest block back to it.
fn find_cycle(rows: &Rows<'_>, waiting_for: &[u32]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let waits = |number: u32| waiting_for[number as usize] > 0;

    // For each remaining block: its smallest remaining predecessor.
    let mut before = vec![NONE; rows.len()];
    for (number, row) in rows.iter().filter(|(number, _)| waits(*number)) {
        for &later in row {
            let before = &mut before[later as usize];
            *before = (*before).min(number);
        }
    }

    // Walks back from the first remaining block until it reaches a block again.
    let first = (0..rows.len() as u32)
        .find(|&number| waits(number))
        .unwrap_or_default();
    let mut passed = vec![false; rows.len()];
    let mut here = first;
    while !std::mem::replace(&mut passed[here as usize], true) {
        here = before[here as usize];
    }

    // `here` is on the cycle: once around gives its blocks, backwards.
    let mut cycle = vec![here];
    let mut at = before[here as usize];
    while at != here {
        cycle.push(at);
        at = before[at as usize];
    }
    cycle.reverse();
    let smallest = (0..cycle.len())
        .min_by_key(|&at| cycle[at])
        .unwrap_or_default();
    cycle.rotate_left(smallest);
    cycle.push(cycle[0]);
    cycle
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::kind_id::KindId;
    use super::super::memory::{MemoryGraph, random_graphs, ways};
    use super::super::source::KindFilter;
    use super::*;

    const NEVER: &Cancel = &Cancel::never();
    const BOTH: [Precedence; 2] = [Precedence::SourceFirst, Precedence::TargetFirst];

    fn order(graph: &MemoryGraph, precedence: Precedence) -> Result<Vec<u128>> {
        let view = DenseView::build(graph, &KindFilter::All, false)?;
        let order = topological_order(&view, precedence, NEVER)?;
        let view = DenseView::build(graph, &KindFilter::All, true)?;
        assert_eq!(
            topological_order(&view, precedence, NEVER)?,
            order,
            "the same with arriving rows"
        );
        Ok(order.into_iter().map(|id| id.0).collect())
    }

    fn cycle(graph: &MemoryGraph, precedence: Precedence) -> Vec<u128> {
        match order(graph, precedence) {
            Err(Error::Cycle { cycle }) => cycle.into_iter().map(|id| id.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn edges_are_agreed_with_and_small_ids_come_first() {
        let graph = MemoryGraph::new(6, [(5, 1, 0), (5, 2, 0), (3, 1, 1), (4, 1, 3), (5, 1, 2)]);
        assert_eq!(
            order(&graph, Precedence::SourceFirst).unwrap(),
            [4, 3, 1, 5, 0, 2]
        );
        assert_eq!(
            order(&graph, Precedence::TargetFirst).unwrap(),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(
            order(&MemoryGraph::new(0, []), Precedence::SourceFirst).unwrap(),
            []
        );
        assert_eq!(
            order(&MemoryGraph::new(3, []), Precedence::TargetFirst).unwrap(),
            [0, 1, 2]
        );
    }

    #[test]
    fn a_cycle_is_named_along_its_edges_from_its_smallest_block() {
        // 0 -> 1 -> 3 -> 2 -> 1, and 4 only behind the cycle.
        let graph = MemoryGraph::new(5, [(0, 1, 1), (1, 1, 3), (3, 1, 2), (2, 1, 1), (2, 1, 4)]);
        for precedence in BOTH {
            assert_eq!(cycle(&graph, precedence), [1, 3, 2, 1], "{precedence:?}");
        }
        let text = order(&graph, Precedence::SourceFirst)
            .unwrap_err()
            .to_string();
        assert!(text.contains("000001 -> 00000000-"), "{text}");
    }

    #[test]
    fn a_self_loop_is_a_cycle_of_one() {
        let graph = MemoryGraph::new(3, [(0, 1, 1), (1, 1, 1), (1, 1, 2)]);
        for precedence in BOTH {
            assert_eq!(cycle(&graph, precedence), [1, 1], "{precedence:?}");
        }
    }

    #[test]
    fn a_cycle_over_another_kind_is_none() {
        let graph = MemoryGraph::new(2, [(0, 1, 1), (1, 2, 0)]);
        assert_eq!(cycle(&graph, Precedence::SourceFirst), [0, 1, 0]);
        let view = DenseView::build(&graph, &KindFilter::only([KindId(2)]), false).unwrap();
        let order = topological_order(&view, Precedence::SourceFirst, NEVER).unwrap();
        assert_eq!(order, [BlockId(1), BlockId(0)]);
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = topological_order(&view, Precedence::SourceFirst, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }

    #[test]
    fn long_paths_and_cycles_do_not_overflow_the_stack() {
        let mut graph = MemoryGraph::path(200_000);
        assert!(
            order(&graph, Precedence::SourceFirst)
                .unwrap()
                .into_iter()
                .eq(0..200_000)
        );
        assert!(
            order(&graph, Precedence::TargetFirst)
                .unwrap()
                .into_iter()
                .rev()
                .eq(0..200_000)
        );
        graph.add_edge(199_999, 0, 0, &Default::default());
        assert_eq!(cycle(&graph, Precedence::SourceFirst).len(), 200_001);
    }

    #[test]
    fn random_graphs_give_the_smallest_order_or_a_real_cycle() {
        let mut cyclic = 0;
        for (seed, graph) in random_graphs(600) {
            for (_, kinds) in ways() {
                let view = DenseView::build(&graph, &kinds, seed % 2 == 0).unwrap();
                let edges: BTreeSet<_> = graph
                    .edges()
                    .into_iter()
                    .filter(|edge| kinds.passes(edge.1))
                    .map(|(source, _, target)| (source, target))
                    .collect();
                for precedence in BOTH {
                    let context = format!("seed {seed} {kinds:?} {precedence:?}");
                    match (
                        topological_order(&view, precedence, NEVER),
                        naive(&graph, &edges, precedence),
                    ) {
                        (Ok(found), Some(expected)) => assert_eq!(found, expected, "{context}"),
                        (Err(Error::Cycle { cycle }), None) => {
                            cyclic += 1;
                            assert!(
                                cycle.len() > 1 && cycle.first() == cycle.last(),
                                "{context}"
                            );
                            let once: BTreeSet<_> = cycle[1..].iter().collect();
                            assert_eq!(once.len(), cycle.len() - 1, "{context}: {cycle:?}");
                            assert_eq!(once.first(), Some(&&cycle[0]), "{context}: {cycle:?}");
                            for ends in cycle.windows(2) {
                                assert!(
                                    edges.contains(&(ends[0], ends[1])),
                                    "{context}: {cycle:?}"
                                );
                            }
                        }
                        other => panic!("{context}: {other:?}"),
                    }
                }
            }
        }
        assert!(
            cyclic > 100 && cyclic < 600 * 9 * 2 - 100,
            "both sorts occur: {cyclic}"
        );
    }

    /// Again and again the smallest block that nothing remaining must precede.
    fn naive(
        graph: &MemoryGraph,
        edges: &BTreeSet<(BlockId, BlockId)>,
        precedence: Precedence,
    ) -> Option<Vec<BlockId>> {
        use super::super::source::GraphSource;
        let mut before: BTreeMap<BlockId, BTreeSet<BlockId>> = BTreeMap::new();
        graph
            .for_each_block(&mut |id, _| {
                before.insert(id, BTreeSet::new());
            })
            .unwrap();
        for &(source, target) in edges {
            let (first, then) = match precedence {
                Precedence::SourceFirst => (source, target),
                Precedence::TargetFirst => (target, source),
            };
            before.get_mut(&then).unwrap().insert(first);
        }
        let mut order = Vec::new();
        while !before.is_empty() {
            let (&next, _) = before.iter().find(|(_, before)| before.is_empty())?;
            before.remove(&next);
            for before in before.values_mut() {
                before.remove(&next);
            }
            order.push(next);
        }
        Some(order)
    }
}
