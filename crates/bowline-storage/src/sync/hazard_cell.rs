//! A shared value that is read all the time and replaced rarely, protected by hazard pointers.
//!
//! The algorithm is that of hazard pointers (Michael 2004, <https://doi.org/10.1109/TPDS.2004.8>). Each thread owns a
//! *slot*. A reader publishes in its slot the pointer that it reads. A writer that has replaced the value scans all
//! slots before it drops the old value.
//!
//! ```text
//! reader                                   writer
//! slot = pointer                           current = new pointer
//! barrier                                  barrier
//! is it still the current one?             is the old one in any slot?
//! yes: read it; no: try again              no: drop it; yes: keep it for later
//! slot = null
//! ```
//!
//! The reader's barrier costs nothing on Linux: the writer makes every thread of the process execute a barrier, with
//! `membarrier(2)`, so a reader only prevents the compiler from reordering its two accesses. A read then costs a store,
//! a load and a store to a cache line that only this thread writes. Reference counts and `arc_swap` need two locked
//! instructions, which also prevent the processor from starting the next read while it waits for memory in this one.
//! That is expensive when reads follow each other: a get from a memtable of 100,000 keys took 290 ns with them and
//! 205 ns without (docs/benchmarks.md). Without `membarrier`, reader and writer each execute a barrier.
//!
//! # Invariants
//!
//! * The value behind a [`HazardGuard`] lives until the guard is dropped: the reader publishes the pointer before it
//!   sees that the value is current, and the writer scans the slots after it has replaced the value.
//! * A slot belongs to one thread and one [`HazardCell`] until the thread ends. A thread that already holds a guard
//!   (and a thread that is ending and has lost its slots) takes a reference count under the lock instead.
//! * A value that is in a slot when it is replaced is dropped by a later [`HazardCell::store`] or
//!   [`HazardCell::reclaim`].

#![expect(
    unsafe_code,
    reason = "hazard pointers avoid reference counts in reads; measured, see the head"
)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, compiler_fence, fence};

#[cfg(bowline_shuttle)]
use shuttle::thread_local;

use super::{Mutex, step};

/// The hazard pointer of one thread. It has its own cache line, because its thread writes it at every read.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    /// Null between reads.
    reading: AtomicPtr<()>,
    /// Whether its thread has ended, so that another thread may take the slot.
    is_free: AtomicBool,
}

/// The slots of one thread, each with the id of its [`HazardCell`].
#[derive(Default)]
struct Slots(Vec<(u64, Arc<Slot>)>);

thread_local! {
    static SLOTS: RefCell<Slots> = RefCell::default();
    /// The slot used last. The pointer is valid while the slot is in `SLOTS` of the same thread.
    static LAST: Cell<(u64, *const Slot)> = const { Cell::new((0, ptr::null())) };
}

impl Drop for Slots {
    fn drop(&mut self) {
        let _ = LAST.try_with(|last| last.set((0, ptr::null())));
        for (_, slot) in &self.0 {
            step();
            slot.is_free.store(true, Release);
        }
    }
}

/// The state that only writers and new threads access.
struct Shared<T> {
    slots: Vec<Arc<Slot>>,
    /// Replaced values that were in a slot at the last scan.
    replaced: Vec<Arc<T>>,
}

/// An `Arc` that is read all the time and replaced rarely. See the module's head.
///
/// ```
/// use bowline_storage::sync::HazardCell;
/// use std::sync::Arc;
///
/// let cell = HazardCell::new(Arc::new(1));
/// let guard = cell.load();
/// cell.store(Arc::new(2));
/// assert_eq!((*guard, *cell.load()), (1, 2));
/// ```
pub struct HazardCell<T> {
    /// From `Arc::into_raw`; owns one reference count.
    current: AtomicPtr<T>,
    /// Unique in the process, so that a slot is never mistaken for that of another `HazardCell` at the same address.
    id: u64,
    has_membarrier: bool,
    shared: Mutex<Shared<T>>,
}

// SAFETY: any thread may get a reference to the value or a clone of its `Arc`, and may drop it.
unsafe impl<T: Send + Sync> Send for HazardCell<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for HazardCell<T> {}

