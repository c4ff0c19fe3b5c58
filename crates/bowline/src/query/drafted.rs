//! A query that writes, run on a graph whose commits are another's: what it has read and what it would write are handed
//! to the caller, who commits them elsewhere. A member of a cluster runs queries so.
//!
//! ```text
//!   Graph (one revision) ──▶ DraftGraph ──▶ rows
//!     read only                │  own writes hide what they replace
//!                              ▼
//!                           Drafted { reads, writes }
//! ```
//!
//! Kinds are names throughout: one that nobody has used gets its number at the commit, from whoever makes that.
//!
//! Invariants:
//!
//! - Whatever could change an answer of the query is in the reads: each block by itself or in a span, ranges of entries of an
//!   index, each edge by itself or with all edges of a block in one direction.
//! - Pages are those of the graph as it is with the own writes, in one order: of nodes by id, of relationships first those
//!   of the graph and then the new ones.
//! - The writes are final: one for each block and edge at most, and none for what was created and deleted again.
//! - A query ends when it would write more than it may, before it holds that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bowline_query::{
    Error as QueryError, GraphMut, Name, NodeRecord, Parameters, Prepared, Properties, Query,
    RelationshipId, Seek, StoreResult, Summary, Value,
};

use super::transaction::{ModelError, attributes_of, attributes_over, kinds_of};
use crate::graph_view::Graph;
use bowline_core::error::Error;
use bowline_core::index::KeyRange;
use bowline_types::{Attributes, Block, BlockId, Direction, Edge, EdgeKey, GraphWrite};

/// What a query has read, and what it would write: see [`Graph::draft_query`].
///
/// ```
/// use bowline::cypher::{Drafted, Parameters};
/// # let db = bowline::Db::in_memory()?;
/// let snapshot = db.snapshot();
/// let query = snapshot.build_query("CREATE (:service {name: 'api'})");
/// let graph = snapshot.graph();
/// let prepared = query.plan(&graph)?;
/// let parameters = Parameters::new();
/// let (_, drafted): (_, Drafted) = graph.draft_query(&query, &prepared, &parameters, 1 << 20, &mut |_| Ok(()))?;
/// assert_eq!(drafted.writes.len(), 1);
/// assert!(db.query("MATCH (n) RETURN n", &Parameters::new())?.rows.is_empty(), "nothing was written");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drafted {
    /// What must be unchanged since the revision of the graph.
    pub reads: Vec<DraftRead>,
    /// The writes, in an order in which they can be executed.
    pub writes: Vec<GraphWrite>,
}

/// A read of a query, of what exists and of what does not.
///
/// ```
/// use bowline::cypher::{DraftRead, Parameters};
/// # let db = bowline::Db::in_memory()?;
/// let snapshot = db.snapshot();
/// let (query, graph) = (snapshot.build_query("MATCH (n) DELETE n"), snapshot.graph());
/// let (prepared, none) = (query.plan(&graph)?, Parameters::new());
/// let (_, drafted) = graph.draft_query(&query, &prepared, &none, 1 << 20, &mut |_| Ok(()))?;
/// assert!(matches!(drafted.reads[..], [DraftRead::Blocks { .. }]), "no block was there, and none may have come");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DraftRead {
    /// The blocks from one id to another, both included.
    Blocks {
        /// The first.
        first: BlockId,
        /// The last.
        last: BlockId,
    },
    /// The entries of an index from one key to another.
    Entries {
        /// The number of the index.
        index: u32,
        /// The first key.
        first: Vec<u8>,
        /// The first key behind them.
        end: Vec<u8>,
    },
    /// An edge.
    Edge(EdgeKey),
    /// All edges that leave a block.
    EdgesOut(BlockId),
    /// All edges that arrive at a block.
    EdgesIn(BlockId),
}

