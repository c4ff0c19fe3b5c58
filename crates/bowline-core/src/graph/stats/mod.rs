//! Statistics of a whole graph: counts, degrees, components, triangles.
//!
//! Triangles and clustering are those of the undirected simple graph
//! ([`algorithms::triangles`](super::algorithms::triangles), whose time and memory these statistics take).

use bowline_types::GraphStats;

use super::algorithms::triangles::Ties;
use super::algorithms::weak_components::weak_labels;
use super::cancel::Cancel;
use super::components::{count_labels, strong_labels};
use super::kind_id::KindId;
use super::view::{DenseView, KindCounts};
use crate::Result;

/// Computes all statistics.
pub fn graph_stats(
    view: &DenseView<'_>,
    counts: KindCounts,
    cancel: &Cancel,
) -> Result<GraphStats<KindId>> {
    let blocks = u64::from(view.block_count());
    let edges = view.edge_count();
    let mut stats = GraphStats {
        blocks,
        edges,
        blocks_by_kind: counts.blocks,
        edges_by_kind: counts.edges,
        degree_mean: if blocks == 0 {
            0.0
        } else {
            2.0 * edges as f64 / blocks as f64
        },
        strong_components: count_labels(&strong_labels(view, cancel)?),
        weak_components: count_labels(&weak_labels(view, cancel)?),
        view_memory_bytes: view.memory_bytes(),
        ..GraphStats::default()
    };

    let mut in_degrees = vec![0u64; blocks as usize];
    for (source, row) in view.outgoing().iter() {
        stats.self_loops += row.iter().filter(|&&target| target == source).count() as u64;
        row.iter()
            .for_each(|&target| in_degrees[target as usize] += 1);
    }
    for (number, row) in view.outgoing().iter() {
        let (out_degree, in_degree) = (row.len() as u64, in_degrees[number as usize]);
        stats.out_degree_max = stats.out_degree_max.max(out_degree);
        stats.in_degree_max = stats.in_degree_max.max(in_degree);
    }
    drop(in_degrees);

    let ties = Ties::build(view, cancel)?;
    let mut triangles = vec![0u64; blocks as usize];
    ties.for_each_triangle(cancel, |corners, _| {
        stats.triangles += 1;
        for corner in corners {
            triangles[corner as usize] += 1;
        }
    })?;
    if blocks > 0 {
        let sum: f64 = ties
            .degrees()
            .iter()
            .zip(triangles)
            .map(|(degree, triangles)| (f64::from(*degree), triangles as f64))
            .filter(|(degree, _)| *degree >= 2.0)
            .map(|(degree, triangles)| 2.0 * triangles / (degree * (degree - 1.0)))
            .sum();
        // The sum of nothing is -0.0, which a message does not keep.
        stats.average_clustering = sum / blocks as f64 + 0.0;
    }
    Ok(stats)
}

#[cfg(test)]
mod tests;
