//! The types that every module shares.

/// The number of a committed write transaction, as the engine computes with it; `bowline_types::Revision` is its type
/// for users. Starts at 1 for a new database, never repeats.
pub(crate) type Revision = u64;

/// The position of an entry in the log. Starts at 1; consecutive.
pub type Index = u64;

/// One ordered map inside the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeId(pub u8);

/// What an entry says about its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has this value from this revision on.
    Put = 1,
    /// The key is absent from this revision on (a tombstone).
    Delete = 2,
}

impl EntryKind {
    /// Reads the byte written for a kind; `None` for a byte no version of Bowline wrote.
    #[must_use]
    pub(crate) fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            1 => Some(EntryKind::Put),
            2 => Some(EntryKind::Delete),
            _ => None,
        }
    }
}
