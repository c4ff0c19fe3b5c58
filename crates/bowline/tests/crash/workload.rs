//! Random work on a database over a [`SimDisk`], noted step by step.
//!
//! A *step* is one entry of the commit order, plus, for the sake of their promise, `compact`. It
//! is noted with the point of the recording at which it was issued, and marked on the disk (with
//! its number) when it was acknowledged: after a crash the state is that of some step between the
//! last mark and the last step issued. Grants and revocations of empty leases take no revision, so
//! a revision alone does not name a step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bowline::{
    Background, BlobOptions, CountersSnapshot, Db, DbBuilder, Durability, Error, Expected, History,
    LeaseId, Revision, Ticket,
};
use bowline_testing::disk::{Inode, Operation};
use bowline_testing::lease_id;
use bowline_testing::model::Change;
use bowline_testing::{ManualClock, Model, SimDisk};

use crate::places::{Place, places, refine};
use crate::support::{BLOCKS, random_changes, random_key, random_value, small_database, stage};

/// Where the database is on the disk.
pub const PATH: &str = "db";

const LEASES: i64 = 6;

/// One kind of thing to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    Put,
    PutLarge,
    /// A key so long that the manifest grows by it at each flush.
    PutLongKey,
    Delete,
    DeleteRange,
    /// A compare-and-swap, right or wrong.
    Swap,
    Update,
    /// Several keys, blocks and edges.
    Transaction,
    DeleteBlock,
    Grant,
    PutLeased,
    UpdateLeased,
    Revoke,
    /// Lets time pass, and expires what is due.
    Expire,
    /// Gives up history.
    Compact,
    /// Sorted keys straight into tables; sometimes beside another commit, sometimes given up.
    Ingest,
    Flush,
    CompactTables,
    Checkpoint,
    /// Closes and opens again.
    Reopen,
    /// The process ends without closing anything, and the next one opens what is there.
    Kill,
    Sync,
}

impl Action {
    /// What the product is about, for the names of [places](crate::places).
    fn phase(self) -> &'static str {
        match self {
            Action::Put | Action::PutLarge | Action::PutLongKey => "put",
            Action::Swap | Action::Update => "put",
            Action::Delete => "delete",
            Action::DeleteRange => "delete range",
            Action::Transaction => "transaction",
            Action::DeleteBlock => "deletion of a block",
            Action::Grant => "grant",
            Action::PutLeased | Action::UpdateLeased => "put with a lease",
            Action::Revoke => "revocation",
            Action::Expire => "expiry",
            Action::Compact => "history trimming",
            Action::Ingest => "ingestion",
            Action::Flush => "flush",
            Action::CompactTables => "merge",
            Action::Checkpoint => "checkpoint",
            Action::Reopen => "closing",
            Action::Kill => "opening after a kill",
            Action::Sync => "sync",
        }
    }
}

/// What kinds of work, how much, and with which settings.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Tells the seeds of several workloads of one test apart.
    pub part: u64,
    pub durability: Durability,
    pub history: History,
    /// Actions, each with its weight.
    pub mix: &'static [(u32, Action)],
    /// Actions before the recording begins.
    pub before: usize,
    /// Actions that are recorded.
    pub recorded: usize,
    /// With threads, a run is not repeatable: nothing but the workload itself is, by the seed.
    pub background: Background,
    /// Which values go to files of their own.
    pub blobs: Option<BlobOptions>,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            name: "",
            part: 0,
            durability: Durability::Sync,
            history: History::None,
            mix: &[],
            before: 0,
            recorded: 0,
            background: Background::Manual,
            blobs: None,
        }
    }
}

/// One entry of the commit order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub revision: Revision,
    /// Leases and their time to live.
    pub leases: BTreeMap<i64, Duration>,
    /// What history was trimmed by `compact`.
    pub floor: Revision,
    /// The point of the recording before its first operation.
    pub issued_at: usize,
}

/// A copy made by a checkpoint.
#[derive(Clone, Debug)]
pub struct Copy {
    pub path: String,
    pub step: usize,
    pub begun_at: usize,
    /// The point at which it was complete.
    pub done_at: usize,
}

