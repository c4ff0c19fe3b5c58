//! Reads of the keys with a prefix, for a reader that asks for one prefix after the other.
//!
//! A [`Scan`](super::Scan) can be kept and sent to another thread, so it owns its bounds and holds
//! references to all that it reads. That costs more than reading the few edges of a block. A
//! [`PrefixReader`] borrows the super-version, lends the keys alone, and keeps its cursors in tables from
//! one prefix to the next.
//!
//! A source that has no key with the prefix takes no part: mostly one source is left, and nothing is
//! compared. Several are merged by ranks as in a scan. Here the rank is of the eight bytes *behind* the
//! prefix, since all keys have the prefix in common.

use std::cmp::Ordering;

use super::super_version::SuperVersion;
use crate::codec::prefix_of;
use crate::error::{Error, Result};
use crate::memtable::PrefixCursor;
use crate::table::TableReadCursor;
use crate::version::Run;
use crate::{EntryKind, Revision, TreeId};

/// Reads the keys with a prefix in one tree at one revision. See the module's head.
pub struct PrefixReader<'a> {
    super_version: &'a SuperVersion,
    tree: TreeId,
    at: Revision,
    /// Newest first.
    runs: Vec<RunReader<'a>>,
    /// The sources that have a key with the prefix, newest first. Kept for its memory.
    merged: Vec<Ranked<'a>>,
}

impl std::fmt::Debug for PrefixReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixReader")
            .field("tree", &self.tree)
            .field("at", &self.at)
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}

/// A source, and the rank of its current key: a smaller one is of an earlier key, of equal ones the
/// keys have to be compared.
struct Ranked<'a> {
    rank: u64,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Memtable(PrefixCursor<'a>),
    /// The number of a run.
    Run(usize),
}

/// A place in a run. The cursor is kept when it is of no use, for a later prefix in the same table.
struct RunReader<'a> {
    run: &'a Run,
    /// The number of the cursor's table.
    table: usize,
    cursor: Option<TableReadCursor>,
}

impl SuperVersion {
    /// A reader of the keys with a prefix in `tree` at revision `at`, which was visible when this
    /// super-version was loaded.
    #[must_use]
    #[inline]
    pub fn prefix_reader(&self, tree: TreeId, at: Revision) -> PrefixReader<'_> {
        let mut runs = Vec::new();
        for level in &self.version.tree(tree).levels {
            for run in level {
                runs.push(RunReader {
                    run,
                    table: 0,
                    cursor: None,
                });
            }
        }
        PrefixReader {
            super_version: self,
            tree,
            at,
            runs,
            merged: Vec::new(),
        }
    }
}

impl<'a> PrefixReader<'a> {
    /// Calls `visit` with each present key that begins with `prefix`, in ascending order, while it
    /// returns `true`.
    #[inline]
    pub fn visit<E: From<Error>>(
        &mut self,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut first: Option<PrefixCursor<'a>> = None;
        self.merged.clear();
        for memtable in self.super_version.memtables() {
            let Some(cursor) = memtable.first_with_prefix(self.tree, prefix, self.at) else {
                continue;
            };
            if first.is_none() {
                first = Some(cursor);
            } else {
                self.add(prefix, Source::Memtable(cursor));
            }
        }
        for number in 0..self.runs.len() {
            if self.runs[number].seek(prefix, self.at)? {
                self.add(prefix, Source::Run(number));
            }
        }
        if self.merged.is_empty() {
            while let Some(cursor) = first {
                if cursor.kind() == EntryKind::Put && !visit(cursor.key())? {
                    break;
                }
                first = cursor.next(prefix, self.at);
            }
            return Ok(());
        }
        if let Some(first) = first {
            self.add(prefix, Source::Memtable(first));
            self.merged.rotate_right(1);
        }
        self.merge(prefix, &mut visit)
    }

    /// Adds a source behind the others.
    fn add(&mut self, prefix: &[u8], source: Source<'a>) {
        let rank = rank(source.key(&self.runs), prefix);
        self.merged.push(Ranked { rank, source });
    }