impl Graph {
    /// Runs a planned query that may write, without writing: gives what is to be committed. The query sees its own writes.
    /// It may write about so many bytes, with what it has read.
    ///
    /// ```
    /// # use bowline::cypher::Parameters;
    /// # let db = bowline::Db::in_memory()?;
    /// let snapshot = db.snapshot();
    /// let (query, graph) = (snapshot.build_query("CREATE (n:a) RETURN labels(n)"), snapshot.graph());
    /// let (prepared, none) = (query.plan(&graph)?, Parameters::new());
    /// let mut rows = Vec::new();
    /// let (summary, _) = graph.draft_query(&query, &prepared, &none, 1 << 20, &mut |row| {
    ///     rows.push(row);
    ///     Ok(())
    /// })?;
    /// assert_eq!((rows.len(), summary.effects.nodes_created), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::query`](crate::Transaction::query), with `TransactionTooLarge` beyond the given bytes.
    pub fn draft_query(
        &self,
        query: &Query<'_>,
        prepared: &Prepared,
        parameters: &Parameters,
        bytes_max: u64,
        row: &mut dyn FnMut(Vec<Value>) -> Result<(), QueryError>,
    ) -> Result<(Summary, Drafted), QueryError> {
        let mut graph = DraftGraph::new(self, bytes_max);
        let summary = query.for_each_mut(prepared, &mut graph, parameters, row)?;
        Ok((summary, graph.finish()))
    }
}

/// A block that was written; `None`: deleted.
struct OwnBlock {
    block: Option<Block>,
    record: Option<Arc<NodeRecord>>,
    is_new: bool,
    /// What its write takes, if there is one.
    bytes: u64,
}

/// An edge that was written; `None`: deleted.
struct OwnEdge {
    properties: Option<Arc<Properties>>,
    /// The properties, as they are to be stored.
    attributes: Attributes,
    is_new: bool,
    /// What its write takes, if there is one.
    bytes: u64,
}

/// What a write takes beside its texts.
const WRITE_BYTES: u64 = 48;
/// What a read takes at least.
const READ_BYTES: u64 = 16;

fn attributes_bytes(attributes: &Attributes) -> u64 {
    let pairs = attributes.iter();
    let pairs = pairs.map(|(name, value)| name.len() + value.size_bytes() + 16);
    pairs.sum::<usize>() as u64
}

/// What the write of a block takes.
fn block_bytes(block: &Block) -> u64 {
    let kinds: usize = block.kinds.iter().map(|kind| kind.len() + 4).sum();
    let texts = (kinds + block.content.len()) as u64;
    WRITE_BYTES + texts + attributes_bytes(&block.attributes)
}

/// What the write of an edge takes.
fn edge_bytes(id: &RelationshipId, attributes: &Attributes) -> u64 {
    WRITE_BYTES + id.kind.len() as u64 + attributes_bytes(attributes)
}

/// What a deletion takes: that of a new block or edge leaves nothing to write.
fn deletion_bytes(is_new: bool) -> u64 {
    match is_new {
        true => 0,
        false => WRITE_BYTES,
    }
}

#[derive(Default)]
struct Reads {
    /// The spans of blocks, by their firsts; no two touch.
    blocks: BTreeMap<u128, u128>,
    /// The ranges of entries, by the numbers of their indexes.
    entries: BTreeSet<(u32, KeyRange)>,
    edges: BTreeSet<RelationshipId>,
    out: BTreeSet<BlockId>,
    into: BTreeSet<BlockId>,
}

impl Reads {
    /// Adds a span of blocks.
    fn add(&mut self, first: u128, last: u128) {
        let (mut first, mut last) = (first, last);
        let before = self.blocks.range(..=first).next_back();
        if let Some((&start, &end)) = before
            && end >= first.saturating_sub(1)
        {
            if end >= last {
                return;
            }
            first = start;
        }
        // Those that begin within the span, or just behind it.
        while let Some((&start, &end)) = self.blocks.range(first..=last.saturating_add(1)).next() {
            self.blocks.remove(&start);
            last = last.max(end);
        }
        self.blocks.insert(first, last);
    }

    /// At least so many bytes.
    fn bytes(&self) -> u64 {
        let blocks = self.blocks.len() + self.out.len() + self.into.len();
        (blocks + self.entries.len() + self.edges.len()) as u64 * READ_BYTES
    }
}

