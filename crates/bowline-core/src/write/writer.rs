//! [`Writer`]: encodes a transaction's batch with its metadata, lease attachments and events.
//!
//! | write | record | besides |
//! |---|---|---|
//! | put | create revision of the version before, or this one; version + 1, or 1; the lease | event |
//! | delete | a tombstone, if the key is there | event with the key and the revision only, as in etcd |
//! | the lease of a key changes | - | its old attachment is deleted, its new one put |
//!
//! Invariants:
//!
//! - An entry names lease L exactly when the attachment record of (L, key) exists.
//! - A put after a deletion begins at version 1, with this revision as the one that created the key.

use bowline_storage::engine::BatchWriter;
use bowline_storage::{TreeId, Value};
use bowline_types::Revision;

use super::mutation::{Action, Mutation};
use super::previous::Previous;
use crate::error::{Error, Result};
use crate::graph::csr::{EdgeChange, GraphChanges};
use crate::graph::split_edge_key;
use crate::kv::record::{self, Meta};
use crate::lease::LeaseId;
use crate::trees;
use crate::watch::{Change, ChangeKind};

/// Receives each write, for a caller whose later writes read the earlier ones.
pub trait Journal {
    /// A record was put; its bytes are given in two parts.
    fn put(&mut self, tree: TreeId, key: &[u8], head: &[u8], tail: &[u8], revision: Revision);
    /// A record was deleted.
    fn delete(&mut self, tree: TreeId, key: &[u8]);
}

/// For a caller that does not read its writes.
impl Journal for () {
    #[inline]
    fn put(&mut self, _: TreeId, _: &[u8], _: &[u8], _: &[u8], _: Revision) {}
    #[inline]
    fn delete(&mut self, _: TreeId, _: &[u8]) {}
}

/// What a writer collects beside its batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Collect {
    /// The events for watchers.
    pub events: bool,
    /// The changes of the graph for its view.
    pub graph: bool,
}

/// Encodes the writes of one transaction at one revision. Transactions reuse its buffers.
#[derive(Debug, Default)]
pub struct Writer<J> {
    batch: Vec<u8>,
    head: Vec<u8>,
    changes: Vec<Change>,
    graph: GraphChanges,
    revision: Revision,
    collect: Collect,
    pub journal: J,
}

impl<J: Journal + Default> Writer<J> {
    /// With the memory of an earlier batch.
    pub fn with_buffer(batch: Vec<u8>) -> Writer<J> {
        Writer {
            batch,
            ..Writer::default()
        }
    }
}

impl<J: Journal> Writer<J> {
    /// Begins a transaction.
    #[inline]
    pub fn begin(&mut self, revision: Revision, collect: Collect) {
        BatchWriter::start(&mut self.batch, revision.get());
        self.changes.clear();
        self.graph.clear();
        self.revision = revision;
        self.collect = collect;
    }

    /// The batch encoded so far.
    #[inline]
    pub fn batch(&self) -> &[u8] {
        &self.batch
    }

    /// Takes the collected events.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The collected changes of the graph.
    pub fn graph(&mut self) -> &mut GraphChanges {
        &mut self.graph
    }

