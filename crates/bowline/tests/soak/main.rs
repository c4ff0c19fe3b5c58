//! Everything at once, for minutes, with real threads on real files, each worker verifying what it
//! sees ([`workers`]); after which memory, threads, open files and disk come back to where they
//! began ([`measure`]).
//!
//! The run is a number of cycles. Each opens the database twice, with batched and with synced
//! commits, and ends with a clean-up: everything deleted, history trimmed, tables merged. What is
//! used then, with the database open and after it is closed, must be the same in the last cycle as
//! in the second one; the first warms up what a process keeps for good. An open database that nobody asks anything takes
//! next to no processor time.
//!
//! Beside it, a budget of memory through which far more passes ([`budget`]).
//!
//! `BOWLINE_SOAK_SECONDS` sets how long (default 60). Threads run as they like, so a seed repeats
//! the choices, not the interleaving.

mod budget;
mod measure;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::{Db, DbBuilder, Durability, History, Result};
use bowline_storage::memtable::Memtable;
use bowline_storage::{EntryKind, TreeId};
#[cfg(target_os = "linux")]
use bowline_testing::vitals;
use bowline_testing::{Seed, skip, skip_part};

use measure::{Usage, allocations_of, bowline_threads, heap_bytes, resident_bytes};
use workers::{Work, clean_up};

const CYCLES: u64 = 6;

/// Memtables, tables and segments so small that seconds fill many.
const MEMTABLE_BYTES: usize = 1 << 20;
const SEGMENT_BYTES: u64 = 1 << 20;

/// Live heap that may differ between two clean states, with no database open. None of it is the
/// database's: the test runner's lists and lines, records of threads, and the table of those that
/// wait for a lock, which doubles with the number of threads and is never given back. A page
/// that is leaked is 8 KiB, a memtable 1 MiB; what grows by a few bytes with every commit comes to
/// more within a cycle.
const HEAP_MARGIN_BYTES: i64 = 32 << 10;
/// With the database open, the buffers of commits and of the log have the size of what they held
/// last, of which they keep up to 1 MiB each; here the largest value makes some 400 KB of it.
const OPEN_HEAP_MARGIN_BYTES: i64 = 1 << 20;
/// What is freed stays with the allocator, in arenas of its own for each thread that ever met
/// another in it; how much of it is resident changes from cycle to cycle.
const RESIDENT_MARGIN_BYTES: i64 = 64 << 20;
/// What is left when everything is deleted: the names of kinds.
const TABLES_MAX_BYTES: u64 = 16 << 10;
/// Segments of the log: the one that is written, those ahead, and those of short runs.
const SEGMENTS_MAX: u64 = 16 + 4;
/// Segments of the log are kept ahead and reused: this many more or fewer.
const SEGMENTS_MARGIN: u64 = 4;

/// How long an idle database is looked at.
#[cfg(target_os = "linux")]
const IDLE: Duration = Duration::from_millis(500);
/// The most of a core that it may take then.
#[cfg(target_os = "linux")]
const IDLE_CORES: f64 = 0.10;

/// One test at a time: what is measured belongs to the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A test that failed leaves nothing that another would trip over.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
    })
}

fn small() -> DbBuilder {
    Db::builder()
        .memtable_bytes(MEMTABLE_BYTES)
        .cache_bytes(1 << 20)
        .log_segment_bytes(SEGMENT_BYTES)
        .watch_ring_bytes(1 << 20)
        .watch_lag_max(20_000)
        .history(History::Revisions(2_000))
}

/// What is used in a clean state.
#[derive(Clone, Copy, Debug)]
struct Clean {
    open: Usage,
    closed: Usage,
}

