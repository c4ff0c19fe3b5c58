//! The example and validation graphs of LDBC Graphalytics: each algorithm gives their published answers.
//!
//! The graphs and values are those of the benchmark (`ldbc/ldbc_graphalytics`, `validation-graphs`). An undirected graph
//! is stored with one edge for each of its edges, and read in both directions.

use super::clustering::clustering_coefficients;
use super::communities::communities;
use super::distances::{UNREACHED, distances};
use super::page_rank::{PageRankSpec, page_rank};
use super::weak_components::weak_labels;
use super::weighted_distances::weighted_distances_from;
use crate::graph::cancel::Cancel;
use crate::graph::memory::MemoryGraph;
use crate::graph::path::weighted::Weight;
use crate::graph::source::KindFilter;
use crate::graph::view::DenseView;
use bowline_types::{Attributes, BlockId, Direction};

const NEVER: Cancel = Cancel::never();
const INFINITE: f64 = f64::INFINITY;

/// A graph with the blocks of a range of ids.
fn graph(ids: std::ops::RangeInclusive<u128>, edges: &[(u128, u128, &str)]) -> MemoryGraph {
    let mut graph = MemoryGraph::new(0, []);
    ids.for_each(|id| graph.add_block(id));
    for (source, target, weight) in edges {
        let with = Attributes::from([("weight".to_owned(), (*weight).into())]);
        graph.add_edge(*source, 1, *target, &with);
    }
    graph
}

fn view(graph: &MemoryGraph) -> DenseView<'static> {
    DenseView::build(graph, &KindFilter::All, true).expect("builds")
}

fn depths(graph: &MemoryGraph, start: u128, direction: Direction) -> Vec<Option<u32>> {
    let view = view(graph);
    let start = view.require_number(BlockId(start)).expect("it exists");
    let found = distances(&view, start, direction, &NEVER).expect("runs");
    let depth = |depth| Some(depth).filter(|depth| *depth != UNREACHED);
    found.into_iter().map(depth).collect()
}

fn weights(graph: &MemoryGraph, start: u128, direction: Direction) -> Vec<f64> {
    let weight = Weight {
        attribute: "weight",
        default: None,
    };
    let (start, all) = (BlockId(start), KindFilter::All);
    let found = weighted_distances_from(graph, start, direction, &all, weight, &NEVER);
    found.expect("runs").1
}

fn ranks(graph: &MemoryGraph, direction: Direction) -> Vec<f64> {
    let spec = PageRankSpec {
        damping: 0.85,
        iterations: 2,
        direction,
    };
    page_rank(&view(graph), &spec, &NEVER).expect("runs")
}

/// Labels as ids.
fn ids(graph: &MemoryGraph, labels: Vec<u32>) -> Vec<u128> {
    let view = view(graph);
    labels.into_iter().map(|label| view.id(label).0).collect()
}

fn labels(graph: &MemoryGraph, iterations: u32) -> Vec<u128> {
    let found = communities(&view(graph), iterations, &NEVER).expect("runs");
    ids(graph, found)
}

fn components(graph: &MemoryGraph) -> Vec<u128> {
    ids(graph, weak_labels(&view(graph), &NEVER).expect("runs"))
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let is_close = (found - expected).abs() <= 1e-14 * expected.abs() || found == expected;
        assert!(is_close, "{found} is not {expected}");
    }
}

/// `example-directed`.
fn directed() -> MemoryGraph {
    graph(
        1..=10,
        &[
            (1, 3, "0.5"),
            (1, 5, "0.3"),
            (2, 4, "0.1"),
            (2, 5, "0.3"),
            (2, 10, "0.12"),
            (3, 1, "0.53"),
            (3, 5, "0.62"),
            (3, 8, "0.21"),
            (3, 10, "0.52"),
            (5, 3, "0.69"),
            (5, 4, "0.53"),
            (5, 8, "0.1"),
            (6, 3, "0.23"),
            (6, 4, "0.39"),
            (7, 4, "0.83"),
            (8, 1, "0.39"),
            (9, 4, "0.69"),
        ],
    )
}

/// `example-undirected`.
fn undirected() -> MemoryGraph {
    graph(
        2..=10,
        &[
            (2, 3, "0.9"),
            (2, 4, "0.69"),
            (3, 4, "0.13"),
            (3, 5, "0.5"),
            (3, 8, "0.32"),
            (5, 6, "0.63"),
            (5, 8, "0.12"),
            (6, 7, "0.53"),
            (6, 8, "0.64"),
            (6, 9, "0.23"),
            (6, 10, "0.63"),
            (7, 9, "0.36"),
        ],
    )
}

