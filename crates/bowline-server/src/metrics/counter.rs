//! A counter and a gauge: one atomic number each.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only increases.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A number that increases and decreases.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// Increments it if it is below `max`.
    pub(crate) fn rise(&self, max: u64) -> bool {
        let up = |now: u64| (now < max).then_some(now + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, fetch, up).is_ok()
    }

    pub(crate) fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
