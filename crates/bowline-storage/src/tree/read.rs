//! Point reads and scans over memtables and tables.
//!
//! A point read asks the memtables, newest first, then one table per run, newest run first; the
//! first hit is the newest version, because every source is newer than the next. A scan merges one
//! cursor per source (see [`Scan`]); each yields at most one version per key, so a key with many versions costs
//! what a key with one costs.
//!
//! A value in a blob file is read when it is known to be the one that is wanted, so a scan reads
//! none that a newer version hides; and not at all by who looks at no more than its head.

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::super_version::SuperVersion;
use crate::blob::{BlobPointer, BlobReader};
use crate::codec::prefix_of;
use crate::error::{Error, Result};
use crate::memtable::{Entry, MemtableReadCursor};
use crate::table::{KeyHash, TableHit, TableReadCursor};
use crate::version::{Run, Version};
use crate::{EntryKind, Revision, TreeId, Value};

/// Takes a version: key, revision, kind, stored bytes. Returns whether to go on.
pub type VersionVisit<'a> = dyn FnMut(&[u8], Revision, EntryKind, &[u8]) -> bool + 'a;

/// How much of a value a reader looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Of one that lies in a blob file no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    Head,
    /// All of it.
    Whole,
}

/// A version found by a read.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its revision.
    pub revision: Revision,
    /// Put or tombstone.
    pub kind: EntryKind,
    value: Bytes<'a>,
    /// How long the value is, also when this has its head only.
    value_bytes: u64,
    sources: &'a SuperVersion,
}

#[derive(Debug)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    InTable(TableHit),
    Owned(Value),
}

impl<'a> Found<'a> {
    #[inline]
    fn in_memory(entry: Entry<'a>, sources: &'a SuperVersion) -> Found<'a> {
        Found {
            revision: entry.revision,
            kind: entry.kind,
            value: Bytes::Borrowed(entry.value),
            value_bytes: entry.value.len() as u64,
            sources,
        }
    }

    /// What it was read from: the versions below it are found there as they were when it was read.
    #[must_use]
    pub fn sources(&self) -> &SuperVersion {
        self.sources
    }

    /// How long the stored bytes are, also of a value whose head alone was read.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The stored bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.value {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::InTable(hit) => hit.value(),
            Bytes::Owned(value) => value,
        }
    }

    /// [`Found::slice`] into `value`.
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        match &self.value {
            Bytes::Borrowed(bytes) => value.assign(&bytes[range]),
            Bytes::InTable(hit) => hit.slice_into(range, value),
            Bytes::Owned(owned) => *value = owned.slice(range),
        }
    }

    /// A part of the stored bytes, owned.
    ///
    /// # Panics
    /// When `range` is not inside [`Found::bytes`].
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Value {
        match &self.value {
            Bytes::Borrowed(bytes) => Value::copy_from(&bytes[range]),
            Bytes::InTable(hit) => hit.slice(range),
            Bytes::Owned(value) => value.slice(range),
        }
    }
}

