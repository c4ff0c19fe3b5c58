//! The footer of a table, from which it is opened: the lengths of its parts.
//!
//! ```text
//! offset  bytes  field
//!  0      8      length of the pages          the parts stand in this order,
//!  8      8      length of the filter          without gaps, from the start
//! 16      8      length of the index           of the file to the footer
//! 24      8      length of the properties
//! 32      4      length of this footer (52)   ┐
//! 36      4      format version (2)           │ the tail, alike in
//! 40      4      CRC32C                       │ every format version
//! 44      8      magic                        ┘
//! ```
//!
//! The checksum is that of a frame (over what stands before it in the footer, the salt and the
//! footer's offset). A later version may lengthen the footer in front of the tail: a program that
//! does not know it can still tell a newer format from damage.

use crate::codec::Reader;
use crate::frame::{self, Reason};

/// The format this program writes, and the newest it reads. In format 1 pages have another hash
/// index, which is not used any more; see [`super::page`].
pub(super) const FORMAT_VERSION: u32 = 2;
/// The oldest format this program reads.
const FORMAT_VERSION_MIN: u32 = 1;
/// The length of the footer.
pub(super) const FOOTER_BYTES: usize = 52;
/// The longest footer that is looked for.
const FOOTER_BYTES_MAX: usize = 4096;
const TAIL_BYTES: usize = 20;
const MAGIC: [u8; 8] = *b"bwlTABLE";

const _: () = assert!(FOOTER_BYTES == 4 * 8 + TAIL_BYTES);

/// The lengths of the parts of a table file, in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) pages_bytes: u64,
    pub(super) filter_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) properties_bytes: u64,
}

/// Why a footer was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FooterError {
    /// The footer is whole, and of this format version.
    Newer(u32),
    Damaged(Reason),
}

impl Footer {
    /// How many bytes at the end of a file of `file_bytes` are wanted to find the footer.
    pub(super) fn window_bytes(file_bytes: u64) -> usize {
        file_bytes.min(FOOTER_BYTES_MAX as u64) as usize
    }

    /// Where the footer of a file with these parts begins.
    pub(super) fn offset(&self) -> u64 {
        self.pages_bytes + self.filter_bytes + self.index_bytes + self.properties_bytes
    }

    /// Appends the footer.
    pub(super) fn encode(&self, out: &mut Vec<u8>, salt: u64) {
        let start = out.len();
        for part in [
            self.pages_bytes,
            self.filter_bytes,
            self.index_bytes,
            self.properties_bytes,
        ] {
            out.extend_from_slice(&part.to_le_bytes());
        }
        out.extend_from_slice(&(FOOTER_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = frame::checksum(&out[start..], salt, self.offset());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
    }

    /// Reads the footer from the last bytes of a file of `file_bytes`.
    pub(super) fn decode(window: &[u8], file_bytes: u64, salt: u64) -> Result<Footer, FooterError> {
        let damaged = FooterError::Damaged;
        let tail = window.len().checked_sub(TAIL_BYTES).map(|at| &window[at..]);
        let mut tail = Reader::new(tail.ok_or(damaged("the file is too short for a table"))?);
        let mut parse_tail = || Some((tail.u32()?, tail.u32()?, tail.u32()?, tail.rest()));
        let (len, version, checksum, magic) =
            parse_tail().ok_or(damaged("the file is too short for a table"))?;
        if magic != MAGIC {
            return Err(damaged("the file does not end like a table"));
        }
        let len = len as usize;
        if len < TAIL_BYTES || len > window.len() {
            return Err(damaged("the footer's length is impossible"));
        }
        let footer = &window[window.len() - len..];
        let offset = file_bytes - len as u64;
        if frame::checksum(&footer[..len - 12], salt, offset) != checksum {
            return Err(damaged("the footer's checksum does not match"));
        }
        if version > FORMAT_VERSION {
            return Err(FooterError::Newer(version));
        }
        let mut reader = Reader::new(footer);
        let mut parse = || {
            let footer = Footer {
                pages_bytes: reader.u64()?,
                filter_bytes: reader.u64()?,
                index_bytes: reader.u64()?,
                properties_bytes: reader.u64()?,
            };
            let filter_end = footer.pages_bytes.checked_add(footer.filter_bytes)?;
            let index_end = filter_end.checked_add(footer.index_bytes)?;
            let end = index_end.checked_add(footer.properties_bytes)?;
            (end == offset).then_some(footer)
        };
        if version < FORMAT_VERSION_MIN || len != FOOTER_BYTES {
            return Err(damaged(
                "the footer's version and length do not belong together",
            ));
        }
        parse().ok_or(damaged("the parts do not fill the file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER: Footer = Footer {
        pages_bytes: 1000,
        filter_bytes: 69,
        index_bytes: 40,
        properties_bytes: 50,
    };

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        FOOTER.encode(&mut bytes, 5);
        bytes
    }

    #[test]
    fn a_footer_round_trips() {
        let bytes = encoded();
        assert_eq!(bytes.len(), FOOTER_BYTES);
        let file_bytes = FOOTER.offset() + bytes.len() as u64;
        assert_eq!(Footer::decode(&bytes, file_bytes, 5), Ok(FOOTER));
        assert!(
            Footer::decode(&bytes, file_bytes, 6).is_err(),
            "of another file"
        );
        assert!(
            Footer::decode(&bytes, file_bytes + 1, 5).is_err(),
            "at another place"
        );
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut bytes = encoded();
        let file_bytes = FOOTER.offset() + bytes.len() as u64;
        bytes[36] = 3;
        let damaged = Footer::decode(&bytes, file_bytes, 5);
        assert!(
            matches!(damaged, Err(FooterError::Damaged(_))),
            "{damaged:?}"
        );
        let checksum = frame::checksum(&bytes[..40], 5, FOOTER.offset());
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            Footer::decode(&bytes, file_bytes, 5),
            Err(FooterError::Newer(3))
        );
    }

    #[test]
    fn the_format_before_is_read_and_none_before_that() {
        for (version, is_read) in [(0, false), (1, true), (2, true)] {
            let mut bytes = encoded();
            bytes[36] = version;
            let checksum = frame::checksum(&bytes[..40], 5, FOOTER.offset());
            bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
            let file_bytes = FOOTER.offset() + bytes.len() as u64;
            let decoded = Footer::decode(&bytes, file_bytes, 5);
            assert_eq!(decoded == Ok(FOOTER), is_read, "{version}: {decoded:?}");
        }
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = encoded();
        for len in 0..bytes.len() {
            assert!(Footer::decode(&bytes[..len], FOOTER.offset() + len as u64, 5).is_err());
        }
    }
}
