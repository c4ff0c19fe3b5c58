//! [`Request`]: a transaction ready to commit, with its preconditions and its writes.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::TreeId;
use bowline_storage::engine::SnapshotPin;
use bowline_types::Revision;
use smallvec::SmallVec;

use super::update::UpdateRequest;
use bowline_core::error::Result;
use bowline_core::graph::{self, BlockId, KindId};
use bowline_core::index::IndexSet;
use bowline_core::kv::record;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::write::index::{self, Before};
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_core::write::previous::Previous;
use bowline_core::write::validate::Guard;

const OPERATION_OVERHEAD_BYTES: u64 = 32;

/// A range of a tree: lower bound, upper bound.
pub(crate) type TreeRange = (TreeId, Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A transaction ready to commit.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) snapshot: Revision,
    /// Keeps what shows that the reads have changed, as deletions, until it is decided; nothing where somebody waits who
    /// keeps the snapshot.
    pub(crate) pin: Option<SnapshotPin>,
    /// Keys that must not have changed since the snapshot.
    pub(crate) keys: Vec<(TreeId, Vec<u8>)>,
    /// Ranges that must not have changed since the snapshot.
    pub(crate) ranges: Vec<TreeRange>,
    /// A kind number that must still be unused, because an edge of an unregistered kind was read.
    pub(crate) next_kind: Option<KindId>,
    pub(crate) guards: Vec<Guard>,
    pub(crate) writes: Mutations,
    /// Blocks whose entries in an index are put, by its builder.
    pub(crate) reindexed: Option<Reindexed>,
    /// An update, which is all that the request does.
    pub(crate) update: Option<UpdateRequest>,
}

/// Blocks whose entries in one index are put, as of their newest records at the commit.
#[derive(Debug)]
pub(crate) struct Reindexed {
    /// The number of the index.
    pub(crate) index: u32,
    pub(crate) blocks: Vec<BlockId>,
}

/// A request whose kv keys have been looked up.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: Request,
    /// For each kv write: the version of its key at `looked_up_at`. The leader reads only newer
    /// versions.
    pub(super) previous: SmallVec<[Previous; 1]>,
    pub(super) looked_up_at: Revision,
    pub(super) encoded_bytes: u64,
    /// What indexes have of the blocks that it writes, or reindexes, at `looked_up_at`.
    pub(super) indexed: Indexed,
}

/// What the indexes of a set had of some blocks.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) set: Arc<IndexSet>,
    /// Of each write of a block, in their order, or of each block that is reindexed.
    pub(super) before: Vec<Before>,
    /// How many blocks that are.
    blocks: u64,
    /// The share of `encoded_bytes`.
    bytes: u64,
}

impl Request {
    /// A single write without preconditions.
    #[inline]
    pub(crate) fn of(write: Mutation) -> Request {
        Request {
            writes: Mutations::from_buf([write]),
            ..Request::default()
        }
    }

    /// An update of a key.
    pub(crate) fn update(update: UpdateRequest) -> Request {
        Request {
            update: Some(update),
            ..Request::default()
        }
    }

    /// Looks up the kv keys before the commit group, on the committer's thread.
    pub(super) fn prepare(mut self, core: &Core, may_be_blind: bool) -> Result<Prepared> {
        let engine = &core.engine;
        // Read before the look-ups, so the leader misses no newer version.
        let looked_up_at = engine.visible();
        let mut previous = SmallVec::new();
        let mut encoded_bytes = 16;
        for write in &self.writes {
            let value_bytes = match &write.action {
                Action::PutEntry { value, .. } => (value.len() + record::HEAD_MAX_BYTES) as u64,
                Action::PutRaw { value } => value.len() as u64,
                Action::Delete => 0,
            };
            encoded_bytes += write.key.len() as u64 + value_bytes + OPERATION_OVERHEAD_BYTES;
            if write.tree == trees::KV {
                let may_be_blind = may_be_blind && write.action.may_be_blind();
                // Space for attaching the key to a lease and detaching it from another.
                encoded_bytes += 2 * (write.key.len() as u64 + OPERATION_OVERHEAD_BYTES);
                previous.push(Previous::prefetch(engine, &write.key, may_be_blind)?);
            }
        }
        if let Some(update) = &mut self.update {
            let value_bytes = update.prepare(core)? + record::HEAD_MAX_BYTES;
            encoded_bytes += (update.key().len() + value_bytes) as u64 + OPERATION_OVERHEAD_BYTES;
            // A deletion detaches the key from its lease.
            encoded_bytes += update.key().len() as u64 + OPERATION_OVERHEAD_BYTES;
        }
        let indexed = self.look_up_indexed(core)?;
        Ok(Prepared {
            previous,
            looked_up_at: Revision::new(looked_up_at),
            encoded_bytes: encoded_bytes + indexed.bytes,
            indexed,
            request: self,
        })
    }

    /// The keys that it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = (TreeId, &[u8])> {
        let written = self.writes.iter().map(|write| (write.tree, &write.key[..]));
        let updated = self.update.iter().map(|update| (trees::KV, update.key()));
        written.chain(updated)
    }

    /// The keys of the blocks that it writes, or whose entries it puts.
    fn blocks(&self) -> impl Iterator<Item = [u8; 16]> {
        let written = self
            .writes
            .iter()
            .filter(|write| write.tree == trees::BLOCK);
        let written = written.filter_map(|write| write.key[..].try_into().ok());
        let reindexed = self.reindexed.iter().flat_map(|it| &it.blocks);
        written.chain(reindexed.map(|id| graph::block_key(*id)))
    }

    fn look_up_indexed(&self, core: &Core) -> Result<Indexed> {
        let set = core.indexes.now();
        let mut before = Vec::new();
        let mut blocks = 0;
        if !set.kept.is_empty() {
            for key in self.blocks() {
                before.push(Before::prefetch(&core.engine, &set, &key)?);
                blocks += 1;
            }
        }
        let bytes = most_indexed(&set, blocks).1;
        Ok(Indexed {
            set,
            before,
            blocks,
            bytes,
        })
    }
}

/// The most operations and bytes that the entries of so many blocks take.
fn most_indexed(set: &IndexSet, blocks: u64) -> (u64, u64) {
    let (operations, bytes) = index::most_of(set, blocks);
    (operations, bytes + operations * OPERATION_OVERHEAD_BYTES)
}

impl Prepared {
    /// An upper bound of the number of operations, attachments included, and of their encoded bytes, while these indexes
    /// are kept.
    pub(super) fn size(&self, set: &Arc<IndexSet>) -> (u64, u64) {
        let writes = self.request.writes.len() + usize::from(self.request.update.is_some());
        let operations = 3 * writes as u64;
        if Arc::ptr_eq(set, &self.indexed.set) {
            let (of_indexes, _) = most_indexed(set, self.indexed.blocks);
            return (operations + of_indexes, self.encoded_bytes);
        }
        let (of_indexes, bytes) = most_indexed(set, self.request.blocks().count() as u64);
        let others = self.encoded_bytes - self.indexed.bytes;
        (operations + of_indexes, others + bytes)
    }

    /// Whether the request only deletes; such requests are admitted on a full disk.
    pub(super) fn frees_space(&self) -> bool {
        if self.request.reindexed.is_some() {
            return false;
        }
        if let Some(update) = &self.request.update {
            return update.only_deletes();
        }
        let mut writes = self.request.writes.iter();
        writes.all(|write| matches!(write.action, Action::Delete))
    }
}
