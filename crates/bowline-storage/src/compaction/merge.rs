//! The merge of versions: many sorted sources in, one sorted run out.

use std::path::PathBuf;
use std::sync::Arc;

use super::retention::{KeyFilter, Retention};
use crate::error::{Error, Result};
use crate::memtable::MemtableVersionCursor;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::{Table, TableMeta, TableOptions, TableVersionCursor, TableWriter};
use crate::vfs::Vfs;
use crate::{EntryKind, Revision, TreeId};

/// One sorted source of versions.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a merge has few; a box would cost at every step"
)]
pub enum VersionSource {
    /// A memtable's versions of one tree.
    Memtable(MemtableVersionCursor),
    /// A run's versions, table after table.
    Run(RunVersions),
}

/// The versions of a run.
#[derive(Debug)]
pub struct RunVersions {
    tables: std::vec::IntoIter<Arc<Table>>,
    current: Option<TableVersionCursor>,
    use_cache: bool,
}

impl VersionSource {
    /// A source over the tables of one run.
    pub fn run(tables: Vec<Arc<Table>>, use_cache: bool) -> VersionSource {
        VersionSource::Run(RunVersions {
            tables: tables.into_iter(),
            current: None,
            use_cache,
        })
    }

    fn start(&mut self) -> Result<()> {
        match self {
            VersionSource::Memtable(cursor) => {
                cursor.seek_first();
                Ok(())
            }
            VersionSource::Run(run) => run.next_table(),
        }
    }

    fn next(&mut self) -> Result<()> {
        match self {
            VersionSource::Memtable(cursor) => {
                cursor.next();
                Ok(())
            }
            VersionSource::Run(run) => {
                if let Some(cursor) = &mut run.current {
                    cursor.next()?;
                    if !cursor.valid() {
                        run.next_table()?;
                    }
                }
                Ok(())
            }
        }
    }

    fn valid(&self) -> bool {
        match self {
            VersionSource::Memtable(cursor) => cursor.valid(),
            VersionSource::Run(run) => run.current.is_some(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            VersionSource::Memtable(cursor) => cursor.key(),
            VersionSource::Run(run) => run.current.as_ref().map_or(&[], |cursor| cursor.key()),
        }
    }

    fn revision(&self) -> Revision {
        match self {
            VersionSource::Memtable(cursor) => cursor.revision(),
            VersionSource::Run(run) => run.current.as_ref().map_or(0, TableVersionCursor::revision),
        }
    }

    fn kind(&self) -> EntryKind {
        match self {
            VersionSource::Memtable(cursor) => cursor.kind(),
            VersionSource::Run(run) => run
                .current
                .as_ref()
                .map_or(EntryKind::Delete, TableVersionCursor::kind),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            VersionSource::Memtable(cursor) => cursor.value(),
            VersionSource::Run(run) => run.current.as_ref().map_or(&[], |cursor| cursor.value()),
        }
    }
}

impl RunVersions {
    fn next_table(&mut self) -> Result<()> {
        self.current = None;
        for table in self.tables.by_ref() {
            let mut cursor = table.version_cursor(self.use_cache);
            cursor.seek_first()?;
            if cursor.valid() {
                self.current = Some(cursor);
                break;
            }
        }
        Ok(())
    }
}

/// Merges sources: keys ascending, revisions descending. Of equal key and revision the first
/// (newest) source wins.
#[derive(Debug)]
pub struct VersionMerge {
    sources: Vec<VersionSource>,
    current: Option<usize>,
}

impl VersionMerge {
    /// Starts at the first version. Sources are given newest first.
    pub fn new(mut sources: Vec<VersionSource>) -> Result<VersionMerge> {
        for source in &mut sources {
            source.start()?;
        }
        let mut merge = VersionMerge {
            sources,
            current: None,
        };
        merge.choose();
        Ok(merge)
    }

    fn choose(&mut self) {
        let mut best: Option<usize> = None;
        for (at, source) in self
            .sources
            .iter()
            .enumerate()
            .filter(|(_, source)| source.valid())
        {
            let before = best.is_none_or(|best| {
                let best = &self.sources[best];
                (source.key(), std::cmp::Reverse(source.revision()))
                    < (best.key(), std::cmp::Reverse(best.revision()))
            });
            if before {
                best = Some(at);
            }
        }
        self.current = best;
    }

