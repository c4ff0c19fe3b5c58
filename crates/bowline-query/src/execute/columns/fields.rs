//! [`Fields`]: what a pipeline asks of its nodes, and what it has read of them.
//!
//! Where the graph does not hold what it has read, a node is read once for the whole pipeline, while there is memory for it.

use bowline_types::{BlockId, IdMap};

use super::batch::Nodes;
use crate::error::Result;
use crate::execute::access::deleted;
use crate::execute::context::Context;
use crate::graph::{FieldColumns, FieldsAsked};
use crate::value::{Name, Value};

/// What the fields of a node take beside its values.
const FIELDS_BYTES: u64 = 96;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Fields {
    labels: Vec<Name>,
    properties: Vec<Name>,
    /// Where the fields of a node are in `read`.
    places: IdMap<u32>,
    read: FieldColumns,
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

    /// Reads the fields of nodes.
    pub fn read(&mut self, nodes: &mut Nodes, cx: &mut Context<'_>) -> Result<()> {
        if nodes.fields.len() == nodes.ids.len() {
            return Ok(());
        }
        let asked = FieldsAsked {
            labels: &self.labels,
            properties: &self.properties,
        };
        if cx.graph().holds_fields() {
            return match cx.graph().fields(&nodes.ids, asked, &mut nodes.fields)? {
                true => Ok(()),
                false => Err(deleted("node")),
            };
        }
        if self.is_full || cx.setting.held.has_no_room() {
            self.let_go(cx);
        }
        let mut missing: Vec<BlockId> = Vec::new();
        let mut next = self.read.len() as u32;
        let place = |id: &BlockId| {
            let place = *self.places.entry(*id).or_insert(next);
            if place == next {
                missing.push(*id);
                next += 1;
            }
            place
        };
        let places: Vec<u32> = nodes.ids.iter().map(place).collect();
        if !missing.is_empty() {
            self.read_missing(&missing, cx)?;
        }
        nodes.fields = self.read.at(&places);
        Ok(())
    }

    fn read_missing(&mut self, missing: &[BlockId], cx: &Context<'_>) -> Result<()> {
        let asked = FieldsAsked {
            labels: &self.labels,
            properties: &self.properties,
        };
        let begin = self.read.len();
        if !cx.graph().fields(missing, asked, &mut self.read)? {
            return Err(deleted("node"));
        }
        let new = self.read.values.iter().flat_map(|values| &values[begin..]);
        let bytes = missing.len() as u64 * FIELDS_BYTES + new.map(Value::footprint).sum::<u64>();
        match cx.setting.held.take_for_node(bytes) {
            true => self.held_bytes += bytes,
            false => self.is_full = true,
        }
        Ok(())
    }

    /// Lets go of all that was read.
    fn let_go(&mut self, cx: &Context<'_>) {
        self.places.clear();
        self.read = FieldColumns::default();
        self.is_full = false;
        cx.setting
            .held
            .give_back_for_nodes(std::mem::take(&mut self.held_bytes));
    }
}
