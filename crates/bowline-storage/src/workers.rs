//! Which thread does work that is not on the path of a commit ([`Background`]), and work that is shared between the
//! calling thread and a few others, which are joined before it returns: for an opening or a bulk load, where the
//! caller waits and the other cores have nothing to do.
//!
//! Each piece of work must stand alone; what comes of it does not depend on how many threads there
//! are. Under [`Background::Manual`] there is one, so that a run is repeatable, also where a
//! scheduler decides which thread goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Mutex;

/// Beyond this the memory of the threads counts for more than their time.
const THREADS_MAX: usize = 4;
/// Up to this size, starting threads costs more than it saves.
const BYTES_PER_THREAD_MIN: u64 = 4 << 20;

/// Where work runs that is not on the path of a commit.
///
/// ```
/// # use bowline_storage::workers::Background;
/// // With `DbBuilder::background`: a test decides what happens when.
/// let background = if cfg!(test) { Background::Manual } else { Background::Threads };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// On a thread, joined when its owner is closed or dropped.
    Threads,
    /// On the calling thread, when it is needed, so that a run is deterministic.
    Manual,
}

/// How many threads to read `bytes` with.
pub(crate) fn threads_for(background: Background, bytes: u64) -> usize {
    let cores = match background {
        Background::Manual => 1,
        Background::Threads => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let wanted = usize::try_from(bytes / BYTES_PER_THREAD_MIN).unwrap_or(usize::MAX);
    cores.min(THREADS_MAX).min(wanted).max(1)
}

/// Does both: `a` on a thread of its own, if `has_threads` and the system has one to give.
pub fn both<A: Send, B>(
    has_threads: bool,
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B,
) -> (A, B) {
    if !has_threads {
        return (a(), b());
    }
    let waiting = Mutex::new(Some(a));
    let take = || {
        let a = waiting.lock().take();
        a.map(|a| a())
    };
    std::thread::scope(|scope| {
        let named = std::thread::Builder::new().name("bowline-work".to_owned());
        let other = named.spawn_scoped(scope, take).ok();
        let b = b();
        let a = other.and_then(|other| match other.join() {
            Ok(a) => a,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // Without a thread this one does it.
        match a.or_else(take) {
            Some(a) => (a, b),
            None => unreachable!("it is taken once"),
        }
    })
}

/// What `work` makes of each item, in the order of the items. Uses this thread and at most
/// `threads - 1` others; fewer when the system gives no more.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take_all = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return done;
            };
            done.push((at, work(item)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let mut others = Vec::new();
        for number in 1..threads.min(items.len()) {
            let named = std::thread::Builder::new().name(format!("bowline-open-{number}"));
            match named.spawn_scoped(scope, take_all) {
                Ok(thread) => others.push(thread),
                // Then those that are there do it all.
                Err(_) => break,
            }
        }
        let mut done = take_all();
        for thread in others {
            match thread.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once_and_in_its_place() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 2, 7, 200] {
            let doubled = map(&items, threads, |item| item * 2);
            assert!(doubled.iter().copied().eq((0..100).map(|item| item * 2)));
        }
        assert!(map(&[], 3, |item: &u64| *item).is_empty());
    }

    #[test]
    fn both_are_done_once() {
        for has_threads in [false, true] {
            let (a, b) = both(has_threads, || 3, || 4);
            assert_eq!((a, b), (3, 4));
        }
    }

    #[test]
    fn little_work_and_manual_work_are_done_by_one() {
        assert_eq!(threads_for(Background::Threads, 1 << 20), 1);
        assert_eq!(threads_for(Background::Manual, 1 << 40), 1);
        assert!(threads_for(Background::Threads, 1 << 40) <= THREADS_MAX);
    }
}
