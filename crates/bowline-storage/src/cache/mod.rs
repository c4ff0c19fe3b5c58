//! The page cache: pages of all open tables, and chunks of blob files, in memory, within a budget of bytes.
//!
//! Each open file has a [`Shelf`] with a place for each of its pieces. A read that finds its piece there
//! takes no lock, does no lookup and counts no reference: it loads one pointer through
//! `ArcSwapOption`, which keeps the piece alive during the read. Files never change, so a cached piece
//! is never stale.
//!
//! The eviction policy is S3-FIFO, with two queues (Yang et al. 2023,
//! <https://doi.org/10.1145/3600006.3613147>):
//!
//! ```text
//! read from disk --> [ fresh: a tenth ] ----used again------> [ kept ] <--+
//!        |                  | not used                          |  |      | used again,
//!        |                  v                                   |  +------+ up to three times
//!        |             evicted, its name is remembered          v not used
//!        +--its name is remembered---------------> [ kept ]    evicted
//! ```
//!
//! So a scan, which uses each piece once, passes through the fresh queue and evicts no kept one. Only a
//! read from disk takes the lock of the queues.
//!
//! A page is read as a whole whenever something of it is wanted. A chunk of values need not be: where one value is
//! wanted, only the name of the chunk is noted, as if it had been read and evicted, and when another one is wanted
//! soon, the chunk is read.
//!
//! Invariants:
//!
//! - The used bytes are exactly those of the pieces on shelves, and never exceed the budget.
//! - Only the holder of the queue lock puts a piece on a shelf or removes one, so each piece on a shelf is in
//!   exactly one queue, once. A dropped shelf drops its pieces. The queue entries of such pieces are stale:
//!   they are skipped, and removed before they are as many as the others.
//! - The work under the lock is bounded: an eviction spares at most [`SPARED_MAX`] pieces, and then evicts
//!   the next one even if it was used.

mod shelf;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use shelf::AnyShelf;
pub(crate) use shelf::{Held, Piece, Shelf, Shelved};

use crate::counters::Counters;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The assumed size of a piece, to choose how many names are remembered.
const PIECE_ESTIMATE_BYTES: u64 = 8 << 10;
/// The fresh queue gets one part in this many of the budget.
const FRESH_PART: u64 = 10;
/// A piece that is larger than this part of the budget is not cached: it would evict too many others.
const PIECE_PART_MAX: u64 = 4;
/// How many pieces an eviction spares.
const SPARED_MAX: usize = 64;
/// Bounds of the number of remembered names.
const NAMES_MIN: u64 = 16;
const NAMES_MAX: u64 = 1 << 22;

/// Pages of all open tables and chunks of blob files, within a budget of bytes. Shared by all files.
///
/// A page that is larger than a quarter of the budget is not cached.
#[derive(Debug)]
pub struct PageCache {
    budget_bytes: u64,
    used_bytes: AtomicU64,
    /// An upper bound of the queue entries of dropped shelves.
    stale: AtomicU64,
    queues: Mutex<Queues>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Queues {
    fresh: Queue,
    kept: Queue,
    /// Names of evicted fresh pieces, each in the slot given by its hash; 0 is empty.
    names: Box<[u64]>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Queued>,
    bytes: u64,
}

#[derive(Debug)]
struct Queued {
    shelf: Weak<dyn AnyShelf>,
    number: usize,
    bytes: u64,
}

impl PageCache {
    /// A cache of at most `budget_bytes`; 0 caches nothing. Hits and misses are counted in
    /// `counters`.
    #[must_use]
    pub fn new(budget_bytes: u64, counters: Arc<Counters>) -> PageCache {
        let names = (budget_bytes / PIECE_ESTIMATE_BYTES).clamp(NAMES_MIN, NAMES_MAX);
        PageCache {
            budget_bytes,
            used_bytes: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            queues: Mutex::new(Queues {
                fresh: Queue::default(),
                kept: Queue::default(),
                names: vec![0; names as usize].into_boxed_slice(),
            }),
            counters,
        }
    }

