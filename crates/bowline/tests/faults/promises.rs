//! Single promises about failures, with threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bowline::vfs::{OsVfs, Vfs};
use bowline::{
    Background, CompactionOptions, Db, DbBuilder, Durability, Error, Revision, StorageError,
};
use bowline_testing::fault::{Call, Failure, Rule, Traced};
use bowline_testing::{FaultVfs, SimDisk};

/// What takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Each failure comes long before so many commits of one writer.
const COMMITS_MAX: u32 = 5_000;

fn small(vfs: &FaultVfs, background: Background) -> DbBuilder {
    Db::builder()
        .vfs(Arc::new(vfs.clone()))
        .background(background)
        .memtable_bytes(64 << 10)
        .log_segment_bytes(64 << 10)
}

fn wait_for(what: &str, is_so: impl FnMut() -> bool) {
    wait_at_most(TIMEOUT, what, is_so);
}

fn wait_at_most(timeout_max: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout_max;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn assert_poisoned<T: std::fmt::Debug>(result: &Result<T, Error>) {
    let is_poisoned = matches!(result, Err(Error::Storage(StorageError::Poisoned { .. })));
    assert!(is_poisoned, "{result:?}");
}

/// A commit leader that panics within its write or flush takes nobody with it: each member of its
/// group, and everyone who comes later, gets an error. Found in review; before, members waited for
/// ever for a leader that was gone.
#[test]
fn a_leader_that_panics_leaves_nobody_waiting() {
    let mut told = 0;
    for nth in 1..=12 {
        for call in [Call::Write, Call::Sync] {
            let directory = tempfile::tempdir().expect("a directory");
            // On a real disk, whose flush takes long enough for others to join.
            let vfs = FaultVfs::new(OsVfs);
            let db = small(&vfs, Background::Manual)
                .open(directory.path().join("db"))
                .expect("it opens");
            vfs.add(Rule::on(call).path(".log").nth(nth).panic());
            let (sender, ended) = mpsc::channel();
            let barrier = Arc::new(Barrier::new(6));
            for writer in 0..6 {
                let (db, sender, barrier) = (db.clone(), sender.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    for at in 0..COMMITS_MAX {
                        let key = format!("w{writer}-{at}");
                        let put = catch_unwind(AssertUnwindSafe(|| db.put(&key, "v")));
                        match put {
                            Ok(Ok(_)) => {}
                            Ok(Err(error)) => {
                                sender.send(Some(error)).expect("sent");
                                break;
                            }
                            Err(_) => {
                                sender.send(None).expect("sent");
                                break;
                            }
                        }
                    }
                });
            }
            let mut panics = 0;
            for _ in 0..6 {
                match ended.recv_timeout(TIMEOUT).expect("a writer hangs") {
                    None => panics += 1,
                    Some(error) => {
                        let text = error.to_string();
                        let is_member = text.contains("the leader of the commit group panicked");
                        let is_later = text.contains("a commit group was dropped half-way");
                        assert!(is_member || is_later, "{text}");
                        assert!(!error.is_retryable());
                        told += usize::from(is_member);
                    }
                }
            }
            assert_eq!(panics, 1, "{call:?} {nth}");
            assert_poisoned(&db.put("later", "v"));
        }
    }
    println!("{told} members were told that their leader had panicked");
    assert!(told > 0, "no leader ever had a member");
}

