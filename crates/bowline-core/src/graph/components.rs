//! Strongly and weakly connected components.
//!
//! In a strongly connected component each block reaches each other along edges: Tarjan's algorithm
//! ("Depth-first search and linear graph algorithms", 1972) with an explicit stack. Weakly connected
//! components ignore the direction of edges: [`algorithms::weak_components`](super::algorithms::weak_components).
//!
//! The first takes O(blocks + edges) time and up to 32 B per block beside the result.

use super::algorithms::weak_components::weak_labels;
use super::cancel::Cancel;
use super::view::DenseView;
use crate::Result;
use bowline_types::BlockId;

/// The strongly connected components: each ascending, in the order of their first blocks. A block
/// on no cycle is a component of its own.
pub fn strong_components(view: &DenseView<'_>, cancel: &Cancel) -> Result<Vec<Vec<BlockId>>> {
    Ok(group(view, &strong_labels(view, cancel)?))
}

/// The weakly connected components: each ascending, in the order of their first blocks.
pub fn weak_components(view: &DenseView<'_>, cancel: &Cancel) -> Result<Vec<Vec<BlockId>>> {
    Ok(group(view, &weak_labels(view, cancel)?))
}

/// How many different labels there are.
pub(crate) fn count_labels(labels: &[u32]) -> u64 {
    let mut seen = vec![false; labels.len()];
    labels
        .iter()
        .filter(|&&label| !std::mem::replace(&mut seen[label as usize], true))
        .count() as u64
}

/// For each block the number of one block of its strongly connected component.
pub(crate) fn strong_labels(view: &DenseView<'_>, cancel: &Cancel) -> Result<Vec<u32>> {
    const NONE: u32 = u32::MAX;
    let blocks = view.block_count();
    // When a block was found, and the earliest found block of its component known to be reached.
    let mut found_at = vec![NONE; blocks as usize];
    let mut low = vec![NONE; blocks as usize];
    let mut labels = vec![NONE; blocks as usize];
    let mut found = 0;
    // Found blocks whose component is not complete.
    let mut open: Vec<u32> = Vec::new();
    // Blocks being walked, with how many of their edges were.
    let mut walk: Vec<(u32, usize)> = Vec::new();

    for root in 0..blocks {
        if found_at[root as usize] != NONE {
            continue;
        }
        walk.push((root, 0));
        while let Some((number, edge)) = walk.last_mut() {
            let here = *number as usize;
            if *edge == 0 && found_at[here] == NONE {
                found_at[here] = found;
                low[here] = found;
                found += 1;
                open.push(*number);
            }
            if let Some(&next) = view.outgoing().row(*number).get(*edge) {
                *edge += 1;
                if found_at[next as usize] == NONE {
                    walk.push((next, 0));
                } else if labels[next as usize] == NONE {
                    low[here] = low[here].min(found_at[next as usize]);
                }
                continue;
            }
            let done = *number;
            cancel.check()?;
            walk.pop();
            if let Some((parent, _)) = walk.last() {
                let parent = *parent as usize;
                low[parent] = low[parent].min(low[here]);
            }
            if low[here] == found_at[here] {
                // Nothing earlier is reached: what was found since is one component.
                while let Some(member) = open.pop() {
                    labels[member as usize] = done;
                    if member == done {
                        break;
                    }
                }
            }
        }
    }
    Ok(labels)
}

/// The blocks of each label, labels in the order of their first blocks.
fn group(view: &DenseView<'_>, labels: &[u32]) -> Vec<Vec<BlockId>> {
    let mut component_of = vec![usize::MAX; labels.len()];
    let mut components: Vec<Vec<BlockId>> = Vec::new();
    for (number, &label) in labels.iter().enumerate() {
        let component = &mut component_of[label as usize];
        if *component == usize::MAX {
            *component = components.len();
            components.push(Vec::new());
        }
        components[*component].push(view.id(number as u32));
    }
    components
}

#[cfg(test)]
mod tests {
    use super::super::kind_id::KindId;
    use super::super::memory::{MemoryGraph, distances, random_graphs, ways};
    use super::super::source::KindFilter;
    use super::*;
    use bowline_types::Direction;

    const NEVER: &Cancel = &Cancel::never();

