//! [`Graph`] as the graph of a Cypher query: blocks are nodes, their kinds are their labels, their attributes are
//! properties; edges are relationships.
//!
//! The first page of a block's edges comes from the graph view where it has the revision, and later pages from the trees,
//! which can start at a key: both have the order (kind number, other block).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use bowline_query::{
    FieldColumns, FieldsAsked, Name, NodeIndex, NodeRecord, Properties, RelationshipId, Seek,
    SeekLast, StoreError, StoreResult, Value,
};
use bowline_storage::TreeId;
use bowline_storage::engine::ScanDirection;

use super::reader::Sources;
use super::records::{invalid, split, value_of};
use super::sample::{SAMPLE, Sample};
use super::{Graph, records};
use bowline_core::error::Result;
use bowline_core::graph::{
    self, AttributeRef, AttributesRef, BlockId, Direction, HeldBlock, KindFilter, KindId,
};
use bowline_core::index::{Asked, Definition, KeyRange, Last};
use bowline_core::kinds::Kinds;
use bowline_core::trees;

/// The attributes as properties, of which none is null.
pub(crate) fn properties(attributes: AttributesRef<'_>) -> Properties {
    let property = |(name, value): (&str, AttributeRef<'_>)| {
        let value = value_of(value);
        (!value.is_null()).then(|| (name.into(), value))
    };
    attributes.iter().filter_map(property).collect()
}

/// Kinds and attributes as a node's record.
pub(crate) fn node_record(kinds: &[&str], attributes: AttributesRef<'_>) -> NodeRecord {
    NodeRecord {
        labels: kinds.iter().map(|&kind| kind.into()).collect(),
        properties: properties(attributes),
    }
}

/// The kinds that a pattern names. Names that were never used match nothing.
pub(crate) fn filter(kinds: &Kinds, names: &[Name]) -> KindFilter {
    match names {
        [] => KindFilter::All,
        names => KindFilter::only(names.iter().filter_map(|name| kinds.id(name))),
    }
}

/// The tree of a block's edges in one direction, and the bounds of those behind one.
pub(crate) fn edges_behind(
    node: BlockId,
    direction: Direction,
    behind: Option<(&RelationshipId, KindId)>,
) -> (TreeId, Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let prefix = graph::edge_prefix(node);
    let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    let tree = match direction {
        Direction::In => trees::EDGE_IN,
        Direction::Out | Direction::Both => trees::EDGE_OUT,
    };
    let lower = match behind {
        None => Bound::Included(prefix.to_vec()),
        Some((edge, kind)) => Bound::Excluded(match direction {
            Direction::In => graph::edge_in_key(edge.target, kind, edge.source).to_vec(),
            _ => graph::edge_out_key(edge.source, kind, edge.target).to_vec(),
        }),
    };
    (tree, lower, upper)
}

/// The edge between `near` and `far`, seen from `near`.
pub(crate) fn relationship(
    near: BlockId,
    direction: Direction,
    kind: Name,
    far: BlockId,
) -> Arc<RelationshipId> {
    let (source, target) = match direction {
        Direction::In => (far, near),
        Direction::Out | Direction::Both => (near, far),
    };
    Arc::new(RelationshipId {
        source,
        kind,
        target,
        discriminator: 0,
    })
}

impl Graph {
    /// The names of all kinds that were ever used, sorted.
    pub(crate) fn kind_names(&self) -> Vec<String> {
        self.core().kinds.all()
    }

    /// The number of the kind of an edge that was returned before.
    fn kind_of(&self, edge: &RelationshipId) -> StoreResult<KindId> {
        let id = self.core().kinds.id(&edge.kind);
        id.ok_or_else(|| StoreError::from(format!("no edge is of the kind {:?}", edge.kind)))
    }

    /// A sample of the tree `block` or `edge_out`.
    fn sample(&self, tree: TreeId) -> Result<&Sample> {
        let held = &self.samples[usize::from(tree != trees::BLOCK)];
        if let Some(sample) = held.get() {
            return Ok(sample);
        }
        let engine = &self.core().engine;
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let at = self.snapshot.revision().get();
        let scan = engine.scan(tree, lower, upper, at, ScanDirection::Forward);
        let mut scan = scan.heads();
        let mut sample = Sample::default();
        while sample.looked_at < SAMPLE && scan.advance()? {
            let key = scan.key();
            match tree {
                trees::BLOCK => {
                    self.with_kinds(key, scan.bytes(), |kinds| sample.note(kinds.iter()))?;
                }
                _ => sample.note([split(key)?.1]),
            }
        }
        sample.all = sample.looked_at;
        if sample.looked_at == SAMPLE {
            let levels = engine.stats().levels;
            let of_tree = levels.get(usize::from(tree.0)).into_iter().flatten();
            sample.all += of_tree.map(|level| level.entries).sum::<u64>();
        }
        Ok(held.get_or_init(|| sample))
    }