    /// Takes the batch.
    pub fn take_batch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.batch)
    }

    /// Frees the memory of a large batch.
    pub fn shrink(&mut self) {
        const BATCH_KEPT_MAX_BYTES: usize = 1 << 20;
        if self.batch.capacity() > BATCH_KEPT_MAX_BYTES {
            self.batch = Vec::new();
        }
    }

    /// Writes a key of the kv tree on top of what was there; returns whether it deleted a key. The deletion of an absent
    /// key changes nothing.
    #[inline]
    pub fn write_key(&mut self, key: &[u8], action: &Action, previous: Previous) -> Result<bool> {
        match (action, previous) {
            (Action::PutEntry { value, .. }, Previous::Unknown { blind_below }) => {
                self.put_blind(key, value, blind_below);
            }
            (Action::PutEntry { value, lease }, Previous::Present(meta)) => {
                self.put(key, value, *lease, Some(meta));
            }
            (Action::PutEntry { value, lease }, Previous::Absent) => {
                self.put(key, value, *lease, None);
            }
            (Action::Delete, Previous::Absent) => {}
            (Action::Delete, Previous::Present(meta)) => {
                self.delete(key, meta.lease);
                return Ok(true);
            }
            (Action::Delete, Previous::Unknown { .. }) => {
                return Err(internal("only a put can do without a look-up"));
            }
            (Action::PutRaw { .. }, _) => return Err(internal("a raw value in the kv tree")),
        }
        Ok(false)
    }

    /// Writes a record outside the kv tree.
    #[inline]
    pub fn write_record(&mut self, write: &Mutation) -> Result<()> {
        match &write.action {
            Action::PutRaw { value } => self.put_record(write.tree, &write.key, value),
            Action::PutEntry { .. } => return Err(internal("an entry outside the kv tree")),
            Action::Delete => self.delete_record(write.tree, &write.key),
        }
        Ok(())
    }

    /// Sets a key whose previous version was `previous`.
    #[inline]
    pub fn put(
        &mut self,
        key: &[u8],
        value: &Value,
        lease: Option<LeaseId>,
        previous: Option<Meta>,
    ) {
        let meta = meta_of_put(self.revision, lease, previous);
        record::encode_head(&meta, &mut self.head);
        self.put_head_and(key, value);
        if self.collect.events {
            let entry = meta.entry(key, value.clone());
            self.changes.push(Change::new(ChangeKind::Put, entry));
        }
        self.attach(key, previous.and_then(|meta| meta.lease), lease);
    }

    /// Sets a key by a blind record, on top of `blind_below` blind records in memory. For a key without a
    /// lease and without watchers.
    #[inline]
    pub(crate) fn put_blind(&mut self, key: &[u8], value: &Value, blind_below: u8) {
        record::encode_blind_head(self.revision, blind_below, &mut self.head);
        self.put_head_and(key, value);
    }

    #[inline]
    fn put_head_and(&mut self, key: &[u8], value: &Value) {
        let (tree, head) = (trees::KV, &self.head[..]);
        BatchWriter::resume(&mut self.batch).put(tree, key, head, value);
        self.journal.put(tree, key, head, value, self.revision);
    }

    /// Deletes a present key, which `lease` holds, if any.
    #[inline]
    pub fn delete(&mut self, key: &[u8], lease: Option<LeaseId>) {
        self.delete_record(trees::KV, key);
        if self.collect.events {
            let change = Change::deletion(Value::copy_from(key), self.revision);
            self.changes.push(change);
        }
        self.attach(key, lease, None);
    }

    /// Sets a record outside the kv tree.
    #[inline]
    pub fn put_record(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        BatchWriter::resume(&mut self.batch).put(tree, key, value, &[]);
        self.journal.put(tree, key, value, &[], self.revision);
        self.note_graph(tree, key, true);
    }

    /// Deletes a record outside the kv tree.
    #[inline]
    pub fn delete_record(&mut self, tree: TreeId, key: &[u8]) {
        BatchWriter::resume(&mut self.batch).delete(tree, key);
        self.journal.delete(tree, key);
        self.note_graph(tree, key, false);
    }

    /// Collects the change of an edge or of a block. Every edge is in `edge_out`.
    #[inline]
    fn note_graph(&mut self, tree: TreeId, key: &[u8], is_put: bool) {
        if !self.collect.graph {
            return;
        }
        if tree == trees::BLOCK
            && let Ok(id) = key.try_into()
        {
            self.graph
                .note_block(bowline_types::BlockId::from_bytes(id));
        }
        if tree == trees::EDGE_OUT
            && let Some((source, kind, target)) = split_edge_key(key)
        {
            self.graph.push(EdgeChange {
                source,
                target,
                revision: self.revision.get(),
                kind,
                is_put,
            });
        }
    }

    /// Moves a key from one lease to another.
    #[inline]
    fn attach(&mut self, key: &[u8], old: Option<LeaseId>, new: Option<LeaseId>) {
        if let Some(attachment) = detached(key, old, new) {
            self.delete_record(trees::SYSTEM, &attachment);
        }
        if let Some(attachment) = detached(key, new, old) {
            self.put_record(trees::SYSTEM, &attachment, &[]);
        }
    }
}

fn internal(what: &str) -> Error {
    Error::Storage(bowline_storage::Error::Internal(what.to_owned()))
}

/// The metadata of a put at `revision` on top of `previous`.
#[inline]
pub fn meta_of_put(revision: Revision, lease: Option<LeaseId>, previous: Option<Meta>) -> Meta {
    Meta {
        create_revision: previous.map_or(revision, |meta| meta.create_revision),
        mod_revision: revision,
        version: previous.map_or(1, |meta| meta.version + 1),
        lease,
    }
}

/// The bytes of a batch that the deletion of a key takes, with that of its attachment to a lease.
pub fn deletion_bytes(key: &[u8], lease: Option<LeaseId>) -> u64 {
    let attachment = lease.map_or(0, |lease| {
        BatchWriter::deletion_bytes(trees::attachment_prefix(lease).len() + key.len())
    });
    BatchWriter::deletion_bytes(key.len()) + attachment
}

/// [`deletion_bytes`] of a key by the record that attaches it to a lease, and the prefix of the lease's records.
pub fn attached_deletion_bytes(attachment: &[u8], prefix: &[u8]) -> u64 {
    let key_len = attachment.len().saturating_sub(prefix.len());
    BatchWriter::deletion_bytes(key_len) + BatchWriter::deletion_bytes(attachment.len())
}

/// The attachment record to delete when a key moves from the lease `old` to the lease `new`.
#[inline]
pub fn detached(key: &[u8], old: Option<LeaseId>, new: Option<LeaseId>) -> Option<Vec<u8>> {
    let old = old.filter(|_| old != new)?;
    Some(trees::attachment_key(old, key))
}
