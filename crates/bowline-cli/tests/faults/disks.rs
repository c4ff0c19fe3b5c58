//! A disk of one member that is so small that it can be filled, and calls of the system that fail.
//!
//! The small disk is a `tmpfs` with a limit, which only root may mount; the calls fail by `strace`. Where one of them
//! is not allowed, the faults that need it are skipped.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bowline_testing::skip_part;

/// What a member needs in the longest run, and not much more: its log has segments ahead.
const SMALL_MIB: u64 = 256;

/// The disk of a member.
#[derive(Debug)]
pub(crate) struct Disk {
    mounted: Option<PathBuf>,
    is_full: bool,
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Disk {
    /// Mounts a small disk at a path, where that is allowed.
    pub(crate) fn small(path: &Path) -> Disk {
        std::fs::create_dir(path).expect("a directory");
        let shown = path.to_string_lossy().into_owned();
        let size = format!("size={SMALL_MIB}m,mode=700");
        let is_mounted = succeeds("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &shown]);
        if !is_mounted {
            skip_part("a full disk: this user may not mount a small one");
        }
        Disk {
            mounted: is_mounted.then(|| path.to_owned()),
            is_full: false,
        }
    }

    /// Where it is; `None` where none could be had.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.mounted.as_deref()
    }

    /// Leaves no room on it, or gives it back.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        let Some(path) = &self.mounted else {
            return;
        };
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        let ballast = path.join("ballast");
        if !is_full {
            std::fs::remove_file(ballast).expect("it was made");
            return;
        }
        let mut file = File::create(ballast).expect("a file");
        let mut piece = vec![0_u8; 1 << 20];
        // Down to the last byte.
        while !piece.is_empty() {
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 4);
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(path) = &self.mounted {
            // Lazily: a test that fails keeps nothing of it.
            succeeds("umount", &["-l", &path.to_string_lossy()]);
        }
    }
}

/// Calls of a process that fail, until this is dropped.
#[derive(Debug)]
pub(crate) struct FailingCalls(Child);

impl FailingCalls {
    /// Whether calls can be made to fail here.
    pub(crate) fn are_possible() -> bool {
        let inject = ["-qq", "-o", "/dev/null", "-e", "inject=fdatasync:error=EIO"];
        let possible = succeeds("strace", &[&inject[..], &["true"]].concat());
        if !possible {
            skip_part("a failing disk: strace is not installed, or may not trace");
        }
        possible
    }

    /// From now on, flushes of a process fail.
    pub(crate) fn flushes_of(pid: u32) -> Option<FailingCalls> {
        let inject = "inject=fdatasync,fsync:error=EIO";
        let mut command = Command::new("strace");
        command.args([
            "-qq",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=fdatasync,fsync",
        ]);
        command.args(["-e", inject, "-p", &pid.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().ok().map(FailingCalls)
    }
}

impl Drop for FailingCalls {
    fn drop(&mut self) {
        // SIGTERM: it lets go of the process first.
        let pid = i32::try_from(self.0.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        // Where the process was killed while `strace` attached itself to its threads, it waits for the process, which
        // cannot be reaped before its threads, for ever, and does not heed SIGTERM.
        for _ in 0..200 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
