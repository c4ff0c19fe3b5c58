//! [`Expected`]: the precondition of a compare-and-swap.

use std::fmt;

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
    /// As the wire writes it: a modification revision, or 0 for an absent key.
    ///
    /// ```
    /// use bowline_types::{Expected, Revision};
    ///
    /// assert_eq!(Expected::of_mod_revision(Revision::ZERO), Expected::Absent);
    /// ```
    #[must_use]
    pub fn of_mod_revision(revision: Revision) -> Expected {
        match revision {
            Revision::ZERO => Expected::Absent,
            revision => Expected::Revision(revision),
        }
    }

    /// The modification revision of the key; `None` for an absent one.
    ///
    /// ```
    /// use bowline_types::{Expected, Revision};
    ///
    /// assert_eq!(Expected::Revision(Revision::new(7)).revision(), Some(Revision::new(7)));
    /// assert_eq!(Expected::Absent.revision(), None);
    /// ```
    #[must_use]
    pub fn revision(self) -> Option<Revision> {
        match self {
            Expected::Absent | Expected::Revision(Revision::ZERO) => None,
            Expected::Revision(revision) => Some(revision),
        }
    }

    /// The modification revision as the wire compares it, which is 0 for an absent key.
    #[must_use]
    pub fn mod_revision(self) -> Revision {
        match self {
            Expected::Absent => Revision::ZERO,
            Expected::Revision(revision) => revision,
        }
    }
}

/// The rest of a sentence that begins with "the key is".
impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision() {
            None => f.write_str("absent"),
            Some(revision) => write!(f, "at revision {revision}"),
        }
    }
}

/// The modification revision of the key; `None` for an absent one.
impl From<Expected> for Option<Revision> {
    fn from(expected: Expected) -> Option<Revision> {
        expected.revision()
    }
}

/// As expected of a key whose modification revision was looked up: `None` when it was absent.
impl From<Option<Revision>> for Expected {
    fn from(revision: Option<Revision>) -> Expected {
        revision.map_or(Expected::Absent, Expected::Revision)
    }
}
