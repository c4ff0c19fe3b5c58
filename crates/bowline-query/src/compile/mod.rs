//! From the tree of a query to a checked plan.
//!
//! One pass resolves names to slots, checks types as far as they are known, and builds the plan:
//!
//! ```text
//!   scope        names that can be seen
//!   types        what operators take and yield
//!   grouping     what is the same for all rows of a group
//!   expression   expressions: names, types, functions; aggregates when the projection allows them
//!   pattern      the pieces of patterns that MATCH, CREATE and MERGE share
//!   parts        MATCH clauses that are planned as one
//!   matching     MATCH: where to start, which way to walk, when to filter
//!   shortest     shortest paths, and what their search is asked
//!   projection   WITH and RETURN: grouping, ORDER BY, DISTINCT, SKIP, LIMIT
//!   update       CREATE, MERGE, SET, REMOVE, DELETE
//!   query        clauses in a row, UNION, subqueries, CALL
//! ```
//!
//! Invariants: a plan never refers to a slot that no operator below it assigns; a clause that writes has read all of its
//! input before the first write, so that no clause sees what a later one did.

mod expression;
mod grouping;
mod matching;
mod parts;
mod pattern;
mod projection;
mod query;
mod scope;
mod seek;
mod shortest;
mod types;
mod update;

use std::collections::BTreeMap;

use crate::call::Procedures;
use crate::error::{Detail, Error, Result, Span};
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
    /// Whether it calls a procedure.
    pub calls: bool,
    /// How many operators the plan has, about.
    pub operators: usize,
    pub parameters: Vec<(Name, Span)>,
    /// Of the variables of the query.
    pub names: BTreeMap<Slot, Name>,
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
        operators: 0,
        chains: 0,
        grouping: None,
        in_aggregate: false,
        aggregates_allowed: false,
        parameters: Vec::new(),
        names: BTreeMap::new(),
        calls: false,
    };
    let (plan, columns) = compiler.query(query, &Scope::default(), true)?;
    let columns = columns
        .into_iter()
        .map(|column| (column.name, column.slot))
        .collect();
    let writes = plan.writes();
    Ok(Compiled {
        plan,
        columns,
        slots: compiler.slots,
        writes,
        calls: compiler.calls,
        operators: compiler.operators,
        parameters: compiler.parameters,
        names: compiler.names,
    })
}

/// How many operators a plan may have.
const OPERATORS_MAX: usize = 1_000;

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
    /// How many operators the plan has, about.
    operators: usize,
    /// In how many chains of comparisons the middle is compiled.
    chains: usize,
    /// While the items of an aggregating projection are compiled.
    grouping: Option<grouping::Grouping>,
    in_aggregate: bool,
    aggregates_allowed: bool,
    parameters: Vec<(Name, Span)>,
    names: BTreeMap<Slot, Name>,
    calls: bool,
}

impl Compiler<'_> {
    /// Counts an operator. Plans nest as deeply as they have operators, so their number is bounded.
    fn grow(&mut self, span: Span) -> Result<()> {
        self.operators += 1;
        if self.operators <= OPERATORS_MAX {
            return Ok(());
        }
        let message = format!("the query needs more than {OPERATORS_MAX} operators");
        Err(Error::syntax(Detail::QueryTooLong, message, span)
            .help("split it, or pass a list of maps as a parameter and UNWIND it"))
    }

    /// The slot of a variable.
    fn named_slot(&mut self, name: &Name) -> Slot {
        let slot = self.slot();
        self.names.insert(slot, name.clone());
        slot
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }
}