    /// Bytes of the pieces in the cache.
    #[must_use]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The most the cache holds.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Has `store` put a piece on its shelf, if it `is_there` not yet and the budget allows it or others can be evicted.
    fn put(
        &self,
        shelf: &Arc<dyn AnyShelf>,
        number: usize,
        bytes: u64,
        is_there: impl FnOnce() -> bool,
        store: impl FnOnce(),
    ) {
        if bytes > self.budget_bytes / PIECE_PART_MAX {
            return;
        }
        let mut queues = self.queues.lock();
        if is_there() {
            // Somebody else read it at the same time.
            return;
        }
        while self.used_bytes() + bytes > self.budget_bytes {
            if !queues.evict(self) {
                return;
            }
        }
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        store();
        if self.stale.load(Ordering::Relaxed) > queues.len() / 2 {
            self.stale.store(0, Ordering::Relaxed);
            queues.clear_away();
        }
        let entry = Queued {
            shelf: Arc::downgrade(shelf),
            number,
            bytes,
        };
        if queues.take_name(name_of(shelf.file_id(), number)) {
            queues.kept.push(entry);
        } else {
            queues.fresh.push(entry);
        }
    }

    /// Whether a piece of so many bytes is worth to be read as a whole, as its name is known. Else the name is noted.
    fn is_wanted_again(&self, file_id: u64, number: usize, bytes: u64) -> bool {
        if bytes > self.budget_bytes / PIECE_PART_MAX {
            return false;
        }
        let name = name_of(file_id, number);
        let mut queues = self.queues.lock();
        let is_noted = queues.has_name(name);
        queues.note_name(name);
        is_noted
    }

    /// Counts what was on a shelf that is dropped.
    fn note_dropped(&self, pieces: u64, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.stale.fetch_add(pieces, Ordering::Relaxed);
    }
}

impl Queues {
    /// Takes a piece off its shelf; `false` when there is none on any.
    fn evict(&mut self, cache: &PageCache) -> bool {
        let mut spared = 0;
        loop {
            let is_fresh =
                self.kept.entries.is_empty() || self.fresh.bytes > cache.budget_bytes / FRESH_PART;
            let queue = match is_fresh {
                true => &mut self.fresh,
                false => &mut self.kept,
            };
            let Some(entry) = queue.pop() else {
                return false;
            };
            let Some(shelf) = entry.shelf.upgrade() else {
                continue;
            };
            if spared < SPARED_MAX && shelf.spare(entry.number, is_fresh) {
                spared += 1;
                self.kept.push(entry);
                continue;
            }
            shelf.clear(entry.number);
            cache.used_bytes.fetch_sub(entry.bytes, Ordering::Relaxed);
            if is_fresh {
                self.note_name(name_of(shelf.file_id(), entry.number));
            }
            return true;
        }
    }

    fn len(&self) -> u64 {
        (self.fresh.entries.len() + self.kept.entries.len()) as u64
    }

    /// Removes the queue entries of dropped shelves.
    fn clear_away(&mut self) {
        for queue in [&mut self.fresh, &mut self.kept] {
            queue.entries.retain(|it| it.shelf.strong_count() > 0);
            queue.bytes = queue.entries.iter().map(|it| it.bytes).sum();
        }
    }

    fn note_name(&mut self, name: u64) {
        let at = name as usize % self.names.len();
        self.names[at] = name;
    }

    fn has_name(&self, name: u64) -> bool {
        self.names[name as usize % self.names.len()] == name
    }

