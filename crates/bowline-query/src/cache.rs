//! [`PlanCache`]: plans of queries by their texts, so that a text that comes again is neither parsed nor planned.
//!
//! Parameters are no part of a plan, and so none of the key. What a plan rests on is looked at before it is used again:
//!
//! ```text
//!   what                                        is looked at
//!   names of kinds, properties                  when the plan runs: it holds names, not numbers
//!   what the store says plans depend on         at each use: Graph::plan_epoch must be the same
//!   counts of nodes and relationships           at each use that is many revisions after the plan was made or confirmed:
//!                                               the plan is made anew if a count has at least doubled or halved
//!   the revision that the text asks for         at each use, before the cache is asked
//! ```
//!
//! Counts decide on the order of work only, never on an answer. To read them costs as much as to plan a short query, so
//! they are not read at each use.
//!
//! Invariants: at most so many entries and about so many bytes are held; the one that was used longest ago goes first. A
//! plan is used only for the text that it was made of, byte by byte, under limits that are not below those it was made with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_types::{BlockId, Direction};

use crate::execute::Limits;
use crate::graph::{Graph, NodeIndex, Seek, StoreResult};
use crate::prepared::Prepared;
use crate::value::{Name, NodeRecord, Properties, RelationshipId};

/// A plan is confirmed again after so many revisions.
const REVISIONS_MAX: u64 = 1_000;
/// Counts below this are equally small: any order of work is quick.
const FEW: u64 = 64;

/// Plans by text. Shared by threads.
///
/// ```
/// use std::sync::Arc;
/// use bowline_query::{MemoryGraph, Parameters, PlanCache, Query};
///
/// let plans = Arc::new(PlanCache::new(100, 1 << 20));
/// for _ in 0..3 {
///     let query = Query::new("RETURN 1").plans(Arc::clone(&plans));
///     query.run(&MemoryGraph::new(), &Parameters::new()).unwrap();
/// }
/// let figures = plans.figures();
/// assert_eq!((figures.hits, figures.misses, figures.entries), (2, 1, 1));
/// ```
#[derive(Debug)]
pub struct PlanCache {
    entries_max: usize,
    bytes_max: u64,
    held: Mutex<Held>,
}

/// What a cache holds, and how often it helped.
///
/// ```
/// assert_eq!(bowline_query::PlanCache::new(10, 1000).figures().hits, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanFigures {
    /// Plans that are held.
    pub entries: u64,
    /// Their bytes, about.
    pub bytes: u64,
    /// How often a plan was found.
    pub hits: u64,
    /// How often none was, or one that is no longer right.
    pub misses: u64,
}

#[derive(Debug, Default)]
struct Held {
    entries: HashMap<Arc<str>, Entry>,
    bytes: u64,
    /// Counts the uses, for the order in which entries were last used.
    clock: u64,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry {
    prepared: Prepared,
    bytes: u64,
    used: u64,
    epoch: u64,
    revision: Option<u64>,
    counts: Arc<[Counted]>,
    text_bytes: usize,
    depth: usize,
}

/// A count that a plan rests on.
#[derive(Debug, Clone)]
struct Counted {
    of_nodes: bool,
    name: Option<Name>,
    count: u64,
}

impl Counted {
    /// Whether the count is about what it was.
    fn holds(&self, graph: &dyn Graph) -> bool {
        let name = self.name.as_deref();
        let now = match self.of_nodes {
            true => graph.node_count(name),
            false => graph.relationship_count(name),
        };
        let (low, high) = match now {
            Ok(now) => (now.min(self.count), now.max(self.count)),
            Err(_) => return false,
        };
        high < FEW || high < low.saturating_mul(2)
    }
}

impl PlanCache {
    /// A cache of at most so many plans of about so many bytes.
    pub fn new(entries_max: usize, bytes_max: u64) -> PlanCache {
        PlanCache {
            entries_max,
            bytes_max,
            held: Mutex::default(),
        }
    }

