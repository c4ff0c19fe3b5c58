//! Records of a replica in the system tree, besides leases and kinds.
//!
//! ```text
//! applied    | version 1 | commands varint | mark bytes until the end |
//! compacted  | revision varint |
//! ```
//!
//! The mark is the owner's data for the last entry that was applied as a whole. `commands` is the number of
//! commands of the next entry that are in the state already: an entry whose commands do not fit into one
//! memtable is applied in parts.

use bowline_storage::codec::{Reader, put_varint};

const VERSION: u8 = 1;

/// The position up to which the log has been applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedMark {
    /// The owner's mark of the last entry; empty before the first.
    pub mark: Vec<u8>,
    /// The number of applied commands of the entry after it.
    pub commands: u64,
}

impl AppliedMark {
    pub(crate) fn encode(mark: &[u8], commands: u64) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, commands);
        out.extend_from_slice(mark);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<AppliedMark> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let commands = reader.varint()?;
        let mark = reader.rest().to_vec();
        Some(AppliedMark { mark, commands })
    }
}

pub(crate) fn encode_number(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, number);
    out
}

pub(crate) fn decode_number(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    let number = reader.varint()?;
    reader.is_empty().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip_and_refuse_damage() {
        let bytes = AppliedMark::encode(b"mark", 300);
        let mark = AppliedMark::decode(&bytes).unwrap();
        assert_eq!((&mark.mark[..], mark.commands), (&b"mark"[..], 300));
        assert_eq!(AppliedMark::decode(&[]), None);
        assert_eq!(AppliedMark::decode(&[2, 0]), None, "unknown version");
        assert_eq!(decode_number(&encode_number(u64::MAX)), Some(u64::MAX));
        assert_eq!(decode_number(&[1, 1]), None);
    }
}
