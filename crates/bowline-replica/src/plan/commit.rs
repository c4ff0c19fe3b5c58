//! The commit of a transaction that ran elsewhere: it validates the read set, then executes the writes.
//!
//! The rules are those of the embedded [`Transaction`](bowline::Transaction). It reads at one revision and
//! records its read set; here, in the single order of all commands, what it relies on
//! ([`Reliance`](bowline_core::write::validate::Reliance)) is checked for newer changes. Besides, the blocks of an edge must
//! exist, a lease must exist, and expectations must hold. A blind write under serializable isolation never conflicts.
//!
//! Invariants:
//!
//! - Every member decides alike, also one that applies the entry again after a crash, with tables whose
//!   history was trimmed further since. A revision below the last compaction *committed before this entry* is
//!   refused. From that compaction on the newest version of every key exists, tombstones included: flushes
//!   and merges keep those from the compaction on that the tables contain
//!   ([`bowline_storage::engine::Engine::hold_tombstones`]), and the tables are never ahead of the entry. Older
//!   versions of a key may be gone, so nothing here depends on them.
//! - Everything is compared with the state before the command.
//! - No key is visited twice for the read ranges, nor for the deleted ones, however often a commit names it
//!   (`walked.rs`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bowline_storage::{TreeId, Value};

use super::{Planner, Stop};
use crate::command::{Commit, CommitRead, CommitWrite, Outcome, PutOp, Refusal, UpdatedKey};
use crate::index::IndexRefusal;
use crate::overlay::Overlay;
use crate::range::{Span, for_each};
use crate::walked::Walked;
use crate::work::Work;
use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::{self, BlockId};
use bowline_core::index::block_of_entry;
use bowline_core::kv::record;
use bowline_core::lease::LeaseId;
use bowline_core::trees;
use bowline_core::write;
use bowline_core::write::lookup::Lookup;
use bowline_core::write::mutation::Action;
use bowline_core::write::previous::Previous;
use bowline_core::write::validate::{self, Reliance, Violation};
use bowline_types::{EdgeKey, GraphWrite, NewValue, Revision, Touched, Update};
use bytes::Bytes;

/// The final writes of keys. Each key is in at most one of both.
#[derive(Default)]
struct Keys<'c> {
    /// Values with their leases.
    puts: BTreeMap<Vec<u8>, (Cow<'c, Value>, i64)>,
    deleted: BTreeSet<Vec<u8>>,
    /// Spans whose keys have all been visited.
    walked: Walked,
}

impl<'c> Keys<'c> {
    fn put(&mut self, key: &[u8], value: Cow<'c, Value>, lease: i64) {
        self.deleted.remove(key);
        self.puts.insert(key.to_vec(), (value, lease));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.puts.remove(&key);
        self.deleted.insert(key);
    }

    /// Removes the puts within a span.
    fn delete_puts(&mut self, span: &Span) {
        let put: Vec<Vec<u8>> = match span {
            Span::Key(key) => vec![key.clone()],
            Span::Range(from, Some(end)) if from >= end => Vec::new(),
            Span::Range(from, end) => {
                let upper = end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let put = self
                    .puts
                    .range::<Vec<u8>, _>((Bound::Included(from), upper));
                put.map(|(key, _)| key.clone()).collect()
            }
        };
        for key in put {
            if self.puts.remove(&key).is_some() {
                self.deleted.insert(key);
            }
        }
    }

    /// In the order of the keys.
    fn into_sorted(self) -> BTreeMap<Vec<u8>, Option<(Cow<'c, Value>, i64)>> {
        let deleted = self.deleted.into_iter().map(|key| (key, None));
        let puts = self.puts.into_iter().map(|(key, put)| (key, Some(put)));
        deleted.chain(puts).collect()
    }
}

/// The longest value that an append makes. A value that no request can carry could not be put again, by an import for
/// one; and this bound is a part of what the command means, as the bound of a request, which each member may set, is not.
const APPENDED_MAX_BYTES: u64 = 1 << 20;

/// The updates of a commit.
struct Updates {
    made: Vec<UpdatedKey>,
    /// For the values that they read and make. It is part of what the command means, as that of a transaction is.
    work: Work,
    /// The keys that they have read and left as they were, with their leases.
    unchanged: BTreeMap<Vec<u8>, (Option<Value>, i64)>,
}

