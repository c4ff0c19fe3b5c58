//! [`Request`]: a transaction ready to commit, with its preconditions and its writes.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::TreeId;
use bowline_storage::engine::{Engine, SnapshotPin};
use bowline_types::Revision;
use smallvec::SmallVec;

use super::update::UpdateRequest;
use bowline_core::error::Result;
use bowline_core::graph::{self, BlockId, KindId};
use bowline_core::index::{Definition, IndexSet};
use bowline_core::kv::record;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::write::index::{self, Before, OnChange};
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_core::write::previous::Previous;
use bowline_core::write::validate::Guard;

const OPERATION_OVERHEAD_BYTES: u64 = 32;

/// The limit on the requests of a group without the leader's, in encoded bytes.
pub(crate) const MEMBERS_MAX_BYTES: u64 = 8 << 20;

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
    /// An upper bound, by which requests are grouped: it takes each entry of an index for the longest there can be.
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
        for key in self.blocks() {
            if !set.kept.is_empty() {
                before.push(Before::prefetch(&core.engine, &set, &key)?);
            }
            blocks += 1;
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
    /// are kept and nothing else commits.
    ///
    /// A bound without reading allows each block an entry in each index: of many blocks and indexes it comes to far more
    /// than they write. So the entries of a request that is too large to follow others in a group, which `is_first`
    /// therefore, are counted. The leader does so, as those that they replace may have changed.
    pub(super) fn size(
        &self,
        engine: &Engine,
        set: &Arc<IndexSet>,
        is_first: bool,
    ) -> Result<(u64, u64)> {
        let writes = self.request.writes.len() + usize::from(self.request.update.is_some());
        let operations = 3 * writes as u64;
        let others = self.encoded_bytes - self.indexed.bytes;
        let most = most_indexed(set, self.indexed.blocks);
        let (of_indexes, bytes) = match is_first && others + most.1 > MEMBERS_MAX_BYTES {
            true => self.indexed_size(engine, set, false)?,
            false => most,
        };
        Ok((operations + of_indexes, others + bytes))
    }

    /// Its encoded bytes when it was prepared, if they are more than so many.
    pub(super) fn bytes_beyond(&self, engine: &Engine, limit: u64) -> Result<Option<u64>> {
        let mut bytes = self.encoded_bytes;
        if bytes > limit && self.indexed.bytes > 0 {
            let indexed = self.indexed_size(engine, &self.indexed.set, true)?.1;
            bytes = bytes - self.indexed.bytes + indexed;
        }
        Ok((bytes > limit).then_some(bytes))
    }

    /// The operations and the bytes of its entries in indexes.
    fn indexed_size(
        &self,
        engine: &Engine,
        set: &Arc<IndexSet>,
        is_current: bool,
    ) -> Result<(u64, u64)> {
        let (mut operations, mut bytes) = (0, 0);
        self.for_each_index_change(engine, set, is_current, &mut |_, before, after| {
            for entry in [before, after.as_deref()].into_iter().flatten() {
                operations += 1;
                bytes += entry.len() as u64 + OPERATION_OVERHEAD_BYTES;
            }
        })?;
        Ok((operations, bytes))
    }

    /// Tells of each entry of an index that the request changes. `is_current` says that nothing has been committed since it
    /// was prepared.
    pub(super) fn for_each_index_change(
        &self,
        engine: &Engine,
        set: &Arc<IndexSet>,
        is_current: bool,
        change: &mut OnChange<'_>,
    ) -> Result<()> {
        if set.kept.is_empty() {
            return Ok(());
        }
        let request = &self.request;
        let is_same_set = Arc::ptr_eq(set, &self.indexed.set);
        let mut prefetched = self.indexed.before.iter();
        let mut before = |key: &[u8]| match prefetched.next().filter(|_| is_same_set) {
            Some(before) if is_current => Ok(before.clone()),
            Some(before) => before.refresh(engine, set, key, self.looked_up_at),
            None => Before::newest(engine, set, key),
        };
        let writes = request.writes.iter();
        for write in writes.filter(|write| write.tree == trees::BLOCK) {
            let after = match &write.action {
                Action::PutRaw { value } => index::entries(set, &write.key, Some(value)),
                _ => index::entries(set, &write.key, None),
            };
            before(&write.key)?.for_each_change(set, after, change);
        }
        if let Some(reindexed) = &request.reindexed {
            let is_it = |index: &Arc<Definition>| index.id == reindexed.index;
            // One that was dropped meanwhile gets no entry.
            let place = set.kept.iter().position(is_it);
            for id in &reindexed.blocks {
                let newest = before(&graph::block_key(*id))?;
                if let Some((place, entry)) = place.and_then(|at| Some((at, newest.entry(at)?))) {
                    change(&set.kept[place], None, Some(entry.clone()));
                }
            }
        }
        Ok(())
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
