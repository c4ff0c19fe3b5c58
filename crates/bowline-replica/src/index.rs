//! Indexes of blocks in a cluster: their changes, how far one is, and why a command is refused for one.
//!
//! What an index is, and what its entries are, is in [`bowline_core::index`]; how commands keep them, in `plan/indexes.rs`.
//! A change is encoded as
//!
//! ```text
//! | 1, or 2 if unique | kind bytes | attributes: count varint, bytes each |   creation
//! | 0                 | kind bytes | attributes: count varint, bytes each |   dropping
//! | 3                 | id varint  |                                          step, from the start
//! | 4                 | id varint  | block 16 bytes |                         step, behind a block
//! ```

use bowline_core::error::Error;
use bowline_core::index::Definition;
use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_types::{BlockId, Revision};

/// The most indexes of a cluster: each costs every write of a block.
pub(crate) const INDEXES_MAX: usize = 100;

/// A change of the indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexChange {
    /// Creates an index, which is then built by steps. Changes nothing if it exists.
    Create {
        /// The kind of its blocks.
        kind: String,
        /// The attributes that it is by, in its order.
        attributes: Vec<String>,
        /// Whether no two blocks may have the same values.
        is_unique: bool,
    },
    /// Drops an index, whose entries are then deleted by steps.
    Drop {
        /// The kind of its blocks.
        kind: String,
        /// The attributes that it is by.
        attributes: Vec<String>,
    },
    /// The next step of building an index, or of deleting the entries of one that was dropped. Made by members. Does
    /// nothing if the index is not at this place any more, so it does not matter who makes steps, and how often.
    Step {
        /// The number of the index.
        id: u32,
        /// The last block that was looked at.
        done: Option<BlockId>,
    },
}

/// How far an index is, after a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexProgress {
    /// It is being built, or its entries are being deleted: the next step is [`IndexChange::Step`] with these.
    Unfinished {
        /// Its number.
        id: u32,
        /// The last block that was looked at.
        done: Option<BlockId>,
    },
    /// Queries read by it.
    Ready {
        /// The first revision that is read by it.
        since: Revision,
    },
    /// It was to be unique, and blocks with the same values were found, so it is dropped.
    NotUnique {
        /// Pairs of blocks with the same values, at most ten.
        pairs: Vec<(BlockId, BlockId)>,
    },
    /// There is none with this number.
    Gone,
}

/// Two blocks with the same values in a unique index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUnique {
    /// The kind of the index.
    pub kind: String,
    /// Its attributes, joined by commas.
    pub attributes: String,
    /// The block that was written.
    pub block: BlockId,
    /// The block that has the values.
    pub other: BlockId,
}

/// Why a command is refused for an index. The texts are those of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexRefusal {
    /// Attributes that no index can have.
    #[error("{}", Error::from(self.clone()))]
    Invalid {
        /// Their names, joined by commas.
        attributes: String,
    },
    /// One exists, and the one is unique and the other is not.
    #[error("{}", Error::from(self.clone()))]
    Exists {
        /// The kind of its blocks.
        kind: String,
        /// Its attributes, joined by commas.
        attributes: String,
        /// Whether the one that exists is unique.
        is_unique: bool,
    },
    /// There is none.
    #[error("{}", Error::from(self.clone()))]
    NotFound {
        /// The kind of its blocks.
        kind: String,
        /// Its attributes, joined by commas.
        attributes: String,
    },
    /// There are as many as there may be.
    #[error("there are {INDEXES_MAX} indexes, which is the most: drop one first")]
    TooMany,
    /// A write of a block would give it the values of another one.
    #[error("{}", Error::from(self.clone()))]
    NotUnique(Box<NotUnique>),
    /// A unique index cannot be built.
    #[error("{}", Error::from(self.clone()))]
    BuiltNotUnique {
        /// The kind of its blocks.
        kind: String,
        /// Its attributes, joined by commas.
        attributes: String,
        /// Pairs of blocks with the same values, at most ten.
        pairs: Vec<(BlockId, BlockId)>,
    },
    /// A transaction has read by an index that was dropped since, so nobody knows what it has missed.
    #[error("an index that the transaction has read by was dropped: run the transaction again")]
    Dropped,
}

