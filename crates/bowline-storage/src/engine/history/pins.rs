//! History pins: which revisions flush and compaction must keep.
//!
//! Four things keep history: pinned snapshots, watches that read the past, the history setting, and the revision that
//! a tree holds, which the manifest records. The
//! *floor* is the oldest revision that can be read without a pin. One small mutex guards all of it. No
//! read takes it: it is locked when a pin is made or dropped, and when a flush or compaction begins.
//!
//! Invariants:
//!
//! - The [`Retention`] of a job holds every pin that exists when the retention is computed. A later pin
//!   is at or above the floor of that retention, because the floor is raised, and the visible revision
//!   of the pin is read, under the same lock. So no job drops a version that a pin needs.
//! - The floor never goes back, except when the installation of a state from elsewhere fails.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::tombstones::TombstoneHold;
use crate::compaction::Retention;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Index, Revision, TreeId};

/// The history setting: how much of the past stays readable.
///
/// ```
/// # use bowline_storage::engine::History;
/// use std::time::Duration;
///
/// // With `DbBuilder::history`: everything that was written within a day can be read and watched.
/// let day = History::Last(Duration::from_secs(24 * 60 * 60));
/// // The last thousand revisions, and everything until it is trimmed.
/// let (some, all) = (History::Revisions(1_000), History::All);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// Only the revisions that pinned snapshots and watches need. (More may be readable by chance.)
    #[default]
    None,
    /// Every revision of this last span of time, by the wall clock of this process.
    Last(Duration),
    /// This number of last revisions.
    Revisions(u64),
    /// Every revision, until `compact` trims it.
    All,
}

/// Why a revision cannot be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinError {
    /// The revision is not written yet.
    Future {
        /// The oldest readable revision.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The revision is below the floor: its history was trimmed.
    Compacted {
        /// The oldest readable revision.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
}

/// The registry of pins, with the floor of history.
#[derive(Debug)]
pub struct HistoryPins {
    history: History,
    watch_lag_max: u64,
    inner: Mutex<Inner>,
    /// The floor of the last state that was installed from elsewhere; 0 without one.
    replaced_floor: AtomicU64,
}

/// The floors before an installation, to restore when it fails.
#[derive(Debug)]
pub(in crate::engine) struct Floors {
    floor: Revision,
    replaced: Revision,
}

#[derive(Debug)]
struct Inner {
    floor: Revision,
    snapshots: BTreeMap<Revision, usize>,
    watches: Vec<Weak<AtomicU64>>,
    /// Pairs of wall clock (ms) and newest revision at that time, for `History::Last`.
    samples: VecDeque<(u64, Revision)>,
    tombstones: Option<TombstoneHold>,
    /// As the manifest has it, or will have it.
    held: BTreeMap<TreeId, Revision>,
}

impl HistoryPins {
    /// A registry without pins, with this floor.
    #[must_use]
    pub fn new(history: History, watch_lag_max: u64, floor: Revision) -> HistoryPins {
        let inner = Inner {
            floor,
            snapshots: BTreeMap::new(),
            watches: Vec::new(),
            samples: VecDeque::new(),
            tombstones: None,
            held: BTreeMap::new(),
        };
        HistoryPins {
            history,
            watch_lag_max,
            inner: Mutex::new(inner),
            replaced_floor: AtomicU64::new(0),
        }
    }

    /// The oldest revision in the tables since a state was installed from elsewhere; 0 without an
    /// installation. An older pin protects nothing any more.
    #[inline]
    pub(in crate::engine) fn replaced_floor(&self) -> Revision {
        self.replaced_floor.load(Ordering::Acquire)
    }

    /// Prepares the installation of a state whose history begins at `floor`. Returns the old floors, for
    /// [`HistoryPins::restore`].
    pub(in crate::engine) fn replace(&self, floor: Revision) -> Floors {
        let mut inner = self.inner.lock();
        let before = Floors {
            floor: inner.floor,
            replaced: self.replaced_floor(),
        };
        inner.floor = inner.floor.max(floor);
        self.replaced_floor.store(floor, Ordering::Release);
        before
    }

    /// Undoes [`HistoryPins::replace`] after a failed installation. The caller has kept flushes and
    /// compactions out, so no job has relied on the raised floor.
    pub(in crate::engine) fn restore(&self, before: &Floors) {
        let mut inner = self.inner.lock();
        inner.floor = before.floor;
        self.replaced_floor
            .store(before.replaced, Ordering::Release);
    }

    /// The oldest revision that can be read without a pin.
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
            pins: self.clone(),
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
            pins: self.clone(),
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
        Ok(inner.watch(from))
    }

    /// As [`HistoryPins::pin_watch`], from the next revision on, which it returns.
    #[must_use]
    pub fn pin_watch_next(&self, visible: &AtomicU64) -> (Revision, WatchPin) {
        let mut inner = self.inner.lock();
        // Read under the lock, under which the floor is raised to a visible revision. Only while a state from elsewhere is
        // being installed is it above this one.
        let from = (visible.load(Ordering::Acquire) + 1).max(inner.floor);
        (from, inner.watch(from))
    }

    /// Keeps what a tree has at a revision, instead of what it held before.
    pub(in crate::engine) fn hold_tree(&self, tree: TreeId, revision: Option<Revision>) {
        let mut inner = self.inner.lock();
        match revision {
            Some(revision) => inner.held.insert(tree, revision),
            None => inner.held.remove(&tree),
        };
    }

    /// The revision that a tree holds.
    pub(in crate::engine) fn held(&self, tree: TreeId) -> Option<Revision> {
        self.inner.lock().held.get(&tree).copied()
    }

    /// Keeps every tombstone from `from` on, until [`HistoryPins::hold_tombstones_later`] takes effect.
    pub(in crate::engine) fn hold_tombstones(&self, from: Revision) {
        self.inner.lock().tombstones = Some(TombstoneHold::new(from));
    }

    /// Keeps only tombstones from `from` on, as soon as the tables contain the log entry `index`.
    pub(in crate::engine) fn hold_tombstones_later(&self, index: Index, from: Revision) {
        if let Some(tombstones) = &mut self.inner.lock().tombstones {
            tombstones.raise_later(index, from);
        }
    }

    /// Raises the floor as far as the history setting and the watches allow, and returns what a job must
    /// keep. `flushed` is the last log entry that the tables contain.
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
            tombstones: inner.tombstones.as_mut().map(|hold| hold.from(flushed)),
            held: inner.held.clone(),
        }
    }

    /// Samples the wall clock for `History::Last`. Call it about once a second.
    pub fn tick(&self, visible: &AtomicU64, now_ms: u64) {
        if matches!(self.history, History::Last(_)) {
            let newest = visible.load(Ordering::Acquire);
            self.inner.lock().sample(newest, now_ms);
        }
    }

    /// Trims history below `revision`, at the request of the user.
    pub fn compact(&self, revision: Revision, visible: &AtomicU64) -> Result<(), PinError> {
        let mut inner = self.inner.lock();
        inner.check(revision, visible)?;
        inner.floor = revision;
        Ok(())
    }
}

