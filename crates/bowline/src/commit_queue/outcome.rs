//! [`Committed`]: what comes of a request, and the error of one that nothing came of.

use bowline_core::error::Error;
use bowline_types::Revision;

/// The result of a commit.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put("k", "v")?;
/// let mut tx = db.begin();
/// tx.delete("k")?;
/// let committed = tx.commit()?;
/// assert_eq!(committed.revision, 3);
/// assert_eq!((committed.deleted, committed.changed), (1, true));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The revision of the commit; the current revision when nothing changed.
    pub revision: Revision,
    /// The number of existing keys that it deleted.
    pub deleted: u64,
    /// Whether it changed anything.
    pub changed: bool,
}

/// An error that only a bug of the queue can cause.
pub(super) fn internal(what: &str) -> Error {
    Error::Storage(bowline_storage::Error::Internal(what.to_owned()))
}
