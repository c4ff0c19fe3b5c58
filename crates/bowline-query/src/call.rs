//! Procedures: what `CALL` can call.

use crate::error::StoreError;
use crate::graph::Graph;
use crate::value::{Name, Type, Value};

/// The rows of a procedure, one at a time. They borrow nothing: the query goes on between two of them.
pub type ProcedureRows = Box<dyn Iterator<Item = Result<Vec<Value>, StoreError>>>;

/// A procedure's name, arguments and outputs.
///
/// ```
/// use bowline_query::{Signature, Type};
///
/// let degrees = Signature {
///     name: "graph.degrees".into(),
///     inputs: vec![("kind".into(), Type::Text)],
///     optional: 0,
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
    /// How many of the last arguments may be left out.
    pub optional: usize,
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

    /// Calls a procedure, whose arguments fit its signature. Those that were left out are missing at the end.
    fn call(
        &self,
        name: &str,
        arguments: &[Value],
        graph: &dyn Graph,
    ) -> Result<ProcedureRows, StoreError>;
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

    fn call(&self, name: &str, _: &[Value], _: &dyn Graph) -> Result<ProcedureRows, StoreError> {
        Err(format!("there is no procedure {name}").into())
    }
}