    fn parts(graph: &MemoryGraph) -> (Vec<Vec<u128>>, Vec<Vec<u128>>) {
        let view = DenseView::build(graph, &KindFilter::All, false).expect("builds");
        let plain = |parts: Vec<Vec<BlockId>>| -> Vec<Vec<u128>> {
            parts
                .into_iter()
                .map(|part| part.into_iter().map(|id| id.0).collect())
                .collect()
        };
        (
            plain(strong_components(&view, NEVER).expect("runs")),
            plain(weak_components(&view, NEVER).expect("runs")),
        )
    }

    #[test]
    fn parts_are_sorted_and_come_by_their_first_block() {
        // A cycle 1 -> 4 -> 2 -> 1, from which 0 is reached; 3 <-> 6; 5 alone with a self loop.
        let graph = MemoryGraph::new(
            7,
            [
                (1, 1, 4),
                (4, 1, 2),
                (2, 1, 1),
                (2, 1, 0),
                (3, 1, 6),
                (6, 2, 3),
                (5, 1, 5),
            ],
        );
        let (strong, weak) = parts(&graph);
        assert_eq!(strong, [vec![0], vec![1, 2, 4], vec![3, 6], vec![5]]);
        assert_eq!(weak, [vec![0, 1, 2, 4], vec![3, 6], vec![5]]);
    }

    #[test]
    fn an_empty_graph_has_no_parts_and_lone_blocks_are_parts() {
        assert_eq!(parts(&MemoryGraph::new(0, [])), (vec![], vec![]));
        let alone = vec![vec![0], vec![1]];
        assert_eq!(parts(&MemoryGraph::new(2, [])), (alone.clone(), alone));
    }

    #[test]
    fn kinds_decide_what_hangs_together() {
        let graph = MemoryGraph::new(3, [(0, 1, 1), (1, 1, 0), (1, 2, 2), (2, 2, 1)]);
        let view = DenseView::build(&graph, &KindFilter::only([KindId(2)]), false).unwrap();
        let expected = [vec![BlockId(0)], vec![BlockId(1), BlockId(2)]];
        assert_eq!(strong_components(&view, NEVER).unwrap(), expected);
        assert_eq!(weak_components(&view, NEVER).unwrap(), expected);
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = strong_components(&view, &cancel);
        assert!(matches!(ended, Err(crate::Error::Canceled)), "{ended:?}");
    }

    #[test]
    fn long_paths_and_cycles_do_not_overflow_the_stack() {
        let mut graph = MemoryGraph::path(200_000);
        let (strong, weak) = parts(&graph);
        assert_eq!((strong.len(), weak.len()), (200_000, 1));
        graph.add_edge(199_999, 0, 0, &Default::default());
        let (strong, weak) = parts(&graph);
        assert_eq!((strong.len(), weak.len()), (1, 1));
        assert!(strong[0].iter().copied().eq(0..200_000));
    }

    #[test]
    fn random_graphs_agree_with_mutual_reachability() {
        for (seed, graph) in random_graphs(600) {
            for (_, kinds) in ways() {
                let view = DenseView::build(&graph, &kinds, false).unwrap();
                let naive = |direction| {
                    let table = distances(&graph, direction, &kinds, |_, _, _| 1.0);
                    let mut parts: Vec<Vec<BlockId>> = Vec::new();
                    for (at, row) in table.iter().enumerate() {
                        let with = parts.iter_mut().find(|part| {
                            let first = part[0].0 as usize;
                            table[first][at].is_some() && row[first].is_some()
                        });
                        match with {
                            Some(part) => part.push(BlockId(at as u128)),
                            None => parts.push(vec![BlockId(at as u128)]),
                        }
                    }
                    parts
                };
                let context = format!("seed {seed} {kinds:?}");
                let strong = strong_components(&view, NEVER).unwrap();
                assert_eq!(strong, naive(Direction::Out), "{context}");
                let weak = weak_components(&view, NEVER).unwrap();
                assert_eq!(weak, naive(Direction::Both), "{context}");
                let labels = strong_labels(&view, NEVER).unwrap();
                assert_eq!(count_labels(&labels), strong.len() as u64, "{context}");
                let labels = weak_labels(&view, NEVER).unwrap();
                assert_eq!(count_labels(&labels), weak.len() as u64, "{context}");
                for part in weak {
                    let smallest = view.number(part[0]).unwrap();
                    for id in part {
                        assert_eq!(
                            labels[view.number(id).unwrap() as usize],
                            smallest,
                            "{context}"
                        );
                    }
                }
            }
        }
    }
}
