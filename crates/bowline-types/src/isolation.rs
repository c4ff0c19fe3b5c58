//! The isolation of a transaction, in one process and over the network.

/// Isolation of a transaction.
///
/// ```
/// use bowline_types::Isolation;
///
/// assert_eq!(Isolation::default(), Isolation::Serializable);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Everything the transaction read (keys, absent keys, ranges, blocks, edges, neighbors) must be unchanged
    /// at commit. Equivalent to running transactions one after the other.
    #[default]
    Serializable,
    /// Only what the transaction writes must be unchanged since its snapshot. Allows write skew.
    Snapshot,
}
