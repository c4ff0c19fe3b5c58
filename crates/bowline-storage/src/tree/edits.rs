//! Edits of the manifest: an edit is recorded durably, and then the version it leads to is published.
//!
//! Invariants:
//!
//! - A version is published only after its edit is durable, and edits are recorded one at a time,
//!   under the lock of the manifest.
//! - An edit that raises the history floor is recorded after the log has been synced, so a crash takes
//!   back no revision up to that floor.
//! - A file that no version names goes only when its last reader lets go of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Shared, SuperVersion};
use crate::blob::BlobFile;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::version::{Edit, Identity, Manifest, State, Version};

/// The manifest, and the state that its edits lead to.
#[derive(Debug)]
pub(super) struct ManifestState {
    pub manifest: Manifest,
    pub state: State,
}

/// How an edit gets into the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// As one more record. When that rots while it is the last one, it looks as if it had been torn by
    /// a crash and had never happened: for edits whose loss is noticed by other means.
    Appended,
    /// In the first record of a new manifest, which cannot be taken for torn: for edits without which
    /// acknowledged data would be gone, and nobody told.
    InNewManifest,
}

impl Shared {
    /// Records an edit durably, then publishes the version it leads to. `opened` are the tables
    /// the edit adds; `flushed` is the newest memtable they came from, with all before it.
    pub(super) fn apply_edit(
        &self,
        edit: &Edit,
        opened: &[Arc<Table>],
        flushed: Option<u64>,
    ) -> Result<()> {
        self.apply_edit_with_blobs(edit, opened, &[], flushed, Recording::Appended)
    }

    /// The same of an edit that adds blob files, opened as `new_blobs`.
    pub(super) fn apply_edit_with_blobs(
        &self,
        edit: &Edit,
        opened: &[Arc<Table>],
        new_blobs: &[Arc<BlobFile>],
        flushed: Option<u64>,
        recording: Recording,
    ) -> Result<()> {
        if let (Some(_), Some(log)) = (edit.history_floor, &self.log_sync) {
            // A crash that took back revisions up to the floor would leave a database that is
            // older than its own history, and refuses every reader.
            log.sync()?;
        }
        let mut guard = self.manifest.lock();
        let ManifestState { manifest, state } = &mut *guard;
        let mut next = state.clone();
        next.apply(edit).map_err(Error::Internal)?;
        match recording {
            Recording::Appended => manifest.append(edit)?,
            Recording::InNewManifest => self.replace_manifest(manifest, &next)?,
        }
        *state = next;

        let mut retired = Vec::new();
        let mut retired_blobs = Vec::new();
        {
            let _update = self.super_version_update.lock();
            let current = self.super_version.load_full();
            let mut tables: HashMap<u64, Arc<Table>> = current
                .version
                .tables()
                .chain(opened)
                .map(|table| (table.meta().file_id, table.clone()))
                .collect();
            let held = current.version.blobs.values().map(|blob| &blob.file);
            let mut blobs: HashMap<u64, Arc<BlobFile>> = held
                .chain(new_blobs)
                .map(|blob| (blob.meta().file_id, blob.clone()))
                .collect();
            let version = Version::from_state(
                state,
                self.options.trees.len(),
                &mut |id| tables.remove(&id),
                &mut |id| blobs.remove(&id),
            );
            // What the state no longer names goes when its last reader lets go of it.
            retired.extend(tables.into_values());
            retired_blobs.extend(blobs.into_values());
            let mut sealed = current.sealed.clone();
            sealed.retain(|memtable| flushed.is_none_or(|newest| memtable.generation() > newest));
            let active = current.active.clone();
            let version = Arc::new(version);
            self.super_version.store(Arc::new(SuperVersion {
                active,
                sealed,
                version,
            }));
        }
        for table in retired {
            table.mark_obsolete();
        }
        for blob in retired_blobs {
            blob.mark_obsolete();
        }
        self.rewrite_manifest_if_large(&mut guard);
        Ok(())
    }

    /// A manifest that has grown far beyond its snapshot is replaced by one that starts with it.
    /// The edit that made it grow is durable already, so a failure here is not the caller's.
    fn rewrite_manifest_if_large(&self, guard: &mut ManifestState) {
        let size = guard.manifest.size_bytes();
        if size < self.options.manifest_rewrite_bytes {
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
    /// the manifest becomes the current one, so unlike the last of those that were appended, it can
    /// rot, but never be taken for torn.
    ///
    /// # Errors
    /// Nothing has changed then, and the call may be repeated. After `Poisoned` it is unknown which
    /// manifest is the current one, and every later edit is refused.
    fn replace_manifest(&self, manifest: &mut Manifest, state: &State) -> Result<()> {
        manifest.check_intact()?;
        let number = manifest.number();
        let identity = Identity {
            database_id: self.database_id,
            manifest: number + 1,
        };
        let (vfs, layout) = (&*self.vfs, &self.layout);
        let created = Manifest::create(vfs, layout, &identity, state, self.counters.clone());
        let new = created.and_then(|new| identity.stage(vfs, layout).map(|()| new));
        let new = new.inspect_err(|_| {
            // Its room may be needed. What stays, the next attempt or opening removes.
            drop(vfs.remove_file(&layout.manifest(number + 1)));
        })?;
        if let Err(error) = Identity::switch(vfs, layout) {
            // Either manifest may be the current one after a crash, so neither may grow.
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
