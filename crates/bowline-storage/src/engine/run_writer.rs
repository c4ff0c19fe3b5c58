//! Writing the files of one run: what flush and compaction have in common.
//!
//! A flush merges memtables, a compaction merges tables. Both merge sorted sources, drop what the
//! retention does not keep, and write the rest as the tables and blob files of one run.

use std::collections::BTreeSet;

use super::core::Core;
use crate::TreeId;
use crate::compaction::{MergeOutput, Retention, VersionMerge, VersionSource, write_run};
use crate::error::Result;
use crate::frame::Compression;
use crate::sync::atomic::AtomicBool;
use crate::table::TableOptions;
use crate::version::{Edit, PlacedTable, Version, WrittenRun};

/// How a run is written.
pub(super) struct RunSpec<'a> {
    pub tree: TreeId,
    /// What must be kept.
    pub retention: &'a Retention,
    /// Whether the tree has nothing older below the run.
    pub bottom: bool,
    pub compression: Compression,
    /// The version that has the blob files of the sources.
    pub version: &'a Version,
    /// The blob files that are collected: their values move into new blob files.
    pub emptied: &'a BTreeSet<u64>,
    /// Set to cancel.
    pub is_over: &'a AtomicBool,
}

impl Core {
    /// Writes the sources as the files of one run. Stops when the engine closes or `spec.is_over` is
    /// set.
    pub(super) fn write_run(
        &self,
        sources: Vec<VersionSource>,
        spec: &RunSpec<'_>,
    ) -> Result<WrittenRun> {
        let mut merge = VersionMerge::new(sources)?;
        let output = MergeOutput {
            vfs: &self.files.vfs,
            new_file: &|| self.files.new_table(),
            new_blob: &|| self.files.new_blob(),
            tree: spec.tree,
            options: &TableOptions {
                compression: spec.compression,
                ..self.options.trees[usize::from(spec.tree.0)]
            },
            table_bytes: self.options.compaction.table_bytes,
            retention: &spec.retention.of(spec.tree),
            bottom: spec.bottom,
            cancel: [self.jobs.closing_flag(), spec.is_over],
            blobs: &self.options.blobs,
            version: spec.version,
            emptied: spec.emptied,
            operator: self
                .options
                .merge_operators
                .get(&spec.tree)
                .map(|operator| &**operator),
            counters: &self.counters,
        };
        write_run(&mut merge, &output)
    }

    /// The compression of a compacted run. `bottom` says that the tree has nothing older below it.
    pub(super) fn compression_of(&self, tree: TreeId, bottom: bool) -> Compression {
        let of_tree = self.options.trees[usize::from(tree.0)].compression;
        let of_last = self.options.compaction.last_level_compression;
        of_last.filter(|_| bottom).unwrap_or(of_tree)
    }

    /// Counts what a compaction has written.
    pub(super) fn count_compacted(&self, written: &WrittenRun) {
        for meta in &written.tables {
            self.counters.compaction_bytes_written.add(meta.file_bytes);
        }
        for meta in &written.blobs {
            self.counters
                .blob_compaction_bytes_written
                .add(meta.file_bytes);
        }
    }
}

/// Adds what was written to an edit, as tables of one run.
pub(super) fn place(edit: &mut Edit, level: u8, run: u64, written: WrittenRun) {
    let tables = written.tables.into_iter();
    edit.added
        .extend(tables.map(|meta| PlacedTable { level, run, meta }));
    edit.references.extend(written.references);
    edit.blobs.extend(written.blobs);
}
