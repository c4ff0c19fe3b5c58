//! [`Author`]: who has made a revision, and when.
//!
//! The record is one key of the system tree, written by the commit that it speaks of: its version at a revision is that
//! revision's author. So it costs one small record per commit, however many keys that changes, and it goes away with the
//! history. A commit without an author writes none; the newest version at its revision is that of an older one then, and says
//! nothing about it.
//!
//! ```text
//! author | version u8 | wall clock in ms: varint | name: bytes |
//! ```

use bowline_storage::EntryKind;
use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_storage::engine::Engine;
use bowline_types::Revision;

use crate::error::{Error, Result, show_key};
use crate::trees;

const VERSION: u8 = 1;

/// Who has made a revision: a user of a cluster whose authentication was enabled.
///
/// ```
/// use bowline::Author;
///
/// let author = Author { user: "ann".to_owned(), at_ms: 1_700_000_000_000 };
/// assert_eq!(author.user, "ann");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The name of the user.
    pub user: String,
    /// When the member that proposed the change received it: milliseconds since the Unix epoch, by that member's clock.
    pub at_ms: u64,
}

/// The record of an author.
pub fn encode(user: &str, at_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(user.len() + 16);
    out.push(VERSION);
    put_varint(&mut out, at_ms);
    put_bytes(&mut out, user.as_bytes());
    out
}

/// Reads a record.
pub fn decode(bytes: &[u8]) -> Option<Author> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return None;
    }
    let at_ms = reader.varint()?;
    let user = std::str::from_utf8(reader.bytes()?).ok()?.to_owned();
    reader.is_empty().then_some(Author { user, at_ms })
}

/// The author of a revision; `None` if it has none, or its history is gone.
pub fn of_revision(engine: &Engine, revision: Revision) -> Result<Option<Author>> {
    // The tables may keep for a while what was given up.
    if revision.get() < engine.history_floor() {
        return Ok(None);
    }
    let key = trees::author_key();
    let found = engine.read_at(trees::SYSTEM, &key, revision.get(), |found| {
        let put = found.filter(|found| found.kind == EntryKind::Put);
        let own = put.filter(|found| found.revision == revision.get());
        own.map(|found| decode(found.bytes()))
    });
    match found {
        Ok(None) | Err(bowline_storage::Error::Replaced { .. }) => Ok(None),
        Ok(Some(Some(author))) => Ok(Some(author)),
        Ok(Some(None)) => Err(Error::InvalidRecord {
            what: "author",
            key: show_key(&key),
            reason: "it is not the author of a revision",
        }),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_other_bytes_are() {
        let bytes = encode("ann", 1_700_000_000_000);
        let author = decode(&bytes).unwrap();
        assert_eq!(
            (author.user.as_str(), author.at_ms),
            ("ann", 1_700_000_000_000)
        );
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None);
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(decode(&[2, 0, 0]), None);
    }
}
