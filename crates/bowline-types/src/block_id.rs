//! The id of a block: 128 bits, shown as a UUID.
//!
//! An id is a UUID made elsewhere, or the XXH3 hash of a name ([`BlockId::from_name`]), so that
//! programs which agree on names agree on ids without communication. Disk and wire carry the sixteen bytes
//! big-endian: their byte order is the order of the numbers.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_128;

/// Id of a block.
///
/// ```
/// use bowline_types::BlockId;
///
/// let id = BlockId::from_name("svc/billing");
/// assert_eq!(id.to_string().parse::<BlockId>(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u128);

impl BlockId {
    /// The id that belongs to `name`: XXH3-128 of its UTF-8 bytes. Stable for ever, on every
    /// machine.
    ///
    /// ```
    /// # use bowline_types::BlockId;
    /// let id = BlockId::from_name("svc/billing");
    /// assert_eq!(id, BlockId::from_name("svc/billing"));
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> BlockId {
        BlockId(xxh3_128(name.as_bytes()))
    }

    /// The id in the sixteen bytes of [`to_bytes`](BlockId::to_bytes).
    ///
    /// ```
    /// # use bowline_types::BlockId;
    /// let mut bytes = [0; 16];
    /// bytes[15] = 7;
    /// assert_eq!(BlockId::from_bytes(bytes), BlockId(7));
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> BlockId {
        BlockId(u128::from_be_bytes(bytes))
    }

    /// Sixteen big-endian bytes, in the same order as the ids.
    ///
    /// ```
    /// # use bowline_types::BlockId;
    /// let id = BlockId::from_name("svc/billing");
    /// assert_eq!(BlockId::from_bytes(id.to_bytes()), id);
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            id >> 96,
            (id >> 80) & 0xffff,
            (id >> 64) & 0xffff,
            (id >> 48) & 0xffff,
            id & 0xffff_ffff_ffff
        )
    }
}

/// A text is not the id of a block.
///
/// ```
/// use bowline_types::{BlockId, ParseBlockIdError};
///
/// assert_eq!("svc/billing".parse::<BlockId>(), Err(ParseBlockIdError));
/// // A name is not an id, but has one.
/// assert!(BlockId::from_name("svc/billing").to_string().parse::<BlockId>().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a block id: use 32 hexadecimal digits, or the form 00000000-0000-0000-0000-000000000000"
)]
pub struct ParseBlockIdError;

impl FromStr for BlockId {
    type Err = ParseBlockIdError;

    /// Reads 32 hexadecimal digits of either case, bare or hyphenated as a UUID.
    fn from_str(text: &str) -> Result<BlockId, ParseBlockIdError> {
        let hyphenated = match text.len() {
            32 => false,
            36 => true,
            _ => return Err(ParseBlockIdError),
        };
        let mut id = 0;
        for (at, byte) in text.bytes().enumerate() {
            if hyphenated && matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(ParseBlockIdError);
                }
                continue;
            }
            let digit = char::from(byte).to_digit(16).ok_or(ParseBlockIdError)?;
            id = (id << 4) | u128::from(digit);
        }
        Ok(BlockId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_the_lower_case_uuid_form_with_all_zeros() {
        let id = BlockId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(
            BlockId(1).to_string(),
            "00000000-0000-0000-0000-000000000001"
        );
    }

    #[test]
    fn parse_accepts_both_forms_and_either_case() {
        let id = BlockId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        for text in [
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-AABBCCDDEEFF",
            "00112233445566778899aabbccddeeff",
        ] {
            assert_eq!(text.parse(), Ok(id), "{text}");
        }
        assert_eq!(
            "ffffffffffffffffffffffffffffffff".parse(),
            Ok(BlockId(u128::MAX))
        );
    }

    #[test]
    fn parse_refuses_everything_else() {
        for text in [
            "",
            "1",
            "+0112233445566778899aabbccddeeff",
            "00112233445566778899aabbccddeef",
            "00112233445566778899aabbccddeeff0",
            "00112233445566778899aabbccddeefg",
            "001122334-455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddee-f",
            "00112233--455-6677-8899-aabbccddeeff",
            "0011223344556677-8899-aabb-ccddeeff--",
            "00112233\u{a0}445566778899aabbccddeef",
        ] {
            assert_eq!(text.parse::<BlockId>(), Err(ParseBlockIdError), "{text:?}");
        }
    }

    #[test]
    fn bytes_round_trip_and_sort_like_ids() {
        let ids = [0, 1, 255, 256, u128::MAX >> 1, u128::MAX].map(BlockId);
        assert!(ids.is_sorted_by_key(|id| id.to_bytes()));
        for id in ids {
            assert_eq!(BlockId::from_bytes(id.to_bytes()), id);
        }
    }

    #[test]
    fn from_name_never_changes() {
        // Computed by the reference implementation in C, not by this crate.
        for (name, id) in [
            ("", "99aa06d3-0147-98d8-6001-c324468d497f"),
            ("bowline", "68e6d008-540b-b461-c10e-8f838687e70b"),
            ("svc/größe", "4d46fdbd-e92c-1bfb-7d32-d97bbb905e81"),
        ] {
            assert_eq!(BlockId::from_name(name).to_string(), id, "{name:?}");
        }
    }
}