    fn about(&self, tree: TreeId, kind: Option<&str>) -> StoreResult<u64> {
        let sample = self.sample(tree)?;
        Ok(match kind {
            None => sample.all,
            Some(name) => match self.core().kinds.id(name) {
                Some(kind) => sample.count(kind),
                None => 0,
            },
        })
    }
}

/// What a query looks for, for an index. `None` where no index can tell.
fn asked(seek: &Seek<'_>) -> Option<Asked> {
    let bound = |bound: &Bound<Value>| {
        Some(match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(value) => Bound::Included(value.to_attribute()?),
            Bound::Excluded(value) => Bound::Excluded(value.to_attribute()?),
        })
    };
    let all = |values: &[Value]| {
        values
            .iter()
            .map(Value::to_attribute)
            .collect::<Option<_>>()
    };
    let last = match seek.last {
        SeekLast::OneOf(values) => Last::OneOf(all(values)?),
        SeekLast::Between(lower, upper) => Last::Between(bound(lower)?, bound(upper)?),
        SeekLast::StartsWith(text) => Last::StartsWith(text.to_string()),
    };
    Some(Asked {
        equal: all(seek.equal)?,
        last,
    })
}

impl Graph {
    /// The index that a query asks, and the ranges of what it looks for; `None` where no index can tell.
    pub(crate) fn sought(&self, seek: &Seek<'_>) -> Option<(Arc<Definition>, Vec<KeyRange>)> {
        let is_it = |index: &&Arc<Definition>| {
            let names = index.attributes.iter().map(String::as_str);
            names.eq(seek.properties.iter().map(|name| &**name))
        };
        let index = self.indexes_of(seek.label).find(is_it)?;
        let ranges = asked(seek)?.ranges(index)?;
        Some((index.clone(), ranges))
    }
}

impl bowline_query::Graph for Graph {
    /// Plans are made for the indexes that answer here.
    fn plan_epoch(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for index in &self.indexes().kept {
            index.id.hash(&mut hasher);
        }
        hasher.finish()
    }

    fn indexes(&self, label: &str) -> StoreResult<Vec<NodeIndex>> {
        let index = |index: &Arc<Definition>| NodeIndex {
            properties: index
                .attributes
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            is_unique: index.is_unique,
        };
        Ok(self.indexes_of(label).map(index).collect())
    }

    fn seek(
        &self,
        seek: &Seek<'_>,
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        let Some((_, ranges)) = self.sought(seek) else {
            return Ok(false);
        };
        self.index_page(&ranges, place, count, page)?;
        Ok(true)
    }

    fn revision(&self) -> Option<u64> {
        Some(self.snapshot.revision().get())
    }

