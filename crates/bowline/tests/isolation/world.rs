//! One history: a database, the threads that use it, and perhaps a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{CompactionOptions, Db, History as Kept, Isolation, Revision, Strategy, vfs::Vfs};
use bowline_testing::crash::{CrashImage, Faults};
use bowline_testing::isolation::{History, Op, Outcome, Transaction, Version};
use bowline_testing::{Seed, SimDisk};

use crate::disk::SlowDisk;
use crate::keys::{is_list, seen_entry};
use crate::random;
use crate::session::Session;

/// What the transactions are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    Lists,
    Registers,
    Graph,
    Mixed,
}

/// What all threads of a history share.
pub struct Shared {
    pub isolation: Isolation,
    pub flavour: Flavour,
    /// Every transaction that writes also writes the key of its process, so that it can be told
    /// whether it committed.
    pub has_markers: bool,
    /// Registers, and lists at any one time.
    pub hot_keys: u64,
    /// Transactions that have been begun, and how many there shall be.
    pub begun: AtomicU64,
    pub wanted: AtomicU64,
    /// The power is lost: whatever is not acknowledged by now never will be.
    pub is_lost: AtomicBool,
    pub conflicts: AtomicU64,
    /// Appends to each list so far.
    pub appends: Vec<AtomicU64>,
    clock: AtomicU64,
    numbers: AtomicU64,
}

impl Shared {
    /// A moment, later than all before.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The number of a write.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether one more transaction is wanted.
    pub fn takes_another(&self) -> bool {
        !self.is_lost.load(Ordering::SeqCst)
            && self.begun.fetch_add(1, Ordering::Relaxed) < self.wanted.load(Ordering::Relaxed)
    }
}

pub struct World {
    rng: fastrand::Rng,
    shared: Arc<Shared>,
    crashes: bool,
    transactions: u64,
    kept: Kept,
}

/// What came of it.
#[derive(Default)]
pub struct Done {
    pub history: History,
    pub conflicts: u64,
    pub has_crashed: bool,
    pub unknown_resolved: u64,
    /// Commits that did not have a flush of their own.
    pub shared_rounds: u64,
    pub flushes: u64,
    pub compactions: u64,
}

impl World {
    pub fn new(seed: Seed, isolation: Isolation, transactions: u64, crashes: bool) -> World {
        let mut rng = seed.rng();
        let flavours = if crashes {
            // A crash leaves questions that only the history of keys answers.
            &[Flavour::Lists, Flavour::Registers][..]
        } else {
            &[
                Flavour::Lists,
                Flavour::Registers,
                Flavour::Graph,
                Flavour::Mixed,
            ]
        };
        let kept = match rng.u8(0..3) {
            _ if crashes => Kept::All,
            0 => Kept::None,
            1 => Kept::Revisions(rng.u64(1..100)),
            _ => Kept::All,
        };
        let hot_keys = rng.u64(2..12);
        let shared = Shared {
            isolation,
            flavour: *rng.choice(flavours).expect("there are some"),
            has_markers: crashes,
            hot_keys,
            begun: AtomicU64::new(0),
            wanted: AtomicU64::new(transactions),
            is_lost: AtomicBool::new(false),
            conflicts: AtomicU64::new(0),
            appends: (0..hot_keys).map(|_| AtomicU64::new(0)).collect(),
            clock: AtomicU64::new(1),
            numbers: AtomicU64::new(1),
        };
        World {
            rng,
            shared: Arc::new(shared),
            crashes,
            transactions,
            kept,
        }
    }

    fn open(&mut self, disk: &SlowDisk) -> Db {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let strategies = [Strategy::LazyLeveling, Strategy::Leveled, Strategy::Tiered];
        let options = CompactionOptions {
            strategy: *self.rng.choice(&strategies).expect("there are some"),
            runs_max: 2,
            table_bytes: 8 << 10,
            level_base_bytes: 16 << 10,
            ..CompactionOptions::default()
        };
        let builder = Db::builder()
            .vfs(vfs)
            .history(self.kept)
            .memtable_bytes(self.rng.usize(16 << 10..64 << 10))
            .cache_bytes(self.rng.u64(8 << 10..64 << 10))
            .log_segment_bytes(16 << 10)
            .page_bytes(512)
            .watch_ring_bytes(4 << 10)
            .compaction(options);
        builder.open("db").expect("it opens")
    }

    /// Runs the history to its end.
    pub fn run(mut self) -> Done {
        fastrand::seed(self.rng.u64(..));
        let mut done = Done::default();
        let disk = SimDisk::new();
        let last = if self.crashes {
            self.run_and_crash(&disk, &mut done)
        } else {
            SlowDisk::new(disk)
        };
        let db = self.open(&last);
        self.resolve(&db, &mut done);
        self.shared.is_lost.store(false, Ordering::SeqCst);
        self.shared.begun.store(0, Ordering::Relaxed);
        let first_half = done.history.transactions.len() as u64;
        let rest = self.transactions.saturating_sub(first_half);
        self.shared.wanted.store(rest, Ordering::Relaxed);
        let process = if self.crashes { 100 } else { 0 };
        self.use_it(&db, process, &mut done);
        done.history
            .transactions
            .push(random::read_all(&self.shared, &db));
        let check = db.check().expect("it can be checked");
        assert!(check.is_clean(), "{check:?}");
        db.close().expect("it closes");
        done.conflicts = self.shared.conflicts.load(Ordering::Relaxed);
        done
    }

