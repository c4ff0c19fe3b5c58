//! Statistics of a whole graph: counts, degrees, components, triangles.
//!
//! Triangles are counted on the *undirected simple graph*: two blocks are tied or not, however many
//! edges there are between them and whichever way they point; self loops do not count. The forward
//! algorithm (Schank and Wagner, "Finding, counting and listing all triangles in large graphs",
//! 2005) ranks blocks by degree, the highest first, and keeps each tie only at its end of the
//! larger rank:
//!
//! ```text
//! ranks, tied                  the ends of smaller rank, ascending
//!     1 ---- 0                 0: -
//!      \    / \                1: 0
//!        2     3               2: 0 1      2's list meets 1's list in 0: triangle (2, 1, 0)
//!                              3: 0
//! ```
//!
//! A triangle is found exactly once, at its two largest ranks, by intersecting two sorted lists. No
//! list is longer than √(2·ties), so it takes O(ties^1.5) time, however large the hubs are.
//! Memory: about 12 B per tie at the peak and 28 B per block, beside the view.

use std::cmp::{Ordering, Reverse};

use bowline_types::GraphStats;

use super::components::{count_labels, strong_labels, weak_labels};
use super::kind_id::KindId;
use super::view::{DenseView, Rows, RowsBuilder};

/// Computes all statistics.
pub fn graph_stats(view: &DenseView) -> GraphStats<KindId> {
    let blocks = u64::from(view.block_count());
    let edges = view.edge_count();
    let mut stats = GraphStats {
        blocks,
        edges,
        blocks_by_kind: view.block_kinds().clone(),
        edges_by_kind: view.edge_kinds().clone(),
        degree_mean: if blocks == 0 {
            0.0
        } else {
            2.0 * edges as f64 / blocks as f64
        },
        strong_components: count_labels(&strong_labels(view)),
        weak_components: count_labels(&weak_labels(view)),
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

    let ties = undirected(view.outgoing());
    let triangles = triangles_per_block(&ties);
    // Each triangle was counted at its three corners.
    stats.triangles = triangles.iter().sum::<u64>() / 3;
    if blocks > 0 {
        let sum: f64 = ties
            .iter()
            .map(|(number, row)| (row.len() as f64, triangles[number as usize] as f64))
            .filter(|(degree, _)| *degree >= 2.0)
            .map(|(degree, triangles)| 2.0 * triangles / (degree * (degree - 1.0)))
            .sum();
        stats.average_clustering = sum / blocks as f64;
    }
    stats
}

/// The undirected simple graph: each tie in both rows, rows ascending, no block in its own row.
fn undirected(outgoing: &Rows) -> Rows {
    let incoming = outgoing.transposed();
    let mut rows = RowsBuilder::new(outgoing.len());
    let mut row = Vec::new();
    for (number, targets) in outgoing.iter() {
        row.clear();
        row.extend(
            targets
                .iter()
                .chain(incoming.row(number))
                .filter(|&&end| end != number),
        );
        row.sort_unstable();
        row.dedup();
        row.iter().for_each(|&end| rows.push(number as usize, end));
    }
    rows.finish()
}

/// How many triangles each block is a corner of.
fn triangles_per_block(ties: &Rows) -> Vec<u64> {
    let mut by_rank: Vec<u32> = (0..ties.len() as u32).collect();
    by_rank.sort_unstable_by_key(|&number| (Reverse(ties.row(number).len()), number));
    let mut rank_of = vec![0u32; ties.len()];
    for (rank, &number) in by_rank.iter().enumerate() {
        rank_of[number as usize] = rank as u32;
    }

    // By rank: the ends of higher degree.
    let mut upward = RowsBuilder::new(ties.len());
    let mut row = Vec::new();
    for (rank, &number) in by_rank.iter().enumerate() {
        row.clear();
        let ranks = ties.row(number).iter().map(|&end| rank_of[end as usize]);
        row.extend(ranks.filter(|&end| (end as usize) < rank));
        row.sort_unstable();
        row.iter().for_each(|&end| upward.push(rank, end));
    }
    let upward = upward.finish();

    let mut triangles = vec![0; ties.len()];
    for (rank, row) in upward.iter() {
        for &middle in row {
            for_each_common(row, upward.row(middle), |top| {
                for corner in [rank, middle, top] {
                    triangles[by_rank[corner as usize] as usize] += 1;
                }
            });
        }
    }
    triangles
}

/// Visits the common elements of two ascending lists.
fn for_each_common(mut a: &[u32], mut b: &[u32], mut visit: impl FnMut(u32)) {
    while let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) {
        match first_a.cmp(first_b) {
            Ordering::Less => a = rest_a,
            Ordering::Greater => b = rest_b,
            Ordering::Equal => {
                visit(*first_a);
                (a, b) = (rest_a, rest_b);
            }
        }
    }
}

#[cfg(test)]
mod tests;
