//! Expressions with resolved names.

use super::{Plan, Slot};
use crate::error::Span;
use crate::function::Function;
use crate::syntax::ast::{Binary, Labels, Quantifier, Subquery};
use crate::value::{Name, Value};

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: Kind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Value),
    Slot(Slot),
    Parameter(Name),
    List(Vec<Expr>),
    Map(Vec<(Name, Expr)>),
    MapProjection(Box<Expr>, Vec<MapPart>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Plus(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    HasLabels(Box<Expr>, Labels),
    Property(Box<Expr>, Name),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call(&'static Function, Vec<Expr>),
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Vec<Expr>, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Comprehension {
        slot: Slot,
        list: Box<Expr>,
        predicate: Option<Box<Expr>>,
        yields: Option<Box<Expr>>,
    },
    Reduce {
        accumulator: Slot,
        start: Box<Expr>,
        slot: Slot,
        list: Box<Expr>,
        step: Box<Expr>,
    },
    Quantified {
        quantifier: Quantifier,
        slot: Slot,
        list: Box<Expr>,
        predicate: Box<Expr>,
    },
    /// A plan that is opened with the present row. `yields` is evaluated on its rows, for a list.
    Subquery {
        kind: Subquery,
        plan: Box<Plan>,
        yields: Option<Box<Expr>>,
    },
    /// A path of the values of these slots.
    Path(Vec<PathPart>),
}

#[derive(Clone, Debug)]
pub(crate) enum MapPart {
    All,
    Property(Name),
    Entry(Name, Expr),
}

/// A part of a path: the slot of a node, of a relationship, or of a list of relationships.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathPart {
    Node(Slot),
    Relationship(Slot),
    Relationships(Slot),
}

impl Expr {
    pub fn new(kind: Kind, span: Span) -> Expr {
        Expr { kind, span }
    }

    pub fn boxed(self) -> Box<Expr> {
        Box::new(self)
    }
}
