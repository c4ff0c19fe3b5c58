//! Range scans: a merge of the cursors of all sources.
//!
//! There is one cursor for each memtable and each run. A cursor yields at most one version per key, so
//! a key with many versions costs as much as a key with one. A value in a blob file is read only when
//! its version is the result, so a scan reads no value that a newer version hides.

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::found::Want;
use super::lookup::{is_after_start, is_before_end, load};
use super::super_version::SuperVersion;
use crate::blob::{BlobPointer, BlobReader, Loaded};
use crate::codec::prefix_of;
use crate::error::{Error, Result};
use crate::memtable::MemtableReadCursor;
use crate::table::TableReadCursor;
use crate::version::Run;
use crate::{EntryKind, Revision, TreeId, Value};

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDirection {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

impl ScanDirection {
    /// A number that is smaller for a key that comes earlier in this direction.
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

/// The present keys of a range at one revision, in order. It owns the super-version that it reads.
///
/// The sources are compared by *ranks*. The rank of a source is the first eight bytes of its current
/// key, as a number that is smaller for a key that comes earlier in the scan's direction. The ranks lie
/// side by side in memory, so finding the next key mostly touches neither the keys nor the sources.
///
/// Invariant: the rank of a source is that of its current key, or the largest number when the source is
/// exhausted. A smaller rank means an earlier key; for equal ranks the keys are compared.
#[derive(Debug)]
pub struct Scan {
    super_version: Arc<SuperVersion>,
    tree: TreeId,
    at: Revision,
    sources: Vec<Source>,
    /// One for each source.
    ranks: Vec<u64>,
    /// A key with a smaller rank is inside the range.
    rank_inside: u64,
    direction: ScanDirection,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    current: Option<usize>,
    is_started: bool,
    /// How much of each value is needed.
    want: Want,
    /// The current value, if it was in a blob file.
    loaded: Option<Loaded>,
    blobs: BlobReader,
    /// The error that every attempt to advance returns.
    refused: Option<Error>,
}

impl Scan {
    /// A scan that is positioned before its first key.
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
            blobs: BlobReader::cached(),
            refused: None,
        }
    }

    /// The super-version that it reads. Older versions of its keys can be read there.
    #[must_use]
    pub fn sources(&self) -> &SuperVersion {
        &self.super_version
    }

    /// Reads at most the first [`HEAD_BYTES`](crate::blob::HEAD_BYTES) of each large value.
    #[must_use]
    pub fn heads(self) -> Scan {
        self.wanting(Want::Head)
    }

    /// With an error, every attempt to advance returns it.
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
        .refused(self.refused.clone())
    }

    fn wanting(mut self, want: Want) -> Scan {
        self.want = want;
        self
    }

    /// Moves to the next present key; `false` at the end.
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
                    // After an error the scan has no position.
                    self.loaded = Some(value.inspect_err(|_| self.current = None)?);
                }
                return Ok(true);
            }
            self.step(current)?;
        }
    }

    /// Whether the current key of a source is inside the range.
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

    /// The current key, if the last [`Scan::advance`] returned `true`.
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

    /// The length of the stored bytes, also if only the head of the value was read.
    ///
    /// # Errors
    /// `Corruption` when the pointer to a large value is invalid.
    pub fn value_bytes(&self) -> Result<u64> {
        if let Some(loaded) = &self.loaded {
            return Ok(loaded.len() as u64);
        }
        let Some(source) = self.current.map(|current| &self.sources[current]) else {
            return Ok(0);
        };
        Ok(match source.pointer()? {
            Some(pointer) => pointer.value_bytes,
            None => source.value().len() as u64,
        })
    }

    /// A part of the stored bytes, as an owned value.
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
            loaded.slice_into(range, value);
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

    /// Finds the next key and the newest source that has it. Older sources with the same key are advanced.
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
                // Sources are ordered newest first, so `held` is the newer one.
                Ordering::Equal => self.step(at)?,
            }
        }
        self.current = best;
        Ok(())
    }

    /// The order of two current keys in the scan's direction.
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
