//! The program is killed by SIGKILL as it enters its n-th system call of a kind, through `strace`.
//!
//! One directory goes through all of it: each run of the program is one command, killed at the
//! n-th call of one kind, for n = 1, 1 + stride, and so on until the command comes to its end. After
//! each kill the database is opened with the library and compared with what was acknowledged.
//! `BOWLINE_KILL_SYSCALLS_STRIDE=1` tries every call. Without `strace` it is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bowline::{BlockId, Db, Range};

use super::kill::setting;
use super::{Place, files_in};

/// What changes files, and what finds or takes them; every how many-th call is tried.
const SYSCALLS: [(&str, u64); 10] = [
    ("pwrite64", 2),
    ("write", 1),
    ("fsync", 2),
    ("fdatasync", 2),
    // Most are the loader's and those of reading.
    ("openat", 9),
    ("rename,renameat,renameat2", 1),
    ("unlink,unlinkat", 1),
    ("ftruncate", 1),
    ("fallocate", 1),
    ("mkdir,mkdirat", 1),
];

const LINES: usize = 30;
const BATCH: usize = 10;

/// What the database must hold.
#[derive(Default)]
struct Known {
    keys: BTreeMap<String, String>,
    /// The last import that was begun, and how many of its lines are known to be there.
    imported: BTreeMap<usize, u64>,
    edges: BTreeSet<u64>,
    /// Numbers everything that is written.
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Put,
    Import,
    Edge,
    Delete,
    Compact,
    Checkpoint,
}

const TASKS: [Task; 6] = [
    Task::Put,
    Task::Import,
    Task::Edge,
    Task::Delete,
    Task::Compact,
    Task::Checkpoint,
];

