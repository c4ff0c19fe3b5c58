//! A program that uses the library is killed by SIGKILL at random moments, again and again on the
//! same directory, and at chosen calls of the file system ([`calls`]). The record of what it
//! acknowledged is kept outside, by its parent.
//!
//! The writer is this test binary itself, started again. Each of its threads counts up its own key
//! and, in the same transaction, a block, an edge, and two keys of a ring, one put and one deleted,
//! so that a half-applied transaction shows. Beside them it flushes, merges, trims history and
//! takes checkpoints. `BOWLINE_KILLS` sets how often (default 100), `BOWLINE_SEED` repeats the
//! moments.

mod calls;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use bowline::{Block, BlockId, BlockKinds, Db, Edge, Range, Revision};
use bowline_testing::Seed;

const DIRECTORY: &str = "BOWLINE_KILL_DIRECTORY";
const THREADS: usize = 4;
/// Held while a database is open whose lock matters, and while a process is started: until it has
/// become another program, a new process holds the locks of the one it was forked from.
pub(crate) static FORKING: Mutex<()> = Mutex::new(());
/// How many keys the ring of a thread has; half of them are there.
const RING: u64 = 20;

/// As the operating system does it: no destructor runs, nothing is flushed.
pub(crate) fn kill_self() -> ! {
    let this = rustix::process::getpid();
    rustix::process::kill_process(this, rustix::process::Signal::KILL).expect("a signal");
    loop {
        std::thread::park();
    }
}

