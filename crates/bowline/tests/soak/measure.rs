//! What a process uses: live heap, resident memory, threads, open files, and room on disk.

#![expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; this one only counts and hands on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

/// Counts what is live, exactly: no cache of an allocator blurs it.
struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// How often this thread asked for memory.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: i64) {
    if sign > 0 {
        // A thread that ends may still ask.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }
    LIVE_BYTES.fetch_add(sign * bytes as i64, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it came, and what it gives is given
// on; counting touches no memory that is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` asks for memory on this thread.
pub fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// The heap that is live now, memtables included.
pub fn heap_bytes() -> i64 {
    let memtables = bowline_storage::memtable::held_bytes() as i64;
    LIVE_BYTES.load(Ordering::Relaxed) + memtables
}

/// What the process uses at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub heap_bytes: i64,
    /// Absent without `/proc`.
    pub process: Option<Process>,
    pub disk_bytes: u64,
    pub files: u64,
}

/// What `/proc` tells.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub resident_bytes: i64,
    pub threads: i64,
    pub open_files: i64,
}

impl Usage {
    /// Now, with the directory `path` on disk.
    pub fn now(path: &Path) -> Usage {
        let (disk_bytes, files) = size_of_directory(path);
        Usage {
            heap_bytes: heap_bytes(),
            process: process(),
            disk_bytes,
            files,
        }
    }
}

/// Memory of this process that is in use; `None` without `/proc`.
pub fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: i64 = resident.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

fn process() -> Option<Process> {
    let entries = |path| Some(std::fs::read_dir(path).ok()?.count() as i64);
    Some(Process {
        resident_bytes: resident_bytes()?,
        threads: living_threads()?.len() as i64,
        open_files: entries("/proc/self/fd")?,
    })
}

/// How many threads of this process are a database's, by their names; 0 without `/proc`.
pub fn bowline_threads() -> usize {
    let names = living_threads().unwrap_or_default();
    let names = names.iter().filter(|name| name.starts_with("bowline-"));
    names.count()
}

/// The names of the threads that have not ended. A thread that was joined can still be listed for a
/// moment, while the kernel takes it apart; it says so in its flags.
fn living_threads() -> Option<Vec<String>> {
    /// `PF_EXITING` of Linux, the ninth field of `stat`; the second is the name in parentheses.
    const EXITING: u64 = 4;
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let living = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let flags: u64 = rest.split_whitespace().nth(6)?.parse().ok()?;
        (flags & EXITING == 0).then(|| name.to_owned())
    });
    Some(living.collect())
}

/// Bytes and files below a directory.
fn size_of_directory(path: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let (more, count) = size_of_directory(&entry.path());
                bytes += more;
                files += count;
            }
            Ok(metadata) => {
                bytes += metadata.len();
                files += 1;
            }
            // It has gone since.
            Err(_) => {}
        }
    }
    (bytes, files)
}
