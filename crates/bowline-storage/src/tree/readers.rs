//! Who may still read which revision: pinned snapshots, watches in the past, and the history
//! setting.
//!
//! All of it is behind one small mutex that no read takes: it is locked when a snapshot is made or
//! dropped and when a flush or compaction begins.
//!
//! Invariants:
//!
//! - A job's [`Retention`] holds every pin that exists when it is taken; a pin made later is at or
//!   above the floor of that retention, because the floor is raised under the same lock. So no job
//!   ever drops what a pinned reader needs.
//! - The floor never goes back, but when a state from elsewhere could not be taken over.
//! - Of a member of a cluster, tombstones are given up only below the revision that was agreed on by
//!   what the tables contain. Entries of the log that are applied again after a crash are decided by
//!   what was changed since some revision; they must find what they found the first time, although the
//!   floor has gone further since.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::compaction::Retention;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Index, Revision};

/// How much of the past stays readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// Only what snapshots and watches in progress need. (More may be readable by chance.)
    #[default]
    None,
    /// Every revision of the last so-much time, by the wall clock of this process.
    Last(Duration),
    /// The last so-many revisions.
    Revisions(u64),
    /// Everything, until `compact` gives it up.
    All,
}

/// Why a revision cannot be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinError {
    /// Not written yet.
    Future {
        /// The oldest readable revision.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// Given up.
    Compacted {
        /// The oldest readable revision.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
}

/// The registry of readers.
#[derive(Debug)]
pub struct Readers {
    history: History,
    watch_lag_max: u64,
    inner: Mutex<Inner>,
    /// The floor of the state that replaced the whole one last; 0 when none did.
    replaced_floor: AtomicU64,
}

/// The floors before a state was to be replaced.
#[derive(Debug)]
pub(super) struct Floors {
    floor: Revision,
    replaced: Revision,
}

#[derive(Debug)]
struct Inner {
    floor: Revision,
    snapshots: BTreeMap<Revision, usize>,
    watches: Vec<Weak<AtomicU64>>,
    /// (wall clock in ms, newest revision then), for `History::Last`.
    samples: VecDeque<(u64, Revision)>,
    tombstones: Option<Tombstones>,
}

/// From where on tombstones are kept.
#[derive(Debug)]
struct Tombstones {
    from: Revision,
    /// From where on they are kept once the tables contain an entry of the log.
    later: VecDeque<(Index, Revision)>,
}

impl Tombstones {
    fn from(&mut self, flushed: Index) -> Revision {
        while let Some((_, from)) = self.later.pop_front_if(|(index, _)| *index <= flushed) {
            self.from = self.from.max(from);
        }
        self.from
    }
}

impl Readers {
    /// A registry that starts with this floor.
    #[must_use]
    pub fn new(history: History, watch_lag_max: u64, floor: Revision) -> Readers {
        let inner = Inner {
            floor,
            snapshots: BTreeMap::new(),
            watches: Vec::new(),
            samples: VecDeque::new(),
            tombstones: None,
        };
        Readers {
            history,
            watch_lag_max,
            inner: Mutex::new(inner),
            replaced_floor: AtomicU64::new(0),
        }
    }

    /// The oldest revision that the sources hold since the whole state was replaced; 0 when it never
    /// was. A pin that is older holds nothing any more.
    #[inline]
    pub(super) fn replaced_floor(&self) -> Revision {
        self.replaced_floor.load(Ordering::Acquire)
    }

    /// The whole state is about to be replaced by one that starts at `floor`. Returns what
    /// [`Readers::restore`] needs when that comes to nothing.
    pub(super) fn replace(&self, floor: Revision) -> Floors {
        let mut inner = self.inner.lock();
        let before = Floors {
            floor: inner.floor,
            replaced: self.replaced_floor(),
        };
        inner.floor = inner.floor.max(floor);
        self.replaced_floor.store(floor, Ordering::Release);
        before
    }

    /// The state was not replaced. The caller has kept flushes and merges out, so no job has relied on
    /// the raised floor.
    pub(super) fn restore(&self, before: &Floors) {
        let mut inner = self.inner.lock();
        inner.floor = before.floor;
        self.replaced_floor
            .store(before.replaced, Ordering::Release);
    }

    /// The oldest revision anyone may ask for.
    #[must_use]
    pub fn floor(&self) -> Revision {
        self.inner.lock().floor
    }

    /// Pins the newest visible revision.
    #[must_use]
    pub fn pin_newest(self: &Arc<Self>, visible: &AtomicU64) -> SnapshotPin {
        let mut inner = self.inner.lock();
        // Read under the lock: a floor raised later is raised from at least this revision.
        let revision = visible.load(Ordering::Acquire);
        *inner.snapshots.entry(revision).or_insert(0) += 1;
        drop(inner);
        SnapshotPin {
            readers: self.clone(),
            revision,
        }
    }

    /// Pins a revision of the past.
    pub fn pin_at(
        self: &Arc<Self>,
        revision: Revision,
        visible: &AtomicU64,
    ) -> Result<SnapshotPin, PinError> {
        let mut inner = self.inner.lock();
        inner.check(revision, visible)?;
        *inner.snapshots.entry(revision).or_insert(0) += 1;
        drop(inner);
        Ok(SnapshotPin {
            readers: self.clone(),
            revision,
        })
    }

    /// Keeps every version from `from` on until the pin moves forward, but no longer than the
    /// lag limit allows. `from` may be in the future.
    pub fn pin_watch(
        self: &Arc<Self>,
        from: Revision,
        visible: &AtomicU64,
    ) -> Result<WatchPin, PinError> {
        let mut inner = self.inner.lock();
        let current = visible.load(Ordering::Acquire);
        if from < inner.floor {
            return Err(PinError::Compacted {
                oldest: inner.floor,
                current,
            });
        }
        let next = Arc::new(AtomicU64::new(from));
        inner.watches.retain(|watch| watch.strong_count() > 0);
        inner.watches.push(Arc::downgrade(&next));
        Ok(WatchPin { next })
    }

    /// Keeps every tombstone from `from` on, until [`Readers::hold_tombstones_later`] says otherwise.
    pub(super) fn hold_tombstones(&self, from: Revision) {
        let later = VecDeque::new();
        self.inner.lock().tombstones = Some(Tombstones { from, later });
    }

    /// Keeps them from `from` on only, once the tables contain the entry `index` of the log.
    pub(super) fn hold_tombstones_later(&self, index: Index, from: Revision) {
        if let Some(tombstones) = &mut self.inner.lock().tombstones {
            tombstones.later.push_back((index, from));
        }
    }

    /// Raises the floor to what the history setting allows and tells what a job must keep. `flushed` is
    /// the last entry of the log that the tables contain.
    #[must_use]
    pub fn retention(&self, visible: &AtomicU64, now_ms: u64, flushed: Index) -> Retention {
        let mut inner = self.inner.lock();
        let newest = visible.load(Ordering::Acquire);
        let target = match self.history {
            History::None => newest,
            History::Revisions(count) => newest.saturating_sub(count),
            History::Last(span) => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                inner.sample(newest, now_ms);
                inner.newest_before(now_ms.saturating_sub(span_ms))
            }
            History::All => 0,
        };
        let held = inner.watches.iter().filter_map(Weak::upgrade);
        let held = held
            .map(|next| next.load(Ordering::Acquire).saturating_sub(1))
            .min();
        let held = held
            .unwrap_or(Revision::MAX)
            .max(newest.saturating_sub(self.watch_lag_max));
        inner.floor = inner.floor.max(target.min(held));
        Retention {
            floor: inner.floor,
            snapshots: inner.snapshots.keys().copied().collect(),
            tombstones: inner.tombstones.as_mut().map(|held| held.from(flushed)),
        }
    }

    /// Notes the time of the newest revision, for `History::Last`. Call it now and then.
    pub fn tick(&self, visible: &AtomicU64, now_ms: u64) {
        if matches!(self.history, History::Last(_)) {
            let newest = visible.load(Ordering::Acquire);
            self.inner.lock().sample(newest, now_ms);
        }
    }

    /// Gives up everything below `revision`, as asked by the user.
    pub fn compact(&self, revision: Revision, visible: &AtomicU64) -> Result<(), PinError> {
        let mut inner = self.inner.lock();
        inner.check(revision, visible)?;
        inner.floor = revision;
        Ok(())
    }
}

