//! Block names: conversion of a name or UUID to a block id, and back.

use std::collections::HashMap;

use bowline::BlockId;

use super::view::View;
use crate::context::not_found;
use crate::exit::Failure;
use crate::import::{BlockRef, NAME_ATTRIBUTE, label};

/// The id of a block that a command is to create: a name's id is its hash.
pub(crate) fn id_of(block: &BlockRef) -> BlockId {
    match block {
        BlockRef::Id(id) => BlockId(*id),
        BlockRef::Name(name) => BlockId::from_name(name),
    }
}

/// The id of a block that must exist. A name that is no block's own is looked for among the
/// `name` attributes, so that `libc` finds `libc@0.2.180` where it is the only one.
pub(crate) fn find(graph: &View<'_>, block: &BlockRef) -> Result<BlockId, Failure> {
    const SHOWN_MAX: usize = 10;
    let id = id_of(block);
    if !graph.attributes(&[id])?.is_empty() {
        return Ok(id);
    }
    let BlockRef::Name(name) = block else {
        return Err(not_found(format!("block {block} does not exist")));
    };
    let found: Vec<_> = graph
        .having(NAME_ATTRIBUTE, name)?
        .into_iter()
        .map(|(id, attributes)| (id, label(&BlockRef::Id(id.0), &attributes)))
        .collect();
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

/// Labels of the blocks of a graph, each read once.
pub(crate) struct Labels<'a> {
    graph: &'a View<'a>,
    known: HashMap<BlockId, String>,
}

impl Labels<'_> {
    /// Reads the labels of many blocks at once, which saves a cluster many requests.
    pub(crate) fn of<'a>(
        graph: &'a View<'a>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> Result<Labels<'a>, Failure> {
        let known = HashMap::new();
        let mut labels = Labels { graph, known };
        labels.learn(ids)?;
        Ok(labels)
    }

    fn learn(&mut self, ids: impl IntoIterator<Item = BlockId>) -> Result<(), Failure> {
        let mut unknown: Vec<_> = ids
            .into_iter()
            .filter(|id| !self.known.contains_key(id))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        for (id, attributes) in self.graph.attributes(&unknown)? {
            let label = label(&BlockRef::Id(id.0), &attributes);
            self.known.insert(id, label);
        }
        Ok(())
    }

    /// The labels of several blocks.
    pub(crate) fn all(&mut self, ids: &[BlockId]) -> Result<Vec<String>, Failure> {
        ids.iter().map(|id| self.get(*id)).collect()
    }

    /// The label of a block: its id, if it does not exist.
    pub(crate) fn get(&mut self, id: BlockId) -> Result<String, Failure> {
        self.learn([id])?;
        let own = || label(&BlockRef::Id(id.0), &Default::default());
        Ok(self.known.entry(id).or_insert_with(own).clone())
    }
}