/// Whether the directory of an open database holds what belongs there and nothing else.
pub(crate) fn assert_no_leftovers(db: &Db, path: &Path) {
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).expect("a directory");
        entries
            .map(|entry| {
                entry
                    .expect("a name")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    };
    let found = names(path);
    let of = |prefix: &str| found.iter().filter(|name| name.starts_with(prefix)).count();
    assert!(
        found.len() == 5 && of("manifest-") == 1 && of("BOWLINE") == 1 && of("LOCK") == 1,
        "{found:?}"
    );
    let named = || -> u64 {
        let engine = db.stats().engine;
        let levels = engine.levels.iter().flatten();
        levels.map(|level| level.tables).sum::<u64>() + engine.blob_files
    };
    // A merge in the background has files of its own for a while.
    let start = Instant::now();
    loop {
        // A kill within an append to the manifest leaves its end in doubt: tables that it does not name are set
        // aside then, and not removed.
        let tables = names(&path.join("tables"));
        let tables = tables.iter().filter(|name| !name.contains(".unnamed-"));
        let (before, tables) = (named(), tables.count() as u64);
        if before == tables {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{tables} tables, {before} of them named"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    // Sixteen of short runs before they are flushed away, and those ahead.
    loop {
        let segments = names(&path.join("log"));
        if segments.len() <= 24 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{segments:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn checkpoint_of(path: &Path) -> std::path::PathBuf {
    path.with_extension("checkpoint")
}

fn ring_key(thread: usize, count: u64) -> String {
    format!("ring/{thread}/{:02}", count % RING)
}

/// Flushes, merges, trims history and takes checkpoints, until it is killed.
fn upkeep(db: &Db, path: &Path) {
    for turn in 0u64.. {
        let done = match turn % 4 {
            0 => db.flush(),
            1 => db.compact(),
            2 => match db.trim_history(db.revision()) {
                Err(bowline::Error::Compacted { .. }) => Ok(()),
                result => result,
            },
            _ => {
                let _ = std::fs::remove_dir_all(checkpoint_of(path));
                db.checkpoint(checkpoint_of(path)).map(drop)
            }
        };
        done.expect("upkeep");
        std::thread::sleep(Duration::from_millis(3));
    }
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn open(path: &Path) -> Db {
    // Small, so that flushes, compactions and log rotations are under way when the kill comes.
    Db::builder()
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
        .page_bytes(1 << 10)
        .open(path)
        .expect("the database opens")
}

fn block_id(thread: usize, count: u64) -> BlockId {
    BlockId::from_name(&format!("{thread}/{count}"))
}

/// The kinds of a block: none, one or two.
fn kinds_of(count: u64) -> BlockKinds {
    match count % 3 {
        0 => BlockKinds::none(),
        1 => "count".into(),
        _ => ["count", "odd one"].into(),
    }
}

/// The writer: runs only as the child of the test below.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let db = open(Path::new(&path));
    std::thread::scope(|scope| {
        scope.spawn(|| upkeep(&db, Path::new(&path)));
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let key = format!("count/{thread}");
                let start = db.get(&key).expect("a read").map_or(0, |value| {
                    String::from_utf8_lossy(&value)
                        .parse::<u64>()
                        .expect("a number")
                });
                for count in start + 1.. {
                    let mut tx = db.begin();
                    tx.put(&key, count.to_string()).expect("a put");
                    let block = block_id(thread, count);
                    tx.put_block(&Block::new(block, kinds_of(count)).content(vec![7; 200]))
                        .expect("a block");
                    if count > 1 {
                        let edge = Edge::new(block, "after", block_id(thread, count - 1));
                        tx.put_edge(&edge).expect("an edge");
                    }
                    tx.put(ring_key(thread, count), count.to_string())
                        .expect("a put");
                    tx.delete(ring_key(thread, count + RING / 2))
                        .expect("a deletion");
                    let revision = tx.commit().expect("a commit").revision;
                    // One write, so that a line is there whole or not at all.
                    let line = format!("{thread} {count} {revision}\n");
                    std::io::stdout()
                        .write_all(line.as_bytes())
                        .expect("a pipe");
                }
            });
        }
    });
}

/// Runs the writer for a while and kills it; gives the last acknowledgement of each thread.
fn run_and_kill(path: &Path, after: Duration) -> Vec<(usize, u64, Revision)> {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "writer", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the writer starts");
    let output = child.stdout.take().expect("a pipe");
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            // The test runner prints lines of its own.
            let Ok(line) = line else { break };
            let numbers: Vec<u64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
            if let [thread, count, revision] = numbers[..] {
                sender
                    .send((thread as usize, count, Revision::new(revision)))
                    .expect("the parent listens");
            }
        }
    });
    std::thread::sleep(after);
    child.kill().expect("a kill");
    let status = child.wait().expect("an end");
    assert!(
        status.code().is_none(),
        "the writer ended by itself: {status}"
    );
    reader.join().expect("the reader ends");
    lines.iter().collect()
}

/// Whether all of the last transaction of a thread is there, and nothing of the one after it.
fn assert_whole(db: &Db, thread: usize, count: u64) {
    let graph = db.snapshot().graph();
    let block = |count| graph.block(block_id(thread, count)).expect("a read");
    let kinds = block(count).map(|block| block.kinds);
    assert_eq!(kinds, Some(kinds_of(count)), "of block {count}");
    assert!(block(count + 1).is_none());
    if count > 1 {
        let (source, target) = (block_id(thread, count), block_id(thread, count - 1));
        assert!(
            graph
                .edge(source, "after", target)
                .expect("a read")
                .is_some()
        );
    }
    let ring = db.range(Range::prefix(format!("ring/{thread}/")));
    let found: Vec<_> = ring
        .expect("a range")
        .map(|entry| String::from_utf8_lossy(&entry.expect("a read").value).into_owned())
        .collect();
    // Each count deletes the one half a ring before it.
    let mut expected: Vec<_> = (count.saturating_sub(RING / 2 - 1).max(1)..=count).collect();
    expected.sort_by_key(|count| count % RING);
    let expected: Vec<_> = expected.iter().map(u64::to_string).collect();
    assert_eq!(found, expected, "the ring of thread {thread} at {count}");
}