impl Inner {
    fn check(&self, revision: Revision, visible: &AtomicU64) -> Result<(), PinError> {
        let (oldest, current) = (self.floor, visible.load(Ordering::Acquire));
        if revision > current {
            return Err(PinError::Future { oldest, current });
        }
        if revision < oldest {
            return Err(PinError::Compacted { oldest, current });
        }
        Ok(())
    }

    fn sample(&mut self, newest: Revision, now_ms: u64) {
        // One sample a second bounds the list; a wall clock that went back adds none.
        let due = self
            .samples
            .back()
            .is_none_or(|(at, revision)| now_ms >= at.saturating_add(1000) && newest > *revision);
        if due {
            self.samples.push_back((now_ms, newest));
        }
    }

    /// The newest revision known to have been current at `ms`; drops older samples.
    fn newest_before(&mut self, ms: u64) -> Revision {
        let mut found = 0;
        while let Some((at, revision)) = self.samples.front().copied() {
            if at > ms {
                break;
            }
            found = revision;
            self.samples.pop_front();
        }
        if found > 0 {
            // Stays the answer until the next sample is old enough.
            self.samples.push_front((ms, found));
        }
        found
    }
}

/// Keeps one revision readable until dropped.
#[derive(Debug)]
pub struct SnapshotPin {
    readers: Arc<Readers>,
    revision: Revision,
}

