//! What a query asks an index of nodes for.

use std::ops::Bound;

use crate::value::{Name, Value};

/// An index of the nodes with a label by some of their properties: it has those that have all of them.
///
/// ```
/// let index = bowline_query::NodeIndex { properties: vec!["name".into()], is_unique: true };
/// assert_eq!(index.properties.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIndex {
    /// The properties, in the order of the index.
    pub properties: Vec<Name>,
    /// Whether no two nodes have the same values.
    pub is_unique: bool,
}

/// What is looked for in an index.
///
/// ```
/// use bowline_query::{Graph, MemoryGraph, Seek, SeekLast};
///
/// let seek = Seek {
///     label: "Person",
///     properties: &["name".into()],
///     equal: &[],
///     last: &SeekLast::StartsWith("A".into()),
/// };
/// let (mut place, mut page) = (None, Vec::new());
/// let is_answered = MemoryGraph::new().seek(&seek, &mut place, 10, &mut page).unwrap();
/// assert!(!is_answered, "a graph in memory has no index");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Seek<'s> {
    /// The label of the index.
    pub label: &'s str,
    /// Its properties, which name it.
    pub properties: &'s [Name],
    /// What the first properties are equal to: all but the last one.
    pub equal: &'s [Value],
    /// What the last one must be.
    pub last: &'s SeekLast,
}

/// What the last property of an index must be.
///
/// ```
/// use bowline_query::{SeekLast, Value};
///
/// let last = SeekLast::OneOf(vec![Value::Int(1), Value::Int(2)]);
/// assert!(matches!(last, SeekLast::OneOf(values) if values.len() == 2));
/// ```
#[derive(Clone, Debug)]
pub enum SeekLast {
    /// Equal to one of these.
    OneOf(Vec<Value>),
    /// Between these.
    Between(Bound<Value>, Bound<Value>),
    /// A text that begins so.
    StartsWith(Name),
}
