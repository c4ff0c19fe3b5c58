//! [`Fields`]: what a pipeline asks of its nodes, and what it has read of them.
//!
//! A node is read once, for all expressions of the pipeline. What was read is held while there is memory for it; a batch
//! shares what it needs, so that nothing that is let go is taken from it.

use std::rc::Rc;

use bowline_types::{BlockId, IdMap};

use super::batch::Nodes;
use crate::error::Result;
use crate::execute::access::deleted;
use crate::execute::context::Context;
use crate::graph::{FieldsAsked, NodeFields};
use crate::value::{Name, Value};

/// What the fields of a node take beside its values.
const FIELDS_BYTES: u64 = 96;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Fields {
    labels: Vec<Name>,
    properties: Vec<Name>,
    read: IdMap<Rc<NodeFields>>,
    held_bytes: u64,
    /// There is no memory for what was read last.
    is_full: bool,
}

impl Fields {
    /// Asks for a label: the place of its bit, if there is one left.
    pub fn label(&mut self, label: &Name) -> Option<usize> {
        let known = self.labels.iter().position(|it| it == label);
        known.or_else(|| {
            (self.labels.len() < FieldsAsked::LABELS_MAX).then(|| {
                self.labels.push(label.clone());
                self.labels.len() - 1
            })
        })
    }

    /// Asks for a property.
    pub fn property(&mut self, name: &Name) {
        if let Err(place) = self.properties.binary_search(name) {
            self.properties.insert(place, name.clone());
        }
    }

    /// Where the value of a property stands, once all have been asked for.
    pub fn place(&self, name: &Name) -> usize {
        self.properties
            .binary_search(name)
            .expect("it was asked for")
    }

    /// Reads the fields of nodes, each once.
    pub fn read(&mut self, nodes: &mut Nodes, cx: &mut Context<'_>) -> Result<()> {
        if nodes.fields.len() == nodes.ids.len() {
            return Ok(());
        }
        let held = cx.setting.held;
        if self.is_full || held.has_no_room() {
            self.let_go(cx);
        }
        let mut missing: Vec<BlockId> = Vec::new();
        let mut known: Vec<Option<Rc<NodeFields>>> = Vec::with_capacity(nodes.ids.len());
        for id in &nodes.ids {
            let fields = self.read.get(id).cloned();
            if fields.is_none() {
                missing.push(*id);
            }
            known.push(fields);
        }
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            self.read_missing(&missing, cx)?;
        }
        for (id, known) in nodes.ids.iter().zip(known) {
            let fields = match known {
                Some(fields) => fields,
                None => self.read.get(id).cloned().ok_or_else(|| deleted("node"))?,
            };
            nodes.fields.push(fields);
        }
        Ok(())
    }

    fn read_missing(&mut self, missing: &[BlockId], cx: &Context<'_>) -> Result<()> {
        let asked = FieldsAsked {
            labels: &self.labels,
            properties: &self.properties,
        };
        let mut found = Vec::with_capacity(missing.len());
        cx.graph().fields(missing, asked, &mut found)?;
        let mut bytes = 0;
        for (id, fields) in missing.iter().zip(found) {
            let fields = fields.ok_or_else(|| deleted("node"))?;
            bytes += FIELDS_BYTES + fields.values.iter().map(Value::footprint).sum::<u64>();
            self.read.insert(*id, Rc::new(fields));
        }
        match cx.setting.held.take_for_node(bytes) {
            true => self.held_bytes += bytes,
            false => self.is_full = true,
        }
        Ok(())
    }

    /// Lets go of all that was read.
    fn let_go(&mut self, cx: &Context<'_>) {
        self.read.clear();
        self.is_full = false;
        cx.setting
            .held
            .give_back_for_nodes(std::mem::take(&mut self.held_bytes));
    }
}
