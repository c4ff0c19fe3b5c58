//! A transaction as the graph of a query, for reading its own writes, and for writing.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use bowline_query::{
    Answer, Graph, GraphMut, Name, NodeIndex, NodeRecord, Parameters, Properties, Query,
    RelationshipId, Seek, StoreResult, Value,
};
use bowline_storage::engine::ScanDirection;

use super::own_entries::OwnEntries;

use crate::graph_view::Graph as SnapshotGraph;
use crate::graph_view::indexed::{behind, entry_block};
use crate::graph_view::queried::{self, edges_behind, relationship};
use crate::transaction::Transaction;
use bowline_core::error::{Error, show_key};
use bowline_core::graph::{self, KindFilter};
use bowline_core::index::KeyRange;
use bowline_core::trees;
use bowline_types::{AttributeValue, Attributes, Block, BlockId, BlockKinds, Direction, Edge};

/// What a query wants to write, and a block or an edge cannot hold: the source of
/// [`cypher::Error::Store`](bowline_query::Error::Store).
///
/// ```
/// use bowline::cypher::{Error, ModelError, Parameters};
/// # let db = bowline::Db::in_memory().unwrap();
/// let query = "CREATE (a:person)-[:knows]->(b:person), (a)-[:knows]->(b)";
/// let error = db.query(query, &Parameters::new()).unwrap_err();
/// let Error::Store(source) = error else { panic!("{error}") };
/// let cause = source.downcast_ref::<ModelError>();
/// assert!(matches!(cause, Some(ModelError::SecondEdge { .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A property that contains a node, a relationship or a path, or lists and maps nested too deep.
    #[error(
        "`{name}` cannot be an attribute: it is {type_name} that contains nodes or is nested deeper than {} levels",
        AttributeValue::DEPTH_MAX
    )]
    NotAnAttribute {
        /// The name of the property.
        name: String,
        /// The type of its value.
        type_name: &'static str,
    },
    /// A second relationship of a kind between the same two nodes.
    #[error(
        "between two blocks there is one edge of each kind, and {edge} exists; use MERGE, or another kind"
    )]
    SecondEdge {
        /// The edge that exists.
        edge: String,
    },
    /// A relationship whose end does not exist.
    #[error("the block {id} does not exist, so no edge can touch it")]
    NoSuchBlock {
        /// The end.
        id: BlockId,
    },
}

/// Runs a query. If it fails, the transaction's writes are those of before.
pub(super) fn run(
    tx: &mut Transaction,
    query: &Query<'_>,
    parameters: &Parameters,
) -> bowline_query::Result<Answer> {
    let together = tx.draft_mut().begin_together();
    let mut graph = TransactionGraph {
        counts: tx.snapshot().graph(),
        tx: RefCell::new(tx),
        own: RefCell::default(),
    };
    let answer = query.run_mut(&mut graph, parameters);
    tx.draft_mut().end_together(together, answer.is_ok());
    answer
}

/// A transaction whose reads are asked for through a shared borrow.
struct TransactionGraph<'t> {
    tx: RefCell<&'t mut Transaction>,
    /// The graph without the own writes, for the counts that plans rest on.
    counts: SnapshotGraph,
    /// What its writes change in indexes.
    own: RefCell<OwnEntries>,
}

/// The kinds of a block with these labels.
pub(super) fn kinds_of(labels: &[Name]) -> BlockKinds {
    labels.iter().map(|label| &**label).collect()
}

pub(super) fn attributes_of(properties: &Properties) -> Result<Attributes, ModelError> {
    let attribute = |(name, value): (&Name, &Value)| match value.to_attribute() {
        Some(attribute) if attribute.depth() <= AttributeValue::DEPTH_MAX => {
            Ok((name.to_string(), attribute))
        }
        _ => Err(ModelError::NotAnAttribute {
            name: name.to_string(),
            type_name: value.type_name(),
        }),
    };
    properties.iter().map(attribute).collect()
}

/// The attributes of what is written again. What a value does not hold exactly, as the name of a zone that this program does not
/// know, and what Cypher does not show stays as it was stored.
pub(super) fn attributes_over(
    properties: &Properties,
    stored: Attributes,
) -> Result<Attributes, ModelError> {
    let mut attributes = attributes_of(properties)?;
    for (name, stored) in stored {
        let stays = match attributes.get(&name) {
            None => matches!(stored, AttributeValue::Null),
            Some(new) if *new == stored => false,
            Some(new) => Value::from(stored.clone()).to_attribute().as_ref() == Some(new),
        };
        if stays {
            attributes.insert(name, stored);
        }
    }
    Ok(attributes)
}