fn cycle(path: &Path, span: Duration, seed: Seed) -> Result<Clean> {
    let every = Duration::from_millis(5);
    live(path, Durability::Batched { every }, span / 2, seed.part(0))?;
    let db = live(path, Durability::Sync, span / 2, seed.part(1))?;
    // Not opened anew: what was held for readers that are gone must not be.
    clean_up(&db)?;
    // The thread that removes and prepares files has its time.
    std::thread::sleep(Duration::from_millis(200));
    #[cfg(target_os = "linux")]
    idles(path);
    let open = Usage::now(path);
    let stats = db.stats();
    assert_eq!((stats.watchers, stats.leases), (0, 0));
    let levels = stats.engine.levels.iter().flatten();
    let tables: u64 = levels.map(|level| level.tables).sum();
    let files = |name| std::fs::read_dir(path.join(name)).map_or(0, Iterator::count) as u64;
    let named = tables + stats.engine.blob_files;
    assert_eq!(files("tables"), named, "tables that nothing names");
    assert!(files("log") <= SEGMENTS_MAX, "{} segments", files("log"));
    let table_bytes = stats.engine.table_bytes + stats.engine.blob_bytes;
    assert!(
        table_bytes <= TABLES_MAX_BYTES,
        "{table_bytes} bytes of nothing"
    );
    db.close()?;
    drop(db);
    assert_eq!(bowline_threads(), 0, "threads of a closed database");
    Ok(Clean {
        open,
        closed: Usage::now(path),
    })
}

/// Nobody asks anything of the database, and no thread of it is busy.
#[cfg(target_os = "linux")]
fn idles(path: &Path) {
    let process = vitals::Process {
        name: "the process".to_owned(),
        pid: std::process::id(),
        log: None,
        data: Some(path.to_owned()),
    };
    // The others are compared with what they were in the second cycle.
    let bounds = vitals::Bounds {
        cores: IDLE_CORES,
        log_bytes_per_minute: 0,
        resident_bytes: u64::MAX,
        threads: u64::MAX,
        open_files: u64::MAX,
        disk_bytes: u64::MAX,
    };
    let before = process.sample().expect("it runs");
    std::thread::sleep(IDLE);
    match process.judge("with an idle database", &before, &bounds) {
        Ok(usage) => println!("  idle: {usage}"),
        Err(unwell) => panic!("{unwell}"),
    }
}

/// One life of the database, with everything at once.
fn live(path: &Path, durability: Durability, span: Duration, seed: Seed) -> Result<Db> {
    let db = small().durability(durability).open(path)?;
    let work = Work::begin(&db)?;
    work.run(path, span, seed.0);
    work.judge()?;
    println!("  {durability:?}: {}", work.told());
    let counters = db.stats().engine.counters;
    println!(
        "    {} flushes, {} merges, {} syncs of the log",
        counters.flushes, counters.compactions, counters.log_syncs
    );
    Ok(db)
}

/// Compares two clean states.
fn assert_same(second: &Clean, last: &Clean) {
    let heap = |before: Usage, after: Usage, margin: i64, name: &str| {
        let growth = after.heap_bytes - before.heap_bytes;
        assert!(growth <= margin, "{growth} bytes more of live heap, {name}");
    };
    heap(second.closed, last.closed, HEAP_MARGIN_BYTES, "closed");
    heap(second.open, last.open, OPEN_HEAP_MARGIN_BYTES, "open");
    for (before, after) in [(second.open, last.open), (second.closed, last.closed)] {
        assert!(
            after.files <= before.files + SEGMENTS_MARGIN,
            "{} files, {} before",
            after.files,
            before.files
        );
        let most = before.disk_bytes + SEGMENTS_MARGIN * SEGMENT_BYTES;
        assert!(after.disk_bytes <= most, "{after:?}, {before:?}");
        let (Some(before), Some(after)) = (before.process, after.process) else {
            skip_part("resident memory, threads and open files: there is no /proc");
            continue;
        };
        let grown = after.resident_bytes - before.resident_bytes;
        assert!(
            grown <= RESIDENT_MARGIN_BYTES,
            "{grown} bytes more resident"
        );
        assert!(after.threads <= before.threads, "{after:?}, {before:?}");
    }
    if let (Some(before), Some(after)) = (second.closed.process, last.closed.process) {
        assert_eq!(after.open_files, before.open_files);
    }
    if let (Some(before), Some(after)) = (second.open.process, last.open.process) {
        // One for each segment kept ahead, and each table.
        assert!(after.open_files <= before.open_files + SEGMENTS_MARGIN as i64 + 2);
    }
}

