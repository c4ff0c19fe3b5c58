//! SIGKILL at the n-th call of the file system, for every n of a workload.
//!
//! The child carries out fixed steps, one commit or one maintenance job each, on the real file
//! system behind a wrapper that kills the process with SIGKILL in its n-th call that changes
//! something: when the call is done, or, for a write, when half of it is. Its parent knows what
//! the database holds after each step from a run that nobody killed, so the state after a kill is
//! compared as a whole: it is that after the last acknowledged step, or after the next one.
//!
//! What a process has written stays when it is killed, so no sync has to reach the disk here: syncs
//! are calls to be killed in and nothing else, or the sweeps would take hours on a busy disk.
//!
//! The first sweep begins with no database, the second with one whose process was killed, so that
//! it goes through recovery, too. `BOWLINE_KILL_CALLS_STRIDE` skips calls (default 5; 1 tries all of them, writes both whole and half).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline::vfs::{Metadata, OpenMode, OsVfs, Vfs, VfsFile, VfsLock};
use bowline::{
    Background, Block, BlockId, CompactionOptions, Db, DbBuilder, Edge, Expected, Range, Result,
    Revision, Strategy,
};
use bowline_testing::Seed;
use bowline_testing::lease_id;

use crate::support::Contents;
use crate::{FORKING, assert_no_leftovers, kill_self, setting};

const DIRECTORY: &str = "BOWLINE_KILL_CALLS_DIRECTORY";
const STEPS: &str = "BOWLINE_KILL_CALLS_STEPS";
const AT: &str = "BOWLINE_KILL_CALLS_AT";
const HALF: &str = "BOWLINE_KILL_CALLS_HALF";

/// The steps of the first life, and of both.
const FIRST: u64 = 64;
const ALL: u64 = 96;

/// What is written whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Kills the process in the call with the number `at`.
#[derive(Debug)]
struct Trigger {
    calls: AtomicU64,
    at: u64,
    half: bool,
}

impl Trigger {
    /// Counts a call; whether this is the one.
    fn is_it(&self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.at
    }

    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        let is_it = self.is_it();
        let result = call();
        if is_it {
            kill_self();
        }
        result
    }
}

#[derive(Clone, Debug)]
struct KillVfs(Arc<Trigger>);

#[derive(Debug)]
struct KillFile(Arc<dyn VfsFile>, Arc<Trigger>);

impl Vfs for KillVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let file = if mode == OpenMode::CreateNew {
            self.0.around(|| OsVfs.open(path, mode))?
        } else {
            OsVfs.open(path, mode)?
        };
        Ok(Arc::new(KillFile(file, self.0.clone())))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.around(|| OsVfs.create_dir(path))
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        OsVfs.read_dir(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        OsVfs.metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.around(|| OsVfs.rename(from, to))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.around(|| OsVfs.remove_file(path))
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.0.around(|| Ok(()))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.0.around(|| OsVfs.lock(path))
    }
}

impl VfsFile for KillFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let is_it = self.1.is_it();
        let len = if is_it && self.1.half {
            // Without the zeros that fill a page behind what is meant, so that this is cut.
            let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
            let is_filled = zeros >= SECTOR_BYTES && zeros < bytes.len();
            (bytes.len() - if is_filled { zeros } else { 0 }) / 2
        } else {
            bytes.len()
        };
        let written = self.0.write_at(&bytes[..len], offset);
        if is_it {
            kill_self();
        }
        written
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.around(|| Ok(()))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.around(|| self.0.set_len(len))
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

fn builder(at: u64, half: bool) -> (DbBuilder, Arc<Trigger>) {
    let trigger = Arc::new(Trigger {
        calls: AtomicU64::new(0),
        at,
        half,
    });
    let builder = Db::builder()
        .vfs(Arc::new(KillVfs(trigger.clone())))
        .background(Background::Manual)
        .memtable_bytes(8 << 10)
        .cache_bytes(16 << 10)
        .log_segment_bytes(8 << 10)
        .page_bytes(512)
        .compaction(CompactionOptions {
            strategy: Strategy::LazyLeveling,
            runs_max: 2,
            table_bytes: 8 << 10,
            level_base_bytes: 16 << 10,
            ..CompactionOptions::default()
        });
    (builder, trigger)
}

/// Without a kill.
fn open(path: &Path) -> Result<Db> {
    builder(0, false).0.open(path)
}

