//! The reference tables: rows of two published benchmarks, a transactional store's and a graph
//! store's, with a row of the same name here for each that can be had through the same door.
//!
//! Beside each stands the figure that was published, and the one measured with the same code as
//! ours runs on now, where that was done. They are of another day and partly of another machine:
//! told for orientation, and no ratio to them is in any baseline. Ratios to rows of our own, such
//! as those to the disk's own rate, are of one run.
//!
//! Rows that write are run twice: with `Sync` and with `Batched`. A row marked † was published
//! with a time below that of one flush, so it was not flushed: it is `Batched` that is compared.

mod common;
mod graph;
mod storage;
mod transactions;

use crate::measure::Row;

pub use common::{BATCHED, Place, SYNC, Scale};

/// All rows.
pub fn rows(place: &Place) -> Vec<Row<'_>> {
    let mut rows = transactions::rows(place);
    rows.extend(graph::rows(place));
    rows.extend(storage::rows(place));
    rows
}