#[test]
fn the_directed_example_has_its_published_answers() {
    let graph = directed();
    let found = depths(&graph, 1, Direction::Out);
    let none = None;
    let expected = [
        Some(0),
        none,
        Some(1),
        Some(2),
        Some(1),
        none,
        none,
        Some(2),
        none,
        Some(2),
    ];
    assert_eq!(found, expected);
    let found = weights(&graph, 1, Direction::Out);
    let expected = [
        0.0, INFINITE, 0.5, 0.83, 0.3, INFINITE, INFINITE, 0.4, INFINITE, 1.02,
    ];
    assert_close(&found, &expected);
    let expected = [
        0.1477629166666667,
        0.04753375,
        0.1550469444444444,
        0.1597573611111111,
        0.14624,
        0.04753375,
        0.04753375,
        0.1135740277777778,
        0.04753375,
        0.08748375000000001,
    ];
    assert_close(&ranks(&graph, Direction::Out), &expected);
    assert_eq!(components(&graph), [1; 10]);
    assert_eq!(labels(&graph, 2), [1, 2, 3, 4, 1, 1, 2, 3, 2, 1]);
    let found = clustering_coefficients(&view(&graph), true, &NEVER).expect("runs");
    let expected = [
        2.0 / 3.0,
        1.0 / 6.0,
        0.15,
        0.05,
        0.25,
        0.0,
        0.0,
        5.0 / 6.0,
        0.0,
        0.0,
    ];
    assert_close(&found, &expected);
}

#[test]
fn the_undirected_example_has_its_published_answers() {
    let graph = undirected();
    let found = depths(&graph, 2, Direction::Both);
    assert_eq!(found, [0, 1, 1, 2, 3, 4, 2, 4, 4].map(Some));
    let found = weights(&graph, 2, Direction::Both);
    let expected = [0.0, 0.82, 0.69, 1.26, 1.78, 2.31, 1.14, 2.01, 2.41];
    assert_close(&found, &expected);
    let expected = [
        0.09084490740740739,
        0.1424089506172839,
        0.09084490740740739,
        0.1249891975308642,
        0.1686172839506173,
        0.09749537037037037,
        0.1249891975308642,
        0.09749537037037037,
        0.06231481481481481,
    ];
    assert_close(&ranks(&graph, Direction::Both), &expected);
    assert_eq!(components(&graph), [2; 9]);
    assert_eq!(labels(&graph, 2), [2, 3, 2, 2, 6, 5, 2, 5, 5]);
    let found = clustering_coefficients(&view(&graph), false, &NEVER).expect("runs");
    let (third, two_thirds) = (1.0 / 3.0, 2.0 / 3.0);
    let expected = [1.0, third, 1.0, two_thirds, 0.2, 1.0, two_thirds, 1.0, 0.0];
    assert_close(&found, &expected);
}

#[test]
fn the_validation_graphs_have_their_published_answers() {
    // Of breadth-first search, from 1.
    let edges = [
        (1, 2),
        (1, 3),
        (2, 3),
        (2, 4),
        (2, 5),
        (3, 1),
        (4, 6),
        (4, 7),
        (4, 8),
        (5, 2),
        (5, 1),
        (6, 4),
        (6, 8),
        (8, 1),
        (8, 2),
        (8, 3),
        (9, 10),
    ]
    .map(|(source, target)| (source, target, "1"));
    let found = depths(&graph(1..=10, &edges), 1, Direction::Out);
    let reached = [0, 1, 1, 2, 2, 3, 3, 3].map(Some);
    assert!(
        found
            .into_iter()
            .eq(reached.into_iter().chain([None, None]))
    );

    // Of shortest paths, from 1, and its undirected form.
    let mut edges = vec![
        (1, 2, "0.5"),
        (1, 3, "5.0"),
        (1, 4, "5.0"),
        (2, 5, "0.5"),
        (3, 4, "2.0"),
        (5, 6, "0.5"),
        (6, 3, "0.5"),
        (6, 10, "23.0"),
        (7, 1, "1.0"),
        (7, 8, "3.2"),
        (8, 10, "0.2"),
        (9, 10, "0.1"),
        (10, 7, "8.0"),
    ];
    let found = weights(&graph(1..=10, &edges), 1, Direction::Out);
    let expected = [0.0, 0.5, 2.0, 4.0, 1.0, 1.5, 32.5, 35.7, INFINITE, 24.5];
    assert_close(&found, &expected);
    edges.push((11, 12, "3.4"));
    let found = weights(&graph(1..=12, &edges), 1, Direction::Both);
    let expected = [
        0.0, 0.5, 2.0, 4.0, 1.0, 1.5, 1.0, 4.2, 4.5, 4.4, INFINITE, INFINITE,
    ];
    assert_close(&found, &expected);

    // Of label propagation, with five iterations.
    let edges = [
        (1, 2),
        (1, 3),
        (1, 7),
        (2, 1),
        (2, 3),
        (3, 1),
        (3, 2),
        (4, 5),
        (4, 6),
        (5, 4),
        (5, 6),
        (5, 7),
        (6, 5),
        (6, 7),
        (7, 5),
        (7, 6),
        (7, 8),
        (8, 6),
    ]
    .map(|(source, target)| (source, target, "1"));
    assert_eq!(labels(&graph(1..=8, &edges), 5), [1, 1, 1, 5, 4, 4, 4, 4]);

    // Of connected components: block 5 does not exist.
    let edges = [
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 3),
        (2, 4),
        (4, 2),
        (6, 7),
        (6, 8),
        (7, 6),
        (9, 3),
    ]
    .map(|(source, target)| (source, target, "1"));
    let mut with_a_gap = graph(1..=4, &[]);
    (6..=9).for_each(|id| with_a_gap.add_block(id));
    for (source, target, _) in edges {
        with_a_gap.add_edge(source, 1, target, &Attributes::new());
    }
    assert_eq!(components(&with_a_gap), [1, 1, 1, 1, 6, 6, 6, 1]);
}
