//! A problem of a query, in openCypher's terms.

use std::fmt;

use super::place::{Place, Span};

/// The class of an error, by its openCypher name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "openCypher's own names")]
pub enum Class {
    SyntaxError,
    SemanticError,
    TypeError,
    ArgumentError,
    ArithmeticError,
    EntityNotFound,
    ConstraintVerificationFailed,
    ParameterMissing,
    ProcedureError,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// When an error was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Before the first row was read.
    CompileTime,
    /// While rows were read.
    Runtime,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::CompileTime => "compile time",
            Phase::Runtime => "runtime",
        })
    }
}

/// What exactly is wrong, by its openCypher name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "openCypher's own names")]
pub enum Detail {
    AmbiguousAggregationExpression,
    ColumnNameConflict,
    CreatingVarLength,
    DeletedEntityAccess,
    DeleteConnectedNode,
    DifferentColumnsInUnion,
    DivisionByZero,
    FloatingPointOverflow,
    IntegerOverflow,
    InvalidAggregation,
    InvalidArgumentPassingMode,
    InvalidArgumentType,
    InvalidArgumentValue,
    InvalidClauseComposition,
    InvalidDelete,
    InvalidNumberLiteral,
    InvalidNumberOfArguments,
    InvalidParameterUse,
    InvalidPropertyType,
    InvalidRelationshipPattern,
    InvalidUnicodeCharacter,
    InvalidUnicodeLiteral,
    ListElementAccessByNonInteger,
    MapElementAccessByNonString,
    MergeReadOwnWrites,
    MissingParameter,
    NegativeIntegerArgument,
    NestedAggregation,
    NoExpressionAlias,
    NoSingleRelationshipType,
    NoVariablesInScope,
    NonConstantExpression,
    NumberOutOfRange,
    ProcedureNotFound,
    QueryTooDeep,
    QueryTooLong,
    RelationshipUniquenessViolation,
    RequiresDirectedRelationship,
    UndefinedVariable,
    UnexpectedSyntax,
    UnknownFunction,
    UnusedParameter,
    VariableAlreadyBound,
    VariableTypeConflict,
    WriteInReadOnlyQuery,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is wrong with a query or with the data that it met.
///
/// ```
/// use bowline_query::{Class, MemoryGraph, Phase, Query};
///
/// let error = Query::new("MATCH (n) RETURN m").plan(&MemoryGraph::new()).unwrap_err();
/// let problem = error.problem().unwrap();
/// assert_eq!((problem.class, problem.phase), (Class::SyntaxError, Phase::CompileTime));
/// assert_eq!(problem.span.unwrap().start, 17);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The class.
    pub class: Class,
    /// When it was found.
    pub phase: Phase,
    /// The exact kind.
    pub detail: Detail,
    /// One sentence for people.
    pub message: String,
    /// What to do next.
    pub help: Option<String>,
    /// Which bytes of the text are at fault.
    pub span: Option<Span>,
    /// The line of the text, with a caret.
    pub place: Option<Box<Place>>,
}

impl Problem {
    pub(super) fn new(
        class: Class,
        phase: Phase,
        detail: Detail,
        message: impl Into<String>,
    ) -> Problem {
        Problem {
            class,
            phase,
            detail,
            message: message.into(),
            help: None,
            span: None,
            place: None,
        }
    }

    pub(super) fn with_span(mut self, span: Span) -> Problem {
        self.span = Some(span);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.class, self.message, self.detail)?;
        if let Some(place) = &self.place {
            write!(f, "\n{place}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}