    /// Whether the name was noted; it is no more.
    fn take_name(&mut self, name: u64) -> bool {
        let noted = self.has_name(name);
        if noted {
            self.names[name as usize % self.names.len()] = 0;
        }
        noted
    }
}

impl Queue {
    fn push(&mut self, entry: Queued) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Queued> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// A number for a piece, never 0. Two pieces with the same one cost at most a worse guess.
fn name_of(file_id: u64, number: usize) -> u64 {
    let mixed = (file_id.rotate_left(32) ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)) | (1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece of so many bytes, with a number that tells it from others.
    #[derive(Debug)]
    struct Numbered(u64, usize);

    impl Piece for Numbered {
        type Hints = ();

        fn nothing() -> &'static Numbered {
            &Numbered(0, 0)
        }

        fn len(&self) -> usize {
            self.1
        }

        fn hint(_: &Shelved<Numbered>, (): &()) {}
    }

    fn page(number: u64, bytes: usize) -> Numbered {
        Numbered(number, bytes)
    }

    fn number_of(page: &Numbered) -> u64 {
        page.0
    }

    fn shelf(cache: &Arc<PageCache>, file_id: u64, pages: usize) -> Arc<Shelf<Numbered>> {
        Arc::new(Shelf::new(file_id, pages, cache.clone()))
    }

    /// The bytes of the pages on shelves, counted anew.
    fn bytes_on(shelves: &[Arc<Shelf<Numbered>>]) -> u64 {
        shelves.iter().flat_map(|shelf| shelf.weights()).sum()
    }

    #[test]
    fn the_cache_stays_within_its_budget_and_counts_what_it_holds() {
        for budget_bytes in [0, 1, 10_000, 100_000, 1 << 20, (8 << 20) + 17] {
            let cache = Arc::new(PageCache::new(budget_bytes, Arc::default()));
            let mut shelves: Vec<_> = (0..7).map(|id| shelf(&cache, id, 3000)).collect();
            for i in 0..3000 {
                shelves[i % 7].put(i, page(1, i % 97 * 83));
                shelves[i % 5].get(i / 3);
                assert!(cache.used_bytes() <= budget_bytes, "{budget_bytes}");
                if i % 100 == 0 {
                    // A table goes, another comes.
                    shelves[i / 100 % 7] = shelf(&cache, i as u64 + 7, 3000);
                    assert_eq!(cache.used_bytes(), bytes_on(&shelves), "{budget_bytes}");
                }
            }
            assert_eq!(cache.used_bytes(), bytes_on(&shelves));
            assert_eq!(cache.used_bytes() > 0, budget_bytes >= 10_000);
            assert_eq!(cache.budget_bytes(), budget_bytes);
            drop(shelves);
            assert_eq!(cache.used_bytes(), 0);
        }
    }

    #[test]
    fn a_page_is_found_in_its_place_and_counted() {
        let counters = Arc::<Counters>::default();
        let cache = Arc::new(PageCache::new(1 << 20, counters.clone()));
        let (first, second) = (shelf(&cache, 1, 10), shelf(&cache, 2, 10));
        assert!(first.get(0).is_none());
        for (shelf, from) in [(&first, 100), (&second, 200)] {
            for number in 0..10 {
                let put = shelf.put(number, page(from + number as u64, 10));
                assert_eq!(number_of(&put), from + number as u64);
            }
        }
        for number in 0..10 {
            for (shelf, from) in [(&first, 100), (&second, 200)] {
                let found = shelf.get(number).map(|page| number_of(&page));
                assert_eq!(found, Some(from + number as u64));
            }
        }
        assert!(first.get(10).is_none(), "there is no such place");
        assert_eq!(
            (counters.cache_hits.get(), counters.cache_misses.get()),
            (20, 1)
        );
        let held = first.get(3).unwrap();
        drop(first);
        assert_eq!(number_of(&held), 103, "it is held");
        assert_eq!(cache.used_bytes(), bytes_on(&[second]));
    }