fn has_strace() -> bool {
    // Some containers have it and forbid it.
    Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the program until its n-th call of this kind. Whether it came to its end.
fn run_until(place: &Place, words: &[String], calls: &str, nth: u64) -> bool {
    let output = place
        .command_of("strace")
        .args(["-qq", "-f", "-o", "/dev/null", "-e"])
        .arg(format!("trace={calls}"))
        .arg("-e")
        .arg(format!("inject={calls}:signal=SIGKILL:when={nth}"))
        .arg(env!("CARGO_BIN_EXE_bowline"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("strace starts");
    match output.status.code() {
        // strace ends as what it traces ends: by the same signal.
        None => false,
        Some(0) => true,
        Some(code) => panic!(
            "{words:?} at {calls} {nth} ended with {code}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

impl Known {
    fn words(&mut self, place: &Place, task: Task) -> Vec<String> {
        self.next += 1;
        let number = self.next;
        let words = match task {
            Task::Put => format!("put k{} v{number}", number % 5),
            Task::Import => {
                let mut text = String::new();
                for line in 0..LINES {
                    text += &format!("{{\"key\":\"i{line:02}\",\"value\":\"{number}\"}}\n");
                }
                place.write("import.jsonl", text);
                format!("import import.jsonl --batch {BATCH} -q")
            }
            Task::Edge => format!("import edge.txt --format edge-list -q --batch {}", {
                place.write("edge.txt", format!("{number}0 {number}1\n"));
                BATCH
            }),
            Task::Delete => "del --prefix k2".to_owned(),
            Task::Compact => "compact".to_owned(),
            Task::Checkpoint => {
                let _ = std::fs::remove_dir_all(place.path("copy"));
                "checkpoint copy".to_owned()
            }
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// Compares, and takes over what was unknown.
    fn judge(&mut self, place: &Place, task: Task, is_done: bool, name: &str) {
        let number = self.next;
        let db = Db::builder()
            .open(place.data())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut after = self.keys.clone();
        match task {
            Task::Put => drop(after.insert(format!("k{}", number % 5), format!("v{number}"))),
            Task::Delete => drop(after.remove("k2")),
            _ => {}
        }
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let entries = |prefix| db.range(Range::prefix(prefix)).expect("a range");
        let found: BTreeMap<_, _> = entries("k")
            .map(|entry| entry.expect("a read"))
            .map(|entry| (text(&entry.key), text(&entry.value)))
            .collect();
        assert!(
            found == after || (!is_done && found == self.keys),
            "{name}: {found:?}, expected {after:?} or, unless it was done, {:?}",
            self.keys
        );
        self.keys = found;
        let imported: BTreeMap<usize, u64> = entries("i")
            .map(|entry| entry.expect("a read"))
            .map(|entry| {
                let line = text(&entry.key)[1..].parse().expect("a number");
                (line, text(&entry.value).parse().expect("a number"))
            })
            .collect();
        if task == Task::Import {
            // Whole batches, from the first on.
            let new = (0..LINES)
                .take_while(|line| imported.get(line) == Some(&number))
                .count();
            assert!(
                new % BATCH == 0 && (!is_done || new == LINES),
                "{name}: {new} lines"
            );
            for line in 0..new {
                self.imported.insert(line, number);
            }
        }
        assert_eq!(imported, self.imported, "{name}");
        if task == Task::Edge {
            let id = |end: u64| BlockId::from_name(&(number * 10 + end).to_string());
            let graph = db.snapshot().graph();
            let edge = graph.edge(id(0), "links", id(1));
            let is_there = edge.expect("a read").is_some();
            assert!(is_there || !is_done, "{name}: the edge is not there");
            let blocks = graph.has_block(id(0)).expect("a read");
            assert_eq!(blocks, is_there, "{name}: a half of the import is there");
            if is_there {
                self.edges.insert(number);
            }
        }
        let stats = db.snapshot().graph().stats([""; 0]).expect("statistics");
        assert_eq!(stats.edges, self.edges.len() as u64, "{name}");
        let check = db.check().expect("a check");
        assert!(check.is_clean(), "{name}: {check:?}");
        self.judge_files(place, &db, name);
        db.close().expect("a close");
        if task == Task::Checkpoint {
            let copy = place.path("copy");
            assert!(!is_done || copy.join("BOWLINE").exists(), "{name}");
            if copy.join("BOWLINE").exists() {
                let db = Db::builder().create(false).open(&copy).expect("it opens");
                assert!(db.check().expect("a check").is_clean(), "{name}");
                let copied = db.range(Range::prefix("k")).expect("a range");
                assert_eq!(copied.count(), self.keys.len(), "{name}");
            }
        }
    }

    /// However many were killed, no files pile up.
    fn judge_files(&self, place: &Place, db: &Db, name: &str) {
        let named = || -> u64 {
            let engine = db.stats().engine;
            let levels = engine.levels.iter().flatten();
            levels.map(|level| level.tables).sum::<u64>() + engine.blob_files
        };
        let start = Instant::now();
        while named() != files_in(&place.data().join("tables")).len() as u64 {
            assert!(start.elapsed() < Duration::from_secs(60), "{name}: tables");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(files_in(&place.data()).len(), 5, "{name}");
        loop {
            let segments = files_in(&place.data().join("log")).len();
            if segments <= 24 {
                break;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{name}: {segments} segments"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_kill_at_any_system_call_loses_nothing() {
    if !has_strace() {
        bowline_testing::skip("strace is not here or may not trace");
        return;
    }
    println!("repeat with: cargo test -p bowline-cli --test program kill_calls");
    let place = Place::new();
    let mut known = Known::default();
    let (mut total, mut ends) = (0, 0);
    for (calls, stride) in SYSCALLS {
        let stride = setting("BOWLINE_KILL_SYSCALLS_STRIDE", stride).max(1);
        let mut kills = 0;
        for (at, task) in TASKS.into_iter().enumerate() {
            let mut nth = 1 + at as u64 % stride;
            loop {
                let words = known.words(&place, task);
                let is_done = run_until(&place, &words, calls, nth);
                known.judge(&place, task, is_done, &format!("{task:?} at {calls} {nth}"));
                if is_done {
                    ends += 1;
                    break;
                }
                kills += 1;
                nth += stride;
            }
        }
        println!("{kills:4} kills at {calls}");
        total += kills;
    }
    println!(
        "{total} kills, {ends} commands that came to their end; {} keys, {} lines and {} edges \
         acknowledged or found, none lost",
        known.keys.len(),
        known.imported.len(),
        known.edges.len()
    );
    assert!(total > 40, "{total}");
}
