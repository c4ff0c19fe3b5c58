//! Watching, with many watchers of every kind at once: each sees every change of its range once,
//! in order, all of a revision together and with the right previous entries, or is told from
//! which revision on it can go on, and then misses nothing from there.
//!
//! Writers note what each commit was acknowledged with ([`truth`]); hundreds of watchers
//! ([`watchers`]) are fast, slow or stalled, start now, in the past or in the future, are dropped
//! and resumed, also on the database opened again, while memtables are flushed, tables merged and
//! history trimmed. When the writers are done, what each watcher saw is compared with the notes.
//! [`crash`] does the same over power losses.
//!
//! `BOWLINE_WATCH_ROUNDS` sets how often each of the settings is tried (default 2), and
//! `BOWLINE_WATCH_IMAGES` how many crash images (default 300). Threads run as they like, so a
//! seed repeats the choices, not the interleaving.

mod crash;
mod faults;
mod truth;
mod watchers;
mod writers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bowline::vfs::MemoryVfs;
use bowline::{CompactionOptions, Db, DbBuilder, History, Revision, Strategy};
use bowline_testing::Seed;
use parking_lot::Mutex;

use truth::Notes;
use watchers::{Bounds, Pace, Watching};

/// Longer than anything takes that goes on at all.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
    })
}

/// Runs `body` on a thread of its own and fails when it does not come to an end.
pub(crate) fn within_timeout<T: Send>(what: &str, body: impl FnOnce() -> T + Send) -> T {
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let running = scope.spawn(move || {
            let _done = done;
            body()
        });
        if ended.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A scope waits for its threads, so unwinding would wait, too.
            eprintln!("{what} hangs: nothing came of it in {TIMEOUT:?}");
            std::process::abort();
        }
        running
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Memtables, pages and tables so small that a few thousand commits flush and merge.
pub(crate) fn small() -> DbBuilder {
    Db::builder()
        .memtable_bytes(32 << 10)
        .cache_bytes(32 << 10)
        .log_segment_bytes(64 << 10)
        .page_bytes(512)
        .compaction(CompactionOptions {
            strategy: Strategy::LazyLeveling,
            runs_max: 2,
            table_bytes: 16 << 10,
            level_base_bytes: 32 << 10,
            ..CompactionOptions::default()
        })
}

/// Settings to try.
struct Plan {
    name: &'static str,
    history: History,
    kept: u64,
    ring_bytes: u64,
    lag_max: u64,
    /// Whether upkeep trims history.
    compacts: bool,
}

const PLANS: [Plan; 6] = [
    Plan {
        name: "no history, a tiny ring",
        history: History::None,
        kept: 0,
        ring_bytes: 4 << 10,
        lag_max: u64::MAX,
        compacts: false,
    },
    Plan {
        name: "no history, a short lag",
        history: History::None,
        kept: 0,
        ring_bytes: 4 << 10,
        lag_max: 100,
        compacts: false,
    },
    Plan {
        name: "history trimmed by hand",
        history: History::All,
        kept: u64::MAX,
        ring_bytes: 16 << 10,
        lag_max: u64::MAX,
        compacts: true,
    },
    Plan {
        name: "some revisions, a large ring",
        history: History::Revisions(300),
        kept: 300,
        ring_bytes: 16 << 20,
        lag_max: 1_000_000,
        compacts: false,
    },
    Plan {
        name: "history by time, a small ring",
        history: History::Last(Duration::from_millis(300)),
        kept: 0,
        ring_bytes: 16 << 10,
        lag_max: 1_000_000,
        compacts: false,
    },
    Plan {
        name: "all history, no ring",
        history: History::All,
        kept: u64::MAX,
        ring_bytes: 0,
        lag_max: u64::MAX,
        compacts: false,
    },
];

const WATCHERS: usize = 240;
const POOLS: usize = 3;
const WRITERS: u64 = 3;
const COMMITS_EACH: usize = 400;
const LIVES: u64 = 3;

/// What one plan came to.
#[derive(Debug, Default)]
struct Summary {
    revisions: u64,
    changes: usize,
    widest: usize,
    seen: u64,
    compacted: u64,
    resumed: u64,
    flushes: u64,
    merges: u64,
}