struct DraftGraph<'g> {
    base: &'g Graph,
    reads: RefCell<Reads>,
    blocks: BTreeMap<BlockId, OwnBlock>,
    edges: BTreeMap<RelationshipId, OwnEdge>,
    /// The edges that were created, by their targets.
    arriving: BTreeMap<BlockId, BTreeSet<RelationshipId>>,
    /// Of the writes.
    bytes: u64,
    /// The most of the writes, with the reads.
    bytes_max: u64,
}

impl<'g> DraftGraph<'g> {
    fn new(base: &'g Graph, bytes_max: u64) -> DraftGraph<'g> {
        DraftGraph {
            base,
            reads: RefCell::default(),
            blocks: BTreeMap::new(),
            edges: BTreeMap::new(),
            arriving: BTreeMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Refuses what is too large to be committed before it becomes larger. Without writes there is nothing to commit.
    fn check_size(&self) -> StoreResult<()> {
        let size = self.bytes + self.reads.borrow().bytes();
        match self.bytes > 0 && size > self.bytes_max {
            true => {
                let limit = self.bytes_max;
                Err(Error::TransactionTooLarge { size, limit }.into())
            }
            false => Ok(()),
        }
    }

    fn own_block(&mut self, id: BlockId, own: OwnBlock) -> StoreResult<()> {
        self.bytes += own.bytes;
        if let Some(replaced) = self.blocks.insert(id, own) {
            self.bytes -= replaced.bytes;
        }
        self.check_size()
    }

    fn own_edge(&mut self, id: RelationshipId, own: OwnEdge) -> StoreResult<()> {
        self.bytes += own.bytes;
        if let Some(replaced) = self.edges.insert(id, own) {
            self.bytes -= replaced.bytes;
        }
        self.check_size()
    }

    fn finish(self) -> Drafted {
        let reads = self.reads.into_inner();
        let spans = reads.blocks.into_iter().map(|(first, last)| {
            let (first, last) = (BlockId(first), BlockId(last));
            DraftRead::Blocks { first, last }
        });
        let key = |id: &RelationshipId| EdgeKey::new(id.source, &*id.kind, id.target);
        let entries = reads.entries.into_iter();
        let entries = entries.map(|(index, (first, end))| DraftRead::Entries { index, first, end });
        let edges = reads.edges.iter().map(|id| DraftRead::Edge(key(id)));
        let out = reads.out.into_iter().map(DraftRead::EdgesOut);
        let into = reads.into.into_iter().map(DraftRead::EdgesIn);
        let reads = spans.chain(entries).chain(edges).chain(out).chain(into);
        let reads = reads.collect();
        let mut writes = Vec::new();
        for (id, own) in &self.edges {
            if own.properties.is_none() && !own.is_new {
                writes.push(GraphWrite::DeleteEdge(key(id)));
            }
        }
        for (id, own) in &self.blocks {
            if own.block.is_none() && !own.is_new {
                writes.push(GraphWrite::DeleteBlock(*id));
            }
        }
        let put = self.blocks.into_values().filter_map(|own| own.block);
        writes.extend(put.map(GraphWrite::PutBlock));
        for (id, own) in self.edges {
            if own.properties.is_some() {
                writes.push(GraphWrite::PutEdge(Edge {
                    attributes: own.attributes,
                    ..Edge::new(id.source, &*id.kind, id.target)
                }));
            }
        }
        Drafted { reads, writes }
    }

    /// The new edges of a block behind one, of these kinds.
    fn new_edges(
        &self,
        node: BlockId,
        direction: Direction,
        kinds: &[Name],
        after: Option<&RelationshipId>,
        page: &mut Vec<Arc<RelationshipId>>,
        most: usize,
    ) {
        let first = RelationshipId {
            source: node,
            kind: "".into(),
            target: BlockId(0),
            discriminator: 0,
        };
        let candidates: Box<dyn Iterator<Item = &RelationshipId>> = match direction {
            Direction::In => Box::new(self.arriving.get(&node).into_iter().flatten()),
            Direction::Out | Direction::Both => {
                let from = self.edges.range(first..).map(|(id, _)| id);
                Box::new(from.take_while(move |id| id.source == node))
            }
        };
        let is_there = |id: &&RelationshipId| {
            let own = self.edges.get(*id);
            own.is_some_and(|own| own.is_new && own.properties.is_some())
        };
        let found = candidates
            .filter(|id| after.is_none_or(|after| *id > after))
            .filter(|id| kinds.is_empty() || kinds.contains(&id.kind))
            .filter(is_there)
            .take(most - page.len());
        page.extend(found.cloned().map(Arc::new));
    }

    fn put_block(&mut self, block: Block, record: NodeRecord, is_new: bool) -> StoreResult<()> {
        let (id, bytes) = (block.id, block_bytes(&block));
        let is_new = self.blocks.get(&id).map_or(is_new, |own| own.is_new);
        let own = OwnBlock {
            block: Some(block),
            record: Some(Arc::new(record)),
            is_new,
            bytes,
        };
        self.own_block(id, own)
    }
}

/// The beginning of a place among the own blocks. No index has the number.
const OWN_PLACE: [u8; 4] = [0xff; 4];

/// Behind which own block a place is, if it is among them.
fn own_place(place: Option<&[u8]>) -> Option<Option<BlockId>> {
    let id = place?.strip_prefix(&OWN_PLACE)?.try_into().ok()?;
    Some(Some(BlockId::from_bytes(id)))
}

impl bowline_query::Graph for DraftGraph<'_> {
    fn revision(&self) -> Option<u64> {
        self.base.revision().get().into()
    }

    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        let first = match after {
            None => 0,
            Some(BlockId(u128::MAX)) => return Ok(()),
            Some(BlockId(id)) => id + 1,
        };
        let begin = page.len();
        let mut from = after;
        loop {
            let mut found = Vec::new();
            bowline_query::Graph::nodes(self.base, label, from, count, &mut found)?;
            let is_end = found.len() < count;
            // The part of the ids that this page of the graph decides on.
            let last = match (is_end, found.last()) {
                (false, Some(last)) => *last,
                _ => BlockId(u128::MAX),
            };
            found.retain(|id| !self.blocks.contains_key(id));
            let lower = from.map_or(Bound::Unbounded, Bound::Excluded);
            for (id, own) in self.blocks.range((lower, Bound::Included(last))) {
                let passes = |record: &Arc<NodeRecord>| label.is_none_or(|it| record.has_label(it));
                if own.record.as_ref().is_some_and(passes) {
                    found.push(*id);
                }
            }
            found.sort_unstable();
            page.extend(found);
            if page.len() - begin >= count || is_end {
                page.truncate(begin + count);
                let is_all = is_end && page.len() - begin < count;
                let read = match page.last() {
                    Some(last) if !is_all => last.0,
                    _ => u128::MAX,
                };
                self.reads.borrow_mut().add(first, read);
                return self.check_size();
            }
            from = Some(last);
        }
    }

    /// First what the graph has, without what was written; then all with the label that were written, as the reader compares.
    /// A place among those is behind every place in an index.
    fn seek(
        &self,
        seek: &Seek<'_>,
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        let Some((index, ranges)) = self.base.sought(seek) else {
            return Ok(false);
        };
        if place.is_none() {
            let ranges = ranges.iter().map(|range| (index.id, range.clone()));
            self.reads.borrow_mut().entries.extend(ranges);
        }
        let most = page.len() + count;
        let mut own_after = own_place(place.as_deref());
        while own_after.is_none() && page.len() < most {
            let mut found = Vec::new();
            let wanted = most - page.len();
            self.base.index_page(&ranges, place, wanted, &mut found)?;
            let is_end = found.len() < wanted;
            page.extend(found.iter().filter(|id| !self.blocks.contains_key(*id)));
            if is_end {
                own_after = Some(None);
            }
        }
        if let Some(after) = own_after {
            let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mine = self.blocks.range((lower, Bound::Unbounded));
            let passes = |own: &OwnBlock| {
                let record = own.record.as_ref();
                record.is_some_and(|record| record.has_label(seek.label))
            };
            let mine = mine.filter(|(_, own)| passes(own)).map(|(id, _)| *id);
            page.extend(mine.take(most - page.len()));
            let last = page.last().filter(|last| self.blocks.contains_key(*last));
            let last = last.copied().or(after).unwrap_or(BlockId(0));
            *place = Some([&OWN_PLACE[..], &last.to_bytes()].concat());
        }
        Ok(true)
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        if let Some(own) = self.blocks.get(&id) {
            return Ok(own.record.clone());
        }
        self.reads.borrow_mut().add(id.0, id.0);
        self.check_size()?;
        self.base.node(id)
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
        let mut reads = self.reads.borrow_mut();
        match direction {
            Direction::In => reads.into.insert(node),
            Direction::Out | Direction::Both => reads.out.insert(node),
        };
        drop(reads);
        self.check_size()?;
        let most = page.len() + count;
        let is_new = |id: &RelationshipId| self.edges.get(id).is_some_and(|own| own.is_new);
        let mut from = after.cloned().map(Arc::new);
        if from.as_deref().is_none_or(|id| !is_new(id)) {
            loop {
                let mut found = Vec::new();
                let (base, behind) = (self.base, from.as_deref());
                let wanted = most - page.len();
                bowline_query::Graph::relationships(
                    base, node, direction, kinds, behind, wanted, &mut found,
                )?;
                let is_end = found.len() < wanted;
                from = found.last().cloned();
                let stays = |id: &Arc<RelationshipId>| {
                    let own = self.edges.get(&**id);
                    own.is_none_or(|own| own.properties.is_some())
                };
                page.extend(found.into_iter().filter(stays));
                if is_end {
                    from = None;
                    break;
                }
                if page.len() >= most {
                    return Ok(());
                }
            }
        }
        self.new_edges(node, direction, kinds, from.as_deref(), page, most);
        Ok(())
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        if let Some(own) = self.edges.get(id) {
            return Ok(own.properties.clone());
        }
        self.reads.borrow_mut().edges.insert(id.clone());
        self.check_size()?;
        self.base.relationship(id)
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        self.base.node_count(label)
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        self.base.relationship_count(kind)
    }
}

impl GraphMut for DraftGraph<'_> {
    fn create_node(&mut self, record: NodeRecord) -> StoreResult<BlockId> {
        let attributes = attributes_of(&record.properties)?;
        let mut id = BlockId(fastrand::u128(..));
        while bowline_query::Graph::node(self, id)?.is_some() {
            id = BlockId(fastrand::u128(..));
        }
        let block = Block {
            attributes,
            ..Block::new(id, kinds_of(&record.labels))
        };
        self.put_block(block, record, true)?;
        Ok(id)
    }

