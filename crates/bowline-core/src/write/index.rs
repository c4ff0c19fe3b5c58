//! The entries of indexes as writes of records.
//!
//! | write | entries |
//! |---|---|
//! | of a block | of each index: that of the record before, if it is another one, is deleted; that of the new record is put |
//! | of entries by the builder of an index | that of the newest record of each block that it has found |
//!
//! Both are decided against the newest state, in the order of commits, and written in the commit that they belong to.
//!
//! Invariants:
//!
//! - An entry is in an index only if the block's newest record has it. It is there if that record does, unless the index is
//!   being built, and its builder has not looked at the block since it was registered.
//! - In a unique index no two entries have the same values.

use std::sync::Arc;

use bowline_storage::engine::{Engine, Found};
use bowline_storage::{EntryKind, TreeId};
use bowline_types::{BlockId, Revision};
use smallvec::SmallVec;

use super::lookup::{Lookup, Newest};
use super::writer::{Journal, Writer};
use crate::error::Result;
use crate::index::{Definition, IndexSet, block_of_entry};
use crate::trees;

/// The entry of one block in each of the indexes that are kept.
pub type Entries = SmallVec<[Option<Vec<u8>>; 2]>;

/// Told of an index, and of the entry of a block in it before a write and after it.
pub type OnChange<'a> = dyn FnMut(&Arc<Definition>, Option<&[u8]>, Option<Vec<u8>>) + 'a;

/// The entries of a block with this record.
#[must_use]
pub fn entries(set: &IndexSet, block_key: &[u8], record: Option<&[u8]>) -> Entries {
    let entry = |index: &Arc<Definition>| index.entry(block_key, record?);
    set.kept.iter().map(entry).collect()
}

/// The entry of a block in one index, by its newest record.
pub fn newest_entry(
    engine: &Engine,
    index: &Definition,
    block_key: &[u8],
) -> Result<Option<Vec<u8>>> {
    Ok(engine.read_since(trees::BLOCK, block_key, 0, |found| {
        let put = found.filter(|found| found.kind == EntryKind::Put)?;
        index.entry(block_key, put.bytes())
    })?)
}

/// The entries of a block before a write, looked up ahead of the decision at `at`.
#[derive(Debug, Clone)]
pub struct Before {
    entries: Entries,
    /// Whether the block existed.
    is_there: bool,
}

impl Before {
    /// Reads the newest visible record.
    pub fn prefetch(engine: &Engine, set: &IndexSet, block_key: &[u8]) -> Result<Before> {
        let read = |found: Option<Found<'_>>| Before::of(set, block_key, found.as_ref());
        Ok(engine.read_newest(trees::BLOCK, block_key, read)?)
    }

    /// Reads the newest record, visible or not.
    pub fn newest(engine: &Engine, set: &IndexSet, block_key: &[u8]) -> Result<Before> {
        let read = |found: Option<Found<'_>>| Before::of(set, block_key, found.as_ref());
        Ok(engine.read_since(trees::BLOCK, block_key, 0, read)?)
    }

    fn of(set: &IndexSet, block_key: &[u8], found: Option<&Found<'_>>) -> Before {
        let put = found.filter(|found| found.kind == EntryKind::Put);
        Before {
            entries: entries(set, block_key, put.map(Found::bytes)),
            is_there: put.is_some(),
        }
    }

    /// The entries at the decision, from those looked up at `at`.
    pub fn refresh(
        &self,
        engine: &Engine,
        set: &IndexSet,
        block_key: &[u8],
        at: Revision,
    ) -> Result<Before> {
        let newer = engine.read_since(trees::BLOCK, block_key, at.get(), |found| {
            found.map(|found| Before::of(set, block_key, Some(&found)))
        })?;
        // As for keys: a newer deletion may have been merged away, together with what it deleted.
        let may_be_gone = self.is_there && engine.history_floor() > at.get();
        match newer {
            Some(newer) => Ok(newer),
            None if may_be_gone => Before::newest(engine, set, block_key),
            None => Ok(self.clone()),
        }
    }