fn checkpoint_of(path: &Path, step: u64) -> PathBuf {
    path.with_extension(format!("checkpoint-{step}"))
}

/// Step `step`: changes at most one thing that can be seen.
fn carry_out(db: &Db, path: &Path, step: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(step);
    let value: Vec<u8> = (0..300).map(|_| rng.u8(..)).collect();
    let key = format!("k{}", rng.u32(0..12));
    let lease = 1 + (step / 16) as i64;
    match step % 16 {
        0 | 8 => db.transact(|tx| {
            let id = BlockId::from_name(&format!("{step}"));
            tx.put_block(&Block::new(id, "step").content(value.clone()))?;
            if step >= 8 {
                let before = BlockId::from_name(&format!("{}", step - 8));
                tx.put_edge(&Edge::new(id, "after", before))?;
            }
            tx.put("latest", step.to_string())?;
            tx.delete(&key)?;
            tx.put(format!("t{step}"), &value)
        }),
        1 => db.grant_lease_with_id(lease_id(lease), std::time::Duration::from_secs(3600)),
        2 | 3 => db
            .put_with_lease(format!("l{step}"), &value, lease_id(lease))
            .map(drop),
        4 => db.delete(key).map(drop),
        5 => db.delete_range(Range::from("k2".."k5")).map(drop),
        6 if step > 50 => db.trim_history(db.revision() - 3),
        7 if step > 30 => db.compact(),
        9 if step > 40 => db.checkpoint(checkpoint_of(path, step)).map(drop),
        10 if step > 20 => db.revoke_lease(lease_id(lease)).map(drop),
        11 => db.flush(),
        12 => {
            let revision = db.entry(&key)?.map(|entry| entry.mod_revision);
            db.compare_and_swap(&key, Expected::from(revision), &value)
                .map(drop)
        }
        13 if step > 40 => db.transact(|tx| {
            let id = BlockId::from_name(&format!("{}", step - 29));
            tx.delete_block(id).map(drop)
        }),
        _ => db.put(key, value).map(drop),
    }
}

/// The child: carries out the steps it is told to, telling of each when it is done.
#[test]
fn child() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let path = Path::new(&path);
    let text = std::env::var(STEPS).expect("the steps");
    let (first, end) = text.split_once("..").expect("a range");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (builder, trigger) = builder(setting(AT, 0), std::env::var_os(HALF).is_some());
    let tell = |what: &str, number: u64| {
        let line = format!("\n{what} {number}\n");
        io::stdout().write_all(line.as_bytes()).expect("a pipe");
    };
    let db = builder.open(path).expect("the database opens");
    for step in number(first)..number(end) {
        carry_out(&db, path, step).expect("a step");
        tell("done", step + 1);
    }
    tell("calls", trigger.calls.load(Ordering::SeqCst));
    // Not even here is the database closed.
    kill_self();
}

/// How a child ended: how many steps it told of, and how many calls it made in all, if it came to
/// the end.
fn run_child(path: &Path, steps: std::ops::Range<u64>, at: u64, half: bool) -> (u64, Option<u64>) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "calls::child", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, path)
        .env(STEPS, format!("{}..{}", steps.start, steps.end))
        .env(AT, at.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if half {
        command.env(HALF, "1");
    }
    let child = {
        let _forking = FORKING.lock();
        command.spawn().expect("the child starts")
    };
    let output = child.wait_with_output().expect("an end");
    let status = output.status;
    assert!(
        status.code().is_none(),
        "call {at}: it ended by itself: {status}"
    );
    let (mut done, mut calls) = (steps.start, None);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(' ') {
            Some(("done", number)) => done = number.parse().expect("a number"),
            Some(("calls", number)) => calls = Some(number.parse().expect("a number")),
            _ => {}
        }
    }
    (done, calls)
}

/// All that can be seen of a database.
#[derive(PartialEq)]
struct State {
    revision: Revision,
    contents: Contents,
    leases: BTreeMap<i64, Vec<bowline::Value>>,
}

impl State {
    fn of(db: &Db) -> Result<State> {
        let leases = db.leases().into_iter();
        Ok(State {
            revision: db.revision(),
            contents: Contents::of_snapshot(&db.snapshot())?,
            leases: leases
                .map(|lease| {
                    Ok((
                        lease.id.get(),
                        db.lease_keys(lease.id)?.collect::<Result<Vec<_>>>()?,
                    ))
                })
                .collect::<Result<_>>()?,
        })
    }
}