impl SuperVersion {
    /// Reads the newest version with a revision not above `at` (tombstones included) from the
    /// sources that may hold one above `above`, and hands it to `read`.
    #[inline]
    pub fn get<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        above: Revision,
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        for memtable in self.memtables() {
            if let Some(entry) = memtable.get(tree, key, at) {
                let found = Found::in_memory(entry, self);
                return Ok(read((found.revision > above).then_some(found)));
            }
        }
        self.get_from_tables(tree, key, at, above, want, read)
    }

    /// What the memtables say of a key's newest version not above `at`. `None` when they say nothing and
    /// a table might.
    #[inline]
    pub fn get_from_memtables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Option<R> {
        for memtable in self.memtables() {
            if let Some(entry) = memtable.get(tree, key, at) {
                return Some(read(Some(Found::in_memory(entry, self))));
            }
        }
        let mut runs = self.version.tree(tree).runs();
        match runs.any(|run| run.find(key).is_some()) {
            true => None,
            false => Some(read(None)),
        }
    }

    #[inline]
    fn get_from_tables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        above: Revision,
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let mut hash = None;
        for run in self.version.tree(tree).runs() {
            let Some(table) = run.find(key) else { continue };
            if above > 0 && table.meta().max_revision <= above {
                continue;
            }
            let hash = *hash.get_or_insert_with(|| KeyHash::of(key));
            if let Some(hit) = table.find(key, hash, at)? {
                let (revision, kind) = (hit.revision(), hit.kind());
                let mut value_bytes = hit.value().len() as u64;
                let mut value = Bytes::InTable(hit);
                if let Bytes::InTable(hit) = &value
                    && let Some(pointer) = hit.pointer()
                {
                    value_bytes = pointer.value_bytes;
                    if want == Want::Whole && revision > above {
                        let file = self.version.blob(pointer, tree)?;
                        value = Bytes::Owned(file.read(pointer, key, revision)?);
                    }
                }
                let found = Found {
                    revision,
                    kind,
                    value,
                    value_bytes,
                    sources: self,
                };
                return Ok(read((found.revision > above).then_some(found)));
            }
        }
        Ok(read(None))
    }

    /// Whether any key in the range has a version above `since`.
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> Result<bool> {
        for memtable in self.memtables() {
            if memtable.max_revision() > since && memtable.changed_since(tree, lower, upper, since)
            {
                return Ok(true);
            }
        }
        let mut changed = false;
        self.for_each_table_version(
            tree,
            lower,
            upper,
            (since + 1, Revision::MAX),
            Want::Head,
            &mut |_, _, _, _| {
                changed = true;
                false
            },
        )?;
        Ok(changed)
    }

    /// Visits every version of the range with a revision in `from..=to`, in no particular order
    /// over all; within a source by key, newest first. A version may be visited twice when it is
    /// in two sources. `visit` returns whether to go on.
    pub fn for_each_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        (from, to): (Revision, Revision),
        want: Want,
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        for memtable in self.memtables() {
            if memtable.is_empty() || memtable.max_revision() < from || memtable.min_revision() > to
            {
                continue;
            }
            let mut cursor = memtable.version_cursor(tree);
            match lower {
                Bound::Unbounded => cursor.seek_first(),
                Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key),
            }
            while cursor.valid() && is_before_end(cursor.key(), upper) {
                let inside = (from..=to).contains(&cursor.revision());
                if inside
                    && is_after_start(cursor.key(), lower)
                    && !visit(
                        cursor.key(),
                        cursor.revision(),
                        cursor.kind(),
                        cursor.value(),
                    )
                {
                    return Ok(());
                }
                cursor.next();
            }
        }
        self.for_each_table_version(tree, lower, upper, (from, to), want, visit)
    }

    fn for_each_table_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        (from, to): (Revision, Revision),
        want: Want,
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let mut blobs = BlobReader::default();
        for table in self.version.tree(tree).tables() {
            let meta = table.meta();
            if meta.max_revision < from
                || meta.min_revision > to
                || !is_before_end(&meta.min_key, upper)
                || !is_after_start(&meta.max_key, lower)
            {
                continue;
            }
            let mut cursor = table.version_cursor(true);
            match lower {
                Bound::Unbounded => cursor.seek_first()?,
                Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key)?,
            }
            while cursor.valid() && is_before_end(cursor.key(), upper) {
                let inside = (from..=to).contains(&cursor.revision());
                if inside && is_after_start(cursor.key(), lower) {
                    let (key, revision) = (cursor.key(), cursor.revision());
                    let loaded = match cursor.pointer()?.filter(|_| want == Want::Whole) {
                        Some(pointer) => Some(load(
                            &self.version,
                            tree,
                            &mut blobs,
                            &pointer,
                            key,
                            revision,
                        )?),
                        None => None,
                    };
                    let value = loaded.as_deref().unwrap_or(cursor.value());
                    if !visit(key, revision, cursor.kind(), value) {
                        return Ok(());
                    }
                }
                cursor.next()?;
            }
        }
        Ok(())
    }
}

/// The value of an entry, for who reads many.
fn load(
    version: &Version,
    tree: TreeId,
    blobs: &mut BlobReader,
    pointer: &BlobPointer,
    key: &[u8],
    revision: Revision,
) -> Result<Value> {
    let file = version.blob(pointer, tree)?;
    blobs.read(file, pointer, key, revision, file.bytes_read())
}

fn is_before_end(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    }
}

fn is_after_start(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    }
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDirection {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

impl ScanDirection {
    /// A number that is smaller the earlier the key comes.
    #[inline]
    fn rank(self, key: &[u8]) -> u64 {
        match self {
            ScanDirection::Forward => prefix_of(key),
            ScanDirection::Backward => !prefix_of(key),
        }
    }
}

/// One sorted source of a scan.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a scan has few; a box would cost at every step"
)]
enum Source {
    Memtable(MemtableReadCursor),
    Run(RunCursor),
}

#[derive(Debug)]
struct RunCursor {
    run: Arc<Run>,
    at: Revision,
    index: usize,
    cursor: Option<TableReadCursor>,
}