/// Many commits share the flush that fails: none of them is acknowledged, and no later one is.
#[test]
fn no_member_of_a_group_is_acknowledged_whose_flush_failed() {
    for nth in 1..=12 {
        let directory = tempfile::tempdir().expect("a directory");
        let vfs = FaultVfs::new(OsVfs);
        let path = directory.path().join("db");
        let db = small(&vfs, Background::Threads)
            .open(&path)
            .expect("it opens");
        vfs.add(Rule::on(Call::Sync).path(".log").nth(nth).fail(Failure::Io));
        let acknowledged = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut last = Revision::ZERO;
                        for at in 0.. {
                            assert!(at < COMMITS_MAX, "nothing was refused");
                            match db.put(format!("w{writer}-{at:05}"), [writer; 100]) {
                                Ok(revision) => last = revision,
                                Err(error) => {
                                    assert_poisoned(&Err::<(), _>(error));
                                    break;
                                }
                            }
                        }
                        last
                    })
                })
                .collect();
            let last = writers
                .into_iter()
                .map(|writer| writer.join().expect("no panic"));
            last.max().unwrap_or_default()
        });
        let revision = db.revision();
        assert!(
            acknowledged <= revision,
            "acknowledged {acknowledged}, visible {revision}"
        );
        for _ in 0..3 {
            assert_poisoned(&db.put("later", "v"));
            assert_poisoned(&db.sync());
        }
        assert_eq!(db.revision(), revision, "refused commits are never seen");
        drop(db);
        let db = small(&FaultVfs::new(OsVfs), Background::Manual)
            .open(&path)
            .expect("it opens");
        assert!(db.revision() >= revision);
        assert!(db.check().expect("a check").is_clean());
    }
}

/// The thread that flushes batched commits meets the failure: later commits are refused.
#[test]
fn a_failed_flush_in_the_background_stops_writes() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let every = Duration::from_millis(1);
    let db = small(&vfs, Background::Threads)
        .durability(Durability::Batched { every })
        .open("db")
        .expect("it opens");
    db.put("before", "v").expect("a put");
    db.sync().expect("a sync");
    vfs.add(Rule::on(Call::Sync).path(".log").fail(Failure::Io));
    let mut puts = std::iter::repeat_with(|| db.put("k", "v")).take(1_000_000);
    let refused = puts.find_map(Result::err);
    assert_poisoned(&Err::<(), _>(refused.expect("an error")));
    assert_poisoned(&db.sync());
    assert_poisoned(&db.put("k", "v"));
    assert!(db.get("before").expect("reads go on").is_some());
    let after = FaultVfs::new(disk.after_power_loss());
    let db = small(&after, Background::Manual)
        .open("db")
        .expect("it opens");
    assert!(db.get("before").expect("a read").is_some());
}

const UNFLUSHED: u32 = 10;

/// Commits that are not flushed, nobody who flushes them by time, and too few for a segment to be
/// prepared behind theirs: its mark would flush them.
fn unflushed(disk: &SimDisk) -> (FaultVfs, Db) {
    let vfs = FaultVfs::new(disk.clone());
    let every = Duration::from_secs(3_600);
    let db = small(&vfs, Background::Threads)
        .durability(Durability::Batched { every })
        .open("db")
        .expect("it opens");
    for number in 0..UNFLUSHED {
        db.put(format!("key-{number}"), "v").expect("a put");
    }
    (vfs, db)
}

/// With threads, the log is made durable while the tables are written. Tables that ran ahead of it
/// would be a log that has lost its end to whoever opens them after a power loss.
#[test]
fn tables_never_run_ahead_of_the_log() {
    let disk = SimDisk::new();
    let (_, db) = unflushed(&disk);
    db.flush().expect("a flush");
    let after = FaultVfs::new(disk.after_power_loss());
    drop(db);
    let db = small(&after, Background::Manual)
        .open("db")
        .expect("it opens");
    for number in 0..UNFLUSHED {
        let found = db.get(format!("key-{number}")).expect("a read");
        assert!(found.is_some(), "key {number} is gone");
    }
    assert!(db.check().expect("a check").is_clean());
}