    #[test]
    fn who_comes_second_leaves_the_page_of_the_first() {
        let cache = Arc::new(PageCache::new(1 << 20, Arc::default()));
        let shelf = shelf(&cache, 1, 1);
        assert_eq!(number_of(&shelf.put(0, page(1, 10))), 1);
        assert_eq!(number_of(&shelf.put(0, page(2, 10))), 2, "it reads its own");
        assert_eq!(shelf.get(0).map(|page| number_of(&page)), Some(1));
        assert_eq!(cache.used_bytes(), bytes_on(&[shelf]));
    }

    #[test]
    fn a_page_that_goes_while_it_is_held_stays_whole() {
        let cache = Arc::new(PageCache::new(10_000, Arc::default()));
        let shelf = shelf(&cache, 1, 1000);
        shelf.put(0, page(7, 1000));
        let held = shelf.get(0).unwrap();
        for number in 1..1000 {
            shelf.put(number, page(8, 1000));
            shelf.get(number);
        }
        assert!(shelf.get(0).is_none(), "the others were wanted, too");
        assert_eq!(number_of(&held), 7);
    }

    #[test]
    fn a_scan_drives_out_no_page_that_is_wanted() {
        let cache = Arc::new(PageCache::new(100 * (1000 + 200), Arc::default()));
        let (hot, cold) = (shelf(&cache, 1, 50), shelf(&cache, 2, 10_000));
        let want = |number| {
            if hot.get(number).is_none() {
                hot.put(number, page(1, 1000));
                return 1;
            }
            0
        };
        for number in (0..50).chain(0..50) {
            want(number);
        }
        let mut misses = 0;
        for number in 0..10_000 {
            cold.put(number, page(2, 1000));
            if number % 10 == 0 {
                misses += want(number / 10 % 50);
            }
        }
        assert_eq!(misses, 0);
        let stay = (0..10_000).filter(|number| cold.get(*number).is_some());
        assert!(stay.count() < 60, "nor do the others stay beside them");
    }

    #[test]
    fn a_page_that_went_too_early_is_kept_when_it_comes_again() {
        let cache = Arc::new(PageCache::new(100 * 1200, Arc::default()));
        let (shelf, others) = (shelf(&cache, 1, 1), shelf(&cache, 2, 10_000));
        let mut next = 0..10_000;
        let mut scan = |pages: usize| {
            for number in next.by_ref().take(pages) {
                others.put(number, page(2, 1000));
            }
        };
        shelf.put(0, page(1, 1000));
        scan(100);
        assert!(shelf.get(0).is_none(), "nobody wanted it again");
        shelf.put(0, page(1, 1000));
        scan(1000);
        assert!(shelf.get(0).is_some());
    }

    #[test]
    fn queues_do_not_grow_with_tables_that_are_gone() {
        let cache = Arc::new(PageCache::new(1 << 20, Arc::default()));
        let kept = shelf(&cache, 0, 100);
        for number in 0..100 {
            kept.put(number, page(1, 10));
        }
        for id in 1..500 {
            let shelf = shelf(&cache, id, 10);
            for number in 0..10 {
                shelf.put(number, page(1, 10));
            }
        }
        assert!(cache.queues.lock().len() < 400);
        assert_eq!(cache.used_bytes(), bytes_on(&[kept]));
    }

    #[test]
    fn a_piece_is_wanted_again_when_its_name_is_known() {
        let cache = Arc::new(PageCache::new(1 << 20, Arc::default()));
        let shelf = shelf(&cache, 1, 10);
        assert!(!shelf.is_wanted_again(3, 1000), "nobody wanted it so far");
        assert!(!shelf.is_wanted_again(4, 1000));
        assert!(shelf.is_wanted_again(3, 1000));
        assert!(shelf.is_wanted_again(3, 1000), "until it is put there");
        shelf.put(3, page(1, 1000));
        assert!(!shelf.is_wanted_again(3, 1000));
        assert_eq!(cache.queues.lock().kept.entries.len(), 1);
        for _ in 0..3 {
            assert!(
                !shelf.is_wanted_again(5, 1 << 20),
                "there is no room for it"
            );
        }
    }
}
