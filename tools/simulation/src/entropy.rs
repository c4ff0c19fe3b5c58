//! What the system would give as randomness and as time: hash maps and tokio take their seeds from there, and h2 the
//! moments until which it remembers a stream that was reset.
//!
//! The standard library calls `getrandom` and `clock_gettime` by their names, so that a program can bring its own. This
//! needs `unsafe`: the functions have the C library's names, and write where their callers say.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static STATE: AtomicU64 = AtomicU64::new(0);
thread_local! {
    /// The virtual time since the beginning of this thread's run, in nanoseconds; [`REAL`] outside one.
    static TIME_NS: Cell<u64> = const { Cell::new(REAL) };
}
const REAL: u64 = u64::MAX;
/// What every clock says at the beginning of a run.
const BEGIN_S: i64 = 1_700_000_000;

/// From now on everything random follows from `seed`.
pub fn seed(seed: u64) {
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

/// From now on the system's clocks show this thread the time of its run; with `None` the machine's.
pub fn set_time(now: Option<Duration>) {
    let time_ns = now.map_or(REAL, |now| now.as_nanos() as u64);
    TIME_NS.set(time_ns);
}

#[expect(unsafe_code, reason = "the C library's name and signature")]
// SAFETY: the function does what the C library's does, except that during a run its clocks show virtual time.
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let time_ns = TIME_NS.get();
    if time_ns == REAL {
        // SAFETY: these are the arguments of the system call, from a caller that would make it.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    }
    let shown = libc::timespec {
        tv_sec: BEGIN_S + (time_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (time_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: the caller gives a place for the time.
    unsafe { time.write(shown) };
    0
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The members were asked for their state outside their runtimes, where tokio takes the machine's time: whether they
    /// had lately heard a leader depended on how fast the machine was. Found by the pipeline, in two runs of one seed.
    #[test]
    fn the_clocks_of_the_system_show_the_time_of_the_run() {
        set_time(Some(Duration::from_secs(5)));
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(before.elapsed(), Duration::ZERO);
        set_time(Some(Duration::from_secs(7)));
        assert_eq!(before.elapsed(), Duration::from_secs(2));
        set_time(None);
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(before.elapsed() >= Duration::from_millis(2));
    }
}
