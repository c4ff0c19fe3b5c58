//! [`Db::update`]: updates that are decided in the order of commits.

use std::sync::Arc;

use bowline_core::error::Result;
use bowline_core::state::{check_key, check_pair};
use bowline_storage::Value;
use bowline_types::{Revision, Update};

use crate::commit_queue::{Answer, PendingUpdate, Request, UpdateRequest, unanswered};
use crate::db::Db;

/// The result of an update.
///
/// ```
/// use bowline::{Update, Updated};
/// # let db = bowline::Db::in_memory()?;
/// db.put("seats", "1")?;
/// let take = Update::AddWithin { amount: -1, min: 0, max: 100 };
/// let taken = db.update("seats", take.clone())?;
/// assert_eq!((taken.changed, taken.value.as_deref()), (true, Some(&b"0"[..])));
/// let refused: Updated = db.update("seats", take)?;
/// assert_eq!((refused.changed, refused.value.as_deref()), (false, Some(&b"0"[..])));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updated {
    /// The revision of the commit; the current revision when nothing changed.
    pub revision: Revision,
    /// Whether the key was changed.
    pub changed: bool,
    /// The value of the key, behind the update; `None` when it is absent.
    pub value: Option<Value>,
}

impl Db {
    /// Changes a key by a rule, on the value that it has when the update's turn comes. Unlike a transaction that reads and
    /// writes the key, it never conflicts, and updates of one key by several threads share a flush. The key stays
    /// attached to its lease.
    ///
    /// ```
    /// use bowline::Update;
    /// # let db = bowline::Db::in_memory()?;
    /// // The next number of a sequence, to one of many callers each.
    /// let next = db.update("jobs/next", Update::Add(1))?;
    /// assert_eq!(next.value.as_deref(), Some(&b"1"[..]));
    /// // Who is first leads.
    /// let claimed = db.update("leader", Update::SetIfAbsent(b"me".to_vec()))?;
    /// assert!(claimed.changed);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotUpdatable` when a number is updated and the value is none, or the sum does not fit into 64 bits; `ValueTooLarge` or
    /// `TransactionTooLarge` when an append makes it too long; the errors of [`Db::put`].
    pub fn update(&self, key: impl AsRef<[u8]>, update: Update) -> Result<Updated> {
        let (key, handle) = (key.as_ref(), self.handle());
        check_key(key, &handle.limits)?;
        let given = given_bytes(&update);
        check_pair(key, given, &handle.limits)?;
        let pending = Arc::new(PendingUpdate::new(key, update, handle.limits));
        for attempts in 0.. {
            let request = UpdateRequest::new(pending.clone(), attempts);
            let committed = handle.commit(Request::update(request))?;
            match pending.take_answer() {
                Some(Answer::Value(value)) => {
                    return Ok(Updated {
                        revision: committed.revision,
                        changed: committed.changed,
                        value,
                    });
                }
                Some(Answer::Outgrown) => {}
                None => break,
            }
        }
        Err(unanswered(key))
    }
}

/// The bytes of values that a caller gives for the key. How long a number is shows when it is made.
fn given_bytes(update: &Update) -> usize {
    match update {
        Update::Append(value) | Update::SetIfAbsent(value) => value.len(),
        Update::Swap { new, .. } => new.as_ref().map_or(0, Vec::len),
        Update::Add(_) | Update::AddWithin { .. } | Update::Max(_) | Update::Min(_) => 0,
    }
}
