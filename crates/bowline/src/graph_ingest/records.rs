//! [`Records`]: records of one tree, taken in any order and given back in the order of their keys.
//!
//! An external sort: as much as a memtable has waits in memory; when that is full it is sorted and written to tables
//! that no manifest names, a *run*. In the end the runs are merged. Of records with the same key the last one counts.

use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::{BlockId, KindId, block_key, edge_out_key, split_edge_key};
use bowline_core::state::Core;
use bowline_storage::engine::StagedTables;
use bowline_storage::{EntryKind, TreeId};

/// Takes a key and its value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// A record that waits. The key of a block has a `near` only.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    near: BlockId,
    far: BlockId,
    kind: KindId,
    /// Where its value begins. Later records have later values, or none at all.
    start: u32,
    len: u32,
}

impl Waiting {
    fn key(&self) -> (BlockId, KindId, BlockId) {
        (self.near, self.kind, self.far)
    }
}

/// The records of a tree that are loaded.
#[derive(Debug)]
pub(super) struct Records {
    tree: TreeId,
    waiting: Vec<Waiting>,
    values: Vec<u8>,
    /// The oldest first.
    runs: Vec<StagedTables>,
    is_sorted: bool,
}

impl Records {
    pub(super) fn of(tree: TreeId) -> Records {
        Records {
            tree,
            waiting: Vec::new(),
            values: Vec::new(),
            runs: Vec::new(),
            is_sorted: true,
        }
    }

    pub(super) fn tree(&self) -> TreeId {
        self.tree
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.runs.is_empty()
    }

    /// Takes a record. The key is that of a block or of an edge.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let of_block = || key.try_into().ok().map(BlockId::from_bytes);
        let block = || of_block().map(|id| (id, KindId(0), BlockId(0)));
        let Some((near, kind, far)) = split_edge_key(key).or_else(block) else {
            return Err(Error::InvalidRecord {
                what: "record of the graph",
                key: show_key(key),
                reason: "its key is neither that of a block nor that of an edge",
            });
        };
        let (size, limit) = (value.len() as u64, u64::from(u32::MAX));
        let len = u32::try_from(size).map_err(|_| Error::ValueTooLarge { size, limit })?;
        self.waiting.push(Waiting {
            near,
            far,
            kind,
            start: self.values.len() as u32,
            len,
        });
        self.values.extend_from_slice(value);
        self.is_sorted = false;
        Ok(())
    }

    /// Whether it must be spilled before it takes more.
    pub(super) fn is_full(&self, core: &Core) -> bool {
        let bytes = self.waiting.len() * size_of::<Waiting>() + self.values.len();
        bytes >= core.engine.staging_bytes().min(u32::MAX as usize)
    }

    /// Writes what waits as one more run.
    pub(super) fn spill(&mut self, core: &Core) -> Result<()> {
        self.sort();
        // Runs are read and never published: any revision will do.
        let mut run = core.engine.stage_tables(self.tree, 1);
        self.visit_waiting(&mut |key, value| Ok(run.add(key, EntryKind::Put, value, &[])?))?;
        run.finish()?;
        self.runs.push(run);
        self.waiting.clear();
        self.values.clear();
        Ok(())
    }

    /// Makes it ready to be visited.
    pub(super) fn finish(&mut self, core: &Core) -> Result<()> {
        match self.runs.is_empty() || self.waiting.is_empty() {
            true => self.sort(),
            false => self.spill(core)?,
        }
        Ok(())
    }

    fn sort(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        self.waiting
            .sort_unstable_by_key(|it| (it.key(), std::cmp::Reverse(it.start)));
        // The later of two comes first, and stays.
        self.waiting.dedup_by_key(|it| it.key());
    }

    /// Visits all records in the order of their keys. It is finished.
    pub(super) fn visit(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            return self.visit_waiting(&mut visit);
        }
        let mut merged = StagedTables::merge(self.runs.iter().rev())?;
        while let Some((key, _, _, value)) = merged.current() {
            visit(key, value)?;
            merged.advance()?;
        }
        Ok(())
    }

    fn visit_waiting(&self, visit: &mut Visit<'_>) -> Result<()> {
        let is_block = self.tree == bowline_core::trees::BLOCK;
        for it in &self.waiting {
            let value = &self.values[it.start as usize..][..it.len as usize];
            match is_block {
                true => visit(&block_key(it.near), value)?,
                false => visit(&edge_out_key(it.near, it.kind, it.far), value)?,
            }
        }
        Ok(())
    }
}
