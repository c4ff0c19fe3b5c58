//! Workers: threads that use the database at once, each verifying its own results.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline::{
    Background, Block, BlockId, ChangeKind, Db, Direction, Edge, Error, Expected, Range, Result,
    Revision,
};

const ACCOUNTS: u64 = 60;
const TOTAL: u64 = ACCOUNTS * 100;
const COUNTERS: usize = 4;
const BLOCKS: u64 = 80;

/// What all workers share.
pub struct Work<'a> {
    db: &'a Db,
    is_over: AtomicBool,
    /// Successful swaps of each counter in this life.
    swaps: [AtomicU64; COUNTERS],
    started_at: [u64; COUNTERS],
    commits: AtomicU64,
    events: AtomicU64,
    reads: AtomicU64,
    checkpoints: AtomicU64,
    leases: AtomicU64,
    conflicts: AtomicU64,
    compacted: AtomicU64,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn account(number: u64) -> String {
    format!("account/{number:03}")
}

fn counter(at: usize) -> String {
    format!("counter/{at}")
}

fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A value that says whether it is whole: its first byte tells all others.
fn large_value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let first = rng.u8(..);
    let len = rng.usize(10_000..200_000);
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

fn assert_whole(value: &[u8]) {
    let first = value[0];
    let is_whole = |(at, byte): (usize, &u8)| *byte == first.wrapping_add(at as u8);
    assert!(value.iter().enumerate().all(is_whole), "a torn value");
}

fn sum(entries: impl Iterator<Item = Result<bowline::Entry>>) -> Result<u64> {
    let mut sum = 0;
    for entry in entries {
        sum += number(&entry?.value);
    }
    Ok(sum)
}

