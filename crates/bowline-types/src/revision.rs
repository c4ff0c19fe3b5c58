//! The revision: the number of a committed transaction.
//!
//! A type of its own, so that no index, version, count or lease is taken for one. It compares with a plain number,
//! and a number can be added to it; a number becomes a revision only by name ([`Revision::new`]).

use std::fmt;
use std::num::ParseIntError;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// The number of a committed transaction that changed something. A new database is at 1, and each transaction that
/// changes something adds 1, as in etcd. No key and no transaction has 0.
///
/// ```
/// use bowline_types::Revision;
///
/// let revision = Revision::new(7);
/// assert_eq!(revision + 1, Revision::new(8));
/// assert_eq!(Revision::new(9) - revision, 2);
/// assert_eq!(revision, 7);
/// assert_eq!(revision.to_string(), "7");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a new database.
    pub const FIRST: Revision = Revision(1);
    /// The greatest revision there can be.
    pub const MAX: Revision = Revision(u64::MAX);
    /// Before the first: what etcd's API writes for a key that is absent.
    pub const ZERO: Revision = Revision(0);

    /// The revision with this number.
    ///
    /// ```
    /// use bowline_types::Revision;
    ///
    /// // A number that was stored, such as where a watch is to go on.
    /// assert_eq!(Revision::new(7).get(), 7);
    /// ```
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// The number.
    ///
    /// ```
    /// use bowline_types::Revision;
    ///
    /// assert_eq!(Revision::FIRST.get(), 1);
    /// ```
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision `count` before this one, but at least [`Revision::ZERO`].
    ///
    /// ```
    /// use bowline_types::Revision;
    ///
    /// assert_eq!(Revision::new(7).saturating_sub(2), 5);
    /// assert_eq!(Revision::new(7).saturating_sub(9), Revision::ZERO);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, count: u64) -> Revision {
        Revision(self.0.saturating_sub(count))
    }

    /// The revision `count` after this one, but at most [`Revision::MAX`].
    ///
    /// ```
    /// use bowline_types::Revision;
    ///
    /// assert_eq!(Revision::new(7).saturating_add(2), 9);
    /// assert_eq!(Revision::MAX.saturating_add(2), Revision::MAX);
    /// ```
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, count: u64) -> Revision {
        Revision(self.0.saturating_add(count))
    }
}

impl Add<u64> for Revision {
    type Output = Revision;

    #[inline]
    fn add(self, count: u64) -> Revision {
        Revision(self.0 + count)
    }
}

impl AddAssign<u64> for Revision {
    #[inline]
    fn add_assign(&mut self, count: u64) {
        self.0 += count;
    }
}

impl Sub<u64> for Revision {
    type Output = Revision;

    #[inline]
    fn sub(self, count: u64) -> Revision {
        Revision(self.0 - count)
    }
}

/// How many revisions lie between two.
impl Sub for Revision {
    type Output = u64;

    #[inline]
    fn sub(self, earlier: Revision) -> u64 {
        self.0 - earlier.0
    }
}

impl PartialEq<u64> for Revision {
    #[inline]
    fn eq(&self, number: &u64) -> bool {
        self.0 == *number
    }
}

impl PartialOrd<u64> for Revision {
    #[inline]
    fn partial_cmp(&self, number: &u64) -> Option<std::cmp::Ordering> {
        self.0.partial_cmp(number)
    }
}

impl From<Revision> for u64 {
    #[inline]
    fn from(revision: Revision) -> u64 {
        revision.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Revision {
    type Err = ParseIntError;

    /// Reads a number of decimal digits.
    fn from_str(text: &str) -> Result<Revision, ParseIntError> {
        text.parse().map(Revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revision_is_read_as_it_is_shown() {
        for revision in [Revision::ZERO, Revision::FIRST, Revision::MAX] {
            assert_eq!(revision.to_string().parse(), Ok(revision));
        }
    }

    #[test]
    fn what_is_no_revision_is_refused() {
        for text in ["", "-1", "1.5", "0x1", "18446744073709551616", "one"] {
            assert!(text.parse::<Revision>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn differences_end_at_the_bounds() {
        assert_eq!(Revision::new(3).saturating_sub(5), Revision::ZERO);
        assert_eq!((Revision::MAX - 1).saturating_add(5), Revision::MAX);
        assert!(Revision::new(2) > 1 && Revision::new(2) < 3);
    }
}
