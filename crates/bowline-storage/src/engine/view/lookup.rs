//! Point reads and visits of versions over memtables and tables.
//!
//! A point read asks the memtables, newest first, then one table per run, newest run first. The first
//! hit is the newest version, because every source is newer than the next one.
//!
//! A value in a blob file is read only when its version is known to be the result, and not at all for a
//! reader that needs only its head.

use std::ops::{Bound, ControlFlow};

use smallvec::SmallVec;

use super::found::{Bytes, Found, Next, VersionVisit, Want};
use super::super_version::SuperVersion;
use crate::blob::{BlobPointer, BlobReader, Loaded};
use crate::error::Result;
use crate::memtable::Tag;
use crate::table::KeyHash;
use crate::version::Version;
use crate::{Revision, TreeId};

/// Keys that are looked up together. The lines of their records fill a part of the processor's first cache.
const TOGETHER: usize = 64;

impl SuperVersion {
    /// Reads the newest version with a revision not above `at` (tombstones included) from the
    /// sources that may hold one above `above`, and passes it to `read`.
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

    /// Reads the newest version not above `at` (tombstones included) of each of some keys, and passes it to `read` with
    /// the key's position. What is in memory comes first; there is no order beyond that.
    ///
    /// The keys are read in groups. For each memtable the slots of a whole group are asked for, then the records, and
    /// then the keys are looked up, whose memory is near by now: the waits of a group overlap.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: TreeId,
        keys: &[K],
        at: Revision,
        want: Want,
        mut read: impl FnMut(usize, Option<Found<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        for (group, keys) in keys.chunks(TOGETHER).enumerate() {
            let first = group * TOGETHER;
            let mut left: SmallVec<[(usize, Tag); TOGETHER]> = keys
                .iter()
                .map(|key| Tag::of(key.as_ref()))
                .enumerate()
                .collect();
            let mut goes_on = ControlFlow::Continue(());
            for memtable in self.memtables() {
                memtable.look_ahead(tree, left.iter().map(|(_, tag)| *tag));
                left.retain(|&mut (place, tag)| {
                    if goes_on.is_break() {
                        return true;
                    }
                    let key = keys[place].as_ref();
                    let entry = memtable.get_tagged(tree, key, tag, at);
                    if let Some(entry) = entry {
                        goes_on = read(first + place, Some(Found::in_memory(entry, self)));
                    }
                    entry.is_none()
                });
                if left.is_empty() || goes_on.is_break() {
                    break;
                }
            }
            for (place, _) in left {
                if goes_on.is_break() {
                    return Ok(());
                }
                let key = keys[place].as_ref();
                goes_on = self
                    .get_from_tables(tree, key, at, 0, want, |found| read(first + place, found))?;
            }
            if goes_on.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks for the memory that reads of these keys will need first, in the newest memtable.
    pub(crate) fn look_ahead<K: AsRef<[u8]>>(&self, tree: TreeId, keys: impl Iterator<Item = K>) {
        let tags = keys.take(TOGETHER).map(|key| Tag::of(key.as_ref()));
        let tags: SmallVec<[Tag; TOGETHER]> = tags.collect();
        if tags.len() > 1 {
            self.active.look_ahead(tree, tags.iter().copied());
        }
    }

    /// Reads the newest version not above `at` from the memtables. `None` when they have none and a
    /// table may have one.
    #[inline]
    pub(crate) fn get_from_memtables<R>(
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
        // Nested loops, because the flattened iterator of `runs` costs more per empty level.
        for level in &self.version.tree(tree).levels {
            for run in level {
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
                            value = Bytes::Loaded(file.read(pointer, key, revision)?);
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
                Next::Nothing
            },
        )?;
        Ok(changed)
    }

    /// Visits every version of the range with a revision in `from..=to`. Within a source the order is
    /// by key, newest version first; there is no order among sources. A version that is in two sources
    /// is visited twice. `visit` returns which of the others it needs: large values of the rest are not read.
    pub fn for_each_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        (from, mut to): (Revision, Revision),
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
                if inside && is_after_start(cursor.key(), lower) {
                    let (key, revision) = (cursor.key(), cursor.revision());
                    match visit(key, revision, cursor.kind(), cursor.value()) {
                        Next::All => {}
                        Next::UpTo(revision) => to = revision,
                        Next::Nothing => return Ok(()),
                    }
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
        (from, mut to): (Revision, Revision),
        want: Want,
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let mut blobs = BlobReader::cached();
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
                    match visit(key, revision, cursor.kind(), value) {
                        Next::All => {}
                        Next::UpTo(revision) => to = revision,
                        Next::Nothing => return Ok(()),
                    }
                }
                cursor.next()?;
            }
        }
        Ok(())
    }
}

/// The value of an entry in a blob file, for a reader that reads many.
pub(super) fn load(
    version: &Version,
    tree: TreeId,
    blobs: &mut BlobReader,
    pointer: &BlobPointer,
    key: &[u8],
    revision: Revision,
) -> Result<Loaded> {
    let file = version.blob(pointer, tree)?;
    blobs.read(file, pointer, key, revision, file.bytes_read())
}

pub(super) fn is_before_end(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    }
}

pub(super) fn is_after_start(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    }
}