    /// Threads run until the power is lost; returns the disk as it is then.
    fn run_and_crash(&mut self, disk: &SimDisk, done: &mut Done) -> SlowDisk {
        let image: Arc<Mutex<Option<SimDisk>>> = Arc::default();
        let faults = match self.rng.u8(0..4) {
            0 => Faults::AllKept,
            1 => Faults::Random {
                seed: self.rng.u64(..),
            },
            _ => Faults::AllLost,
        };
        let (shared, taken, of) = (self.shared.clone(), image.clone(), disk.clone());
        let crash = move || {
            // In this order: what was acknowledged before is on the image, if it is anywhere.
            shared.is_lost.store(true, Ordering::SeqCst);
            let recording = of.recording();
            let image = CrashImage::at(&recording, recording.len(), faults.clone());
            *taken.lock().expect("nobody panics with it") = Some(image.build());
        };
        let flushes = i64::try_from(self.transactions / 4).expect("it is small");
        let after = self.rng.i64(flushes / 4..=flushes);
        let slow = SlowDisk::crashing(disk.clone(), after, Box::new(crash));
        let db = self.open(&slow);
        self.use_it(&db, 0, done);
        drop(db);
        let image = image.lock().expect("nobody panics with it").take();
        // With too few flushes it is a disk that was closed.
        done.has_crashed = image.is_some();
        SlowDisk::new(image.unwrap_or_else(|| disk.after_power_loss()))
    }

    /// Threads with transactions, and one with upkeep, until there are enough.
    fn use_it(&mut self, db: &Db, process: u64, done: &mut Done) {
        let threads = self.rng.u64(4..9);
        let stop = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..threads).map(|_| self.rng.u64(..)).collect();
        let upkeep_seed = self.rng.u64(..);
        let keeps_all = self.kept == Kept::All && self.crashes;
        std::thread::scope(|scope| {
            let stopping = StopOnDrop(&stop);
            let upkeep = scope.spawn(|| upkeep(db, upkeep_seed, &stop, keeps_all));
            let mut workers = Vec::new();
            for (thread, seed) in (0..).zip(seeds) {
                let shared = &self.shared;
                let session = Session::new(shared, db, process + thread, seed);
                workers.push(scope.spawn(move || session.run()));
            }
            let reader = Session::new(&self.shared, db, process + threads, upkeep_seed);
            let reader = self
                .crashes
                .then(|| scope.spawn(|| reader.run_reader(&stop)));
            for worker in workers {
                let transactions = worker.join().expect("a worker does not panic");
                done.history.transactions.extend(transactions);
            }
            drop(stopping);
            if let Some(reader) = reader {
                let transactions = reader.join().expect("the reader does not panic");
                done.history.transactions.extend(transactions);
            }
            upkeep.join().expect("upkeep does not panic");
        });
        let counters = db.stats().engine.counters;
        done.shared_rounds += counters.commits.saturating_sub(counters.commit_rounds);
        done.flushes += counters.flushes;
        done.compactions += counters.compactions;
    }

    /// After a crash, looks up what became of those that were not told.
    fn resolve(&self, db: &Db, done: &mut Done) {
        let now = self.shared.tick();
        // Where each number is in the database: by key, its revision.
        let mut histories: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
        for transaction in &mut done.history.transactions {
            if transaction.outcome != Outcome::Unknown {
                continue;
            }
            let mut found: Vec<Option<u64>> = Vec::new();
            for (key, number) in last_puts(transaction) {
                let of_key = histories
                    .entry(key.clone())
                    .or_insert_with(|| numbers_of(db, &key));
                found.push(of_key.get(&number).copied());
            }
            let first = found.first().copied().flatten();
            assert!(
                found.iter().all(|at| *at == first),
                "a part of it only survived: {transaction}\n{found:?}"
            );
            transaction.completed = Some(now);
            transaction.outcome = match first {
                Some(revision) => {
                    done.unknown_resolved += 1;
                    Outcome::Committed(Some(revision))
                }
                None => Outcome::Aborted,
            };
        }
    }
}

/// Stops the upkeep, also when a worker has panicked.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The keys that a transaction left with a value, and which.
fn last_puts(transaction: &Transaction) -> BTreeMap<String, u64> {
    let mut last = BTreeMap::new();
    for op in &transaction.ops {
        match op {
            Op::Write { key, value } | Op::Append { key, value } => {
                last.insert(key.clone(), *value);
            }
            Op::Delete { key, .. } => {
                last.remove(key);
            }
            _ => {}
        }
    }
    last
}

/// The newest number of each version of a key, with its revision.
fn numbers_of(db: &Db, key: &str) -> BTreeMap<u64, u64> {
    let mut numbers = BTreeMap::new();
    for version in db.history(key).expect("history") {
        let number = match seen_entry(key, version.entry.as_ref()).version {
            Version::Absent => continue,
            Version::Value(number) => Some(number),
            Version::List(items) => items.last().copied(),
        };
        debug_assert!(is_list(key) || number.is_some());
        numbers.extend(number.map(|number| (number, version.revision.get())));
    }
    numbers
}

/// Flushes, merges and trims history at random until it is told to stop.
fn upkeep(db: &Db, seed: u64, stop: &AtomicBool, keeps_all: bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        match rng.u8(0..8) {
            0 => db.flush().expect("flush"),
            1 => db.compact().expect("compact"),
            2 if !keeps_all => {
                let newest = db.revision();
                // It may have gone up since, which is a refusal.
                let _ =
                    db.trim_history(newest.saturating_sub(rng.u64(0..50)).max(Revision::new(1)));
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_micros(rng.u64(50..1500)));
    }
}
