//! The graph that queries run on, as two traits that a store implements.
//!
//! A node has an id of 128 bits, any number of labels, and properties. A relationship has a kind, two ends, properties,
//! and a discriminator. Nothing here assumes that the graph fits in memory: long answers come in pages, each of which
//! starts after the last element of the page before. Pages need no borrowed iterator, so a query may write between two
//! of them.
//!
//! Invariants that an implementation keeps:
//! - Pages of nodes are in ascending order of ids, pages of relationships in any order that stays the same.
//! - A relationship's ends exist.
//! - A read sees all writes that were made before it through the same object.

mod fields;
mod seek;

use std::sync::Arc;

use bowline_types::{BlockId, Direction};

use crate::error::StoreError;
use crate::value::{Name, NodeRecord, Properties, RelationshipId};

pub use fields::{FieldColumns, FieldsAsked};
pub use seek::{NodeIndex, Seek, SeekLast};

/// What a store answers.
pub type StoreResult<T> = Result<T, StoreError>;

/// Reads of a graph at one state.
///
/// ```
/// use bowline_query::{Graph, GraphMut, MemoryGraph, NodeRecord};
///
/// let mut graph = MemoryGraph::new();
/// graph.create_node(NodeRecord::default()).unwrap();
/// assert_eq!(graph.node_count(None).unwrap(), 1);
/// ```
pub trait Graph {
    /// The revision of the state, if the store counts them.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// The revision that counts are of, if the store counts revisions.
    fn counted_at(&self) -> Option<u64> {
        self.revision()
    }

    /// A number that changes when plans that were made before must not be used any more.
    fn plan_epoch(&self) -> u64 {
        0
    }

    /// The store behind it, for procedures that know the store. `None` if it cannot be handed out, as where the query
    /// has written to it.
    fn store(&self) -> Option<&dyn std::any::Any> {
        None
    }

    /// Appends to `page` up to `count` nodes with the label, or of all nodes, whose ids are greater than `after`.
    /// Fewer than `count` means that there are no more.
    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()>;

    /// The indexes of nodes with the label that can be asked. Plans rest on them; answers do not.
    fn indexes(&self, _label: &str) -> StoreResult<Vec<NodeIndex>> {
        Ok(Vec::new())
    }

    /// Appends to `page` up to `count` nodes with the label for which the index has what is asked for, each once, behind
    /// `place`, and sets `place` behind them. There may be others among them. Fewer than `count` means that there are no
    /// more. `false`: no index can tell, and nothing is appended; it is so at the first page or at none.
    fn seek(
        &self,
        _seek: &Seek<'_>,
        _place: &mut Option<Vec<u8>>,
        _count: usize,
        _page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        Ok(false)
    }

    /// The node's labels and properties, if it exists.
    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>>;

    /// Appends to `page` up to `count` relationships that leave the node (`Out`) or reach it (`In`), after the given
    /// one; of these kinds, or of all if there are none. [`Direction::Both`] is never asked for.
    fn relationships(
        &self,
        node: BlockId,
        direction: Direction,
        kinds: &[Name],
        after: Option<&RelationshipId>,
        count: usize,
        page: &mut Vec<Arc<RelationshipId>>,
    ) -> StoreResult<()>;

    /// Whether there may be several relationships of a kind from one node to another.
    fn has_parallel_relationships(&self) -> bool {
        true
    }

    /// Calls `visit` for each relationship that [`Graph::relationships`] gives of the nodes, one node after the other, with the place of
    /// the node in `nodes` and the node at the other end, for as long as it returns `true`.
    fn ends(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        visit: &mut dyn FnMut(usize, BlockId) -> bool,
    ) -> StoreResult<()> {
        const PAGE: usize = 256;
        let mut page: Vec<Arc<RelationshipId>> = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            let mut last = None;
            loop {
                page.clear();
                self.relationships(*node, direction, kinds, last.as_deref(), PAGE, &mut page)?;
                if !page.iter().all(|id| visit(place, id.other(*node))) {
                    return Ok(());
                }
                if page.len() < PAGE {
                    break;
                }
                last = page.last().cloned();
            }
        }
        Ok(())
    }

    /// Appends for each of the nodes how many relationships [`Graph::ends`] visits.
    fn degrees(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        degrees: &mut Vec<u64>,
    ) -> StoreResult<()> {
        let begin = degrees.len();
        degrees.resize(begin + nodes.len(), 0);
        self.ends(nodes, direction, kinds, &mut |place, _| {
            degrees[begin + place] += 1;
            true
        })
    }

    /// Appends to `found` what each of the nodes has of what is asked. `false`: one of them does not exist.
    fn fields(
        &self,
        nodes: &[BlockId],
        asked: FieldsAsked<'_>,
        found: &mut FieldColumns,
    ) -> StoreResult<bool> {
        let begin = found.len();
        found.extend(asked, nodes.len());
        for (place, id) in (begin..).zip(nodes) {
            match self.node(*id)? {
                Some(record) => found.set(asked, place, &record),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether fields that were read are held, so that it costs little to read them again.
    fn holds_fields(&self) -> bool {
        false
    }

    /// The relationship's properties, if it exists.
    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>>;

    /// About how many nodes have the label, or there are at all. Plans rest on it; answers do not.
    fn node_count(&self, label: Option<&str>) -> StoreResult<u64>;

    /// About how many relationships have the kind, or there are at all.
    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64>;
}

/// Writes to a graph, as within a transaction.
pub trait GraphMut: Graph {
    /// Creates a node with a new id.
    fn create_node(&mut self, record: NodeRecord) -> StoreResult<BlockId>;

    /// Creates a relationship with a new discriminator.
    fn create_relationship(
        &mut self,
        source: BlockId,
        kind: Name,
        target: BlockId,
        properties: Properties,
    ) -> StoreResult<Arc<RelationshipId>>;

    /// Replaces the labels and properties of a node that exists.
    fn set_node(&mut self, id: BlockId, record: NodeRecord) -> StoreResult<()>;

    /// Replaces the properties of a relationship that exists.
    fn set_relationship(&mut self, id: &RelationshipId, properties: Properties) -> StoreResult<()>;

    /// Deletes a node. No relationship touches it: the caller has deleted them, or refused.
    fn delete_node(&mut self, id: BlockId) -> StoreResult<()>;

    /// Deletes a relationship.
    fn delete_relationship(&mut self, id: &RelationshipId) -> StoreResult<()>;
}
