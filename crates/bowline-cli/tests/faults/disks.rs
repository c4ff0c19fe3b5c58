//! A disk of one member that is so small that it can be filled, and disks that fail.
//!
//! The small disk is a `tmpfs` with a limit, which only root may mount. A disk fails by the rules of `--fault-disk`, a
//! flag that programs without debug assertions, and earlier ones, do not have. Where one of them is not to be had, the
//! faults that need it are skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// What is wrong with the disk of a member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ills {
    pub(crate) flushes_fail: bool,
    pub(crate) tables_unreadable: bool,
    pub(crate) writes_short: bool,
    pub(crate) writes_fail: bool,
    /// The file with the member's vote can be neither read nor written.
    pub(crate) vote_fails: bool,
    pub(crate) flush_delay_ms: u64,
}

impl Ills {
    /// Whether a member may stop by itself, as an answer to that.
    pub(crate) fn may_end_it(self) -> bool {
        self.flushes_fail || self.tables_unreadable || self.writes_fail || self.vote_fails
    }

    /// The rules of `--fault-disk`. Of two for one call the first is in effect.
    fn rules(self) -> String {
        let mut rules = String::new();
        if self.flushes_fail {
            rules.push_str("flush eio\n");
        }
        if self.tables_unreadable {
            rules.push_str("read eio path .table\n");
        }
        if self.writes_fail {
            rules.push_str("write eio\n");
        }
        if self.vote_fails {
            for call in ["read", "write", "flush"] {
                rules.push_str(&format!("{call} eio path /MEMBER\n"));
            }
        }
        if self.writes_short {
            // Less than most records of a log have.
            rules.push_str("write short 100\n");
        }
        if self.flush_delay_ms > 0 {
            rules.push_str(&format!("flush slow {}\n", self.flush_delay_ms));
        }
        rules
    }
}

/// A disk that is ill as its rules say, while `bowline serve --fault-disk` runs on it.
#[derive(Debug)]
pub(crate) struct FaultDisk {
    rules: PathBuf,
    ills: Ills,
    /// How much of the list of faults was counted.
    counted_bytes: usize,
}

/// How often which fault was met: `flush eio`, for example, or `write eio MEMBER` for the file with the vote.
pub(crate) type Met = BTreeMap<String, u64>;

impl FaultDisk {
    /// Whether a program has the flag, as only those for tests have.
    pub(crate) fn is_known_to(program: &Path) -> bool {
        let flags = ["serve", "--print-config", "--fault-disk", "/dev/null"];
        let is_known = succeeds(&program.to_string_lossy(), &flags);
        if !is_known {
            let program = program.display();
            skip_part(format!("a failing disk: {program} has no --fault-disk"));
        }
        is_known
    }

    /// With the rules in a file, which may not be there yet.
    pub(crate) fn new(rules: PathBuf) -> FaultDisk {
        FaultDisk {
            rules,
            ills: Ills::default(),
            counted_bytes: 0,
        }
    }

    /// From now on it has these ills, and no others.
    pub(crate) fn set(&mut self, ills: Ills) {
        if ills == self.ills {
            return;
        }
        self.ills = ills;
        let new = self.rules.with_extension("new");
        std::fs::write(&new, ills.rules()).expect("the rules are written");
        std::fs::rename(&new, &self.rules).expect("the rules are replaced");
    }

    /// The faults that members on it have met since this was called before.
    pub(crate) fn met(&mut self) -> Met {
        let mut list = self.rules.clone().into_os_string();
        list.push(".injected");
        let text = std::fs::read_to_string(list).unwrap_or_default();
        let mut met = Met::new();
        for line in text[self.counted_bytes..].lines() {
            let mut words: Vec<_> = line.split(' ').take(2).collect();
            if line.ends_with("/MEMBER") {
                words.push("MEMBER");
            }
            *met.entry(words.join(" ")).or_default() += 1;
        }
        self.counted_bytes = text.len();
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ill_is_a_rule_and_what_was_met_is_counted_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let rules = directory.path().join("m0.disk");
        let mut disk = FaultDisk::new(rules.clone());
        assert!(disk.met().is_empty());
        disk.set(Ills {
            flushes_fail: true,
            flush_delay_ms: 20,
            ..Ills::default()
        });
        let text = std::fs::read_to_string(&rules).expect("rules");
        assert_eq!(text, "flush eio\nflush slow 20\n");
        let list = directory.path().join("m0.disk.injected");
        let lines = "flush eio a\nflush slow 20 b c\nflush eio a\nwrite eio a/MEMBER\n";
        std::fs::write(&list, lines).expect("written");
        let counts = [("flush eio", 2), ("flush slow", 1), ("write eio MEMBER", 1)];
        let counts = counts.map(|(fault, count)| (fault.to_owned(), count));
        assert_eq!(disk.met(), counts.into());
        assert!(disk.met().is_empty());
        disk.set(Ills {
            writes_fail: true,
            vote_fails: true,
            ..Ills::default()
        });
        let text = std::fs::read_to_string(&rules).expect("rules");
        let of_vote = "read eio path /MEMBER\nwrite eio path /MEMBER\nflush eio path /MEMBER\n";
        assert_eq!(text, format!("write eio\n{of_vote}"));
        disk.set(Ills::default());
        assert_eq!(std::fs::read_to_string(&rules).expect("rules"), "");
    }
}