    fn store(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }

    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        let wanted = match label.map(|label| self.core().kinds.id(label)) {
            // No block has a kind that nobody has used.
            Some(None) => return Ok(()),
            Some(kind) => kind,
            None => None,
        };
        let engine = &self.core().engine;
        let lower = after.map_or(Bound::Unbounded, |id| {
            Bound::Excluded(graph::block_key(id).to_vec())
        });
        let at = self.snapshot.revision().get();
        let scan = engine.scan(
            trees::BLOCK,
            lower,
            Bound::Unbounded,
            at,
            ScanDirection::Forward,
        );
        let mut scan = scan.heads();
        let (mut found, mut read) = (0, 0_u64);
        while found < count && scan.advance()? {
            // Also where nothing passes.
            if read.is_multiple_of(64) {
                self.cancel.check()?;
            }
            read += 1;
            let key = scan.key();
            if let Some(wanted) = wanted
                && !self.with_kinds(key, scan.bytes(), |kinds| kinds.contains(wanted))?
            {
                continue;
            }
            let id = key.try_into().map(BlockId::from_bytes);
            page.push(id.map_err(|_| invalid("block", key, "its key is not 16 bytes"))?);
            found += 1;
        }
        Ok(())
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        let read = self.raw(trees::BLOCK, &graph::block_key(id), |bytes| {
            let lend = |bytes| {
                records::lend_block(&self.core().kinds, id, bytes, |block| {
                    Arc::new(node_record(block.kinds, block.attributes))
                })
            };
            bytes.map(lend).transpose()
        });
        Ok(read??)
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
        let filter = filter(&self.core().kinds, kinds);
        if filter == KindFilter::only([]) || count == 0 {
            return Ok(());
        }
        let names = self.names();
        let mut last: Option<(KindId, Name)> = None;
        let mut failed = None;
        let most = page.len() + count;
        // Edges come sorted by kind: a name is looked up once for all of one kind.
        let mut take = |kind, far| {
            if last.as_ref().is_none_or(|(held, _)| *held != kind) {
                last = names.name(kind).map(|name| (kind, name.clone()));
            }
            let Some((_, name)) = &last else {
                failed = Some(records::unregistered(kind));
                return false;
            };
            page.push(relationship(node, direction, name.clone(), far));
            page.len() < most
        };
        match after {
            None => {
                let sources = Sources::of(self)?;
                let reader = sources.reader(self);
                reader.visit_neighbors(node, direction, &filter, |it| take(it.kind, it.id))?;
            }
            Some(edge) => {
                let behind = Some((edge, self.kind_of(edge)?));
                let (tree, lower, upper) = edges_behind(node, direction, behind);
                let at = self.snapshot.revision().get();
                let engine = &self.core().engine;
                let mut scan = engine
                    .scan(tree, lower, upper, at, ScanDirection::Forward)
                    .heads();
                while scan.advance()? {
                    self.cancel.check()?;
                    let (_, kind, far) = split(scan.key())?;
                    if filter.passes(kind) && !take(kind, far) {
                        break;
                    }
                }
            }
        }
        Ok(failed.map_or(Ok(()), Err)?)
    }

    /// There is one edge of a kind from one block to another.
    fn has_parallel_relationships(&self) -> bool {
        false
    }

    fn ends(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        visit: &mut dyn FnMut(usize, BlockId) -> bool,
    ) -> StoreResult<()> {
        let filter = filter(&self.core().kinds, kinds);
        if filter == KindFilter::only([]) {
            return Ok(());
        }
        let sources = Sources::of(self)?;
        let reader = sources.reader(self);
        let mut goes_on = true;
        for (place, node) in nodes.iter().enumerate() {
            reader.visit_neighbors(*node, direction, &filter, |it| {
                goes_on = visit(place, it.id);
                goes_on
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn degrees(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        degrees: &mut Vec<u64>,
    ) -> StoreResult<()> {
        let filter = filter(&self.core().kinds, kinds);
        if filter == KindFilter::only([]) {
            degrees.extend(nodes.iter().map(|_| 0));
            return Ok(());
        }
        let sources = Sources::of(self)?;
        let reader = sources.reader(self);
        for node in nodes {
            degrees.push(reader.degree(*node, direction, &filter)?);
        }
        Ok(())
    }

    fn holds_fields(&self) -> bool {
        let at = self.snapshot.revision().get();
        self.core().graph_view.blocks(at).is_some()
    }

    fn fields(
        &self,
        nodes: &[BlockId],
        asked: FieldsAsked<'_>,
        found: &mut FieldColumns,
    ) -> StoreResult<bool> {
        /// So many records are asked for before the first is read.
        const TOGETHER: usize = 64;
        let kind = |label: &Name| self.core().kinds.id(label);
        let kinds: Vec<Option<KindId>> = asked.labels.iter().map(kind).collect();
        let at = self.snapshot.revision().get();
        let cache = self.core().graph_view.blocks(at);
        let begin = found.len();
        found.extend(asked, nodes.len());
        let mut missing: Vec<usize> = Vec::new();
        match cache {
            None => missing.extend(0..nodes.len()),
            Some(cache) => {
                let names = cache.names(asked.properties.iter().map(|name| &**name));
                for (place, &id) in nodes.iter().enumerate() {
                    let lend = |held: &HeldBlock| {
                        records::set_held(held, &kinds, &names, begin + place, found);
                    };
                    if cache.visit(id, at, &names, lend).is_none() {
                        missing.push(place);
                    }
                }
            }
        }
        for places in missing.chunks(TOGETHER) {
            let keys = places.iter().map(|place| graph::block_key(nodes[*place]));
            self.core().engine.look_ahead(trees::BLOCK, keys);
            for &place in places {
                let id = nodes[place];
                let read = self.raw(trees::BLOCK, &graph::block_key(id), |bytes| {
                    let Some(bytes) = bytes else { return Ok(false) };
                    let block = records::parts(id, bytes)?;
                    if let Some(cache) = cache {
                        cache.take_in(id, at, &block);
                    }
                    records::set_fields(&block, &kinds, asked.properties, begin + place, found);
                    Ok(true)
                });
                let read: Result<bool> = read?;
                if !read? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        let Some(kind) = self.core().kinds.id(&id.kind) else {
            return Ok(None);
        };
        let key = graph::edge_out_key(id.source, kind, id.target);
        let read = self.raw(trees::EDGE_OUT, &key, |bytes| {
            let lend = |bytes| {
                let edge = records::lend_edge(id.source, &id.kind, id.target, &key, bytes)?;
                Ok(Arc::new(properties(edge.attributes)))
            };
            bytes.map(lend).transpose()
        });
        let read: Result<_> = read?;
        Ok(read?)
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        self.about(trees::BLOCK, label)
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        self.about(trees::EDGE_OUT, kind)
    }
}