impl<'a> Work<'a> {
    /// Opens the accounts, if there are none, and reads where the counters are.
    pub fn begin(db: &'a Db) -> Result<Work<'a>> {
        if db.get(account(0))?.is_none() {
            db.transact(|tx| {
                (0..ACCOUNTS).try_for_each(|at| tx.put(account(at), 100u64.to_be_bytes()))
            })?;
        }
        let mut started_at = [0; COUNTERS];
        for (at, start) in started_at.iter_mut().enumerate() {
            *start = db.get(counter(at))?.map_or(0, |value| number(&value));
        }
        Ok(Work {
            db,
            is_over: AtomicBool::new(false),
            swaps: Default::default(),
            started_at,
            commits: AtomicU64::new(0),
            events: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            leases: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
        })
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Runs all of them for this long.
    pub fn run(&self, path: &Path, span: Duration, seed: u64) {
        type Worker = fn(&Work<'_>, &mut fastrand::Rng) -> Result<()>;
        let workers: [Worker; 12] = [
            |work, rng| work.transfer(rng),
            |work, rng| work.transfer(rng),
            |work, rng| work.swap(rng),
            |work, rng| work.swap(rng),
            |work, rng| work.write_graph(rng),
            |work, rng| work.write_large(rng),
            |work, rng| work.delete_ranges(rng),
            |work, rng| work.read(rng),
            |work, rng| work.hold_snapshots(rng),
            |work, rng| work.use_leases(rng),
            |work, rng| work.watch(rng),
            |work, rng| work.watch_slowly(rng),
        ];
        thread::scope(|scope| {
            for (at, worker) in workers.into_iter().enumerate() {
                let mut rng = fastrand::Rng::with_seed(seed ^ (at as u64) << 32);
                scope.spawn(move || {
                    let _end = EndsAll(&self.is_over);
                    worker(self, &mut rng).unwrap_or_else(|error| panic!("worker {at}: {error}"));
                });
            }
            scope.spawn(move || {
                let _end = EndsAll(&self.is_over);
                self.keep_up(path).expect("upkeep");
            });
            let start = Instant::now();
            while self.goes_on() && start.elapsed() < span {
                thread::sleep(Duration::from_millis(20));
            }
            self.is_over.store(true, Ordering::Relaxed);
        });
    }

    /// What they did.
    pub fn told(&self) -> String {
        let told = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        assert!(told(&self.commits) > 0 && told(&self.reads) > 0 && told(&self.events) > 0);
        format!(
            "{} commits, {} conflicts, {} reads, {} events, {} times compacted, {} leases, {} \
             checkpoints",
            told(&self.commits),
            told(&self.conflicts),
            told(&self.reads),
            told(&self.events),
            told(&self.compacted),
            told(&self.leases),
            told(&self.checkpoints),
        )
    }

    /// What must hold when all have come to rest.
    pub fn judge(&self) -> Result<()> {
        let db = self.db;
        assert_eq!(sum(db.range(Range::prefix("account/"))?)?, TOTAL);
        for at in 0..COUNTERS {
            let expected = self.started_at[at] + self.swaps[at].load(Ordering::SeqCst);
            let found = db.get(counter(at))?.map_or(0, |value| number(&value));
            assert_eq!(found, expected, "counter {at}");
        }
        let check = db.check()?;
        assert!(check.is_clean(), "{check:?}");
        Ok(())
    }

    /// Moves money; the sum stays.
    fn transfer(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            let (from, to) = (rng.u64(0..ACCOUNTS), rng.u64(0..ACCOUNTS));
            let amount = rng.u64(1..20);
            let mut tx = self.db.begin();
            let balance = number(&tx.get(account(from))?.expect("an account"));
            if from == to || balance < amount {
                continue;
            }
            let other = number(&tx.get(account(to))?.expect("an account"));
            tx.put(account(from), (balance - amount).to_be_bytes())?;
            tx.put(account(to), (other + amount).to_be_bytes())?;
            match tx.commit() {
                Ok(_) => bump(&self.commits),
                Err(Error::Conflict { .. }) => bump(&self.conflicts),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn swap(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            let at = rng.usize(0..COUNTERS);
            let entry = self.db.entry(counter(at))?;
            let (value, revision) = entry.map_or((0, 0), |entry| {
                (number(&entry.value), entry.mod_revision.get())
            });
            let next = (value + 1).to_be_bytes();
            match self.db.compare_and_swap(
                counter(at),
                Expected::Revision(Revision::new(revision)),
                next,
            ) {
                Ok(_) => {
                    bump(&self.swaps[at]);
                    bump(&self.commits);
                }
                Err(Error::CompareFailed { .. }) => bump(&self.conflicts),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Blocks and edges come and go; seen from both ends, the edges are the same.
    fn write_graph(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            let (from, to) = (rng.u64(0..BLOCKS), rng.u64(0..BLOCKS));
            let id = |number: u64| BlockId(1 + u128::from(number));
            if from.is_multiple_of(7) && to.is_multiple_of(3) {
                self.db.transact(|tx| tx.delete_block(id(from)).map(drop))?;
                bump(&self.commits);
                continue;
            }
            self.db.transact(|tx| {
                for number in [from, to] {
                    tx.put_block(&Block::new(id(number), "node").content(vec![7; 100]))?;
                }
                tx.put_edge(&Edge::new(id(from), "links", id(to)))
            })?;
            bump(&self.commits);
            let graph = self.db.snapshot().graph();
            for neighbor in graph.neighbors(id(from), Direction::Out, ["links"])? {
                let back = graph.neighbors(neighbor.id, Direction::In, ["links"])?;
                assert!(back.iter().any(|found| found.id == id(from)));
            }
        }
        Ok(())
    }

    fn write_large(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            let key = format!("large/{}", rng.u8(0..12));
            if rng.u8(0..3) == 0 {
                self.db.delete(&key)?;
            } else {
                self.db.put(&key, large_value(rng))?;
            }
            bump(&self.commits);
            if let Some(value) = self.db.get(format!("large/{}", rng.u8(0..12)))? {
                assert_whole(&value);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn delete_ranges(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            self.db.transact(|tx| {
                (0..30).try_for_each(|at| tx.put(format!("ranged/{at:02}"), [at; 50]))
            })?;
            let start = rng.u8(0..20);
            let range = Range::from(format!("ranged/{start:02}")..format!("ranged/{}", start + 10));
            let deleted = self.db.delete_range(range.clone())?;
            assert_eq!(deleted, 10);
            assert_eq!(self.db.range(range)?.count(), 0);
            bump(&self.commits);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sums and long scans.
    fn read(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            assert_eq!(sum(self.db.range(Range::prefix("account/"))?)?, TOTAL);
            bump(&self.reads);
            if rng.u8(0..50) == 0 {
                let mut last = Vec::new();
                for entry in self.db.range(..)? {
                    let entry = entry?;
                    assert!(last.as_slice() < &entry.key[..], "a scan is in order");
                    last = entry.key.to_vec();
                    thread::sleep(Duration::from_micros(200));
                }
            }
        }
        Ok(())
    }

    fn hold_snapshots(&self, rng: &mut fastrand::Rng) -> Result<()> {
        let mut held = Vec::new();
        while self.goes_on() {
            let snapshot = self.db.snapshot();
            let all: Vec<_> = snapshot.range(..)?.collect::<Result<_>>()?;
            held.push((snapshot, all));
            if held.len() > 4 {
                let (snapshot, before) = held.swap_remove(rng.usize(0..held.len()));
                let now: Vec<_> = snapshot.range(..)?.collect::<Result<_>>()?;
                assert!(
                    now == before,
                    "the snapshot of {} changed",
                    snapshot.revision()
                );
                bump(&self.reads);
            }
            thread::sleep(Duration::from_millis(rng.u64(1..60)));
        }
        Ok(())
    }

    /// A lease that is kept alive keeps its key; one that is not gives it up.
    fn use_leases(&self, rng: &mut fastrand::Rng) -> Result<()> {
        while self.goes_on() {
            let ttl = Duration::from_millis(rng.u64(30..120));
            let lease = self.db.grant_lease(ttl)?;
            let key = format!("leased/{}", rng.u8(0..5));
            match self.db.put_with_lease(&key, "x", lease) {
                Ok(_) => {}
                Err(Error::LeaseNotFound { .. }) => continue,
                Err(error) => return Err(error),
            }
            for _ in 0..rng.u8(0..4) {
                // Asked before it is kept alive: what passes in between only helps.
                let kept = Instant::now();
                if self.db.keep_alive(lease).is_err() {
                    break;
                }
                thread::sleep(ttl / 3);
                let is_there = self.db.get(&key)?.is_some();
                assert!(
                    is_there || kept.elapsed() >= ttl,
                    "{key} went before its time"
                );
            }
            let start = Instant::now();
            while self.db.get(&key)?.is_some() {
                assert!(start.elapsed() < Duration::from_secs(60), "{key} stays");
                thread::sleep(Duration::from_millis(5));
            }
            bump(&self.leases);
        }
        Ok(())
    }

    fn watch(&self, rng: &mut fastrand::Rng) -> Result<()> {
        self.follow(rng, Duration::ZERO)
    }

    fn watch_slowly(&self, rng: &mut fastrand::Rng) -> Result<()> {
        self.follow(rng, Duration::from_millis(4))
    }

    /// Follows the accounts by their changes alone: each revision leaves the sum as it was, and in
    /// the end the accounts are those in the database.
    fn follow(&self, rng: &mut fastrand::Rng, pause: Duration) -> Result<()> {
        let range = || Range::prefix("account/");
        while self.goes_on() {
            let snapshot = self.db.snapshot();
            let mut accounts = BTreeMap::new();
            for entry in snapshot.range(range())? {
                let entry = entry?;
                accounts.insert(entry.key.to_vec(), number(&entry.value));
            }
            let mut next: Revision = snapshot.revision() + 1;
            let started = self.db.watch(range()).with_previous().from(next).start();
            drop(snapshot);
            let mut watcher = match started {
                // The history was trimmed since the snapshot, which holds no more than itself.
                Err(Error::Compacted { oldest, .. }) => {
                    assert!(oldest > next);
                    bump(&self.compacted);
                    continue;
                }
                started => started?,
            };
            // Many more, who never take anything.
            let stalled: Vec<_> = (0..20)
                .map(|_| self.db.watch(..).start())
                .collect::<Result<_>>()?;
            for _ in 0..rng.u32(100..3_000) {
                if !self.goes_on() {
                    break;
                }
                match watcher.recv_timeout(Duration::from_millis(50)) {
                    Ok(None) => {}
                    Ok(Some(changes)) => {
                        assert!(changes.revision >= next);
                        next = changes.revision + 1;
                        for change in &changes.changes {
                            assert_eq!(change.kind, ChangeKind::Put);
                            let key = change.entry.key.to_vec();
                            let before = accounts.insert(key, number(&change.entry.value));
                            if let Some(previous) = &change.previous {
                                assert_eq!(Some(number(&previous.value)), before);
                            }
                        }
                        assert_eq!(accounts.values().sum::<u64>(), TOTAL, "{changes:?}");
                        bump(&self.events);
                    }
                    Err(Error::Compacted { oldest, .. }) => {
                        assert!(oldest > next);
                        bump(&self.compacted);
                        break;
                    }
                    Err(error) => return Err(error),
                }
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
            drop(stalled);
            match self.db.snapshot_at(watcher.next_revision() - 1) {
                Ok(snapshot) => {
                    for entry in snapshot.range(range())? {
                        let entry = entry?;
                        assert_eq!(accounts[&entry.key[..]], number(&entry.value));
                    }
                }
                Err(Error::Compacted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Flush, merge, trimming, checkpoints, checks.
    fn keep_up(&self, path: &Path) -> Result<()> {
        let copy = path.with_extension("copy");
        for turn in 0u64.. {
            if !self.goes_on() {
                break;
            }
            match turn % 5 {
                0 => self.db.flush()?,
                1 => self.db.compact()?,
                2 => match self.db.trim_history(self.db.revision()) {
                    Ok(()) | Err(Error::Compacted { .. }) => {}
                    Err(error) => return Err(error),
                },
                3 => {
                    let revision = self.db.checkpoint(&copy)?;
                    // Without threads: they would end the leases that have expired since.
                    let db = Db::builder()
                        .memtable_bytes(1 << 20)
                        .background(Background::Manual)
                        .create(false)
                        .open(&copy)?;
                    assert_eq!(db.revision(), revision);
                    assert_eq!(sum(db.range(Range::prefix("account/"))?)?, TOTAL);
                    drop(db);
                    std::fs::remove_dir_all(&copy).expect("it is removed");
                    bump(&self.checkpoints);
                }
                _ => {
                    let check = self.db.check()?;
                    assert!(check.is_clean(), "{check:?}");
                }
            }
            thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }
}

/// Whoever ends, also by a panic, ends the others.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Deletes all there is, gives up the past, and merges.
pub fn clean_up(db: &Db) -> Result<()> {
    for lease in db.leases() {
        match db.revoke_lease(lease.id) {
            Ok(_) | Err(Error::LeaseNotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    db.delete_range(..)?;
    let mut blocks = Vec::new();
    let graph = db.snapshot().graph();
    graph.for_each_block(|block| {
        blocks.push(block.id);
        Ok(())
    })?;
    drop(graph);
    for id in blocks {
        db.transact(|tx| tx.delete_block(id).map(drop))?;
    }
    db.trim_history(db.revision())?;
    db.compact()?;
    db.compact()
}
