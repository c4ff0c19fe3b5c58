//! The reader of entries, for replication and for applying: the newest from memory, older ones from disk.
//!
//! A read from disk locks the log for one portion at a time. It is made atomic by repetition: if a truncation
//! or a purge came in between, its result is dropped. A read without a free file descriptor is repeated, too:
//! a failed read would make Raft stop the member.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::{OptionalSend, RaftLogReader};

use super::shared::Shared;
use crate::error::LogStoreError;
use crate::record;
use crate::types::{Entry, TypeConfig, Vote};

/// The most entries in one reply to a reader.
const READ_ENTRIES_MAX: u64 = 4096;

/// The pause after a read without a free file descriptor.
const FILES_PAUSE: Duration = Duration::from_millis(50);

/// The wanted amount of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Amount {
    All,
    Portion,
}

/// A reader of the Raft log.
#[derive(Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
}

impl LogReader {
    pub(super) fn new(shared: Arc<Shared>) -> LogReader {
        LogReader { shared }
    }

    /// The existing entries of `from..end`; with a `Portion`, those that a bounded read finds, at least one.
    pub(super) async fn read(
        &self,
        from: u64,
        end: u64,
        amount: Amount,
    ) -> Result<Vec<Entry>, LogStoreError> {
        loop {
            let (first, cached_from, cached, generation) = {
                let view = self.shared.view.lock();
                let first = from.max(view.first());
                let end = end.min(view.next());
                if first >= end {
                    return Ok(Vec::new());
                }
                let (cached_from, cached) = view.cached(first, end);
                (first, cached_from, cached, view.generation())
            };
            if cached_from == first {
                return Ok(cached);
            }
            let shared = self.shared.clone();
            // The disk may be slow, and the runtime has other tasks.
            let read = crate::blocking::spawn(move || shared.read_disk(first, cached_from, amount));
            let read = match read.await {
                Ok(read) => read,
                Err(error) => return Err(LogStoreError::Stopped(error.to_string().into())),
            };
            let is_same = {
                let view = self.shared.view.lock();
                view.generation() == generation && view.first() <= first
            };
            if is_same {
                let mut entries = match read {
                    // A segment could not be opened: connections use all file descriptors for the moment.
                    Err(error)
                        if error.is_shortage() && !self.shared.queue.fails_without_room() =>
                    {
                        tokio::time::sleep(FILES_PAUSE).await;
                        continue;
                    }
                    read => read?,
                };
                if entries.len() as u64 == cached_from - first {
                    entries.extend(cached);
                }
                return Ok(entries);
            }
        }
    }
}

impl Shared {
    /// Reads a part of the log from `from` on, where it lies on the disk. Gives where the next part begins, or `None` at the
    /// end. Blocks.
    pub(super) fn verify(&self, from: u64) -> Result<Option<u64>, LogStoreError> {
        let (first, end, generation) = {
            let view = self.view.lock();
            // Entries that are in memory, too, but not those that are not on the disk yet. The engine counts from 1.
            let end = view.next().min(self.sync.durable_index());
            (from.max(view.first()), end, view.generation())
        };
        if first >= end {
            return Ok(None);
        }
        let read = self.read_disk(first, end, Amount::Portion);
        let is_same = {
            let view = self.view.lock();
            view.generation() == generation && view.first() <= first
        };
        match read {
            Ok(entries) => Ok(entries.last().map(|last| last.log_id.index + 1)),
            // A truncation or a purge came in between.
            Err(_) if !is_same => Ok(Some(first)),
            Err(error) => Err(error),
        }
    }

    /// The entries `from..end`, which must all be on disk.
    fn read_disk(&self, from: u64, end: u64, amount: Amount) -> Result<Vec<Entry>, LogStoreError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut next = from;
        while next < end {
            let log = self.log.lock();
            let log = log.as_ref().ok_or_else(|| self.stopped())?;
            let hole = |held| LogStoreError::Hole { index: next, held };
            if next + 1 < log.first_index() {
                return Err(hole(format!("begins at {}", log.first_index())));
            }
            let portion = log.read(next + 1, self.options.read_bytes)?;
            if portion.is_empty() {
                return Err(hole(format!("ends before {}", log.next_index())));
            }
            for (engine_index, bytes) in portion {
                let index = engine_index - 1;
                if index >= end {
                    break;
                }
                let bytes = Bytes::copy_from_slice(&bytes);
                let (entry, _) = record::decode(index, &bytes)
                    .map_err(|source| LogStoreError::Record { index, source })?;
                entries.push(entry);
                next = index + 1;
            }
            if amount == Amount::Portion {
                break;
            }
        }
        Ok(entries)
    }
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        Ok(self.read(from, end, Amount::All).await?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.member.read_vote())
    }

    /// About [`read_bytes`](super::LogStoreOptions::read_bytes) at a time.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let limit = end.min(start.saturating_add(READ_ENTRIES_MAX));
        let end = {
            let view = self.shared.view.lock();
            view.limit(start, limit, self.shared.options.read_bytes)
        };
        Ok(self.read(start, end, Amount::Portion).await?)
    }
}
