//! The figures S1 to S13: Bowline beside other stores, in one interleaved run.
//!
//! The names of the rows begin with the figures' numbers. Rows of the machine itself come first:
//! F, the raw loop of `pwrite` and `fdatasync`; the price of one access to memory; a hash map.

mod commits;
mod graph_writes;
mod lengths;
mod machine;
mod reads;
mod recovery;
mod sizes;
mod stage;
mod writes;

pub use machine::{load, raw};
pub use recovery::{recover_child, write_child};
pub use sizes::memory_child;
pub use stage::{Scale, Stage};

use crate::measure::Row;

/// All rows, the machine's first.
pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let mut rows = machine::rows(stage);
    rows.extend(commits::rows(stage));
    rows.extend(graph_writes::rows(stage));
    rows.extend(reads::rows(stage));
    rows.extend(writes::rows(stage));
    rows.extend(recovery::rows(stage));
    rows.extend(sizes::rows(stage));
    rows.extend(reads::versions(stage));
    rows.extend(lengths::rows(stage));
    rows
}