/// The present keys of a range at one revision, in order. Owns what it reads from.
///
/// The sources are compared by *ranks*: the first eight bytes of the key where each stands, as a
/// number that is smaller for a key that comes earlier in the scan's direction. They lie side by
/// side, so that mostly neither a key nor the source that has it is touched to find the next one.
///
/// Invariant: a rank is that of the key its source stands on, or the largest one where it has
/// come to its end. A smaller rank is an earlier key; of equal ones the keys are compared.
#[derive(Debug)]
pub struct Scan {
    super_version: Arc<SuperVersion>,
    tree: TreeId,
    at: Revision,
    sources: Vec<Source>,
    /// One for each source.
    ranks: Vec<u64>,
    /// Keys of a smaller rank are inside the range.
    rank_inside: u64,
    direction: ScanDirection,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    current: Option<usize>,
    is_started: bool,
    /// How much of the values is looked at.
    want: Want,
    /// The value, when it was in a blob file.
    loaded: Option<Value>,
    blobs: BlobReader,
    /// Why it does not even begin.
    refused: Option<Error>,
}

impl Scan {
    /// A scan that stands before its first key.
    #[must_use]
    pub fn new(
        super_version: Arc<SuperVersion>,
        tree: TreeId,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        at: Revision,
        direction: ScanDirection,
    ) -> Scan {
        let mut sources = Vec::new();
        for memtable in super_version.memtables() {
            if memtable.tree_entries(tree) > 0 {
                sources.push(Source::Memtable(memtable.read_cursor(tree, at)));
            }
        }
        for run in super_version.version.tree(tree).runs() {
            let outside = run.key_bounds().is_none_or(|(first, last)| {
                !is_before_end(first, as_slice(&upper)) || !is_after_start(last, as_slice(&lower))
            });
            if !outside {
                let run = run.clone();
                sources.push(Source::Run(RunCursor {
                    run,
                    at,
                    index: 0,
                    cursor: None,
                }));
            }
        }
        let end = match direction {
            ScanDirection::Forward => &upper,
            ScanDirection::Backward => &lower,
        };
        let rank_inside = match end {
            Bound::Unbounded => u64::MAX,
            Bound::Included(key) | Bound::Excluded(key) => direction.rank(key),
        };
        Scan {
            super_version,
            tree,
            at,
            ranks: vec![u64::MAX; sources.len()],
            rank_inside,
            sources,
            direction,
            lower,
            upper,
            current: None,
            is_started: false,
            want: Want::Whole,
            loaded: None,
            blobs: BlobReader::default(),
            refused: None,
        }
    }

    /// What it reads from: the versions below those it yields are found there.
    #[must_use]
    pub fn sources(&self) -> &SuperVersion {
        &self.super_version
    }

    /// Reads of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[must_use]
    pub fn heads(self) -> Scan {
        self.wanting(Want::Head)
    }

    /// With an error, every attempt to advance gives it.
    pub(super) fn refused(mut self, refused: Option<Error>) -> Scan {
        self.refused = refused;
        self
    }

    /// A scan of the same range, tree and revision in the other direction, from its start.
    #[must_use]
    pub fn opposite(&self) -> Scan {
        let direction = match self.direction {
            ScanDirection::Forward => ScanDirection::Backward,
            ScanDirection::Backward => ScanDirection::Forward,
        };
        let (lower, upper) = (self.lower.clone(), self.upper.clone());
        Scan::new(
            self.super_version.clone(),
            self.tree,
            lower,
            upper,
            self.at,
            direction,
        )
        .wanting(self.want)
    }

    fn wanting(mut self, want: Want) -> Scan {
        self.want = want;
        self
    }

