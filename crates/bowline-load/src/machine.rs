//! Measurements of the machine: CPU times, its name, the speed of its disk.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bowline_client::Status;
use rustix::time::{ClockId, clock_gettime};

use crate::access::Access;
use crate::error::{Error, Result};

/// The CPU time of this program so far.
pub(crate) fn cpu_of_self() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// The CPU time of a process so far; `None` if there is no such process.
pub(crate) fn cpu_of(process: u32) -> Option<Duration> {
    let ticks = cpu_ticks(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

/// The user's and the system's time in a line of `/proc/PID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name of the program may have spaces and parentheses in it; it ends with the last one.
    let mut fields = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// How often the threads of a process have given a processor to others, of their own will or not.
pub(crate) fn switches_of(process: u32) -> Option<u64> {
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        // One that has ended meanwhile is not counted.
        let status = fs::read_to_string(thread.ok()?.path().join("status")).unwrap_or_default();
        switches += switches_in(&status);
    }
    Some(switches)
}

/// Both counts of `/proc/PID/task/TID/status`.
fn switches_in(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let is_one = matches!(
            name,
            "voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches"
        );
        count.trim().parse::<u64>().ok().filter(|_| is_one)
    });
    counts.sum()
}

/// What the figures were taken on.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
}

impl Machine {
    pub(crate) fn of(directory: &Path) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Machine {
            processor: processor
                .map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':']))
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            file_system: file_system(&mounts, directory)
                .unwrap_or("unknown")
                .to_owned(),
        }
    }
}

/// The type of the file system that a directory is on.
fn file_system<'a>(mounts: &'a str, directory: &Path) -> Option<&'a str> {
    let directory = directory.canonicalize().ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            directory.starts_with(place).then_some((place.len(), kind))
        })
        // Of two in one place, the later covers the earlier.
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
}

/// Addresses of this machine with free ports. All are held until all are known, so that none is given twice.
pub(crate) fn free_addresses(count: usize) -> io::Result<Vec<String>> {
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr);
    addresses
        .map(|address| address.map(|address| address.to_string()))
        .collect()
}

/// How often per second 150 bytes can be written and flushed to a file that is there already: what no
/// durable write of a single client can beat.
pub(crate) fn flushes_per_second(directory: &Path, duration: Duration) -> io::Result<f64> {
    const FILE_BYTES: usize = 16 << 20;
    let path = directory.join("flush");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let record = [7; 150];
    let (mut offset, mut count) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < duration {
        file.write_all_at(&record, offset)?;
        file.sync_data()?;
        count += 1;
        offset = (offset + 150) % (FILE_BYTES as u64 - 150);
    }
    let rate = super::report::per_second(count, started.elapsed());
    drop(file);
    fs::remove_file(path)?;
    Ok(rate)
}

/// The state of the member at an endpoint.
pub(crate) fn status_of(endpoint: &str, access: &Access) -> Result<Status> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = access
            .client()
            .endpoints([endpoint])
            .connect_timeout(Duration::from_secs(2))
            .request_timeout(Duration::from_secs(10));
        Ok(client.connect_lazy()?.status().await?)
    })
}

/// The endpoint of the leader, among these.
pub(crate) fn leader(endpoints: &[String], access: &Access) -> Result<String> {
    let mut last = Error::Unreachable("no endpoint knows a leader".to_owned());
    for endpoint in endpoints {
        match status_of(endpoint, access) {
            Ok(status) if status.leader == Some(status.header.member_id) => {
                return Ok(endpoint.clone());
            }
            Ok(_) => {}
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_found_behind_any_name() {
        let stat = "7 (a ) b)) S 1 1 1 0 -1 4 100 0 0 0 120 35 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(155));
        assert_eq!(cpu_ticks("7 (a"), None);
        assert!(cpu_of(std::process::id()).is_some());
    }

    #[test]
    fn switches_are_those_of_all_threads() {
        let status = "Threads:\t3\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches_in(status), 42);
        let before = switches_of(std::process::id()).unwrap();
        let (wake, woken) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            while woken.recv().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            wake.send(()).unwrap();
        }
        while switches_of(std::process::id()).unwrap() < before + 5 {
            std::thread::yield_now();
        }
        drop(wake);
        sleeper.join().unwrap();
    }

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "disk / ext4 rw 0 0\nnone /proc proc rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/")), Some("ext4"));
        assert_eq!(file_system(mounts, Path::new("/proc/self/")), Some("proc"));
    }

    #[test]
    fn flushes_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let rate = flushes_per_second(directory.path(), Duration::from_millis(20)).unwrap();
        assert!(rate > 0.0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
