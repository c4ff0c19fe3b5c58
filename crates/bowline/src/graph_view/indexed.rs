//! [`Blocks`]: the blocks of a kind whose attributes pass filters, by an index where one fits.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use bowline_query::Value;
use bowline_storage::engine::ScanDirection;

use super::Graph;
use super::records::invalid;
use crate::index_build::index_of;
use bowline_core::error::Result;
use bowline_core::graph::{self, AttributesRef, Block, BlockId};
use bowline_core::index::{Asked, Definition, IndexSet, KeyRange, Last, block_of_entry};
use bowline_core::trees;
use bowline_types::{AttributeValue, Index};

/// What an attribute must be, as Cypher compares: 1 equals 1.0, values of different types compare with nothing.
///
/// ```
/// use bowline::Filter;
///
/// let _ = [Filter::equals(40), Filter::one_of([1, 2]), Filter::starts_with("a")];
/// let _ = [Filter::above(1), Filter::at_least(0.5), Filter::below("b"), Filter::at_most(true)];
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Equal to one of these.
    OneOf(Vec<AttributeValue>),
    /// From a bound.
    From(Bound<AttributeValue>),
    /// To a bound.
    To(Bound<AttributeValue>),
    /// A text that begins so.
    StartsWith(String),
}

impl Filter {
    /// Equal to a value.
    ///
    /// ```
    /// # use bowline::Filter;
    /// assert_eq!(Filter::equals(1), Filter::one_of([1]));
    /// ```
    pub fn equals(value: impl Into<AttributeValue>) -> Filter {
        Filter::OneOf(vec![value.into()])
    }

    /// Equal to one of some values.
    pub fn one_of<V: Into<AttributeValue>>(values: impl IntoIterator<Item = V>) -> Filter {
        Filter::OneOf(values.into_iter().map(Into::into).collect())
    }

    /// Greater than a value.
    pub fn above(value: impl Into<AttributeValue>) -> Filter {
        Filter::From(Bound::Excluded(value.into()))
    }

    /// Greater than a value, or equal to it.
    pub fn at_least(value: impl Into<AttributeValue>) -> Filter {
        Filter::From(Bound::Included(value.into()))
    }

    /// Less than a value.
    pub fn below(value: impl Into<AttributeValue>) -> Filter {
        Filter::To(Bound::Excluded(value.into()))
    }

    /// Less than a value, or equal to it.
    pub fn at_most(value: impl Into<AttributeValue>) -> Filter {
        Filter::To(Bound::Included(value.into()))
    }

    /// A text that begins with this one.
    pub fn starts_with(text: impl Into<String>) -> Filter {
        Filter::StartsWith(text.into())
    }

    fn passes(&self, held: &Value) -> bool {
        let compares = |bound: &AttributeValue| held.compares(&bound.clone().into()).flatten();
        match self {
            Filter::OneOf(values) => {
                let mut values = values.iter();
                values.any(|value| held.equals(&value.clone().into()) == Some(true))
            }
            Filter::From(Bound::Included(least)) => compares(least).is_some_and(Ordering::is_ge),
            Filter::From(Bound::Excluded(below)) => compares(below).is_some_and(Ordering::is_gt),
            Filter::To(Bound::Included(most)) => compares(most).is_some_and(Ordering::is_le),
            Filter::To(Bound::Excluded(above)) => compares(above).is_some_and(Ordering::is_lt),
            Filter::From(Bound::Unbounded) | Filter::To(Bound::Unbounded) => !held.is_null(),
            Filter::StartsWith(start) => {
                matches!(held, Value::Text(text) if text.starts_with(start.as_str()))
            }
        }
    }
}

/// The blocks of a kind, to be filtered. Made by [`Graph::blocks`].
///
/// ```
/// use bowline::{Block, BlockId, Filter};
/// # let db = bowline::Db::in_memory()?;
/// db.create_index("person", ["city", "age"])?;
/// db.transact(|tx| {
///     for (id, age) in [(1, 36), (2, 41), (3, 52)] {
///         let block = Block::new(BlockId(id), "person").attribute("city", "Wien");
///         tx.put_block(&block.attribute("age", age))?;
///     }
///     Ok(())
/// })?;
/// let graph = db.snapshot().graph();
/// let found = graph
///     .blocks("person")
///     .filter("city", Filter::equals("Wien"))
///     .filter("age", Filter::at_least(40))
///     .filter("age", Filter::below(50));
/// assert!(found.index().is_some());
/// assert_eq!(found.run()?[0].id, BlockId(2));
/// assert_eq!(found.limit(10).ids()?, [BlockId(2)]);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is read before `run` or `ids`"]
pub struct Blocks<'g> {
    graph: &'g Graph,
    kind: String,
    filters: Vec<(String, Filter)>,
    limit: usize,
}

