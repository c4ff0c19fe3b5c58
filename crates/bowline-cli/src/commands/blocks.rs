//! `block put|get|del` and `edge put|del`.

use bowline::Db;

use super::resolve::{find, id_of};
use super::{Context, not_found, snapshot};
use crate::args::{Block, Edge, EdgeKey};
use crate::exit::Failure;
use crate::import::{Attributes, BlockRef, NAME_ATTRIBUTE};
use crate::output::Field;

pub(super) fn block(context: &mut Context<'_, '_>, args: Block) -> Result<(), Failure> {
    match args {
        Block::Put {
            block,
            kind,
            content,
            attributes,
            write,
        } => {
            let content = if content == "-" {
                context.read_input()?
            } else {
                content.into_bytes()
            };
            let mut attributes: Attributes = attributes.into_iter().collect();
            if let BlockRef::Name(name) = &block {
                attributes
                    .entry(NAME_ATTRIBUTE.to_owned())
                    .or_insert_with(|| name.clone());
            }
            let id = id_of(&block);
            let new = bowline::Block {
                id,
                kind,
                content,
                attributes,
            };
            let db = context.open_to_write(write.durability)?;
            db.transact(|tx| tx.put_block(&new))?;
            done(context, &db, &[("id", id.to_string().into())])
        }
        Block::Get { block, rev } => {
            let db = context.open()?;
            let graph = snapshot(&db, rev)?.graph();
            let id = find(&graph, &block)?;
            let Some(found) = graph.block(id)? else {
                return Err(not_found(format!("block {block} does not exist")));
            };
            Ok(context.printer(false).record(&[
                ("id", found.id.to_string().into()),
                ("kind", found.kind.into()),
                ("attributes", Field::Attributes(found.attributes)),
                ("content", Field::Bytes(found.content)),
            ])?)
        }
        Block::Del { block, write } => {
            let db = context.open_to_write(write.durability)?;
            let id = find(&db.snapshot().graph(), &block)?;
            if !db.transact(|tx| tx.delete_block(id))? {
                return Err(not_found(format!(
                    "block {block} does not exist; nothing changed"
                )));
            }
            done(context, &db, &[("id", id.to_string().into())])
        }
    }
}

pub(super) fn edge(context: &mut Context<'_, '_>, args: Edge) -> Result<(), Failure> {
    match args {
        Edge::Put {
            edge,
            attributes,
            write,
        } => {
            let db = context.open_to_write(write.durability)?;
            let EdgeKey {
                source,
                kind,
                target,
            } = &edge;
            let graph = db.snapshot().graph();
            let mut new = bowline::Edge::new(find(&graph, source)?, kind, find(&graph, target)?);
            new.attributes = attributes.into_iter().collect();
            db.transact(|tx| tx.put_edge(&new))?;
            done(context, &db, &[])
        }
        Edge::Del { edge, write } => {
            let db = context.open_to_write(write.durability)?;
            let EdgeKey {
                source,
                kind,
                target,
            } = &edge;
            let graph = db.snapshot().graph();
            let (from, to) = (find(&graph, source)?, find(&graph, target)?);
            if !db.transact(|tx| tx.delete_edge(from, kind, to))? {
                let text =
                    format!("edge {source} -{kind}-> {target} does not exist; nothing changed");
                return Err(not_found(text));
            }
            done(context, &db, &[])
        }
    }
}

/// Prints what a write gave, and the revision, after everything is closed.
fn done(context: &mut Context<'_, '_>, db: &Db, fields: &[(&str, Field)]) -> Result<(), Failure> {
    let revision = db.revision();
    db.close()?;
    let mut all = fields.to_vec();
    all.push(("revision", revision.into()));
    Ok(context.printer(false).record(&all)?)
}
