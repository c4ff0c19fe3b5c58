//! Graph algorithms with a value for each block, or with paths.
//!
//! ```text
//!   over a whole graph, by dense numbers          around a block, by the trees
//!
//!   distances             breadth-first search    k_hop           neighborhood
//!   weighted_distances    Dijkstra                simple_paths    all simple paths
//!   page_rank             power iteration         a_star          guided search
//!   weak_components       union-find
//!   communities           label propagation
//!   clustering            local coefficients
//!   triangles             forward algorithm
//!            |
//!        adjacency        rows of vertex numbers: all that the left column knows of a graph
//! ```
//!
//! The first six of the left column are those of LDBC Graphalytics (specification 1.0), and give its published results
//! on its example graphs. Bowline allows what Graphalytics does not, self-loops and parallel edges of several kinds;
//! each head says what they mean.
//!
//! Invariants: no algorithm recurses. Each result is a function of the snapshot alone, to the last bit of a floating-point
//! number, because sums run in the order of vertex numbers, which is that of the block ids. Each algorithm checks a
//! [`Cancel`](super::cancel::Cancel), and its head says how much memory it takes.

pub mod a_star;
pub mod adjacency;
pub mod clustering;
pub mod communities;
pub mod distances;
pub mod k_hop;
pub mod page_rank;
pub mod simple_paths;
pub mod triangles;
pub mod weak_components;
pub mod weighted_distances;

#[cfg(test)]
mod tests;
