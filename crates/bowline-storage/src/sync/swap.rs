//! A shared value that is replaced rarely and read all the time.
//!
//! Hazard pointers (Michael 2004, <https://doi.org/10.1109/TPDS.2004.8>): each thread has a *slot* in which it says
//! what it is reading. Who replaces the value looks at all slots before it lets go of the old one.
//!
//! ```text
//! reader                                   writer
//! slot = pointer                           current = new pointer
//! barrier                                  barrier
//! is it still the current one?             is the old one in any slot?
//! yes: read it; no: once more              no: let go of it; yes: keep it for later
//! slot = nothing
//! ```
//!
//! One of the two barriers is enough if it is one for both sides. On Linux the writer makes all threads of the process
//! pass one, with `membarrier(2)`, so that a reader only has to keep the compiler from moving its two accesses: its
//! whole cost is a store, a load and a store to a cache line of its own. Reference counts and `arc_swap` take two locked
//! instructions, which also keep the processor from beginning the next read while it waits for memory in this one. That
//! is dear when one read follows another: a get from a memtable of 100,000 keys took 290 ns with them and 205 ns
//! without (docs/benchmarks.md). Where `membarrier` is missing both sides pass a barrier of their own.
//!
//! # Invariants
//!
//! * What a [`Held`] names lives until it is dropped: its slot was written before the value was seen to be current, and
//!   a writer looks at the slots after it was replaced.
//! * A slot belongs to one thread, and to one [`Swap`], until the thread ends. A thread that reads while it reads
//!   already (and one whose slots are gone because it ends) takes a reference count under the lock instead.
//! * A value that is in a slot when it is replaced is let go of at the next [`Swap::store`] or [`Swap::reclaim`].

#![expect(
    unsafe_code,
    reason = "a reader that counts no references; measured, see the head"
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

/// What a thread is reading. On a cache line of its own: its thread writes it at every read.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    /// Null between reads.
    reading: AtomicPtr<()>,
    /// Whether its thread has ended, so that another may have it.
    is_free: AtomicBool,
}

/// The slots of one thread, each with the number of its [`Swap`].
#[derive(Default)]
struct Slots(Vec<(u64, Arc<Slot>)>);

thread_local! {
    static SLOTS: RefCell<Slots> = RefCell::default();
    /// The one used last. The pointer is good for as long as the slot is in `SLOTS`, of the same thread.
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

/// What only writers and new threads touch.
struct Shared<T> {
    slots: Vec<Arc<Slot>>,
    /// Replaced, but in a slot when last looked at.
    replaced: Vec<Arc<T>>,
}

/// An `Arc` that is replaced rarely and read all the time. See the module's head.
///
/// ```
/// use bowline_storage::sync::Swap;
/// use std::sync::Arc;
///
/// let swap = Swap::new(Arc::new(1));
/// let held = swap.load();
/// swap.store(Arc::new(2));
/// assert_eq!((*held, *swap.load()), (1, 2));
/// ```
pub struct Swap<T> {
    /// From `Arc::into_raw`; owns one reference.
    current: AtomicPtr<T>,
    /// Never that of another, so that a slot is not taken for one of another `Swap` at the same place.
    id: u64,
    has_membarrier: bool,
    shared: Mutex<Shared<T>>,
}

// SAFETY: it hands out references to the value and clones of its `Arc` to any thread, and drops it on any.
unsafe impl<T: Send + Sync> Send for Swap<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for Swap<T> {}

/// The value that was current, until it is dropped. Stays on its thread, whose slot it uses.
pub struct Held<'a, T> {
    value: NonNull<T>,
    by: By<'a, T>,
    on_this_thread: PhantomData<*const Swap<T>>,
}

