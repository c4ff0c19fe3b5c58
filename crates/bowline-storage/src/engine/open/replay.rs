//! Replay: rebuilds memtables from the entries of the log.
//!
//! The log is divided into stretches. Threads replay them in parallel, each into its own memtables. The
//! memtables have the order of the stretches, so the result does not depend on the number of threads.
//! Neither does an error: it is the first one that a single thread would find.
//!
//! Invariant: the revision of an entry is that of the previous entry, or the next one. Between two
//! stretches this is checked when both have been read.

use std::sync::Arc;

use crate::engine::group_commit::BatchReader;
use crate::engine::options::EngineOptions;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::memtable::{Memtable, MemtableBuilder, MemtableWriter};
use crate::version::{Layout, State};
use crate::{Index, Revision, workers};

/// The content of the log behind the tables.
pub(super) struct Replayed {
    /// Oldest first; empty when the log has nothing behind the tables.
    pub memtables: Vec<Arc<Memtable>>,
    pub last_revision: Revision,
    pub last_index: Index,
}

impl Replayed {
    /// The result when the log has no entry behind the tables of `state`.
    pub(crate) fn nothing_behind(state: &State) -> Replayed {
        Replayed {
            memtables: Vec::new(),
            last_revision: state.flushed_revision,
            last_index: state.flushed_index,
        }
    }
}

/// Rebuilds memtables from the log with at most `threads` threads.
pub(super) fn replay(
    log: &Log,
    layout: &Layout,
    options: &EngineOptions,
    state: &State,
    threads: usize,
) -> Result<Replayed> {
    let stretches: Vec<_> = log
        .replay(state.flushed_index, threads)
        .into_iter()
        .enumerate()
        .collect();
    let parts = workers::map(&stretches, threads, |(number, stretch)| {
        let first_index = stretch.first_index();
        // The last revision of the previous stretch is known only when that has been read.
        let revision = (*number == 0).then_some(state.flushed_revision);
        let mut part = Replay::new(*number, options, first_index, revision);
        let result = stretch.visit(&mut |index, payload| part.entry(layout, index, payload));
        part.finish_memtable();
        (part, result)
    });
    let mut replayed = Replayed::nothing_behind(state);
    for (part, result) in parts {
        if let Some((index, revision)) = part.begins_with {
            check_order(layout, index, revision, replayed.last_revision)?;
        }
        result?;
        replayed.last_revision = part.last_revision.unwrap_or(replayed.last_revision);
        replayed.last_index = part.last_index;
        replayed.memtables.extend(part.memtables);
    }
    Ok(replayed)
}

fn corrupt_entry(layout: &Layout, index: Index, reason: &str) -> Error {
    Error::corrupt(&layout.log(), 0, format!("log entry {index}: {reason}"))
}

/// Whether an entry of `revision` may follow one of `last`.
fn check_order(layout: &Layout, index: Index, revision: Revision, last: Revision) -> Result<()> {
    if revision != last && revision != last + 1 {
        let reason = format!("revision {revision} follows {last}");
        return Err(corrupt_entry(layout, index, &reason));
    }
    Ok(())
}

/// Rebuilds memtables from the entries of one stretch of the log, oldest first.
struct Replay {
    trees: usize,
    memtable_bytes: usize,
    memtables: Vec<Arc<Memtable>>,
    /// The memtable that takes the next entries.
    builder: Option<MemtableBuilder>,
    generation: u64,
    /// Index and revision of the first entry, if the revision before it is not known yet.
    begins_with: Option<(Index, Revision)>,
    last_revision: Option<Revision>,
    last_index: Index,
}

impl Replay {
    /// `number` is that of the stretch, `first_index` is the index of its first entry, and
    /// `last_revision` is the revision before it, if that is known.
    fn new(
        number: usize,
        options: &EngineOptions,
        first_index: Index,
        last_revision: Option<Revision>,
    ) -> Replay {
        Replay {
            trees: options.trees.len(),
            memtable_bytes: options.memtable_bytes,
            memtables: Vec::new(),
            builder: None,
            // Generations ascend from stretch to stretch, however many memtables a stretch needs.
            generation: (number as u64) << 32,
            begins_with: None,
            last_revision,
            last_index: first_index.saturating_sub(1),
        }
    }

    fn entry(&mut self, layout: &Layout, index: Index, payload: &[u8]) -> Result<()> {
        let corrupt = |reason: String| corrupt_entry(layout, index, &reason);
        if index != self.last_index + 1 {
            return Err(corrupt(format!(
                "entry {} was expected",
                self.last_index + 1
            )));
        }
        let mut reader = BatchReader::new(payload)
            .ok_or_else(|| corrupt("its batch does not decode".to_owned()))?;
        let revision = reader.revision();
        match self.last_revision {
            Some(last) => check_order(layout, index, revision, last)?,
            None => self.begins_with = Some((index, revision)),
        }
        // Every operation takes at least two bytes of the payload.
        let mut count = reader.clone();
        let mut room = payload.len();
        while let Some(op) = count
            .next_operation()
            .map_err(|reason| corrupt(reason.to_owned()))?
        {
            if usize::from(op.tree.0) >= self.trees {
                return Err(corrupt(format!("tree {} is unknown", op.tree.0)));
            }
            room += MemtableWriter::cost_bytes(0, 0) + 16;
        }
        let is_full = |builder: &mut MemtableBuilder| !builder.writer().has_room(room);
        if self.builder.as_mut().is_none_or(is_full) {
            self.finish_memtable();
            self.generation += 1;
            let capacity = self.memtable_bytes.max(room);
            self.builder = Some(MemtableBuilder::new(self.generation, self.trees, capacity));
        }
        if let Some(builder) = &mut self.builder {
            let mut writer = builder.writer();
            while let Some(op) = reader
                .next_operation()
                .map_err(|reason| corrupt(reason.to_owned()))?
            {
                writer.insert(op.tree, op.key, revision, op.kind, op.value)?;
            }
            writer.set_max_index(index);
        }
        (self.last_index, self.last_revision) = (index, Some(revision));
        Ok(())
    }

    fn finish_memtable(&mut self) {
        let finished = self.builder.take().map(MemtableBuilder::finish);
        self.memtables.extend(finished.map(Arc::new));
    }
}