impl Graph {
    /// The blocks of a kind, in no certain order. With filters that an index fits, only its blocks are read; else all blocks of
    /// the graph are looked at. Nothing is of a kind that was never used.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "person")))?;
    /// assert_eq!(db.snapshot().graph().blocks("person").ids()?, [BlockId(1)]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn blocks(&self, kind: &str) -> Blocks<'_> {
        Blocks {
            graph: self,
            kind: kind.to_owned(),
            filters: Vec::new(),
            limit: usize::MAX,
        }
    }

    /// The indexes that answer at this revision. They are those of the first question: what was dropped since stays readable.
    pub(crate) fn indexes(&self) -> &IndexSet {
        self.indexes.get_or_init(|| {
            let revision = self.snapshot.revision();
            let all = self.core().indexes.now();
            let answers = |index: &&Arc<Definition>| index.answers(revision);
            Arc::new(IndexSet {
                kept: all.kept.iter().filter(answers).cloned().collect(),
                ..IndexSet::default()
            })
        })
    }

    /// Those of a kind.
    pub(crate) fn indexes_of(&self, kind: &str) -> impl Iterator<Item = &Arc<Definition>> {
        let kind = self.core().kinds.id(kind);
        let all = self.indexes().kept.iter();
        all.filter(move |index| Some(index.kind) == kind)
    }

    /// Appends up to `count` blocks of ranges of an index behind `place`, which moves.
    pub(crate) fn index_page(
        &self,
        ranges: &[KeyRange],
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> Result<()> {
        let engine = &self.core().engine;
        let at = self.snapshot.revision().get();
        let mut found = 0;
        for (from, to) in ranges {
            let Some(lower) = behind(place.as_ref(), from, to) else {
                continue;
            };
            let upper = Bound::Excluded(to.clone());
            let mut scan = engine.scan(trees::INDEX, lower, upper, at, ScanDirection::Forward);
            while found < count && scan.advance()? {
                if found.is_multiple_of(64) {
                    self.cancel.check()?;
                }
                page.push(entry_block(scan.key())?);
                found += 1;
                if found == count {
                    *place = Some(scan.key().to_vec());
                }
            }
            if found == count {
                break;
            }
        }
        Ok(())
    }
}

/// The block of an entry that was read.
pub(crate) fn entry_block(key: &[u8]) -> Result<BlockId> {
    block_of_entry(key).ok_or_else(|| invalid("index", key, "its key is shorter than a block's id"))
}

/// Where a range begins behind a place; `None` if it is over.
pub(crate) fn behind(place: Option<&Vec<u8>>, from: &[u8], to: &[u8]) -> Option<Bound<Vec<u8>>> {
    match place {
        Some(place) if place.as_slice() >= to => None,
        Some(place) if place.as_slice() >= from => Some(Bound::Excluded(place.clone())),
        _ => Some(Bound::Included(from.to_vec())),
    }
}