/// Access to the value that was current at the load. It uses the slot of its thread, so it stays on that thread.
pub struct HazardGuard<'a, T> {
    value: NonNull<T>,
    protection: Protection<'a, T>,
    on_this_thread: PhantomData<*const HazardCell<T>>,
}

enum Protection<'a, T> {
    Slot(&'a Slot),
    Count(#[expect(dead_code, reason = "keeps the value alive")] Arc<T>),
}

impl<T> HazardCell<T> {
    /// A cell with `value`.
    #[must_use]
    pub fn new(value: Arc<T>) -> HazardCell<T> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        HazardCell {
            current: AtomicPtr::new(Arc::into_raw(value).cast_mut()),
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            has_membarrier: membarrier::is_supported(),
            shared: Mutex::new(Shared {
                slots: Vec::new(),
                replaced: Vec::new(),
            }),
        }
    }

    /// The current value, for a short read. The value lives as long as the guard, even if it is replaced.
    #[must_use]
    #[inline]
    pub fn load(&self) -> HazardGuard<'_, T> {
        let (id, slot) = LAST.try_with(Cell::get).unwrap_or((0, ptr::null()));
        let slot = if id == self.id {
            slot
        } else {
            self.slot_of_this_thread()
        };
        // SAFETY: the slot is in `SLOTS` of this thread under the id of this `HazardCell`, which also owns a reference
        // to it and is borrowed for at least as long.
        let Some(slot) = (unsafe { slot.as_ref() }) else {
            return self.load_counted();
        };
        if !slot.reading.load(Relaxed).is_null() {
            return self.load_counted();
        }
        step();
        let mut value = self.current.load(Relaxed);
        loop {
            step();
            // Release: a writer that sees this store instead of the null before it must see the end of the previous read.
            slot.reading.store(value.cast(), Release);
            if self.has_membarrier {
                compiler_fence(SeqCst);
            } else {
                fence(SeqCst);
            }
            step();
            let still = self.current.load(Acquire);
            if still == value {
                break;
            }
            value = still;
        }
        HazardGuard {
            // SAFETY: from `Arc::into_raw`.
            value: unsafe { NonNull::new_unchecked(value) },
            protection: Protection::Slot(slot),
            on_this_thread: PhantomData,
        }
    }

    /// The current value, with a reference count.
    #[must_use]
    pub fn load_full(&self) -> Arc<T> {
        let guard = self.load();
        // SAFETY: from `Arc::into_raw`, and alive while the guard is; the caller owns the new count.
        unsafe {
            Arc::increment_strong_count(guard.value.as_ptr());
            Arc::from_raw(guard.value.as_ptr())
        }
    }

    /// Replaces the value.
    pub fn store(&self, value: Arc<T>) {
        let mut shared = self.shared.lock();
        step();
        let old = self.current.swap(Arc::into_raw(value).cast_mut(), SeqCst);
        // SAFETY: from `Arc::into_raw`, with the reference that `current` owned.
        shared.replaced.push(unsafe { Arc::from_raw(old) });
        let unprotected = self.take_unprotected(&mut shared);
        // Dropping a value may remove files, so it happens outside the lock.
        drop(shared);
        drop(unprotected);
    }

    /// Drops the replaced values that no slot protects any more. Returns how many are still protected.
    pub fn reclaim(&self) -> usize {
        let mut shared = self.shared.lock();
        let unprotected = self.take_unprotected(&mut shared);
        let left = shared.replaced.len();
        drop(shared);
        drop(unprotected);
        left
    }

    fn take_unprotected(&self, shared: &mut Shared<T>) -> Vec<Arc<T>> {
        if shared.replaced.is_empty() {
            return Vec::new();
        }
        if self.has_membarrier {
            if !membarrier::execute() {
                // Without the barrier the slots prove nothing: keep all.
                return Vec::new();
            }
        } else {
            fence(SeqCst);
        }
        let mut in_use = Vec::new();
        for slot in &shared.slots {
            step();
            in_use.push(slot.reading.load(Acquire).cast_const());
        }
        let is_used = |value: &mut Arc<T>| in_use.contains(&Arc::as_ptr(value).cast());
        shared
            .replaced
            .extract_if(.., |value| !is_used(value))
            .collect()
    }

    /// The slot of this thread; null when the thread is ending.
    #[cold]
    fn slot_of_this_thread(&self) -> *const Slot {
        let found = SLOTS.try_with(|slots| {
            let mut slots = slots.borrow_mut();
            let known = slots.0.iter().find(|(id, _)| *id == self.id);
            let slot = match known {
                Some((_, slot)) => slot.clone(),
                None => {
                    // A slot whose `HazardCell` was dropped has no other reference.
                    slots.0.retain(|(_, slot)| Arc::strong_count(slot) > 1);
                    let slot = self.new_slot();
                    slots.0.push((self.id, slot.clone()));
                    slot
                }
            };
            LAST.with(|last| last.set((self.id, Arc::as_ptr(&slot))));
            Arc::as_ptr(&slot)
        });
        found.unwrap_or(ptr::null())
    }

    fn new_slot(&self) -> Arc<Slot> {
        let mut shared = self.shared.lock();
        let left_over = shared.slots.iter().find(|slot| {
            step();
            slot.is_free
                .compare_exchange(true, false, SeqCst, Relaxed)
                .is_ok()
        });
        match left_over {
            Some(slot) => slot.clone(),
            None => {
                let slot = Arc::new(Slot::default());
                shared.slots.push(slot.clone());
                slot
            }
        }
    }

    #[cold]
    fn load_counted(&self) -> HazardGuard<'_, T> {
        let _shared = self.shared.lock();
        step();
        let current = self.current.load(Acquire);
        // SAFETY: from `Arc::into_raw`; the lock prevents that it is replaced and dropped.
        let value = unsafe {
            Arc::increment_strong_count(current);
            Arc::from_raw(current)
        };
        HazardGuard {
            value: NonNull::from(&*value),
            protection: Protection::Count(value),
            on_this_thread: PhantomData,
        }
    }
}

