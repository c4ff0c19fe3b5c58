//! The id of a member of a cluster.
//!
//! A type of its own, so that no id of a cluster, term or index is taken for one. Shown and read in hexadecimal, as
//! etcd's tools do.

use std::fmt;
use std::str::FromStr;

/// The id of a member of a cluster, shown and read in hexadecimal.
///
/// ```
/// use bowline_types::MemberId;
///
/// let id = MemberId::new(0x8e9e_05c5_2164_694d);
/// assert_eq!(id.to_string(), "8e9e05c52164694d");
/// assert_eq!("8e9e05c52164694d".parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberId(u64);

impl MemberId {
    /// The id with this number.
    ///
    /// ```
    /// # use bowline_types::MemberId;
    /// assert_eq!(MemberId::new(26).to_string(), "1a");
    /// ```
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> MemberId {
        MemberId(number)
    }

    /// The number.
    ///
    /// ```
    /// # use bowline_types::MemberId;
    /// assert_eq!(MemberId::new(26).get(), 26);
    /// ```
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl From<MemberId> for u64 {
    fn from(id: MemberId) -> u64 {
        id.0
    }
}

/// A text is not the id of a member.
///
/// ```
/// use bowline_types::{MemberId, ParseMemberIdError};
///
/// assert_eq!("n1".parse::<MemberId>(), Err(ParseMemberIdError));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a member id: give up to 16 hexadecimal digits")]
pub struct ParseMemberIdError;

impl FromStr for MemberId {
    type Err = ParseMemberIdError;

    /// Reads 1 to 16 hexadecimal digits of either case, also behind `0x`.
    fn from_str(text: &str) -> Result<MemberId, ParseMemberIdError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        // A sign is no digit, though the standard library reads one.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ParseMemberIdError);
        }
        let number = u64::from_str_radix(digits, 16).map_err(|_| ParseMemberIdError)?;
        Ok(MemberId(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_read_as_it_is_shown() {
        for number in [1, 26, u64::MAX, 1 << 63] {
            let id = MemberId::new(number);
            let shown = id.to_string();
            assert_eq!(shown.parse(), Ok(id));
            assert_eq!(format!("0x{}", shown.to_uppercase()).parse(), Ok(id));
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "0x", "-1", "+1", "1g", " 1", "10000000000000000"] {
            assert_eq!(
                text.parse::<MemberId>(),
                Err(ParseMemberIdError),
                "{text:?}"
            );
        }
    }
}
