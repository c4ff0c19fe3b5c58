//! Measurements of the machine: what it is, and what this process did to its disk and memory.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::data::SEED;
use crate::fallible::Fallible;
use crate::measure::check;
use crate::timing::{Timed, run_for};

pub const RAW_BYTES: usize = 150;
const RAW_FILE_BYTES: u64 = 64 << 20;

/// The machine, kernel and file system, as pairs of what and which.
pub fn surroundings(directory: &Path) -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name\t: "))
        .unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = rustix::system::uname();
    let meminfo = read("/proc/meminfo");
    let memory_kib: u64 = field(&meminfo, "MemTotal:").unwrap_or(0);
    vec![
        (
            "machine".into(),
            format!("{cores} × {model}, {} GiB", memory_kib >> 20),
        ),
        (
            "kernel".into(),
            format!(
                "{} {}",
                kernel.sysname().to_string_lossy(),
                kernel.release().to_string_lossy()
            ),
        ),
        (
            "file system".into(),
            file_system(&read("/proc/self/mounts"), directory).unwrap_or_else(|| "unknown".into()),
        ),
        ("large pages".into(), large_pages()),
    ]
}

/// Type, device and options of the innermost mount that holds a directory.
fn file_system(mounts: &str, directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.len() > 3 && directory.starts_with(fields[1]))
        // Of two in one place, the later covers the earlier.
        .max_by_key(|fields| fields[1].len())
        .map(|fields| format!("{} on {} ({})", fields[2], fields[0], fields[3]))
}

/// The load averages of the last 1, 5 and 15 minutes: what else ran.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The number behind a name in the files of `/proc`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// How many bytes this process has handed to the kernel to be written, all its threads together.
/// Not what went through a map of memory: no store here writes through one in a row that counts bytes.
pub fn written_bytes() -> Fallible<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    Ok(field(&text, "wchar:").ok_or("no wchar in /proc/self/io")?)
}

/// All memory of this process that is not swapped out, in bytes.
pub fn resident_bytes() -> Fallible<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    Ok(field(&text, "VmRSS:").ok_or("no VmRSS in /proc/self/status")? << 10)
}

/// How long all threads of this process have run on a processor, in steps of 10 ms.
pub fn processor_time() -> Fallible<Duration> {
    /// The fields `utime` and `stime` of `/proc/self/stat`, counted behind the name of the program.
    const FIELDS: std::ops::Range<usize> = 11..13;
    let text = fs::read_to_string("/proc/self/stat")?;
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
    let fields = fields.get(FIELDS).ok_or("/proc/self/stat is short")?;
    let ticks = fields.iter().map(|field| field.parse::<u64>());
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// The memory of this process that no file stands behind, in bytes. Pages of files, mapped or
/// cached, are the kernel's to give and take.
pub fn anonymous_bytes() -> Fallible<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    Ok(field(&text, "RssAnon:").ok_or("no RssAnon in /proc/self/status")? << 10)
}

/// Waits until nothing has been written for a while: until the background work of whatever store
/// is done. Gives the moment when the last of it was seen, or that of the call.
pub fn wait_until_nothing_is_written() -> Fallible<Instant> {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    const QUIET: Duration = Duration::from_millis(200);
    const WAIT_MAX: Duration = Duration::from_secs(120);
    let begin = Instant::now();
    let mut last = begin;
    let mut before = written_bytes()?;
    while begin.elapsed() < WAIT_MAX {
        std::thread::sleep(LOOK_EVERY);
        let now = written_bytes()?;
        // The tick of a progress bar is no work of a store.
        if now - before >= 4096 {
            last = Instant::now();
            before = now;
        } else if last.elapsed() >= QUIET {
            return Ok(last);
        }
    }
    Err("a store still writes after two minutes".into())
}

/// What has malloc ask for pages of 2 MiB: for whoever uses it, and so for all stores, the hash map and the bare loads
/// alike. Bowline alone asks for them by itself.
const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Starts this program again with large pages for all, unless it was started so. malloc looks at that only when a
/// program begins.
pub fn give_large_pages_to_all() -> Fallible<()> {
    let (name, value) = LARGE_PAGES;
    let before = std::env::var(name).unwrap_or_default();
    if before.contains("glibc.malloc.hugetlb=") {
        return Ok(());
    }
    let tunables = match before.is_empty() {
        true => value.to_owned(),
        false => format!("{before}:{value}"),
    };
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).env(name, tunables);
    // Comes back only when it failed.
    Err(again.exec().into())
}

/// Takes what [`give_large_pages_to_all`] gave from a process whose memory is measured.
pub fn take_large_pages_from(command: &mut Command) {
    command.env_remove(LARGE_PAGES.0);
}

/// Who gets large pages, and what the kernel makes of it.
pub fn large_pages() -> String {
    let asked = std::env::var(LARGE_PAGES.0).unwrap_or_else(|_| "not asked for".into());
    let kernel = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    format!(
        "{asked} for all; of the kernel: {}",
        kernel.unwrap_or_default().trim()
    )
}

