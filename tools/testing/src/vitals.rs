//! The resource use of a running process: processor time, log, memory, threads, open files and disk, each
//! compared with a bound.
//!
//! Tests that check answers alone pass a server that uses a whole core, or writes megabytes of log a second,
//! with correct answers. A [`Sample`] is the kernel's data at one moment; two samples and [`Bounds`] make a
//! judgement.
//!
//! Invariants:
//!
//! - processor time is what the process used (`utime + stime`), not elapsed time: other load of the machine
//!   does not make a judgement worse;
//! - every exceeded bound is named, with the measurement and its duration, not the first one only;
//! - two samples of different processes are not compared: a restart between them is an error.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The unit of `/proc/PID/stat`, in ticks per second. Linux exports this one whatever its own timer does.
const TICKS_PER_SECOND: u64 = 100;

/// An observed process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its name in messages.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Its log file, if it has one.
    pub log: Option<PathBuf>,
    /// Its data directory, if it has one.
    pub data: Option<PathBuf>,
}

/// The resource use of a process at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The process id, and the start time in ticks since boot: a process id may be reused.
    identity: (u32, u64),
    /// The time of the sample.
    pub at: Instant,
    /// Processor time since its start.
    pub cpu: Duration,
    /// The length of its log.
    pub log_bytes: u64,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u64,
    /// Its open files and sockets.
    pub open_files: u64,
    /// The disk usage of its data directory.
    pub disk_bytes: u64,
}

/// The bounds of a process between two samples.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Processor time, in cores.
    pub cores: f64,
    /// Bytes written to its log.
    pub log_bytes_per_minute: u64,
    /// Its resident memory, at the second sample.
    pub resident_bytes: u64,
    /// Its threads, at the second sample.
    pub threads: u64,
    /// Its open files and sockets, at the second sample.
    pub open_files: u64,
    /// The disk usage of its data directory, at the second sample.
    pub disk_bytes: u64,
}

/// An exceeded bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Excess {
    /// The measured quantity, for example "processor time".
    pub what: &'static str,
    /// The measurement, with its unit.
    pub measured: String,
    /// The bound, with its unit.
    pub bound: String,
}

/// The resource use between two samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usage {
    /// The time between the samples.
    pub lasted: Duration,
    /// Processor time, in cores.
    pub cores: f64,
    /// Bytes written to its log.
    pub log_bytes_per_minute: f64,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u64,
    /// Its open files and sockets.
    pub open_files: u64,
    /// The disk usage of its data directory.
    pub disk_bytes: u64,
}

/// A failed judgement.
#[derive(Clone, PartialEq, Debug)]
pub struct Unwell {
    /// The process.
    pub who: String,
    /// The situation.
    pub when: String,
    /// The time of observation.
    pub lasted: Duration,
    /// Every exceeded bound.
    pub excesses: Vec<Excess>,
}

impl Process {
    /// The present resource use.
    ///
    /// # Errors
    /// Those of `/proc`: `NotFound` when the process is gone.
    pub fn sample(&self) -> io::Result<Sample> {
        let root = PathBuf::from(format!("/proc/{}", self.pid));
        let (started, ticks) = times(&fs::read_to_string(root.join("stat"))?)?;
        let status = fs::read_to_string(root.join("status"))?;
        // The divisor is exact: a tick is a whole number of milliseconds.
        let cpu = Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
        Ok(Sample {
            identity: (self.pid, started),
            at: Instant::now(),
            cpu,
            log_bytes: match &self.log {
                Some(path) => fs::metadata(path)?.len(),
                None => 0,
            },
            resident_bytes: field(&status, "VmRSS:")? << 10,
            threads: field(&status, "Threads:")?,
            open_files: fs::read_dir(root.join("fd"))?.count() as u64,
            disk_bytes: self.data.as_deref().map_or(0, disk_bytes),
        })
    }

    /// Compares the use since `from` with bounds.
    ///
    /// # Errors
    /// [`Unwell`] with every exceeded bound.
    ///
    /// # Panics
    /// When `from` is a sample of another process, or the process is gone: that is no judgement.
    pub fn judge(&self, when: &str, from: &Sample, bounds: &Bounds) -> Result<Usage, Unwell> {
        let to = self.sample().unwrap_or_else(|error| {
            panic!("{} {when}: it cannot be looked at: {error}", self.name)
        });
        let usage = Usage::between(from, &to)
            .unwrap_or_else(|| panic!("{} {when}: it was started again in between", self.name));
        let mut excesses = usage.excesses(bounds);
        if excesses.is_empty() {
            return Ok(usage);
        }
        if let Some(threads) = excesses.iter_mut().find(|one| one.what == "threads") {
            threads.measured += &format!(" ({})", self.thread_names());
        }
        Err(Unwell {
            who: self.name.clone(),
            when: when.to_owned(),
            lasted: usage.lasted,
            excesses,
        })
    }

