//! Running a plan.
//!
//! Each operator of a plan becomes a [`Stream`], which yields one row per call and asks its input for rows as it needs
//! them, or hands all of its rows to who only looks at them. A stream holds no borrow of the graph: it reads pages through the [`Context`], so that operators that write
//! may stand among those that read.
//!
//! ```text
//!   context      what a running query has: graph, parameters, clock, limits
//!   remembered   the nodes that a query has read, and its memory
//!   loose        the large values that expressions have made
//!   stream       the trait of operators
//!   evaluate     the value of an expression in a row
//!   arithmetic   + - * / % ^ and comparisons
//!   access       properties, components, elements, labels
//!   steps        the relationships of a node, page by page
//!   read         scan, filter, project, unwind, optional, union, skip, limit, distinct
//!   expand       one step, several steps, shortest paths
//!   gather       sort, eager
//!   aggregate    groups
//!   columns      groups over batches of columns
//!   write        create, set, remove, delete; merge
//!   count        rows and times of operators
//!   open         from plan to stream
//! ```

mod access;
mod aggregate;
mod arithmetic;
mod columns;
mod context;
mod count;
mod evaluate;
mod expand;
mod gather;
mod loose;
mod merge;
mod open;
mod read;
mod remembered;
mod seek;
mod steps;
mod stream;
mod write;

pub(crate) use access::materialize;
pub(crate) use columns::Columns;
pub(crate) use context::{Access, Context, Setting};
pub use context::{Effects, Limits};
pub(crate) use count::Counts;
pub(crate) use open::{open, open_counted, open_whole};
pub(crate) use remembered::{Held, Remembered};
