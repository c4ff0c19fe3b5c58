//! From what people call a block to its id, and back.

use std::collections::HashMap;

use bowline::{BlockId, Graph};

use super::not_found;
use crate::exit::Failure;
use crate::import::{BlockRef, NAME_ATTRIBUTE, label};

/// The id of a block that a command is to create: a name's id is its hash.
pub(super) fn id_of(block: &BlockRef) -> BlockId {
    match block {
        BlockRef::Id(id) => BlockId(*id),
        BlockRef::Name(name) => BlockId::from_name(name),
    }
}

/// The id of a block that must exist. A name that is no block's own is looked for among the
/// `name` attributes, so that `libc` finds `libc@0.2.180` where it is the only one.
pub(super) fn find(graph: &Graph, block: &BlockRef) -> Result<BlockId, Failure> {
    const SHOWN_MAX: usize = 10;
    let id = id_of(block);
    if graph.has_block(id)? {
        return Ok(id);
    }
    let BlockRef::Name(name) = block else {
        return Err(not_found(format!("block {block} does not exist")));
    };
    let mut found = Vec::new();
    graph.for_each_block(|block| {
        if block.attributes.get(NAME_ATTRIBUTE) == Some(name) {
            found.push((
                block.id,
                label(&BlockRef::Id(block.id.0), &block.attributes),
            ));
        }
        Ok(())
    })?;
    match &found[..] {
        [(id, _)] => Ok(*id),
        [] => Err(not_found(format!("block {name} does not exist"))),
        several => {
            let mut shown: Vec<_> = several
                .iter()
                .take(SHOWN_MAX)
                .map(|(_, label)| label.as_str())
                .collect();
            if several.len() > SHOWN_MAX {
                shown.push("…");
            }
            let count = several.len();
            Err(not_found(format!(
                "{count} blocks are called {name}: say {}",
                shown.join(" or ")
            )))
        }
    }
}

/// Labels of blocks, each read once.
#[derive(Default)]
pub(super) struct Labels {
    known: HashMap<BlockId, String>,
}

impl Labels {
    pub(super) fn get(&mut self, graph: &Graph, id: BlockId) -> Result<String, Failure> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let attributes = graph
            .block(id)?
            .map(|block| block.attributes)
            .unwrap_or_default();
        let label = label(&BlockRef::Id(id.0), &attributes);
        self.known.insert(id, label.clone());
        Ok(label)
    }
}
