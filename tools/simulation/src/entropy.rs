//! What the system would give as randomness: hash maps and tokio take theirs from there.
//!
//! The standard library calls `getrandom` by a weak symbol, so that a program can bring its own. This needs
//! `unsafe`: the function has the C library's name, and writes where its caller says.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on everything random follows from `seed`.
pub(crate) fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "the C library's name and signature")]
// SAFETY: the function does what the C library's does, except that its bytes can be foretold.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for at in 0..length {
        // SplitMix64.
        let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // SAFETY: the caller gives `length` bytes that may be written.
        unsafe { buffer.add(at).write((mixed >> 32) as u8) };
    }
    length.cast_signed()
}
