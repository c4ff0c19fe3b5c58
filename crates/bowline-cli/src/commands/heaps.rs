//! Limits the memory that the C library keeps after it was freed.
//!
//! glibc lets each thread have one of up to eight heaps per core, and gives memory back to the system only from
//! the end of a heap. A server's buffers of some MiB are allocated by one thread and freed by another, so holes stay
//! in every heap: on two cores, in parts of 2 MiB, a range of 1 GiB that was streamed to a slow client took 95 MiB
//! above idle, and one of 512 MiB took 16 with a single heap (`tests/program/long_range.rs`, which holds 64). With one
//! heap per core, as many threads as run at once need not wait for one another.
//!
//! glibc gives a large block pages of its own, which go back to the system when it is freed. The bound is fixed at 1 MiB
//! here. By itself glibc raises it, as large blocks are freed, up to 32 MiB, and takes such blocks from the heaps then.
//! Beside a hostile crowd members held 252 to 281 MiB more than before it; with the bound at 1 MiB 181 to 235, and with
//! 512 KiB 170 to 205, where the p99 of a good client was longer by a quarter (one run each, of 60 or 75 s).
//!
//! The holes that are left grow as long as clients make the server hold and drop much: in ten minutes of a hostile crowd
//! to 298 to 581 MiB more than before it. So when the process has grown by 32 MiB, the pages of all holes are given
//! back. A server that does not grow is left alone.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use self::glibc as system;

/// Keeps one heap per core, and large blocks out of the heaps. Call it before there are threads.
///
/// `MALLOC_ARENA_MAX` and `MALLOC_MMAP_THRESHOLD_` in the environment are left as they are. Without glibc nothing is
/// done.
pub(super) fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    system::configure();
}

/// Gives back what is freed, now and then, from a thread of its own. Without glibc nothing is done.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn give_back() -> std::io::Result<()> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    system::give_back()?;
    Ok(())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::io;
    use std::thread;
    use std::time::Duration;

    /// How often the process is looked at.
    const INTERVAL: Duration = Duration::from_secs(5);
    /// By how much it has to have grown since memory was given back.
    const GROWTH_BYTES_MIN: u64 = 32 << 20;

    /// Blocks of this size have pages of their own.
    pub(super) const LARGE_BYTES: i32 = 1 << 20;

    pub(super) fn configure() {
        let is_set = |variable| std::env::var_os(variable).is_some();
        let set = |what, number| {
            #[expect(unsafe_code, reason = "the C library has no other way to be told")]
            // SAFETY: sets a number of the allocator, which takes any; no thread allocates beside it.
            let _ = unsafe { libc::mallopt(what, number) };
        };
        if !is_set("MALLOC_ARENA_MAX") {
            let cores = thread::available_parallelism().map_or(2, usize::from);
            let heaps = i32::try_from(cores.max(2)).unwrap_or(i32::MAX);
            set(libc::M_ARENA_MAX, heaps);
        }
        if !is_set("MALLOC_MMAP_THRESHOLD_") {
            set(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
            // As glibc itself would: the end of a heap is not given back for each block.
            set(libc::M_TRIM_THRESHOLD, 2 * LARGE_BYTES);
        }
    }

    pub(super) fn give_back() -> io::Result<()> {
        let watch = || {
            let mut growth = Growth::default();
            loop {
                thread::sleep(INTERVAL);
                let Some(bytes) = own_bytes() else { return };
                if growth.is_enough(bytes) {
                    trim();
                    growth.least_bytes = own_bytes().unwrap_or(bytes);
                }
            }
        };
        // It ends with the process.
        let name = "bowline-trim".to_owned();
        thread::Builder::new().name(name).spawn(watch).map(drop)
    }

    /// By how much the process has grown since it was smallest.
    #[derive(Debug, Default)]
    struct Growth {
        /// 0 is not known yet.
        least_bytes: u64,
    }

    impl Growth {
        fn is_enough(&mut self, bytes: u64) -> bool {
            if self.least_bytes == 0 || bytes < self.least_bytes {
                self.least_bytes = bytes;
            }
            bytes - self.least_bytes >= GROWTH_BYTES_MIN
        }
    }

    /// What is resident of the process's own memory, without files.
    fn own_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    }

    fn trim() {
        #[expect(unsafe_code, reason = "the C library has no other way to be told")]
        // SAFETY: takes no pointer, and any thread may call it beside others that allocate.
        let _ = unsafe { libc::malloc_trim(0) };
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn memory_is_given_back_when_the_process_has_grown() {
            const MIB: u64 = 1 << 20;
            let mut growth = Growth::default();
            assert!(!growth.is_enough(100 * MIB), "it is what it is at first");
            assert!(!growth.is_enough(131 * MIB) && growth.is_enough(132 * MIB));
            assert!(!growth.is_enough(50 * MIB) && growth.is_enough(90 * MIB));
            growth.least_bytes = 80 * MIB;
            assert!(!growth.is_enough(90 * MIB) && !growth.is_enough(80 * MIB));
        }

        /// What was freed between two blocks that are in use stayed the process's for ever.
        #[test]
        fn holes_are_given_back() {
            const BLOCK_BYTES: usize = 32 << 10;
            const BLOCKS: usize = 4096;
            let mut all: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![7; BLOCK_BYTES]).collect();
            // Of nine, one stays.
            let mut number = 0;
            all.retain(|_| {
                number += 1;
                number % 9 == 0
            });
            let before = own_bytes().expect("Linux tells");
            trim();
            let after = own_bytes().expect("Linux tells");
            let freed = (BLOCK_BYTES * (BLOCKS - all.len())) as u64;
            assert!(
                after + freed / 2 < before,
                "{before} to {after}, of {freed}"
            );
        }
    }
}