    fn create_relationship(
        &mut self,
        source: BlockId,
        kind: Name,
        target: BlockId,
        properties: Properties,
    ) -> StoreResult<Arc<RelationshipId>> {
        let attributes = attributes_of(&properties)?;
        for id in [source, target] {
            if bowline_query::Graph::node(self, id)?.is_none() {
                return Err(ModelError::NoSuchBlock { id }.into());
            }
        }
        let id = RelationshipId {
            source,
            kind,
            target,
            discriminator: 0,
        };
        let known = self.edges.get(&id).map(|own| own.is_new);
        if bowline_query::Graph::relationship(self, &id)?.is_some() {
            let edge = EdgeKey::new(source, &*id.kind, target).to_string();
            return Err(ModelError::SecondEdge { edge }.into());
        }
        let own = OwnEdge {
            properties: Some(Arc::new(properties)),
            bytes: edge_bytes(&id, &attributes),
            attributes,
            is_new: known.unwrap_or(true),
        };
        self.own_edge(id.clone(), own)?;
        self.arriving.entry(target).or_default().insert(id.clone());
        Ok(Arc::new(id))
    }

    fn set_node(&mut self, id: BlockId, record: NodeRecord) -> StoreResult<()> {
        // What Cypher does not show stays.
        let held = match self.blocks.get_mut(&id) {
            Some(own) => own.block.take(),
            None => {
                self.reads.borrow_mut().add(id.0, id.0);
                self.base.block(id)?
            }
        };
        let held = held.map(|block| (block.content, block.attributes));
        let (content, stored) = held.unwrap_or_default();
        let block = Block {
            content,
            attributes: attributes_over(&record.properties, stored)?,
            ..Block::new(id, kinds_of(&record.labels))
        };
        self.put_block(block, record, false)
    }