/// Whether the copy, if there is one, opens and is whole. Gives whether there was one.
fn check_checkpoint(path: &Path) -> bool {
    let copy = checkpoint_of(path);
    let is_there = copy.join("BOWLINE").exists();
    if is_there {
        let db = Db::builder().create(false).open(&copy).expect("it opens");
        let check = db.check().expect("a check");
        assert!(check.is_clean(), "{check:?}");
        for thread in 0..THREADS {
            if let Some(count) = db.get(format!("count/{thread}")).expect("a read") {
                let count = String::from_utf8_lossy(&count).parse().expect("a number");
                assert_whole(&db, thread, count);
            }
        }
    }
    if copy.exists() {
        std::fs::remove_dir_all(&copy).expect("it is removed");
    }
    is_there
}

#[test]
fn acknowledged_transactions_survive_sigkill() {
    let (kills, seed) = (
        setting("BOWLINE_KILLS", 100),
        setting("BOWLINE_SEED", 0xC0FFEE),
    );
    println!(
        "repeat with: BOWLINE_SEED={seed} BOWLINE_KILLS={kills} cargo test -p bowline --test kill"
    );
    let mut rng = fastrand::Rng::with_seed(seed);
    // When the last ones come is new in each run.
    let fresh = Seed::fresh("-p bowline --test kill acknowledged_transactions");
    let directory = tempfile::tempdir().expect("a directory");
    let mut path = directory.path().join("data-0");
    let mut acknowledged = [(0u64, Revision::ZERO); THREADS];
    let (mut total, mut unknown, mut checkpoints, mut without) = (0, 0, 0, 0);
    for round in 0..kills {
        if let Some(fresh) = fresh.filter(|_| round == kills - kills / 10) {
            rng = fresh.rng();
        }
        if round % 200 == 199 {
            // What was written grows without end, and so would the time of a check.
            std::fs::remove_dir_all(&path).expect("it is removed");
            path = directory.path().join(format!("data-{round}"));
            acknowledged = Default::default();
        }
        for (thread, count, revision) in
            run_and_kill(&path, Duration::from_millis(rng.u64(10..100)))
        {
            assert!(
                count > acknowledged[thread].0,
                "thread {thread} went back to {count}"
            );
            acknowledged[thread] = (count, revision);
            total += 1;
        }
        if !path.join("BOWLINE").exists() {
            without += 1;
            continue;
        }
        checkpoints += u64::from(check_checkpoint(&path));
        let not_forking = FORKING.lock().expect("the other test goes on");
        let db = open(&path);
        for (thread, (count, revision)) in acknowledged.iter_mut().enumerate() {
            let Some(entry) = db.entry(format!("count/{thread}")).expect("a read") else {
                assert_eq!(*count, 0, "round {round}: thread {thread} lost everything");
                continue;
            };
            let found: u64 = String::from_utf8_lossy(&entry.value)
                .parse()
                .expect("a number");
            // The one after the last acknowledged may have been committed and not told.
            assert!(
                found == *count || found == *count + 1,
                "round {round}, thread {thread}: {found} found, {count} acknowledged"
            );
            if found == *count {
                assert_eq!(
                    entry.mod_revision, *revision,
                    "round {round}, thread {thread}"
                );
            } else {
                unknown += 1;
            }
            assert_whole(&db, thread, found);
            (*count, *revision) = (found, entry.mod_revision);
        }
        assert_no_leftovers(&db, &path);
        if round % 4 == 0 || round + 1 == kills {
            let check = db.check().expect("a check");
            assert!(check.is_clean(), "round {round}: {check:?}");
        }
        db.close().expect("a close");
        drop(not_forking);
    }
    // On a busy disk, opening alone takes most of the time there is.
    assert!(
        total > kills / 4,
        "only {total} transactions were acknowledged in {kills} rounds"
    );
    println!(
        "{kills} kills ({without} before there was a database), {total} acknowledged transactions, \
         none lost; {unknown} were there without having been acknowledged; {checkpoints} finished \
         checkpoints, all whole"
    );
}
