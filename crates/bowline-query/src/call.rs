//! Procedures: what `CALL` can call.

use crate::error::StoreError;
use crate::graph::Graph;
use crate::value::{Name, Type, Value};

/// The rows of a procedure, one at a time.
pub type ProcedureRows<'p> = Box<dyn Iterator<Item = Result<Vec<Value>, StoreError>> + 'p>;

/// A procedure's name, arguments and outputs.
///
/// ```
/// use bowline_query::{Signature, Type};
///
/// let degrees = Signature {
///     name: "graph.degrees".into(),
///     inputs: vec![("kind".into(), Type::Text)],
///     outputs: vec![("node".into(), Type::Node), ("degree".into(), Type::Int)],
/// };
/// assert_eq!(degrees.outputs.len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Signature {
    /// The full name, with points.
    pub name: Name,
    /// The arguments.
    pub inputs: Vec<(Name, Type)>,
    /// The columns of its rows.
    pub outputs: Vec<(Name, Type)>,
}

/// A set of procedures.
///
/// ```
/// use bowline_query::{NoProcedures, Procedures};
///
/// assert!(NoProcedures.signature("graph.degrees").is_none());
/// ```
pub trait Procedures {
    /// The signature of a procedure, if there is one of the name.
    fn signature(&self, name: &str) -> Option<Signature>;

    /// All names, for "did you mean".
    fn names(&self) -> Vec<Name>;

    /// Calls a procedure, whose arguments fit its signature.
    fn call<'p>(
        &'p self,
        name: &str,
        arguments: &[Value],
        graph: &dyn Graph,
    ) -> Result<ProcedureRows<'p>, StoreError>;
}

/// No procedures.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProcedures;

impl Procedures for NoProcedures {
    fn signature(&self, _: &str) -> Option<Signature> {
        None
    }

    fn names(&self) -> Vec<Name> {
        Vec::new()
    }

    fn call<'p>(
        &'p self,
        name: &str,
        _: &[Value],
        _: &dyn Graph,
    ) -> Result<ProcedureRows<'p>, StoreError> {
        Err(format!("there is no procedure {name}").into())
    }
}
