//! [`Hub`]: the ring of recent changes, and the signal that wakes waiting watchers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_storage::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use bowline_storage::sync::{ArcSwapOption, Condvar, Mutex};
use bowline_types::Revision;

use super::{Change, Changes};

/// One revision's changes in the ring.
#[derive(Debug)]
struct Slot {
    changes: Arc<Changes>,
    bytes: u64,
}

/// The ring and the signal. One leader at a time publishes; any number of watchers read.
#[derive(Debug)]
pub struct Hub {
    /// Allocated for the first watched change: allocating and dropping the slots would dominate the open
    /// and close of a small database.
    slots: OnceLock<Box<[ArcSwapOption<Slot>]>>,
    bytes_max: u64,
    tail: Mutex<Tail>,
    watchers: AtomicUsize,
    waiting: AtomicUsize,
    bell: Mutex<()>,
    rung: Condvar,
    is_closed: AtomicBool,
}

/// The publisher's state of the ring. Of the watchers, only the last one takes this lock, when it is removed.
#[derive(Debug, Default)]
struct Tail {
    /// The oldest revision that may still be in the ring.
    oldest: Revision,
    /// One past the newest.
    end: Revision,
    bytes: u64,
}

impl Hub {
    /// Few under shuttle, so that the ring wraps around after a few commits.
    const SLOTS: usize = if cfg!(bowline_shuttle) { 4 } else { 4096 };

    pub fn new(bytes_max: u64) -> Hub {
        Hub {
            slots: OnceLock::new(),
            bytes_max,
            tail: Mutex::new(Tail::default()),
            watchers: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            bell: Mutex::new(()),
            rung: Condvar::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn slot(&self, revision: Revision) -> &ArcSwapOption<Slot> {
        let slots = self
            .slots
            .get_or_init(|| (0..Hub::SLOTS).map(|_| ArcSwapOption::empty()).collect());
        &slots[Hub::place(revision)]
    }

    /// Where a revision's slot is.
    fn place(revision: Revision) -> usize {
        (revision.get() % Hub::SLOTS as u64) as usize
    }

    /// Whether there are watchers. Without watchers the ring stays empty.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    pub fn add_watcher(&self) {
        self.watchers.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a watcher. The last one frees the ring's memory.
    pub fn remove_watcher(&self) {
        if self.watchers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.clear();
        }
    }

    /// Clears the ring. A watcher that starts meanwhile reads from the trees.
    fn clear(&self) {
        let mut tail = self.tail.lock();
        if self.is_watched() {
            return;
        }
        self.forget(&mut tail);
    }

    fn forget(&self, tail: &mut Tail) {
        for revision in tail.oldest.get()..tail.end.get() {
            self.slot(Revision::new(revision)).store(None);
        }
        *tail = Tail::default();
    }

    /// Puts one revision's changes into the ring, after the revision is visible. They are empty when no
    /// key changed.
    pub fn publish(&self, revision: Revision, changes: Vec<Change>) {
        let bytes = changes.iter().map(Change::size_bytes).sum();
        let mut tail = self.tail.lock();
        if !self.is_watched() {
            // The last watcher has gone while this was committed, and has freed the ring. One that comes now reads the
            // trees.
            self.forget(&mut tail);
            return;
        }
        if tail.end != revision {
            // After a gap without watchers the older slots cannot be evicted one by one.
            self.forget(&mut tail);
            tail.oldest = revision;
        }
        tail.end = revision + 1;
        tail.bytes += bytes;
        let changes = Arc::new(Changes { revision, changes });
        let replaced = self
            .slot(revision)
            .swap(Some(Arc::new(Slot { changes, bytes })));
        if let Some(old) = replaced {
            tail.bytes -= old.bytes;
        }
        tail.oldest = tail
            .oldest
            .max((revision + 1).saturating_sub(Hub::SLOTS as u64));
        while tail.bytes > self.bytes_max && tail.oldest < tail.end {
            let slot = self.slot(tail.oldest);
            let is_it = slot
                .load()
                .as_ref()
                .is_some_and(|s| s.changes.revision == tail.oldest);
            if is_it && let Some(old) = slot.swap(None) {
                tail.bytes -= old.bytes;
            }
            tail.oldest += 1;
        }
    }

    /// The changes of a visible revision, when the ring has them.
    pub fn get(&self, revision: Revision) -> Option<Arc<Changes>> {
        let slot = self.slots.get()?[Hub::place(revision)].load();
        let slot = slot.as_ref()?;
        (slot.changes.revision == revision).then(|| slot.changes.clone())
    }

    /// Wakes waiting watchers after a revision became visible.
    pub fn wake(&self) {
        // Pairs with the fence in `wait`: either this sees the waiter, or the waiter sees the
        // revision.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let _bell = self.bell.lock();
            self.rung.notify_all();
        }
    }

