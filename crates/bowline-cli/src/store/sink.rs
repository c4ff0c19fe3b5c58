//! Import sinks: the code that both targets share, and the sink of a directory.
//!
//! A batch of items is one transaction of a directory. An item that is there already is not written again, and one that
//! the database refuses is left out.

use bowline::{Db, Error, Transaction};

use super::resolve::id_of;
use crate::exit::Failure;
use crate::import::{Block, Edge, Item, KeyValue, Position, Refusal};

/// What an import did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Blocks that it created.
    pub(crate) blocks: u64,
    /// Edges that it created.
    pub(crate) edges: u64,
    /// Keys that it created.
    pub(crate) keys: u64,
    /// Items of the file for what existed already: before the import, or from an earlier line. A block that edges only
    /// mention is no item for this: an edge list mentions it many times.
    pub(crate) again: u64,
    /// How many items created or changed something.
    pub(crate) changed: u64,
    pub(crate) refused: u64,
}

impl Imported {
    /// How many items of the file were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.blocks + self.edges + self.keys + self.again
    }
}

/// What writing an item did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It was not there.
    Created,
    /// Something else was there.
    Replaced,
    /// It was there.
    Unchanged,
}

impl Written {
    /// What writing something does over what is there.
    pub(super) fn over<T: PartialEq + ?Sized>(old: Option<&T>, new: &T) -> Written {
        match old {
            None => Written::Created,
            Some(old) if old == new => Written::Unchanged,
            Some(_) => Written::Replaced,
        }
    }
}

/// Why an item is refused.
#[derive(Debug)]
pub(super) enum Unfit {
    /// An error of the library.
    Library(Error),
    /// An error of a server.
    Server(bowline_client::Error),
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Unfit {
        Unfit::Library(error)
    }
}

/// Writes each item with `write`, which tells what that did; an error within its result refuses the item. With `strict`
/// nothing after the first refusal is written.
pub(super) fn write_each<E>(
    items: &[(Position, Item)],
    strict: bool,
    mut write: impl FnMut(&Item) -> Result<Result<Written, Unfit>, E>,
) -> Result<(Vec<Refusal>, Imported), E> {
    let (mut refused, mut imported) = (Vec::new(), Imported::default());
    for (at, item) in items {
        match write(item)? {
            Ok(written) => {
                imported.changed += u64::from(written != Written::Unchanged);
                let count = match (item, written) {
                    (Item::Block(_), Written::Created) => &mut imported.blocks,
                    (Item::Edge(_), Written::Created) => &mut imported.edges,
                    (Item::KeyValue(_), Written::Created) => &mut imported.keys,
                    (Item::Block(block), _) if block.if_absent => continue,
                    _ => &mut imported.again,
                };
                *count += 1;
            }
            Err(error) => {
                let (at, message) = (*at, refusal_text(item, &error));
                refused.push(Refusal { at, message });
                if strict {
                    break;
                }
            }
        }
    }
    Ok((refused, imported))
}

/// Writes items into a directory.
pub(super) fn write(
    db: &Db,
    items: &[(Position, Item)],
    strict: bool,
) -> Result<(Vec<Refusal>, Imported), Failure> {
    Ok(db.transact(|tx| {
        write_each(items, strict, |item| match write_item(tx, item) {
            Err(error) if !is_refusal(&error) => Err(error),
            written => Ok(written.map_err(Unfit::Library)),
        })
    })?)
}

/// Whether the item is at fault, and not the database.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::EmptyKey
            | Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::InvalidKind { .. }
            | Error::TooManyKinds { .. }
            | Error::MissingBlock { .. }
    )
}

/// Says it with the name that the file used, where the database only knows an id.
fn refusal_text(item: &Item, error: &Unfit) -> String {
    let error = match error {
        Unfit::Library(error) => error,
        Unfit::Server(error) => return error.to_string(),
    };
    let (Item::Edge(edge), Error::MissingBlock { id }) = (item, error) else {
        return error.to_string();
    };
    let block = if id_of(&edge.source) == *id {
        &edge.source
    } else {
        &edge.target
    };
    format!("block {block} does not exist: an edge comes after both of its blocks")
}

/// Writes an item unless it is there already.
fn write_item(tx: &mut Transaction, item: &Item) -> bowline::Result<Written> {
    let written = match item {
        Item::KeyValue(KeyValue { key, value }) => {
            let written = Written::over(tx.get(key)?.as_deref(), &value[..]);
            if written != Written::Unchanged {
                tx.put(key, value)?;
            }
            written
        }
        Item::Block(block) => {
            let new = block_of(block);
            let written = match tx.block(new.id)? {
                Some(_) if block.if_absent => Written::Unchanged,
                old => Written::over(old.as_ref(), &new),
            };
            if written != Written::Unchanged {
                tx.put_block(&new)?;
            }
            written
        }
        Item::Edge(edge) => {
            let new = edge_of(edge);
            let old = tx.edge(new.source, &new.kind, new.target)?;
            let written = Written::over(old.as_ref(), &new);
            if written != Written::Unchanged {
                tx.put_edge(&new)?;
            }
            written
        }
    };
    Ok(written)
}

/// The block that an item of a file is.
pub(super) fn block_of(block: &Block) -> bowline::Block {
    bowline::Block {
        id: id_of(&block.block),
        kinds: block.kinds.clone(),
        content: block.content.clone().into(),
        attributes: block.attributes.clone(),
    }
}

/// The edge that an item of a file is.
pub(super) fn edge_of(edge: &Edge) -> bowline::Edge {
    bowline::Edge {
        source: id_of(&edge.source),
        kind: edge.kind.clone(),
        target: id_of(&edge.target),
        attributes: edge.attributes.clone(),
    }
}