/// The state after each number of steps, from a run without a kill.
fn reference(path: &Path) -> Result<Vec<State>> {
    let db = open(path)?;
    let mut states = vec![State::of(&db)?];
    for step in 0..ALL {
        carry_out(&db, path, step)?;
        states.push(State::of(&db)?);
    }
    Ok(states)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// What the sweeps came to.
#[derive(Debug, Default)]
struct Summary {
    kills: u64,
    acknowledged: u64,
    unknown_and_there: u64,
    unknown_and_not: u64,
    before_there_was_a_database: u64,
    checkpoints: u64,
}

/// Opens what a kill left behind and compares it with what was acknowledged.
fn judge(path: &Path, done: u64, states: &[State], told: &mut Summary) -> Result<()> {
    told.kills += 1;
    if !path.join("BOWLINE").exists() {
        assert_eq!(done, 0);
        told.before_there_was_a_database += 1;
    }
    let db = open(path)?;
    let found = State::of(&db)?;
    let (before, after) = (&states[done as usize], states.get(done as usize + 1));
    told.acknowledged += done;
    if found == *before {
        told.unknown_and_not += 1;
    } else if Some(&found) == after {
        told.unknown_and_there += 1;
    } else {
        let difference = found.contents.difference(&before.contents);
        panic!(
            "after {done} steps, at revision {} instead of {}, with the leases {:?}: {difference:?}",
            found.revision, before.revision, found.leases
        );
    }
    let check = db.check()?;
    assert!(check.is_clean(), "{check:?}");
    assert_eq!(db.put("next", "x")?, found.revision + 1);
    assert_no_leftovers(&db, path);
    db.close()?;
    for step in 0..=done {
        let copy = checkpoint_of(path, step);
        if copy.join("BOWLINE").exists() {
            let db = open(&copy)?;
            let state = State::of(&db)?;
            assert!(state == states[step as usize], "the checkpoint of {step}");
            assert!(db.check()?.is_clean(), "the checkpoint of {step}");
            told.checkpoints += 1;
        } else {
            assert!(!copy.exists() || step == done, "no checkpoint of {step}");
        }
    }
    Ok(())
}

#[test]
fn a_kill_at_any_call_of_the_file_system_loses_nothing() -> Result<()> {
    let seed = Seed::from_env_or(31);
    let _guard = seed.print_on_failure("-p bowline --test kill a_kill_at_any_call");
    let stride = setting("BOWLINE_KILL_CALLS_STRIDE", 5).max(1);
    let temporary = tempfile::tempdir().expect("a directory");
    let place = |name: String| temporary.path().join(name).join("data");
    let make = |path: &Path| std::fs::create_dir(path.parent().expect("its place"));
    let whole = place("reference".to_owned());
    make(&whole).expect("a directory");
    let states = reference(&whole)?;
    let base = place("base".to_owned());
    make(&base).expect("a directory");

    for (name, steps) in [("a new database", 0..FIRST), ("recovery", FIRST..ALL)] {
        let is_first = steps.start == 0;
        let mut told = Summary::default();
        let mut at = 1 + seed.0 % stride;
        let calls = 'sweep: loop {
            for half in [false, true] {
                if stride > 1 && half != (at / stride).is_multiple_of(2) {
                    continue;
                }
                let path = place(format!("{name}-{at}-{half}"));
                let parent = path.parent().expect("its place");
                if is_first {
                    make(&path).expect("a directory");
                } else {
                    copy(base.parent().expect("its place"), parent).expect("a copy");
                }
                let (done, calls) = run_child(&path, steps.clone(), at, half);
                if let Some(calls) = calls {
                    break 'sweep calls;
                }
                judge(&path, done, &states, &mut told)
                    .unwrap_or_else(|error| panic!("{name}, killed in call {at}: {error}"));
                std::fs::remove_dir_all(parent).expect("it is removed");
            }
            at += stride;
        };
        println!("{name}: killed in every {stride}. of {calls} calls: {told:?}");
        assert!(
            told.kills >= calls / stride - 1 && told.unknown_and_there > 0,
            "{told:?}"
        );
        assert!(told.checkpoints > 0, "{told:?}");
        assert_eq!(told.before_there_was_a_database > 0, is_first, "{told:?}");
        if is_first {
            // What the second sweep begins with: all steps done, and not closed.
            let (done, _) = run_child(&base, steps.clone(), 0, false);
            assert_eq!(done, FIRST);
        }
    }
    Ok(())
}