    /// Waits until `is_ready` holds, `timeout` has passed, or the hub is closed.
    pub fn wait(&self, timeout: Duration, is_ready: impl Fn() -> bool) {
        let mut bell = self.bell.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_ready() && !self.is_closed() {
            self.rung.wait_for(&mut bell, timeout);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _bell = self.bell.lock();
        self.rung.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_storage::Value;

    fn change(len: usize) -> Change {
        let mut change = Change::deletion(Value::from("k"), Revision::new(1));
        change.entry.value = Value::from(vec![0; len]);
        change
    }

    /// A group of commits that began while somebody watched put its changes into the ring after the last watcher had gone,
    /// and nobody took them out. Found by review.
    #[test]
    fn nothing_is_kept_for_nobody() {
        let hub = Hub::new(100_000);
        hub.add_watcher();
        hub.publish(Revision::new(2), vec![change(1000)]);
        assert!(hub.get(Revision::new(2)).is_some());
        hub.remove_watcher();
        hub.publish(Revision::new(3), vec![change(1000)]);
        assert_eq!(hub.tail.lock().bytes, 0);
        assert!(hub.get(Revision::new(3)).is_none());
    }

    #[test]
    fn the_ring_forgets_the_oldest_first_and_stays_within_its_bytes() {
        let hub = Hub::new(100_000);
        hub.add_watcher();
        for revision in 2..1000 {
            hub.publish(Revision::new(revision), vec![change(1000)]);
            assert!(hub.tail.lock().bytes <= 100_000);
            assert_eq!(
                hub.get(Revision::new(revision)).unwrap().revision,
                revision,
                "the newest is there"
            );
        }
        let oldest = hub.tail.lock().oldest;
        assert!(oldest > 900);
        for revision in 2..1000 {
            assert_eq!(
                hub.get(Revision::new(revision)).is_some(),
                revision >= oldest.get(),
                "{revision}"
            );
        }
    }

    /// Found by review: changes from before a time without watchers still counted against the ring's bytes
    /// and could not be evicted. So later changes were evicted at once.
    #[test]
    fn a_time_without_watchers_leaves_the_ring_its_room() {
        let hub = Hub::new(100_000);
        hub.add_watcher();
        for revision in 2..90 {
            hub.publish(Revision::new(revision), vec![change(1000)]);
        }
        for revision in 50_000..50_050 {
            hub.publish(Revision::new(revision), vec![change(1000)]);
            assert!((50_000..=revision).all(|revision| hub.get(Revision::new(revision)).is_some()));
        }
        assert!((2..90).all(|revision| hub.get(Revision::new(revision)).is_none()));
    }

    #[test]
    fn the_last_watcher_leaves_an_empty_ring() {
        let hub = Hub::new(100_000);
        let is_empty = |hub: &Hub| {
            hub.slots
                .get()
                .unwrap()
                .iter()
                .all(|slot| slot.load().is_none())
        };
        hub.add_watcher();
        hub.add_watcher();
        for revision in 2..6000 {
            hub.publish(Revision::new(revision), vec![change(100)]);
        }
        hub.remove_watcher();
        assert!(hub.get(Revision::new(5999)).is_some() && !is_empty(&hub));
        hub.remove_watcher();
        assert!(is_empty(&hub));
        hub.add_watcher();
        hub.publish(Revision::new(6000), vec![change(100)]);
        assert!(hub.get(Revision::new(6000)).is_some());
        assert!(hub.tail.lock().bytes < 1000);
    }

    #[test]
    fn a_slot_that_was_taken_by_a_newer_revision_is_not_mistaken() {
        let hub = Hub::new(u64::MAX);
        hub.add_watcher();
        let slots = Hub::SLOTS as u64;
        hub.publish(Revision::new(5), vec![change(1)]);
        hub.publish(Revision::new(5 + slots), vec![change(1)]);
        assert!(hub.get(Revision::new(5)).is_none());
        assert!(hub.get(Revision::new(5 + slots)).is_some());
        assert!(hub.get(Revision::new(6)).is_none());
    }
}