    /// Its threads' names, each with how many have it, the most frequent first.
    fn thread_names(&self) -> String {
        let mut counts = BTreeMap::<String, usize>::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        for task in tasks.into_iter().flatten().flatten() {
            if let Ok(name) = fs::read_to_string(task.path().join("comm")) {
                *counts.entry(name.trim_end().to_owned()).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        let counts = counts.iter().map(|(name, count)| format!("{count} {name}"));
        counts.collect::<Vec<_>>().join(", ")
    }
}

impl Usage {
    /// `None` if the samples are of different processes.
    #[must_use]
    pub fn between(from: &Sample, to: &Sample) -> Option<Usage> {
        if from.identity != to.identity {
            return None;
        }
        let lasted = to.at.saturating_duration_since(from.at);
        let seconds = lasted.as_secs_f64().max(f64::EPSILON);
        let logged = to.log_bytes.saturating_sub(from.log_bytes);
        Some(Usage {
            lasted,
            cores: to.cpu.saturating_sub(from.cpu).as_secs_f64() / seconds,
            log_bytes_per_minute: logged as f64 / seconds * 60.0,
            resident_bytes: to.resident_bytes,
            threads: to.threads,
            open_files: to.open_files,
            disk_bytes: to.disk_bytes,
        })
    }

    /// Every exceeded bound.
    #[must_use]
    pub fn excesses(&self, bounds: &Bounds) -> Vec<Excess> {
        let mut found = Vec::new();
        let mut hold = |what, measured: f64, bound: f64, unit: &str, digits: usize| {
            if measured > bound {
                found.push(Excess {
                    what,
                    measured: format!("{measured:.digits$} {unit}"),
                    bound: format!("{bound:.digits$} {unit}"),
                });
            }
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        hold("processor time", self.cores, bounds.cores, "of a core", 2);
        let log = self.log_bytes_per_minute;
        let log_max = bounds.log_bytes_per_minute as f64;
        hold("log", log, log_max, "bytes a minute", 0);
        let memory = mib(self.resident_bytes);
        hold("memory", memory, mib(bounds.resident_bytes), "MiB", 1);
        let threads = (self.threads as f64, bounds.threads as f64);
        hold("threads", threads.0, threads.1, "threads", 0);
        let files = (self.open_files as f64, bounds.open_files as f64);
        hold("open files", files.0, files.1, "files", 0);
        let disk = mib(self.disk_bytes);
        hold("disk", disk, mib(bounds.disk_bytes), "MiB", 1);
        found
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} of a core, {:.0} bytes of log a minute, {} MiB, {} threads, {} open files, {} MiB on disk",
            self.cores,
            self.log_bytes_per_minute,
            self.resident_bytes >> 20,
            self.threads,
            self.open_files,
            self.disk_bytes >> 20,
        )
    }
}

impl fmt::Display for Unwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, for {:.1?}:", self.who, self.when, self.lasted)?;
        for Excess {
            what,
            measured,
            bound,
        } in &self.excesses
        {
            write!(f, " {what}: {measured}, at most {bound};")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unwell {}

/// The start time and the used processor time of a process, in ticks, from its `stat`.
fn times(stat: &str) -> io::Result<(u64, u64)> {
    /// Fields after the name, which is in parentheses and may contain any character.
    const USER: usize = 11;
    const SYSTEM: usize = 12;
    const STARTED: usize = 19;
    let fields: Vec<&str> = match stat.rsplit_once(')') {
        Some((_, rest)) => rest.split_whitespace().collect(),
        None => Vec::new(),
    };
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    match (number(USER), number(SYSTEM), number(STARTED)) {
        (Some(user), Some(system), Some(started)) => Ok((started, user + system)),
        _ => Err(senseless(stat)),
    }
}

/// The number after a name in a `status` file of `/proc`.
fn field(status: &str, name: &str) -> io::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    // A zombie process has no memory any more.
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no {name} it has ended")))
}

fn senseless(text: &str) -> io::Error {
    let reason = format!("/proc says what cannot be read: {text}");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The disk usage of the files below a directory: blocks, as files may have holes and preallocated space.
fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes += disk_bytes(&entry.path()),
            Ok(metadata) => bytes += metadata.blocks() * BLOCK_BYTES,
            // It was removed meanwhile.
            Err(_) => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    const BOUNDS: Bounds = Bounds {
        cores: 0.25,
        log_bytes_per_minute: 6_000,
        resident_bytes: 100 << 20,
        threads: 8,
        open_files: 64,
        disk_bytes: 16 << 20,
    };

    fn sample(at: Instant) -> Sample {
        Sample {
            identity: (7, 100),
            at,
            cpu: Duration::from_secs(1),
            log_bytes: 1_000,
            resident_bytes: 50 << 20,
            threads: 4,
            open_files: 20,
            disk_bytes: 1 << 20,
        }
    }

    fn excesses(change: impl FnOnce(&mut Sample)) -> Vec<&'static str> {
        let from = sample(Instant::now());
        let mut to = sample(from.at + Duration::from_secs(10));
        change(&mut to);
        let usage = Usage::between(&from, &to).expect("one process");
        let excesses = usage.excesses(&BOUNDS);
        excesses.iter().map(|excess| excess.what).collect()
    }

