//! A program that uses the library is killed by SIGKILL at random moments, again and again on the
//! same directory. The record of what it acknowledged is kept outside, by its parent.
//!
//! The writer is this test binary itself, started again. Each of its threads counts up its own key
//! and, in the same transaction, a block and an edge, so that a half-applied transaction shows.
//! `BOWLINE_KILLS` sets how often, `BOWLINE_SEED` repeats the moments.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bowline::{Block, BlockId, Db, Edge, Range, Revision};

const DIRECTORY: &str = "BOWLINE_KILL_DIRECTORY";
const THREADS: usize = 4;

fn setting(name: &str, default: u64) -> u64 {
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

/// The writer: runs only as the child of the test below.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let db = open(Path::new(&path));
    std::thread::scope(|scope| {
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
                    let tx = db.begin();
                    tx.put(&key, count.to_string()).expect("a put");
                    let block = block_id(thread, count);
                    tx.put_block(&Block::new(block, "count").content(vec![7; 200]))
                        .expect("a block");
                    if count > 1 {
                        let edge = Edge::new(block, "after", block_id(thread, count - 1));
                        tx.put_edge(&edge).expect("an edge");
                    }
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
                    .send((thread as usize, count, revision))
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

#[test]
fn acknowledged_transactions_survive_sigkill() {
    let (kills, seed) = (
        setting("BOWLINE_KILLS", 40),
        setting("BOWLINE_SEED", 0xC0FFEE),
    );
    println!(
        "repeat with: BOWLINE_SEED={seed} BOWLINE_KILLS={kills} cargo test -p bowline --test kill"
    );
    let mut rng = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let mut acknowledged = [(0u64, 0 as Revision); THREADS];
    let mut total = 0;
    for round in 0..kills {
        for (thread, count, revision) in
            run_and_kill(&path, Duration::from_millis(rng.u64(10..120)))
        {
            assert!(
                count > acknowledged[thread].0,
                "thread {thread} went back to {count}"
            );
            acknowledged[thread] = (count, revision);
            total += 1;
        }
        if !path.join("BOWLINE").exists() {
            continue;
        }
        let db = open(&path);
        let graph = db.snapshot().graph();
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
            }
            assert!(graph.has_block(block_id(thread, found)).expect("a read"));
            assert!(
                !graph
                    .has_block(block_id(thread, found + 1))
                    .expect("a read")
            );
            (*count, *revision) = (found, entry.mod_revision);
        }
        assert!(db.range(Range::all()).expect("a range").count() <= THREADS);
        if round % 8 == 0 || round + 1 == kills {
            let check = db.check().expect("a check");
            assert!(check.is_clean(), "round {round}: {check:?}");
        }
        db.close().expect("a close");
    }
    assert!(
        total > kills,
        "only {total} transactions were acknowledged in {kills} rounds"
    );
    println!("{kills} kills, {total} acknowledged transactions, none lost");
}
