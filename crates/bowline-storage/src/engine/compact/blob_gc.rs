//! Garbage collection of blob files.
//!
//! When a tree's blob files have too much garbage together, the worst of them are collected: the tables
//! that point into them are rewritten in place, and the values that are still used move into new blob
//! files.

use std::sync::Arc;

use super::Compactor;
use crate::TreeId;
use crate::compaction::{BlobPick, KeyRange, VersionSource, pick_blobs};
use crate::engine::run_writer::{RunSpec, place};
use crate::error::Result;
use crate::version::Edit;

impl Compactor {
    /// Collects the blob files of the tree that have too much garbage; `false` when there are none.
    pub(super) fn collect_worst_blobs(&self, tree: TreeId) -> Result<bool> {
        let version = self.core.view.load_full().version.clone();
        let Some(pick) = pick_blobs(&version, tree, &self.core.options.blobs) else {
            return Ok(false);
        };
        drop(version);
        self.core.with_ballast(|| {
            self.core.check_recordable()?;
            self.collect_blobs(tree, &pick)
        })?;
        Ok(true)
    }

    /// Rewrites the picked tables in place, so that none of their pointers leads into the picked blob
    /// files.
    pub(in crate::engine) fn collect_blobs(&self, tree: TreeId, pick: &BlobPick) -> Result<()> {
        let core = &*self.core;
        let retention = core.retention();
        let version = core.view.load_full().version.clone();
        let mut edit = Edit {
            history_floor: Some(retention.floor),
            ..Edit::default()
        };
        let last = version.tree(tree).runs().last();
        let is_last = last.is_some_and(|run| run.id == pick.run);
        let spec = RunSpec {
            tree,
            retention: &retention,
            // This reads one run only, so it never drops tombstones as if nothing older lay below.
            bottom: false,
            compression: core.compression_of(tree, is_last),
            version: &version,
            emptied: &pick.emptied,
            is_over: core.jobs.closing_flag(),
        };
        for table in &pick.tables {
            let run = VersionSource::run(vec![Arc::clone(table)], KeyRange::default());
            let written = core.write_run(vec![run], &spec);
            let written = core.or_discard(written, &edit)?;
            core.count_compacted(&written);
            edit.removed.push(table.meta().file_id);
            place(&mut edit, pick.level as u8, pick.run, written);
        }
        core.install_or_discard(edit, None)?;
        core.counters.blob_collections.add(1);
        Ok(())
    }
}
