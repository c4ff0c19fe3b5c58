//! The log as Raft sees it: its bounds, and the newest entries, decoded.
//!
//! ```text
//!   purged      start                 written            next
//!  ────┼─────────┼──────────────────────┼─────────────────┼──▶ index
//!      │ on disk │ in memory and on disk│ in memory only  │
//! ```
//!
//! Invariants: `purged < start ≤ written ≤ next` in these terms, the entries in memory are `start..next`
//! without a hole, and only written ones are evicted.
//!
//! The thread writes behind: when it reports a group as written, a truncation may have happened that it has
//! not processed yet. So each truncation begins a new *generation*, and a report of an older one is ignored.

use std::collections::VecDeque;

use crate::error::LogStoreError;
use crate::types::{Entry, LogId, Payload};

/// The approximate memory of an entry besides its proposal.
const ENTRY_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct View {
    purged: Option<LogId>,
    last: Option<LogId>,
    committed: Option<LogId>,
    entries: VecDeque<Entry>,
    entries_bytes: usize,
    bytes_max: usize,
    /// The start of a restarted log: there are no entries below it, purged or not.
    floor: u64,
    start: u64,
    written: u64,
    next: u64,
    generation: u64,
}

impl View {
    /// A log whose entries behind `purged`, up to `last`, are on disk.
    pub(super) fn new(
        purged: Option<LogId>,
        last: Option<LogId>,
        committed: Option<LogId>,
        bytes_max: usize,
    ) -> View {
        let next = last.map_or(0, |id| id.index + 1);
        View {
            purged,
            last,
            committed,
            entries: VecDeque::new(),
            entries_bytes: 0,
            bytes_max,
            floor: 0,
            start: next,
            written: next,
            next,
            generation: 0,
        }
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Changes with every truncation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The lowest index that can be read.
    pub(super) fn first(&self) -> u64 {
        self.purged.map_or(0, |id| id.index + 1).max(self.floor)
    }

    pub(super) fn committed(&self) -> Option<LogId> {
        self.committed
    }

    pub(super) fn set_committed(&mut self, committed: Option<LogId>) {
        self.committed = self.committed.max(committed);
    }

    /// Appends entries, readable from now on; returns their generation.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<u64, LogStoreError> {
        for (expected, entry) in (self.next..).zip(entries) {
            if entry.log_id.index != expected {
                return Err(LogStoreError::Hole {
                    index: expected,
                    held: format!("was handed {}", entry.log_id),
                });
            }
        }
        for entry in entries {
            self.entries_bytes += cost(entry);
            self.entries.push_back(entry.clone());
            self.last = Some(entry.log_id);
            self.next = entry.log_id.index + 1;
        }
        Ok(self.generation)
    }

    /// Truncates the entries behind `last`; returns whether there were any.
    pub(super) fn truncate(&mut self, last: Option<LogId>) -> Result<bool, LogStoreError> {
        let next = last.map_or(0, |id| id.index + 1);
        if next >= self.next {
            return Ok(false);
        }
        if next < self.first() {
            return Err(LogStoreError::Hole {
                index: next,
                held: format!("is purged up to {}", self.first()),
            });
        }
        while self.next > next.max(self.start) {
            self.forget_back();
        }
        self.start = self.start.min(next);
        self.written = self.written.min(next);
        self.next = next;
        self.last = last.max(self.purged);
        self.generation += 1;
        Ok(true)
    }

    /// Purges the entries up to `id`, which may be beyond the end.
    pub(super) fn purge(&mut self, id: LogId) {
        if self.purged.is_some_and(|purged| purged.index >= id.index) {
            return;
        }
        self.purged = Some(id);
        let first = id.index + 1;
        if first >= self.next {
            self.restart(first);
            self.last = Some(id);
        }
        while self.start < first {
            if self.entries.is_empty() {
                // The rest is on disk.
                return;
            }
            self.forget_front();
        }
    }

