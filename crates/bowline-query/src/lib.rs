//! openCypher over a graph behind a trait: parse, check, plan and execute.
//!
//! A query is text. [`Query`] parses and checks it, plans it with the statistics of a [`Graph`], and runs it on that
//! graph, or on a [`GraphMut`] if it writes. The crate does no I/O, starts no thread and reads no clock: the time, a
//! source of random numbers and a cancel callback come with the query.
//!
//! ```
//! use bowline_query::{MemoryGraph, Parameters, Query};
//!
//! let mut graph = MemoryGraph::new();
//! let parameters = Parameters::new();
//! Query::new("CREATE (:Person {name: 'Ada'})-[:KNOWS]->(:Person {name: 'Alan'})")
//!     .run_mut(&mut graph, &parameters)
//!     .unwrap();
//! let answer = Query::new("MATCH (a)-[:KNOWS]->(b) RETURN a.name, b.name").run(&graph, &parameters).unwrap();
//! assert_eq!(answer.rows[0], ["Ada".into(), "Alan".into()]);
//! ```
//!
//! ```text
//!   query      text, settings, answers: what a caller uses
//!   cache      plans by text
//!   prepared   a planned query
//!   explain    plans as text
//!   execute    operators that yield rows
//!   compile    from tree to plan: names, types, order of work
//!   plan       operators and expressions with resolved names
//!   memory     a graph in memory
//!   function   the functions of the language
//!   call       procedures
//!   graph      the traits that a store implements
//!   temporal   dates, times, durations: made, read, calculated
//!   syntax     from text to tree
//!   value      values, their equality and order
//!   calendar   types of time
//!   error      problems, with their places
//! ```
//!
//! What is supported, and how much of openCypher's own test suite passes, is in docs/cypher.md; the decisions are in
//! docs/design/query.md.

mod cache;
mod calendar;
mod call;
mod compile;
mod error;
mod execute;
mod explain;
mod function;
mod graph;
mod memory;
mod plan;
mod prepared;
mod query;
mod syntax;
mod temporal;
mod value;

pub use bowline_types::{Duration, OffsetTime};
pub use cache::{PlanCache, PlanFigures};
pub use call::{NoProcedures, ProcedureRows, Procedures, Signature};
pub use error::{Class, Detail, Error, Phase, Place, Problem, Result, Span, StoreError};
pub use execute::{Effects, Limits};
pub use function::names as function_names;
pub use graph::{
    FieldColumns, FieldsAsked, Graph, GraphMut, NodeIndex, Seek, SeekLast, StoreResult,
};
pub use memory::MemoryGraph;
pub use prepared::Prepared;
pub use query::{Answer, Parameters, Query, Summary};
pub use value::{
    Equivalent, Name, Nested, Node, NodeRecord, Path, Properties, Relationship, RelationshipId,
    Type, Value,
};
