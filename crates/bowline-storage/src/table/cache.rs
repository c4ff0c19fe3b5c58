//! The page cache: pages of all open tables, in memory, within a budget of bytes.
//!
//! Each open table has a [`Shelf`] with a slot for each of its pages. A read that finds its page there
//! takes no lock, does no lookup and counts no reference: it loads one pointer through
//! [`ArcSwapOption`], which keeps the page alive during the read. Tables never change, so a cached page
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
//! So a scan, which uses each page once, passes through the fresh queue and evicts no kept page. Only a
//! read from disk takes the lock of the queues.
//!
//! Invariants:
//!
//! - The used bytes are exactly those of the pages on shelves, and never exceed the budget.
//! - Only the holder of the queue lock puts a page on a shelf or removes one, so each page on a shelf is in
//!   exactly one queue, once. A dropped shelf drops its pages. The queue entries of such pages are stale:
//!   they are skipped, and removed before they are as many as the others.
//! - The work under the lock is bounded: an eviction spares at most [`SPARED_MAX`] pages, and then evicts
//!   the next one even if it was used.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::page::Page;
use crate::counters::Counters;
use crate::prefetch::Hint;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{ArcSwapOption, Guard, Mutex};

/// The overhead of a page: its header, its slot and its queue entry.
const PAGE_OVERHEAD_BYTES: u64 = 200;
/// The assumed size of a page, to choose how many names are remembered.
const PAGE_ESTIMATE_BYTES: u64 = 8 << 10;
/// The fresh queue gets one part in this many of the budget.
const FRESH_PART: u64 = 10;
/// A page that is larger than this part of the budget is not cached: it would evict too many others.
const PAGE_PART_MAX: u64 = 4;
/// The maximum use count of a page: how often it is spared without a further use.
const USES_MAX: u8 = 3;
/// How many pages an eviction spares.
const SPARED_MAX: usize = 64;
/// Bounds of the number of remembered names.
const NAMES_MIN: u64 = 16;
const NAMES_MAX: u64 = 1 << 22;

/// Pages of all open tables, within a budget of bytes. Shared by all tables.
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

/// The places for the pages of one table.
pub(super) struct Shelf {
    file_id: u64,
    places: Box<[Place]>,
    cache: Arc<PageCache>,
}

#[derive(Debug)]
struct Place {
    page: ArcSwapOption<ShelvedPage>,
    /// For the page itself, for where a search in it begins, and for its first entries.
    head: Hint,
    search_start: Hint,
    first_entries: Hint,
}

/// A page that is, or was at the time of the read, on its shelf. It has its own cache line, apart from the
/// reference count: a read waits for one line, and counting references does not disturb other readers.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShelvedPage {
    page: Page,
    /// Uses since the last check by a queue, up to [`USES_MAX`].
    uses: AtomicU8,
}

const _: () = assert!(size_of::<ShelvedPage>() == 64);

static NOTHING: Page = Page::EMPTY;

/// A page, alive as long as this value. Keep it only for a short time: few of them per thread are cheap.
#[derive(Debug)]
pub(super) struct PageRef(Guard<Option<Arc<ShelvedPage>>>);

#[derive(Debug)]
struct Queues {
    fresh: Queue,
    kept: Queue,
    /// Names of evicted fresh pages, each in the slot given by its hash; 0 is empty.
    names: Box<[u64]>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    shelf: Weak<Shelf>,
    number: usize,
    bytes: u64,
}

impl PageCache {
    /// A cache of at most `budget_bytes`; 0 caches nothing. Hits and misses are counted in
    /// `counters`.
    #[must_use]
    pub fn new(budget_bytes: u64, counters: Arc<Counters>) -> PageCache {
        let names = (budget_bytes / PAGE_ESTIMATE_BYTES).clamp(NAMES_MIN, NAMES_MAX);
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

    /// Bytes of the pages in the cache.
    #[must_use]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The most the cache holds.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Puts a page on its shelf, if the budget allows it or other pages can be evicted.
    fn put(&self, shelf: &Arc<Shelf>, number: usize, page: &Arc<ShelvedPage>) {
        let bytes = page.weight();
        if bytes > self.budget_bytes / PAGE_PART_MAX {
            return;
        }
        let Some(place) = shelf.place(number) else {
            return;
        };
        let mut queues = self.queues.lock();
        if place.page.load().is_some() {
            // Somebody else read it at the same time.
            return;
        }
        while self.used_bytes() + bytes > self.budget_bytes {
            if !queues.evict(self) {
                return;
            }
        }
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        place.head.set(std::slice::from_ref(&**page));
        place.search_start.set(page.page.search_start());
        place.first_entries.set(page.page.first_entries());
        place.page.store(Some(page.clone()));
        if self.stale.load(Ordering::Relaxed) > queues.len() / 2 {
            self.stale.store(0, Ordering::Relaxed);
            queues.clear_away();
        }
        let entry = Entry {
            shelf: Arc::downgrade(shelf),
            number,
            bytes,
        };
        if queues.take_name(name_of(shelf.file_id, number)) {
            queues.kept.push(entry);
        } else {
            queues.fresh.push(entry);
        }
    }
}

impl Shelf {
    /// Places for the pages `0..pages` of a table, all of them empty.
    pub(super) fn new(file_id: u64, pages: usize, cache: Arc<PageCache>) -> Shelf {
        Shelf {
            file_id,
            places: (0..pages).map(|_| Place::empty()).collect(),
            cache,
        }
    }

    #[inline]
    fn place(&self, number: usize) -> Option<&Place> {
        self.places.get(number)
    }

    /// Asks for the memory in which a search in a page begins.
    #[inline]
    pub(super) fn prefetch(&self, number: usize) {
        if let Some(place) = self.place(number) {
            place.head.prefetch();
            place.search_start.prefetch();
        }
    }

