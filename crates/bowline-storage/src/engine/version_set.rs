//! The version set: the manifest, and the state that its edits lead to.
//!
//! An edit is recorded durably, and then the version that it leads to is published. Edits are recorded
//! one at a time, under the manifest lock. The lock is held until the version is published, so versions
//! are published in the order of their edits.
//!
//! Invariants:
//!
//! - A version is published only after its edit is durable.
//! - After an edit whose durability is unknown, no further edit is recorded.

use std::sync::Arc;

use super::files::FileSet;
use crate::error::{Error, Result};
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Instant, Mutex, MutexGuard};
use crate::version::{Edit, Identity, Manifest, State};

/// The manifest and its state.
#[derive(Debug)]
pub(super) struct ManifestState {
    pub manifest: Manifest,
    pub state: State,
}

/// How an edit is recorded in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// As one more record. If the last record rots, it looks torn by a crash, as if the edit had never
    /// happened. So this is for edits whose loss is detected by other means.
    Appended,
    /// In the first record of a new manifest, which is never taken for torn. This is for edits whose
    /// loss would silently lose acknowledged data.
    InNewManifest,
}

/// Owns the manifest under its lock, and gives out ids of runs.
#[derive(Debug)]
pub(super) struct VersionSet {
    manifest: Mutex<ManifestState>,
    next_run_id: AtomicU64,
    files: Arc<FileSet>,
    database_id: u128,
    /// The size from which a manifest is rewritten.
    rewrite_bytes: u64,
    /// How long it took to make an edit durable.
    commit_times: Histogram,
}

impl VersionSet {
    pub(super) fn new(
        manifest: Manifest,
        state: State,
        files: Arc<FileSet>,
        database_id: u128,
        rewrite_bytes: u64,
    ) -> VersionSet {
        VersionSet {
            next_run_id: AtomicU64::new(state.next_run_id),
            manifest: Mutex::new(ManifestState { manifest, state }),
            files,
            database_id,
            rewrite_bytes,
            commit_times: Histogram::default(),
        }
    }

