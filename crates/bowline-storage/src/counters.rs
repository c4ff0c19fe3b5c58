//! Counters of the work of the engine, by cause. Amplification follows from them.
//!
//! Counters are bumped once per file operation, page or job, never per entry read from memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters, shared by all parts of one engine.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// The counters at one moment.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Reads every counter. Not one atomic moment, but each is exact.
            #[must_use]
            pub fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.get(),)* }
            }
        }

        impl CountersSnapshot {
            /// Names and values, in declaration order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Key and value bytes that users committed.
    user_bytes_written,
    /// Commit groups (transactions that shared one flush).
    commit_rounds,
    /// Committed batches.
    commits,
    /// Bytes written to the log, frame headers included.
    log_bytes_written,
    /// Bytes of zeros written ahead of the log.
    log_bytes_prepared,
    /// Log flushes (`fdatasync`).
    log_syncs,
    /// Table bytes written by memtable flushes.
    flush_bytes_written,
    /// Memtable flushes done.
    flushes,
    /// Table bytes written by compactions.
    compaction_bytes_written,
    /// Table bytes read by compactions.
    compaction_bytes_read,
    /// Compactions done.
    compactions,
    /// Table bytes written by ingestions that were published.
    ingest_bytes_written,
    /// Ingestions published.
    ingestions,
    /// Key ranges that compactions merged.
    compaction_ranges,
    /// Bytes of blob files written by memtable flushes.
    blob_flush_bytes_written,
    /// Bytes of blob files written by compactions, to empty others.
    blob_compaction_bytes_written,
    /// Bytes of blob files read by compactions.
    blob_compaction_bytes_read,
    /// Jobs that rewrote tables only to empty blob files.
    blob_collections,
    /// Bytes written to the manifest.
    manifest_bytes_written,
    /// Pages answered from the page cache.
    cache_hits,
    /// Pages read from disk on behalf of reads.
    cache_misses,
    /// Bytes read from disk on behalf of reads.
    read_bytes,
    /// Table look-ups that a filter answered with "not here".
    filter_negatives,
    /// Table look-ups that passed a filter and found nothing.
    filter_false_positives,
    /// Milliseconds for which writers were slowed or stopped, because flush or compaction was behind.
    throttle_ms,
    /// Commit groups that were slowed in proportion to their bytes, because flush or compaction was
    /// behind.
    rounds_slowed,
    /// Commit groups that had to wait until flush or compaction had caught up.
    rounds_stopped,
}

/// How many parts a counter has. More threads than that share some.
const PARTS: usize = 8;

/// One number that only grows. It has a part for each of a few threads, on a cache line of its
/// own, so that readers do not wait for each other to count.
#[derive(Debug, Default)]
pub struct Counter([Part; PARTS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicU64);

/// The part of every counter that this thread adds to.
fn own_part() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    const NONE: usize = usize::MAX;
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(NONE) };
    }
    OWN.with(|own| {
        if own.get() == NONE {
            own.set(THREADS.fetch_add(1, Ordering::Relaxed) % PARTS);
        }
        own.get()
    })
}

impl Counter {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0[own_part() % PARTS]
            .0
            .fetch_add(amount, Ordering::Relaxed);
    }

    /// The current number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0
            .iter()
            .map(|part| part.0.load(Ordering::Relaxed))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_add_is_all_there() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for thread in 0..3 * PARTS as u64 {
                let counter = &counter;
                scope.spawn(move || (0..100).for_each(|_| counter.add(thread)));
            }
        });
        assert_eq!(counter.get(), 100 * (0..3 * PARTS as u64).sum::<u64>());
    }
}
