//! [`Index`]: an index of blocks, as programs see it.

use crate::Revision;

/// An index of blocks: `create_index` and `indexes`, of the library and of the client, give it.
///
/// ```
/// use bowline_types::{Index, Revision};
///
/// let index = Index {
///     kind: "person".to_owned(),
///     attributes: vec!["name".to_owned()],
///     is_unique: false,
///     ready_since: Some(Revision::new(7)),
/// };
/// // Whether a snapshot of a revision is read by it.
/// let is_read_at = |revision| index.ready_since.is_some_and(|since| since <= revision);
/// assert!(is_read_at(Revision::new(8)) && !is_read_at(Revision::new(6)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The kind of its blocks.
    pub kind: String,
    /// The attributes that it is by, in its order. A block without one of them is not in it.
    pub attributes: Vec<String>,
    /// Whether no two blocks may have the same values.
    pub is_unique: bool,
    /// The first revision whose snapshots are read by it; `None` while it is built.
    pub ready_since: Option<Revision>,
}