    /// Planted: a sample beyond a single bound is refused for that bound, one at the bound is not.
    #[test]
    fn each_bound_is_held() {
        assert!(excesses(|_| {}).is_empty());
        assert!(excesses(|to| to.cpu += Duration::from_millis(2_500)).is_empty());
        type Worsen = fn(&mut Sample);
        let beyond: [(&str, Worsen); 6] = [
            ("processor time", |to| {
                to.cpu += Duration::from_millis(2_600);
            }),
            ("log", |to| to.log_bytes += 1_001),
            ("memory", |to| to.resident_bytes = (100 << 20) + 1),
            ("threads", |to| to.threads = 9),
            ("open files", |to| to.open_files = 65),
            ("disk", |to| to.disk_bytes = (16 << 20) + 1),
        ];
        for (what, change) in beyond {
            assert_eq!(excesses(change), [what]);
        }
        let both = excesses(|to| (to.threads, to.open_files) = (9, 65));
        assert_eq!(both, ["threads", "open files"]);
    }

    #[test]
    fn a_process_that_was_started_again_is_not_judged() {
        let from = sample(Instant::now());
        let mut to = sample(from.at + Duration::from_secs(1));
        to.identity.1 += 1;
        assert_eq!(Usage::between(&from, &to), None);
    }

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(line: &str) -> Option<Ended> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdout(Stdio::null());
        command.spawn().ok().map(Ended)
    }

    /// Planted: a real process that spins and writes to its log is refused for both; one that sleeps is not.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_spins_and_logs_is_refused_and_one_that_sleeps_is_not() {
        let path = std::env::temp_dir().join(format!("bowline-vitals-{}", std::process::id()));
        let mut log = fs::File::create(&path).expect("a file");
        let watched = |child: &Ended| Process {
            name: "it".to_owned(),
            pid: child.0.id(),
            log: Some(path.clone()),
            data: None,
        };
        let asleep = shell("exec sleep 60").expect("a shell");
        let busy = shell("while :; do :; done").expect("a shell");
        let (asleep, spinning) = (watched(&asleep), watched(&busy));
        let (from_asleep, from_spinning) = (asleep.sample().unwrap(), spinning.sample().unwrap());
        let well = asleep.judge("asleep", &from_asleep, &BOUNDS).unwrap();
        assert!(well.cores < BOUNDS.cores && well.threads == 1, "{well}");
        log.write_all(&[b'x'; 4_000]).expect("it is written");
        // Until it has used the processor for a while, however busy the machine is.
        let used = || spinning.sample().unwrap().cpu - from_spinning.cpu;
        while used() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        let strict = Bounds {
            cores: 0.0,
            threads: 0,
            ..BOUNDS
        };
        let unwell = spinning
            .judge("alone", &from_spinning, &strict)
            .unwrap_err();
        let found: Vec<_> = unwell.excesses.iter().map(|excess| excess.what).collect();
        assert_eq!(found, ["processor time", "log", "threads"], "{unwell}");
        let shown = unwell.to_string();
        for part in ["it alone", "at most 0.00", "1 threads (1 sh)"] {
            assert!(shown.contains(part), "{shown}");
        }
        drop(busy);
        assert!(spinning.sample().is_err(), "it is gone");
        let _ = fs::remove_file(path);
    }
}
