use std::collections::{BTreeMap, BTreeSet};

use super::super::memory::{BLOCK_KIND, MemoryGraph, distances, random_graphs, ways};
use super::*;
use crate::Error;
use bowline_types::{Attributes, Block};

const ORDERS: [TraverseOrder; 2] = [TraverseOrder::BreadthFirst, TraverseOrder::DepthFirst];

fn spec(order: TraverseOrder) -> TraverseSpec {
    TraverseSpec {
        order,
        ..TraverseSpec::default()
    }
}

fn walk(graph: &MemoryGraph, start: u128, spec: &TraverseSpec) -> Traversal {
    traverse(graph, &[BlockId(start)], spec).expect("traverses")
}

/// (id, depth) of each visit.
fn outline(traversal: &Traversal) -> Vec<(u128, u32)> {
    traversal
        .visits
        .iter()
        .map(|visit| (visit.id.0, visit.depth))
        .collect()
}

/// ```text
/// 0 -1-> 1 -1-> 3 -1-> 4
/// 0 -2-> 2 -1-> 3      4 -2-> 4
/// ```
fn diamond() -> MemoryGraph {
    MemoryGraph::new(
        6,
        [
            (0, 1, 1),
            (0, 2, 2),
            (1, 1, 3),
            (2, 1, 3),
            (3, 1, 4),
            (4, 2, 4),
        ],
    )
}

/// ```text
/// 0 -> 1 -> 2 -> 3 -> 4
/// 0 --------2
/// ```
fn shortcut() -> MemoryGraph {
    MemoryGraph::new(5, [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4), (0, 0, 2)])
}

#[test]
fn breadth_first_visits_by_distance_with_shortest_parents() {
    let found = walk(&diamond(), 0, &spec(TraverseOrder::BreadthFirst));
    assert_eq!(outline(&found), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)]);
    assert_eq!(found.stop, Stop::Exhausted);
    assert_eq!(found.edges_touched, 6);
    let third = found.visits[3];
    assert_eq!(
        (third.parent, third.kind),
        (Some(BlockId(1)), Some(KindId(1)))
    );
    assert_eq!((found.visits[0].parent, found.visits[0].kind), (None, None));
    assert_eq!(found.visits[2].kind, Some(KindId(2)));
}

#[test]
fn depth_first_visits_in_preorder() {
    let found = walk(&diamond(), 0, &spec(TraverseOrder::DepthFirst));
    assert_eq!(outline(&found), [(0, 0), (1, 1), (3, 2), (4, 3), (2, 1)]);
    assert_eq!(found.stop, Stop::Exhausted);
    assert_eq!(found.edges_touched, 6);
}

#[test]
fn direction_and_kinds_choose_the_edges() {
    for order in ORDERS {
        let arriving = TraverseSpec {
            direction: Direction::In,
            ..spec(order)
        };
        let ids: BTreeSet<u128> = outline(&walk(&diamond(), 3, &arriving))
            .iter()
            .map(|visit| visit.0)
            .collect();
        assert_eq!(ids, BTreeSet::from([0, 1, 2, 3]), "{order:?}");

        let one = TraverseSpec {
            kinds: KindFilter::only([KindId(2)]),
            ..spec(order)
        };
        assert_eq!(
            outline(&walk(&diamond(), 0, &one)),
            [(0, 0), (2, 1)],
            "{order:?}"
        );

        let none = TraverseSpec {
            kinds: KindFilter::only([]),
            ..spec(order)
        };
        assert_eq!(outline(&walk(&diamond(), 0, &none)), [(0, 0)], "{order:?}");

        let both = TraverseSpec {
            direction: Direction::Both,
            ..spec(order)
        };
        assert_eq!(walk(&diamond(), 4, &both).visits.len(), 5, "{order:?}");
    }
}

#[test]
fn several_starts_are_all_at_depth_zero_and_count_once() {
    let starts = [3, 0, 3].map(BlockId);
    let breadth = traverse(&diamond(), &starts, &spec(TraverseOrder::BreadthFirst)).unwrap();
    assert_eq!(outline(&breadth), [(3, 0), (0, 0), (4, 1), (1, 1), (2, 1)]);
    let depth = traverse(&diamond(), &starts, &spec(TraverseOrder::DepthFirst)).unwrap();
    assert_eq!(outline(&depth), [(3, 0), (4, 1), (0, 0), (1, 1), (2, 1)]);
    for order in ORDERS {
        let none = traverse(&diamond(), &[], &spec(order)).unwrap();
        assert_eq!((none.visits.len(), none.stop), (0, Stop::Exhausted));
    }
}