impl Inner {
    fn watch(&mut self, from: Revision) -> WatchPin {
        let next = Arc::new(AtomicU64::new(from));
        self.watches.retain(|watch| watch.strong_count() > 0);
        self.watches.push(Arc::downgrade(&next));
        WatchPin { next }
    }

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
        // One sample a second bounds the list. A wall clock that went back adds none.
        let due = self
            .samples
            .back()
            .is_none_or(|(at, revision)| now_ms >= at.saturating_add(1000) && newest > *revision);
        if due {
            self.samples.push_back((now_ms, newest));
        }
    }

    /// The newest revision that was current at `ms`, by the samples; drops older samples.
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
            // This sample stays the answer until the next one is old enough.
            self.samples.push_front((ms, found));
        }
        found
    }
}

/// Keeps one revision readable until dropped.
#[derive(Debug)]
pub struct SnapshotPin {
    pins: Arc<HistoryPins>,
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
            .pins
            .inner
            .lock()
            .snapshots
            .entry(self.revision)
            .or_insert(0) += 1;
        SnapshotPin {
            pins: self.pins.clone(),
            revision: self.revision,
        }
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut inner = self.pins.inner.lock();
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
    /// The watch has delivered everything below `next` and needs it no more.
    pub fn advance(&self, next: Revision) {
        self.next.store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(history: History) -> (Arc<HistoryPins>, AtomicU64) {
        (
            Arc::new(HistoryPins::new(history, 1000, 1)),
            AtomicU64::new(1),
        )
    }

    #[test]
    fn no_history_keeps_pins_only() {
        let (pins, visible) = pins(History::None);
        visible.store(5, Ordering::Release);
        let pin = pins.pin_newest(&visible);
        let twin = pin.clone();
        visible.store(9, Ordering::Release);
        let expected = Retention {
            floor: 9,
            snapshots: vec![5],
            ..Retention::default()
        };
        assert_eq!(pins.retention(&visible, 0, 0), expected);
        drop(pin);
        assert_eq!(
            pins.retention(&visible, 0, 0),
            expected,
            "its twin still pins"
        );
        drop(twin);
        assert_eq!(
            pins.retention(&visible, 0, 0),
            Retention {
                floor: 9,
                snapshots: vec![],
                ..Retention::default()
            }
        );
        let error = pins.pin_at(8, &visible).unwrap_err();
        assert_eq!(
            error,
            PinError::Compacted {
                oldest: 9,
                current: 9
            }
        );
        let error = pins.pin_at(10, &visible).unwrap_err();
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
        let (by_count, visible) = pins(History::Revisions(3));
        visible.store(10, Ordering::Release);
        assert_eq!(by_count.retention(&visible, 0, 0).floor, 7);

        let (by_time, visible) = pins(History::Last(Duration::from_secs(10)));
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
        let (pins, visible) = pins(History::None);
        let watch = pins.pin_watch(3, &visible).unwrap();
        visible.store(500, Ordering::Release);
        assert_eq!(pins.retention(&visible, 0, 0).floor, 2);
        watch.advance(100);
        assert_eq!(pins.retention(&visible, 0, 0).floor, 99);
        visible.store(5_000, Ordering::Release);
        assert_eq!(
            pins.retention(&visible, 0, 0).floor,
            4_000,
            "the lag limit is 1,000"
        );
        assert!(pins.pin_watch(100, &visible).is_err());
        pins.compact(4_500, &visible).unwrap();
        assert_eq!(pins.floor(), 4_500);
    }

    #[test]
    fn tombstones_are_dropped_when_the_tables_contain_the_entry() {
        let (pins, visible) = pins(History::All);
        let held = |flushed| pins.retention(&visible, 0, flushed).tombstones;
        assert_eq!(held(9), None, "without a hold");
        pins.hold_tombstones(3);
        pins.hold_tombstones_later(10, 7);
        pins.hold_tombstones_later(12, 9);
        for (flushed, from) in [(0, 3), (9, 3), (10, 7), (11, 7), (12, 9), (12, 9)] {
            assert_eq!(held(flushed), Some(from), "{flushed}");
        }
        pins.hold_tombstones(4);
        assert_eq!(held(12), Some(4), "of another state");
    }
}