    /// What it holds, and how often it helped.
    pub fn figures(&self) -> PlanFigures {
        let held = self.held();
        PlanFigures {
            entries: held.entries.len() as u64,
            bytes: held.bytes,
            hits: held.hits,
            misses: held.misses,
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing that holds it can panic half-way.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of a text, from here or made by `plan`.
    pub(crate) fn plan<E>(
        &self,
        text: &str,
        limits: &Limits,
        graph: &dyn Graph,
        plan: impl FnOnce(&dyn Graph) -> Result<Prepared, E>,
    ) -> Result<Prepared, E> {
        if let Some(found) = self.find(text, limits, graph) {
            return Ok(found);
        }
        let counting = Counting {
            graph,
            counts: RefCell::default(),
        };
        let prepared = plan(&counting)?;
        let counts = counting.counts.into_inner().into();
        self.insert(text, limits, graph, &prepared, counts);
        Ok(prepared)
    }

    fn find(&self, text: &str, limits: &Limits, graph: &dyn Graph) -> Option<Prepared> {
        let (epoch, revision) = (graph.plan_epoch(), graph.counted_at());
        let mut held = self.held();
        held.clock += 1;
        let clock = held.clock;
        let is_right = |entry: &&mut Entry| {
            entry.epoch == epoch
                && entry.text_bytes <= limits.text_bytes
                && entry.depth <= limits.depth
        };
        let Some(entry) = held.entries.get_mut(text).filter(is_right) else {
            held.misses += 1;
            return None;
        };
        entry.used = clock;
        let prepared = entry.prepared.clone();
        let is_near = match (entry.revision, revision) {
            (Some(made), Some(now)) => made.abs_diff(now) < REVISIONS_MAX,
            _ => false,
        };
        if is_near || entry.counts.is_empty() {
            held.hits += 1;
            return Some(prepared);
        }
        let counts = Arc::clone(&entry.counts);
        drop(held);
        // Without the lock: it reads the store.
        let holds = counts.iter().all(|counted| counted.holds(graph));
        let mut held = self.held();
        match holds {
            true => {
                held.hits += 1;
                if let Some(entry) = held.entries.get_mut(text) {
                    entry.revision = revision;
                }
                Some(prepared)
            }
            false => {
                held.misses += 1;
                None
            }
        }
    }

    fn insert(
        &self,
        text: &str,
        limits: &Limits,
        graph: &dyn Graph,
        prepared: &Prepared,
        counts: Arc<[Counted]>,
    ) {
        let bytes = prepared.footprint(text);
        if bytes > self.bytes_max || self.entries_max == 0 {
            return;
        }
        let mut held = self.held();
        let entry = Entry {
            prepared: prepared.clone(),
            bytes,
            used: held.clock,
            epoch: graph.plan_epoch(),
            revision: graph.counted_at(),
            counts,
            text_bytes: limits.text_bytes,
            depth: limits.depth,
        };
        if let Some(before) = held.entries.insert(text.into(), entry) {
            held.bytes -= before.bytes;
        }
        held.bytes += bytes;
        while held.entries.len() > self.entries_max || held.bytes > self.bytes_max {
            let oldest = held.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(text, _)| Arc::clone(text)) else {
                break;
            };
            if let Some(gone) = held.entries.remove(&oldest) {
                held.bytes -= gone.bytes;
            }
        }
    }
}

/// A graph that notes which counts it is asked for.
struct Counting<'g> {
    graph: &'g dyn Graph,
    counts: RefCell<Vec<Counted>>,
}

impl Counting<'_> {
    fn note(&self, of_nodes: bool, name: Option<&str>, count: u64) -> u64 {
        self.counts.borrow_mut().push(Counted {
            of_nodes,
            name: name.map(Into::into),
            count,
        });
        count
    }
}

