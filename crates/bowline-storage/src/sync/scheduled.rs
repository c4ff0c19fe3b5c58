//! The stand-ins under shuttle.
//!
//! * Only the operations that the database uses are here.
//! * Locks and condition variables are shuttle's, with `parking_lot`'s interface: no poison, guards
//!   by reference.
//! * Atomics, and the swaps of `arc_swap`, are the real ones with a [`step`] before each operation.
//!   They have the size of the real ones, so the memtable can keep them in its arena. All of shuttle
//!   is sequentially consistent: that a `Relaxed` stands where a `Release` is needed does not show
//!   here. Miri is for that.
//! * A wait with a timeout lasts until it is notified or, one time in four, times out immediately.
//!   So a wake-up that was lost shows as a deadlock, although a timeout would have hidden it.
//! * Each reading of the time advances it by 10 µs.

use std::fmt;
use std::ops::{Deref, DerefMut, Sub};
use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::Rng;

/// Lets another thread run, if the schedule says so.
pub fn step() {
    // Shuttle knows no time: this is its plain scheduling point, unlike `yield_now`, which also
    // asks for another thread to be preferred.
    shuttle::thread::sleep(Duration::ZERO);
}

/// `parking_lot::Mutex`.
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a shuttle::sync::Mutex<T>,
    /// `None` only while it is unlocked for a moment.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

fn lock<T: ?Sized>(mutex: &shuttle::sync::Mutex<T>) -> shuttle::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: &self.0,
            held: Some(lock(&self.0)),
        }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(std::sync::TryLockError::Poisoned(held)) => held.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            mutex: &self.0,
            held: Some(held),
        })
    }

    /// The value; the exclusive borrow needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Runs `body` while the lock is free.
    pub fn unlocked<R>(guard: &mut MutexGuard<'a, T>, body: impl FnOnce() -> R) -> R {
        struct Relock<'g, 'a, T: ?Sized>(&'g mut MutexGuard<'a, T>);
        impl<T: ?Sized> Drop for Relock<'_, '_, T> {
            fn drop(&mut self) {
                self.0.held = Some(lock(self.0.mutex));
            }
        }
        guard.held = None;
        let _relock = Relock(guard);
        body()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it is locked")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it is locked")
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

/// `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// A condition variable without waiting threads.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Waits to be notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("it is locked");
        let held = self.0.wait(held);
        guard.held = Some(held.unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Waits to be notified, or times out at once.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        if shuttle::rand::thread_rng().gen_ratio(1, 4) {
            MutexGuard::unlocked(guard, thread::yield_now);
        } else {
            self.wait(guard);
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// `arc_swap::ArcSwap`, each operation one step.
pub struct ArcSwap<T>(arc_swap::ArcSwap<T>);

impl<T> ArcSwap<T> {
    /// Holds `value`.
    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The current value.
    pub fn load(&self) -> arc_swap::Guard<Arc<T>> {
        step();
        self.0.load()
    }

    /// The current value, with a reference count.
    pub fn load_full(&self) -> Arc<T> {
        step();
        self.0.load_full()
    }

    /// Replaces it.
    pub fn store(&self, value: Arc<T>) {
        step();
        self.0.store(value);
    }
}

impl<T: Default> Default for ArcSwap<T> {
    fn default() -> ArcSwap<T> {
        ArcSwap::from_pointee(T::default())
    }
}

impl<T> fmt::Debug for ArcSwap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArcSwap")
    }
}

/// `arc_swap::ArcSwapOption`, each operation one step.
pub struct ArcSwapOption<T>(arc_swap::ArcSwapOption<T>);

impl<T> ArcSwapOption<T> {
    /// Holds nothing.
    pub fn empty() -> ArcSwapOption<T> {
        ArcSwapOption(arc_swap::ArcSwapOption::empty())
    }

    /// The current value.
    pub fn load(&self) -> arc_swap::Guard<Option<Arc<T>>> {
        step();
        self.0.load()
    }

    /// The current value, with a reference count.
    pub fn load_full(&self) -> Option<Arc<T>> {
        step();
        self.0.load_full()
    }

    /// Replaces it.
    pub fn store(&self, value: Option<Arc<T>>) {
        drop(self.swap(value));
    }

    /// Replaces the value and returns the old one.
    pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        step();
        self.0.swap(value)
    }
}

impl<T> fmt::Debug for ArcSwapOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArcSwapOption")
    }
}

/// Atomics of the standard library, each operation one step.
pub mod atomic {
    pub use std::sync::atomic::Ordering;

    use super::step;

    /// Orders nothing more than everything already is.
    pub fn fence(_order: Ordering) {
        step();
    }

    macro_rules! atomic {
        ($name:ident, $value:ty, $($arithmetic:tt)*) => {
            #[doc = concat!("`std::sync::atomic::", stringify!($name), "`.")]
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(std::sync::atomic::$name);

            impl $name {
                /// Holds `value`.
                pub const fn new(value: $value) -> $name {
                    $name(std::sync::atomic::$name::new(value))
                }

                /// As in the standard library.
                pub fn load(&self, order: Ordering) -> $value {
                    step();
                    self.0.load(order)
                }

                /// As in the standard library.
                pub fn store(&self, value: $value, order: Ordering) {
                    step();
                    self.0.store(value, order);
                }

                /// The value; the exclusive borrow needs no lock.
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                /// As in the standard library.
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.0.swap(value, order)
                }

                /// As in the standard library.
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    step();
                    self.0.compare_exchange(current, new, success, failure)
                }

                atomic!(@ $value, $($arithmetic)*);
            }
        };
        (@ $value:ty, arithmetic) => {
            /// As in the standard library.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }

            /// As in the standard library.
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_max(value, order)
            }

            /// As in the standard library.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }
        };
        (@ $value:ty, none) => {};
    }

    atomic!(AtomicBool, bool, none);
    atomic!(AtomicU8, u8, arithmetic);
    atomic!(AtomicU32, u32, arithmetic);
    atomic!(AtomicU64, u64, arithmetic);
    atomic!(AtomicUsize, usize, arithmetic);
}

/// Shuttle's threads.
pub mod thread {
    use std::time::Duration;

    use shuttle::rand::Rng;

    pub use shuttle::thread::{
        Builder, JoinHandle, Scope, Thread, current, park, scope, sleep, spawn, yield_now,
    };

    pub use std::thread::panicking;

    /// Until it is unparked or, one time in four, not at all.
    pub fn park_timeout(_timeout: Duration) {
        match shuttle::rand::thread_rng().gen_ratio(1, 4) {
            true => super::step(),
            false => park(),
        }
    }

    /// Starts a thread of a scope.
    pub(crate) fn spawn_in<'scope>(
        scope: &'scope Scope<'scope, '_>,
        _name: &str,
        body: impl FnOnce() + Send + 'scope,
    ) -> bool {
        scope.spawn(body);
        true
    }
}

/// `std::time::Instant`, by a clock that advances with each reading.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// 10 µs after the last time.
    pub fn now() -> Instant {
        use std::sync::atomic::{AtomicU64, Ordering};
        // Only differences are ever looked at, so executions may share it.
        static NOW_US: AtomicU64 = AtomicU64::new(0);
        Instant(Duration::from_micros(
            NOW_US.fetch_add(10, Ordering::Relaxed),
        ))
    }

    /// The time since this instant.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    /// This much later.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// The time since `earlier`, or zero.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}