impl Plan {
    fn open(&self, vfs: &Arc<MemoryVfs>) -> Db {
        small()
            .vfs(vfs.clone())
            .history(self.history)
            .watch_ring_bytes(self.ring_bytes)
            .watch_lag_max(self.lag_max)
            .open("/db")
            .expect("the database opens")
    }

    /// Several lives of one database, with the same watchers.
    fn run(&self, seed: Seed) -> Summary {
        let mut rng = seed.rng();
        let vfs = Arc::new(MemoryVfs::default());
        let notes = Mutex::new(Notes::default());
        let given_up = AtomicU64::new(0);
        let mut watching: Vec<_> = (0..WATCHERS).map(|_| Watching::random(&mut rng)).collect();
        let mut told = Summary::default();
        for life in 0..LIVES {
            let db = self.open(&vfs);
            self.live(&db, seed.part(life), &notes, &given_up, &mut watching);
            let bounds = self.bounds(&given_up);
            for one in &mut watching {
                // In the last life all see everything. Before, some leave with work undone.
                if life + 1 == LIVES || rng.bool() {
                    if !one.is_started() {
                        one.begin_again(&db, &mut rng, &bounds);
                    }
                    one.finish(&db, &bounds);
                }
                one.put_aside();
            }
            let stats = db.stats();
            assert_eq!(stats.watchers, 0, "dropped watchers are gone");
            told.revisions = stats.revision.get();
            told.flushes += stats.engine.counters.flushes;
            told.merges += stats.engine.counters.compactions;
        }
        let truth = notes.lock().resolve(Revision::new(told.revisions));
        (told.changes, told.widest) = (truth.changes(), truth.widest());
        for one in &mut watching {
            told.seen += one.judge(&truth);
            told.compacted += one.told_compacted;
            told.resumed += one.resumed;
        }
        told
    }

    fn bounds<'a>(&self, given_up: &'a AtomicU64) -> Bounds<'a> {
        Bounds {
            lag_max: self.lag_max,
            kept: self.kept,
            given_up,
        }
    }

    /// Writers, leases and upkeep beside the watchers, until the writers are done.
    fn live(
        &self,
        db: &Db,
        seed: Seed,
        notes: &Mutex<Notes>,
        given_up: &AtomicU64,
        watching: &mut [Watching],
    ) {
        let writing = AtomicUsize::new(WRITERS as usize);
        let is_over = AtomicBool::new(false);
        let bounds = &self.bounds(given_up);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (mut rng, writing) = (seed.part(10 + writer).rng(), &writing);
                scope.spawn(move || {
                    let _done = Done(writing);
                    for _ in 0..COMMITS_EACH {
                        writers::write_once(db, &mut rng, notes).expect("a commit");
                    }
                });
            }
            let leases = scope.spawn(|| {
                let mut rng = seed.part(20).rng();
                while writing.load(Ordering::SeqCst) > 0 {
                    let by_time = rng.bool();
                    writers::one_lease(db, &mut rng, notes, by_time).expect("a lease");
                    thread::sleep(Duration::from_millis(2));
                }
            });
            scope.spawn(|| {
                let mut rng = seed.part(30).rng();
                while !is_over.load(Ordering::SeqCst) {
                    writers::upkeep(db, &mut rng, self.compacts, given_up).expect("upkeep");
                    thread::sleep(Duration::from_millis(rng.u64(1..8)));
                }
            });
            let size = watching.len().div_ceil(POOLS);
            for (number, pool) in watching.chunks_mut(size).enumerate() {
                let mut rng = seed.part(40 + number as u64).rng();
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        for one in pool.iter_mut() {
                            if one.is_started() {
                                one.act(db, &mut rng, bounds);
                            } else if rng.u8(0..6) == 0 {
                                one.begin_again(db, &mut rng, bounds);
                            }
                        }
                        // One of the fast ones waits for the next change instead of asking.
                        let waits =
                            |one: &&mut Watching| one.is_started() && one.pace == Pace::Fast;
                        if let Some(one) = pool.iter_mut().find(waits) {
                            one.take(db, 1, Duration::from_millis(2), bounds);
                        }
                    }
                });
            }
            // Panics of the lease thread end the run as those of any other do.
            let ended = leases.join();
            is_over.store(true, Ordering::SeqCst);
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
    }
}

