use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::memory::{BLOCK_KIND, MemoryGraph, random_graphs, ways};
use super::super::source::KindFilter;
use super::super::view::{Rows, RowsBuilder};
use super::*;
use bowline_testing::Seed;
use bowline_types::{Block, BlockId};

fn stats(graph: &MemoryGraph, kinds: &KindFilter) -> GraphStats<KindId> {
    let built = DenseView::build_counted(graph, kinds, false);
    let (view, counts) = built.expect("builds");
    graph_stats(&view, counts, &Cancel::never()).expect("runs")
}

#[test]
fn an_empty_graph_has_figures_of_zero() {
    assert_eq!(
        stats(&MemoryGraph::new(0, []), &KindFilter::All),
        GraphStats {
            view_memory_bytes: 8,
            ..GraphStats::default()
        }
    );
}

#[test]
fn figures_of_a_small_graph() {
    // A triangle 0 1 2, tied twice between 0 and 1; 3 behind 0, with a self loop; 4 alone.
    let mut graph = MemoryGraph::new(
        5,
        [
            (0, 1, 1),
            (1, 2, 0),
            (0, 2, 1),
            (1, 1, 2),
            (2, 1, 0),
            (3, 1, 0),
            (3, 3, 3),
        ],
    );
    graph.put_block(KindId(7), &Block::new(BlockId(4), ""));
    let found = stats(&graph, &KindFilter::All);
    let kinds = [(1, 4), (2, 2), (3, 1)].map(|(kind, count)| (KindId(kind), count));
    let expected = GraphStats {
        blocks: 5,
        edges: 7,
        blocks_by_kind: BTreeMap::from([(KindId(7), 1), (BLOCK_KIND, 4)]),
        edges_by_kind: BTreeMap::from(kinds),
        self_loops: 1,
        out_degree_max: 2,
        in_degree_max: 3,
        degree_mean: 14.0 / 5.0,
        strong_components: 3,
        weak_components: 2,
        triangles: 1,
        // 1 of 3 pairs around block 0, the only pair around 1 and around 2.
        average_clustering: (1.0 / 3.0 + 1.0 + 1.0) / 5.0,
        view_memory_bytes: found.view_memory_bytes,
    };
    assert_eq!(found, expected);

    let found = stats(&graph, &KindFilter::only([KindId(2)]));
    assert_eq!((found.blocks, found.edges), (5, 2));
    assert_eq!((found.strong_components, found.weak_components), (4, 4));
    assert_eq!(
        (found.triangles, found.self_loops, found.average_clustering),
        (0, 0, 0.0)
    );
}

#[test]
fn complete_graphs_have_every_triangle() {
    for blocks in 3..12u128 {
        let pairs = (0..blocks).flat_map(|a| (a + 1..blocks).map(move |b| (a, 1, b)));
        let found = stats(&MemoryGraph::new(blocks, pairs), &KindFilter::All);
        assert_eq!(
            u128::from(found.triangles),
            blocks * (blocks - 1) * (blocks - 2) / 6
        );
        assert_eq!(found.average_clustering, 1.0);
    }
}

/// Found by a comparison of the program's output on a directory and on a server: it was -0.0 here, and 0.0 there.
#[test]
fn the_clustering_of_a_graph_without_pairs_has_no_sign() {
    let found = stats(&MemoryGraph::new(3, []), &KindFilter::All);
    assert_eq!(found.average_clustering.to_bits(), 0.0_f64.to_bits());
}

#[test]
fn a_long_path_does_not_overflow_the_stack() {
    let found = stats(&MemoryGraph::path(200_000), &KindFilter::All);
    assert_eq!((found.blocks, found.edges), (200_000, 199_999));
    assert_eq!(
        (found.strong_components, found.weak_components),
        (200_000, 1)
    );
    assert_eq!((found.out_degree_max, found.triangles), (1, 0));
}

