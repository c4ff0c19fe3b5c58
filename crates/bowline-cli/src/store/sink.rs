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
    /// Those that the file describes, and those that its edges mention and that did not exist. An
    /// edge list mentions a block many times, and creates it once.
    pub(crate) blocks: u64,
    pub(crate) edges: u64,
    pub(crate) keys: u64,
    /// How many of those were not there yet, or were different.
    pub(crate) changed: u64,
    pub(crate) refused: u64,
}

/// Writes each item with `write`, which tells whether something changed; an error of the library in its result refuses
/// the item. With `strict` nothing after the first refusal is written.
pub(super) fn write_each<E>(
    items: &[(Position, Item)],
    strict: bool,
    mut write: impl FnMut(&Item) -> Result<Result<bool, Error>, E>,
) -> Result<(Vec<Refusal>, Imported), E> {
    let (mut refused, mut imported) = (Vec::new(), Imported::default());
    for (at, item) in items {
        match write(item)? {
            Ok(changed) => {
                imported.changed += u64::from(changed);
                match item {
                    Item::Block(block) => {
                        imported.blocks += u64::from(changed || !block.if_absent);
                    }
                    Item::Edge(_) => imported.edges += 1,
                    Item::KeyValue(_) => imported.keys += 1,
                }
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
            written => Ok(written),
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
            | Error::MissingBlock { .. }
    )
}

/// Says it with the name that the file used, where the database only knows an id.
fn refusal_text(item: &Item, error: &Error) -> String {
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

/// Writes an item unless it is there already; tells whether it wrote.
fn write_item(tx: &mut Transaction, item: &Item) -> bowline::Result<bool> {
    match item {
        Item::KeyValue(KeyValue { key, value }) => {
            if tx.get(key)?.is_some_and(|old| old == value[..]) {
                return Ok(false);
            }
            tx.put(key, value)?;
        }
        Item::Block(Block {
            block,
            kind,
            content,
            attributes,
            if_absent,
        }) => {
            let id = id_of(block);
            let new = bowline::Block {
                id,
                kind: kind.clone(),
                content: content.clone().into(),
                attributes: attributes.clone(),
            };
            let old = tx.block(id)?;
            if old.is_some_and(|old| *if_absent || old == new) {
                return Ok(false);
            }
            tx.put_block(&new)?;
        }
        Item::Edge(Edge {
            source,
            kind,
            target,
            attributes,
        }) => {
            let new = bowline::Edge {
                source: id_of(source),
                kind: kind.clone(),
                target: id_of(target),
                attributes: attributes.clone(),
            };
            if tx.edge(new.source, kind, new.target)?.as_ref() == Some(&new) {
                return Ok(false);
            }
            tx.put_edge(&new)?;
        }
    }
    Ok(true)
}
