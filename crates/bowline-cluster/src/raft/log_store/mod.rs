//! The Raft log over the engine's log: one log on disk, which is also what the trees replay.
//!
//! # Indices
//!
//! Raft counts entries from 0, the engine's log from 1: engine index = Raft index + 1. Names say
//! which one is meant; a bare `index` is Raft's.
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
//! A thread owns all writing: of entries, of cuts, of the vote. It takes everything that is queued
//! and makes one group of it, so that the flush is shared by all who wait. Votes go through the
//! same queue, hence reach the disk in the order in which Raft decided them.
//!
//! *Purging* is immediate in the view and written nowhere. On disk entries go when the
//! tables hold them durably ([`LogStore::set_flushed`]) and they are purged: what lies above the
//! tables is needed for the restart. After a restart entries that were purged and are still there
//! show again, which is no harm: they were committed.
//!
//! *A snapshot* from a leader puts a gap before the next entry. Its installer replaces the tables
//! and then calls [`LogStore::restart_at`]; an append behind the gap that comes earlier waits for
//! it. When the log holds the snapshot's last entry ([`LogStore::holds`]) there is no gap, what
//! follows it may have been acknowledged, and the log must go on as it is.
//!
//! *Vouching.* A member must not lose an entry that it acknowledged and then vote as if it never had it.
//! When the end of its log is invalid, that may be what a power loss tore, which nobody acknowledged, or
//! what was flushed and has rotted since. So when the thread has had nothing to write for
//! [`vouch_after`](LogStoreOptions::vouch_after), it writes and flushes a frame that says that all
//! before it was flushed ([`Log::vouch`]). From then on damage to any entry is an error of the opening,
//! with file and place, and the member does not start. An end that nothing vouches for counts as torn
//! and is cut off: a power loss of all members blocks nothing. The price is a window: rot that hits the
//! last group within that time after it was flushed, with a crash in the same time, is not noticed.
//! Under load each group vouches for those before it, and nothing is written for this alone.
//!
//! *On a full disk* the thread waits for room. It is noticed before: a spare segment is always kept
//! ahead, and when the next one cannot be made the log is [short of
//! space](LogStore::is_short_of_space) while it still has a segment or more. Whoever appends then sees
//! to it that only what frees space is appended.
//!
//! # Invariants
//!
//! 1. A callback is completed without an error only after a flush that covers its entries, and in
//!    the order of the calls.
//! 2. After a failed write or flush no callback succeeds any more.
//! 3. What was appended is readable when `append` returns, and stays in the view until the thread
//!    has written it.
//! 4. An entry is removed from disk only when it is purged and not above what the tables hold.
//! 5. A full disk fails nothing: what needs room waits for it, and everything behind it too. (Vouching
//!    is left out then.)
//! 6. When nothing has been written for the time of `vouch_after`, later frames vouch for every entry
//!    whose callback was completed.

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
use bowline_storage::log::Log;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader as _};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

pub use options::LogStoreOptions;
pub use reader::LogReader;
pub use replay::Replay;

use crate::error::LogStoreError;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::member_file::MemberFile;
use crate::types::{Entry, LogId, NodeId, Payload, TypeConfig, Vote};
use queue::{Queue, Work};
use reader::Amount;
use shared::Shared;
use view::View;
use writer::Writer;

