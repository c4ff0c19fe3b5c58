//! [`Expected`]: the precondition of a compare-and-swap.

use crate::Revision;

/// The state that a key must have, so that a write goes through.
///
/// ```
/// use bowline_types::{Expected, Revision};
///
/// assert_eq!(Expected::Revision(Revision::new(7)).mod_revision(), 7);
/// assert_eq!(Expected::Absent.mod_revision(), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expected {
    /// The key is not there.
    Absent,
    /// The key is there, and this revision was the last to change it. No key has revision 0; as on the wire, 0
    /// here means the same as [`Expected::Absent`].
    Revision(Revision),
}

impl Expected {
    /// The modification revision as the wire compares it, which is 0 for an absent key.
    #[must_use]
    pub fn mod_revision(self) -> Revision {
        match self {
            Expected::Absent => Revision::ZERO,
            Expected::Revision(revision) => revision,
        }
    }
}

/// As expected of a key whose modification revision was looked up: `None` when it was absent.
impl From<Option<Revision>> for Expected {
    fn from(revision: Option<Revision>) -> Expected {
        revision.map_or(Expected::Absent, Expected::Revision)
    }
}
