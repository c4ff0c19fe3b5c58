//! The process metrics of Prometheus, read from `/proc`. On a system without it there are none.

use std::fmt::{self, Write};
use std::fs;

use super::rows::head;

/// The unit of times in `/proc`, whatever the kernel's own tick.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes all rows.
pub(super) fn write(out: &mut String) -> fmt::Result {
    let rows = [
        (
            "resident_memory_bytes",
            "gauge",
            "Memory that is resident.",
            resident_bytes(),
        ),
        (
            "cpu_seconds_total",
            "counter",
            "Time of the processors, of the user and of the system.",
            cpu_seconds(),
        ),
        (
            "virtual_memory_bytes",
            "gauge",
            "Memory that has addresses.",
            number("status", "VmSize:").map(|kib| kib * 1024.0),
        ),
        (
            "start_time_seconds",
            "gauge",
            "When the process was started, in seconds since 1970.",
            start_seconds(),
        ),
        ("open_fds", "gauge", "Open files.", open_files()),
        ("max_fds", "gauge", "The most open files.", open_files_max()),
    ];
    for (name, kind, help, value) in rows {
        if let Some(value) = value {
            let name = format!("process_{name}");
            head(out, &name, kind, help)?;
            writeln!(out, "{name} {value}")?;
        }
    }
    Ok(())
}

/// The first number of the line with this prefix in a file of `/proc/self`.
fn number(file: &str, begin: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/self/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(begin))?;
    line.split_whitespace().next()?.parse().ok()
}

fn resident_bytes() -> Option<f64> {
    number("status", "VmRSS:").map(|kib| kib * 1024.0)
}

fn open_files_max() -> Option<f64> {
    number("limits", "Max open files")
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn cpu_seconds() -> Option<f64> {
    let [user, system] = [ticks(11)?, ticks(12)?];
    Some((user + system) / TICKS_PER_SECOND)
}

/// A field of the process's `stat`, counted from the first one behind the name.
fn ticks(field: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain anything, even parentheses.
    let rest = text.rsplit_once(')')?.1;
    rest.split_whitespace().nth(field)?.parse().ok()
}

fn start_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let boot = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks(19)? / TICKS_PER_SECOND)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_asked() {
        let mut text = String::new();
        write(&mut text).unwrap();
        let value = |name: &str| {
            let row = text.lines().find_map(|line| line.strip_prefix(name));
            row.unwrap_or_else(|| panic!("{name}: {text}"))
                .trim()
                .parse::<f64>()
                .unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e6, "{text}");
        assert!(value("process_open_fds ") >= 3.0, "{text}");
        assert!(
            value("process_max_fds ") > value("process_open_fds "),
            "{text}"
        );
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - value("process_start_time_seconds ");
        assert!((-2.0..3600.0).contains(&age), "{text}");
        let begun = value("process_cpu_seconds_total ");
        while cpu_seconds().unwrap() <= begun {
            std::hint::black_box(0);
        }
    }
}
