//! The merge: from many sorted sources of versions to one sorted run.
//!
//! Pointers into blob files are copied unchanged, unless the blob file is being collected. A large value
//! that is not in a blob file yet is written to one. Operands are applied to the version below them
//! (`compaction/operands.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::operands::{MergeOperator, Pending};
use super::ranges::KeyRange;
use super::retention::{KeyFilter, Retention};
use crate::blob::{BlobOptions, BlobPointer, BlobReader, BlobWriter};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::memtable::MemtableVersionCursor;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::{Table, TableOptions, TableVersionCursor, TableWriter};
use crate::version::{BlobReference, Version, WrittenRun};
use crate::vfs::Vfs;
use crate::{EntryKind, Revision, TreeId};

/// One sorted source of versions.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a merge has few; a box would cost at every step"
)]
pub(crate) enum VersionSource {
    /// A memtable's versions of one tree.
    Memtable(MemtableVersionCursor),
    /// A run's versions, table after table.
    Run(RunVersions),
}

/// The versions of a run, or of a range of it.
#[derive(Debug)]
pub(crate) struct RunVersions {
    tables: std::vec::IntoIter<Arc<Table>>,
    current: Option<TableVersionCursor>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl VersionSource {
    /// The versions of one run in a range. Reads bypass the page cache.
    pub fn run(mut tables: Vec<Arc<Table>>, range: KeyRange<'_>) -> VersionSource {
        tables.retain(|table| range.meets(&table.meta().min_key, &table.meta().max_key));
        VersionSource::Run(RunVersions {
            tables: tables.into_iter(),
            current: None,
            lower: range.lower.map(<[u8]>::to_vec),
            upper: range.upper.map(<[u8]>::to_vec),
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
                    } else if run
                        .upper
                        .as_ref()
                        .is_some_and(|upper| cursor.key() >= &upper[..])
                    {
                        run.current = None;
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
            let mut cursor = table.version_cursor(false);
            // Only the first has anything before the range.
            match self.lower.take() {
                Some(lower) => cursor.seek(&lower)?,
                None => cursor.seek_first()?,
            }
            if !cursor.valid() {
                continue;
            }
            let ends_before = |upper: &Vec<u8>| cursor.key() >= &upper[..];
            if !self.upper.as_ref().is_some_and(ends_before) {
                self.current = Some(cursor);
            }
            break;
        }
        Ok(())
    }
}

/// Merges sources: keys ascending, revisions descending. Of equal key and revision the first
/// (newest) source wins.
#[derive(Debug)]
pub struct VersionMerge {
    sources: Vec<VersionSource>,
    /// The sources that have a version, by it, and of equal ones the newest first. A merge has few
    /// of them, and mostly the one that went on stays in front: then a step is one comparison.
    order: Vec<usize>,
}

impl VersionMerge {
    /// Starts at the first version. Sources are given newest first.
    pub(crate) fn new(mut sources: Vec<VersionSource>) -> Result<VersionMerge> {
        for source in &mut sources {
            source.start()?;
        }
        let mut merge = VersionMerge {
            order: Vec::with_capacity(sources.len()),
            sources,
        };
        for number in (0..merge.sources.len()).rev() {
            merge.order.insert(0, number);
            merge.settle(0);
        }
        Ok(merge)
    }

    /// Puts the source at `position` of the order where it belongs; those behind it are in order.
    fn settle(&mut self, position: usize) {
        let number = self.order[position];
        let source = &self.sources[number];
        if !source.valid() {
            self.order.remove(position);
            return;
        }
        let (key, revision) = (source.key(), source.revision());
        let mut at = position;
        while let Some(&other) = self.order.get(at + 1) {
            let next = &self.sources[other];
            let stays = match key.cmp(next.key()) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                // The newer version first, and of the same one the newer source.
                std::cmp::Ordering::Equal => (next.revision(), number) < (revision, other),
            };
            if stays {
                break;
            }
            self.order[at] = other;
            at += 1;
        }
        self.order[at] = number;
    }

    /// Whether there is a version.
    #[must_use]
    pub fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    /// Where the current version's value is, when it lies in a blob file.
    pub(crate) fn pointer(&self) -> Result<Option<BlobPointer>> {
        match self.order.first() {
            Some(&current) => self.sources[current].pointer(),
            None => Ok(None),
        }
    }

    /// The current version; `None` at the end. Of a value in a blob file this has the head.
    #[must_use]
    pub fn current(&self) -> Option<(&[u8], Revision, EntryKind, &[u8])> {
        let source = &self.sources[*self.order.first()?];
        Some((
            source.key(),
            source.revision(),
            source.kind(),
            source.value(),
        ))
    }

    /// Goes to the next version.
    pub fn advance(&mut self) -> Result<()> {
        let Some(&current) = self.order.first() else {
            return Ok(());
        };
        // Older sources that repeat this very version are passed over.
        while let Some(&other) = self.order.get(1) {
            let (first, second) = (&self.sources[current], &self.sources[other]);
            if first.revision() != second.revision() || first.key() != second.key() {
                break;
            }
            self.sources[other].next()?;
            self.settle(1);
        }
        self.sources[current].next()?;
        self.settle(0);
        Ok(())
    }
}

/// How and where a merge writes its output.
pub(crate) struct MergeOutput<'a> {
    /// The file system.
    pub vfs: &'a Arc<dyn Vfs>,
    /// Returns the id and the path of a new table.
    pub new_file: &'a dyn Fn() -> (u64, PathBuf),
    /// Returns the id and the path of a new blob file.
    pub new_blob: &'a dyn Fn() -> (u64, PathBuf),
    /// The tree.
    pub tree: TreeId,
    /// The tables' format.
    pub options: &'a TableOptions,
    /// The size at which a table is finished, in bytes.
    pub table_bytes: u64,
    /// What must be kept.
    pub retention: &'a Retention,
    /// Whether the tree has nothing older below the output.
    pub bottom: bool,
    /// The merge is cancelled when any of them is set.
    pub cancel: [&'a AtomicBool; 2],
    /// Which values go to blob files.
    pub blobs: &'a BlobOptions,
    /// The version that has the blob files of the sources.
    pub version: &'a Version,
    /// The blob files that are being collected: no pointer into them is copied.
    pub emptied: &'a BTreeSet<u64>,
    /// Applies the operands among the values, if there may be any.
    pub operator: Option<&'a dyn MergeOperator>,
    /// Counts the bytes read.
    pub counters: &'a Counters,
}

/// Writes the versions that `merge` yields and the retention keeps as the tables of one run. On an error
/// every file written so far is removed again.
pub(crate) fn write_run(merge: &mut VersionMerge, output: &MergeOutput<'_>) -> Result<WrittenRun> {
    let mut done = Done::default();
    let result = write_tables(merge, output, &mut done);
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

/// The finished part of a run.
#[derive(Default)]
struct Done {
    run: WrittenRun,
    paths: Vec<PathBuf>,
}

/// A table that is being written.
struct OpenTable {
    writer: TableWriter,
    path: PathBuf,
    /// The bytes of blob files that it refers to so far.
    references: BTreeMap<u64, u64>,
}

fn write_tables(merge: &mut VersionMerge, output: &MergeOutput<'_>, done: &mut Done) -> Result<()> {
    let mut sink = VersionSink {
        output,
        done,
        writer: None,
        values: Values::default(),
        begins_key: true,
    };
    let written = write_versions(merge, output, &mut sink);
    let written = written.and_then(|()| sink.values.finish(sink.done));
    match written {
        Ok(()) => finish(&mut sink.writer, sink.done),
        Err(error) => {
            if let Some(open) = sink.writer {
                open.writer.abandon();
            }
            Err(error)
        }
    }
}

fn write_versions(
    merge: &mut VersionMerge,
    output: &MergeOutput<'_>,
    sink: &mut VersionSink<'_, '_>,
) -> Result<()> {
    let mut filter = KeyFilter::new(output.retention);
    let mut pending = Pending::new(output.operator);
    let mut key = Vec::new();
    let mut is_first = true;
    while let Some((next_key, revision, kind, value)) = merge.current() {
        if output
            .cancel
            .iter()
            .any(|flag| flag.load(Ordering::Relaxed))
        {
            return Err(Error::Closed);
        }
        if is_first || next_key != key {
            pending.end_key(&key, output.bottom, sink)?;
            is_first = false;
            key.clear();
            key.extend_from_slice(next_key);
            filter.next_key();
            sink.begins_key = true;
        }
        let is_kept = filter.keep(revision, kind, output.bottom);
        pending.meets(&key, (revision, kind, value), !is_kept, sink)?;
        if is_kept && !pending.takes(revision, kind, value) {
            sink.add((&key, revision, kind, value), merge.pointer()?)?;
        }
        merge.advance()?;
    }
    pending.end_key(&key, output.bottom, sink)
}

/// Takes the versions of a run in order, and cuts it into tables.
pub(super) struct VersionSink<'a, 'b> {
    output: &'a MergeOutput<'b>,
    done: &'a mut Done,
    writer: Option<OpenTable>,
    values: Values,
    /// Whether the next version is the first of its key. All of a key are in one table, so tables are
    /// cut only there.
    begins_key: bool,
}

impl VersionSink<'_, '_> {
    pub(super) fn add(
        &mut self,
        version: (&[u8], Revision, EntryKind, &[u8]),
        pointer: Option<BlobPointer>,
    ) -> Result<()> {
        let output = self.output;
        let is_full = |open: &OpenTable| open.writer.written_bytes() >= output.table_bytes;
        if std::mem::take(&mut self.begins_key) && self.writer.as_ref().is_some_and(is_full) {
            finish(&mut self.writer, self.done)?;
        }
        let open = match &mut self.writer {
            Some(open) => open,
            none => {
                let (file_id, path) = (output.new_file)();
                let (vfs, tree) = (output.vfs, output.tree);
                let new = TableWriter::create(vfs, path.clone(), file_id, tree, output.options)?;
                none.insert(OpenTable {
                    writer: new,
                    path,
                    references: BTreeMap::new(),
                })
            }
        };
        self.values.add(version, pointer, open, output, self.done)
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
        output: &MergeOutput<'_>,
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
        // An operand is needed whole until it is complete.
        let is_operand = || {
            output
                .operator
                .is_some_and(|operator| operator.is_operand(value))
        };
        if kind != EntryKind::Put || !output.blobs.takes(value.len()) || is_operand() {
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