/// Counts a writer out, also one that panics.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn every_watcher_sees_every_change_once_whole_and_in_order() {
    let test = "-p bowline --test watch every_watcher_sees";
    let fixed = Seed::from_env_or(10);
    let rounds = setting("BOWLINE_WATCH_ROUNDS", 2);
    // One round more, which is new in each run.
    let seeds: Vec<Seed> = (0..rounds)
        .map(|_| fixed)
        .chain(Seed::fresh(test))
        .collect();
    let mut compacted = BTreeMap::new();
    for (round, seed) in (0..).zip(seeds) {
        let _guard = seed.print_on_failure(test);
        for (number, plan) in PLANS.iter().enumerate() {
            let seed = seed.part(round * 100 + number as u64);
            let told = within_timeout(plan.name, || plan.run(seed));
            println!("{}: {WATCHERS} watchers, {told:?}", plan.name);
            assert!(told.flushes > 0 && told.merges > 0, "{told:?}");
            assert!(told.widest >= 4 && told.resumed > 0, "{told:?}");
            assert!(told.seen > told.changes as u64, "{told:?}");
            *compacted.entry(plan.name).or_insert(0) += told.compacted;
        }
    }
    // Those that must lose history did, so the way on from there was tried.
    for name in ["no history, a short lag", "history trimmed by hand"] {
        assert!(compacted[name] > 0, "{name}: nobody was ever refused");
    }
    assert_eq!(compacted["all history, no ring"], 0);
}

/// Hundreds of watchers that take nothing hold no writer up, and get all of it afterwards.
#[test]
fn stalled_watchers_hold_up_no_writer() {
    // More than the ring has places for.
    const COMMITS: u64 = 9_000;
    within_timeout("a writer beside stalled watchers", || {
        let all = u64::MAX;
        for (lag_max, ring_bytes) in [(all, 1 << 10), (100, 1 << 10), (all, 1 << 30)] {
            let db = small()
                .vfs(Arc::new(MemoryVfs::default()))
                .watch_ring_bytes(ring_bytes)
                .watch_lag_max(lag_max)
                .open("/db")
                .expect("the database opens");
            let mut stalled: Vec<_> = (0..400)
                .map(|_| db.watch(..).start().expect("a watch"))
                .collect();
            for number in 0..COMMITS {
                db.put(format!("{}", number % 50), number.to_be_bytes())
                    .expect("a put");
            }
            db.compact().expect("a merge");
            for watcher in stalled.iter_mut().take(5) {
                let mut expected = 2;
                loop {
                    match watcher.try_recv() {
                        Ok(Some(changes)) => {
                            assert_eq!(changes.revision, expected);
                            expected += 1;
                        }
                        Ok(None) => break,
                        Err(bowline::Error::Compacted { oldest, .. }) => {
                            assert!(lag_max == 100 && oldest > expected);
                            *watcher = db.watch(..).from(oldest).start().expect("it is left");
                            expected = oldest.get();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(expected, COMMITS + 2);
            }
        }
    });
}

/// A watcher that reads history ahead holds what was before each change that it has not given out
/// yet.
#[test]
fn what_is_read_ahead_keeps_what_was_before_it() -> bowline::Result<()> {
    let db = small()
        .vfs(Arc::new(MemoryVfs::default()))
        .background(bowline::Background::Manual)
        .watch_ring_bytes(0)
        .open("/db")?;
    let mut watcher = db.watch(..).with_previous().start()?;
    for number in 0..50 {
        db.put("k", number.to_string())?;
    }
    for number in 0..50 {
        let changes = watcher.try_recv()?.expect("it is there");
        let previous = changes.changes[0].previous.as_ref();
        let value = previous.map(|entry| entry.value.to_vec());
        let expected = (number > 0).then(|| (number - 1).to_string().into_bytes());
        assert_eq!(value, expected, "before {number}");
        db.compact()?;
    }
    Ok(())
}

#[test]
fn a_watcher_that_is_gone_holds_no_history() -> bowline::Result<()> {
    let db = small()
        .vfs(Arc::new(MemoryVfs::default()))
        .background(bowline::Background::Manual)
        .open("/db")?;
    let watcher = db.watch(..).start()?;
    let from = watcher.next_revision();
    for number in 0..20u64 {
        db.put("k", number.to_be_bytes())?;
    }
    db.compact()?;
    assert!(db.oldest_revision() < from, "it holds what it has not seen");
    drop(watcher);
    db.put("k", "last")?;
    db.compact()?;
    assert_eq!(db.oldest_revision(), db.revision());
    Ok(())
}
