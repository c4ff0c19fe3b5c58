//! The uncommitted writes of a command, over the trees.

use std::collections::BTreeMap;

use bowline_storage::engine::Engine;
use bowline_storage::{TreeId, Value};
use bowline_types::Revision;

use bowline_core::error::Result;
use bowline_core::kv::Entry;
use bowline_core::kv::record::{self, Meta};
use bowline_core::trees;
use bowline_core::write::lookup::{Lookup, Newest};
use bowline_core::write::writer::Journal;

/// One write: the new record of the tree, or a deletion.
#[derive(Debug)]
pub(crate) enum Write {
    Put { bytes: Vec<u8>, revision: Revision },
    Delete,
}

impl Write {
    /// The kv entry of a write.
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
    /// The number of writes in the batch.
    pub(crate) operations: u64,
    /// Whether one of them takes a revision: leases, kinds and alarms do not.
    pub(crate) is_numbered: bool,
    /// Later writes are not read by this command, so they need not be stored.
    pub(crate) is_last: bool,
}

impl Overlay {
    fn insert(&mut self, tree: TreeId, key: &[u8], write: impl FnOnce() -> Write) {
        self.operations += 1;
        self.is_numbered |= trees::takes_revision(tree);
        if !self.is_last {
            self.writes.insert((tree, Value::copy_from(key)), write());
        }
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

impl Journal for Overlay {
    fn put(&mut self, tree: TreeId, key: &[u8], head: &[u8], tail: &[u8], revision: Revision) {
        self.insert(tree, key, || Write::Put {
            bytes: [head, tail].concat(),
            revision,
        });
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.insert(tree, key, || Write::Delete);
    }
}

/// The newest state with a command's writes on top.
pub(crate) struct Overlaid<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) overlay: &'a Overlay,
}

impl Overlaid<'_> {
    pub(crate) fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self.overlay.get(trees::KV, key) {
            Some(own) => own.entry(key),
            None => self
                .engine
                .read_since(trees::KV, key, 0, |found| record::entry_of(key, found))?,
        }
    }
}

impl Lookup for Overlaid<'_> {
    fn exists(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        match self.overlay.get(tree, key) {
            Some(own) => Ok(own.is_put()),
            None => Newest(self.engine).exists(tree, key),
        }
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>> {
        match self.overlay.get(trees::KV, key) {
            Some(own) => Ok(own.entry(key)?.as_ref().map(Meta::of)),
            None => Newest(self.engine).meta(key),
        }
    }

    fn mod_revision(&self, key: &[u8]) -> Result<Revision> {
        match self.overlay.get(trees::KV, key) {
            Some(own) => Ok(own
                .entry(key)?
                .map_or(Revision::ZERO, |entry| entry.mod_revision)),
            None => Newest(self.engine).mod_revision(key),
        }
    }

    fn for_each_key(
        &self,
        tree: TreeId,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let mut goes_on = true;
        Newest(self.engine).for_each_key(tree, prefix, &mut |key| {
            goes_on = self.overlay.get(tree, key).is_some() || visit(key);
            goes_on
        })?;
        let end = trees::prefix_end(prefix);
        for (key, write) in self.overlay.span(tree, prefix, end.as_deref()) {
            if goes_on && write.is_put() {
                goes_on = visit(key);
            }
        }
        Ok(())
    }
}
