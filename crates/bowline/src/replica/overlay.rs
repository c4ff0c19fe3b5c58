//! What a command has written so far and nobody else sees yet, over the trees.

use std::collections::BTreeMap;

use bowline_storage::{Revision, TreeId, Value};

use crate::error::Result;
use crate::kv::{Entry, record};

/// One write: the record as the tree will hold it, or a deletion.
#[derive(Debug)]
pub(crate) enum Write {
    Put { bytes: Vec<u8>, revision: Revision },
    Delete,
}

impl Write {
    /// Of the kv tree: the entry.
    pub(crate) fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self {
            Write::Delete => Ok(None),
            Write::Put { bytes, revision } => {
                record::entry_of_record(key, *revision, bytes).map(Some)
            }
        }
    }

    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Write::Put { .. })
    }
}

/// The writes of a command, by tree and key.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    writes: BTreeMap<(TreeId, Value), Write>,
}

impl Overlay {
    pub(crate) fn insert(&mut self, tree: TreeId, key: &[u8], write: Write) {
        self.writes.insert((tree, Value::copy_from(key)), write);
    }

    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Option<&Write> {
        if self.writes.is_empty() {
            return None;
        }
        self.writes.get(&(tree, Value::copy_from(key)))
    }

    /// The writes of a span of keys, in order; without an end, to the last key.
    pub(crate) fn span<'a>(
        &'a self,
        tree: TreeId,
        from: &[u8],
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a Write)> + use<'a> {
        let start = (tree, Value::copy_from(from));
        let inside =
            move |other: TreeId, key: &[u8]| other == tree && end.is_none_or(|end| key < end);
        self.writes
            .range(start..)
            .map(|((tree, key), write)| (*tree, &key[..], write))
            .take_while(move |(tree, key, _)| inside(*tree, key))
            .map(|(_, key, write)| (key, write))
    }
}
