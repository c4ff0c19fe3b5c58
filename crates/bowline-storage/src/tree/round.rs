//! A round: the batches that share one write and one flush of the log.

use std::sync::Arc;
use std::time::Duration;

use super::batch::BatchReader;
use super::{CommitState, Engine, Shared, SuperVersion, SyncPolicy};
use crate::error::{Error, Result};
use crate::log::LogOptions;
use crate::memtable::{Memtable, MemtableWriter};
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, thread};
use crate::{Index, Revision};

/// The right to write, until [`Round::finish`]. Only one exists at a time.
///
/// A round that is dropped unfinished after it took a batch stops all writing: the memtable then
/// holds entries that the log does not.
#[derive(Debug)]
pub struct Round<'a> {
    shared: &'a Shared,
    commit: MutexGuard<'a, CommitState>,
    memtable: Arc<Memtable>,
    batches: u64,
    user_bytes: u64,
}

impl Engine {
    /// Begins a round that will take at most `batches` batches of `encoded_bytes` in all, with
    /// at most `operations` operations.
    ///
    /// Holds the caller back while flush or compaction is behind. All errors that a full disk can
    /// cause come from here, before anything is changed.
    pub fn begin_round(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
    ) -> Result<Round<'_>> {
        self.begin(batches, operations, encoded_bytes, false)
    }

    /// [`Engine::begin_round`] for a round that only deletes. On a full disk it may use what the
    /// log keeps for this, and it does not wait for a flush that the full disk holds up.
    pub fn begin_freeing_round(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
    ) -> Result<Round<'_>> {
        self.begin(batches, operations, encoded_bytes, true)
    }

    /// How far flush and compaction are behind: from 0, not at all, to 1, where a round waits for
    /// them. Above 0 a round may be held back a little.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        let shared = &*self.shared;
        match shared.options.has_threads() {
            true => shared.pressure(&shared.super_version.load()),
            false => 0.0,
        }
    }

    fn begin(
        &self,
        batches: u64,
        operations: u64,
        encoded_bytes: u64,
        frees_space: bool,
    ) -> Result<Round<'_>> {
        let shared = &*self.shared;
        if encoded_bytes > shared.options.round_bytes_max {
            let limit = shared.options.round_bytes_max;
            return Err(Error::BatchTooLarge {
                size: encoded_bytes,
                limit,
            });
        }
        let pressure = match shared.wait_for_background() {
            Err(Error::NoSpace { .. }) if frees_space => 0.0,
            result => result?,
        };
        let mut commit = shared.commit.lock();
        if shared.is_closing.load(Ordering::Acquire) {
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
                    shared.ballast.release();
                }
                result => result?,
            }
        }
        let room = memtable_room_bytes(operations, encoded_bytes);
        let mut memtable = shared.super_version.load().active.clone();
        if !memtable.writer().has_room(room) {
            shared.seal(&commit, room);
            memtable = shared.super_version.load().active.clone();
        }
        commit.pay_for(encoded_bytes, pressure, shared);
        Ok(Round {
            shared,
            commit,
            memtable,
            batches: 0,
            user_bytes: 0,
        })
    }
}

/// An upper bound of what `operations` of `encoded_bytes` in all take in a memtable.
fn memtable_room_bytes(operations: u64, encoded_bytes: u64) -> usize {
    let fixed = MemtableWriter::cost_bytes(0, 0) as u64 + 16;
    usize::try_from(
        operations
            .saturating_mul(fixed)
            .saturating_add(encoded_bytes),
    )
    .unwrap_or(usize::MAX)
}

