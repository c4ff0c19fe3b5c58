//! `block put|get|del` and `edge put|del`.

use bowline_client::graph as wire;

use crate::args::{Block, Edge, EdgeKey};
use crate::context::{Context, not_found};
use crate::exit::Failure;
use crate::import::{Attributes, BlockRef, NAME_ATTRIBUTE};
use crate::output::Field;
use crate::store::remote::GRAPH_TIMEOUT;
use crate::store::resolve::{find, id_of};
use crate::store::target::Target;

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
            let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
            let (_, revision) = target.write(wire::GraphWrite::PutBlock(wire::Block {
                id,
                kind: kind.clone(),
                content: content.into(),
                attributes,
            }))?;
            target.close()?;
            context.record(&[("id", id.to_string().into()), ("revision", revision.into())])
        }
        Block::Get { block, rev } => {
            let target = Target::open(context, GRAPH_TIMEOUT)?;
            let graph = target.at(*rev)?;
            let id = find(&graph, block)?;
            let Some(found) = graph.block(id)? else {
                return Err(not_found(format!("block {block} does not exist")));
            };
            context.record(&[
                ("id", found.id.to_string().into()),
                ("kind", found.kind.into()),
                ("attributes", Field::Attributes(found.attributes)),
                ("content", Field::Bytes(found.content.into())),
            ])
        }
        Block::Del { block, write } => {
            let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
            let id = find(&target.at(None)?, block)?;
            let delete = wire::GraphWrite::DeleteBlock(id);
            let (is_gone, revision) = target.write(delete)?;
            target.close()?;
            if !is_gone {
                let text = format!("block {block} does not exist; nothing changed");
                return Err(not_found(text));
            }
            context.record(&[("id", id.to_string().into()), ("revision", revision.into())])
        }
    }
}

pub(crate) fn edge(context: &mut Context<'_, '_>, args: &Edge) -> Result<(), Failure> {
    let (Edge::Put { edge, write, .. } | Edge::Del { edge, write }) = args;
    let EdgeKey {
        source,
        kind,
        target: end,
    } = edge;
    let target = Target::open_to_write(context, write.durability, GRAPH_TIMEOUT)?;
    let key = {
        let graph = target.at(None)?;
        let (from, to) = (find(&graph, source)?, find(&graph, end)?);
        wire::EdgeKey::new(from, kind, to)
    };
    let (changed, revision) = target.write(match args {
        Edge::Put { attributes, .. } => {
            let attributes = attributes.iter().cloned().collect();
            wire::GraphWrite::PutEdge(key.with_attributes(attributes))
        }
        Edge::Del { .. } => wire::GraphWrite::DeleteEdge(key),
    })?;
    target.close()?;
    if let (Edge::Del { .. }, false) = (args, changed) {
        let text = format!("edge {source} -{kind}-> {end} does not exist; nothing changed");
        return Err(not_found(text));
    }
    context.record(&[("revision", revision.into())])
}