    /// Goes to the next present key; `false` at the end.
    pub fn advance(&mut self) -> Result<bool> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        self.loaded = None;
        if !self.is_started {
            self.is_started = true;
            self.start()?;
        } else if let Some(current) = self.current {
            self.step(current)?;
        } else {
            return Ok(false);
        }
        loop {
            self.choose()?;
            let Some(current) = self.current else {
                return Ok(false);
            };
            if !self.is_inside(current) {
                self.current = None;
                return Ok(false);
            }
            let source = &self.sources[current];
            if source.kind() == EntryKind::Put {
                if self.want == Want::Whole
                    && let Some(pointer) = source.pointer()?
                {
                    let (version, blobs) = (&self.super_version.version, &mut self.blobs);
                    let (key, revision) = (source.key(), source.revision());
                    let value = load(version, self.tree, blobs, &pointer, key, revision);
                    // After an error it is nowhere.
                    self.loaded = Some(value.inspect_err(|_| self.current = None)?);
                }
                return Ok(true);
            }
            self.step(current)?;
        }
    }

    /// Whether the key where a source stands is inside the range.
    #[inline]
    fn is_inside(&self, at: usize) -> bool {
        if self.ranks[at] < self.rank_inside {
            return true;
        }
        let key = self.sources[at].key();
        match self.direction {
            ScanDirection::Forward => is_before_end(key, as_slice(&self.upper)),
            ScanDirection::Backward => is_after_start(key, as_slice(&self.lower)),
        }
    }

    /// The key it stands on: that of the last [`Scan::advance`], if that returned `true`.
    #[must_use]
    #[inline]
    pub fn position(&self) -> Option<&[u8]> {
        self.current.map(|current| self.sources[current].key())
    }

    /// The key. Call only after [`Scan::advance`] returned `true`.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.current
            .map_or(&[], |current| self.sources[current].key())
    }

    /// The revision of the value.
    #[must_use]
    #[inline]
    pub fn revision(&self) -> Revision {
        self.current
            .map_or(0, |current| self.sources[current].revision())
    }

    /// The stored bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if let Some(loaded) = &self.loaded {
            return loaded;
        }
        self.current
            .map_or(&[], |current| self.sources[current].value())
    }

    /// A part of the stored bytes, owned.
    ///
    /// # Panics
    /// When `range` is not inside [`Scan::bytes`].
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Value {
        let mut value = Value::EMPTY;
        self.slice_into(range, &mut value);
        value
    }

    /// Sets `value` to a part of the stored bytes.
    ///
    /// # Panics
    /// When `range` is not inside [`Scan::bytes`].
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        if let Some(loaded) = &self.loaded {
            *value = loaded.slice(range);
            return;
        }
        match self.current.map(|current| &self.sources[current]) {
            Some(Source::Run(RunCursor {
                cursor: Some(cursor),
                ..
            })) => cursor.slice_into(range, value),
            _ => value.assign(&self.bytes()[range]),
        }
    }

    #[inline]
    fn step(&mut self, at: usize) -> Result<()> {
        let source = &mut self.sources[at];
        let stepped = source.step(self.direction);
        self.ranks[at] = source.rank(self.direction);
        stepped
    }

    fn start(&mut self) -> Result<()> {
        for (source, rank) in self.sources.iter_mut().zip(&mut self.ranks) {
            match (self.direction, &self.lower, &self.upper) {
                (ScanDirection::Forward, Bound::Unbounded, _) => source.seek_first()?,
                (ScanDirection::Forward, Bound::Included(key), _) => source.seek(key)?,
                (ScanDirection::Forward, Bound::Excluded(key), _) => {
                    source.seek(key)?;
                    if source.valid() && source.key() == &key[..] {
                        source.step(ScanDirection::Forward)?;
                    }
                }
                (ScanDirection::Backward, _, Bound::Unbounded) => source.seek_last()?,
                (ScanDirection::Backward, _, Bound::Excluded(key)) => source.seek_before(key)?,
                (ScanDirection::Backward, _, Bound::Included(key)) => {
                    // The keys before key + "\0" are the keys up to and including key.
                    let mut successor = key.clone();
                    successor.push(0);
                    source.seek_before(&successor)?;
                }
            }
            *rank = source.rank(self.direction);
        }
        Ok(())
    }

    /// Finds the next key and the newest source that has it; older sources step past it.
    #[inline]
    fn choose(&mut self) -> Result<()> {
        let mut best: Option<usize> = None;
        for at in 0..self.sources.len() {
            let rank = self.ranks[at];
            let Some(held) = best else {
                best = self.sources[at].valid().then_some(at);
                continue;
            };
            let ordering = match rank.cmp(&self.ranks[held]) {
                Ordering::Equal if !self.sources[at].valid() => Ordering::Greater,
                Ordering::Equal => self.compare(at, held),
                ordering => ordering,
            };
            match ordering {
                Ordering::Less => best = Some(at),
                Ordering::Greater => {}
                // Sources are newest first, so the one held is the newer.
                Ordering::Equal => self.step(at)?,
            }
        }
        self.current = best;
        Ok(())
    }

    /// Which of two keys comes first.
    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let ordering = self.sources[a].key().cmp(self.sources[b].key());
        match self.direction {
            ScanDirection::Forward => ordering,
            ScanDirection::Backward => ordering.reverse(),
        }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