#[test]
fn random_graphs_agree_with_counting_all_triples() {
    let mut seen = 0;
    for (seed, graph) in random_graphs(600) {
        for (_, kinds) in ways() {
            let found = stats(&graph, &kinds);
            let edges: Vec<_> = graph
                .edges()
                .into_iter()
                .filter(|edge| kinds.passes(edge.1))
                .collect();
            let tied: BTreeSet<_> = edges
                .iter()
                .flat_map(|&(a, _, b)| [(a, b), (b, a)])
                .filter(|(a, b)| a != b)
                .collect();
            let ids: Vec<_> = (0..u128::from(found.blocks)).map(BlockId).collect();
            let (mut corners, mut clustering) = (0, 0.0);
            for &at in &ids {
                let (mut closed, mut pairs) = (0, 0);
                for &a in ids.iter().filter(|&&a| tied.contains(&(at, a))) {
                    for &b in ids.iter().filter(|&&b| a < b && tied.contains(&(at, b))) {
                        pairs += 1;
                        closed += u64::from(tied.contains(&(a, b)));
                    }
                }
                corners += closed;
                clustering += if pairs == 0 {
                    0.0
                } else {
                    closed as f64 / f64::from(pairs)
                };
            }
            let context = format!("seed {seed} {kinds:?}");
            assert_eq!(found.triangles, corners / 3, "{context}");
            let error = (found.average_clustering - clustering / ids.len() as f64).abs();
            assert!(error < 1e-12, "{context}");

            let degree = |end: fn(&(BlockId, KindId, BlockId)) -> BlockId, at: BlockId| {
                edges.iter().filter(|edge| end(edge) == at).count() as u64
            };
            let outs = ids.iter().map(|&at| degree(|edge| edge.0, at));
            let ins = ids.iter().map(|&at| degree(|edge| edge.2, at));
            assert_eq!(Some(found.out_degree_max), outs.max(), "{context}");
            assert_eq!(Some(found.in_degree_max), ins.max(), "{context}");
            assert_eq!(found.edges, edges.len() as u64, "{context}");
            seen += found.triangles;
        }
    }
    assert!(
        Seed::named().is_some() || seen > 100,
        "some graphs have triangles: {seen}"
    );
}

/// The ego networks of Facebook users published by SNAP, whose page states these figures.
/// The file lies outside the repository; without it there is nothing to compare with.
#[test]
fn the_facebook_graph_has_its_published_figures() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/facebook_combined.txt");
    let Ok(text) = std::fs::read_to_string(&path) else {
        bowline_testing::skip(format!("{} does not exist", path.display()));
        return;
    };
    let edges: Vec<(u128, u32, u128)> = text
        .lines()
        .map(|line| {
            let (a, b) = line.split_once(' ').expect("two numbers");
            (
                a.parse().expect("a number"),
                1,
                b.parse().expect("a number"),
            )
        })
        .collect();
    let blocks = edges
        .iter()
        .map(|edge| edge.0.max(edge.2) + 1)
        .max()
        .expect("edges");
    let graph = MemoryGraph::new(blocks, edges);
    let built = DenseView::build_counted(&graph, &KindFilter::All, false);
    let (view, counts) = built.expect("builds");
    let found = graph_stats(&view, counts, &Cancel::never()).expect("runs");
    assert_eq!((found.blocks, found.edges), (4_039, 88_234));
    assert_eq!(found.triangles, 1_612_010);
    assert_eq!((found.weak_components, found.self_loops), (1, 0));
    assert!(
        (found.average_clustering - 0.6055).abs() < 0.000_05,
        "{}",
        found.average_clustering
    );
    assert_eq!(diameter(&undirected(view.outgoing())), 8);
}

/// The largest distance between any two blocks of a connected graph, by breadth-first searches from
/// 64 blocks at a time: bit `n` of a block's word says whether the `n`th search has found it.
fn diameter(ties: &Rows<'_>) -> u32 {
    let mut diameter = 0;
    let numbers: Vec<u32> = (0..ties.len() as u32).collect();
    for starts in numbers.chunks(64) {
        let mut found = vec![0u64; ties.len()];
        for (bit, &start) in starts.iter().enumerate() {
            found[start as usize] |= 1 << bit;
        }
        for distance in 1.. {
            let spread: Vec<u64> = ties
                .iter()
                .map(|(number, row)| {
                    row.iter().fold(found[number as usize], |bits, &end| {
                        bits | found[end as usize]
                    })
                })
                .collect();
            if spread == found {
                break;
            }
            diameter = diameter.max(distance);
            found = spread;
        }
    }
    diameter
}

/// The undirected simple graph: each tie in both rows, rows ascending, no block in its own row.
fn undirected(outgoing: &Rows<'_>) -> Rows<'static> {
    let incoming = outgoing.transposed();
    let mut rows = RowsBuilder::new(outgoing.len());
    let mut row = Vec::new();
    for (number, targets) in outgoing.iter() {
        row.clear();
        let ends = targets.iter().chain(incoming.row(number));
        row.extend(ends.filter(|&&end| end != number));
        row.sort_unstable();
        row.dedup();
        row.iter().for_each(|&end| rows.push(number as usize, end));
    }
    rows.finish()
}
