//! Plans: what the compiler makes of a query, and the executor runs.
//!
//! Names are gone. Every variable has a slot, and a row is an array of values with one place per slot of the whole
//! query, subqueries included. A slot is assigned by one operator, so rows only gain values on their way up, and a
//! subquery finds the values of the outer row in its own. [`Plan::Argument`] is the leaf: the row with which a plan was
//! opened.

mod expression;
mod operator;

pub(crate) use expression::{Expr, Kind, MapPart, PathPart};
pub(crate) use operator::{
    Aggregate, AggregateKind, CreateNode, CreateRelationship, ElementTest, Expansion, NodeSeek,
    Plan, Remove, SeekKeys, Set,
};

/// The place of a variable in a row.
pub(crate) type Slot = usize;
