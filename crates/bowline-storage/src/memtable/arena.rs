//! The memory of a memtable: one zeroed block, handed out from the front, freed as a whole.
//!
//! The block is requested at its full capacity, and the operating system commits its pages when
//! they are first touched, so an unused tail costs address space only. It is requested from the
//! operating system directly: an allocator that has freed a block of some megabytes may keep later
//! blocks of that size in its heap, where they fragment it, and must clear them itself (glibc adapts
//! `M_MMAP_THRESHOLD` so). Offsets in the block count 8-byte units from its start in 32 bits: half the
//! size of a pointer. The block has no addresses. Unit 0 is never handed out, so 0 can mean *nothing*.
//!
//! Fields that change after they were published are atomics, accessed through [`Arena::view`]. Plain bytes
//! (keys and values) are written once by the single writer, before anything points to them, and are only
//! read afterwards. There is no other access, so no reader can see a byte that is being written.

#![expect(unsafe_code, reason = "the one place that turns offsets into memory")]

use std::alloc::{Layout, handle_alloc_error};
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::prefetch::prefetch_at;
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// The unit of offsets, in bytes.
pub(super) const UNIT: usize = 8;

/// The largest block offsets can address, in bytes: 32 GiB less one unit on 64-bit machines.
pub(super) const MAX_BYTES: usize = {
    let addressable = (u32::MAX as usize).saturating_mul(UNIT);
    let allocatable = isize::MAX as usize / UNIT * UNIT;
    if addressable < allocatable {
        addressable
    } else {
        allocatable
    }
};

/// A type that may lie in an arena and be seen by many threads at once.
///
/// # Safety
/// Made of atomics only (so that a shared reference may be written through), without padding
/// that matters, valid when all its bytes are zero, and aligned to at most [`UNIT`].
pub(super) unsafe trait Shared {}

// SAFETY: an atomic, valid as zero, aligned to 4.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic, valid as zero, aligned to 8.
unsafe impl Shared for AtomicU64 {}

/// The value of [`held_bytes`]. A standard atomic: the scheduler of the interleaving tests need not see it.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The address space, in bytes, of all memtables of this process, including dropped ones whose memory is
/// not freed yet. A counting allocator does not see it.
#[must_use]
pub fn held_bytes() -> usize {
    HELD_BYTES.load(Relaxed)
}

