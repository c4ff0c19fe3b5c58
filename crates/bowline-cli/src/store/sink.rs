//! Where the items of an import go: the trait, and a directory's part of it.

use bowline::{Db, Error, Revision, Transaction};

use super::resolve::id_of;
use crate::exit::Failure;
use crate::import::{Block, Edge, Item, KeyValue, Position, Refusal};
use crate::output::Field;

/// What an import did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) blocks: u64,
    pub(crate) edges: u64,
    pub(crate) keys: u64,
    /// How many of those were not there yet, or were different.
    pub(crate) changed: u64,
    pub(crate) refused: u64,
}

impl Imported {
    /// Its fields, for other commands to show.
    pub(crate) fn fields(&self) -> [(&'static str, Field); 3] {
        [
            ("blocks", self.blocks.into()),
            ("edges", self.edges.into()),
            ("refused", self.refused.into()),
        ]
    }

    /// An item is there now.
    pub(crate) fn count(&mut self, item: &Item, changed: bool) {
        self.changed += u64::from(changed);
        match item {
            Item::Block(_) => self.blocks += 1,
            Item::Edge(_) => self.edges += 1,
            Item::KeyValue(_) => self.keys += 1,
        }
    }
}

/// Where items go.
pub(crate) trait Sink {
    /// Writes what is not there yet, and leaves out what is refused; with `strict` nothing after the
    /// first refusal is written.
    fn write(
        &self,
        items: &[(Position, Item)],
        strict: bool,
    ) -> Result<(Vec<Refusal>, Imported), Failure>;

    /// The newest revision.
    fn revision(&self) -> Result<Revision, Failure>;
}

impl Sink for Db {
    fn write(
        &self,
        items: &[(Position, Item)],
        strict: bool,
    ) -> Result<(Vec<Refusal>, Imported), Failure> {
        Ok(self.transact(|tx| {
            let mut refused = Vec::new();
            let mut imported = Imported::default();
            for (at, item) in items {
                match write_item(tx, item) {
                    Ok(changed) => imported.count(item, changed),
                    Err(error) if is_refusal(&error) => {
                        refused.push(Refusal {
                            at: *at,
                            message: refusal_text(item, &error),
                        });
                        if strict {
                            break;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok((refused, imported))
        })?)
    }

    fn revision(&self) -> Result<Revision, Failure> {
        Ok((**self).revision())
    }
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
pub(crate) fn refusal_text(item: &Item, error: &Error) -> String {
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
