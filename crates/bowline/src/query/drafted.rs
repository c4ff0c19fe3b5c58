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

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bowline_query::{
    Error as QueryError, GraphMut, Name, NodeRecord, Parameters, Prepared, Properties, Query,
    RelationshipId, Seek, StoreResult, Summary, Value,
};

use super::transaction::{ModelError, attributes_of, kinds_of};
use crate::graph_view::Graph;
use bowline_core::index::KeyRange;
use bowline_types::{Block, BlockId, Direction, Edge, EdgeKey, GraphWrite};

/// What a query has read, and what it would write: see [`Graph::draft_query`].
///
/// ```
/// use bowline::cypher::{Drafted, Parameters};
/// # let db = bowline::Db::in_memory()?;
/// let snapshot = db.snapshot();
/// let query = snapshot.build_query("CREATE (:service {name: 'api'})");
/// let graph = snapshot.graph();
/// let prepared = query.plan(&graph)?;
/// let (_, drafted): (_, Drafted) = graph.draft_query(&query, &prepared, &Parameters::new(), &mut |_| Ok(()))?;
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
/// let (_, drafted) = graph.draft_query(&query, &query.plan(&graph)?, &Parameters::new(), &mut |_| Ok(()))?;
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
    ///
    /// ```
    /// # use bowline::cypher::Parameters;
    /// # let db = bowline::Db::in_memory()?;
    /// let snapshot = db.snapshot();
    /// let (query, graph) = (snapshot.build_query("CREATE (n:a) RETURN labels(n)"), snapshot.graph());
    /// let mut rows = Vec::new();
    /// let (summary, _) = graph.draft_query(&query, &query.plan(&graph)?, &Parameters::new(), &mut |row| {
    ///     rows.push(row);
    ///     Ok(())
    /// })?;
    /// assert_eq!((rows.len(), summary.effects.nodes_created), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::query`](crate::Transaction::query).
    pub fn draft_query(
        &self,
        query: &Query<'_>,
        prepared: &Prepared,
        parameters: &Parameters,
        row: &mut dyn FnMut(Vec<Value>) -> Result<(), QueryError>,
    ) -> Result<(Summary, Drafted), QueryError> {
        let mut graph = DraftGraph {
            base: self,
            reads: RefCell::default(),
            blocks: BTreeMap::new(),
            edges: BTreeMap::new(),
            arriving: BTreeMap::new(),
        };
        let summary = query.for_each_mut(prepared, &mut graph, parameters, row)?;
        Ok((summary, graph.finish()))
    }
}

/// A block that was written; `None`: deleted.
struct OwnBlock {
    block: Option<Block>,
    record: Option<Arc<NodeRecord>>,
    is_new: bool,
}

/// An edge that was written; `None`: deleted.
struct OwnEdge {
    properties: Option<Arc<Properties>>,
    is_new: bool,
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
}

struct DraftGraph<'g> {
    base: &'g Graph,
    reads: RefCell<Reads>,
    blocks: BTreeMap<BlockId, OwnBlock>,
    edges: BTreeMap<RelationshipId, OwnEdge>,
    /// The edges that were created, by their targets.
    arriving: BTreeMap<BlockId, BTreeSet<RelationshipId>>,
}

impl DraftGraph<'_> {
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
            if let Some(properties) = own.properties {
                // They were checked when they were written.
                let attributes = attributes_of(&properties).unwrap_or_default();
                let edge = Edge::new(id.source, &*id.kind, id.target);
                writes.push(GraphWrite::PutEdge(Edge { attributes, ..edge }));
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

    fn put_block(&mut self, block: Block, record: NodeRecord, is_new: bool) {
        let id = block.id;
        let is_new = self.blocks.get(&id).map_or(is_new, |own| own.is_new);
        let own = OwnBlock {
            block: Some(block),
            record: Some(Arc::new(record)),
            is_new,
        };
        self.blocks.insert(id, own);
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
                return Ok(());
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
        self.put_block(block, record, true);
        Ok(id)
    }

    fn create_relationship(
        &mut self,
        source: BlockId,
        kind: Name,
        target: BlockId,
        properties: Properties,
    ) -> StoreResult<Arc<RelationshipId>> {
        attributes_of(&properties)?;
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
            is_new: known.unwrap_or(true),
        };
        self.edges.insert(id.clone(), own);
        self.arriving.entry(target).or_default().insert(id.clone());
        Ok(Arc::new(id))
    }

    fn set_node(&mut self, id: BlockId, record: NodeRecord) -> StoreResult<()> {
        let attributes = attributes_of(&record.properties)?;
        // What Cypher does not show stays.
        let content = match self.blocks.get_mut(&id) {
            Some(own) => own.block.take().map(|block| block.content),
            None => {
                self.reads.borrow_mut().add(id.0, id.0);
                self.base.block(id)?.map(|block| block.content)
            }
        };
        let block = Block {
            content: content.unwrap_or_default(),
            attributes,
            ..Block::new(id, kinds_of(&record.labels))
        };
        self.put_block(block, record, false);
        Ok(())
    }

    fn set_relationship(&mut self, id: &RelationshipId, properties: Properties) -> StoreResult<()> {
        attributes_of(&properties)?;
        let is_new = self.edges.get(id).is_some_and(|own| own.is_new);
        let own = OwnEdge {
            properties: Some(Arc::new(properties)),
            is_new,
        };
        self.edges.insert(id.clone(), own);
        Ok(())
    }

    fn delete_node(&mut self, id: BlockId) -> StoreResult<()> {
        let is_new = self.blocks.get(&id).is_some_and(|own| own.is_new);
        let own = OwnBlock {
            block: None,
            record: None,
            is_new,
        };
        self.blocks.insert(id, own);
        Ok(())
    }

    fn delete_relationship(&mut self, id: &RelationshipId) -> StoreResult<()> {
        let is_new = self.edges.get(id).is_some_and(|own| own.is_new);
        let own = OwnEdge {
            properties: None,
            is_new,
        };
        self.edges.insert(id.clone(), own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