enum By<'a, T> {
    Slot(&'a Slot),
    Count(#[expect(dead_code, reason = "it only has to live")] Arc<T>),
}

impl<T> Swap<T> {
    /// Holds `value`.
    #[must_use]
    pub fn new(value: Arc<T>) -> Swap<T> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        Swap {
            current: AtomicPtr::new(Arc::into_raw(value).cast_mut()),
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            has_membarrier: membarrier::is_there(),
            shared: Mutex::new(Shared {
                slots: Vec::new(),
                replaced: Vec::new(),
            }),
        }
    }

    /// What it holds, for a short while: until then the value is kept, even if it is replaced.
    #[must_use]
    #[inline]
    pub fn load(&self) -> Held<'_, T> {
        let (id, slot) = LAST.try_with(Cell::get).unwrap_or((0, ptr::null()));
        let slot = if id == self.id {
            slot
        } else {
            self.slot_of_this_thread()
        };
        // SAFETY: it is in `SLOTS` of this thread under the number of this `Swap`, which has a reference, too, and
        // is borrowed for as long.
        let Some(slot) = (unsafe { slot.as_ref() }) else {
            return self.count();
        };
        if !slot.reading.load(Relaxed).is_null() {
            return self.count();
        }
        step();
        let mut value = self.current.load(Relaxed);
        loop {
            step();
            // Also the end of what this thread read before, for a writer that sees this and not the null in between.
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
        Held {
            // SAFETY: from `Arc::into_raw`.
            value: unsafe { NonNull::new_unchecked(value) },
            by: By::Slot(slot),
            on_this_thread: PhantomData,
        }
    }

    /// What it holds, to keep.
    #[must_use]
    pub fn load_full(&self) -> Arc<T> {
        let held = self.load();
        // SAFETY: from `Arc::into_raw`, and alive for as long as it is held; the new count is the caller's.
        unsafe {
            Arc::increment_strong_count(held.value.as_ptr());
            Arc::from_raw(held.value.as_ptr())
        }
    }

    /// Replaces what it holds.
    pub fn store(&self, value: Arc<T>) {
        let mut shared = self.shared.lock();
        step();
        let old = self.current.swap(Arc::into_raw(value).cast_mut(), SeqCst);
        // SAFETY: from `Arc::into_raw`, with the reference that `current` owned.
        shared.replaced.push(unsafe { Arc::from_raw(old) });
        let unused = self.take_unused(&mut shared);
        // What goes with them, such as the removal of files, need not be waited for.
        drop(shared);
        drop(unused);
    }

    /// Lets go of what was replaced while somebody read it, and is read no more. Returns how much is still read.
    pub fn reclaim(&self) -> usize {
        let mut shared = self.shared.lock();
        let unused = self.take_unused(&mut shared);
        let left = shared.replaced.len();
        drop(shared);
        drop(unused);
        left
    }

    fn take_unused(&self, shared: &mut Shared<T>) -> Vec<Arc<T>> {
        if shared.replaced.is_empty() {
            return Vec::new();
        }
        if self.has_membarrier {
            if !membarrier::pass() {
                // Nobody knows what the slots hold: keep all.
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

    /// The slot of this thread; null when it ends.
    #[cold]
    fn slot_of_this_thread(&self) -> *const Slot {
        let found = SLOTS.try_with(|slots| {
            let mut slots = slots.borrow_mut();
            let known = slots.0.iter().find(|(id, _)| *id == self.id);
            let slot = match known {
                Some((_, slot)) => slot.clone(),
                None => {
                    // Those whose `Swap` is gone have no other reference.
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
    fn count(&self) -> Held<'_, T> {
        let _shared = self.shared.lock();
        step();
        let current = self.current.load(Acquire);
        // SAFETY: from `Arc::into_raw`; nobody replaces it, and so lets go of it, without the lock.
        let value = unsafe {
            Arc::increment_strong_count(current);
            Arc::from_raw(current)
        };
        Held {
            value: NonNull::from(&*value),
            by: By::Count(value),
            on_this_thread: PhantomData,
        }
    }
}

impl<T> Drop for Swap<T> {
    fn drop(&mut self) {
        // SAFETY: from `Arc::into_raw`, with the reference that `current` owns. Nothing is held: that would borrow it.
        drop(unsafe { Arc::from_raw(self.current.load(Acquire)) });
    }
}

impl<T: fmt::Debug> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Swap").field(&*self.load()).finish()
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive for as long as this is (the module's invariants).
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let By::Slot(slot) = self.by {
            step();
            slot.reading.store(ptr::null_mut(), Release);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A barrier that one thread has all threads of the process pass.
#[cfg(all(target_os = "linux", not(any(miri, bowline_shuttle))))]
mod membarrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the kernel has it. The process says once that it wants it.
    pub(super) fn is_there() -> bool {
        static IS_THERE: OnceLock<bool> = OnceLock::new();
        let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        *IS_THERE.get_or_init(register)
    }

    /// Whether all have passed it.
    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// The same, where there is none.
#[cfg(not(all(target_os = "linux", not(any(miri, bowline_shuttle)))))]
mod membarrier {
    pub(super) fn is_there() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
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
            // So that one who reads it afterwards sees nonsense.
            self.1 = self.0;
            self.2.fetch_sub(1, SeqCst);
        }
    }

    #[test]
    fn what_is_held_lives_and_what_is_not_goes_at_once() {
        let living = AtomicUsize::new(0);
        let swap = Swap::new(Counted::new(1, &living));
        swap.store(Counted::new(2, &living));
        assert_eq!(living.load(SeqCst), 1, "nobody held the first");
        let held = swap.load();
        swap.store(Counted::new(3, &living));
        assert_eq!((held.0, held.1), (2, !2));
        assert_eq!((living.load(SeqCst), swap.reclaim()), (2, 1));
        drop(held);
        assert_eq!((swap.reclaim(), living.load(SeqCst)), (0, 1));
        let kept = swap.load_full();
        drop(swap);
        assert_eq!((kept.0, living.load(SeqCst)), (3, 1));
        drop(kept);
        assert_eq!(living.load(SeqCst), 0);
    }

    #[test]
    fn a_thread_may_hold_several_and_of_several() {
        let living = AtomicUsize::new(0);
        let swaps = [1, 2].map(|number| Swap::new(Counted::new(number, &living)));
        let held: Vec<_> = swaps.iter().chain(&swaps).map(Swap::load).collect();
        for (number, swap) in [3, 4].into_iter().zip(&swaps) {
            swap.store(Counted::new(number, &living));
        }
        let numbers = |held: &[Held<'_, Counted<'_>>]| -> Vec<u64> {
            held.iter().map(|held| held.0).collect()
        };
        assert_eq!(numbers(&held), [1, 2, 1, 2]);
        assert_eq!(living.load(SeqCst), 4);
        drop(held);
        let held: Vec<_> = swaps.iter().map(Swap::load).collect();
        assert_eq!(numbers(&held), [3, 4]);
        drop(held);
        drop(swaps);
        assert_eq!(living.load(SeqCst), 0);
    }

    #[test]
    fn what_a_thread_lets_go_of_is_not_what_it_still_holds() {
        let living = AtomicUsize::new(0);
        let swap = Swap::new(Counted::new(1, &living));
        let held = swap.load();
        drop(swap.load());
        swap.store(Counted::new(2, &living));
        assert_eq!(living.load(SeqCst), 2, "the first is still held");
        assert_eq!(held.0, 1);
    }

    #[test]
    fn a_thread_that_goes_from_one_to_another_is_seen_there() {
        let living = AtomicUsize::new(0);
        let swaps = [1, 2].map(|number| Swap::new(Counted::new(number, &living)));
        drop(swaps[0].load());
        let held = swaps[1].load();
        swaps[1].store(Counted::new(3, &living));
        assert_eq!(living.load(SeqCst), 3, "what is held is still there");
        assert_eq!(held.0, 2);
    }

    #[test]
    fn slots_of_ended_threads_are_used_again() {
        let swap = Swap::new(Arc::new(7));
        for _ in 0..5 {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(*swap.load(), 7));
            });
        }
        // A scope may end before the thread's locals are dropped.
        assert!(swap.shared.lock().slots.len() <= 3);
    }

    #[test]
    fn a_thread_that_ends_can_still_read() {
        struct AtTheEnd(Arc<Swap<u64>>, std::sync::mpsc::Sender<u64>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                self.1.send(*self.0.load()).expect("somebody waits");
            }
        }
        thread_local! {
            static EARLY: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
        }
        let swap = Arc::new(Swap::new(Arc::new(7)));
        let (sender, receiver) = std::sync::mpsc::channel();
        let same = swap.clone();
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
        let swap = Swap::new(Counted::new(1, &living));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Relaxed) {
                        let held = swap.load();
                        assert_eq!(held.1, !held.0, "it was dropped");
                        assert!(held.0 >= last, "it went back");
                        last = held.0;
                        if last % 3 == 0 {
                            drop(held);
                            assert!(swap.load_full().0 >= last);
                        }
                    }
                });
            }
            for number in 2..STORES {
                swap.store(Counted::new(number, &living));
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!((swap.reclaim(), living.load(SeqCst)), (0, 1));
    }
}