/// Stops the thread when the last handle is gone.
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
        let thread = std::thread::Builder::new()
            .name("bowline-raft-log".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| LogStoreError::Stopped(error.to_string().into()))?;
        let owner = Owner {
            shared: shared.clone(),
            thread: Mutex::new(Some(thread)),
        };
        Ok(LogStore {
            owner: Arc::new(owner),
            shared,
        })
    }

    /// The tables hold everything up to the engine index `flushed` durably. Nothing above it is
    /// removed from disk.
    pub fn set_flushed(&self, flushed: Index) {
        self.shared.queue.set_flushed(flushed);
        self.shared.release();
    }

    /// Whether the log holds the entry `id`, or has purged it. Then a snapshot up to `id` leaves
    /// no gap, and [`LogStore::restart_at`] must not be called: entries behind it may have been
    /// acknowledged.
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

    /// Makes everything in the log void and goes on at the Raft index `next`, behind a gap: a
    /// snapshot up to the entry before has been installed. When this returns the log is there,
    /// durably; see [`Log::restart_at`] for what the caller must have recorded before.
    pub async fn restart_at(&self, next: u64) -> Result<(), LogStoreError> {
        let (done, wait) = oneshot::channel();
        let next_index = next.saturating_add(1);
        self.shared.view.lock().restart_at(next);
        self.shared.queue.push(Work::Restart { next_index, done });
        wait.await.unwrap_or_else(|_| Err(self.shared.stopped()))
    }

    /// Waits until everything that was handed in before is durable.
    pub async fn flush(&self) -> Result<(), LogStoreError> {
        let (done, wait) = oneshot::channel();
        self.shared.queue.push(Work::Barrier { done });
        wait.await.unwrap_or_else(|_| Err(self.shared.stopped()))
    }

    /// Whether there is no room on the disk for more than the log has already, or not even for what
    /// waits to be written. Waits for nobody.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        self.shared.sync.is_short_of_space()
    }

    /// Tells when that changes while something is written.
    #[must_use]
    pub fn shortage(&self) -> watch::Receiver<bool> {
        self.shared.is_short.subscribe()
    }

    /// Whether something waits to be written until there is room on the disk.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.shared.queue.waits_for_room()
    }

    /// Looks in the background whether there is room again. To be called now and then while it is
    /// short of space.
    pub fn look_for_space(&self) {
        self.with_log(Log::look_for_space);
    }

    /// Lets nothing wait for room any more: what finds none fails, and everything after it. For
    /// who is about to close, and would wait for those who wait.
    pub fn stop_waiting(&self) {
        self.shared.queue.hurry();
    }

    /// Whether nothing shall wait any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.queue.fails_without_room()
    }

    /// The last entry, or what was purged last when there is none.
    #[must_use]
    pub fn last_log_id(&self) -> Option<LogId> {
        self.shared.view.lock().last()
    }

    /// Reads the memberships that the log still has, and gives their members to `see`.
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

    /// How long it took to make entries durable, each time.
    #[must_use]
    pub fn flush_times(&self) -> HistogramSnapshot {
        self.shared.flush_times.read()
    }

    /// The member's file, in which the vote is.
    #[must_use]
    pub fn member(&self) -> &Arc<MemberFile> {
        &self.shared.member
    }

    /// Writes what is queued, ends the thread, seals the log. Later calls are refused. Blocks.
    pub fn close(&self) -> Result<(), LogStoreError> {
        self.owner.stop();
        let log = self.shared.log.lock().take();
        match (log, self.shared.queue.failure()) {
            // What is on disk is unknown: it stays as it is for the next opening.
            (_, Some(failure)) => Err(LogStoreError::Stopped(failure)),
            (Some(log), None) => Ok(log.close()?),
            (None, None) => Ok(()),
        }
    }

    /// The log as the engine sees it: how many bytes its files take, which entries it has.
    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> Option<T> {
        self.shared.log.lock().as_ref().map(look)
    }

    fn reader(&self) -> LogReader {
        LogReader::new(self.shared.clone())
    }
}

impl Shared {
    /// Tells whoever listens whether the log is short of space.
    fn note_space(&self) {
        let is_short = self.sync.is_short_of_space();
        self.is_short
            .send_if_modified(|known| std::mem::replace(known, is_short) != is_short);
    }

    /// The last engine index that is purged and held by the tables; 0 is none.
    fn superfluous(&self) -> Index {
        let purged = self.view.lock().purged();
        let purged = purged.map_or(0, |purged| purged.index + 1);
        purged.min(self.queue.flushed())
    }

    /// Has the thread remove what is purged and held by the tables.
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

    /// Costs no write: the next record says it.
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
