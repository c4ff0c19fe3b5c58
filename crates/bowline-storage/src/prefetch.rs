//! Tells the processor which memory will be read next.
//!
//! A read of what lies in memory is made of loads that wait for each other. In a table, the place
//! says where the page's head is, the head where its hash index is, the hash index which interval
//! to search. Addresses that are known early are prefetched early, all at once, so that the waits
//! overlap. A `Hint` makes an address known early that is otherwise known late.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(
        unsafe_code,
        reason = "the instruction has no safe form; measured, see docs/benchmarks.md"
    )
)]

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// A hint is for less than so many lines, which its lowest bits count.
const LINES_END: usize = LINE_BYTES;

/// Asks for the cache line at an address. Waits for nothing.
#[inline]
fn prefetch_line(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let line = std::ptr::without_provenance::<i8>(address);
        // SAFETY: a hint. It reads nothing that the program sees, and cannot fault, wherever the
        // address leads.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for all cache lines of `items`.
#[inline]
pub(crate) fn prefetch<T>(items: &[T]) {
    let range = items.as_ptr_range();
    let first = range.start.addr() / LINE_BYTES * LINE_BYTES;
    for line in (first..range.end.addr()).step_by(LINE_BYTES) {
        prefetch_line(line);
    }
}

/// Asks for `lines` cache lines, the first of them that in which `first` lies.
#[inline]
pub fn prefetch_from<T>(first: &T, lines: usize) {
    prefetch_at(std::ptr::from_ref(first).addr(), lines);
}

/// Asks for `lines` cache lines, the first of them that in which `address` lies.
#[inline]
pub(crate) fn prefetch_at(address: usize, lines: usize) {
    for line in 0..lines {
        prefetch_line(address.wrapping_add(line * LINE_BYTES));
    }
}

/// Where something lies that will be read, or lay once: a hint that is wrong costs a little time.
///
/// The address of the first line and, in the bits that are zero in it, how many lines.
#[derive(Debug, Default)]
pub(crate) struct Hint(AtomicUsize);

impl Hint {
    /// Is for `items` from now on; for nothing when they fill too many lines.
    pub(crate) fn set<T>(&self, items: &[T]) {
        let range = items.as_ptr_range();
        let first = range.start.addr() / LINE_BYTES * LINE_BYTES;
        let lines = (range.end.addr() - first).div_ceil(LINE_BYTES);
        let hint = if lines < LINES_END { first | lines } else { 0 };
        self.0.store(hint, Ordering::Relaxed);
    }

    /// Asks for all of its lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let hint = self.0.load(Ordering::Relaxed);
        let (first, lines) = (hint / LINE_BYTES * LINE_BYTES, hint % LINE_BYTES);
        for line in 0..lines {
            prefetch_line(first + line * LINE_BYTES);
        }
    }

    #[cfg(test)]
    fn lines(&self) -> Vec<usize> {
        let hint = self.0.load(Ordering::Relaxed);
        let lines = 0..hint % LINE_BYTES;
        lines.map(|line| hint / LINE_BYTES + line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_covers_every_byte_and_no_line_more() {
        let bytes = [0u8; 5000];
        let hint = Hint::default();
        assert!(hint.lines().is_empty());
        for (start, len) in [(0, 1), (1, 64), (63, 2), (64, 64), (17, 300), (3, 3900)] {
            let part = &bytes[start..start + len];
            hint.set(part);
            let range = part.as_ptr().addr()..part.as_ptr().addr() + len;
            let mut lines: Vec<_> = range.map(|byte| byte / LINE_BYTES).collect();
            lines.dedup();
            assert_eq!(hint.lines(), lines);
            hint.prefetch();
            prefetch(part);
        }
        hint.set(&bytes);
        assert!(hint.lines().is_empty(), "that is too many to ask for");
        hint.set(&bytes[..0]);
        hint.prefetch();
    }
}