/// How often the recorded part crossed something.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Crossed {
    pub actions: BTreeMap<Action, u64>,
    pub commits: u64,
    pub flushes: u64,
    pub compactions: u64,
    pub log_rotations: u64,
    pub segments_recycled: u64,
    pub manifest_bytes: u64,
    pub manifest_replacements: u64,
    pub tables_removed: u64,
    pub blobs_removed: u64,
    /// Jobs that did nothing but empty blob files.
    pub blob_collections: u64,
    pub checkpoints: u64,
}

/// Work in progress.
pub struct Run {
    pub workload: Workload,
    pub disk: SimDisk,
    pub clock: ManualClock,
    pub model: Model,
    pub steps: Vec<Step>,
    pub copies: Vec<Copy>,
    db: Option<Db>,
    pub rng: fastrand::Rng,
    deadlines: BTreeMap<i64, Duration>,
    next_copy: usize,
    crossed: Crossed,
    /// The names when the recording began, and what began at which point of it.
    inodes: Vec<(Inode, String)>,
    phases: Vec<(usize, &'static str)>,
}

impl Run {
    /// Opens a new database and does what comes before the recording.
    pub fn new(workload: Workload, seed: u64) -> Run {
        // The database draws its ids and salts from here.
        fastrand::seed(seed);
        let mut run = Run {
            workload,
            disk: SimDisk::new(),
            clock: ManualClock::new(),
            model: Model::new(),
            steps: vec![Step {
                revision: Revision::new(1),
                leases: BTreeMap::new(),
                floor: Revision::ZERO,
                issued_at: 0,
            }],
            copies: Vec::new(),
            db: None,
            rng: fastrand::Rng::with_seed(seed),
            deadlines: BTreeMap::new(),
            next_copy: 0,
            crossed: Crossed::default(),
            inodes: Vec::new(),
            phases: vec![(0, "creation")],
        };
        run.open();
        if workload.before > 0 {
            for _ in 0..workload.before {
                run.act().expect("nothing fails before the recording");
            }
            run.begin_recording();
        }
        run.crossed = Crossed::default();
        run
    }

    /// Begins a new recording with the database as it is, everything durable.
    fn begin_recording(&mut self) {
        self.close();
        self.disk = self.disk.after_kill();
        let last = self.last().clone();
        self.steps = vec![Step {
            issued_at: 0,
            ..last
        }];
        self.copies.clear();
        self.inodes = self.disk.inodes();
        self.phases = vec![(0, "opening")];
        self.open();
    }

    /// Where each operation of the recording was made.
    pub fn places(&self) -> Vec<Place> {
        let recording = self.disk.recording();
        let phase = |index: usize| {
            let after = self.phases.partition_point(|(point, _)| *point <= index);
            self.phases[after - 1].1
        };
        let mut places = places(recording.operations(), self.inodes.clone(), phase);
        if self.workload.background == Background::Manual {
            refine(&mut places);
        }
        places
    }

    fn begin(&mut self, phase: &'static str) {
        let phase = match self.workload.background {
            Background::Manual => phase,
            Background::Threads => "work with threads",
        };
        self.phases.push((self.disk.point(), phase));
    }

    /// Does the recorded part; nothing may fail.
    pub fn work(&mut self) {
        for _ in 0..self.workload.recorded {
            self.act().expect("nothing fails on a sound disk");
        }
    }