    fn merge<E: From<Error>>(
        &mut self,
        prefix: &[u8],
        visit: &mut impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        while !self.merged.is_empty() {
            let mut best = 0;
            let mut other = 1;
            while other < self.merged.len() {
                match self.compare(other, best) {
                    Ordering::Less => best = other,
                    Ordering::Greater => {}
                    // Sources are ordered newest first, so that of `best` is the newer one.
                    Ordering::Equal => {
                        if !self.step(other, prefix)? {
                            self.merged.remove(other);
                            continue;
                        }
                    }
                }
                other += 1;
            }
            let source = &self.merged[best].source;
            if source.kind(&self.runs) == EntryKind::Put && !visit(source.key(&self.runs))? {
                return Ok(());
            }
            if !self.step(best, prefix)? {
                self.merged.remove(best);
            }
        }
        Ok(())
    }

    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.merged[a], &self.merged[b]);
        let by_rank = a.rank.cmp(&b.rank);
        by_rank.then_with(|| a.source.key(&self.runs).cmp(b.source.key(&self.runs)))
    }

    /// Moves a source to its next key with the prefix; `false` when it has none.
    #[inline]
    fn step(&mut self, number: usize, prefix: &[u8]) -> Result<bool> {
        let ranked = &mut self.merged[number];
        match &mut ranked.source {
            Source::Memtable(cursor) => match cursor.next(prefix, self.at) {
                Some(next) => *cursor = next,
                None => return Ok(false),
            },
            Source::Run(run) => {
                if !self.runs[*run].next(prefix, self.at)? {
                    return Ok(false);
                }
            }
        }
        ranked.rank = rank(ranked.source.key(&self.runs), prefix);
        Ok(true)
    }
}

/// The rank of a key that begins with `prefix`.
#[inline]
fn rank(key: &[u8], prefix: &[u8]) -> u64 {
    prefix_of(&key[prefix.len()..])
}

impl Source<'_> {
    #[inline]
    fn key<'k>(&'k self, runs: &'k [RunReader<'_>]) -> &'k [u8] {
        match self {
            Source::Memtable(cursor) => cursor.key(),
            Source::Run(run) => runs[*run].cursor.as_ref().map_or(&[], TableReadCursor::key),
        }
    }

    #[inline]
    fn kind(&self, runs: &[RunReader<'_>]) -> EntryKind {
        match self {
            Source::Memtable(cursor) => cursor.kind(),
            Source::Run(run) => {
                let cursor = runs[*run].cursor.as_ref();
                cursor.map_or(EntryKind::Delete, TableReadCursor::kind)
            }
        }
    }
}

impl RunReader<'_> {
    /// Goes to the first key that begins with `prefix`; `false` when there is none.
    fn seek(&mut self, prefix: &[u8], at: Revision) -> Result<bool> {
        let tables = &self.run.tables;
        let first = match &tables[..] {
            [_] => 0,
            _ => tables.partition_point(|table| &table.meta().max_key[..] < prefix),
        };
        self.enter(first, prefix, at)
    }

    /// Goes to the first key that begins with `prefix` in the tables from `table` on.
    fn enter(&mut self, mut number: usize, prefix: &[u8], at: Revision) -> Result<bool> {
        while let Some(table) = self.run.tables.get(number) {
            let min_key = &table.meta().min_key[..];
            if min_key > prefix && !min_key.starts_with(prefix) {
                return Ok(false);
            }
            if self.table != number {
                self.cursor = None;
            }
            self.table = number;
            let cursor = self.cursor.get_or_insert_with(|| table.read_cursor(at));
            cursor.seek(prefix)?;
            if cursor.valid() {
                return Ok(cursor.key().starts_with(prefix));
            }
            number += 1;
        }
        Ok(false)
    }

    /// Goes to the next key that begins with `prefix`; `false` when there is none.
    #[inline]
    fn next(&mut self, prefix: &[u8], at: Revision) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(false);
        };
        cursor.next()?;
        if cursor.valid() {
            return Ok(cursor.key().starts_with(prefix));
        }
        self.enter(self.table + 1, prefix, at)
    }
}