impl Source {
    #[inline]
    fn rank(&self, direction: ScanDirection) -> u64 {
        if self.valid() {
            direction.rank(self.key())
        } else {
            u64::MAX
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        match self {
            Source::Memtable(cursor) => cursor.valid(),
            Source::Run(run) => run.cursor.is_some(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Source::Memtable(cursor) => cursor.key(),
            Source::Run(run) => run.cursor.as_ref().map_or(&[], |cursor| cursor.key()),
        }
    }

    #[inline]
    fn revision(&self) -> Revision {
        match self {
            Source::Memtable(cursor) => cursor.revision(),
            Source::Run(run) => run.cursor.as_ref().map_or(0, TableReadCursor::revision),
        }
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        match self {
            Source::Memtable(cursor) => cursor.kind(),
            Source::Run(run) => run
                .cursor
                .as_ref()
                .map_or(EntryKind::Delete, TableReadCursor::kind),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self {
            Source::Memtable(cursor) => cursor.value(),
            Source::Run(run) => run.cursor.as_ref().map_or(&[], |cursor| cursor.value()),
        }
    }

    #[inline]
    fn pointer(&self) -> Result<Option<BlobPointer>> {
        match self {
            Source::Run(RunCursor {
                cursor: Some(cursor),
                ..
            }) => cursor.pointer(),
            _ => Ok(None),
        }
    }

    #[inline]
    fn step(&mut self, direction: ScanDirection) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                match direction {
                    ScanDirection::Forward => cursor.next(),
                    ScanDirection::Backward => cursor.prev(),
                }
                Ok(())
            }
            Source::Run(run) => run.step(direction),
        }
    }

    fn seek_first(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek_first();
                Ok(())
            }
            Source::Run(run) => run.enter_first(0),
        }
    }

    fn seek_last(&mut self) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek_last();
                Ok(())
            }
            Source::Run(run) => run.enter_last(run.run.tables.len()),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek(key);
                Ok(())
            }
            Source::Run(run) => run.seek(key),
        }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Source::Memtable(cursor) => {
                cursor.seek_before(key);
                Ok(())
            }
            Source::Run(run) => run.seek_before(key),
        }
    }
}

impl RunCursor {
    /// Enters the first table from `from` on that has a key, at its first key.
    fn enter_first(&mut self, from: usize) -> Result<()> {
        self.cursor = None;
        for index in from..self.run.tables.len() {
            let mut cursor = self.run.tables[index].read_cursor(self.at);
            cursor.seek_first()?;
            if cursor.valid() {
                (self.index, self.cursor) = (index, Some(cursor));
                break;
            }
        }
        Ok(())
    }

    /// Enters the last table before `end` that has a key, at its last key.
    fn enter_last(&mut self, end: usize) -> Result<()> {
        self.cursor = None;
        for index in (0..end).rev() {
            let mut cursor = self.run.tables[index].read_cursor(self.at);
            cursor.seek_last()?;
            if cursor.valid() {
                (self.index, self.cursor) = (index, Some(cursor));
                break;
            }
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor = None;
        let index = self
            .run
            .tables
            .partition_point(|table| &table.meta().max_key[..] < key);
        let Some(table) = self.run.tables.get(index) else {
            return Ok(());
        };
        let mut cursor = table.read_cursor(self.at);
        cursor.seek(key)?;
        if cursor.valid() {
            (self.index, self.cursor) = (index, Some(cursor));
            return Ok(());
        }
        self.enter_first(index + 1)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.cursor = None;
        let end = self
            .run
            .tables
            .partition_point(|table| &table.meta().min_key[..] < key);
        let Some(index) = end.checked_sub(1) else {
            return Ok(());
        };
        let mut cursor = self.run.tables[index].read_cursor(self.at);
        cursor.seek_before(key)?;
        if cursor.valid() {
            (self.index, self.cursor) = (index, Some(cursor));
            return Ok(());
        }
        self.enter_last(index)
    }

    #[inline]
    fn step(&mut self, direction: ScanDirection) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        let stepped = match direction {
            ScanDirection::Forward => cursor.next(),
            ScanDirection::Backward => cursor.prev(),
        };
        if cursor.valid() {
            return Ok(());
        }
        if stepped.is_err() {
            self.cursor = None;
            return stepped;
        }
        match direction {
            ScanDirection::Forward => self.enter_first(self.index + 1),
            ScanDirection::Backward => self.enter_last(self.index),
        }
    }
}
