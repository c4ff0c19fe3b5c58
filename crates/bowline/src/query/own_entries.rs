//! What the writes of a transaction change in the indexes that its queries read by.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use crate::draft::Draft;
use bowline_core::index::{IndexSet, KeyRange};
use bowline_core::trees;
use bowline_core::write::index::{self, Entries};
use bowline_core::write::mutation::Action;

/// The entries of the blocks that a transaction has written. They hide those of the snapshot.
#[derive(Debug, Default)]
pub(super) struct OwnEntries {
    by_block: HashMap<Vec<u8>, Entries>,
    by_key: BTreeSet<Vec<u8>>,
    /// How many writes of the query are noted; `None` before those of the transaction are.
    noted: Option<usize>,
    /// The indexes that were asked.
    read: BTreeSet<u32>,
}

impl OwnEntries {
    /// Whether the query asks an index for the first time.
    pub(super) fn begins_to_read(&mut self, index: u32) -> bool {
        self.read.insert(index)
    }

    /// Notes what was written since the last call.
    pub(super) fn update(&mut self, draft: &Draft, set: &IndexSet) {
        if self.noted.is_none() {
            for key in draft.block_keys() {
                self.note(draft, set, key);
            }
        }
        for (tree, key) in draft.replaced_from(self.noted.unwrap_or(usize::MAX)) {
            if *tree == trees::BLOCK {
                self.note(draft, set, key);
            }
        }
        self.noted = Some(draft.replaced_len());
    }

    fn note(&mut self, draft: &Draft, set: &IndexSet, key: &[u8]) {
        let entries = match draft.own(trees::BLOCK, key) {
            Some(Action::PutRaw { value }) => index::entries(set, key, Some(value)),
            Some(_) => index::entries(set, key, None),
            None => return,
        };
        self.by_key.extend(entries.iter().flatten().cloned());
        let before = self.by_block.insert(key.to_vec(), entries);
        let after = self.by_block.get(key);
        for entry in before.iter().flatten().flatten() {
            let stays = after.is_some_and(|after| after.iter().flatten().any(|it| it == entry));
            if !stays {
                self.by_key.remove(entry);
            }
        }
    }

    /// Whether an entry of the snapshot is of a block that was written.
    pub(super) fn hides(&self, entry: &[u8]) -> bool {
        let block = entry.len().checked_sub(16).map(|start| &entry[start..]);
        block.is_some_and(|block| self.by_block.contains_key(block))
    }

    /// The own entries of a part of a range.
    pub(super) fn range(
        &self,
        lower: Bound<Vec<u8>>,
        (_, to): &KeyRange,
    ) -> impl Iterator<Item = &Vec<u8>> + use<'_> {
        self.by_key.range((lower, Bound::Excluded(to.clone())))
    }
}