/// The bytes that the files of a directory and the directory itself occupy on disk.
pub fn allocated_bytes(directory: &Path) -> Fallible<u64> {
    /// The unit of `st_blocks`, whatever the file system's blocks are.
    const UNIT_BYTES: u64 = 512;
    let mut bytes = fs::metadata(directory)?.blocks() * UNIT_BYTES;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            allocated_bytes(&entry.path())?
        } else {
            entry.metadata()?.blocks() * UNIT_BYTES
        };
    }
    Ok(bytes)
}

/// All files in a directory and in those below it.
pub fn files(directory: &Path) -> Fallible<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Copies a directory with all below it, and flushes the copy, so that nobody's time pays for
/// writing it back.
pub fn copy(from: &Path, to: &Path) -> Fallible<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    Ok(())
}

/// The kernel's count of flushes that the disk under a directory has carried out, for whomever.
/// It tells whether a store flushes at all, without `strace` and whatever the store says.
pub struct Flushes {
    /// None where the kernel does not count them: no disk under the file system, or one that has
    /// nothing to flush.
    path: Option<PathBuf>,
}

impl Flushes {
    pub fn of(directory: &Path) -> Flushes {
        let path = fs::metadata(directory).ok().map(|metadata| {
            let (major, minor) = (
                rustix::fs::major(metadata.dev()),
                rustix::fs::minor(metadata.dev()),
            );
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
        });
        // A partition has no count of its own; its disk has.
        let path = path.and_then(|device| {
            let device = device.canonicalize().ok()?;
            let disk = if device.join("partition").exists() {
                device.parent()?.to_owned()
            } else {
                device
            };
            let cache = fs::read_to_string(disk.join("queue/write_cache")).ok()?;
            (cache.trim() == "write back").then(|| disk.join("stat"))
        });
        Flushes { path }
    }

    pub fn count(&self) -> Option<u64> {
        /// See the kernel's `Documentation/block/stat.rst`.
        const FLUSHES_FIELD: usize = 15;
        let text = fs::read_to_string(self.path.as_ref()?).ok()?;
        text.split_ascii_whitespace()
            .nth(FLUSHES_FIELD)?
            .parse()
            .ok()
    }
}

/// A file written with zeros and synced, to be overwritten from start to end, round and round.
pub struct RawFile {
    file: File,
    offset: u64,
}

impl RawFile {
    pub fn create(path: &Path, bytes_max: u64) -> Fallible<RawFile> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..RAW_FILE_BYTES.min(bytes_max)).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        Ok(RawFile { file, offset: 0 })
    }

    /// The loop that F is the rate of: `pwrite` of so many bytes, `fdatasync`.
    pub fn flush_loop(&mut self, bytes: usize, sample: Duration) -> Fallible<Timed> {
        self.write_loop(bytes, sample, true)
    }

    /// The same, or without the flush: what one `pwrite` costs.
    pub fn write_loop(&mut self, bytes: usize, sample: Duration, flush: bool) -> Fallible<Timed> {
        let file_bytes = self.file.metadata()?.len();
        let mut record = vec![0; bytes];
        Rng::with_seed(self.offset ^ SEED).fill(&mut record);
        let timed = run_for(sample, 1, || {
            self.offset += bytes as u64;
            if self.offset + bytes as u64 > file_bytes {
                self.offset = 0;
            }
            record[0] = record[0].wrapping_add(1);
            self.file.write_all_at(&record, self.offset)?;
            if flush {
                self.file.sync_data()?;
            }
            Ok(())
        })?;
        let mut back = vec![0; bytes];
        self.file.read_exact_at(&mut back, self.offset)?;
        check(
            back == record,
            "the raw file does not hold what was written",
        )?;
        Ok(timed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "disk / ext4 rw 0 0\nnone /proc proc ro 0 0\n";
        let found = |path| file_system(mounts, Path::new(path));
        assert_eq!(found("/").as_deref(), Some("ext4 on disk (rw)"));
        assert_eq!(found("/proc/self/").as_deref(), Some("proc on none (ro)"));
    }

    #[test]
    fn numbers_are_found_behind_their_names() {
        let text = "VmRSS:\t  10 kB\nRssAnon:\t    1234 kB\n";
        assert_eq!(field(text, "RssAnon:"), Some(1234));
        assert_eq!(field(text, "RssFile:"), None);
    }

    #[test]
    fn what_is_written_and_flushed_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = &directory.path().join("files");
        fs::create_dir(path).unwrap();
        let flushes = Flushes::of(path);
        let (written, flushed) = (written_bytes().unwrap(), flushes.count());
        fs::write(path.join("some"), vec![7; 100_000]).unwrap();
        File::open(path.join("some")).unwrap().sync_all().unwrap();
        assert!(written_bytes().unwrap() - written >= 100_000);
        // Where the kernel counts flushes at all.
        if let (Some(before), Some(after)) = (flushed, flushes.count()) {
            assert!(after > before, "{before} flushes before, {after} after");
        }
        let allocated = allocated_bytes(path).unwrap();
        assert!((100_000..200_000).contains(&allocated), "{allocated}");
        copy(path, &directory.path().join("copy")).unwrap();
        assert_eq!(files(directory.path()).unwrap().len(), 2);
        assert!(anonymous_bytes().unwrap() > 100_000);
    }
}
