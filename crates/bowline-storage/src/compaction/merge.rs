//! The merge of versions: many sorted sources in, one sorted run out.
//!
//! Large values do not take part in it: a pointer into a blob file goes on to the next table as it
//! is, unless its file is to be emptied; a large value that comes without one gets one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::retention::{KeyFilter, Retention};
use crate::blob::{BlobMeta, BlobOptions, BlobPointer, BlobReader, BlobWriter};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::memtable::MemtableVersionCursor;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::{Table, TableMeta, TableOptions, TableVersionCursor, TableWriter};
use crate::version::{BlobReference, BlobReferences, Version};
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

    fn pointer(&self) -> Result<Option<BlobPointer>> {
        match self {
            VersionSource::Run(RunVersions {
                current: Some(cursor),
                ..
            }) => cursor.pointer(),
            _ => Ok(None),
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

    /// Where the current version's value is, when it lies in a blob file.
    pub fn pointer(&self) -> Result<Option<BlobPointer>> {
        match self.current {
            Some(current) => self.sources[current].pointer(),
            None => Ok(None),
        }
    }

    /// The current version; `None` at the end. Of a value in a blob file this has the head.
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
    /// Gives a fresh file id and the path that belongs to it as a table.
    pub new_file: &'a mut dyn FnMut() -> (u64, PathBuf),
    /// The same for a blob file.
    pub new_blob: &'a mut dyn FnMut() -> (u64, PathBuf),
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
    /// Which values go to blob files.
    pub blobs: &'a BlobOptions,
    /// Has the blob files that the sources refer to.
    pub version: &'a Version,
    /// The blob files that are to be emptied: no pointer into them goes on.
    pub emptied: &'a BTreeSet<u64>,
    /// Where what is read is counted.
    pub counters: &'a Counters,
}

/// The files of a run.
#[derive(Debug, Default)]
pub struct WrittenRun {
    /// The tables, in order.
    pub tables: Vec<TableMeta>,
    /// Those of them that refer to blob files, and to what.
    pub references: Vec<(u64, BlobReferences)>,
    /// The blob files that were made for them.
    pub blobs: Vec<BlobMeta>,
}

/// Writes what `merge` yields and retention keeps as the tables of one run. On an error every
/// file written so far is removed again.
pub fn write_run(merge: &mut VersionMerge, mut output: MergeOutput<'_>) -> Result<WrittenRun> {
    let mut done = Done::default();
    let result = write_tables(merge, &mut output, &mut done);
    match result {
        Ok(()) => Ok(done.run),
        Err(error) => {
            for path in done.paths {
                if let Err(cause) = output.vfs.remove_file(&path) {
                    tracing::warn!(path = %path.display(), %cause, "an unfinished table stays until the next open");
                }
            }
            Err(error)
        }
    }
}

/// What is finished of a run.
#[derive(Default)]
struct Done {
    run: WrittenRun,
    paths: Vec<PathBuf>,
}

/// A table that is being written.
struct OpenTable {
    writer: TableWriter,
    path: PathBuf,
    /// What it refers to so far.
    references: BTreeMap<u64, u64>,
}

fn write_tables(
    merge: &mut VersionMerge,
    output: &mut MergeOutput<'_>,
    done: &mut Done,
) -> Result<()> {
    let mut filter = KeyFilter::new(output.retention);
    let mut writer: Option<OpenTable> = None;
    let mut values = Values::default();
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
                    .is_some_and(|open| open.writer.written_bytes() >= output.table_bytes);
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
                    writer = Some(OpenTable {
                        writer: new,
                        path,
                        references: BTreeMap::new(),
                    });
                }
                if let Some(open) = &mut writer {
                    let version = (&key[..], revision, kind, value);
                    values.add(version, merge.pointer()?, open, output, done)?;
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
    let result = result.and_then(|()| values.finish(done));
    match result {
        Ok(()) => finish(&mut writer, done),
        Err(error) => {
            if let Some(open) = writer {
                open.writer.abandon();
            }
            Err(error)
        }
    }
}

/// Where the values of a merge go.
#[derive(Default)]
struct Values {
    writer: Option<(BlobWriter, PathBuf)>,
    reader: BlobReader,
}

impl Values {
    /// Adds a version to the table, and its value to where that belongs.
    fn add(
        &mut self,
        (key, revision, kind, value): (&[u8], Revision, EntryKind, &[u8]),
        pointer: Option<BlobPointer>,
        open: &mut OpenTable,
        output: &mut MergeOutput<'_>,
        done: &mut Done,
    ) -> Result<()> {
        let moved;
        let value = match pointer {
            Some(pointer) if output.emptied.contains(&pointer.file_id) => {
                let file = output.version.blob(&pointer, output.tree)?;
                let bytes_read = &output.counters.blob_compaction_bytes_read;
                moved = self
                    .reader
                    .read(file, &pointer, key, revision, bytes_read)?;
                &moved[..]
            }
            Some(pointer) => return open.add_pointer(key, revision, &pointer, value),
            None => value,
        };
        if kind != EntryKind::Put || !output.blobs.takes(value.len()) {
            return open.writer.add(key, revision, kind, value);
        }
        let is_full =
            |(writer, _): &(BlobWriter, PathBuf)| writer.written_bytes() >= output.blobs.file_bytes;
        if self.writer.as_ref().is_some_and(is_full) {
            self.finish(done)?;
        }
        let (writer, _) = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let (file_id, path) = (output.new_blob)();
                let (vfs, compression) = (output.vfs, output.options.compression);
                let new = BlobWriter::create(vfs, path.clone(), file_id, output.tree, compression)?;
                none.insert((new, path))
            }
        };
        let pointer = writer.add(key, revision, value)?;
        open.add_pointer(key, revision, &pointer, BlobPointer::head_of(value))
    }

    fn finish(&mut self, done: &mut Done) -> Result<()> {
        if let Some((writer, path)) = self.writer.take() {
            let meta = writer.finish()?;
            done.paths.push(path);
            done.run.blobs.push(meta);
        }
        Ok(())
    }
}

impl OpenTable {
    fn add_pointer(
        &mut self,
        key: &[u8],
        revision: Revision,
        pointer: &BlobPointer,
        head: &[u8],
    ) -> Result<()> {
        self.writer.add_pointer(key, revision, pointer, head)?;
        *self.references.entry(pointer.file_id).or_default() += pointer.record_bytes;
        Ok(())
    }
}

fn finish(writer: &mut Option<OpenTable>, done: &mut Done) -> Result<()> {
    if let Some(open) = writer.take() {
        let meta = open.writer.finish()?;
        done.paths.push(open.path);
        if !open.references.is_empty() {
            let references = open.references.into_iter();
            let references = references.map(|(file_id, bytes)| BlobReference { file_id, bytes });
            done.run
                .references
                .push((meta.file_id, references.collect()));
        }
        done.run.tables.push(meta);
    }
    Ok(())
}