#[test]
fn a_missing_start_is_refused_even_behind_a_bound() {
    for order in ORDERS {
        let spec = TraverseSpec {
            limit: Some(1),
            ..spec(order)
        };
        let result = traverse(&diamond(), &[BlockId(0), BlockId(77)], &spec);
        assert!(
            matches!(result, Err(Error::MissingBlock { id: BlockId(77) })),
            "{result:?}"
        );
        let result = traverse(&MemoryGraph::new(0, []), &[BlockId(0)], &spec);
        assert!(
            matches!(result, Err(Error::MissingBlock { id: BlockId(0) })),
            "{result:?}"
        );
    }
}

#[test]
fn depth_bound_stops_exactly() {
    for order in ORDERS {
        for (max_depth, blocks, stop) in [
            (0, 1, Stop::MaxDepth),
            (1, 3, Stop::MaxDepth),
            (2, 4, Stop::MaxDepth),
            (3, 5, Stop::Exhausted),
            (u32::MAX, 5, Stop::Exhausted),
        ] {
            let spec = TraverseSpec {
                max_depth: Some(max_depth),
                ..spec(order)
            };
            let found = walk(&diamond(), 0, &spec);
            assert_eq!(
                (found.visits.len(), found.stop),
                (blocks, stop),
                "{order:?} {max_depth}"
            );
        }
        // A block whose only edge leads to itself has nothing beyond it.
        let spec = TraverseSpec {
            max_depth: Some(0),
            ..spec(order)
        };
        assert_eq!(
            walk(&diamond(), 4, &spec).stop,
            Stop::Exhausted,
            "{order:?}"
        );
    }
}

#[test]
fn limit_stops_exactly() {
    for order in ORDERS {
        let all = outline(&walk(&diamond(), 0, &spec(order)));
        for limit in 0..8 {
            let spec = TraverseSpec {
                limit: Some(limit),
                ..spec(order)
            };
            let found = walk(&diamond(), 0, &spec);
            assert_eq!(
                outline(&found),
                all[..all.len().min(limit as usize)],
                "{order:?} {limit}"
            );
            let stop = if limit < 5 {
                Stop::Limit
            } else {
                Stop::Exhausted
            };
            assert_eq!(found.stop, stop, "{order:?} {limit}");
        }
        // All within the depth were visited: the depth is what holds it back, not the limit.
        let spec = TraverseSpec {
            limit: Some(3),
            max_depth: Some(1),
            ..spec(order)
        };
        assert_eq!(walk(&diamond(), 0, &spec).stop, Stop::MaxDepth, "{order:?}");
        let spec = TraverseSpec {
            limit: Some(2),
            max_depth: Some(1),
            ..spec
        };
        assert_eq!(walk(&diamond(), 0, &spec).stop, Stop::Limit, "{order:?}");
    }
}

#[test]
fn byte_bound_stops_exactly() {
    let mut graph = diamond();
    // Records of 104 bytes: version, kind, no attributes, a length, 100 bytes of content.
    for id in 0..5 {
        graph.put_block(BLOCK_KIND, &Block::new(BlockId(id), "").content([7; 100]));
    }
    for order in ORDERS {
        for (max_bytes, blocks, stop) in [
            (0, 0, Stop::MaxBytes),
            (103, 0, Stop::MaxBytes),
            (104, 1, Stop::MaxBytes),
            (207, 1, Stop::MaxBytes),
            (208, 2, Stop::MaxBytes),
            (519, 4, Stop::MaxBytes),
            (520, 5, Stop::Exhausted),
            (u64::MAX, 5, Stop::Exhausted),
        ] {
            let spec = TraverseSpec {
                max_bytes: Some(max_bytes),
                ..spec(order)
            };
            let found = walk(&graph, 0, &spec);
            assert_eq!(
                (found.visits.len(), found.stop),
                (blocks, stop),
                "{order:?} {max_bytes}"
            );
        }
    }
}

#[test]
fn sizes_are_read_only_when_bytes_are_bounded() {
    for order in ORDERS {
        let graph = diamond();
        walk(&graph, 0, &spec(order));
        assert_eq!(graph.sizes_asked.get(), 1, "the start only: it must exist");
        walk(
            &graph,
            0,
            &TraverseSpec {
                max_bytes: Some(1 << 30),
                ..spec(order)
            },
        );
        assert_eq!(graph.sizes_asked.get(), 1 + 1 + 5);
    }
}