impl TransactionGraph<'_> {
    /// The blocks of ranges of an index behind a place: of the snapshot's entries those that no write hides, and the
    /// transaction's own, in the order of keys. What was read is noted.
    fn own_page(
        &self,
        ranges: &[KeyRange],
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        let mut tx = self.tx.borrow_mut();
        let mut own = self.own.borrow_mut();
        own.update(tx.draft(), self.counts.indexes());
        let at = tx.snapshot_revision().get();
        let mut found = 0;
        for range in ranges {
            let Some(lower) = behind(place.as_ref(), &range.0, &range.1) else {
                continue;
            };
            let mut read = (
                trees::INDEX,
                lower.clone(),
                Bound::Excluded(range.1.clone()),
            );
            let mut mine = own.range(lower.clone(), range).peekable();
            let (from, to) = (lower, read.2.clone());
            let engine = &tx.shared().engine;
            let mut scan = engine.scan(trees::INDEX, from, to, at, ScanDirection::Forward);
            let mut is_there = scan.advance().map_err(Error::from)?;
            while found < count {
                while is_there && own.hides(scan.key()) {
                    is_there = scan.advance().map_err(Error::from)?;
                }
                let is_mine = match (mine.peek(), is_there) {
                    (None, false) => break,
                    (Some(key), true) => key.as_slice() < scan.key(),
                    (key, _) => key.is_some(),
                };
                let key = match mine.next_if(|_| is_mine) {
                    Some(key) => key.clone(),
                    None => {
                        let key = scan.key().to_vec();
                        is_there = scan.advance().map_err(Error::from)?;
                        key
                    }
                };
                page.push(entry_block(&key)?);
                found += 1;
                if found == count {
                    read.2 = Bound::Included(key.clone());
                    *place = Some(key);
                }
            }
            drop(scan);
            tx.draft_mut().ranges.push(read);
            if found == count {
                break;
            }
        }
        Ok(())
    }
}

impl Graph for TransactionGraph<'_> {
    fn counted_at(&self) -> Option<u64> {
        self.counts.counted_at()
    }

    fn plan_epoch(&self) -> u64 {
        self.counts.plan_epoch()
    }

    fn indexes(&self, label: &str) -> StoreResult<Vec<NodeIndex>> {
        Graph::indexes(&self.counts, label)
    }

    fn seek(
        &self,
        seek: &Seek<'_>,
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        let Some((index, ranges)) = self.counts.sought(seek) else {
            return Ok(false);
        };
        // Once it is dropped, no commit says any more that it changes what was read.
        if self.own.borrow_mut().begins_to_read(index.id) {
            let key = (trees::INDEX, index.key().to_vec());
            self.tx.borrow_mut().draft_mut().keys.push(key);
        }
        self.own_page(&ranges, place, count, page)?;
        Ok(true)
    }

    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        let mut tx = self.tx.borrow_mut();
        let wanted = label.map(|label| tx.shared().kinds.id(label));
        let lower = after.map_or(Bound::Unbounded, |id| {
            Bound::Excluded(graph::block_key(id).to_vec())
        });
        let invalid = |key: &[u8], reason| Error::InvalidRecord {
            what: "block",
            key: show_key(key),
            reason,
        };
        // A kind that nobody has used passes no block; that none has it is read all the same.
        let passes = |key: &[u8], head: &[u8]| match wanted {
            None => Ok(true),
            Some(None) => Ok(false),
            Some(Some(wanted)) => {
                let graph = &self.counts;
                graph.with_kinds(key, head, |kinds| kinds.contains(wanted))
            }
        };
        let place = (trees::BLOCK, lower, Bound::Unbounded);
        for key in tx.drafting().page(place, count, passes)? {
            let id = key[..].try_into().map(BlockId::from_bytes);
            page.push(id.map_err(|_| invalid(&key, "its key is not 16 bytes"))?);
        }
        Ok(())
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        Ok(self.tx.borrow_mut().visit_block(id, |block| {
            Arc::new(queried::node_record(block.kinds, block.attributes))
        })?)
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
        let mut tx = self.tx.borrow_mut();
        let filter = queried::filter(&tx.shared().kinds, kinds);
        let behind = after.and_then(|edge| Some((edge, tx.shared().kinds.id(&edge.kind)?)));
        let (tree, lower, upper) = edges_behind(node, direction, behind);
        let passes = |key: &[u8], _: &[u8]| match graph::split_edge_key(key) {
            Some((_, kind, _)) => Ok(filter.passes(kind)),
            None => Err(Error::InvalidRecord {
                what: "edge",
                key: show_key(key),
                reason: "its key is not 36 bytes",
            }),
        };
        // Also where no kind passes: another transaction may put an edge of a kind that nobody has used.
        debug_assert!(kinds.is_empty() == (filter == KindFilter::All));
        let keys = tx.drafting().page((tree, lower, upper), count, passes)?;
        let names = tx.shared().kinds.names();
        for (_, kind, far) in keys.iter().filter_map(|key| graph::split_edge_key(key)) {
            let name = names.name(kind);
            let name = name.ok_or_else(|| crate::graph_view::unregistered(kind))?;
            page.push(relationship(node, direction, name.clone(), far));
        }
        Ok(())
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        let mut tx = self.tx.borrow_mut();
        let found = tx.visit_edge(id.source, &id.kind, id.target, |edge| {
            Arc::new(queried::properties(edge.attributes))
        })?;
        Ok(found)
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        self.counts.node_count(label)
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        self.counts.relationship_count(kind)
    }
}