/// One zeroed block of memory. See the module's head.
pub(super) struct Arena {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena owns its block, and shared access goes through atomics, or through bytes that
// are no longer written (the contracts of `write` and `bytes`).
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Arena {
    /// A zeroed block of `bytes`, rounded up to whole units, at most [`MAX_BYTES`].
    pub(super) fn new(bytes: usize) -> Arena {
        let bytes = bytes.clamp(UNIT, MAX_BYTES).next_multiple_of(UNIT);
        let layout = Arena::layout(bytes);
        let Some(base) = block::ask_for(layout) else {
            handle_alloc_error(layout)
        };
        HELD_BYTES.fetch_add(bytes, Relaxed);
        block::ask_for_huge_pages(base, bytes);
        Arena { base, bytes }
    }

    /// No memory, and so no places.
    pub(super) fn none() -> Arena {
        Arena {
            base: NonNull::dangling(),
            bytes: 0,
        }
    }

    fn layout(bytes: usize) -> Layout {
        // More than the unit would make the system allocator clear the block by hand, and so
        // commit all of it.
        Layout::from_size_align(bytes, UNIT).expect("the size is clamped to what can be allocated")
    }

    /// The size of the block, in bytes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The atomics that lie `displacement` bytes after `offset`.
    ///
    /// # Panics
    /// When they would lie outside the block, or not be aligned.
    #[inline]
    pub(super) fn view<T: Shared>(&self, offset: u32, displacement: usize) -> &T {
        let start = offset as usize * UNIT + displacement;
        assert!(
            start + size_of::<T>() <= self.bytes && displacement.is_multiple_of(align_of::<T>())
        );
        // SAFETY: inside the block by the assertion; aligned, since the block and the offset are
        // aligned to the unit, `T` to no more than that, and the displacement to `T`; zeroed or
        // written as `T`; and `T` is made of atomics, so other threads may hold the same view.
        unsafe { self.base.add(start).cast::<T>().as_ref() }
    }

    /// The `len` bytes that lie `displacement` bytes after `offset`.
    ///
    /// # Panics
    /// When they would lie outside the block.
    ///
    /// # Safety
    /// These bytes are not written any more: `offset` was published after they were written.
    #[inline]
    pub(super) unsafe fn bytes(&self, offset: u32, displacement: usize, len: usize) -> &[u8] {
        let start = offset as usize * UNIT + displacement;
        assert!(start + len <= self.bytes);
        // SAFETY: inside the block by the assertion, initialised (zeroed at first), and not
        // written while the reference lives, by this function's contract.
        unsafe { std::slice::from_raw_parts(self.base.add(start).as_ptr(), len) }
    }

    /// Has the processor fetch `lines` cache lines from `offset` on, all at once, without waiting for them.
    #[inline]
    pub(super) fn prefetch(&self, offset: u32, lines: usize) {
        let start = self.base.as_ptr().addr();
        prefetch_at(start.wrapping_add(offset as usize * UNIT), lines);
    }

    /// Copies `bytes` to `displacement` bytes after `offset`.
    ///
    /// # Panics
    /// When they would lie outside the block.
    ///
    /// # Safety
    /// The place was reserved by the caller in this arena's [`Space`], and nothing that readers
    /// can reach points to it yet.
    #[inline]
    pub(super) unsafe fn write(&self, offset: u32, displacement: usize, bytes: &[u8]) {
        let start = offset as usize * UNIT + displacement;
        assert!(start + bytes.len() <= self.bytes);
        // SAFETY: inside the block by the assertion; `bytes` cannot overlap a place that nobody
        // has a reference to, by this function's contract.
        unsafe {
            let target = self.base.add(start).as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }
}

/// Where blocks come from: the system.
#[cfg(all(target_os = "linux", not(miri), not(bowline_sanitizer)))]
mod block {
    use std::alloc::Layout;
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// A zeroed block, if there is one.
    pub(super) fn ask_for(layout: Layout) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of its own, where the system likes: it takes the place of nothing.
        let block = unsafe { mmap_anonymous(null_mut(), layout.size(), access, MapFlags::PRIVATE) };
        NonNull::new(block.ok()?.cast())
    }

    /// # Safety
    /// The block came from [`ask_for`] with this layout, and nothing borrowed from it is left.
    pub(super) unsafe fn give_back(base: NonNull<u8>, layout: Layout) {
        // SAFETY: a whole mapping that is not used any more, by the contract of the caller.
        let unmapped = unsafe { munmap(base.as_ptr().cast(), layout.size()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }

    /// Asks for pages of 2 MiB, of which the processor keeps the places of more at hand than of small ones: a
    /// read of a large memtable otherwise waits for the page table as well (docs/benchmarks.md). The first
    /// part of a block, 1 MiB at least, keeps its small pages, so that a small database stays small. To be
    /// refused is no failure.
    pub(super) fn ask_for_huge_pages(base: NonNull<u8>, bytes: usize) {
        const HUGE_BYTES: usize = 2 << 20;
        let address = base.as_ptr().addr();
        // Both from the start of the block.
        let first = (address + HUGE_BYTES / 2).next_multiple_of(HUGE_BYTES) - address;
        let end = ((address + bytes) / HUGE_BYTES * HUGE_BYTES).saturating_sub(address);
        if first >= end {
            return;
        }
        // SAFETY: whole pages inside the block, which the caller owns; their content does not change.
        let _refused = unsafe {
            madvise(
                base.add(first).as_ptr().cast(),
                end - first,
                Advice::LinuxHugepage,
            )
        };
    }
}

/// Where blocks come from: the allocator, which Miri and the sanitizers follow (of memory that is mapped
/// anew, ThreadSanitizer would remember what was done to it before).
#[cfg(not(all(target_os = "linux", not(miri), not(bowline_sanitizer))))]
mod block {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    /// A zeroed block, if there is one.
    pub(super) fn ask_for(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the layout of an arena is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    /// # Safety
    /// The block came from [`ask_for`] with this layout, and nothing borrowed from it is left.
    pub(super) unsafe fn give_back(base: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's promise.
        unsafe { dealloc(base.as_ptr(), layout) }
    }

    pub(super) fn ask_for_huge_pages(_base: NonNull<u8>, _bytes: usize) {}
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        HELD_BYTES.fetch_sub(self.bytes, Relaxed);
        // SAFETY: it came in `new`, since it is not `none`, with the same layout, and nothing borrowed from it is left.
        unsafe { block::give_back(self.base, Arena::layout(self.bytes)) }
    }
}

/// What of an arena is not handed out yet. The single writer holds it.
pub(super) struct Space {
    next_unit: u32,
    end_unit: u32,
}

impl Space {
    /// No room.
    pub(super) fn none() -> Space {
        Space {
            next_unit: 0,
            end_unit: 0,
        }
    }

    /// All of `arena` but the unit that stands for *nothing*.
    pub(super) fn of(arena: &Arena) -> Space {
        Space {
            next_unit: 1,
            end_unit: (arena.bytes / UNIT) as u32,
        }
    }

    /// How many bytes can still be reserved.
    #[inline]
    pub(super) fn free_bytes(&self) -> usize {
        (self.end_unit - self.next_unit) as usize * UNIT
    }

    /// Takes `bytes`, rounded up to whole units; `None` when they are not there.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<NonZeroU32> {
        if bytes > self.free_bytes() {
            return None;
        }
        let offset = NonZeroU32::new(self.next_unit)?;
        self.next_unit += bytes.div_ceil(UNIT) as u32;
        Some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_arena_is_zero_and_hands_out_distinct_places_until_it_is_full() {
        let arena = Arena::new(10 * UNIT);
        let mut space = Space::of(&arena);
        assert_eq!(
            space.free_bytes(),
            9 * UNIT,
            "the first unit stands for nothing"
        );
        let first = space.reserve(1).expect("room").get();
        let second = space.reserve(2 * UNIT).expect("room").get();
        assert_eq!((first, second), (1, 2));
        assert_eq!(arena.view::<AtomicU64>(second, 0).load(Relaxed), 0);
        assert!(space.reserve(6 * UNIT + 1).is_none());
        assert!(space.reserve(6 * UNIT).is_some());
        assert!(space.reserve(1).is_none());
        assert_eq!(arena.len(), 80);
    }

    #[test]
    fn bytes_come_back_as_they_were_written() {
        let arena = Arena::new(1 << 12);
        let mut space = Space::of(&arena);
        let place = space.reserve(20).expect("room").get();
        let next = space.reserve(8).expect("room").get();
        arena.view::<AtomicU64>(next, 0).store(u64::MAX, Relaxed);
        // SAFETY: reserved above, no other code knows the place.
        unsafe { arena.write(place, 4, b"sixteen bytes ok") };
        // SAFETY: written above, never again.
        assert_eq!(unsafe { arena.bytes(place, 4, 16) }, b"sixteen bytes ok");
        assert_eq!(arena.view::<AtomicU64>(next, 0).load(Relaxed), u64::MAX);
        assert_eq!(arena.view::<AtomicU32>(place, 0).load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_view_past_the_end_is_refused() {
        let arena = Arena::new(4 * UNIT);
        arena.view::<AtomicU64>(4, 0);
    }
}
