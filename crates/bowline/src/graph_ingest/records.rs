//! [`Records`]: records of one tree, taken in any order and given back in the order of their keys.
//!
//! An external sort: as much as a memtable has waits in memory; when that is full it is sorted and written to tables
//! that no manifest names, a *run*. In the end the runs are merged. Of records with the same key the last one counts.

use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::{BlockId, KindId, edge_out_key, split_edge_key};
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_storage::compaction::VersionMerge;
use bowline_storage::engine::StagedTables;
use bowline_storage::{EntryKind, TreeId};

/// A record that waits. The key of a block has a `near` only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
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
        let mut waiting = Cursor::over_waiting(self);
        while let Some((key, value)) = waiting.current() {
            run.add(key, EntryKind::Put, value, &[])?;
            waiting.advance()?;
        }
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

    /// All records in the order of their keys. It is finished.
    pub(super) fn cursor(&self) -> Result<Cursor<'_>> {
        Ok(match self.runs.is_empty() {
            true => Cursor::over_waiting(self),
            false => Cursor::Merged(StagedTables::merge(self.runs.iter().rev())?),
        })
    }
}

/// A position in finished records.
#[derive(Debug)]
pub(super) enum Cursor<'a> {
    /// Records in memory: those from the current one on, and the current one's key.
    Waiting {
        rest: &'a [Waiting],
        values: &'a [u8],
        key: [u8; 36],
        /// 16 for blocks, 36 for edges.
        key_bytes: usize,
    },
    /// Runs.
    Merged(VersionMerge),
}

impl<'a> Cursor<'a> {
    fn over_waiting(records: &'a Records) -> Cursor<'a> {
        let is_block = records.tree == trees::BLOCK;
        let mut cursor = Cursor::Waiting {
            rest: &records.waiting,
            values: &records.values,
            key: [0; 36],
            key_bytes: if is_block { 16 } else { 36 },
        };
        cursor.write_key();
        cursor
    }

    fn write_key(&mut self) {
        if let Cursor::Waiting { rest, key, .. } = self
            && let [first, ..] = rest
        {
            // A block's key is how the keys of its edges begin.
            *key = edge_out_key(first.near, first.kind, first.far);
        }
    }

    /// The key and the value, or `None` at the end.
    #[inline]
    pub(super) fn current(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Cursor::Waiting {
                rest,
                values,
                key,
                key_bytes,
            } => {
                let first = rest.first()?;
                let value = &values[first.start as usize..][..first.len as usize];
                Some((&key[..*key_bytes], value))
            }
            Cursor::Merged(merged) => merged.current().map(|(key, _, _, value)| (key, value)),
        }
    }

    #[inline]
    pub(super) fn advance(&mut self) -> Result<()> {
        match self {
            Cursor::Waiting { rest, .. } => *rest = rest.get(1..).unwrap_or_default(),
            Cursor::Merged(merged) => merged.advance()?,
        }
        self.write_key();
        Ok(())
    }
}