    /// Whether there is a version.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// The current version; `None` at the end.
    #[must_use]
    pub fn current(&self) -> Option<(&[u8], Revision, EntryKind, &[u8])> {
        let source = &self.sources[self.current?];
        Some((
            source.key(),
            source.revision(),
            source.kind(),
            source.value(),
        ))
    }

    /// Goes to the next version.
    pub fn advance(&mut self) -> Result<()> {
        let Some(current) = self.current else {
            return Ok(());
        };
        let (before, after) = self.sources.split_at_mut(current + 1);
        let current = &mut before[current];
        // Older sources that repeat this very version are passed over.
        for other in after {
            let same = other.valid()
                && other.revision() == current.revision()
                && other.key() == current.key();
            if same {
                other.next()?;
            }
        }
        current.next()?;
        self.choose();
        Ok(())
    }
}

/// What a merge writes, and where.
pub struct MergeOutput<'a> {
    /// The file system.
    pub vfs: &'a Arc<dyn Vfs>,
    /// Gives a fresh file id and the path that belongs to it.
    pub new_file: &'a mut dyn FnMut() -> (u64, PathBuf),
    /// The tree.
    pub tree: TreeId,
    /// The tables' format.
    pub options: &'a TableOptions,
    /// Where to cut tables, in bytes.
    pub table_bytes: u64,
    /// What must be kept.
    pub retention: &'a Retention,
    /// Whether nothing older exists below.
    pub bottom: bool,
    /// Set to give up.
    pub cancel: &'a AtomicBool,
}

/// Writes what `merge` yields and retention keeps as the tables of one run. On an error every
/// file written so far is removed again.
pub fn write_run(merge: &mut VersionMerge, mut output: MergeOutput<'_>) -> Result<Vec<TableMeta>> {
    let mut done: Vec<(TableMeta, PathBuf)> = Vec::new();
    let result = write_tables(merge, &mut output, &mut done);
    match result {
        Ok(()) => Ok(done.into_iter().map(|(meta, _)| meta).collect()),
        Err(error) => {
            for (_, path) in done {
                if let Err(cause) = output.vfs.remove_file(&path) {
                    tracing::warn!(path = %path.display(), %cause, "an unfinished table stays until the next open");
                }
            }
            Err(error)
        }
    }
}

fn write_tables(
    merge: &mut VersionMerge,
    output: &mut MergeOutput<'_>,
    done: &mut Vec<(TableMeta, PathBuf)>,
) -> Result<()> {
    let mut filter = KeyFilter::new(output.retention);
    let mut writer: Option<(TableWriter, PathBuf)> = None;
    let mut key = Vec::new();
    let mut is_first = true;
    let mut result = Ok(());
    while let Some((next_key, revision, kind, value)) = merge.current() {
        if output.cancel.load(Ordering::Relaxed) {
            result = Err(Error::Closed);
            break;
        }
        let is_new_key = is_first || next_key != key;
        if is_new_key {
            is_first = false;
            key.clear();
            key.extend_from_slice(next_key);
            filter.next_key();
        }
        if filter.keep(revision, kind, output.bottom) {
            // A key's versions stay in one table, so tables are cut only between keys.
            let full = is_new_key
                && writer
                    .as_ref()
                    .is_some_and(|(w, _)| w.written_bytes() >= output.table_bytes);
            result = (|| {
                if full {
                    finish(&mut writer, done)?;
                }
                if writer.is_none() {
                    let (file_id, path) = (output.new_file)();
                    let vfs = output.vfs;
                    let tree = output.tree;
                    let new =
                        TableWriter::create(vfs, path.clone(), file_id, tree, output.options)?;
                    writer = Some((new, path));
                }
                if let Some((writer, _)) = &mut writer {
                    writer.add(&key, revision, kind, value)?;
                }
                Ok(())
            })();
            if result.is_err() {
                break;
            }
        }
        result = merge.advance();
        if result.is_err() {
            break;
        }
    }
    match result {
        Ok(()) => finish(&mut writer, done),
        Err(error) => {
            if let Some((writer, _)) = writer {
                writer.abandon();
            }
            Err(error)
        }
    }
}

fn finish(
    writer: &mut Option<(TableWriter, PathBuf)>,
    done: &mut Vec<(TableMeta, PathBuf)>,
) -> Result<()> {
    if let Some((writer, path)) = writer.take() {
        let meta = writer.finish()?;
        done.push((meta, path));
    }
    Ok(())
}