impl Blocks<'_> {
    /// Keeps those whose attribute passes; several filters may be on one attribute.
    pub fn filter(mut self, attribute: impl Into<String>, filter: Filter) -> Self {
        self.filters.push((attribute.into(), filter));
        self
    }

    /// At most so many.
    pub fn limit(mut self, blocks: usize) -> Self {
        self.limit = blocks;
        self
    }

    /// The index that they are read by, if one fits.
    #[must_use]
    pub fn index(&self) -> Option<Index> {
        let handle = self.graph.snapshot.handle();
        self.plan().map(|(index, _)| index_of(handle, &index))
    }

    /// Their ids.
    ///
    /// # Errors
    /// `Canceled`; `InvalidRecord`, `Storage`.
    pub fn ids(&self) -> Result<Vec<BlockId>> {
        let mut ids = Vec::new();
        self.visit(|id, _| ids.push(id))?;
        Ok(ids)
    }

    /// The blocks.
    ///
    /// # Errors
    /// Those of [`Blocks::ids`].
    pub fn run(&self) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        let mut failed = None;
        self.visit(
            |id, bytes| match super::block_of(&self.graph.core().kinds, id, bytes) {
                Ok(block) => blocks.push(block),
                Err(error) => failed = failed.take().or(Some(error)),
            },
        )?;
        failed.map_or(Ok(blocks), Err)
    }

    /// The index that asks for most, and its ranges.
    fn plan(&self) -> Option<(Arc<Definition>, Vec<KeyRange>)> {
        let fits = |index: &Arc<Definition>| {
            let asked = self.asked(index)?;
            Some((index.clone(), asked.ranges(index)?))
        };
        let all = self.graph.indexes_of(&self.kind).filter_map(fits);
        all.max_by_key(|(index, _)| (index.attributes.len(), index.is_unique))
    }

    fn asked(&self, index: &Definition) -> Option<Asked> {
        let of = |name: &str| {
            let of_it = |(attribute, filter): &'_ (String, Filter)| {
                (attribute == name).then(|| filter.clone())
            };
            self.filters
                .iter()
                .filter_map(of_it)
                .collect::<Vec<Filter>>()
        };
        let equal = |name: &String| {
            of(name).into_iter().find_map(|filter| match filter {
                Filter::OneOf(values) if values.len() == 1 => values.into_iter().next(),
                _ => None,
            })
        };
        let (last, first) = index.attributes.split_last()?;
        let first = first.iter().map(equal).collect::<Option<_>>()?;
        let (mut one_of, mut from, mut to) = (None, None, None);
        for filter in of(last) {
            match filter {
                Filter::OneOf(values) => _ = one_of.get_or_insert(Last::OneOf(values)),
                Filter::StartsWith(text) => _ = one_of.get_or_insert(Last::StartsWith(text)),
                Filter::From(bound) => _ = from.get_or_insert(bound),
                Filter::To(bound) => _ = to.get_or_insert(bound),
            }
        }
        let last = match (one_of, from, to) {
            (Some(last), _, _) => last,
            (None, from, to) => {
                let from = from.unwrap_or(Bound::Unbounded);
                let to = to.unwrap_or(Bound::Unbounded);
                // Without a bound, values pass that no index has.
                if matches!((&from, &to), (Bound::Unbounded, Bound::Unbounded)) {
                    return None;
                }
                Last::Between(from, to)
            }
        };
        Some(Asked { equal: first, last })
    }

    fn visit(&self, mut take: impl FnMut(BlockId, &[u8])) -> Result<()> {
        /// How many entries are read before their blocks.
        const PAGE: usize = 256;
        let graph = self.graph;
        graph.cancel.check()?;
        let Some(kind) = graph.core().kinds.id(&self.kind) else {
            return Ok(());
        };
        let mut left = self.limit;
        let mut look = |id: BlockId, bytes: &[u8]| -> Result<bool> {
            let key = graph::block_key(id);
            let block = graph::decode_block(bytes);
            let block =
                block.ok_or_else(|| invalid("block", &key, "its record does not decode"))?;
            if left > 0 && block.kinds.contains(kind) && self.pass(block.attributes) {
                left -= 1;
                take(id, bytes);
            }
            Ok(left > 0)
        };
        let Some((_, ranges)) = self.plan() else {
            return graph.scan_while(trees::BLOCK, |key, bytes| {
                let id = key.try_into().map(BlockId::from_bytes);
                let id = id.map_err(|_| invalid("block", key, "its key is not 16 bytes"))?;
                look(id, bytes)
            });
        };
        let (mut place, mut page) = (None, Vec::new());
        loop {
            page.clear();
            graph.index_page(&ranges, &mut place, PAGE, &mut page)?;
            for &id in &page {
                let read = graph.raw(trees::BLOCK, &graph::block_key(id), |bytes| match bytes {
                    Some(bytes) => look(id, bytes),
                    None => Ok(true),
                });
                if !read?? {
                    return Ok(());
                }
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn pass(&self, attributes: AttributesRef<'_>) -> bool {
        self.filters.iter().all(|(name, filter)| {
            let held = attributes.get(name);
            held.is_some_and(|held| filter.passes(&held.to_value().into()))
        })
    }
}
