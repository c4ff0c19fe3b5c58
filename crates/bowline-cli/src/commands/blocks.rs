//! `block put|get|del` and `edge put|del`.

use bowline::Revision;

use crate::args::{Block, Edge, EdgeKey};
use crate::context::{Context, not_found};
use crate::exit::Failure;
use crate::import::{Attributes, BlockRef, NAME_ATTRIBUTE};
use crate::output::Field;
use crate::store::graph::Store;
use crate::store::resolve::{find, id_of};

pub(crate) fn block(context: &mut Context<'_, '_>, args: &Block) -> Result<(), Failure> {
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
                content.clone().into_bytes()
            };
            let mut attributes: Attributes = attributes.iter().cloned().collect();
            if let BlockRef::Name(name) = block {
                attributes
                    .entry(NAME_ATTRIBUTE.to_owned())
                    .or_insert_with(|| name.clone());
            }
            let id = id_of(block);
            let new = bowline::Block {
                id,
                kind: kind.clone(),
                content: content.into(),
                attributes,
            };
            let store = Store::open_to_write(context, write)?;
            let revision = store.put_block(&new)?;
            done(context, store, &[("id", id.to_string().into())], revision)
        }
        Block::Get { block, rev } => {
            let store = Store::open(context)?;
            let graph = store.graph(*rev)?;
            let id = find(&*graph, block)?;
            let Some(found) = graph.block(id)? else {
                return Err(not_found(format!("block {block} does not exist")));
            };
            Ok(context.printer(false).record(&[
                ("id", found.id.to_string().into()),
                ("kind", found.kind.into()),
                ("attributes", Field::Attributes(found.attributes)),
                ("content", Field::Bytes(found.content.into())),
            ])?)
        }
        Block::Del { block, write } => {
            let store = Store::open_to_write(context, write)?;
            let id = find(&*store.graph(None)?, block)?;
            let Some(revision) = store.delete_block(id)? else {
                return Err(not_found(format!(
                    "block {block} does not exist; nothing changed"
                )));
            };
            done(context, store, &[("id", id.to_string().into())], revision)
        }
    }
}

pub(crate) fn edge(context: &mut Context<'_, '_>, args: &Edge) -> Result<(), Failure> {
    match args {
        Edge::Put {
            edge,
            attributes,
            write,
        } => {
            let store = Store::open_to_write(context, write)?;
            let EdgeKey {
                source,
                kind,
                target,
            } = edge;
            let (from, to) = {
                let graph = store.graph(None)?;
                (find(&*graph, source)?, find(&*graph, target)?)
            };
            let mut new = bowline::Edge::new(from, kind, to);
            new.attributes = attributes.iter().cloned().collect();
            let revision = store.put_edge(&new)?;
            done(context, store, &[], revision)
        }
        Edge::Del { edge, write } => {
            let store = Store::open_to_write(context, write)?;
            let EdgeKey {
                source,
                kind,
                target,
            } = edge;
            let (from, to) = {
                let graph = store.graph(None)?;
                (find(&*graph, source)?, find(&*graph, target)?)
            };
            let Some(revision) = store.delete_edge(from, kind, to)? else {
                let text =
                    format!("edge {source} -{kind}-> {target} does not exist; nothing changed");
                return Err(not_found(text));
            };
            done(context, store, &[], revision)
        }
    }
}

/// Prints what a write gave, and the revision, after everything is closed.
fn done(
    context: &mut Context<'_, '_>,
    store: Store,
    fields: &[(&str, Field)],
    revision: Revision,
) -> Result<(), Failure> {
    store.close()?;
    let mut all = fields.to_vec();
    all.push(("revision", revision.into()));
    Ok(context.printer(false).record(&all)?)
}