impl From<IndexRefusal> for Error {
    fn from(refusal: IndexRefusal) -> Error {
        match refusal {
            IndexRefusal::Invalid { attributes } => Error::InvalidIndex { attributes },
            IndexRefusal::Exists {
                kind,
                attributes,
                is_unique,
            } => Error::IndexExists {
                kind,
                attributes,
                is_unique,
            },
            IndexRefusal::NotFound { kind, attributes } => {
                Error::IndexNotFound { kind, attributes }
            }
            IndexRefusal::NotUnique(clash) => Error::NotUnique {
                kind: clash.kind.into(),
                attributes: clash.attributes.into(),
                block: clash.block,
                other: clash.other,
            },
            IndexRefusal::BuiltNotUnique {
                kind,
                attributes,
                pairs,
            } => Error::BuiltNotUnique {
                kind: kind.into(),
                attributes: attributes.into(),
                pairs,
            },
            IndexRefusal::TooMany => Error::NotSupported {
                what: "so many indexes",
                why: "each costs every write of a block: drop one first",
            },
            IndexRefusal::Dropped => Error::NotSupported {
                what: "a commit of what was read by an index that was dropped since",
                why: "nobody knows what it has missed: run the transaction again",
            },
        }
    }
}

/// The effect of a change on the definitions.
#[derive(Debug, PartialEq)]
pub(crate) enum IndexEffect {
    Put(Definition),
    Removed(u32),
}

const DROP: u8 = 0;
const CREATE: u8 = 1;
const CREATE_UNIQUE: u8 = 2;
const STEP_FIRST: u8 = 3;
const STEP_BEHIND: u8 = 4;

/// Appends a change.
pub(crate) fn put_index_change(change: &IndexChange, out: &mut Vec<u8>) {
    let (what, kind, attributes) = match change {
        IndexChange::Create {
            kind,
            attributes,
            is_unique: false,
        } => (CREATE, kind, attributes),
        IndexChange::Create {
            kind, attributes, ..
        } => (CREATE_UNIQUE, kind, attributes),
        IndexChange::Drop { kind, attributes } => (DROP, kind, attributes),
        IndexChange::Step { id, done } => {
            out.push(done.map_or(STEP_FIRST, |_| STEP_BEHIND));
            put_varint(out, u64::from(*id));
            if let Some(done) = done {
                out.extend_from_slice(&done.to_bytes());
            }
            return;
        }
    };
    out.push(what);
    put_bytes(out, kind.as_bytes());
    put_varint(out, attributes.len() as u64);
    for name in attributes {
        put_bytes(out, name.as_bytes());
    }
}

/// Reads a change.
pub(crate) fn read_index_change(reader: &mut Reader<'_>) -> Option<IndexChange> {
    let what = reader.u8()?;
    if let STEP_FIRST | STEP_BEHIND = what {
        let id = reader.varint_u32()?;
        let done = match what {
            STEP_FIRST => None,
            _ => Some(BlockId::from_bytes(reader.take(16)?.try_into().ok()?)),
        };
        return Some(IndexChange::Step { id, done });
    }
    let kind = text(reader)?;
    let count = reader.varint_usize()?;
    if count > reader.remaining() {
        return None;
    }
    let attributes: Option<_> = (0..count).map(|_| text(reader)).collect();
    let (attributes, is_unique) = (attributes?, what == CREATE_UNIQUE);
    match what {
        DROP => Some(IndexChange::Drop { kind, attributes }),
        CREATE | CREATE_UNIQUE => Some(IndexChange::Create {
            kind,
            attributes,
            is_unique,
        }),
        _ => None,
    }
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    let bytes = reader.bytes()?;
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