/// The memory of memtables came from the allocator, and glibc's keeps what it was once given back in its
/// heap: after 4 GiB a budget was exceeded in which two memtables less would have fit.
#[test]
fn a_memtable_leaves_nothing_in_the_heap() {
    const CAPACITY_BYTES: usize = 24 << 20;
    const FILLED_BYTES: i64 = 16 << 20;
    const MARGIN_BYTES: i64 = 8 << 20;
    let _alone = alone();
    let Some(before) = resident_bytes() else {
        skip("this system does not say what is resident");
        return;
    };
    for round in 0..4 {
        let memtable = Memtable::new(1, 1, CAPACITY_BYTES);
        let mut writer = memtable.writer();
        for number in 0..20_000_u64 {
            let key = number.to_be_bytes();
            let inserted = writer.insert(TreeId(0), &key, number + 1, EntryKind::Put, &[7; 1000]);
            inserted.expect("there is room");
        }
        drop(writer);
        let held = resident_bytes().expect("it said so before");
        assert!(
            held > before + FILLED_BYTES,
            "round {round}: {held} of {before}"
        );
        drop(memtable);
        let after = resident_bytes().expect("it said so before");
        assert!(
            after < before + MARGIN_BYTES,
            "round {round}: {after} of {before}"
        );
    }
}

#[test]
fn everything_at_once_leaves_nothing_behind() -> Result<()> {
    let _alone = alone();
    let seed = Seed::from_env_or(41);
    let _guard = seed.print_on_failure("-p bowline --test soak everything_at_once");
    // What the last cycle does is new in each run.
    let fresh = Seed::fresh("-p bowline --test soak everything_at_once");
    let seconds = setting("BOWLINE_SOAK_SECONDS", 60);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    let mut clean = Vec::new();
    for number in 0..CYCLES {
        println!("cycle {}", number + 1);
        let span = Duration::from_secs(seconds) / CYCLES as u32;
        let seed = fresh.filter(|_| number + 1 == CYCLES).unwrap_or(seed);
        let now = cycle(&path, span, seed.part(number))?;
        println!("  {now:?}");
        clean.push(now);
    }
    assert_same(&clean[1], &clean[CYCLES as usize - 1]);
    let grown = |pair: &[Clean]| pair[1].closed.heap_bytes > pair[0].closed.heap_bytes;
    println!(
        "live heap, closed, grew in {} of {} cycles after the second",
        clean[1..].windows(2).filter(|pair| grown(pair)).count(),
        CYCLES - 2
    );
    Ok(())
}

/// Where opening is quick: the file system in memory, if there is one.
fn quick_place() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    made.expect("a directory")
}

/// Whatever goes last closes it: a handle, a clone, a snapshot, a watcher.
fn open_and_close(path: &Path, number: usize) -> Result<()> {
    let db = small().open(path)?;
    if number.is_multiple_of(10) {
        db.put(format!("{}", number % 70), [7; 500])?;
    }
    let clone = db.clone();
    match number % 4 {
        0 => drop(clone),
        1 => {
            let snapshot = clone.snapshot();
            drop((db, clone));
            assert!(snapshot.range(..)?.count() > 0);
        }
        2 => {
            let watcher = clone.watch(..).start()?;
            drop((clone, db));
            drop(watcher);
        }
        _ => {
            clone.close()?;
            assert!(db.get("0").is_err());
        }
    }
    Ok(())
}

