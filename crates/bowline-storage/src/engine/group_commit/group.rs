//! A commit group: the batches that share one write and one flush of the log.
//!
//! [`Engine::begin_group`] admits the group. It takes the commit lock and reserves space in the log and
//! in the memtable, so every error that a full disk can cause comes before the first change. Each batch is
//! staged in the log's buffer and inserted into the memtable, where readers do not see it yet.
//! [`CommitGroup::finish`] writes and flushes the log and then publishes the last revision.

use std::sync::Arc;

use super::batch::BatchReader;
use super::commit_state::CommitState;
use crate::engine::Engine;
use crate::engine::core::Core;
use crate::engine::options::SyncPolicy;
use crate::error::{Error, Result};
use crate::log::LogOptions;
use crate::memtable::{Memtable, MemtableWriter};
use crate::sync::MutexGuard;
use crate::{Index, Revision};

/// A commit group in progress. It holds the commit lock, so only one exists at a time.
///
/// A group that is dropped unfinished after it took a batch stops all writing, because the memtable then
/// holds entries that the log does not.
#[derive(Debug)]
pub struct CommitGroup<'a> {
    core: &'a Core,
    commit: MutexGuard<'a, CommitState>,
    memtable: Arc<Memtable>,
    batches: u64,
    user_bytes: u64,
}

impl Engine {
    /// Begins a commit group of at most `batches` batches, with at most `operations` operations and
    /// `encoded_bytes` bytes in total.
    ///
    /// Slows or stops the caller while flush or compaction is behind. All errors that a full disk can
    /// cause come from here, before anything is changed.
    pub fn begin_group(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
    ) -> Result<CommitGroup<'_>> {
        self.begin(batches, operations, encoded_bytes, false)
    }

    /// [`Engine::begin_group`] for a group that only deletes. On a full disk it may use the space that
    /// the log reserves for deletions, and it does not wait for a flush that the full disk blocks.
    pub fn begin_freeing_group(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
    ) -> Result<CommitGroup<'_>> {
        self.begin(batches, operations, encoded_bytes, true)
    }

    /// How far flush and compaction are behind: from 0 (not at all) to 1 (a group waits for them).
    /// Above 0 a group may be slowed.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        let core = &*self.core;
        match core.options.has_threads() {
            true => core.pressure(&core.view.load()),
            false => 0.0,
        }
    }

    fn begin(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
        frees_space: bool,
    ) -> Result<CommitGroup<'_>> {
        let core = &*self.core;
        if encoded_bytes > core.options.group_bytes_max {
            let limit = core.options.group_bytes_max;
            return Err(Error::BatchTooLarge {
                size: encoded_bytes,
                limit,
            });
        }
        let pressure = match core.wait_for_background() {
            Err(Error::NoSpace { .. }) if frees_space => 0.0,
            result => result?,
        };
        let mut commit = core.commit.lock();
        if core.jobs.is_closing() {
            return Err(Error::Closed);
        }
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        if let Some(log) = &mut commit.log {
            let bytes = encoded_bytes + batches * LogOptions::ENTRY_OVERHEAD_BYTES;
            match log.reserve(bytes) {
                Err(Error::NoSpace { .. }) if frees_space => {
                    log.reserve_to_free(bytes)?;
                    core.ballast.permit();
                }
                result => result?,
            }
        }
        let space = memtable_space_bytes(operations, encoded_bytes);
        let mut memtable = core.view.load().active.clone();
        if !memtable.writer().has_room(space) {
            core.seal(&commit, space);
            memtable = core.view.load().active.clone();
        }
        commit.throttle(encoded_bytes, pressure, &core.counters);
        Ok(CommitGroup {
            core,
            commit,
            memtable,
            batches: 0,
            user_bytes: 0,
        })
    }
}

/// An upper bound of the memtable space for `operations` operations of `encoded_bytes` in total.
fn memtable_space_bytes(operations: u64, encoded_bytes: u64) -> usize {
    let fixed = MemtableWriter::cost_bytes(0, 0) as u64 + 16;
    usize::try_from(
        operations
            .saturating_mul(fixed)
            .saturating_add(encoded_bytes),
    )
    .unwrap_or(usize::MAX)
}