    /// The manifest lock: while it is held, no edit is recorded.
    pub(super) fn lock(&self) -> MutexGuard<'_, ManifestState> {
        self.manifest.lock()
    }

    /// The id of a new run: above those of all runs so far.
    pub(super) fn new_run_id(&self) -> u64 {
        self.next_run_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes all later run ids at least `next`. The caller keeps flushes and compactions out.
    pub(super) fn raise_run_id(&self, next: u64) {
        let next = self.next_run_id.load(Ordering::Relaxed).max(next);
        self.next_run_id.store(next, Ordering::Relaxed);
    }

    /// How long it took to make each edit durable, since the opening.
    pub(super) fn commit_times(&self) -> HistogramSnapshot {
        self.commit_times.read()
    }

    /// The size of the manifest.
    pub(super) fn size_bytes(&self) -> u64 {
        self.manifest.lock().manifest.size_bytes()
    }

    /// Returns an error if the durability of an edit is unknown, or after the close: then no further edit can be recorded.
    pub(super) fn check_intact(&self) -> Result<()> {
        self.manifest.lock().manifest.check_intact()
    }

    /// Refuses every later edit, and every later job: the manifest may get another owner.
    pub(super) fn close(&self) {
        let manifest = &mut self.manifest.lock().manifest;
        if manifest.check_intact().is_ok() {
            manifest.fail(Error::Closed);
        }
    }

    /// Removes the last edit, which failed; see [`Manifest::retract`].
    pub(super) fn retract(&self) -> Result<()> {
        self.manifest.lock().manifest.retract()
    }

    /// Reads the manifest, and the file that names it, back from the disk. If they are not what was written, a new manifest
    /// with the same state takes their place. Gives the damage.
    ///
    /// # Errors
    /// Those of [`VersionSet::replace_manifest`]; `Io` when they cannot be read.
    pub(super) fn mend(&self) -> Result<Option<Error>> {
        let mut guard = self.manifest.lock();
        let ManifestState { manifest, state } = &mut *guard;
        manifest.check_intact()?;
        let (vfs, layout) = (&*self.files.vfs, &self.files.layout);
        let wrong = |what: &str| Error::corrupt(&layout.manifest(manifest.number()), 0, what);
        let read_back = || -> Result<()> {
            let expected = Identity {
                database_id: self.database_id,
                manifest: manifest.number(),
            };
            if Identity::read(vfs, layout)?.as_ref() != Some(&expected) {
                return Err(wrong("it is not the one that BOWLINE names"));
            }
            let (found, position) = Manifest::read(vfs, layout, &expected)?;
            // A torn end takes back the last edit, or lacks what follows it.
            match position.end.next_multiple_of(8) == manifest.size_bytes() && found == *state {
                true => Ok(()),
                false => Err(wrong("it does not say what was written to it")),
            }
        };
        match read_back() {
            Ok(()) => Ok(None),
            Err(error @ Error::Io { .. }) => Err(error),
            Err(damage) => self
                .replace_manifest(manifest, state)
                .map(|()| Some(damage)),
        }
    }

    /// Records an edit durably, then calls `publish` with the new state, still under the lock.
    pub(super) fn record(
        &self,
        edit: &Edit,
        recording: Recording,
        publish: impl FnOnce(&State),
    ) -> Result<()> {
        let mut guard = self.manifest.lock();
        let ManifestState { manifest, state } = &mut *guard;
        let mut next = state.clone();
        next.apply(edit).map_err(Error::Internal)?;
        let start = Instant::now();
        match recording {
            Recording::Appended => manifest.append(edit)?,
            Recording::InNewManifest => self.replace_manifest(manifest, &next)?,
        }
        self.commit_times.record(start.elapsed());
        *state = next;
        publish(state);
        self.rewrite_if_large(&mut guard);
        Ok(())
    }

    /// Replaces a manifest that has grown far beyond its state by one that starts with the state. The
    /// edit that made it grow is already durable, so a failure here is not an error of the caller.
    fn rewrite_if_large(&self, guard: &mut ManifestState) {
        let size = guard.manifest.size_bytes();
        if size < self.rewrite_bytes {
            return;
        }
        let mut snapshot = Vec::new();
        guard.state.as_edit().encode(&mut snapshot);
        if size < 4 * snapshot.len() as u64 {
            return;
        }
        let ManifestState { manifest, state } = guard;
        if let Err(error) = self.replace_manifest(manifest, state)
            && manifest.check_intact().is_ok()
        {
            tracing::warn!(%error, "the manifest is not rewritten yet; it only grows");
        }
    }

    /// Replaces the manifest by a new one that starts with `state`. Its first record is durable before
    /// it becomes the current manifest. So that record can rot, but is never taken for torn.
    ///
    /// # Errors
    /// Nothing has changed, and the call may be repeated. After `Poisoned` it is unknown which manifest
    /// is the current one, and every later edit is refused.
    fn replace_manifest(&self, manifest: &mut Manifest, state: &State) -> Result<()> {
        manifest.check_intact()?;
        let number = manifest.number();
        let identity = Identity {
            database_id: self.database_id,
            manifest: number + 1,
        };
        let (vfs, layout) = (&*self.files.vfs, &self.files.layout);
        let counters = self.files.counters.clone();
        let created = Manifest::create(vfs, layout, &identity, state, counters);
        let new = created.and_then(|new| identity.stage(vfs, layout).map(|()| new));
        let new = new.inspect_err(|_| {
            // Its space may be needed. The next attempt or opening removes a file that stays.
            drop(vfs.remove_file(&layout.manifest(number + 1)));
        })?;
        if let Err(error) = Identity::switch(vfs, layout) {
            // After a crash either manifest may be the current one, so neither may grow.
            tracing::error!(%error, "the manifest could not be replaced; reopen the database");
            let reason = error.to_string().into();
            manifest.fail(error);
            return Err(Error::Poisoned { reason });
        }
        *manifest = new;
        let old = layout.manifest(number);
        if let Err(cause) = vfs.remove_file(&old) {
            tracing::warn!(path = %old.display(), %cause, "a replaced manifest stays until the next open");
        }
        Ok(())
    }
}
