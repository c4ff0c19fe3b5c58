//! The current super-version and the visible revision.
//!
//! Readers load both without a lock. A writer replaces the super-version when it seals a memtable, and a
//! job when it installs a new version of the tables. Replacements are serialized by one lock, so that
//! none starts from an outdated super-version and loses the other's change.
//!
//! Invariant: everything up to the visible revision is in the current super-version. So a reader
//! loads the super-version first and the visible revision second.

use std::collections::HashMap;
use std::sync::Arc;

use super::super_version::SuperVersion;
use crate::Revision;
use crate::blob::BlobFile;
use crate::memtable::{DeferredReclaim, Memtable};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{HazardCell, HazardGuard, Mutex};
use crate::table::Table;
use crate::version::{State, Version};

/// The current super-version, its update lock, and the visible revision.
#[derive(Debug)]
pub(in crate::engine) struct ReadView {
    super_version: HazardCell<SuperVersion>,
    /// Held while a new super-version is built from the current one.
    update: Mutex<()>,
    visible: AtomicU64,
    /// The memory of dropped memtables, to be freed by a background thread.
    deferred_reclaim: Arc<DeferredReclaim>,
}

/// Files of the replaced version that the new one does not name. Each is removed when its last reader
/// drops it.
pub(in crate::engine) struct Unreferenced {
    pub tables: Vec<Arc<Table>>,
    pub blobs: Vec<Arc<BlobFile>>,
}

impl ReadView {
    /// The view after an opening. `memtables` are those of the replay, oldest first; the last one takes
    /// new entries.
    pub(in crate::engine) fn new(
        mut memtables: Vec<Arc<Memtable>>,
        version: Version,
        memtable_bytes: usize,
        visible: Revision,
    ) -> ReadView {
        let deferred_reclaim = DeferredReclaim::new();
        let new = || Memtable::new(1, version.trees.len(), memtable_bytes);
        let mut active = memtables.pop().unwrap_or_else(|| Arc::new(new()));
        memtables.reverse();
        for memtable in memtables.iter_mut().chain([&mut active]) {
            if let Some(memtable) = Arc::get_mut(memtable) {
                memtable.reclaim_with(deferred_reclaim.clone());
            }
        }
        let super_version = SuperVersion {
            active,
            sealed: memtables,
            version: Arc::new(version),
        };
        ReadView {
            super_version: HazardCell::new(Arc::new(super_version)),
            update: Mutex::new(()),
            visible: AtomicU64::new(visible),
            deferred_reclaim,
        }
    }

    /// The current super-version, for a short read.
    #[inline]
    pub(in crate::engine) fn load(&self) -> HazardGuard<'_, SuperVersion> {
        self.super_version.load()
    }

    /// The current super-version, with a reference count.
    pub(in crate::engine) fn load_full(&self) -> Arc<SuperVersion> {
        self.super_version.load_full()
    }

    /// The newest revision that readers see.
    #[inline]
    pub(in crate::engine) fn visible(&self) -> Revision {
        self.visible.load(Ordering::Acquire)
    }

    /// The atomic behind [`ReadView::visible`], for pins: they load it under their own lock.
    pub(in crate::engine) fn visible_revision(&self) -> &AtomicU64 {
        &self.visible
    }

    /// Makes everything up to `revision` visible. The caller holds the commit lock.
    #[inline]
    pub(in crate::engine) fn publish(&self, revision: Revision) {
        self.visible.store(revision, Ordering::Release);
    }

    /// Replaces the super-version by one that `next` builds from the current one.
    pub(in crate::engine) fn replace(&self, next: impl FnOnce(&SuperVersion) -> SuperVersion) {
        let _update = self.update.lock();
        let current = self.super_version.load_full();
        self.super_version.store(Arc::new(next(&current)));
    }

    /// Starts a new active memtable. The old one becomes a sealed one, unless it is empty.
    pub(in crate::engine) fn seal(&self, trees: usize, capacity_bytes: usize) {
        self.replace(|current| {
            let mut sealed = current.sealed.clone();
            if !current.active.is_empty() {
                sealed.insert(0, current.active.clone());
            }
            let generation = current.active.generation() + 1;
            let mut active = Memtable::new(generation, trees, capacity_bytes);
            active.reclaim_with(self.deferred_reclaim.clone());
            SuperVersion {
                active: Arc::new(active),
                sealed,
                version: current.version.clone(),
            }
        });
    }

    /// Installs the version that `state` describes. `opened` and `new_blobs` are the files that the
    /// current version does not have. `flushed` is the generation of the newest memtable that the new
    /// tables contain; it and all older ones are removed.
    pub(in crate::engine) fn install(
        &self,
        state: &State,
        opened: &[Arc<Table>],
        new_blobs: &[Arc<BlobFile>],
        flushed: Option<u64>,
    ) -> Unreferenced {
        let mut unreferenced = Unreferenced {
            tables: Vec::new(),
            blobs: Vec::new(),
        };
        self.replace(|current| {
            let mut tables: HashMap<u64, Arc<Table>> = current
                .version
                .tables()
                .chain(opened)
                .map(|table| (table.meta().file_id, table.clone()))
                .collect();
            let known = current.version.blobs.values().map(|blob| &blob.file);
            let mut blobs: HashMap<u64, Arc<BlobFile>> = known
                .chain(new_blobs)
                .map(|blob| (blob.meta().file_id, blob.clone()))
                .collect();
            let version = Version::from_state(
                state,
                current.version.trees.len(),
                &mut |id| tables.remove(&id),
                &mut |id| blobs.remove(&id),
            );
            unreferenced.tables.extend(tables.into_values());
            unreferenced.blobs.extend(blobs.into_values());
            let mut sealed = current.sealed.clone();
            sealed.retain(|memtable| flushed.is_none_or(|newest| memtable.generation() > newest));
            SuperVersion {
                active: current.active.clone(),
                sealed,
                version: Arc::new(version),
            }
        });
        unreferenced
    }

    /// Drops replaced super-versions that no reader uses any more, and frees the memory of dropped
    /// memtables.
    pub(in crate::engine) fn reclaim(&self) {
        self.super_version.reclaim();
        self.free_memtables();
    }

    /// Frees the memory of dropped memtables.
    pub(in crate::engine) fn free_memtables(&self) {
        self.deferred_reclaim.free();
    }
}
