//! Groups over batches of columns: how a query that only reads runs what is below an aggregation.
//!
//! Most of the time of a query goes into the rows that an aggregate looks at, of which none leaves the query. So they are never made:
//!
//! ```text
//!   Scan or rows ──► Expand ──► Filter ──► Merge ──► Expand ──► ... ──► groups
//!                    batches of about a thousand rows, a column for each slot that is still read
//! ```
//!
//! - A *column* holds ids of nodes, or values. Only columns that something behind reads are kept ([`assemble`]).
//! - The *fields* of a node (its labels and properties, as far as the query names them) are read once, for many nodes at a
//!   time ([`fields`]).
//! - A *step* asks the graph for the ends of all nodes of a batch at once, and makes no relationship ([`expand`]).
//! - Where only the node is read that was reached last, equal rows become one with a *weight* before they go on ([`merge`]); where not
//!   even that is read, a step only counts.
//!
//! Invariants:
//!
//! - The groups are those of the operators that work row by row, in another order perhaps.
//! - All rows below an aggregate are looked at, so no expression is evaluated that the operators by row would not evaluate, but for
//!   those of rows that are equal.
//! - A relationship is told from others of its MATCH by its ends: only where a store has one of a kind from one node to another.
//! - Memory: a few batches an operator; what has been read of nodes and what waits to be merged has the bounds of
//!   [`remembered`](super::remembered), and is given up where an operator needs it. So a query that had memory enough by rows
//!   has it here.

mod assemble;
mod batch;
mod expand;
mod fields;
mod formula;
mod group;
mod merge;
mod pipeline;
mod reads;
mod rows;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use assemble::Columns;
pub(super) use group::GroupColumns;
pub(super) use reads::reads_above;
pub(super) use rows::ColumnRows;
