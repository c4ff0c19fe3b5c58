//! A disk in memory whose flushes take time, so that committers meet, and that can lose power in
//! the middle of one: after the write, before the flush, with everybody else still running.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bowline::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use bowline_testing::SimDisk;

/// How long a flush takes.
const FLUSH: Duration = Duration::from_micros(60);
/// How long the one before the power is lost.
const LAST_FLUSH: Duration = Duration::from_millis(3);

/// Called in the middle of the last flush.
type AtCrash = Box<dyn Fn() + Send + Sync>;

/// The disk. Clones are the same one.
#[derive(Clone)]
pub struct SlowDisk {
    disk: SimDisk,
    crash: Arc<Crash>,
}

struct Crash {
    /// Flushes until then; below 0 when it never comes, or has come.
    countdown: AtomicI64,
    run: AtCrash,
}

impl SlowDisk {
    /// Without a crash.
    pub fn new(disk: SimDisk) -> SlowDisk {
        SlowDisk::crashing(disk, -1, Box::new(|| {}))
    }

    /// Calls `run` in flush number `after` of the log.
    pub fn crashing(disk: SimDisk, after: i64, run: AtCrash) -> SlowDisk {
        let countdown = AtomicI64::new(after);
        let crash = Arc::new(Crash { countdown, run });
        SlowDisk { disk, crash }
    }
}

impl fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowDisk").finish_non_exhaustive()
    }
}

struct SlowFile {
    file: Arc<dyn VfsFile>,
    /// Whether its next flush could be a commit, which alone is worth losing. A segment of the log
    /// is flushed once before it is used.
    has_commits: AtomicBool,
    is_log: bool,
    crash: Arc<Crash>,
}

impl fmt::Debug for SlowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowFile").finish_non_exhaustive()
    }
}

impl VfsFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let has_commits = self.has_commits.swap(self.is_log, Ordering::SeqCst);
        if has_commits && self.crash.countdown.fetch_sub(1, Ordering::SeqCst) == 0 {
            // Time for others to see what is not on the disk, if they can.
            std::thread::sleep(LAST_FLUSH);
            (self.crash.run)();
        } else {
            std::thread::sleep(FLUSH);
        }
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Vfs for SlowDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.disk.open(path, mode)?;
        let crash = self.crash.clone();
        let name = path
            .file_name()
            .map_or("".into(), |name| name.to_string_lossy());
        let is_spare = name.starts_with("spare-");
        let is_log = is_spare || name.ends_with(".log");
        Ok(Arc::new(SlowFile {
            file,
            has_commits: AtomicBool::new(is_log && !is_spare),
            is_log,
            crash,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.read_dir(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.disk.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.disk.lock(path)
    }
}