impl CommitGroup<'_> {
    /// The revision the next batch that writes something commits at.
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.commit.last_revision + 1
    }

    /// The revision of the last batch of this group, or of an earlier group.
    #[must_use]
    pub fn last_revision(&self) -> Revision {
        self.commit.last_revision
    }

    /// Whether the memtable has space for so much more in this group.
    #[must_use]
    pub fn has_room(&self, operations: u64, encoded_bytes: u64) -> bool {
        let space = memtable_space_bytes(operations, encoded_bytes);
        self.memtable.writer().has_room(space)
    }

    /// Takes an encoded batch (see [`super::BatchWriter`]): stages it for the log and inserts it
    /// into the memtable, where it stays invisible until the group is finished. Its revision is
    /// [`CommitGroup::next_revision`], or the last one again for a batch that changes nothing with a
    /// revision of its own (leases).
    pub fn apply(&mut self, encoded: &[u8]) -> Result<Index> {
        self.insert_or_fail(encoded, None)
    }

    /// Takes a batch of the log entry `index`, for an engine whose owner keeps the log. One entry may
    /// have any number of batches.
    pub fn apply_at(&mut self, index: Index, encoded: &[u8]) -> Result<Index> {
        self.insert_or_fail(encoded, Some(index))
    }

    fn insert_or_fail(&mut self, encoded: &[u8], at: Option<Index>) -> Result<Index> {
        let result = self.insert(encoded, at);
        if let Err(error) = &result {
            self.commit.failure = Some(format!("a batch could not be applied: {error}").into());
        }
        result
    }

    fn insert(&mut self, encoded: &[u8], at: Option<Index>) -> Result<Index> {
        let invalid = || Error::Internal("a batch does not decode".to_owned());
        let mut reader = BatchReader::new(encoded).ok_or_else(invalid)?;
        let revision = reader.revision();
        let expected = self.commit.last_revision..=self.commit.last_revision + 1;
        if !expected.contains(&revision) {
            let reason = format!("a batch at revision {revision}, expected one of {expected:?}");
            return Err(Error::Internal(reason));
        }
        let index = match (at, self.core.is_replicated) {
            (None, false) => self.commit.last_index + 1,
            (Some(index), true) if index >= self.commit.last_index => index,
            _ => {
                let last = self.commit.last_index;
                let reason = format!("a batch of entry {at:?} after entry {last}");
                return Err(Error::Internal(reason));
            }
        };
        if let Some(log) = &mut self.commit.log {
            let staged = log.stage(encoded);
            if staged != index {
                return Err(Error::Internal(format!(
                    "the log is at {staged}, expected {index}"
                )));
            }
        }
        let mut writer = self.memtable.writer();
        while let Some(op) = reader
            .next_operation()
            .map_err(|reason| Error::Internal(reason.to_owned()))?
        {
            if usize::from(op.tree.0) >= self.core.options.trees.len() {
                return Err(Error::Internal(format!("no tree {}", op.tree.0)));
            }
            writer.insert(op.tree, op.key, revision, op.kind, op.value)?;
            self.user_bytes += (op.key.len() + op.value.len()) as u64;
        }
        writer.set_max_index(index);
        drop(writer);
        self.commit.last_revision = revision;
        self.commit.last_index = index;
        self.batches += 1;
        Ok(index)
    }

    /// Writes the group to the log, flushes it (with [`SyncPolicy::Always`]) and publishes it.
    ///
    /// After an error nothing of the group is visible, and no further group is accepted.
    pub fn finish(mut self) -> Result<Revision> {
        if self.batches == 0 {
            // A flush of another thread may have failed since the group began.
            return match self.commit.poisoned() {
                Some(reason) => Err(Error::Poisoned { reason }),
                None => Ok(self.commit.last_revision),
            };
        }
        let flush = self.core.options.sync == SyncPolicy::Always;
        let result: Result<()> = self.commit.log.as_mut().map_or(Ok(()), |log| {
            log.write()?;
            if flush {
                log.sync()?;
            }
            Ok(())
        });
        if let Err(error) = result {
            self.commit.failure = Some(error.to_string().into());
            return Err(error);
        }
        let revision = self.commit.last_revision;
        self.core.view.publish(revision);
        let counters = &self.core.counters;
        counters.commit_rounds.add(1);
        counters.commits.add(self.batches);
        counters.user_bytes_written.add(self.user_bytes);
        self.batches = 0;
        Ok(revision)
    }
}

impl Drop for CommitGroup<'_> {
    fn drop(&mut self) {
        if self.batches > 0 && self.commit.failure.is_none() {
            self.commit.failure = Some("a commit group was dropped half-way".into());
            self.commit.is_half_done = true;
        }
    }
}
