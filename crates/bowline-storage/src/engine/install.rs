//! Installing a new version: from files on the disk to a version that readers see.
//!
//! ```text
//! open the new files ─► sync their directory ─► record the edit ─► publish ─► mark old files obsolete
//! ```
//!
//! Invariants:
//!
//! - An edit that raises the history floor is recorded after the log was synced, so that a crash takes
//!   back no revision up to that floor.
//! - A file that no version names is removed when its last reader drops it.
//! - When the durability of an edit is unknown, no file is removed: that edit may name it.

use std::sync::Arc;

use super::core::Core;
use super::version_set::Recording;
use crate::blob::BlobFile;
use crate::error::Result;
use crate::table::Table;
use crate::version::{Edit, PlacedTable};

impl Core {
    /// Returns an error if no job can record what it would write, so that it writes nothing.
    pub(super) fn check_recordable(&self) -> Result<()> {
        self.log.check()?;
        self.versions.check_intact()
    }

    /// Records an edit without new files, and publishes the version that it leads to.
    pub(super) fn apply_edit(&self, edit: &Edit, recording: Recording) -> Result<()> {
        self.apply_edit_with_files(edit, &[], &[], None, recording)
    }

    /// Records an edit durably, then publishes the version that it leads to. `opened` and `new_blobs`
    /// are the files that the edit adds. `flushed` is the generation of the newest memtable that the
    /// new tables contain.
    pub(super) fn apply_edit_with_files(
        &self,
        edit: &Edit,
        opened: &[Arc<Table>],
        new_blobs: &[Arc<BlobFile>],
        flushed: Option<u64>,
        recording: Recording,
    ) -> Result<()> {
        if edit.history_floor.is_some() {
            // If a crash took back revisions up to the floor, the database would be older than its own
            // history and would refuse every reader.
            self.log.sync()?;
        }
        self.versions.record(edit, recording, |state| {
            let unreferenced = self.view.install(state, opened, new_blobs, flushed);
            for table in unreferenced.tables {
                table.mark_obsolete();
            }
            for blob in unreferenced.blobs {
                blob.mark_obsolete();
            }
        })
    }

    /// Opens the new files of an edit, makes their names durable, and applies the edit. Removes the
    /// new files again if the edit was not recorded and it is certain that it is not on the disk. For
    /// files that no earlier edit names.
    pub(super) fn install_or_discard(&self, edit: Edit, flushed: Option<u64>) -> Result<()> {
        let new_only = new_files(&edit);
        let result = self.install(edit, flushed, Recording::Appended);
        if result.is_err() {
            let retracted = self.versions.retract();
            match retracted {
                Ok(()) => return self.or_discard(result, &new_only),
                Err(cause) => {
                    tracing::warn!(%cause, "new tables stay, since the manifest may name them");
                }
            }
        }
        result
    }

    /// Opens the new files of an edit, makes their names durable, and applies the edit. When the edit
    /// cannot be recorded, the files stay: the manifest may name them, and an opening removes those
    /// that it does not name.
    pub(super) fn install(
        &self,
        mut edit: Edit,
        flushed: Option<u64>,
        recording: Recording,
    ) -> Result<()> {
        let result = (|| {
            let mut opened = Vec::new();
            for placed in edit
                .added
                .iter()
                .filter(|p| !edit.removed.contains(&p.meta.file_id))
            {
                opened.push(Arc::new(self.files.open_table(&placed.meta)?));
            }
            let blobs = edit.blobs.iter();
            let blobs = blobs.map(|meta| self.files.open_blob(meta).map(Arc::new));
            let blobs = blobs.collect::<Result<Vec<_>>>()?;
            if !opened.is_empty() {
                self.files.sync_directory()?;
            }
            Ok((opened, blobs))
        })();
        let (opened, blobs) = self.or_discard(result, &new_files(&edit))?;
        edit.next_file_id = Some(self.files.next_file_id());
        self.apply_edit_with_files(&edit, &opened, &blobs, flushed, recording)
    }

    /// On an error, removes the files that the edit would have added.
    pub(super) fn or_discard<T>(&self, result: Result<T>, edit: &Edit) -> Result<T> {
        if result.is_err() {
            let tables = edit.added.iter().map(|placed| &placed.meta);
            self.files.remove(tables, &edit.blobs);
        }
        result
    }
}

/// The part of an edit that adds new files.
fn new_files(edit: &Edit) -> Edit {
    let added = edit.added.iter();
    let is_new = |placed: &&PlacedTable| !edit.removed.contains(&placed.meta.file_id);
    Edit {
        added: added.filter(is_new).cloned().collect(),
        blobs: edit.blobs.clone(),
        ..Edit::default()
    }
}
