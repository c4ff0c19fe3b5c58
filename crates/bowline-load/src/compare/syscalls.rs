//! How often processes call the system, counted by `perf`.
//!
//! A count costs the process time at each call, so it is not taken while anything else is measured.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The event of the kernel that is counted.
const EVENT: &str = "raw_syscalls:sys_enter";

/// A count that goes on.
pub(crate) struct Syscalls(Child);

impl Syscalls {
    /// Begins to count; nothing where the machine has no `perf`, or does not allow it.
    pub(crate) fn count(processes: &[u32]) -> Option<Syscalls> {
        let list: Vec<String> = processes.iter().map(u32::to_string).collect();
        let child = Command::new("perf")
            .args(["stat", "-x", ",", "-e", EVENT, "-p"])
            .arg(list.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        child.ok().map(Syscalls)
    }

    /// Ends the count.
    pub(crate) fn end(self) -> Option<u64> {
        let Syscalls(child) = self;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
        kill_process(pid, Signal::INT).ok()?;
        let output = child.wait_with_output().ok()?;
        counted(&String::from_utf8_lossy(&output.stderr))
    }
}

/// The count in what `perf` prints: a line with the count first, and the event in it.
fn counted(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(EVENT))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_or_there_is_none() {
        let text = "# started\n\n1140,,raw_syscalls:sys_enter,300252,100.00,,\n";
        assert_eq!(counted(text), Some(1_140));
        assert_eq!(
            counted("<not supported>,,raw_syscalls:sys_enter,0,100.00,,"),
            None
        );
        assert_eq!(counted("Error: No permission"), None);
    }
}