impl SnapshotPin {
    /// The pinned revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl Clone for SnapshotPin {
    fn clone(&self) -> Self {
        *self
            .readers
            .inner
            .lock()
            .snapshots
            .entry(self.revision)
            .or_insert(0) += 1;
        SnapshotPin {
            readers: self.readers.clone(),
            revision: self.revision,
        }
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut inner = self.readers.inner.lock();
        if let Some(count) = inner.snapshots.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                inner.snapshots.remove(&self.revision);
            }
        }
    }
}

/// Keeps history from a moving revision on, within the lag limit, until dropped.
#[derive(Debug)]
pub struct WatchPin {
    next: Arc<AtomicU64>,
}

impl WatchPin {
    /// Everything below `next` has been delivered.
    pub fn advance(&self, next: Revision) {
        self.next.store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(history: History) -> (Arc<Readers>, AtomicU64) {
        (Arc::new(Readers::new(history, 1000, 1)), AtomicU64::new(1))
    }

    #[test]
    fn no_history_keeps_pins_only() {
        let (readers, visible) = readers(History::None);
        visible.store(5, Ordering::Release);
        let pin = readers.pin_newest(&visible);
        let twin = pin.clone();
        visible.store(9, Ordering::Release);
        let expected = Retention {
            floor: 9,
            snapshots: vec![5],
            tombstones: None,
        };
        assert_eq!(readers.retention(&visible, 0, 0), expected);
        drop(pin);
        assert_eq!(
            readers.retention(&visible, 0, 0),
            expected,
            "its twin still pins"
        );
        drop(twin);
        assert_eq!(
            readers.retention(&visible, 0, 0),
            Retention {
                floor: 9,
                snapshots: vec![],
                tombstones: None,
            }
        );
        let error = readers.pin_at(8, &visible).unwrap_err();
        assert_eq!(
            error,
            PinError::Compacted {
                oldest: 9,
                current: 9
            }
        );
        let error = readers.pin_at(10, &visible).unwrap_err();
        assert_eq!(
            error,
            PinError::Future {
                oldest: 9,
                current: 9
            }
        );
    }

    #[test]
    fn history_is_kept_by_count_and_by_time() {
        let (by_count, visible) = readers(History::Revisions(3));
        visible.store(10, Ordering::Release);
        assert_eq!(by_count.retention(&visible, 0, 0).floor, 7);

        let (by_time, visible) = readers(History::Last(Duration::from_secs(10)));
        visible.store(4, Ordering::Release);
        by_time.tick(&visible, 1_000);
        visible.store(8, Ordering::Release);
        by_time.tick(&visible, 5_000);
        assert_eq!(
            by_time.retention(&visible, 10_000, 0).floor,
            1,
            "all within ten seconds"
        );
        assert_eq!(by_time.retention(&visible, 11_500, 0).floor, 4);
        assert_eq!(by_time.retention(&visible, 15_000, 0).floor, 8);
    }

    #[test]
    fn a_watch_holds_history_within_its_lag() {
        let (readers, visible) = readers(History::None);
        let watch = readers.pin_watch(3, &visible).unwrap();
        visible.store(500, Ordering::Release);
        assert_eq!(readers.retention(&visible, 0, 0).floor, 2);
        watch.advance(100);
        assert_eq!(readers.retention(&visible, 0, 0).floor, 99);
        visible.store(5_000, Ordering::Release);
        assert_eq!(
            readers.retention(&visible, 0, 0).floor,
            4_000,
            "the lag limit is 1,000"
        );
        assert!(readers.pin_watch(100, &visible).is_err());
        readers.compact(4_500, &visible).unwrap();
        assert_eq!(readers.floor(), 4_500);
    }

    #[test]
    fn tombstones_are_given_up_when_the_tables_contain_what_was_agreed() {
        let (readers, visible) = readers(History::All);
        let held = |flushed| readers.retention(&visible, 0, flushed).tombstones;
        assert_eq!(held(9), None, "nobody asked for them");
        readers.hold_tombstones(3);
        readers.hold_tombstones_later(10, 7);
        readers.hold_tombstones_later(12, 9);
        for (flushed, from) in [(0, 3), (9, 3), (10, 7), (11, 7), (12, 9), (12, 9)] {
            assert_eq!(held(flushed), Some(from), "{flushed}");
        }
        readers.hold_tombstones(4);
        assert_eq!(held(12), Some(4), "of another state");
    }
}
