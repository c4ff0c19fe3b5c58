//! The Raft log over the engine's log: one log on disk, which the trees replay, too.
//!
//! # Indices
//!
//! Raft counts entries from 0, the engine's log from 1: engine index = Raft index + 1. Names say which one is
//! meant; a bare `index` is Raft's.
//!
//! # Algorithm
//!
//! ```text
//!  openraft ──append──▶ ┌─ view ─┐ newest entries, decoded, readable at once
//!           ──read────▶ └────────┘ older ones: Log::read
//!               │ work, in order
//!               ▼
//!  "bowline-raft-log":  stage everything queued ▶ one write ▶ one flush ▶ answer, in order
//! ```
//!
//! One thread does all writing: entries, truncations, votes. It takes everything queued as one group, so that
//! all waiters share the flush. Votes go through the same queue, hence reach the disk in the order in which
//! Raft decided them.
//!
//! *Purging* is immediate in the view and is not written. Entries are removed from disk when the tables hold
//! them durably ([`LogStore::set_flushed`]) and they are purged: entries above the tables are needed for the
//! restart. After a restart purged entries that still exist are visible again, which is harmless: they were
//! committed.
//!
//! *A snapshot* from a leader puts a gap before the next entry. Its installer replaces the tables and then
//! calls [`LogStore::restart_behind`]; an append behind the gap that comes earlier waits for it. When the log
//! holds the snapshot's last entry ([`LogStore::holds`]) there is no gap: entries after it may have been
//! acknowledged, and the log must continue unchanged.
//!
//! *Vouching.* A member must not lose an entry that it acknowledged and then vote as if it never had it. An
//! invalid end of the log may be the torn tail of a power loss, which nobody acknowledged, or flushed data
//! that has rotted since. So when the thread has had nothing to write for
//! [`vouch_after`](LogStoreOptions::vouch_after), it writes and flushes a frame that says that all before it
//! was flushed ([`Log::vouch`]). From then on damage to any entry is an error of the opening, with file and
//! offset, and the member does not start. An end without a later frame counts as torn and is cut off: a power
//! loss of all members blocks nothing. The price is a window: rot of the last group within that time after
//! its flush, with a crash in the same time, is not detected. Under load each group vouches for those before
//! it, and nothing extra is written.
//!
//! *On a full disk* the thread waits for room. This is detected earlier: a spare segment is always kept
//! ahead, and when the next one cannot be allocated the log is [short of space](LogStore::is_short_of_space)
//! while it still has a segment or more. From then on callers must append only what frees space.
//!
//! # Invariants
//!
//! 1. A callback is completed without an error only after a flush that covers its entries, and in the order
//!    of the calls.
//! 2. After a failed write or flush no callback succeeds any more.
//! 3. An appended entry is readable when `append` returns, and stays in the view until the thread has written
//!    it.
//! 4. An entry is removed from disk only when it is purged and not above the flushed index of the tables.
//! 5. A full disk fails nothing: work that needs room waits for it, and everything behind it too. (Vouching
//!    is skipped then.)
//! 6. When nothing has been written for the time of `vouch_after`, later frames vouch for every entry whose
//!    callback was completed.

mod open;
mod options;
mod queue;
mod reader;
mod replay;
mod shared;
#[cfg(test)]
mod tests;
mod view;
mod writer;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use bowline_storage::Index;
use bowline_storage::histogram::{Histogram, HistogramSnapshot};
use bowline_storage::log::Log;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader as _};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

pub use options::LogStoreOptions;
pub use reader::LogReader;
pub use replay::Replay;

use crate::blocking;
use crate::error::LogStoreError;
use crate::member_file::MemberFile;
use crate::types::{Entry, LogId, NodeId, Payload, TypeConfig, Vote};
use queue::{Queue, Work};
use reader::Amount;
use shared::Shared;
use view::View;
use writer::Writer;

/// Stops the thread when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Owner {
    fn stop(&self) {
        self.shared.queue.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the Raft log panicked");
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The Raft log. Clones are handles of the same log; the thread ends with the last of them.
#[derive(Clone)]
pub struct LogStore {
    owner: Arc<Owner>,
    shared: Arc<Shared>,
}

impl fmt::Debug for LogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore")
            .field("view", &*self.shared.view.lock())
            .finish_non_exhaustive()
    }
}

