//! Indexes: changes of them, the steps that build and clear them, and the entries of the blocks that a command writes.
//!
//! *Entries.* When all writes of a command are known, each block that it wrote has its entries replaced, by its record before the
//! command and by its last one. They are in the same batch.
//!
//! *Steps.* An index is registered, and from then on every command keeps it. A step then takes the next blocks in the order of their
//! ids, puts their entries, and records how far it has come; the last one records that the index is complete. One that is dropped is
//! cleared in the same way. Who proposes a step says from where, and so a step that comes twice does nothing the second time.
//!
//! Invariants:
//!
//! - A step depends on the state only, so all members have the same entries at each revision.
//! - An entry is in an index only if the block's newest record has it. It is there if that record does, unless the index is being
//!   built and has not come to the block.
//! - In a unique index no two entries have the same values: the command that would make it so is refused as a whole. Where
//!   the blocks of before do, the step that finds them drops the index.
//! - The blocks that a step looks at, and its writes, are bounded.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::engine::ScanDirection;
use bowline_types::{BlockId, Revision};

use super::{Effect, Planner, Stop};
use crate::command::{Command, Outcome, Refusal};
use crate::index::{INDEXES_MAX, IndexChange, IndexEffect, IndexProgress, IndexRefusal, NotUnique};
use crate::overlay::Write;
use bowline_core::graph;
use bowline_core::index::{Definition, State};
use bowline_core::trees;
use bowline_core::write::index::{Before, Clash, IndexChanges, entries, newest_entry};
use bowline_core::write::target::Target;

/// Blocks whose entries one step puts.
const CHUNK: usize = 256;
/// Blocks, of any kind, that it looks at for them.
const CHUNK_READ: usize = 8_192;
/// Entries that one step deletes.
const CLEARED: usize = 1_024;
/// A step ends behind so many bytes of keys.
const STEP_BYTES: usize = 256 << 10;
/// Pairs of blocks that are named where a unique index cannot be.
const PAIRS_MAX: usize = 10;