/// The log fails while the tables beside it are written: they are not installed, and nothing is left
/// of them.
#[test]
fn a_log_that_fails_beside_a_flush_leaves_no_tables() {
    let disk = SimDisk::new();
    let (vfs, db) = unflushed(&disk);
    vfs.add(Rule::on(Call::Sync).path(".log").fail(Failure::Io));
    let flushed = db.flush();
    assert!(matches!(flushed, Err(Error::Storage(_))), "{flushed:?}");
    assert!(!vfs.injected().is_empty());
    assert!(db.stats().engine.levels.iter().all(Vec::is_empty));
    // The thread that flushes tries it again, with the same end.
    let is_table = |path: &String| path.ends_with(".table");
    wait_at_most(Duration::from_secs(5), "a disk without tables", || {
        !disk.paths().iter().any(is_table)
    });
    assert_poisoned(&db.put("k", "v"));
    assert!(db.get("key-0").expect("reads go on").is_some());
    let after = FaultVfs::new(disk.after_power_loss());
    let db = small(&after, Background::Manual)
        .open("db")
        .expect("it opens");
    assert!(db.check().expect("a check").is_clean());
}

fn tables_on(disk: &SimDisk) -> usize {
    let paths = disk.paths();
    paths.iter().filter(|path| path.ends_with(".table")).count()
}

/// The manifest could not be written: the tables of the flush stayed on the disk until the next opening,
/// and each attempt added as many, on a disk that may be full. Read in the source.
#[test]
fn a_flush_that_is_not_recorded_leaves_no_tables() {
    for failure in [Failure::Io, Failure::NoSpace] {
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        let db = small(&vfs, Background::Manual)
            .open("db")
            .expect("it opens");
        db.put("k", "v").expect("a put");
        vfs.add(
            Rule::on(Call::Write)
                .path("manifest-")
                .for_ever()
                .fail(failure),
        );
        for _ in 0..3 {
            let flushed = db.flush();
            assert!(matches!(flushed, Err(Error::Storage(_))), "{flushed:?}");
            assert_eq!(tables_on(&disk), 0, "{failure:?}");
        }
        assert!(vfs.injected().len() >= 3);
        vfs.clear();
        let after = small(&FaultVfs::new(disk.after_power_loss()), Background::Manual)
            .open("db")
            .expect("it opens");
        assert!(after.get("k").expect("a read").is_some());
        db.flush().expect("it is tried again");
        assert_eq!(tables_on(&disk), 1);
        db.put("k", "w").expect("a put");
        db.close().expect("it closes");
        let db = small(&FaultVfs::new(disk.after_power_loss()), Background::Manual)
            .open("db")
            .expect("it opens");
        assert_eq!(db.get("k").expect("a read").as_deref(), Some(&b"w"[..]));
        assert!(db.check().expect("a check").is_clean());
    }
}

/// Whether the record of a flush is on the disk is unknown after a failed sync: its tables must stay, and
/// no further ones are written, however often it is tried.
#[test]
fn a_flush_of_unknown_outcome_keeps_its_tables_and_writes_no_more() {
    for call in [Call::Sync, Call::Write] {
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        let db = small(&vfs, Background::Manual)
            .open("db")
            .expect("it opens");
        db.put("k", "v").expect("a put");
        let rule = Rule::on(call).path("manifest-");
        vfs.add(match call {
            Call::Sync => rule.fail_after(Failure::Io),
            // It is there, and cannot be taken back for sure.
            _ => rule.fail_after(Failure::Io),
        });
        if call == Call::Write {
            vfs.add(Rule::on(Call::Sync).path("manifest-").fail(Failure::Io));
        }
        for _ in 0..3 {
            let flushed = db.flush();
            assert!(matches!(flushed, Err(Error::Storage(_))), "{flushed:?}");
            assert_eq!(tables_on(&disk), 1, "{call:?}");
        }
        for after in [disk.after_power_loss(), disk.after_kill()] {
            let db = small(&FaultVfs::new(after), Background::Manual)
                .open("db")
                .expect("it opens");
            assert!(db.get("k").expect("a read").is_some());
            assert!(db.check().expect("a check").is_clean());
        }
    }
}