impl LogStore {
    fn start(
        mut log: Log,
        view: View,
        flushed: Index,
        member: Arc<MemberFile>,
        options: LogStoreOptions,
    ) -> Result<LogStore, LogStoreError> {
        let sync = log.sync_handle();
        let next_index = log.next_index();
        log.keep_a_spare();
        let shared = Arc::new(Shared {
            log: Mutex::new(Some(log)),
            view: Mutex::new(view),
            queue: Queue::new(flushed),
            sync: sync.clone(),
            is_short: watch::Sender::default(),
            member,
            options,
            flush_times: Histogram::default(),
        });
        let mut writer = Writer::new(shared.clone(), sync, next_index);
        let thread = if blocking::is_alone() {
            tokio::spawn(writer.run_as_task());
            None
        } else {
            let named = std::thread::Builder::new().name("bowline-raft-log".to_owned());
            let spawned = named.spawn(move || writer.run());
            Some(spawned.map_err(|error| LogStoreError::Stopped(error.to_string().into()))?)
        };
        let owner = Owner {
            shared: shared.clone(),
            thread: Mutex::new(thread),
        };
        Ok(LogStore {
            owner: Arc::new(owner),
            shared,
        })
    }

    /// Reports that the tables hold everything up to the engine index `flushed` durably. Nothing above it is
    /// removed from disk.
    pub fn set_flushed(&self, flushed: Index) {
        self.shared.queue.set_flushed(flushed);
        self.shared.release();
    }

    /// Whether the log holds the entry `id`, or has purged it. Then a snapshot up to `id` leaves no gap, and
    /// [`LogStore::restart_behind`] must not be called: entries behind it may have been acknowledged.
    pub async fn holds(&self, id: &LogId) -> Result<bool, LogStoreError> {
        {
            let view = self.shared.view.lock();
            if view.purged().is_some_and(|purged| purged.index >= id.index) {
                return Ok(true);
            }
            if id.index >= view.next() {
                return Ok(false);
            }
        }
        let reader = self.reader();
        let entries = reader.read(id.index, id.index + 1, Amount::All).await?;
        Ok(entries.first().is_some_and(|entry| entry.log_id == *id))
    }

    /// Discards the whole log and continues behind `last`, perhaps behind a gap: a snapshot up to that
    /// entry has been installed. The new log is durable when this returns; [`Log::restart_at`] says
    /// what the caller must have recorded before.
    pub async fn restart_behind(&self, last: LogId) -> Result<(), LogStoreError> {
        let (done, wait) = oneshot::channel();
        let next_index = last.index.saturating_add(2);
        self.shared.view.lock().restart_behind(last);
        self.shared.queue.push(Work::Restart { next_index, done });
        wait.await.unwrap_or_else(|_| Err(self.shared.stopped()))
    }

    /// Waits until all earlier work is durable.
    pub async fn flush(&self) -> Result<(), LogStoreError> {
        let (done, wait) = oneshot::channel();
        self.shared.queue.push(Work::Barrier { done });
        wait.await.unwrap_or_else(|_| Err(self.shared.stopped()))
    }

