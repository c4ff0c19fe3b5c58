//! Answers to single queries that were wrong once, or could be.

mod numbers;
mod paths;
mod projections;
mod times;
mod writes;

use bowline_query::{MemoryGraph, Parameters, Query, Value};

/// A graph that a query has made.
fn graph(setup: &str) -> MemoryGraph {
    let mut graph = MemoryGraph::new();
    Query::new(setup)
        .run_mut(&mut graph, &Parameters::new())
        .unwrap();
    graph
}

/// The rows of an answer, as text.
fn rows(graph: &MemoryGraph, text: &str) -> Vec<String> {
    let answer = Query::new(text)
        .run(graph, &Parameters::new())
        .unwrap_or_else(|e| panic!("{text}\n{e}"));
    let show = |row: &Vec<Value>| {
        row.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    answer.rows.iter().map(show).collect()
}
