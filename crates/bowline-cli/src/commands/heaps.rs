//! How many heaps the C library keeps.
//!
//! glibc lets each thread have one of up to eight heaps per core, and gives memory back to the system only from
//! the end of a heap. A server's buffers of some MiB are allocated by one thread and freed by another, so holes stay
//! in every heap: on two cores, in parts of 2 MiB, a range of 1 GiB that was streamed to a slow client took 95 MiB
//! above idle, and one of 512 MiB took 16 with a single heap (`tests/program/long_range.rs`, which holds 64). With one
//! heap per core, as many threads as run at once need not wait for one another.

/// Keeps one heap per core. Call it before there are threads.
///
/// `MALLOC_ARENA_MAX` in the environment is left as it is. Without glibc nothing is done.
pub(super) fn keep_few() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let heaps = i32::try_from(cores.max(2)).unwrap_or(i32::MAX);
        #[expect(unsafe_code, reason = "the C library has no other way to be told")]
        // SAFETY: sets a number of the allocator, which takes any; no thread allocates beside it.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
    }
}