    /// Whether the disk has no room for more than the log has already, or not even for the queued writes.
    /// Does not block.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        self.shared.sync.is_short_of_space()
    }

    /// Signals changes of [`is_short_of_space`](Self::is_short_of_space) during writes.
    #[must_use]
    pub(crate) fn shortage(&self) -> watch::Receiver<bool> {
        self.shared.is_short.subscribe()
    }

    /// Whether a write waits for room on the disk.
    #[cfg(test)]
    pub(crate) fn waits_for_room(&self) -> bool {
        self.shared.queue.waits_for_room()
    }

    /// Checks in the background whether there is room again. To be called now and then while the log is short
    /// of space.
    pub fn look_for_space(&self) {
        self.with_log(Log::look_for_space);
    }

    /// Ends all waiting for room: work that finds none fails, and everything after it. For a caller that is
    /// about to close, and would wait for it.
    pub(crate) fn stop_waiting(&self) {
        self.shared.queue.hurry();
    }

    /// Whether waiting for room has ended.
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.queue.fails_without_room()
    }

    /// The last entry; if there is none, the last purged one.
    #[must_use]
    pub fn last_log_id(&self) -> Option<LogId> {
        self.shared.view.lock().last()
    }

    /// All entries.
    #[cfg(test)]
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>, LogStoreError> {
        self.reader().read(0, u64::MAX, Amount::All).await
    }

    /// Passes the members of all memberships in the log to `see`.
    pub(crate) async fn search_members(&self, mut see: impl FnMut(NodeId)) -> io::Result<()> {
        let mut reader = self.clone().get_log_reader().await;
        let mut next = self.last_purged_log_id().map_or(0, |id| id.index + 1);
        let end = self.last_log_id().map_or(0, |id| id.index + 1);
        while next < end {
            let entries = reader.limited_get_log_entries(next, end).await?;
            let Some(last) = entries.last() else {
                break;
            };
            next = last.log_id.index + 1;
            for entry in &entries {
                if let Payload::Membership(membership) = &entry.payload {
                    membership.nodes().for_each(|(id, _)| see(*id));
                }
            }
        }
        Ok(())
    }

    /// The entry up to which the log was purged.
    #[must_use]
    pub fn last_purged_log_id(&self) -> Option<LogId> {
        self.shared.view.lock().purged()
    }

    /// The times of the log's flushes.
    #[must_use]
    pub(crate) fn flush_times(&self) -> HistogramSnapshot {
        self.shared.flush_times.read()
    }

    /// The member's file, which holds the vote.
    #[must_use]
    pub fn member(&self) -> &Arc<MemberFile> {
        &self.shared.member
    }

    /// Writes the queued work, ends the thread, seals the log. Later calls are refused. Blocks.
    pub fn close(&self) -> Result<(), LogStoreError> {
        self.owner.stop();
        let log = self.shared.log.lock().take();
        match (log, self.shared.queue.failure()) {
            // The state on disk is unknown: it stays as it is for the next opening.
            (_, Some(failure)) => Err(LogStoreError::Stopped(failure)),
            (Some(log), None) => Ok(log.close()?),
            (None, None) => Ok(()),
        }
    }

    /// Reads a part of the log on the disk from `from` on, to find damage. Gives where the next part begins, or `None` at the
    /// end. Blocks.
    pub(crate) fn verify(&self, from: u64) -> Result<Option<u64>, LogStoreError> {
        self.shared.verify(from)
    }

    /// Passes the engine's log to `look`, for its size and its entries.
    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> Option<T> {
        self.shared.log.lock().as_ref().map(look)
    }

    fn reader(&self) -> LogReader {
        LogReader::new(self.shared.clone())
    }
}

impl Shared {
    /// Publishes whether the log is short of space.
    fn note_space(&self) {
        let is_short = self.sync.is_short_of_space();
        self.is_short
            .send_if_modified(|known| std::mem::replace(known, is_short) != is_short);
    }

    /// The last engine index that is purged and in the tables; 0 is none.
    fn superfluous(&self) -> Index {
        let purged = self.view.lock().purged();
        let purged = purged.map_or(0, |purged| purged.index + 1);
        purged.min(self.queue.flushed())
    }

    /// Queues the removal of entries that are purged and in the tables.
    fn release(&self) {
        let upto = self.superfluous();
        if upto > 0 {
            self.queue.push(Work::Release { upto });
        }
    }

    fn stopped(&self) -> LogStoreError {
        let failure = self.queue.failure();
        LogStoreError::Stopped(failure.unwrap_or_else(|| "it is closed".into()))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let view = self.shared.view.lock();
        Ok(LogState {
            last_purged_log_id: view.purged(),
            last_log_id: view.last(),
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.shared.queue.push(Work::Vote { vote: *vote, done });
        let saved = wait.await.unwrap_or_else(|_| Err(self.shared.stopped()));
        Ok(saved?)
    }

    /// Costs no write: the next record has it.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.shared.view.lock().set_committed(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.shared.view.lock().committed())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let generation = self.shared.view.lock().append(&entries)?;
        self.shared.queue.push(Work::Append {
            entries,
            generation,
            callback,
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let next = last_log_id.map_or(0, |id| id.index + 1);
        let is_cut = self.shared.view.lock().truncate(last_log_id)?;
        if is_cut {
            let from = next + 1;
            self.shared.queue.push(Work::Cut { from });
        }
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.shared.view.lock().purge(log_id);
        self.shared.release();
        Ok(())
    }
}