/// After the switch to a rewritten manifest failed, either may be the current one after a crash.
/// The old one was appended to all the same: found in review, held by construction until this test.
#[test]
fn after_a_failed_switch_no_manifest_grows() {
    // Long keys, so that a manifest with the bounds of their tables is soon worth rewriting.
    let prepared = || {
        fastrand::seed(1);
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        let db = small(&vfs, Background::Manual)
            .page_bytes(512)
            .compaction(CompactionOptions {
                table_bytes: 4 << 10,
                ..CompactionOptions::default()
            })
            .open("db")
            .expect("it opens");
        for at in 0..12 {
            let key = format!("{at:02}{}", "k".repeat(60_000));
            db.put(&key, "v").expect("a put");
        }
        db.flush().expect("a flush");
        db.delete_range(..).expect("a deletion");
        vfs.start_trace();
        (disk, vfs, db)
    };
    let (_, vfs, db) = prepared();
    db.compact().expect("a merge");
    let is_switch = |call: &Traced| {
        call.call == Call::Rename && call.paths.last().is_some_and(|to| to.ends_with("BOWLINE"))
    };
    let switch = vfs.trace().iter().position(is_switch);
    let switch = switch.expect("the manifest is replaced") as u64;
    for (nth, is_done) in [(1, false), (1, true), (2, false), (2, true)] {
        let (disk, vfs, db) = prepared();
        // The rename, or the sync of the directory that follows it.
        let rule = Rule::on_all().nth(switch + nth);
        vfs.add(match is_done {
            true => rule.fail_after(Failure::Io),
            false => rule.fail(Failure::Io),
        });
        db.compact().expect("its edit is durable");
        assert_eq!(vfs.injected().len(), 1);
        let manifests = || -> Vec<(String, u64)> {
            let names = disk.read_dir(Path::new("db")).expect("a list").into_iter();
            let manifests = names.filter(|name| name.starts_with("manifest-"));
            manifests
                .map(|name| {
                    let found = disk.metadata(&Path::new("db").join(&name));
                    (name, found.expect("a file").map_or(0, |file| file.len))
                })
                .collect()
        };
        let before = manifests();
        assert_eq!(before.len(), 2, "{before:?}");
        let revision = db.put("after", "v").expect("the log still takes writes");
        assert_poisoned(&db.flush());
        assert_poisoned(&db.trim_history(revision));
        assert_eq!(manifests(), before, "a manifest grew after a failed switch");
        assert!(db.get("after").expect("reads go on").is_some());
        for left in [disk.after_kill(), disk.after_power_loss()] {
            let left = FaultVfs::new(left);
            let db = small(&left, Background::Manual)
                .open("db")
                .expect("it opens");
            assert_eq!(db.revision(), revision);
            assert!(db.get("after").expect("a read").is_some());
            db.flush().expect("manifests grow again");
            assert!(db.check().expect("a check").is_clean());
        }
    }
}

/// A background flush or merge that fails is told in the statistics, tried again, and loses nothing.
#[test]
fn background_jobs_that_fail_are_told_and_tried_again() {
    for (call, part) in [
        (Call::Create, ".table"),
        (Call::Write, ".table"),
        (Call::Sync, ".table"),
        (Call::SyncDir, "tables"),
        (Call::Write, "manifest"),
    ] {
        let vfs = FaultVfs::new(SimDisk::new());
        let db = small(&vfs, Background::Threads)
            .open("db")
            .expect("it opens");
        vfs.add(Rule::on(call).path(part).times(1).fail(Failure::Io));
        let mut at = 0;
        wait_for("a failure", || {
            db.put(format!("k{at:05}"), [at as u8; 900]).expect("a put");
            at += 1;
            !vfs.injected().is_empty()
        });
        wait_for("its report", || {
            db.stats().engine.background_error.is_some()
        });
        let error = db.stats().engine.background_error.expect("an error");
        assert!(error.to_string().contains(part), "{error}");
        wait_for("the next attempt", || {
            db.stats().engine.background_error.is_none()
        });
        assert!(db.stats().engine.counters.flushes > 0);
        drop(db);
        let db = small(&vfs, Background::Manual)
            .open("db")
            .expect("it opens");
        for written in 0..at {
            let value = db.get(format!("k{written:05}")).expect("a read");
            assert_eq!(value.as_deref(), Some(&[written as u8; 900][..]));
        }
        assert!(db.check().expect("a check").is_clean());
    }
}