impl<T> Drop for HazardCell<T> {
    fn drop(&mut self) {
        // SAFETY: from `Arc::into_raw`, with the reference that `current` owns. No guard exists: it would borrow `self`.
        drop(unsafe { Arc::from_raw(self.current.load(Acquire)) });
    }
}

impl<T: fmt::Debug> fmt::Debug for HazardCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HazardCell").field(&*self.load()).finish()
    }
}

impl<T> Deref for HazardGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as the guard (invariants of the module).
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for HazardGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Protection::Slot(slot) = self.protection {
            step();
            slot.reading.store(ptr::null_mut(), Release);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for HazardGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A barrier that one thread makes all threads of the process execute.
#[cfg(all(target_os = "linux", not(any(miri, bowline_shuttle))))]
mod membarrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the kernel supports it. The process registers once.
    pub(super) fn is_supported() -> bool {
        static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
        let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        *IS_SUPPORTED.get_or_init(register)
    }

    /// Executes the barrier on all threads; `false` when that failed.
    pub(super) fn execute() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// The same on systems without `membarrier`.
#[cfg(not(all(target_os = "linux", not(any(miri, bowline_shuttle)))))]
mod membarrier {
    pub(super) fn is_supported() -> bool {
        false
    }

    pub(super) fn execute() -> bool {
        false
    }
}

#[cfg(all(test, not(bowline_shuttle)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how many of its kind live.
    struct Counted<'a>(u64, u64, &'a AtomicUsize);

    impl<'a> Counted<'a> {
        fn new(number: u64, living: &'a AtomicUsize) -> Arc<Counted<'a>> {
            living.fetch_add(1, SeqCst);
            Arc::new(Counted(number, !number, living))
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            // So that a read after the drop sees a wrong value.
            self.1 = self.0;
            self.2.fetch_sub(1, SeqCst);
        }
    }

    #[test]
    fn what_is_held_lives_and_what_is_not_goes_at_once() {
        let living = AtomicUsize::new(0);
        let cell = HazardCell::new(Counted::new(1, &living));
        cell.store(Counted::new(2, &living));
        assert_eq!(living.load(SeqCst), 1, "nobody guard the first");
        let guard = cell.load();
        cell.store(Counted::new(3, &living));
        assert_eq!((guard.0, guard.1), (2, !2));
        assert_eq!((living.load(SeqCst), cell.reclaim()), (2, 1));
        drop(guard);
        assert_eq!((cell.reclaim(), living.load(SeqCst)), (0, 1));
        let kept = cell.load_full();
        drop(cell);
        assert_eq!((kept.0, living.load(SeqCst)), (3, 1));
        drop(kept);
        assert_eq!(living.load(SeqCst), 0);
    }

    #[test]
    fn a_thread_may_hold_several_and_of_several() {
        let living = AtomicUsize::new(0);
        let cells = [1, 2].map(|number| HazardCell::new(Counted::new(number, &living)));
        let guard: Vec<_> = cells.iter().chain(&cells).map(HazardCell::load).collect();
        for (number, cell) in [3, 4].into_iter().zip(&cells) {
            cell.store(Counted::new(number, &living));
        }
        let numbers = |guards: &[HazardGuard<'_, Counted<'_>>]| -> Vec<u64> {
            guards.iter().map(|guard| guard.0).collect()
        };
        assert_eq!(numbers(&guard), [1, 2, 1, 2]);
        assert_eq!(living.load(SeqCst), 4);
        drop(guard);
        let guard: Vec<_> = cells.iter().map(HazardCell::load).collect();
        assert_eq!(numbers(&guard), [3, 4]);
        drop(guard);
        drop(cells);
        assert_eq!(living.load(SeqCst), 0);
    }

    #[test]
    fn what_a_thread_lets_go_of_is_not_what_it_still_holds() {
        let living = AtomicUsize::new(0);
        let cell = HazardCell::new(Counted::new(1, &living));
        let guard = cell.load();
        drop(cell.load());
        cell.store(Counted::new(2, &living));
        assert_eq!(living.load(SeqCst), 2, "the first is still held");
        assert_eq!(guard.0, 1);
    }

    #[test]
    fn a_thread_that_goes_from_one_to_another_is_seen_there() {
        let living = AtomicUsize::new(0);
        let cells = [1, 2].map(|number| HazardCell::new(Counted::new(number, &living)));
        drop(cells[0].load());
        let guard = cells[1].load();
        cells[1].store(Counted::new(3, &living));
        assert_eq!(living.load(SeqCst), 3, "what is guard is still there");
        assert_eq!(guard.0, 2);
    }

    #[test]
    fn slots_of_ended_threads_are_used_again() {
        let cell = HazardCell::new(Arc::new(7));
        for _ in 0..5 {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(*cell.load(), 7));
            });
        }
        // A scope may end before the thread's locals are dropped.
        assert!(cell.shared.lock().slots.len() <= 3);
    }

    #[test]
    fn a_thread_that_ends_can_still_read() {
        struct AtTheEnd(Arc<HazardCell<u64>>, std::sync::mpsc::Sender<u64>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                self.1.send(*self.0.load()).expect("somebody waits");
            }
        }
        thread_local! {
            static EARLY: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
        }
        let cell = Arc::new(HazardCell::new(Arc::new(7)));
        let (sender, receiver) = std::sync::mpsc::channel();
        let same = cell.clone();
        let thread = std::thread::spawn(move || {
            // Whichever of the two goes first, the read in its destructor must be sound.
            EARLY.with(|early| *early.borrow_mut() = Some(AtTheEnd(same.clone(), sender)));
            assert_eq!(*same.load(), 7);
        });
        thread.join().expect("no panic");
        assert_eq!(receiver.recv(), Ok(7));
    }

    #[test]
    fn readers_never_see_what_is_gone() {
        const STORES: u64 = if cfg!(miri) { 30 } else { 20_000 };
        let living = AtomicUsize::new(0);
        let cell = HazardCell::new(Counted::new(1, &living));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Relaxed) {
                        let guard = cell.load();
                        assert_eq!(guard.1, !guard.0, "it was dropped");
                        assert!(guard.0 >= last, "it went back");
                        last = guard.0;
                        if last % 3 == 0 {
                            drop(guard);
                            assert!(cell.load_full().0 >= last);
                        }
                    }
                });
            }
            for number in 2..STORES {
                cell.store(Counted::new(number, &living));
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!((cell.reclaim(), living.load(SeqCst)), (0, 1));
    }
}