    /// Asks for the memory in which a walk through a page begins.
    #[inline]
    pub(super) fn prefetch_first_entries(&self, number: usize) {
        if let Some(place) = self.place(number) {
            place.head.prefetch();
            place.first_entries.prefetch();
        }
    }

    /// A page, if it is in its place.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<PageRef> {
        let held = self.place(number)?.page.load();
        let counters = &self.cache.counters;
        if let Some(page) = &*held {
            page.note_use();
            counters.cache_hits.add(1);
            Some(PageRef(held))
        } else {
            counters.cache_misses.add(1);
            None
        }
    }

    /// Puts a page in its place, if the cache has room for it, and gives it back.
    pub(super) fn put(self: &Arc<Self>, number: usize, page: Page) -> PageRef {
        let page = Arc::new(ShelvedPage::new(page));
        self.cache.put(self, number, &page);
        PageRef(Guard::from_inner(Some(page)))
    }

    /// Bytes held in memory, without the pages.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.places)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let (mut pages, mut bytes) = (0, 0);
        for page in self.places.iter().filter_map(|place| place.page.swap(None)) {
            pages += 1;
            bytes += page.weight();
        }
        self.cache.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.cache.stale.fetch_add(pages, Ordering::Relaxed);
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("file_id", &self.file_id)
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl Place {
    fn empty() -> Place {
        Place {
            page: ArcSwapOption::empty(),
            head: Hint::default(),
            search_start: Hint::default(),
            first_entries: Hint::default(),
        }
    }
}

impl ShelvedPage {
    fn new(page: Page) -> ShelvedPage {
        ShelvedPage {
            page,
            uses: AtomicU8::new(0),
        }
    }

    /// The bytes that it adds to the used bytes.
    fn weight(&self) -> u64 {
        self.page.bytes().len() as u64 + PAGE_OVERHEAD_BYTES
    }

    /// A use that another thread notes at the same time may be lost. That is no matter, and a
    /// page that is wanted all the time is not written to.
    #[inline]
    fn note_use(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Whether it was wanted. Takes note that this was asked: of a fresh page, once and for all.
    fn spare(&self, is_fresh: bool) -> bool {
        let uses = self.uses.load(Ordering::Relaxed);
        let left = if is_fresh { 0 } else { uses.saturating_sub(1) };
        self.uses.store(left, Ordering::Relaxed);
        uses > 0
    }
}

impl Deref for PageRef {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        match &*self.0 {
            Some(page) => &page.page,
            // Is never made.
            None => &NOTHING,
        }
    }
}

impl Queues {
    /// Takes a page off its shelf; `false` when there is none on any.
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
            let Some(place) = shelf.place(entry.number) else {
                continue;
            };
            if spared < SPARED_MAX
                && let Some(page) = &*place.page.load()
                && page.spare(is_fresh)
            {
                spared += 1;
                self.kept.push(entry);
                continue;
            }
            place.page.store(None);
            cache.used_bytes.fetch_sub(entry.bytes, Ordering::Relaxed);
            if is_fresh {
                self.note_name(name_of(shelf.file_id, entry.number));
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

    /// Whether the name was noted; it is no more.
    fn take_name(&mut self, name: u64) -> bool {
        let at = name as usize % self.names.len();
        let noted = self.names[at] == name;
        if noted {
            self.names[at] = 0;
        }
        noted
    }
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

/// A number for a page, never 0. Two pages with the same one cost at most a worse guess.
fn name_of(file_id: u64, number: usize) -> u64 {
    let mixed = (file_id.rotate_left(32) ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)) | (1 << 63)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::page_builder::PageBuilder;
    use super::*;
    use crate::types::EntryKind;

    /// A page with one entry, whose revision tells it from others.
    fn page(revision: u64, value_bytes: usize) -> Page {
        let mut builder = PageBuilder::new(16);
        builder.add(b"key", revision, EntryKind::Put, &vec![1; value_bytes]);
        Page::parse(Bytes::copy_from_slice(builder.finish())).unwrap()
    }

    fn revision_of(page: &Page) -> u64 {
        page.entry_at(0).unwrap().revision
    }

    fn shelf(cache: &Arc<PageCache>, file_id: u64, pages: usize) -> Arc<Shelf> {
        Arc::new(Shelf::new(file_id, pages, cache.clone()))
    }

    /// The bytes of the pages on shelves, counted anew.
    fn bytes_on(shelves: &[Arc<Shelf>]) -> u64 {
        let places = shelves.iter().flat_map(|shelf| &shelf.places);
        let pages = places.filter_map(|place| place.page.load().clone());
        pages.map(|page| page.weight()).sum()
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
                assert_eq!(revision_of(&put), from + number as u64);
            }
        }
        for number in 0..10 {
            for (shelf, from) in [(&first, 100), (&second, 200)] {
                let found = shelf.get(number).map(|page| revision_of(&page));
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
        assert_eq!(revision_of(&held), 103, "it is held");
        assert_eq!(cache.used_bytes(), bytes_on(&[second]));
    }

    #[test]
    fn who_comes_second_leaves_the_page_of_the_first() {
        let cache = Arc::new(PageCache::new(1 << 20, Arc::default()));
        let shelf = shelf(&cache, 1, 1);
        assert_eq!(revision_of(&shelf.put(0, page(1, 10))), 1);
        assert_eq!(
            revision_of(&shelf.put(0, page(2, 10))),
            2,
            "it reads its own"
        );
        assert_eq!(shelf.get(0).map(|page| revision_of(&page)), Some(1));
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
        assert_eq!(revision_of(&held), 7);
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
}
