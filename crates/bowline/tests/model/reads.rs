//! Reads of all kinds, at the newest revision and at others.

use std::collections::{BTreeMap, VecDeque};

use bowline::cypher::{Parameters, Value};
use bowline::{BlockId, Direction, Error, Precedence, Range, Revision, Snapshot};
use bowline_testing::model;

use crate::case::Case;
use crate::support::{BLOCKS, EDGE_KINDS, plain_entry};

impl Case {
    pub fn point_reads(&mut self) {
        self.did("point reads");
        for _ in 0..4 {
            let key = self.key();
            let expected = self.model.get(&key, self.model.revision());
            let entry = self.db.entry(&key).expect("entry");
            assert_eq!(entry.as_ref().map(plain_entry).as_ref(), expected);
            let value = self.db.get(&key).expect("get");
            assert_eq!(value.as_deref(), expected.map(|entry| &entry.value[..]));
        }
        assert_eq!(self.db.get("no such key").expect("get"), None);
    }

    pub fn range_read(&mut self) {
        let bounds = self.bounds();
        let snapshot = self.random_snapshot();
        let revision = snapshot.revision();
        self.note(&format!("range {bounds:?} at {revision}"));
        let mut found = snapshot.range(Range::from(bounds.clone())).expect("range");
        drop(snapshot);
        let held = self.model.range(bounds, revision);
        let mut expected: VecDeque<_> = held
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        let from_back = self.rng.u8(0..5);
        self.did(match from_back {
            0 => "range forward",
            4 => "range backward",
            _ => "range from both ends",
        });
        // Half of the readers want only so many.
        let limit = if self.rng.bool() {
            self.rng.usize(0..12)
        } else {
            usize::MAX
        };
        let mut count = 0;
        loop {
            if count == limit && !expected.is_empty() {
                self.did("range stopped at its limit");
                return;
            }
            count += 1;
            let backward = self.rng.u8(0..4) < from_back;
            let (next, wanted) = match backward {
                true => (found.next_back(), expected.pop_back()),
                false => (found.next(), expected.pop_front()),
            };
            let next = next.map(|entry| entry.expect("entry"));
            let next = next.map(|entry| (entry.key.to_vec(), plain_entry(&entry)));
            assert_eq!(next, wanted, "from the back: {backward}");
            if next.is_none() {
                break;
            }
            if self.rng.u8(0..30) == 0 {
                // It owns what it reads from.
                self.did("range with a merge inside");
                self.db.compact().expect("compact");
            }
        }
        assert!(
            found.next().is_none() && found.next_back().is_none(),
            "it stays at its end"
        );
    }

    /// The newest state, or a held one.
    fn random_snapshot(&mut self) -> Snapshot {
        let which = self.rng.usize(0..self.snapshots.len() + 1);
        match self.snapshots.get(which) {
            Some(held) => {
                self.did("range of a held snapshot");
                held.snapshot.clone()
            }
            None => self.db.snapshot(),
        }
    }

    pub fn past(&mut self) {
        let revision = Revision::new(self.rng.u64(0..=self.model.revision().get() + 2));
        self.note(&format!("snapshot at {revision}"));
        let oldest = self.db.oldest_revision();
        match self.db.snapshot_at(revision) {
            Ok(snapshot) => {
                self.did("the past read");
                assert!((oldest..=self.model.revision()).contains(&revision));
                self.compare(&snapshot);
                self.hold(snapshot);
            }
            Err(error) => {
                self.did(match error {
                    Error::FutureRevision { .. } => "the past refused: in the future",
                    _ => "the past refused: compacted",
                });
                self.check_refusal(&error, revision, oldest);
            }
        }
    }

    pub fn key_history(&mut self) {
        let key = self.key();
        self.note(&format!("history of {}", key.escape_ascii()));
        self.did("history of a key");
        let found = self.db.history(&key).expect("history");
        let found: Vec<_> = found
            .iter()
            .map(|v| (v.revision, v.entry.as_ref().map(plain_entry)))
            .collect();
        let oldest = self.db.oldest_revision();
        let all = self.model.history(&key).iter().rev().cloned();
        let mut expected: Vec<(Revision, Option<model::Entry>)> = Vec::new();
        for version in all {
            let is_current = version.0 <= oldest;
            expected.push(version);
            if is_current {
                break;
            }
        }
        let ends_with_delete = |list: &[(Revision, Option<model::Entry>)]| {
            list.last()
                .is_some_and(|(revision, entry)| *revision <= oldest && entry.is_none())
        };
        // That it was deleted before the oldest revision says no more than its absence.
        if found.len() < expected.len() && ends_with_delete(&expected) {
            expected.pop();
        }
        assert_eq!(found, expected, "history of {key:?}, oldest {oldest}");
    }

