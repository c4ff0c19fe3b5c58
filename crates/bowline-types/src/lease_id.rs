//! The id of a lease: a number other than 0.
//!
//! etcd's API writes 0 for "no lease" and for "choose an id". Here the first is `None` and the second a call of its own,
//! so that no 0 is taken for a lease. Records and messages keep the number ([`LeaseId::number_of`]).

use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;

/// The id of a lease. As in etcd it is a signed number of 64 bits other than 0, shown and read in hexadecimal.
///
/// ```
/// use bowline_types::LeaseId;
///
/// let id = LeaseId::new(26).expect("not 0");
/// assert_eq!(id.get(), 26);
/// assert_eq!(id.to_string(), "1a");
/// assert_eq!("1a".parse(), Ok(id));
/// assert_eq!(LeaseId::new(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(NonZeroI64);

impl LeaseId {
    /// The id with this number; `None` for 0.
    ///
    /// ```
    /// # use bowline_types::LeaseId;
    /// assert!(LeaseId::new(7).is_some());
    /// assert!(LeaseId::new(0).is_none());
    /// ```
    #[inline]
    #[must_use]
    pub const fn new(number: i64) -> Option<LeaseId> {
        match NonZeroI64::new(number) {
            Some(number) => Some(LeaseId(number)),
            None => None,
        }
    }

    /// The number, never 0.
    ///
    /// ```
    /// # use bowline_types::LeaseId;
    /// assert_eq!(LeaseId::new(7).map(LeaseId::get), Some(7));
    /// ```
    #[inline]
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }

    /// The number that etcd's API has for a lease or none: 0 is none.
    ///
    /// ```
    /// use bowline_types::LeaseId;
    ///
    /// assert_eq!(LeaseId::number_of(LeaseId::new(7)), 7);
    /// assert_eq!(LeaseId::number_of(None), 0);
    /// ```
    #[inline]
    #[must_use]
    pub const fn number_of(id: Option<LeaseId>) -> i64 {
        match id {
            Some(id) => id.get(),
            None => 0,
        }
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl From<LeaseId> for i64 {
    fn from(id: LeaseId) -> i64 {
        id.get()
    }
}

/// A text is not the id of a lease.
///
/// ```
/// use bowline_types::{LeaseId, ParseLeaseIdError};
///
/// assert_eq!("0".parse::<LeaseId>(), Err(ParseLeaseIdError));
/// assert_eq!("0x1a".parse::<LeaseId>().map(LeaseId::get), Ok(26));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a lease id: give up to 16 hexadecimal digits, not all of them 0")]
pub struct ParseLeaseIdError;

impl FromStr for LeaseId {
    type Err = ParseLeaseIdError;

    /// Reads 1 to 16 hexadecimal digits of either case, also behind `0x`.
    fn from_str(text: &str) -> Result<LeaseId, ParseLeaseIdError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        // A sign is no digit, though the standard library reads one.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ParseLeaseIdError);
        }
        let number = u64::from_str_radix(digits, 16).map_err(|_| ParseLeaseIdError)?;
        LeaseId::new(number as i64).ok_or(ParseLeaseIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_read_as_it_is_shown() {
        for number in [1, 26, i64::MAX, i64::MIN, -1] {
            let id = LeaseId::new(number).unwrap();
            let shown = id.to_string();
            assert_eq!(shown.parse(), Ok(id));
            assert_eq!(format!("0x{}", shown.to_uppercase()).parse(), Ok(id));
        }
        let of_etcd = "694d5765fc71500b".parse::<LeaseId>().unwrap();
        assert_eq!(of_etcd.get(), 0x694d_5765_fc71_500b);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "0",
            "0000",
            "0x",
            "-1",
            "+1",
            "1g",
            " 1",
            "10000000000000000",
        ] {
            assert_eq!(text.parse::<LeaseId>(), Err(ParseLeaseIdError), "{text:?}");
        }
    }
}