    /// Continues the log behind `last`, the end of a snapshot; entries behind it that already wait for the gap stay.
    pub(super) fn restart_behind(&mut self, last: LogId) {
        let next = last.index + 1;
        let waits = self.next > next && self.start == next && self.written <= next;
        if !waits && self.next != next {
            self.restart(next);
            // Also before it is purged up to there.
            self.last = Some(last);
            self.generation += 1;
        }
    }

    fn restart(&mut self, next: u64) {
        self.entries.clear();
        self.entries_bytes = 0;
        (self.floor, self.start, self.written, self.next) = (next, next, next, next);
    }

    /// Notes that the thread has written the entries of `generation` below `next`.
    pub(super) fn set_written(&mut self, next: u64, generation: u64) {
        if generation == self.generation {
            self.written = self.written.max(next.min(self.next));
        }
        while self.entries_bytes > self.bytes_max && self.start < self.written {
            self.forget_front();
        }
    }

    /// The entries of `from..end` that are in memory, without a hole, and the index of the first (`end` when
    /// there are none): those before it must be read from disk.
    pub(super) fn cached(&self, from: u64, end: u64) -> (u64, Vec<Entry>) {
        let start = from.max(self.start).min(end);
        let skipped = start.saturating_sub(self.start) as usize;
        let count = (end.min(self.next).saturating_sub(start)) as usize;
        let entries = self.entries.iter().skip(skipped).take(count);
        (start, entries.cloned().collect())
    }

    /// The end of a read of `from..end` of about `bytes`, with at least one entry. Entries that are on disk
    /// only are not counted, but not mixed with those in memory either.
    pub(super) fn limit(&self, from: u64, end: u64, bytes: usize) -> u64 {
        if from < self.start {
            return end.min(self.start);
        }
        let mut left = bytes;
        let mut limit = from;
        for entry in self.entries.iter().skip((from - self.start) as usize) {
            let cost = cost(entry);
            if limit >= end || (cost > left && limit > from) {
                break;
            }
            left = left.saturating_sub(cost);
            limit += 1;
        }
        limit
    }

    fn forget_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.entries_bytes -= cost(&entry);
            self.start += 1;
            self.written = self.written.max(self.start);
        }
    }

    fn forget_back(&mut self) {
        if let Some(entry) = self.entries.pop_back() {
            self.entries_bytes -= cost(&entry);
        }
        self.next -= 1;
    }
}

fn cost(entry: &Entry) -> usize {
    ENTRY_BYTES
        + match &entry.payload {
            Payload::Normal(proposal) => proposal.0.len(),
            Payload::Membership(membership) => 256 * membership.nodes().count(),
            Payload::Blank => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    /// Until it was purged, the log ended where it had been purged before. A leader that told meanwhile what this member
    /// had acknowledged was taken to know of entries that were lost.
    #[test]
    fn a_log_that_continues_behind_a_snapshot_ends_with_it() {
        let mut view = View::new(None, None, None, 0);
        let entry = Entry {
            log_id: log_id(1, 1, 0),
            payload: Payload::Blank,
        };
        view.append(&[entry]).expect("in order");
        view.restart_behind(log_id(2, 1, 9));
        assert_eq!(view.last(), Some(log_id(2, 1, 9)));
        assert_eq!(view.next(), 10);
        view.purge(log_id(2, 1, 9));
        assert_eq!(view.last(), Some(log_id(2, 1, 9)));
    }

    /// An entry that the thread has not written is in memory only.
    #[test]
    fn what_was_written_before_a_truncation_is_no_reason_to_forget() {
        let entry = |term, index| Entry {
            log_id: log_id(term, 1, index),
            payload: Payload::Blank,
        };
        let mut view = View::new(None, None, None, 0);
        let earlier = view.append(&[entry(1, 0), entry(1, 1)]).expect("in order");
        assert!(view.truncate(Some(log_id(1, 1, 0))).expect("it is there"));
        let later = view.append(&[entry(2, 1)]).expect("in order");
        // A report about truncated entries.
        view.set_written(2, earlier);
        assert_eq!(view.cached(0, 2).1, [entry(1, 0), entry(2, 1)]);
        view.set_written(2, later);
        assert_eq!(view.cached(0, 2), (2, Vec::new()));
    }
}