    pub fn graph_reads(&mut self) {
        let snapshot = self.random_snapshot();
        let revision = snapshot.revision();
        let (graph, expected) = (snapshot.graph(), self.model.graph(revision));
        let id = self.rng.u128(1..=BLOCKS);
        let known = self.db.stats().kinds;
        let mut kinds: Vec<&str> = Vec::new();
        for kind in EDGE_KINDS {
            if known.iter().any(|name| name == kind) && self.rng.bool() {
                kinds.push(kind);
            }
        }
        let (direction, modelled) = match self.rng.u8(0..3) {
            0 => (Direction::Out, model::Direction::Out),
            1 => (Direction::In, model::Direction::In),
            _ => (Direction::Both, model::Direction::Both),
        };
        self.did(match direction {
            Direction::Out => "neighbors out",
            Direction::In => "neighbors in",
            Direction::Both => "neighbors both",
        });
        let depth = self.rng.u32(0..5);
        self.note(&format!(
            "graph at {revision}: {id} {direction:?} {kinds:?} depth {depth}"
        ));

        let block = graph.block(BlockId(id)).expect("block");
        let wanted = self.model.block(id, revision);
        assert_eq!(
            block.map(|b| (b.kinds, b.content.to_vec())),
            wanted.cloned().map(|b| (b.kinds, b.content))
        );
        compare_kinds(&snapshot, &expected);
        let missing = |error: Error| matches!(error, Error::MissingBlock { .. });
        let traverse = graph
            .traverse(BlockId(id))
            .direction(direction)
            .max_depth(depth);
        let traversed = traverse.kinds(kinds.iter().copied()).run();
        let neighbors = graph.neighbors(BlockId(id), direction, &kinds);
        if wanted.is_none() {
            assert!(neighbors.is_err_and(missing) && traversed.is_err_and(missing));
            return;
        }
        let mut found: Vec<_> = neighbors
            .expect("neighbors")
            .iter()
            .map(|n| n.id.0)
            .collect();
        let near = expected.neighbors(id, modelled, &kinds);
        let mut wanted: Vec<u128> = near.iter().map(|(_, far)| *far).collect();
        if direction == Direction::Both {
            // The model has a loop once, the database once in each direction.
            let loops = near.iter().filter(|(edge, _)| edge.source == edge.target);
            wanted.extend(loops.map(|(_, far)| *far));
        }
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let traversed = traversed.expect("traverse");
        let depths: BTreeMap<u128, u32> = traversed.visits().map(|v| (v.id.0, v.depth)).collect();
        assert_eq!(depths.len(), traversed.len(), "each block once");
        assert_eq!(depths, expected.breadth_first(id, modelled, &kinds, depth));

        let other = self.rng.u128(1..=BLOCKS);
        if expected.blocks.contains_key(&other) {
            let path = graph
                .shortest_path(BlockId(id), BlockId(other))
                .direction(direction);
            let path = path.kinds(kinds.iter().copied()).find().expect("path");
            let steps = path.map(|path| path.blocks.len() as u32 - 1);
            assert_eq!(steps, expected.shortest_path(id, other, modelled, &kinds));
        }
        let order = graph.topological_order(&kinds, Precedence::SourceFirst);
        assert_eq!(order.is_ok(), expected.is_acyclic(&kinds), "{order:?}");
    }
}

/// The blocks of each kind, as a query finds them: one of several kinds is found by each.
fn compare_kinds(snapshot: &Snapshot, expected: &model::Graph) {
    for kind in ["service", "shared"] {
        let query = format!("MATCH (n:{kind}) RETURN elementId(n)");
        let found = snapshot.query(&query, &Parameters::new()).expect("a query");
        let blocks = expected.blocks.iter();
        let of_kind = blocks.filter(|(_, block)| block.kinds.contains(kind));
        let wanted = of_kind.map(|(id, _)| vec![Value::from(BlockId(*id).to_string().as_str())]);
        assert_eq!(
            found.rows,
            wanted.collect::<Vec<_>>(),
            "blocks of the kind {kind}"
        );
    }
}
