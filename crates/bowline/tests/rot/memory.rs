//! Counts what a thread allocates, so that a length read from damaged bytes and believed is seen.
#![expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; this one counts and passes everything on"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize, freed: usize) {
    let live = LIVE.get() + size as i64 - freed as i64;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
    LARGEST.set(LARGEST.get().max(size));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
// The counters are plain cells of the thread: touching them allocates nothing, and they have no
// destructor, so they can be used until the thread is gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What a piece of work took on this thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// The largest single allocation, in bytes.
    pub largest: u64,
    /// The most that was held at once beyond what was held before, in bytes.
    pub peak: u64,
}

/// Does `work` and tells what it took.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let before = LIVE.get();
    PEAK.set(before);
    LARGEST.set(0);
    let result = work();
    let taken = Taken {
        largest: LARGEST.get() as u64,
        peak: u64::try_from(PEAK.get() - before).unwrap_or(0),
    };
    (result, taken)
}

#[test]
fn what_is_allocated_is_counted() {
    let ((), taken) = counted(|| drop((vec![0u8; 3000], Vec::<u8>::with_capacity(2000))));
    assert_eq!((taken.largest, taken.peak), (3000, 5000));
    let ((), taken) = counted(|| {
        drop(vec![1u8; 700]);
        drop(vec![1u8; 800]);
    });
    assert_eq!((taken.largest, taken.peak), (800, 800));
}