impl Round<'_> {
    /// The revision the next batch that writes something commits at.
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.commit.last_revision + 1
    }

    /// The revision of the last batch of this round, or of an earlier one.
    #[must_use]
    pub fn last_revision(&self) -> Revision {
        self.commit.last_revision
    }

    /// Whether it can take as much more without another round.
    #[must_use]
    pub fn has_room(&self, operations: u64, encoded_bytes: u64) -> bool {
        let room = memtable_room_bytes(operations, encoded_bytes);
        self.memtable.writer().has_room(room)
    }

    /// Takes an encoded batch (see [`super::BatchWriter`]): stages it for the log and inserts it
    /// into the memtable, where it stays invisible until the round is finished. Its revision is
    /// [`Round::next_revision`], or the last one again for a batch that changes nothing a user
    /// can number (leases).
    pub fn apply(&mut self, encoded: &[u8]) -> Result<Index> {
        self.insert_or_fail(encoded, None)
    }

    /// Takes a batch of the log entry `index` of an engine whose log belongs to somebody else. One
    /// entry may have any number of batches.
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
        let index = match (at, self.shared.is_replicated) {
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
            if usize::from(op.tree.0) >= self.shared.options.trees.len() {
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

    /// Writes the round to the log, flushes it (with [`SyncPolicy::Always`]) and publishes it.
    ///
    /// On an error nothing of the round is visible, and no further round is accepted.
    pub fn finish(mut self) -> Result<Revision> {
        if self.batches == 0 {
            // A flush of another thread may have failed since the round began.
            return match self.commit.poisoned() {
                Some(reason) => Err(Error::Poisoned { reason }),
                None => Ok(self.commit.last_revision),
            };
        }
        let flush = self.shared.options.sync == SyncPolicy::Always;
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
        self.shared.visible.store(revision, Ordering::Release);
        let counters = &self.shared.counters;
        counters.commit_rounds.add(1);
        counters.commits.add(self.batches);
        counters.user_bytes_written.add(self.user_bytes);
        self.batches = 0;
        Ok(revision)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if self.batches > 0 && self.commit.failure.is_none() {
            self.commit.failure = Some("a round was given up half-way".into());
        }
    }
}

impl CommitState {
    /// Holds a writer back in proportion to what it writes and to how far flush and compaction
    /// are behind: nothing at pressure 0, 20 ns per byte (50 MB/s) half-way, without bound
    /// toward 1. Debts below a millisecond are carried on, since a shorter sleep is not exact.
    fn pay_for(&mut self, bytes: u64, pressure: f64, shared: &Shared) {
        if pressure <= 0.0 {
            self.throttle_debt_ns = 0;
            return;
        }
        shared.counters.rounds_slowed.add(1);
        let ns_per_byte = 20.0 * pressure / (1.0 - pressure).max(0.001);
        self.throttle_debt_ns += (bytes as f64 * ns_per_byte) as u64;
        if self.throttle_debt_ns >= 1_000_000 {
            let pause = Duration::from_nanos(self.throttle_debt_ns.min(100_000_000));
            self.throttle_debt_ns = 0;
            shared.counters.throttle_ms.add(pause.as_millis() as u64);
            thread::sleep(pause);
        }
    }
}

impl Shared {
    /// How far the background work is behind, from 0 (not at all) to just below 1; waits while it
    /// is at 1. When the work fails, it is tried again for the sake of this writer, and the error
    /// is that of an attempt that began after the writer had come: never a stale one.
    pub(super) fn wait_for_background(&self) -> Result<f64> {
        if !self.options.has_threads() {
            return Ok(0.0);
        }
        let pressure = self.pressure(&self.super_version.load());
        if pressure < 1.0 {
            return Ok(pressure);
        }
        self.counters.rounds_stopped.add(1);
        let start = self.clock.monotonic();
        let mut signals = self.signals.lock();
        let came_at = [signals.flush.begun, signals.compaction.begun];
        loop {
            let pressure = self.pressure(&self.super_version.load());
            if self.is_closing.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            if pressure < 1.0 {
                let waited = self.clock.monotonic().saturating_sub(start);
                self.counters.throttle_ms.add(waited.as_millis() as u64);
                return Ok(pressure);
            }
            for (job, came_at) in [&signals.flush, &signals.compaction]
                .into_iter()
                .zip(came_at)
            {
                // A member applies what is agreed on, and has nobody to tell that it lacks open files.
                let is_waited_for = |error: &Error| {
                    self.is_replicated && matches!(error, Error::TooManyFiles { .. })
                };
                if let Some((attempt, error)) = &job.failed
                    && *attempt > came_at
                    && !is_waited_for(error)
                {
                    return Err(error.clone());
                }
            }
            if signals.flush.failed.is_some() || signals.compaction.failed.is_some() {
                signals.is_hurried = true;
                self.work.notify_all();
            }
            self.done.wait_for(&mut signals, Duration::from_millis(100));
        }
    }

    fn pressure(&self, super_version: &SuperVersion) -> f64 {
        let graded = |value: f64, soft: f64, hard: f64| {
            if value <= soft {
                0.0
            } else {
                ((value - soft) / (hard - soft)).min(1.0)
            }
        };
        let active = &super_version.active;
        let filled = active.used_bytes() as f64 / active.capacity_bytes().max(1) as f64;
        let waiting = super_version.sealed.len() as f64;
        let hard = self.options.sealed_memtables_max.max(1) as f64;
        let memory = if waiting < 1.0 {
            0.0
        } else if waiting >= hard {
            1.0
        } else {
            graded(waiting + filled.min(1.0), 1.5, hard + 0.5).min(0.999)
        };
        let runs_max = self.options.compaction.runs_max.max(2) as f64;
        let trees = super_version.version.trees.iter();
        let runs = trees
            .map(|tree| tree.levels.first().map_or(0, Vec::len))
            .max()
            .unwrap_or(0);
        memory.max(graded(runs as f64, 2.0 * runs_max, 6.0 * runs_max))
    }
}
