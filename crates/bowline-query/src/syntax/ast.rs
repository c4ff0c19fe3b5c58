//! The tree of a query, as written: names are not resolved, nothing is checked.
//!
//! Two trees are equal if they say the same: places and outer parentheses do not count. The compiler compares
//! expressions with grouping keys in this way.

use crate::error::Span;
use crate::value::{Name, Value};

/// A name in the text.
#[derive(Clone, Debug)]
pub(crate) struct Ident {
    pub name: Name,
    pub span: Span,
}

impl PartialEq for Ident {
    fn eq(&self, other: &Ident) -> bool {
        self.name == other.name
    }
}

/// Single queries, joined by UNION.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Query {
    pub first: Vec<Clause>,
    pub unions: Vec<Union>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Union {
    pub all: bool,
    pub at: At,
    pub clauses: Vec<Clause>,
}

/// A span that plays no part in equality.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub Span);

impl PartialEq for At {
    fn eq(&self, _: &At) -> bool {
        true
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Clause {
    pub kind: ClauseKind,
    pub at: At,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ClauseKind {
    Match {
        optional: bool,
        patterns: Vec<Pattern>,
        predicate: Option<Expr>,
    },
    Unwind {
        list: Expr,
        variable: Ident,
    },
    With {
        projection: Projection,
        predicate: Option<Expr>,
    },
    Return(Projection),
    Create(Vec<Pattern>),
    Merge {
        pattern: Pattern,
        on_create: Vec<SetItem>,
        on_match: Vec<SetItem>,
    },
    Set(Vec<SetItem>),
    Remove(Vec<RemoveItem>),
    Delete {
        detach: bool,
        expressions: Vec<Expr>,
    },
    Call {
        name: Ident,
        arguments: Option<Vec<Expr>>,
        yields: Option<Yield>,
    },
    Subquery {
        scope: Option<Vec<Ident>>,
        query: Query,
    },
    Foreach {
        variable: Ident,
        list: Expr,
        clauses: Vec<Clause>,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Yield {
    pub all: bool,
    /// The output's name, and the variable that gets it.
    pub items: Vec<(Ident, Ident)>,
    pub predicate: Option<Expr>,
    pub at: At,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Projection {
    pub distinct: bool,
    pub wildcard: bool,
    pub items: Vec<ProjectionItem>,
    pub order: Vec<(Expr, bool)>,
    pub skip: Option<Expr>,
    pub limit: Option<Expr>,
    pub at: At,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ProjectionItem {
    pub expression: Expr,
    pub alias: Option<Ident>,
    /// The expression's text, which names its column.
    pub text: Name,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SetItem {
    /// The expression is a property.
    Property {
        target: Expr,
        key: Ident,
        value: Expr,
    },
    /// `=` replaces all properties, `+=` adds.
    Properties {
        target: Ident,
        value: Expr,
        replace: bool,
    },
    Labels {
        target: Ident,
        labels: Vec<Name>,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RemoveItem {
    Property { target: Expr, key: Ident },
    Labels { target: Ident, labels: Vec<Name> },
}

/// A path pattern: nodes, and relationships between them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pattern {
    pub variable: Option<Ident>,
    pub shortest: Option<Shortest>,
    pub nodes: Vec<NodePattern>,
    pub relationships: Vec<RelationshipPattern>,
    pub at: At,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shortest {
    One,
    All,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NodePattern {
    pub variable: Option<Ident>,
    pub labels: Option<Labels>,
    pub properties: Option<Expr>,
    pub predicate: Option<Expr>,
    pub at: At,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RelationshipPattern {
    pub variable: Option<Ident>,
    pub kinds: Vec<Name>,
    pub direction: bowline_types::Direction,
    /// The least and the greatest number of steps of a pattern of variable length.
    pub length: Option<(Option<u64>, Option<u64>)>,
    pub properties: Option<Expr>,
    pub predicate: Option<Expr>,
    pub at: At,
}

/// An expression over labels.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Labels {
    Name(Name),
    Any,
    Not(Box<Labels>),
    And(Vec<Labels>),
    Or(Vec<Labels>),
}

impl Labels {
    /// The labels, if the expression is a plain conjunction of them.
    pub fn conjunction(&self) -> Option<Vec<Name>> {
        match self {
            Labels::Name(name) => Some(vec![name.clone()]),
            Labels::And(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(Labels::conjunction).collect();
                Some(parts?.concat())
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.kind == other.kind
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Binary {
    Or,
    Xor,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Matches,
    In,
    StartsWith,
    EndsWith,
    Contains,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Concat,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Quantifier {
    All,
    Any,
    None,
    Single,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Subquery {
    Exists,
    Count,
    Collect,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum MapItem {
    All,
    Property(Name),
    Variable(Ident),
    Entry(Name, Expr),
}

/// A value that stands in the text.
#[derive(Clone, Debug)]
pub(crate) struct Literal(pub Value);

/// As values, 1 equals 1.0 and 0.0 equals -0.0. But `x / 2` is another expression than `x / 2.0`.
impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        match (&self.0, &other.0) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)) => false,
            (a, b) => a == b,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Variable(Name),
    Parameter(Name),
    List(Vec<Expr>),
    Map(Vec<(Name, Expr)>),
    MapProjection {
        base: Box<Expr>,
        items: Vec<MapItem>,
    },
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Plus(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `a < b <= c`: the operands, and the operators between them.
    Chain(Vec<Expr>, Vec<Binary>),
    IsNull(Box<Expr>),
    HasLabels(Box<Expr>, Labels),
    Property(Box<Expr>, Ident),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call {
        name: Ident,
        distinct: bool,
        arguments: Vec<Expr>,
    },
    CountAll,
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Vec<Expr>, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Comprehension {
        variable: Ident,
        list: Box<Expr>,
        predicate: Option<Box<Expr>>,
        yields: Option<Box<Expr>>,
    },
    PatternComprehension {
        pattern: Box<Pattern>,
        predicate: Option<Box<Expr>>,
        yields: Box<Expr>,
    },
    Reduce {
        accumulator: Ident,
        start: Box<Expr>,
        variable: Ident,
        list: Box<Expr>,
        step: Box<Expr>,
    },
    Quantified {
        quantifier: Quantifier,
        variable: Ident,
        list: Box<Expr>,
        predicate: Box<Expr>,
    },
    Subquery(Subquery, Box<Query>),
    Pattern(Box<Pattern>),
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Expr {
        Expr { kind, span }
    }

    pub fn boxed(self) -> Box<Expr> {
        Box::new(self)
    }

    /// Calls `visit` for each direct operand. Patterns and subqueries count as leaves, except for the properties
    /// and predicates of a pattern.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            ExprKind::Literal(_)
            | ExprKind::Variable(_)
            | ExprKind::Parameter(_)
            | ExprKind::CountAll
            | ExprKind::Subquery(..) => {}
            ExprKind::List(list) => list.iter().for_each(visit),
            ExprKind::Map(entries) => entries.iter().for_each(|(_, value)| visit(value)),
            ExprKind::MapProjection { base, items } => {
                visit(base);
                for item in items {
                    if let MapItem::Entry(_, value) = item {
                        visit(value);
                    }
                }
            }
            ExprKind::Not(a)
            | ExprKind::Negate(a)
            | ExprKind::Plus(a)
            | ExprKind::IsNull(a)
            | ExprKind::HasLabels(a, _)
            | ExprKind::Property(a, _) => visit(a),
            ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => {
                visit(a);
                visit(b);
            }
            ExprKind::Chain(operands, _) => operands.iter().for_each(visit),
            ExprKind::Slice(a, low, high) => {
                visit(a);
                low.iter().chain(high).for_each(|bound| visit(bound));
            }
            ExprKind::Call { arguments, .. } => arguments.iter().for_each(visit),
            ExprKind::Case {
                operand,
                branches,
                otherwise,
            } => {
                operand.iter().for_each(|operand| visit(operand));
                for (conditions, value) in branches {
                    conditions.iter().for_each(&mut *visit);
                    visit(value);
                }
                otherwise.iter().for_each(|otherwise| visit(otherwise));
            }
            ExprKind::Comprehension {
                list,
                predicate,
                yields,
                ..
            } => {
                visit(list);
                predicate.iter().chain(yields).for_each(|part| visit(part));
            }
            ExprKind::PatternComprehension {
                pattern,
                predicate,
                yields,
            } => {
                pattern.for_each_expression(visit);
                predicate.iter().for_each(|part| visit(part));
                visit(yields);
            }
            ExprKind::Reduce {
                start, list, step, ..
            } => {
                visit(start);
                visit(list);
                visit(step);
            }
            ExprKind::Quantified {
                list, predicate, ..
            } => {
                visit(list);
                visit(predicate);
            }
            ExprKind::Pattern(pattern) => pattern.for_each_expression(visit),
        }
    }
}

impl Pattern {
    pub fn for_each_expression<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        for node in &self.nodes {
            node.properties
                .iter()
                .chain(&node.predicate)
                .for_each(&mut *visit);
        }
        for relationship in &self.relationships {
            relationship
                .properties
                .iter()
                .chain(&relationship.predicate)
                .for_each(&mut *visit);
        }
    }
}