impl GraphMut for TransactionGraph<'_> {
    fn create_node(&mut self, record: NodeRecord) -> StoreResult<BlockId> {
        let tx = self.tx.get_mut();
        let attributes = attributes_of(&record.properties)?;
        let mut id = BlockId(fastrand::u128(..));
        while tx.block(id)?.is_some() {
            id = BlockId(fastrand::u128(..));
        }
        let block = Block::new(id, kinds_of(&record.labels));
        tx.put_block(&Block {
            attributes,
            ..block
        })?;
        Ok(id)
    }

    fn create_relationship(
        &mut self,
        source: BlockId,
        kind: Name,
        target: BlockId,
        properties: Properties,
    ) -> StoreResult<Arc<RelationshipId>> {
        let tx = self.tx.get_mut();
        let edge = Edge {
            attributes: attributes_of(&properties)?,
            ..Edge::new(source, &*kind, target)
        };
        if tx.edge(source, &kind, target)?.is_some() {
            let edge = edge.key().to_string();
            return Err(ModelError::SecondEdge { edge }.into());
        }
        tx.put_edge(&edge).map_err(|error| match error {
            Error::MissingBlock { id } => ModelError::NoSuchBlock { id }.into(),
            error => bowline_query::StoreError::from(error),
        })?;
        Ok(relationship(source, Direction::Out, kind, target))
    }

    fn set_node(&mut self, id: BlockId, record: NodeRecord) -> StoreResult<()> {
        let tx = self.tx.get_mut();
        // What Cypher does not show stays.
        let held = tx.block(id)?.map(|block| (block.content, block.attributes));
        let (content, stored) = held.unwrap_or_default();
        Ok(tx.put_block(&Block {
            id,
            kinds: kinds_of(&record.labels),
            content,
            attributes: attributes_over(&record.properties, stored)?,
        })?)
    }

    fn set_relationship(&mut self, id: &RelationshipId, properties: Properties) -> StoreResult<()> {
        let tx = self.tx.get_mut();
        let stored = tx.edge(id.source, &id.kind, id.target)?;
        let stored = stored.map(|edge| edge.attributes).unwrap_or_default();
        let edge = Edge {
            attributes: attributes_over(&properties, stored)?,
            ..Edge::new(id.source, &*id.kind, id.target)
        };
        Ok(tx.put_edge(&edge)?)
    }

    fn delete_node(&mut self, id: BlockId) -> StoreResult<()> {
        self.tx.get_mut().delete_block(id)?;
        Ok(())
    }

    fn delete_relationship(&mut self, id: &RelationshipId) -> StoreResult<()> {
        let tx = self.tx.get_mut();
        tx.delete_edge(id.source, &id.kind, id.target)?;
        Ok(())
    }
}