    fn set_relationship(&mut self, id: &RelationshipId, properties: Properties) -> StoreResult<()> {
        let stored = match self.edges.get_mut(id) {
            Some(own) => std::mem::take(&mut own.attributes),
            None => {
                self.reads.borrow_mut().edges.insert(id.clone());
                let edge = self.base.edge(id.source, &id.kind, id.target)?;
                edge.map(|edge| edge.attributes).unwrap_or_default()
            }
        };
        let attributes = attributes_over(&properties, stored)?;
        let is_new = self.edges.get(id).is_some_and(|own| own.is_new);
        let own = OwnEdge {
            properties: Some(Arc::new(properties)),
            bytes: edge_bytes(id, &attributes),
            attributes,
            is_new,
        };
        self.own_edge(id.clone(), own)
    }

    fn delete_node(&mut self, id: BlockId) -> StoreResult<()> {
        let is_new = self.blocks.get(&id).is_some_and(|own| own.is_new);
        let own = OwnBlock {
            block: None,
            record: None,
            is_new,
            bytes: deletion_bytes(is_new),
        };
        self.own_block(id, own)
    }

    fn delete_relationship(&mut self, id: &RelationshipId) -> StoreResult<()> {
        let is_new = self.edges.get(id).is_some_and(|own| own.is_new);
        let own = OwnEdge {
            properties: None,
            attributes: Attributes::new(),
            is_new,
            bytes: deletion_bytes(is_new),
        };
        self.own_edge(id.clone(), own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a query would write was held until its end, and refused only then: gigabytes, where a text that was given once
    /// is written many times.
    #[test]
    fn what_is_to_be_written_is_bounded_while_it_comes() {
        let is_refusal = |error: &bowline_query::StoreError| {
            let limit = |error: &Error| match error {
                Error::TransactionTooLarge { limit, .. } => Some(*limit),
                _ => None,
            };
            error.downcast_ref::<Error>().and_then(limit) == Some(10_000)
        };
        let text = |letters: usize| {
            let text = Value::from("x".repeat(letters));
            Properties::from([("t".into(), text)])
        };
        let record = |letters| NodeRecord {
            labels: vec!["a".into()],
            properties: text(letters),
        };
        let db = crate::Db::in_memory().unwrap();
        let graph = db.snapshot().graph();
        let mut draft = DraftGraph::new(&graph, 10_000);
        let first = draft.create_node(record(1_000)).unwrap();
        // Of the writes of a block the last counts, and none of one that is deleted again.
        for _ in 0..100 {
            draft.set_node(first, record(1_000)).unwrap();
            let other = draft.create_node(record(1_000)).unwrap();
            draft.delete_node(other).unwrap();
        }
        let mut created = 1;
        let refused = loop {
            match draft.create_node(record(1_000)) {
                Ok(_) => created += 1,
                Err(error) => break error,
            }
        };
        assert!(is_refusal(&refused), "{refused}");
        assert!((6..10).contains(&created), "{created} blocks");

        let mut draft = DraftGraph::new(&graph, 10_000);
        let [a, b] = [(); 2].map(|()| draft.create_node(record(1)).unwrap());
        let edge = draft.create_relationship(a, "e".into(), b, text(8_000));
        draft.set_relationship(&edge.unwrap(), text(9_000)).unwrap();
        let refused = draft.create_relationship(b, "e".into(), a, text(9_000));
        assert!(is_refusal(&refused.unwrap_err()));
    }

    #[test]
    fn spans_of_blocks_are_joined_where_they_touch() {
        let mut reads = Reads::default();
        for (first, last) in [(5, 5), (7, 9), (6, 6), (20, 30), (0, 2), (22, 40), (8, 8)] {
            reads.add(first, last);
        }
        reads.add(u128::MAX, u128::MAX);
        let spans: Vec<_> = reads.blocks.clone().into_iter().collect();
        assert_eq!(spans, [(0, 2), (5, 9), (20, 40), (u128::MAX, u128::MAX)]);
        reads.add(0, u128::MAX);
        assert_eq!(
            reads.blocks.into_iter().collect::<Vec<_>>(),
            [(0, u128::MAX)]
        );
    }
}
