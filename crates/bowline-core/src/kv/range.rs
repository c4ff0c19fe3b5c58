//! A range of keys.

use std::ops::{
    Bound, Range as StdRange, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::error::{Error, Result, show_key};
use crate::trees::prefix_end;

/// A range of keys: made from Rust's ranges over anything that is bytes, or by prefix.
///
/// ```
/// use bowline::Range;
/// assert!(Range::from("a".."c").contains(b"b"));
/// assert!(Range::prefix("svc/").contains(b"svc/api"));
/// assert!(Range::from(..).contains(b"anything"));
/// assert!(Range::key("k").contains(b"k"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub lower: Bound<Vec<u8>>,
    pub upper: Bound<Vec<u8>>,
}

impl Range {
    /// All keys that start with `prefix`. An empty prefix is every key.
    ///
    /// ```
    /// # use bowline::Range;
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("svc/api", "")?;
    /// db.put("svd", "")?;
    /// assert_eq!(db.range(Range::prefix("svc/"))?.count(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Range {
        let prefix = prefix.as_ref();
        let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Range {
            lower: Bound::Included(prefix.to_vec()),
            upper,
        }
    }

    /// One key.
    ///
    /// ```
    /// # use bowline::Range;
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "")?;
    /// db.put("k2", "")?;
    /// assert_eq!(db.range(Range::key("k"))?.count(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn key(key: impl AsRef<[u8]>) -> Range {
        let key = key.as_ref().to_vec();
        Range {
            lower: Bound::Included(key.clone()),
            upper: Bound::Included(key),
        }
    }

    /// Every key.
    ///
    /// ```
    /// # use bowline::Range;
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "")?;
    /// assert_eq!(db.range(Range::all())?.count(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn all() -> Range {
        Range {
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
        }
    }

    /// Whether the range holds `key`.
    ///
    /// ```
    /// # use bowline::Range;
    /// let range = Range::from("a".."c");
    /// assert!(range.contains(b"b") && !range.contains(b"c"));
    /// ```
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_start = match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
        };
        let before_end = match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= &end[..],
            Bound::Excluded(end) => key < &end[..],
        };
        after_start && before_end
    }

    /// Both ends, borrowed.
    ///
    /// ```
    /// # use bowline::Range;
    /// use std::ops::Bound;
    ///
    /// let range = Range::from("a".."c");
    /// assert_eq!(range.bounds(), (Bound::Included(&b"a"[..]), Bound::Excluded(&b"c"[..])));
    /// ```
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
            match bound {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(key) => Bound::Included(key),
                Bound::Excluded(key) => Bound::Excluded(key),
            }
        }
        (borrow(&self.lower), borrow(&self.upper))
    }

    /// Refuses a range whose end is before its start. An empty range is fine.
    ///
    /// ```
    /// # use bowline::Range;
    /// assert!(Range::from("b".."a").validate().is_err());
    /// assert!(Range::from("a".."a").validate().is_ok());
    /// ```
    pub fn validate(self) -> Result<Range> {
        let start = match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => return Ok(self),
        };
        let end = match &self.upper {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => return Ok(self),
        };
        if start > end {
            return Err(Error::InvalidRange {
                start: show_key(start),
                end: show_key(end),
            });
        }
        Ok(self)
    }
}

macro_rules! from_std {
    ($($kind:ty, $range:ident => $lower:expr, $upper:expr;)*) => {
        $(impl<K: AsRef<[u8]>> From<$kind> for Range {
            fn from($range: $kind) -> Range {
                Range { lower: $lower, upper: $upper }
            }
        })*
    };
}

fn own<K: AsRef<[u8]>>(key: &K) -> Vec<u8> {
    key.as_ref().to_vec()
}

from_std! {
    StdRange<K>, r => Bound::Included(own(&r.start)), Bound::Excluded(own(&r.end));
    RangeInclusive<K>, r => Bound::Included(own(r.start())), Bound::Included(own(r.end()));
    RangeFrom<K>, r => Bound::Included(own(&r.start)), Bound::Unbounded;
    RangeTo<K>, r => Bound::Unbounded, Bound::Excluded(own(&r.end));
    RangeToInclusive<K>, r => Bound::Unbounded, Bound::Included(own(&r.end));
}

impl From<RangeFull> for Range {
    fn from(_: RangeFull) -> Range {
        Range::all()
    }
}

impl<K: AsRef<[u8]>> From<(Bound<K>, Bound<K>)> for Range {
    fn from((lower, upper): (Bound<K>, Bound<K>)) -> Range {
        Range {
            lower: lower.map(|key| own(&key)),
            upper: upper.map(|key| own(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_ff_has_no_end() {
        assert_eq!(Range::prefix([0xff, 0xff]).upper, Bound::Unbounded);
        assert_eq!(Range::prefix([1, 0xff]).upper, Bound::Excluded(vec![2]));
        assert!(Range::prefix("").contains(b""));
        assert!(!Range::prefix("a").contains(b"b"));
    }

    #[test]
    fn only_a_range_that_ends_before_it_starts_is_refused() {
        assert!(Range::from("b".."a").validate().is_err());
        assert!(Range::from("a".."a").validate().is_ok());
        assert!(Range::from("a"..).validate().is_ok());
    }
}