/// A segment of the log that could not be removed failed every flush behind its tables, so that none asked for the
/// compaction that must follow, and at last all writers waited for ever. Found by review.
#[test]
fn a_segment_that_cannot_be_removed_stops_no_compaction() {
    let vfs = FaultVfs::new(SimDisk::new());
    let db = small(&vfs, Background::Threads)
        .open("db")
        .expect("it opens");
    for call in [Call::Remove, Call::Rename] {
        vfs.add(
            Rule::on(call)
                .path("0000000000000001.log")
                .for_ever()
                .fail(Failure::Io),
        );
    }
    let (sender, ended) = mpsc::channel();
    let writer = db.clone();
    std::thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(7);
        for at in 0..6_000_u32 {
            let mut value = [0; 900];
            random.fill(&mut value);
            writer.put(at.to_be_bytes(), value).expect("a put");
        }
        sender.send(()).expect("sent");
    });
    ended.recv_timeout(3 * TIMEOUT).expect("the writer hangs");
    assert!(db.stats().engine.counters.compactions > 0);
    assert!(!vfs.injected().is_empty());
}

/// After a failed flush of the log a job cannot record what it writes. It wrote it all the same, again and again, until
/// the database was closed. Found by review.
#[test]
fn no_job_writes_what_it_cannot_record() {
    let vfs = FaultVfs::new(SimDisk::new());
    let db = small(&vfs, Background::Threads)
        .open("db")
        .expect("it opens");
    let error = || db.stats().engine.background_error;
    vfs.add(
        Rule::on(Call::Create)
            .path(".table")
            .for_ever()
            .fail(Failure::Io),
    );
    let mut at = 0_u32;
    wait_for("a memtable that is not written", || {
        db.put(at.to_be_bytes(), [0; 900]).expect("a put");
        at += 1;
        error().is_some()
    });
    vfs.add(Rule::on(Call::Sync).path(".log").times(1).fail(Failure::Io));
    assert_poisoned(&db.put("k", [1; 900]));
    vfs.clear();
    vfs.start_trace();
    wait_for("the next attempt", || {
        error().is_some_and(|error| matches!(error, StorageError::Poisoned { .. }))
    });
    let trace = vfs.trace();
    let created = trace.iter().filter(|traced| traced.call == Call::Create);
    assert_eq!(created.count(), 0);
}

/// Writers that wait for a flush whose thread has panicked are told.
#[test]
fn a_background_thread_that_panics_leaves_no_writer_waiting() {
    let vfs = FaultVfs::new(SimDisk::new());
    let db = small(&vfs, Background::Threads)
        .open("db")
        .expect("it opens");
    vfs.add(Rule::on(Call::Create).path(".table").panic());
    let (sender, ended) = mpsc::channel();
    let writer = db.clone();
    std::thread::spawn(move || {
        let refused = (0..).map(|at: u32| writer.put(at.to_be_bytes(), [0; 900]));
        let error = refused.into_iter().find_map(Result::err);
        sender.send(error).expect("sent");
    });
    let error = ended.recv_timeout(TIMEOUT).expect("the writer hangs");
    let text = error.expect("an error").to_string();
    assert!(text.contains("panicked"), "{text}");
    assert!(db.get(0_u32.to_be_bytes()).expect("reads go on").is_some());
}