    /// Several threads write at once, so that they share commit groups, while another one flushes and
    /// merges. The model learns of it afterwards, in the order of the revisions.
    pub fn work_at_once(&mut self, writers: u64) {
        let phase = match self.workload.background {
            Background::Manual => "commits of several threads",
            Background::Threads => "work with threads",
        };
        self.phases.push((self.disk.point(), phase));
        let (base, first) = (self.last().revision, self.steps.len() as u64 - 1);
        let (db, disk, each) = (
            self.db(),
            &self.disk,
            self.workload.recorded as u64 / writers,
        );
        let mut rng = self.rng.clone();
        let write = |writer: u64, mut rng: fastrand::Rng| {
            // Every other writer has several commits under way.
            let under_way_max = 4 * (writer as usize % 2);
            let mut under_way = VecDeque::new();
            let mut written = Vec::new();
            let mut settle = |(ticket, changes, issued_at): (Ticket, _, _)| {
                let committed = ticket.wait().expect("blind writes do not conflict");
                disk.mark(first + (committed.revision - base));
                written.push((committed.revision, changes, issued_at));
            };
            for number in 0..each {
                // Keys of its own and shared ones; each change is one that takes a revision.
                let own = format!("own-{writer}-{}", number % 7).into_bytes();
                let mut changes = vec![Change::put(&own, &random_value(&mut rng, 300))];
                if rng.bool() {
                    let shared = random_key(&mut rng);
                    changes.push(Change::put(&shared, &random_value(&mut rng, 100)));
                }
                let issued_at = disk.point();
                let mut transaction = db.begin();
                for change in &changes {
                    stage(&mut transaction, change).expect("it is staged");
                }
                let ticket = db.commit_later(transaction).expect("it has a place");
                under_way.push_back((ticket, changes, issued_at));
                while under_way.len() > under_way_max {
                    under_way.drain(..1).for_each(&mut settle);
                }
            }
            under_way.into_iter().for_each(settle);
            written
        };
        let mut written = Vec::new();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..writers)
                .map(|writer| {
                    let rng = rng.fork();
                    scope.spawn(move || write(writer, rng))
                })
                .collect();
            for _ in 0..3 {
                db.flush().expect("nothing fails on a sound disk");
                db.compact().expect("nothing fails on a sound disk");
            }
            for writer in writers {
                written.extend(writer.join().expect("a writer panicked"));
            }
        });
        self.rng = rng;
        written.sort_by_key(|(revision, ..)| *revision);
        for (revision, changes, issued_at) in written {
            assert_eq!(
                self.model.commit(&changes).expect("puts are valid"),
                revision
            );
            let step = Step {
                revision,
                issued_at,
                ..self.last().clone()
            };
            self.steps.push(step);
        }
    }

    /// The settings of this database.
    pub fn builder(&self) -> DbBuilder {
        let Workload {
            durability,
            history,
            background,
            blobs,
            ..
        } = self.workload;
        small_database(&self.disk, &self.clock)
            .blobs(blobs.unwrap_or_default())
            .background(background)
            .durability(durability)
            .history(history)
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open between actions")
    }

    pub fn last(&self) -> &Step {
        self.steps.last().expect("there is a first step")
    }

    fn open(&mut self) {
        self.db = Some(self.builder().open(PATH).expect("it opens"));
        // The time of a lease goes on, and never less of it is left than must be. All that is shown is durable. What
        // an opening shows is up to a millisecond more than what is recorded.
        let now = self.now();
        let shown_more = Duration::from_millis(1);
        let mut deadlines = BTreeMap::new();
        for lease in self.db().leases() {
            let id = lease.id.get();
            let least = self.deadlines.get(&id).map_or(Duration::ZERO, |deadline| {
                deadline.saturating_sub(now + shown_more)
            });
            let most = lease.ttl + lease.ttl.max(Duration::from_secs(10));
            assert!(
                (least..=most).contains(&lease.remaining),
                "lease {id}: {:?} of {least:?} to {most:?}",
                lease.remaining
            );
            deadlines.insert(id, now + lease.remaining);
        }
        self.deadlines = deadlines;
        self.disk.mark(self.steps.len() as u64 - 1);
    }

    fn close(&mut self) {
        self.add_counters();
        self.db().close().expect("closing flushes");
        self.db = None;
    }

    /// Ends the process. The disk keeps what was written, but what was not synced may still be
    /// lost in a power loss later.
    fn kill(&mut self) {
        std::mem::forget(self.db.take());
        self.disk.kill();
    }

    /// Ends the process after a commit that failed, and opens again. The commit either happened
    /// or did not; gives back which, and goes on from there.
    pub fn kill_after_failure(&mut self, before: (Model, usize)) -> bool {
        self.kill();
        self.disk.fail_syncs(0);
        self.disk.fail_directory_syncs_after(0, 0);
        self.begin("opening after a kill");
        let db = self.builder().open(PATH).expect("it opens");
        let happened = db.revision() == self.model.revision();
        if !happened {
            self.model = before.0;
            self.steps.truncate(before.1);
        }
        assert_eq!(db.revision(), self.model.revision());
        self.db = Some(db);
        self.disk.mark(self.steps.len() as u64 - 1);
        happened
    }

    fn now(&self) -> Duration {
        bowline::Clock::monotonic(&self.clock)
    }

    /// What the recorded part crossed so far.
    pub fn crossed(&mut self) -> Crossed {
        self.add_counters();
        let mut crossed = self.crossed.clone();
        for operation in self.disk.recording().operations() {
            let is = |path: &std::path::Path, part: &str| path.to_string_lossy().contains(part);
            match operation {
                Operation::Rename { from, to, .. } => {
                    let (from, to) = (&*from.path, &*to.path);
                    crossed.log_rotations += u64::from(is(to, ".log"));
                    crossed.segments_recycled += u64::from(is(from, ".log") && is(to, "spare"));
                    crossed.manifest_replacements += u64::from(is(to, "BOWLINE"));
                }
                Operation::Remove { at, .. } => {
                    crossed.tables_removed += u64::from(is(&at.path, ".table"));
                    crossed.blobs_removed += u64::from(is(&at.path, ".blob"));
                }
                _ => {}
            }
        }
        crossed
    }

    fn add_counters(&mut self) {
        let CountersSnapshot {
            commits,
            flushes,
            compactions,
            manifest_bytes_written,
            blob_collections,
            ..
        } = self.db().stats().engine.counters;
        self.crossed.commits += commits;
        self.crossed.flushes += flushes;
        self.crossed.compactions += compactions;
        self.crossed.manifest_bytes += manifest_bytes_written;
        self.crossed.blob_collections += blob_collections;
    }

    /// Issues steps (already in the model) by one call, and marks the last when it succeeds.
    /// The second part of each is the change of the leases that comes with it.
    fn issue<T>(
        &mut self,
        steps: Vec<(Revision, BTreeMap<i64, Duration>)>,
        call: impl FnOnce(&Db) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let floor = self.last().floor;
        let issued_at = self.disk.point();
        let new = steps.into_iter().map(|(revision, leases)| Step {
            revision,
            leases,
            floor,
            issued_at,
        });
        self.steps.extend(new);
        let result = call(self.db())?;
        self.acknowledged();
        Ok(result)
    }

    fn acknowledged(&self) {
        if self.workload.durability == Durability::Sync {
            self.disk.mark(self.steps.len() as u64 - 1);
        }
    }

    /// Commits changes to the model and by `call`, and compares the revision.
    pub fn commit(
        &mut self,
        changes: &[Change],
        call: impl FnOnce(&Db) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.model.revision();
        let revision = self.model.commit(changes).expect("the change is valid");
        if revision > before {
            let leases = self.last().leases.clone();
            self.issue(vec![(revision, leases)], call)?;
        } else {
            call(self.db())?;
        }
        assert_eq!(self.db().revision(), revision, "after {changes:?}");
        Ok(())
    }

    /// Does one random thing.
    pub fn act(&mut self) -> Result<(), Error> {
        let total = self.workload.mix.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.rng.u32(0..total);
        let mut mix = self.workload.mix.iter();
        let action = loop {
            let (weight, action) = mix.next().expect("the weights sum up to the total");
            match drawn.checked_sub(*weight) {
                None => break *action,
                Some(rest) => drawn = rest,
            }
        };
        *self.crossed.actions.entry(action).or_insert(0) += 1;
        self.begin(action.phase());
        self.carry_out(action)
    }

    fn carry_out(&mut self, action: Action) -> Result<(), Error> {
        match action {
            Action::Put | Action::PutLarge => {
                let most = if action == Action::Put { 200 } else { 6000 };
                let (key, value) = (self.key(), self.value(most));
                self.put(&key, &value, 0)
            }
            Action::PutLongKey => {
                let mut key = vec![b'z'; 40_000];
                key.push(self.rng.u8(0..2));
                self.put(&key, b"long", 0)
            }
            Action::PutLeased => self.put_leased(false),
            Action::UpdateLeased => self.put_leased(true),
            Action::Delete => {
                let key = self.key();
                self.commit(&[Change::delete(&key)], |db| db.delete(&key).map(drop))
            }
            Action::DeleteRange => {
                let (start, end) = (self.key(), self.key());
                let (start, end) = (start.clone().min(end.clone()), end.max(start));
                let held = self
                    .model
                    .range(start.clone()..end.clone(), self.model.revision());
                let changes: Vec<_> = held.map(|(key, _)| Change::delete(key)).collect();
                self.commit(&changes, |db| {
                    assert_eq!(db.delete_range(start..end)?, changes.len() as u64);
                    Ok(())
                })
            }
            Action::Swap => self.swap(),
            Action::Update => self.update(),
            Action::Transaction => self.transaction(),
            Action::DeleteBlock => {
                let id = self.rng.u128(1..=BLOCKS);
                self.transact(&[Change::DeleteBlock { id }])
            }
            Action::Grant => self.grant(),
            Action::Revoke => self.revoke(),
            Action::Expire => self.expire(),
            Action::Compact => self.compact(),
            Action::Ingest => self.ingest(),
            Action::Flush => self.db().flush(),
            Action::CompactTables => self.db().compact(),
            Action::Checkpoint => self.checkpoint(),
            Action::Reopen => {
                self.close();
                self.begin("opening");
                self.open();
                Ok(())
            }
            Action::Kill => {
                self.add_counters();
                self.kill();
                self.open();
                Ok(())
            }
            Action::Sync => {
                self.db().sync()?;
                self.disk.mark(self.steps.len() as u64 - 1);
                Ok(())
            }
        }
    }

    pub fn key(&mut self) -> Vec<u8> {
        random_key(&mut self.rng)
    }

    pub fn value(&mut self, most: usize) -> Vec<u8> {
        random_value(&mut self.rng, most)
    }

    pub fn put(&mut self, key: &[u8], value: &[u8], lease: i64) -> Result<(), Error> {
        let change = Change::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
        };
        self.commit(&[change], |db| match LeaseId::new(lease) {
            Some(lease) => db.put_with_lease(key, value, lease).map(drop),
            None => db.put(key, value).map(drop),
        })
    }

    fn ingest(&mut self) -> Result<(), Error> {
        let keys: BTreeSet<Vec<u8>> = (0..self.rng.usize(1..25)).map(|_| self.key()).collect();
        let keys = keys.into_iter();
        let entries: Vec<_> = keys.map(|key| (key, self.value(300))).collect();
        let mut ingest = self.db().ingest()?;
        let (first, rest) = entries.split_at(self.rng.usize(0..=entries.len()));
        for (key, value) in first {
            ingest.put(key, value)?;
        }
        if self.rng.u8(0..3) == 0 {
            let (key, value) = (self.key(), self.value(60));
            self.put(&key, &value, 0)?;
        }
        for (key, value) in rest {
            ingest.put(key, value)?;
        }
        if self.rng.u8(0..8) == 0 {
            return Ok(());
        }
        let entries = entries.iter();
        let changes: Vec<_> = entries
            .map(|(key, value)| Change::put(key, value))
            .collect();
        self.commit(&changes, |_| ingest.commit().map(drop))
    }

    fn swap(&mut self) -> Result<(), Error> {
        let (key, value) = (self.key(), self.value(100));
        let held = self.model.get(&key, self.model.revision());
        let actual = held.map_or(Revision::ZERO, |entry| entry.mod_revision);
        if self.rng.u8(0..4) > 0 {
            let change = Change::put(&key, &value);
            return self.commit(&[change], |db| {
                db.compare_and_swap(&key, Expected::Revision(actual), &value)
                    .map(drop)
            });
        }
        match self.db().compare_and_swap(
            &key,
            Expected::Revision(Revision::new((actual + 1).get())),
            &value,
        ) {
            Err(Error::CompareFailed { actual: found, .. })
                if found == Expected::of_mod_revision(actual).revision() =>
            {
                Ok(())
            }
            Err(error) => Err(error),
            Ok(revision) => panic!("a wrong compare-and-swap committed at {revision}"),
        }
    }

    fn transact(&mut self, changes: &[Change]) -> Result<(), Error> {
        self.commit(changes, |db| {
            db.transact(|tx| changes.iter().try_for_each(|change| stage(tx, change)))
        })
    }

    fn transaction(&mut self) -> Result<(), Error> {
        let mut changes = random_changes(&mut self.rng, &self.model);
        if self.rng.u8(0..12) == 0 {
            // Refused as a whole: nothing of it may ever be seen.
            changes.push(Change::put_edge(1, "calls", BLOCKS + 1, b""));
            let result = self
                .db()
                .transact(|tx| changes.iter().try_for_each(|c| stage(tx, c)));
            return match result {
                Err(Error::MissingBlock { .. }) => Ok(()),
                Err(error) => Err(error),
                Ok(()) => panic!("an edge to a missing block was taken"),
            };
        }
        self.transact(&changes)
    }

    pub fn some_lease(&mut self) -> Option<i64> {
        let ids: Vec<i64> = self.last().leases.keys().copied().collect();
        self.rng.choice(ids)
    }

    fn grant(&mut self) -> Result<(), Error> {
        let id = self.rng.i64(1..=LEASES);
        let ttl = Duration::from_millis(self.rng.u64(1..10_000));
        let mut leases = self.last().leases.clone();
        if leases.insert(id, ttl).is_some() {
            let result = self.db().grant_lease_with_id(lease_id(id), ttl);
            assert!(!matches!(result, Ok(())), "lease {id} was granted twice");
            return result.or_else(|error| match error {
                Error::LeaseExists { .. } => Ok(()),
                error => Err(error),
            });
        }
        let revision = self.model.revision();
        self.issue(vec![(revision, leases)], |db| {
            db.grant_lease_with_id(lease_id(id), ttl)
        })?;
        self.deadlines.insert(id, self.now() + ttl);
        Ok(())
    }

    /// Ends a lease in the model; gives the step that this is, and how many keys went.
    fn end_lease(
        &mut self,
        id: i64,
        leases: &mut BTreeMap<i64, Duration>,
    ) -> ((Revision, BTreeMap<i64, Duration>), u64) {
        let held = self.model.range(.., self.model.revision());
        let attached = held.filter(|(_, entry)| entry.lease == id);
        let changes: Vec<_> = attached.map(|(key, _)| Change::delete(key)).collect();
        let revision = self.model.commit(&changes).expect("deletes are valid");
        leases.remove(&id);
        self.deadlines.remove(&id);
        ((revision, leases.clone()), changes.len() as u64)
    }

    fn revoke(&mut self) -> Result<(), Error> {
        let Some(id) = self.some_lease() else {
            return Ok(());
        };
        let mut leases = self.last().leases.clone();
        let (step, keys) = self.end_lease(id, &mut leases);
        let deleted = self.issue(vec![step], |db| db.revoke_lease(lease_id(id)))?;
        assert_eq!(deleted, keys);
        Ok(())
    }

    fn expire(&mut self) -> Result<(), Error> {
        self.clock
            .advance(Duration::from_millis(self.rng.u64(0..3000)));
        if let Some(id) = self.some_lease()
            && self.deadlines[&id] > self.now()
            && self.rng.bool()
        {
            self.db().keep_alive(lease_id(id))?;
            self.deadlines
                .insert(id, self.now() + self.last().leases[&id]);
        }
        let now = self.now();
        let due = self
            .deadlines
            .iter()
            .filter(|(_, deadline)| **deadline <= now);
        let due: Vec<i64> = due.map(|(id, _)| *id).collect();
        let mut leases = self.last().leases.clone();
        let steps: Vec<_> = due
            .iter()
            .map(|id| self.end_lease(*id, &mut leases).0)
            .collect();
        let count = self.issue(steps, Db::expire_leases)?;
        assert_eq!(count, due.len() as u64);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Error> {
        let (oldest, newest) = (self.db().oldest_revision(), self.db().revision());
        let floor = self.rng.u64(oldest.get()..=newest.get());
        let step = Step {
            floor: Revision::new(floor),
            issued_at: self.disk.point(),
            ..self.last().clone()
        };
        self.steps.push(step);
        self.db().trim_history(Revision::new(floor))?;
        self.acknowledged();
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Error> {
        let path = format!("copy-{}", self.next_copy);
        self.next_copy += 1;
        self.copies.push(Copy {
            path: path.clone(),
            step: self.steps.len() - 1,
            begun_at: self.disk.point(),
            done_at: usize::MAX,
        });
        let revision = self.db().checkpoint(&path)?;
        assert_eq!(revision, self.model.revision());
        let done_at = self.disk.point();
        if let Some(copy) = self.copies.last_mut() {
            copy.done_at = done_at;
        }
        self.crossed.checkpoints += 1;
        Ok(())
    }
}
