//! What a projection with aggregates knows of its groups.

use crate::plan::{Aggregate, Slot};
use crate::syntax::ast;
use crate::value::Type;

/// What the items of an aggregating projection may use.
#[derive(Clone, Debug)]
pub(super) struct Grouping {
    /// Expressions that are values of the group.
    pub keys: Vec<(ast::Expr, Slot, Type)>,
    /// Aggregates that were compiled.
    pub aggregates: Vec<(ast::Expr, Slot, Type)>,
    /// The operators' part of them.
    pub compiled: Vec<Aggregate>,
    /// Whether a new aggregate may be added.
    pub open: bool,
    /// Whether only variables and properties count as keys.
    pub strict: bool,
}