/// The unchanged spans of each tree.
type Unchanged = BTreeMap<TreeId, Walked>;

impl Planner<'_> {
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<Outcome, Stop> {
        if commit.read_revision > 0 {
            self.known.check_readable(commit.read_revision, self.last)?;
            self.check_unchanged(commit)?;
        }
        for expectation in &commit.expectations {
            let (key, expected) = (&expectation.key, expectation.mod_revision);
            self.allow(validate::check_revision(&self.lookup(), key, expected))?;
        }
        let mut keys = Keys::default();
        let mut updates = Updates {
            made: Vec::new(),
            work: Work::of_txn(),
            unchanged: BTreeMap::new(),
        };
        for write in &commit.writes {
            match write {
                CommitWrite::Put { key, value, lease } => {
                    keys.put(key, Cow::Borrowed(value), *lease);
                }
                CommitWrite::Delete { key } => {
                    keys.delete(key.clone());
                }
                CommitWrite::DeleteRange { key, range_end } => {
                    self.delete_span(&Span::of(key, range_end), &mut keys)?;
                }
                CommitWrite::Graph(write) => {
                    self.graph_write(write)?;
                }
                CommitWrite::Update { key, update } => {
                    self.update(key, update, &mut keys, &mut updates)?;
                }
            }
        }
        let deleted = self.write_keys(keys)?;
        Ok(Outcome::Committed {
            deleted,
            is_changed: self.writer.journal.is_numbered,
            updated: updates.made,
        })
    }

    // --- validation ---

    fn check_unchanged(&self, commit: &Commit) -> Result<(), Stop> {
        let since = commit.read_revision;
        let mut unchanged = Unchanged::new();
        let unchanged = &mut unchanged;
        let relied_on = Reliance::of(commit.isolation);
        if relied_on.reads {
            for read in &commit.reads {
                self.check_read(read, since, unchanged)?;
            }
        }
        for write in &commit.writes {
            if relied_on.writes {
                self.check_written(write, since, unchanged)?;
            }
            if let CommitWrite::Graph(GraphWrite::DeleteBlock(id)) = write {
                // An edge that another transaction added meanwhile must not be deleted unseen.
                self.check_edges(trees::EDGE_OUT, *id, since, unchanged)?;
                self.check_edges(trees::EDGE_IN, *id, since, unchanged)?;
            }
        }
        Ok(())
    }

    fn check_read(
        &self,
        read: &CommitRead,
        since: Revision,
        unchanged: &mut Unchanged,
    ) -> Result<(), Stop> {
        match read {
            CommitRead::Key(key) => self.check_point(trees::KV, key, since),
            CommitRead::Range { key, range_end } => {
                self.check_keys(key, range_end, since, unchanged)
            }
            CommitRead::Block(id) => self.check_point(trees::BLOCK, &graph::block_key(*id), since),
            CommitRead::Blocks { first, last } => {
                // The first key behind the last one.
                let end = [&graph::block_key(*last)[..], &[0]].concat();
                let span = (&graph::block_key(*first)[..], Some(&end[..]));
                self.check_parts(trees::BLOCK, span, since, unchanged)
            }
            CommitRead::Entries { index, first, end } => {
                // Once it is dropped, nobody says any more what would be in it.
                let set = self.indexes.now();
                if !set.kept.iter().any(|kept| kept.id == *index) {
                    return Err(Refusal::from(IndexRefusal::Dropped).into());
                }
                let span = (&first[..], Some(&end[..]));
                self.check_parts(trees::INDEX, span, since, unchanged)
            }
            CommitRead::Edge {
                source,
                kind,
                target,
            } => self.check_edge(*source, kind, *target, since),
            CommitRead::EdgesOut(id) => self.check_edges(trees::EDGE_OUT, *id, since, unchanged),
            CommitRead::EdgesIn(id) => self.check_edges(trees::EDGE_IN, *id, since, unchanged),
        }
    }

    fn check_written(
        &self,
        write: &CommitWrite,
        since: Revision,
        unchanged: &mut Unchanged,
    ) -> Result<(), Stop> {
        match write {
            CommitWrite::Put { key, .. } | CommitWrite::Delete { key } => {
                self.check_point(trees::KV, key, since)
            }
            CommitWrite::DeleteRange { key, range_end } => {
                self.check_keys(key, range_end, since, unchanged)
            }
            // It depends on the newest value, and not on what was read.
            CommitWrite::Update { .. } => Ok(()),
            CommitWrite::Graph(write) => match write {
                GraphWrite::PutBlock(block) => {
                    self.check_point(trees::BLOCK, &graph::block_key(block.id), since)
                }
                GraphWrite::DeleteBlock(id) => {
                    self.check_point(trees::BLOCK, &graph::block_key(*id), since)
                }
                GraphWrite::PutEdge(edge) => {
                    self.check_edge(edge.source, &edge.kind, edge.target, since)
                }
                GraphWrite::DeleteEdge(key) => {
                    self.check_edge(key.source, &key.kind, key.target, since)
                }
            },
        }
    }

    fn check_edge(
        &self,
        source: BlockId,
        kind: &str,
        target: BlockId,
        since: Revision,
    ) -> Result<(), Stop> {
        match self.kinds.id(kind) {
            Some(kind) => {
                let key = graph::edge_out_key(source, kind, target);
                self.check_point(trees::EDGE_OUT, &key, since)
            }
            // An unused kind had no edge, and has none.
            None => Ok(()),
        }
    }

    fn check_edges(
        &self,
        tree: TreeId,
        id: BlockId,
        since: Revision,
        unchanged: &mut Unchanged,
    ) -> Result<(), Stop> {
        let prefix = graph::edge_prefix(id);
        let end = trees::prefix_end(&prefix);
        self.check_parts(tree, (&prefix, end.as_deref()), since, unchanged)
    }

    fn check_keys(
        &self,
        key: &[u8],
        range_end: &[u8],
        since: Revision,
        unchanged: &mut Unchanged,
    ) -> Result<(), Stop> {
        match Span::of(key, range_end) {
            Span::Key(key) => self.check_point(trees::KV, &key, since),
            Span::Range(from, end) => {
                self.check_parts(trees::KV, (&from, end.as_deref()), since, unchanged)
            }
        }
    }

    /// Checks the parts of a span that are not yet known to be unchanged.
    fn check_parts(
        &self,
        tree: TreeId,
        (from, end): (&[u8], Option<&[u8]>),
        since: Revision,
        unchanged: &mut Unchanged,
    ) -> Result<(), Stop> {
        // The commit ends with the first changed key.
        for (from, end) in unchanged.entry(tree).or_default().add(from, end) {
            let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let lower = Bound::Included(&from[..]);
            self.allow(validate::check_range_unchanged(
                self.engine,
                tree,
                (lower, upper),
                since,
            ))?;
        }
        Ok(())
    }

    fn check_point(&self, tree: TreeId, key: &[u8], since: Revision) -> Result<(), Stop> {
        self.allow(validate::check_unchanged(self.engine, tree, key, since))
    }

    /// The refusal for a violation, the same on every member.
    pub(super) fn refusal(&self, violation: Violation) -> Result<Refusal> {
        Ok(match violation {
            Violation::Changed {
                tree,
                key,
                revision,
                since,
            } => Refusal::Conflict {
                what: self.touched(tree, &key)?,
                revision,
                snapshot: since,
            },
            Violation::Revision {
                key,
                expected,
                actual,
            } => Refusal::CompareFailed {
                key,
                expected,
                actual,
            },
            Violation::MissingBlock { id } => Refusal::MissingBlock { id },
            Violation::LeaseNotFound { id } => Refusal::LeaseNotFound { id: id.get() },
            Violation::LeaseExists { id } => Refusal::LeaseExists { id: id.get() },
        })
    }

    /// The key, block or edge of a tree's key.
    fn touched(&self, tree: TreeId, key: &[u8]) -> Result<Touched> {
        let invalid = |what, reason| Error::InvalidRecord {
            what,
            key: show_key(key),
            reason,
        };
        Ok(match tree {
            trees::KV => Touched::Key(Bytes::copy_from_slice(key)),
            trees::BLOCK => {
                let id = <[u8; 16]>::try_from(key);
                let id = id.map_err(|_| invalid("block", "its key is not 16 bytes"))?;
                Touched::Block(BlockId::from_bytes(id))
            }
            trees::INDEX => {
                let id = block_of_entry(key);
                Touched::Block(id.ok_or_else(|| invalid("index", "its key is too short"))?)
            }
            _ => {
                let (source, kind, target) = write::graph::split(tree, key)?;
                let kind = self.kinds.name(kind);
                let kind = kind.ok_or_else(|| invalid("edge", "its kind is not registered"))?;
                Touched::Edge(EdgeKey::new(source, &*kind, target))
            }
        })
    }

    // --- writes of keys ---

    /// Updates a key that has had the earlier writes of the commit. It stays attached to its lease.
    fn update(
        &self,
        key: &[u8],
        update: &Update,
        keys: &mut Keys<'_>,
        updates: &mut Updates,
    ) -> Result<(), Stop> {
        let (value, lease) = match keys.puts.get(key) {
            Some((value, lease)) => (Some(Value::clone(value)), *lease),
            None if keys.deleted.contains(key) => (None, 0),
            None if updates.unchanged.contains_key(key) => updates.unchanged[key].clone(),
            None => {
                let entry = self
                    .engine
                    .read_since(trees::KV, key, 0, |found| record::entry_of(key, found))
                    .map_err(Error::from)??;
                let lease = LeaseId::number_of(entry.as_ref().and_then(|entry| entry.lease));
                (entry.map(|entry| entry.value), lease)
            }
        };
        let made = update.apply(value.as_deref());
        let made = made.map_err(|source| Refusal::NotUpdatable {
            key: show_key(key).into(),
            source,
        })?;
        let new_bytes = match &made {
            NewValue::Put(new) => new.len(),
            _ => 0,
        };
        let old_bytes = value.as_ref().map_or(0, |value| value.len());
        updates.work.take(1, (old_bytes + new_bytes) as u64);
        updates.work.check()?;
        if matches!(update, Update::Append(_)) && new_bytes as u64 > APPENDED_MAX_BYTES {
            return Err(Refusal::TooLarge {
                what: "a value that is appended to".to_owned(),
                size: new_bytes as u64,
                limit: APPENDED_MAX_BYTES,
            }
            .into());
        }
        let is_changed = made != NewValue::Unchanged;
        let value = match made {
            NewValue::Unchanged => {
                let known = (value.clone(), lease);
                updates.unchanged.insert(key.to_vec(), known);
                value
            }
            NewValue::Put(new) => {
                let new = Value::copy_from(&new);
                keys.put(key, Cow::Owned(new.clone()), lease);
                Some(new)
            }
            NewValue::Delete => {
                keys.delete(key.to_vec());
                None
            }
        };
        if self.wants_reply {
            updates.made.push(UpdatedKey { is_changed, value });
        }
        Ok(())
    }

    /// Adds the deletion of every key of a span that exists, or was put before.
    fn delete_span(&self, span: &Span, keys: &mut Keys<'_>) -> Result<(), Stop> {
        keys.delete_puts(span);
        let parts = match span {
            Span::Key(key) => vec![Span::Key(key.clone())],
            Span::Range(from, end) => {
                let parts = keys.walked.add(from, end.as_deref());
                let span = |(from, end)| Span::Range(from, end);
                parts.into_iter().map(span).collect()
            }
        };
        let limit = self.writes_max;
        let mut size = 0;
        for part in parts {
            let nothing = Overlay::default();
            let at = Revision::MAX;
            for_each(self.engine, &nothing, &part, at, false, &mut |entry| {
                size += entry.key.len() as u64;
                keys.delete(entry.key.to_vec());
                Ok(size <= limit)
            })?;
        }
        if size > limit {
            // More than a command may delete, so the rest need not be read.
            return Err(Refusal::TooManyWrites { size, limit }.into());
        }
        Ok(())
    }

    /// Writes each key once, so that it has one version at the revision. Returns the number of deleted keys.
    fn write_keys(&mut self, keys: Keys<'_>) -> Result<u64, Stop> {
        let mut deleted = 0;
        // They are the last writes of the command, each of another key.
        self.writer.journal.is_last = true;
        for (key, action) in keys.into_sorted() {
            match action {
                Some((value, lease)) => {
                    let put = PutOp {
                        key,
                        value: value.into_owned(),
                        lease,
                        ..PutOp::default()
                    };
                    self.check_put(&put)?;
                    self.put(&put)?;
                }
                None => {
                    let previous = Previous::from(self.lookup().meta(&key)?);
                    let was_there = self.writer.write_key(&key, &Action::Delete, previous)?;
                    deleted += u64::from(was_there);
                }
            }
        }
        Ok(deleted)
    }
}
