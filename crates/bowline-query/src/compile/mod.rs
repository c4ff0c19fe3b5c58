//! From the tree of a query to a checked plan.
//!
//! One pass resolves names to slots, checks types as far as they are known, and builds the plan:
//!
//! ```text
//!   scope        names that can be seen
//!   expression   expressions: names, types, functions; aggregates when the projection allows them
//!   pattern      the pieces of patterns that MATCH, CREATE and MERGE share
//!   matching     MATCH: where to start, which way to walk, when to filter
//!   projection   WITH and RETURN: grouping, ORDER BY, DISTINCT, SKIP, LIMIT
//!   update       CREATE, MERGE, SET, REMOVE, DELETE
//!   query        clauses in a row, UNION, subqueries, CALL
//! ```
//!
//! Invariants: a plan never refers to a slot that no operator below it assigns; a clause that writes has read all of its
//! input before the first write, so that no clause sees what a later one did.

mod expression;
mod matching;
mod pattern;
mod projection;
mod query;
mod scope;
mod update;

use crate::call::Procedures;
use crate::error::{Result, Span};
use crate::graph::Graph;
use crate::plan::{Plan, Slot};
use crate::syntax::ast;
use crate::value::{Name, Type};

use scope::Scope;

/// A plan, and which slots are its answer.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plan: Plan,
    pub columns: Vec<(Name, Slot)>,
    pub slots: usize,
    pub writes: bool,
    pub parameters: Vec<(Name, Span)>,
}

/// Compiles a query. The graph gives statistics only.
pub(crate) fn compile(
    query: &ast::Query,
    graph: &dyn Graph,
    procedures: &dyn Procedures,
) -> Result<Compiled> {
    let mut compiler = Compiler {
        graph,
        procedures,
        slots: 0,
        grouping: None,
        in_aggregate: false,
        aggregates_allowed: false,
        parameters: Vec::new(),
    };
    let (plan, columns) = compiler.query(query, &Scope::default(), true)?;
    let columns = columns.into_iter().map(|column| (column.name, column.slot)).collect();
    let writes = plan.writes();
    Ok(Compiled { plan, columns, slots: compiler.slots, writes, parameters: compiler.parameters })
}

/// A column of a projection.
#[derive(Clone, Debug)]
struct Column {
    name: Name,
    slot: Slot,
    kind: Type,
}

struct Compiler<'c> {
    graph: &'c dyn Graph,
    procedures: &'c dyn Procedures,
    slots: usize,
    /// While the items of an aggregating projection are compiled.
    grouping: Option<projection::Grouping>,
    in_aggregate: bool,
    aggregates_allowed: bool,
    parameters: Vec<(Name, Span)>,
}

impl Compiler<'_> {
    fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }
}
