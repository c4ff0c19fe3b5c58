//! [`Indexes`]: the definitions of an open database, as of its newest commit.
//!
//! Invariants: a commit group sees one [`IndexSet`], which only the owner of the commit order replaces, between two groups.
//! A definition that is ready is replaced only when it is dropped.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::sync::{ArcSwap, Mutex};
use bowline_types::Revision;

use super::definition::{Definition, State};
use crate::error::{Error, Result, show_key};
use crate::graph::KindId;
use crate::trees;

/// The definitions at one moment.
#[derive(Debug, Default)]
pub struct IndexSet {
    /// All that commits keep: without those that were dropped.
    pub kept: Vec<Arc<Definition>>,
    /// Those whose entries are still to be deleted.
    pub dropped: Vec<Arc<Definition>>,
    /// The number of the next one.
    pub next_id: u32,
}

/// The definitions.
#[derive(Debug)]
pub struct Indexes {
    set: ArcSwap<IndexSet>,
    /// Held by the one who creates, builds, drops or clears.
    pub working: Mutex<()>,
    /// Those that somebody waits to drop.
    leaving: Mutex<Vec<u32>>,
}

/// An index that somebody waits to drop, until this is dropped.
#[derive(Debug)]
pub struct Leaving<'a> {
    indexes: &'a Indexes,
    id: u32,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut leaving = self.indexes.leaving.lock();
        if let Some(place) = leaving.iter().position(|id| *id == self.id) {
            leaving.swap_remove(place);
        }
    }
}

impl Indexes {
    pub fn load(engine: &Engine) -> Result<Indexes> {
        let set = IndexSet::read(engine, engine.visible())?;
        Ok(Indexes {
            set: ArcSwap::from_pointee(set),
            working: Mutex::new(()),
            leaving: Mutex::default(),
        })
    }

    /// The definitions of this moment.
    #[must_use]
    pub fn now(&self) -> Arc<IndexSet> {
        self.set.load_full()
    }

    /// Whether commits keep none.
    #[inline]
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.set.load().kept.is_empty()
    }

    /// Reads the definitions anew, of the visible state.
    pub fn reload(&self, engine: &Engine) -> Result<()> {
        let set = IndexSet::read(engine, engine.visible())?;
        self.set.store(Arc::new(set));
        Ok(())
    }

    /// Has the builder of an index stop, if there is one.
    pub fn begin_drop(&self, id: u32) -> Leaving<'_> {
        self.leaving.lock().push(id);
        Leaving { indexes: self, id }
    }

    /// Whether somebody waits to drop it.
    #[must_use]
    pub fn is_being_dropped(&self, id: u32) -> bool {
        self.leaving.lock().contains(&id)
    }

    /// Replaces a definition, or adds it. Called in the commit order, once its record is committed.
    pub fn put(&self, index: Definition) {
        let mut set = self.set.load().without(index.id);
        set.insert(index);
        self.set.store(Arc::new(set));
    }

    /// Removes a definition whose entries are deleted.
    pub fn remove(&self, id: u32) {
        self.set.store(Arc::new(self.set.load().without(id)));
    }
}

impl IndexSet {
    /// The definitions at a pinned, or the newest, revision.
    pub fn read(engine: &Engine, at: u64) -> Result<IndexSet> {
        let lower = Bound::Included(Definition::PREFIX.to_vec());
        let upper =
            trees::prefix_end(&Definition::PREFIX).map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = engine.scan(trees::INDEX, lower, upper, at, ScanDirection::Forward);
        let mut set = IndexSet {
            next_id: 1,
            ..IndexSet::default()
        };
        while scan.advance()? {
            if scan.key() == Definition::key_of(0) {
                let next = scan.bytes().try_into().map(u32::from_be_bytes);
                set.next_id = next.map_err(|_| Error::InvalidRecord {
                    what: "index",
                    key: show_key(scan.key()),
                    reason: "the number of the next index is not 4 bytes",
                })?;
                continue;
            }
            let revision = Revision::new(scan.revision());
            set.insert(Definition::decode(scan.key(), scan.bytes(), revision)?);
        }
        Ok(set)
    }

    /// The one of this kind by these attributes, unless it is dropped.
    #[must_use]
    pub fn find(&self, kind: KindId, attributes: &[String]) -> Option<&Arc<Definition>> {
        let is_it = |index: &&Arc<Definition>| index.kind == kind && index.attributes == attributes;
        self.kept.iter().find(is_it)
    }

    /// Whether there are none, not even dropped ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.dropped.is_empty()
    }

    /// The definition with this number, also one that is dropped.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Arc<Definition>> {
        let mut all = self.kept.iter().chain(&self.dropped);
        all.find(|index| index.id == id)
    }

    fn without(&self, id: u32) -> IndexSet {
        let others = |all: &[Arc<Definition>]| {
            let others = all.iter().filter(|index| index.id != id);
            others.cloned().collect()
        };
        IndexSet {
            kept: others(&self.kept),
            dropped: others(&self.dropped),
            next_id: self.next_id,
        }
    }

    fn insert(&mut self, index: Definition) {
        self.next_id = self.next_id.max(index.id.saturating_add(1));
        let list = match index.state {
            State::Dropped => &mut self.dropped,
            State::Building { .. } | State::Ready { .. } => &mut self.kept,
        };
        list.push(Arc::new(index));
        list.sort_unstable_by_key(|index| index.id);
    }
}