#[test]
fn an_edge_to_nowhere_is_an_error_where_the_block_is_read() {
    for (order, direction) in ORDERS.into_iter().zip([Direction::Out, Direction::In]) {
        let mut graph = MemoryGraph::new(1, []);
        match direction {
            Direction::Out => graph.add_edge(0, 1, 9, &Attributes::new()),
            _ => graph.add_edge(9, 1, 0, &Attributes::new()),
        }
        let spec = TraverseSpec {
            max_bytes: Some(1 << 30),
            direction,
            ..spec(order)
        };
        let result = traverse(&graph, &[BlockId(0)], &spec);
        assert!(
            matches!(result, Err(Error::InvalidRecord { what: "edge", .. })),
            "{result:?}"
        );
    }
}

#[test]
fn depth_first_moves_a_block_below_the_shorter_way() {
    let spec = TraverseSpec {
        max_depth: Some(2),
        ..spec(TraverseOrder::DepthFirst)
    };
    let found = walk(&shortcut(), 0, &spec);
    assert_eq!(outline(&found), [(0, 0), (1, 1), (2, 1), (3, 2)]);
    assert_eq!(found.visits[2].parent, Some(BlockId(0)));
    assert_eq!(found.stop, Stop::MaxDepth);

    // Without a bound, or with one that is not met, nothing moves and each block is read once.
    for max_depth in [None, Some(9)] {
        let graph = shortcut();
        let found = walk(
            &graph,
            0,
            &TraverseSpec {
                max_depth,
                ..spec.clone()
            },
        );
        assert_eq!(outline(&found), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
        assert_eq!(graph.neighbors_asked.get(), 5);
    }
}

#[test]
fn depth_first_moves_a_later_start_to_depth_zero() {
    let spec = TraverseSpec {
        max_depth: Some(1),
        ..spec(TraverseOrder::DepthFirst)
    };
    let found = traverse(&MemoryGraph::path(4), &[BlockId(0), BlockId(1)], &spec).unwrap();
    assert_eq!(outline(&found), [(0, 0), (1, 0), (2, 1)]);
    assert_eq!(found.visits[1].parent, None);
    assert_eq!(found.stop, Stop::MaxDepth);
}

#[test]
fn a_long_path_does_not_overflow_the_stack() {
    let blocks = 200_000;
    let graph = MemoryGraph::path(blocks);
    for order in ORDERS {
        let found = walk(&graph, 0, &spec(order));
        assert_eq!(
            (found.visits.len() as u128, found.stop),
            (blocks, Stop::Exhausted)
        );
        let last = found.visits.last().expect("visits");
        assert_eq!(
            (last.id.0, u128::from(last.depth)),
            (blocks - 1, blocks - 1)
        );
        let spec = TraverseSpec {
            max_depth: Some(150_000),
            ..spec(order)
        };
        let found = walk(&graph, 0, &spec);
        assert_eq!((found.visits.len(), found.stop), (150_001, Stop::MaxDepth));
    }
}

/// What every traversal must fulfil, checked without the code under test.
fn check_tree(graph: &MemoryGraph, found: &Traversal, spec: &TraverseSpec, context: &str) {
    let edges: BTreeSet<_> = graph.edges().into_iter().collect();
    let mut depths = BTreeMap::new();
    for visit in &found.visits {
        assert!(
            spec.max_depth.is_none_or(|max| visit.depth <= max),
            "{context}: over the bound"
        );
        match (visit.parent, visit.kind) {
            (None, None) => assert_eq!(visit.depth, 0, "{context}"),
            (Some(parent), Some(kind)) => {
                let above = depths.get(&parent).expect("a parent comes first");
                assert_eq!(visit.depth, above + 1, "{context}");
                assert!(spec.kinds.passes(kind), "{context}");
                let leaving = edges.contains(&(parent, kind, visit.id));
                let arriving = edges.contains(&(visit.id, kind, parent));
                let tied = match spec.direction {
                    Direction::Out => leaving,
                    Direction::In => arriving,
                    Direction::Both => leaving || arriving,
                };
                assert!(tied, "{context}: {parent} and {} are not tied", visit.id);
            }
            other => panic!("{context}: {other:?}"),
        }
        assert_eq!(
            depths.insert(visit.id, visit.depth),
            None,
            "{context}: visited twice"
        );
    }
    if spec.order == TraverseOrder::DepthFirst {
        let mut above: Vec<BlockId> = Vec::new();
        for visit in &found.visits {
            above.truncate(visit.depth as usize);
            assert_eq!(
                above.last().copied(),
                visit.parent,
                "{context}: not in preorder"
            );
            above.push(visit.id);
        }
    } else {
        assert!(
            found.visits.is_sorted_by_key(|visit| visit.depth),
            "{context}"
        );
    }
}

#[test]
fn random_graphs_agree_with_the_table_of_distances() {
    for (seed, graph) in random_graphs(300) {
        for (direction, kinds) in ways() {
            let table = distances(&graph, direction, &kinds, |_, _, _| 1.0);
            let mut random = fastrand::Rng::with_seed(seed);
            let starts: Vec<_> = (0..random.usize(1..3))
                .map(|_| BlockId(random.u128(..table.len() as u128)))
                .collect();
            let nearest = |to: usize| {
                starts
                    .iter()
                    .filter_map(|start| table[start.0 as usize][to])
                    .min_by(f64::total_cmp)
            };
            let reached: Vec<(usize, u32)> = (0..table.len())
                .filter_map(|to| nearest(to).map(|distance| (to, distance as u32)))
                .collect();

            for order in ORDERS {
                for max_depth in [None, Some(0), Some(1), Some(2), Some(3), Some(20)] {
                    let mut spec = TraverseSpec {
                        order,
                        direction,
                        kinds: kinds.clone(),
                        max_depth,
                        ..TraverseSpec::default()
                    };
                    let context = format!("seed {seed}, starts {starts:?}, {spec:?}");
                    let within: BTreeMap<BlockId, u32> = reached
                        .iter()
                        .filter(|(_, distance)| max_depth.is_none_or(|max| *distance <= max))
                        .map(|&(to, distance)| (BlockId(to as u128), distance))
                        .collect();
                    let whole = if within.len() < reached.len() {
                        Stop::MaxDepth
                    } else {
                        Stop::Exhausted
                    };

                    let found = traverse(&graph, &starts, &spec).expect("traverses");
                    check_tree(&graph, &found, &spec, &context);
                    assert_eq!(found.stop, whole, "{context}");
                    let visited: BTreeMap<_, _> = found
                        .visits
                        .iter()
                        .map(|visit| (visit.id, visit.depth))
                        .collect();
                    assert!(visited.keys().eq(within.keys()), "{context}: {visited:?}");
                    if order == TraverseOrder::BreadthFirst {
                        assert_eq!(visited, within, "{context}");
                    }

                    let limit = random.u64(..within.len() as u64 + 2);
                    spec.limit = Some(limit);
                    let limited = traverse(&graph, &starts, &spec).expect("traverses");
                    check_tree(&graph, &limited, &spec, &context);
                    if limit < within.len() as u64 {
                        assert_eq!(limited.stop, Stop::Limit, "{context}");
                        assert_eq!(limited.visits.len() as u64, limit, "{context}");
                        if order == TraverseOrder::BreadthFirst {
                            assert_eq!(limited.visits, found.visits[..limit as usize], "{context}");
                        }
                    } else {
                        assert_eq!(limited.stop, whole, "{context}");
                        assert_eq!(limited.visits, found.visits, "{context}");
                    }
                }
            }
        }
    }
}

#[test]
fn unbounded_depth_first_is_the_textbook_recursion() {
    fn recurse(graph: &MemoryGraph, id: BlockId, spec: &TraverseSpec, order: &mut Vec<BlockId>) {
        if order.contains(&id) {
            return;
        }
        order.push(id);
        let mut neighbors = Vec::new();
        graph
            .neighbors(id, spec.direction, &spec.kinds, &mut neighbors)
            .expect("reads");
        neighbors
            .iter()
            .for_each(|neighbor| recurse(graph, neighbor.id, spec, order));
    }
    for (seed, graph) in random_graphs(300) {
        for (direction, kinds) in ways() {
            let spec = TraverseSpec {
                direction,
                kinds: kinds.clone(),
                ..spec(TraverseOrder::DepthFirst)
            };
            let mut expected = Vec::new();
            recurse(&graph, BlockId(0), &spec, &mut expected);
            let found: Vec<_> = walk(&graph, 0, &spec)
                .visits
                .iter()
                .map(|visit| visit.id)
                .collect();
            assert_eq!(found, expected, "seed {seed} {spec:?}");
        }
    }
}

/// A row of the trees was read whole, and copied twice, before the first of its neighbors was taken, whatever the bound.
#[test]
fn a_limit_ends_the_reading_of_a_row() {
    let graph = MemoryGraph::new(2_001, (1..=2_000).map(|leaf| (0, 0, leaf)));
    let limit = TraverseSpec {
        limit: Some(10),
        ..TraverseSpec::default()
    };
    let max_depth = TraverseSpec {
        max_depth: Some(0),
        ..TraverseSpec::default()
    };
    for (spec, stop, touched) in [(limit, Stop::Limit, 10), (max_depth, Stop::MaxDepth, 1)] {
        graph.neighbors_given.set(0);
        let found = walk(&graph, 0, &spec);
        assert_eq!((found.stop, found.edges_touched), (stop, touched));
        let given = graph.neighbors_given.get();
        assert!(given < 20, "{given} neighbors for {spec:?}");
    }
}