    /// Tells of each index whose entry the write of the block changes.
    pub fn for_each_change(&self, set: &IndexSet, after: Entries, change: &mut OnChange<'_>) {
        let kept = set.kept.iter().zip(&self.entries).zip(after);
        for ((index, before), after) in kept {
            if *before != after {
                change(index, before.as_deref(), after);
            }
        }
    }

    /// The entry in the index at this place of the set.
    pub fn entry(&self, place: usize) -> Option<&Vec<u8>> {
        self.entries.get(place)?.as_ref()
    }
}

/// Two blocks with the same values in a unique index.
#[derive(Debug, Clone)]
pub struct Clash {
    pub index: Arc<Definition>,
    /// The one that is written.
    pub block: BlockId,
    /// The one that is there.
    pub other: BlockId,
}

/// What a transaction changes in the indexes.
#[derive(Debug, Default)]
pub struct IndexChanges {
    deletes: Vec<Vec<u8>>,
    puts: Vec<(Arc<Definition>, Vec<u8>)>,
}

impl IndexChanges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.puts.is_empty()
    }

    /// Notes the write of a block.
    pub fn note_block(&mut self, set: &IndexSet, before: &Before, after: Entries) {
        before.for_each_change(set, after, &mut |index, before, after| {
            self.note(index, before, after);
        });
    }

    /// Notes what becomes of the entry of a block in one index. One that the builder of the index puts has none before.
    pub fn note(&mut self, index: &Arc<Definition>, before: Option<&[u8]>, after: Option<Vec<u8>>) {
        self.deletes.extend(before.map(<[u8]>::to_vec));
        self.puts.extend(after.map(|entry| (index.clone(), entry)));
    }

    /// Leaves out the entries of a block.
    pub fn forget(&mut self, block: BlockId) {
        self.puts
            .retain(|(_, entry)| block_of_entry(entry) != Some(block));
    }

    /// Finds two blocks with the same values in a unique index: among what is put, or with what is there and stays.
    pub fn find_clash(&self, engine: &Engine) -> Result<Option<Clash>> {
        let unique = self.puts.iter().filter(|(index, _)| index.is_unique);
        let mut put: Vec<&(Arc<Definition>, Vec<u8>)> = unique.collect();
        put.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
        // A command may move the values of all blocks: then each entry that is there is sought among as many that go.
        let mut gone: Vec<&[u8]> = Vec::new();
        if !put.is_empty() {
            gone.extend(self.deletes.iter().map(Vec::as_slice));
            gone.sort_unstable();
        }
        for (at, (index, entry)) in put.iter().enumerate() {
            let values = Definition::values_of(entry);
            let next = put.get(at + 1).map(|(_, next)| next);
            let mut other = next
                .filter(|next| Definition::values_of(next) == values)
                .cloned();
            if other.is_none() {
                Newest(engine).for_each_key(trees::INDEX, values, &mut |key| {
                    // Values are never the beginning of others, but a block's id may look like more of them.
                    let is_other = key != entry.as_slice()
                        && Definition::values_of(key) == values
                        && gone.binary_search(&key).is_err();
                    if is_other {
                        other = Some(key.to_vec());
                    }
                    !is_other
                })?;
            }
            let ids = other.and_then(|other| block_of_entry(entry).zip(block_of_entry(&other)));
            if let Some((block, other)) = ids {
                return Ok(Some(Clash {
                    index: index.clone(),
                    block,
                    other,
                }));
            }
        }
        Ok(None)
    }

    /// Writes the entries.
    pub fn write<J: Journal>(&self, writer: &mut Writer<J>) {
        const TREE: TreeId = trees::INDEX;
        for key in &self.deletes {
            writer.delete_record(TREE, key);
        }
        for (_, key) in &self.puts {
            writer.put_record(TREE, key, &[]);
        }
    }
}

/// An upper bound of what the writes of so many blocks add to a batch: operations, and the bytes of keys.
#[must_use]
pub fn most_of(set: &IndexSet, blocks: u64) -> (u64, u64) {
    let bytes: u64 = set.kept.iter().map(|index| index.entry_max_bytes()).sum();
    let indexes = set.kept.len() as u64;
    (2 * blocks * indexes, 2 * blocks * bytes)
}