impl Planner<'_> {
    pub(super) fn change_index(&mut self, change: &IndexChange) -> Result<Outcome, Stop> {
        let progress = match change {
            IndexChange::Create {
                kind,
                attributes,
                is_unique,
            } => self.create_index(kind, attributes, *is_unique),
            IndexChange::Drop { kind, attributes } => self.drop_index(kind, attributes),
            IndexChange::Step { id, done } => self.index_step(*id, *done),
        };
        progress.map(Outcome::Index)
    }

    fn create_index(
        &mut self,
        kind: &str,
        attributes: &[String],
        is_unique: bool,
    ) -> Result<IndexProgress, Stop> {
        self.check_space()?;
        let joined = || attributes.join(", ");
        if Definition::check_attributes(attributes).is_err() {
            let attributes = joined();
            return refuse(IndexRefusal::Invalid { attributes });
        }
        let set = self.indexes.now();
        let known = self.known_kind(kind);
        if let Some(known) = known.and_then(|kind| set.find(kind, attributes)) {
            if known.is_unique != is_unique {
                return refuse(IndexRefusal::Exists {
                    kind: kind.to_owned(),
                    attributes: joined(),
                    is_unique: known.is_unique,
                });
            }
            return Ok(progress(known));
        }
        if set.kept.len() + set.dropped.len() >= INDEXES_MAX {
            return refuse(IndexRefusal::TooMany);
        }
        let kind = self.kind(kind)?;
        let id = set.next_id;
        let next = id.saturating_add(1).to_be_bytes();
        self.writer
            .put_record(trees::INDEX, &Definition::key_of(0), &next);
        Ok(self.put_index(Definition {
            id,
            kind,
            attributes: attributes.to_vec(),
            is_unique,
            state: State::Building { done: None },
        }))
    }

    fn drop_index(&mut self, kind: &str, attributes: &[String]) -> Result<IndexProgress, Stop> {
        let set = self.indexes.now();
        let known = self.known_kind(kind);
        let Some(index) = known.and_then(|kind| set.find(kind, attributes)) else {
            return refuse(IndexRefusal::NotFound {
                kind: kind.to_owned(),
                attributes: attributes.join(", "),
            });
        };
        Ok(self.put_index(Definition {
            state: State::Dropped,
            ..(**index).clone()
        }))
    }

    fn put_index(&mut self, index: Definition) -> IndexProgress {
        let record = index.encode();
        self.writer.put_record(trees::INDEX, &index.key(), &record);
        let progress = progress(&index);
        self.effects.push(Effect::Index(IndexEffect::Put(index)));
        progress
    }

    fn index_step(&mut self, id: u32, done: Option<BlockId>) -> Result<IndexProgress, Stop> {
        let set = self.indexes.now();
        let Some(index) = set.get(id) else {
            return Ok(IndexProgress::Gone);
        };
        match index.state {
            State::Building { done: at } if at == done => {
                self.check_space()?;
                self.build_step(index, done)
            }
            State::Dropped => self.clear_step(index),
            State::Building { .. } | State::Ready { .. } => Ok(progress(index)),
        }
    }

    fn build_step(
        &mut self,
        index: &Arc<Definition>,
        done: Option<BlockId>,
    ) -> Result<IndexProgress, Stop> {
        let (blocks, mut last) = self.next_blocks(index, done)?;
        let mut changes = IndexChanges::default();
        let mut bytes = 0;
        for id in blocks {
            if let Some(entry) = newest_entry(self.engine, index, &graph::block_key(id))? {
                bytes += entry.len();
                changes.note(index, None, Some(entry));
            }
            if bytes > STEP_BYTES {
                last = Some(id);
                break;
            }
        }
        let mut pairs = Vec::new();
        while pairs.len() < PAIRS_MAX
            && let Some(Clash { block, other, .. }) = changes.find_clash(self.engine)?
        {
            pairs.push((block.min(other), block.max(other)));
            changes.forget(block);
        }
        let state = match last {
            _ if !pairs.is_empty() => State::Dropped,
            Some(last) => State::Building { done: Some(last) },
            None => State::Ready {
                since: self.last + 1,
            },
        };
        if pairs.is_empty() {
            changes.write(&mut self.writer);
        }
        let next = self.put_index(Definition {
            state,
            ..(**index).clone()
        });
        match pairs.is_empty() {
            true => Ok(next),
            false => Ok(IndexProgress::NotUnique { pairs }),
        }
    }

    /// The next blocks of the index's kind, and the last block that was looked at, if there was one.
    fn next_blocks(
        &self,
        index: &Definition,
        done: Option<BlockId>,
    ) -> Result<(Vec<BlockId>, Option<BlockId>), Stop> {
        let lower = done.map_or(Bound::Unbounded, |id| {
            Bound::Excluded(graph::block_key(id).to_vec())
        });
        let (at, upper) = (Revision::MAX.get(), Bound::Unbounded);
        let scan = self
            .engine
            .scan(trees::BLOCK, lower, upper, at, ScanDirection::Forward);
        let mut scan = scan.heads();
        let (mut blocks, mut last) = (Vec::new(), None);
        for _ in 0..CHUNK_READ {
            if blocks.len() >= CHUNK || !scan.advance()? {
                break;
            }
            let Ok(id) = scan.key().try_into().map(BlockId::from_bytes) else {
                continue;
            };
            last = Some(id);
            // A beginning that ends within the kinds says nothing.
            let kinds = graph::block_kinds(scan.bytes());
            if kinds.is_none_or(|kinds| kinds.contains(index.kind)) {
                blocks.push(id);
            }
        }
        Ok((blocks, last))
    }

    fn clear_step(&mut self, index: &Definition) -> Result<IndexProgress, Stop> {
        let prefix = index.prefix();
        let lower = Bound::Included(prefix.to_vec());
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let at = Revision::MAX.get();
        let mut scan = self
            .engine
            .scan(trees::INDEX, lower, upper, at, ScanDirection::Forward);
        let (mut deleted, mut bytes) = (0, 0);
        while deleted < CLEARED && bytes <= STEP_BYTES && scan.advance()? {
            bytes += scan.key().len();
            deleted += 1;
            self.writer.delete_record(trees::INDEX, scan.key());
        }
        if deleted > 0 {
            return Ok(progress(index));
        }
        self.writer.delete_record(trees::INDEX, &index.key());
        let removed = IndexEffect::Removed(index.id);
        self.effects.push(Effect::Index(removed));
        Ok(IndexProgress::Gone)
    }

    /// Writes the entries of the blocks that the command has written, or refuses it.
    pub(super) fn write_entries(&mut self, command: &Command) -> Result<(), Stop> {
        let may_write = matches!(command.inner(), Command::Graph(_) | Command::Commit(_));
        if !may_write || self.indexes.are_none() {
            return Ok(());
        }
        let set = self.indexes.now();
        let mut changes = IndexChanges::default();
        for (key, write) in self.writer.journal.span(trees::BLOCK, &[], None) {
            let before = Before::newest(self.engine, &set, key)?;
            let record = match write {
                Write::Put { bytes, .. } => Some(&bytes[..]),
                Write::Delete => None,
            };
            changes.note_block(&set, &before, entries(&set, key, record));
        }
        if let Some(clash) = changes.find_clash(self.engine)? {
            let kind = self.kind_name(clash.index.kind);
            return refuse(IndexRefusal::NotUnique(Box::new(NotUnique {
                kind,
                attributes: clash.index.attributes.join(", "),
                block: clash.block,
                other: clash.other,
            })));
        }
        changes.write(&mut self.writer);
        Ok(())
    }

    /// The name of a kind that is registered, possibly by this command.
    fn kind_name(&self, id: graph::KindId) -> String {
        let new = || self.new_kinds.iter().find(|(new, _)| *new == id);
        let known = self.kinds.name(id).map(|name| name.to_string());
        known
            .or_else(|| new().map(|(_, name)| name.clone()))
            .unwrap_or_default()
    }
}

fn refuse<T>(refusal: IndexRefusal) -> Result<T, Stop> {
    Err(Refusal::from(refusal).into())
}

fn progress(index: &Definition) -> IndexProgress {
    match index.state {
        State::Ready { since } => IndexProgress::Ready { since },
        State::Building { done } => IndexProgress::Unfinished { id: index.id, done },
        State::Dropped => IndexProgress::Unfinished {
            id: index.id,
            done: None,
        },
    }
}