impl Graph for Counting<'_> {
    fn revision(&self) -> Option<u64> {
        self.graph.revision()
    }

    fn counted_at(&self) -> Option<u64> {
        self.graph.counted_at()
    }

    fn plan_epoch(&self) -> u64 {
        self.graph.plan_epoch()
    }

    fn store(&self) -> Option<&dyn std::any::Any> {
        self.graph.store()
    }

    fn indexes(&self, label: &str) -> StoreResult<Vec<NodeIndex>> {
        self.graph.indexes(label)
    }

    fn seek(
        &self,
        seek: &Seek<'_>,
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        self.graph.seek(seek, place, count, page)
    }

    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        self.graph.nodes(label, after, count, page)
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        self.graph.node(id)
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
        self.graph
            .relationships(node, direction, kinds, after, count, page)
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        self.graph.relationship(id)
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        let count = self.graph.node_count(label)?;
        Ok(self.note(true, label, count))
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        let count = self.graph.relationship_count(kind)?;
        Ok(self.note(false, kind, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryGraph, Parameters, Query};

    /// A graph of these counts at a revision.
    struct Sized(MemoryGraph, u64, u64);

    impl Graph for Sized {
        fn revision(&self) -> Option<u64> {
            Some(self.1)
        }

        fn plan_epoch(&self) -> u64 {
            self.2
        }

        fn nodes(
            &self,
            label: Option<&str>,
            after: Option<BlockId>,
            count: usize,
            page: &mut Vec<BlockId>,
        ) -> StoreResult<()> {
            self.0.nodes(label, after, count, page)
        }

        fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
            self.0.node(id)
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
            self.0
                .relationships(node, direction, kinds, after, count, page)
        }

        fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
            self.0.relationship(id)
        }

        fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
            self.0.node_count(label)
        }

        fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
            self.0.relationship_count(kind)
        }
    }

    fn counts(plans: &PlanCache) -> (u64, u64, u64) {
        let figures = plans.figures();
        (figures.hits, figures.misses, figures.entries)
    }

    #[test]
    fn a_plan_is_used_again_until_what_it_rests_on_has_changed() {
        let plans = Arc::new(PlanCache::new(10, 1 << 20));
        let mut graph = Sized(MemoryGraph::new(), 1, 0);
        let run = |graph: &Sized| {
            let query = Query::new("MATCH (a:a)-[:t]->(b:b) RETURN a, $x").plans(plans.clone());
            let parameters = Parameters::from([("x".into(), 1.into())]);
            query.run(graph, &parameters).unwrap().rows.len()
        };
        run(&graph);
        graph.1 += 999;
        run(&graph);
        assert_eq!(counts(&plans), (1, 1, 1), "few revisions later");
        graph.1 += 1;
        run(&graph);
        assert_eq!(counts(&plans), (2, 1, 1), "the counts are the same");
        let fill = "UNWIND range(1, 100) AS i CREATE (:a)-[:t]->(:b)";
        Query::new(fill)
            .run_mut(&mut graph.0, &Parameters::new())
            .unwrap();
        assert_eq!(run(&graph), 100, "an old plan gives the same answer");
        assert_eq!(counts(&plans), (3, 1, 1));
        graph.1 += 1_000;
        run(&graph);
        assert_eq!(
            counts(&plans),
            (3, 2, 1),
            "there are many more nodes than it was made for"
        );
        graph.2 += 1;
        run(&graph);
        assert_eq!(counts(&plans), (3, 3, 1), "the store has changed");
    }

    #[test]
    fn entries_and_bytes_are_bounded_and_limits_are_kept() {
        let graph = MemoryGraph::new();
        let none = Parameters::new();
        let plans = Arc::new(PlanCache::new(2, 1 << 20));
        for text in [
            "RETURN 1", "RETURN 2", "RETURN 1", "RETURN 3", "RETURN 1", "RETURN 2",
        ] {
            Query::new(text)
                .plans(plans.clone())
                .run(&graph, &none)
                .unwrap();
        }
        // The second made way for the third.
        assert_eq!(counts(&plans), (2, 4, 2));
        let limits = Limits {
            text_bytes: 3,
            ..Limits::default()
        };
        let query = Query::new("RETURN 1").plans(plans.clone()).limits(limits);
        assert!(query.run(&graph, &none).is_err());
        let small = Arc::new(PlanCache::new(100, 10));
        Query::new("RETURN 1")
            .plans(small.clone())
            .run(&graph, &none)
            .unwrap();
        assert_eq!(counts(&small), (0, 1, 0), "it is larger than the cache");
    }
}
