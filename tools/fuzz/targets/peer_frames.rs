//! Counts what is allocated, so that a length is noticed that is believed before its bytes have arrived.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bowline_cluster::fuzzing::peer_frames;

/// What a connection takes whatever arrives: its buffers, and the states of its futures.
const FIXED_BYTES: i64 = 512 << 10;
/// What each byte that has arrived may take: a message in memory is longer than its encoding.
const PER_BYTE: i64 = 100;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn note(size: usize, freed: usize) {
    let live = LIVE.get() + size as i64 - freed as i64;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract. The counters are plain
// cells of the thread: touching them allocates nothing, and they have no destructor.
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

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let before = LIVE.get();
    PEAK.set(before);
    let arrived = peer_frames(data);
    let taken = PEAK.get() - before;
    let most = FIXED_BYTES + PER_BYTE * arrived as i64;
    assert!(
        taken <= most,
        "{arrived} bytes have arrived and {taken} were taken"
    );
});