#[test]
fn a_thousand_openings_leave_nothing_behind() -> Result<()> {
    const WARM: usize = 100;
    let _alone = alone();
    let directory = quick_place();
    let path = directory.path().join("data");
    let mut warm = None;
    for number in 0..WARM + 1_000 {
        open_and_close(&path, number)?;
        assert_eq!(bowline_threads(), 0, "threads of a closed database");
        if number + 1 == WARM {
            warm = Some(Usage::now(&path));
        }
    }
    let (warm, now) = (warm.expect("it was measured"), Usage::now(&path));
    println!("{warm:?}\n{now:?}");
    let growth = now.heap_bytes - warm.heap_bytes;
    assert!(
        growth <= HEAP_MARGIN_BYTES,
        "{growth} bytes more of live heap"
    );
    // Of what many short openings leave, some may be flushed away just before and some just after.
    assert!(now.files <= warm.files + 20, "{} files", now.files);
    match (warm.process, now.process) {
        (Some(warm), Some(now)) => {
            assert_eq!(
                (now.threads, now.open_files),
                (warm.threads, warm.open_files)
            );
        }
        _ => skip_part("threads and open files: there is no /proc"),
    }
    Ok(())
}

/// Watchers that take nothing, beside megabytes of changes: what is held for them is bounded by
/// the ring and not by what they have missed.
#[test]
fn stalled_watchers_and_large_commits_hold_no_memory() -> Result<()> {
    const RING_BYTES: u64 = 1 << 20;
    let _alone = alone();
    let directory = quick_place();
    let db = small()
        .durability(Durability::Batched {
            every: Duration::from_millis(50),
        })
        .watch_ring_bytes(RING_BYTES)
        .open(directory.path().join("data"))?;
    let write = |times: usize| -> Result<()> {
        for number in 0..times {
            db.put(format!("{}", number % 100), vec![number as u8; 10_000])?;
        }
        db.delete_range(..)?;
        db.trim_history(db.revision())?;
        db.compact()
    };
    write(500)?;
    let before = heap_bytes();
    let stalled: Vec<_> = (0..300)
        .map(|_| db.watch(..).start())
        .collect::<Result<_>>()?;
    write(4_000)?;
    let watched = heap_bytes() - before;
    println!(
        "{watched} bytes more with {} stalled watchers",
        stalled.len()
    );
    // The ring, and its records of at most 4,096 revisions.
    let most = RING_BYTES as i64 + (512 << 10);
    assert!(
        watched < most,
        "{watched} bytes are held for stalled watchers"
    );
    drop(stalled);
    write(500)?;
    let after = heap_bytes() - before;
    println!("{after} bytes more when they are gone");
    // Buffers that hold no more than one of these commits.
    assert!(after < 64 << 10, "{after} bytes are held for nobody");

    // A commit of many megabytes leaves none of them.
    db.put("large", vec![7; 40 << 20])?;
    write(500)?;
    let large = heap_bytes() - before;
    println!("{large} bytes more after a commit of 40 MiB");
    assert!(large < 2 << 20, "{large} bytes are held of a large commit");
    Ok(())
}

/// A put costs the log's write and flush, a get the copy of the value: neither asks for memory.
#[test]
fn a_put_and_a_get_of_a_short_value_ask_for_no_memory() -> Result<()> {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    for durability in [
        Durability::Sync,
        Durability::Batched {
            every: Duration::from_millis(10),
        },
    ] {
        let builder = Db::builder().durability(durability);
        let db = builder.open(directory.path().join(format!("{durability:?}")))?;
        let keys: Vec<String> = (0..50).map(|number| format!("key/{number:012}")).collect();
        let put_all = |value: &[u8]| {
            for key in &keys {
                db.put(key, value).expect("a put");
            }
        };
        // Buffers grow to what they need, and a little more: a revision of more digits takes a byte.
        put_all(&[0; 110]);
        let of_puts = allocations_of(|| put_all(&[2; 100]));
        assert_eq!(of_puts, 0, "puts, {durability:?}");
        let snapshot = db.snapshot();
        let mut found = 0;
        let of_gets = allocations_of(|| {
            for key in &keys {
                let newest = db.get(key).expect("a get").expect("a value");
                let seen = snapshot.get(key).expect("a get").expect("a value");
                found += usize::from(newest[..] == [2; 100] && seen == newest);
            }
        });
        assert_eq!((of_gets, found), (0, keys.len()), "gets, {durability:?}");
    }
    Ok(())
}
