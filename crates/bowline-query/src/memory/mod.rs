//! A graph in ordered maps: the smallest implementation of [`Graph`], for tests and examples.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bowline_types::{BlockId, Direction};

use crate::graph::{Graph, GraphMut, StoreResult};
use crate::value::{Name, NodeRecord, Properties, RelationshipId};

/// A graph in memory.
///
/// ```
/// use bowline_query::{MemoryGraph, Parameters, Query};
///
/// let mut graph = MemoryGraph::new();
/// Query::new("CREATE (:Person {name: 'Ada'})").run_mut(&mut graph, &Parameters::new()).unwrap();
/// let answer = Query::new("MATCH (p:Person) RETURN p.name").run(&graph, &Parameters::new()).unwrap();
/// assert_eq!(answer.rows[0][0].to_string(), "'Ada'");
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryGraph {
    nodes: BTreeMap<BlockId, Arc<NodeRecord>>,
    relationships: BTreeMap<Arc<RelationshipId>, Arc<Properties>>,
    incoming: BTreeMap<BlockId, BTreeSet<Arc<RelationshipId>>>,
    next_id: u128,
    next_discriminator: u64,
}

impl MemoryGraph {
    /// A graph without nodes.
    pub fn new() -> MemoryGraph {
        MemoryGraph::default()
    }

    /// All nodes.
    pub fn all_nodes(&self) -> impl Iterator<Item = (BlockId, &NodeRecord)> {
        self.nodes.iter().map(|(id, record)| (*id, &**record))
    }

    /// All relationships.
    pub fn all_relationships(&self) -> impl Iterator<Item = (&RelationshipId, &Properties)> {
        self.relationships
            .iter()
            .map(|(id, properties)| (&**id, &**properties))
    }

    fn outgoing(&self, node: BlockId) -> impl Iterator<Item = &Arc<RelationshipId>> {
        let first = RelationshipId {
            source: node,
            kind: "".into(),
            target: BlockId(0),
            discriminator: 0,
        };
        self.relationships
            .range(first..)
            .map(|(id, _)| id)
            .take_while(move |id| id.source == node)
    }
}

impl Graph for MemoryGraph {
    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        page.extend(
            self.nodes
                .range((start, Bound::Unbounded))
                .filter(|(_, record)| label.is_none_or(|label| record.has_label(label)))
                .map(|(id, _)| *id)
                .take(count),
        );
        Ok(())
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        Ok(self.nodes.get(&id).cloned())
    }

    fn relationships(
        &self,
        node: BlockId,
        direction: Direction,
        kinds: &[Name],
        after: Option<&RelationshipId>,
        count: usize,
        page: &mut Vec<Arc<RelationshipId>>,
    ) -> StoreResult<()> {
        let all: Box<dyn Iterator<Item = &Arc<RelationshipId>>> = match direction {
            Direction::In => Box::new(self.incoming.get(&node).into_iter().flatten()),
            Direction::Out | Direction::Both => Box::new(self.outgoing(node)),
        };
        page.extend(
            all.filter(|id| after.is_none_or(|after| ***id > *after))
                .filter(|id| kinds.is_empty() || kinds.contains(&id.kind))
                .take(count)
                .cloned(),
        );
        Ok(())
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        Ok(self.relationships.get(id).cloned())
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        let count = match label {
            None => self.nodes.len(),
            Some(label) => self
                .nodes
                .values()
                .filter(|record| record.has_label(label))
                .count(),
        };
        Ok(count as u64)
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        let of_kind = |id: &&Arc<RelationshipId>| kind.is_none_or(|kind| &*id.kind == kind);
        Ok(self.relationships.keys().filter(of_kind).count() as u64)
    }
}

impl GraphMut for MemoryGraph {
    fn create_node(&mut self, record: NodeRecord) -> StoreResult<BlockId> {
        self.next_id += 1;
        let id = BlockId(self.next_id);
        self.nodes.insert(id, Arc::new(record));
        Ok(id)
    }

    fn create_relationship(
        &mut self,
        source: BlockId,
        kind: Name,
        target: BlockId,
        properties: Properties,
    ) -> StoreResult<Arc<RelationshipId>> {
        if !self.nodes.contains_key(&source) || !self.nodes.contains_key(&target) {
            return Err("a relationship needs two nodes that exist".into());
        }
        self.next_discriminator += 1;
        let discriminator = self.next_discriminator;
        let id = Arc::new(RelationshipId {
            source,
            kind,
            target,
            discriminator,
        });
        self.relationships.insert(id.clone(), Arc::new(properties));
        self.incoming.entry(target).or_default().insert(id.clone());
        Ok(id)
    }

    fn set_node(&mut self, id: BlockId, record: NodeRecord) -> StoreResult<()> {
        self.nodes.insert(id, Arc::new(record));
        Ok(())
    }

    fn set_relationship(&mut self, id: &RelationshipId, properties: Properties) -> StoreResult<()> {
        self.relationships
            .insert(Arc::new(id.clone()), Arc::new(properties));
        Ok(())
    }

    fn delete_node(&mut self, id: BlockId) -> StoreResult<()> {
        if self.outgoing(id).next().is_some()
            || self.incoming.get(&id).is_some_and(|i| !i.is_empty())
        {
            return Err("a node with relationships cannot be deleted".into());
        }
        self.nodes.remove(&id);
        self.incoming.remove(&id);
        Ok(())
    }

    fn delete_relationship(&mut self, id: &RelationshipId) -> StoreResult<()> {
        self.relationships.remove(id);
        if let Some(incoming) = self.incoming.get_mut(&id.target) {
            incoming.remove(id);
        }
        Ok(())
    }
}
