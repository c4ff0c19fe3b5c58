//! The page cache: pages of all open tables, in memory, within a budget of bytes.
//!
//! It is a sharded cache that resists scans (an entry is kept hot when it was wanted twice), so
//! there is no lock that all readers share. Pages are keyed by file id and offset; file ids are
//! never used twice, and tables never change, so nothing in it can be out of date.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::page::Page;
use crate::counters::Counters;
use crate::sync::step;

/// What a page costs beside its bytes: its place in the cache and its reference count.
const PAGE_OVERHEAD_BYTES: u64 = 128;
/// What a page is taken to weigh when the cache is laid out.
const PAGE_ESTIMATE_BYTES: u64 = 8 << 10;
/// The cache divides its budget among shards and rounds up; a budget that is a multiple of this
/// leaves nothing to round.
const BUDGET_STEP_BYTES: u64 = 4096;

/// Which page: file id and offset.
pub(super) type PageKey = (u64, u64);

/// Pages of all open tables, within a budget of bytes. Shared by all tables.
///
/// A page that is larger than a shard of the cache (the budget divided by at most four times the
/// number of processors, rounded up to a power of two) is not kept.
#[derive(Debug)]
pub struct PageCache {
    pages: Cache<PageKey, Page, PageWeighter, BuildHasherDefault<PageHasher>>,
    budget_bytes: u64,
    counters: Arc<Counters>,
}

impl PageCache {
    /// A cache of at most `budget_bytes`; 0 caches nothing. Hits and misses are counted in
    /// `counters`.
    #[must_use]
    pub fn new(budget_bytes: u64, counters: Arc<Counters>) -> PageCache {
        let pages = (budget_bytes / PAGE_ESTIMATE_BYTES).clamp(1, u32::MAX.into()) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(pages)
            .weight_capacity(budget_bytes - budget_bytes % BUDGET_STEP_BYTES)
            .build()
            .expect("both required options are given");
        let hasher = BuildHasherDefault::default();
        let pages = Cache::with_options(options, PageWeighter, hasher, DefaultLifecycle::default());
        PageCache {
            pages,
            budget_bytes,
            counters,
        }
    }

    /// Bytes of the pages in the cache.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// The most the cache holds.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// The page, if it is here.
    #[inline]
    pub(super) fn get(&self, key: PageKey) -> Option<Page> {
        step();
        let page = self.pages.get(&key);
        match page {
            Some(_) => self.counters.cache_hits.add(1),
            None => self.counters.cache_misses.add(1),
        }
        page
    }

    /// Keeps a page, if there is room or something less wanted can go.
    pub(super) fn insert(&self, key: PageKey, page: Page) {
        step();
        self.pages.insert(key, page);
    }

    /// Forgets a page.
    pub(super) fn remove(&self, key: PageKey) {
        step();
        self.pages.remove(&key);
    }
}

#[derive(Clone, Debug)]
struct PageWeighter;

impl Weighter<PageKey, Page> for PageWeighter {
    fn weight(&self, _key: &PageKey, page: &Page) -> u64 {
        page.bytes().len() as u64 + PAGE_OVERHEAD_BYTES
    }
}

/// Hashes the two numbers of a [`PageKey`]. They are our own, so nobody can choose them to
/// collide, and two multiplications suffice.
#[derive(Clone, Debug, Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x243f_6a88_85a3_08d3)
            * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::page_builder::PageBuilder;
    use super::*;
    use crate::types::EntryKind;

    fn page(value_bytes: usize) -> Page {
        let mut builder = PageBuilder::new(16);
        builder.add(b"key", 1, EntryKind::Put, &vec![1; value_bytes]);
        Page::parse(Bytes::copy_from_slice(builder.finish())).unwrap()
    }

    #[test]
    fn the_cache_stays_within_its_budget() {
        for budget_bytes in [0, 1, 10_000, 100_000, 1 << 20, (8 << 20) + 17] {
            let cache = PageCache::new(budget_bytes, Arc::default());
            for i in 0..3000u64 {
                cache.insert((i % 7, i), page((i % 97) as usize * 83));
                cache.get((i % 5, i / 3));
                assert!(cache.used_bytes() <= budget_bytes, "{budget_bytes}");
            }
            assert_eq!(
                cache.used_bytes() > 0,
                budget_bytes >= 10_000,
                "{budget_bytes}"
            );
            assert_eq!(cache.budget_bytes(), budget_bytes);
        }
    }

    #[test]
    fn pages_are_found_until_removed_and_counted() {
        let counters = Arc::<Counters>::default();
        let cache = PageCache::new(1 << 20, counters.clone());
        assert!(cache.get((1, 0)).is_none());
        cache.insert((1, 0), page(10));
        assert!(cache.get((1, 0)).is_some());
        assert!(cache.get((2, 0)).is_none());
        cache.remove((1, 0));
        assert!(cache.get((1, 0)).is_none());
        assert_eq!(cache.used_bytes(), 0);
        assert_eq!(
            (counters.cache_hits.get(), counters.cache_misses.get()),
            (1, 3)
        );
    }
}
