//! A planned query, which is cheap to clone: the cache of plans holds it, too.

use std::sync::Arc;

use crate::compile::Compiled;
use crate::value::Name;

/// A checked and planned query.
///
/// ```
/// use bowline_query::{MemoryGraph, Query};
///
/// let prepared = Query::new("CREATE (n {p: $p}) RETURN n").plan(&MemoryGraph::new()).unwrap();
/// assert!(prepared.writes());
/// assert_eq!(prepared.parameters(), ["p".into()]);
/// ```
#[derive(Clone, Debug)]
pub struct Prepared {
    // Shared: a plan may be held for the next query of its text.
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) columns: Arc<[Name]>,
    pub(crate) parameters: Arc<[Name]>,
}

impl Prepared {
    /// Whether the query may change the graph.
    pub fn writes(&self) -> bool {
        self.compiled.writes
    }

    /// Whether the query calls procedures, which may take long over the whole graph.
    pub fn calls(&self) -> bool {
        self.compiled.calls
    }

    /// The names of the columns; none if the query returns nothing.
    pub fn columns(&self) -> &[Name] {
        &self.columns
    }

    /// The parameters that the query needs.
    pub fn parameters(&self) -> &[Name] {
        &self.parameters
    }

    /// About how many bytes it takes, with its text.
    pub(crate) fn footprint(&self, text: &str) -> u64 {
        /// An operator with its expressions.
        const OPERATOR_BYTES: u64 = 512;
        // Each part of the text became some nodes of a tree.
        text.len() as u64 * 16 + self.compiled.operators as u64 * OPERATOR_BYTES
    }
}
