//! One case: a database, the model, and the calls that are compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use bowline::{
    BlobOptions, CompactionOptions, CountersSnapshot, Db, DbBuilder, Error, Expected, History,
    LeaseId, Range, Revision, Snapshot, Strategy,
};
use bowline_testing::lease_id;
use bowline_testing::model::{Change, EdgeKey};
use bowline_testing::{ManualClock, Model, SimDisk};

use crate::coverage::Coverage;
use crate::held::{HeldSnapshot, Watch};
use crate::shrink::is_quiet;
use crate::support::{
    BLOCKS, Contents, random_changes, random_key, random_value, small_database, stage,
};
use crate::transaction::OpenTransaction;

const LEASES: i64 = 4;
/// Held things of each kind.
const HELD_MAX: usize = 4;
/// Steps that a failed case prints.
const TRACE_STEPS: usize = 25;

/// A database beside its model.
pub struct Case {
    pub db: Db,
    pub model: Model,
    pub rng: fastrand::Rng,
    /// The revisions at which each block and each edge was written.
    pub block_changes: BTreeMap<u128, Vec<Revision>>,
    pub edge_changes: BTreeMap<EdgeKey, Vec<Revision>>,
    history: History,
    sizes: Sizes,
    disk: SimDisk,
    clock: ManualClock,
    /// Time to live and deadline.
    leases: BTreeMap<i64, (Duration, Duration)>,
    /// Up to where history was compacted.
    pub compacted: Revision,
    pub snapshots: Vec<HeldSnapshot>,
    watches: Vec<Watch>,
    transactions: Vec<OpenTransaction>,
    counters: CountersSnapshot,
    coverage: RefCell<Coverage>,
    checkpoints: u32,
    trace: Trace,
}

/// The settings of a case; other ones after each opening would hide what only one of them shows.
#[derive(Clone, Debug)]
struct Sizes {
    memtable_bytes: usize,
    cache_bytes: u64,
    page_bytes: usize,
    ring_bytes: u64,
    compaction: CompactionOptions,
    blobs: BlobOptions,
    /// Without leases and watches, which need to know what each put writes over, puts do not look.
    is_plain: bool,
}

impl Sizes {
    fn random(rng: &mut fastrand::Rng) -> Sizes {
        let strategies = [Strategy::LazyLeveling, Strategy::Leveled, Strategy::Tiered];
        Sizes {
            memtable_bytes: (8 << 10) << rng.u32(0..4),
            cache_bytes: (1 << 10) << rng.u32(0..8),
            page_bytes: 128 << rng.u32(0..5),
            ring_bytes: 64 << rng.u32(0..9),
            compaction: CompactionOptions {
                strategy: strategies[rng.usize(0..strategies.len())],
                runs_max: rng.usize(2..5),
                table_bytes: (1 << 10) << rng.u32(0..5),
                level_base_bytes: (4 << 10) << rng.u32(0..4),
                threads: rng.usize(1..5),
                range_bytes_min: 256 << rng.u32(0..6),
                ..CompactionOptions::default()
            },
            blobs: BlobOptions {
                threshold_bytes: [None, Some(64), Some(64), Some(128)][rng.usize(0..4)],
                garbage_percent_max: rng.u8(0..80),
                file_bytes: (1 << 10) << rng.u32(0..5),
            },
            is_plain: rng.bool(),
        }
    }

    fn apply(&self, builder: DbBuilder) -> DbBuilder {
        builder
            .memtable_bytes(self.memtable_bytes)
            .cache_bytes(self.cache_bytes)
            .page_bytes(self.page_bytes)
            .watch_ring_bytes(self.ring_bytes)
            .compaction(self.compaction.clone())
            .blobs(self.blobs)
    }
}

/// What was done, for people to read when it failed.
#[derive(Default)]
struct Trace(Vec<String>);

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() && !is_quiet() {
            let first = self.0.len().saturating_sub(TRACE_STEPS);
            for (number, step) in self.0.iter().enumerate().skip(first) {
                eprintln!("{number}: {step}");
            }
        }
    }
}

impl Case {
    pub fn new(history: History, mut rng: fastrand::Rng) -> Case {
        fastrand::seed(rng.u64(..));
        let (disk, clock) = (SimDisk::new(), ManualClock::new());
        let sizes = Sizes::random(&mut rng);
        let db = sizes
            .apply(small_database(&disk, &clock))
            .history(history)
            .open("db")
            .expect("it opens");
        let mut trace = Trace::default();
        trace.0.push(format!("open with {history:?}, {sizes:?}"));
        let mut coverage = Coverage::default();
        coverage.did(match sizes.compaction.strategy {
            Strategy::Leveled => "leveled",
            Strategy::Tiered => "tiered",
            _ => "lazy leveling",
        });
        Case {
            db,
            model: Model::new(),
            rng,
            block_changes: BTreeMap::new(),
            edge_changes: BTreeMap::new(),
            history,
            sizes,
            disk,
            clock,
            leases: BTreeMap::new(),
            compacted: Revision::ZERO,
            snapshots: Vec::new(),
            watches: Vec::new(),
            transactions: Vec::new(),
            counters: CountersSnapshot::default(),
            coverage: RefCell::new(coverage),
            checkpoints: 0,
            trace,
        }
    }

    /// Counts that it happened.
    pub fn did(&self, what: &'static str) {
        self.coverage.borrow_mut().did(what);
    }

    /// Compares everything, once more after opening again.
    pub fn finish(mut self, coverage: &mut Coverage) -> CountersSnapshot {
        self.check_all();
        self.reopen();
        self.check_all();
        self.add_counters();
        coverage.add(&self.coverage.borrow());
        self.counters.clone()
    }

    /// One random call, and sometimes upkeep before it. All choices come from the seed.
    pub fn step(&mut self, seed: u64) {
        self.rng = fastrand::Rng::with_seed(seed);
        match self.rng.u8(0..30) {
            0..3 => {
                self.note("flush");
                self.did("flush");
                self.db.flush().expect("flush");
            }
            3 => {
                self.note("compact tables");
                self.did("merge");
                self.db.compact().expect("compact");
            }
            _ => {}
        }
        match self.rng.u8(0..120) {
            0..24 => self.put(),
            24..30 => self.delete(),
            30..33 => self.delete_range(),
            33..39 => self.swap(),
            39..49 => self.change_graph(),
            49..52 if !self.sizes.is_plain => self.lease(),
            52..55 => self.expire(),
            55..57 => self.compact(),
            57 if self.rng.bool() => {
                self.note("build the graph view");
                assert!(self.db.build_graph_view().expect("builds"));
                self.did("graph view built");
            }
            57 => self.reopen(),
            58 => self.check_all(),
            59 => self.checkpoint(),
            60..66 => self.point_reads(),
            66..72 => self.range_read(),
            72..75 => self.past(),
            75..78 => self.key_history(),
            78..84 => self.graph_reads(),
            84..88 => self.hold_snapshot(),
            88..94 if !self.sizes.is_plain => self.watch(),
            109..115 => self.update(),
            115.. => self.ingest(),
            _ => self.transaction(),
        }
        self.check_floor();
    }

    pub fn note(&mut self, what: &str) {
        self.trace
            .0
            .push(format!("at {}: {what}", self.model.revision()));
    }

    // --- writes ---

    /// Commits changes to the model after the database took them at `revision`.
    pub fn committed(&mut self, changes: &[Change], revision: Revision) {
        let before = self.model.graph(self.model.revision());
        let expected = self.model.commit(changes).expect("the database took it");
        assert_eq!(revision, expected, "the revision after {changes:?}");
        assert_eq!(self.db.revision(), expected);
        let mut edges = Vec::new();
        for change in changes {
            match change {
                Change::PutBlock { id, .. } => {
                    self.block_changes.entry(*id).or_default().push(revision);
                }
                Change::DeleteBlock { id } if before.blocks.contains_key(id) => {
                    self.block_changes.entry(*id).or_default().push(revision);
                    let tied = |edge: &&EdgeKey| edge.source == *id || edge.target == *id;
                    edges.extend(before.edges.keys().filter(tied).cloned());
                }
                Change::PutEdge { edge, .. } => edges.push(edge.clone()),
                Change::DeleteEdge { edge } if before.edges.contains_key(edge) => {
                    edges.push(edge.clone());
                }
                _ => {}
            }
        }
        for edge in edges {
            self.edge_changes.entry(edge).or_default().push(revision);
        }
    }

    fn put(&mut self) {
        let (key, value) = (self.key(), random_value(&mut self.rng, 250));
        let leases: Vec<i64> = self.leases.keys().copied().collect();
        let lease = if self.rng.u8(0..4) == 0 {
            self.rng.choice(leases).unwrap_or(0)
        } else {
            0
        };
        self.note(&format!("put {} lease {lease}", key.escape_ascii()));
        self.did(if lease == 0 {
            "put"
        } else {
            "put with a lease"
        });
        let put = match LeaseId::new(lease) {
            Some(lease) => self.db.put_with_lease(&key, &value, lease),
            None => self.db.put(&key, &value),
        };
        let revision = put.expect("put");
        self.committed(&[Change::Put { key, value, lease }], revision);
    }

    fn delete(&mut self) {
        let key = self.key();
        self.note(&format!("delete {}", key.escape_ascii()));
        let before = self.model.revision();
        let was_there = self.model.get(&key, before).is_some();
        let deleted = self.db.delete(&key).expect("delete");
        assert_eq!(deleted.is_some(), was_there);
        self.did(if was_there {
            "delete"
        } else {
            "delete of what is absent"
        });
        self.committed(&[Change::Delete { key }], deleted.unwrap_or(before));
    }

    fn delete_range(&mut self) {
        let bounds = self.narrow_bounds();
        self.note(&format!("delete range {bounds:?}"));
        let held = self.model.range(bounds.clone(), self.model.revision());
        let changes: Vec<_> = held.map(|(key, _)| Change::delete(key)).collect();
        let count = self
            .db
            .delete_range(Range::from(bounds))
            .expect("delete range");
        assert_eq!(count, changes.len() as u64);
        if count > 1 {
            self.did("delete range");
        }
        self.committed(&changes, self.db.revision());
    }

    fn ingest(&mut self) {
        let count = self.rng.usize(0..20);
        let keys: BTreeSet<Vec<u8>> = (0..count).map(|_| self.key()).collect();
        let keys = keys.into_iter();
        let entries: Vec<_> = keys
            .map(|key| (key, random_value(&mut self.rng, 250)))
            .collect();
        self.note(&format!("ingest {} entries", entries.len()));
        let mut ingest = self.db.ingest().expect("ingest");
        let (first, rest) = entries.split_at(self.rng.usize(0..=entries.len()));
        for (key, value) in first {
            ingest.put(key, value).expect("it ascends");
        }
        match self.rng.u8(0..6) {
            0 => {
                self.did("ingestion beside a commit");
                self.put();
            }
            1 => {
                self.did("ingestion beside a merge");
                self.db.compact().expect("compact");
            }
            _ => {}
        }
        for (key, value) in rest {
            ingest.put(key, value).expect("it ascends");
        }
        if self.rng.u8(0..5) == 0 {
            // Out of order, or given up: either way nothing of it is seen.
            if let Some((key, _)) = entries.last() {
                let refused = ingest.put(key, "again");
                assert!(
                    matches!(refused, Err(Error::NotAscending { .. })),
                    "{refused:?}"
                );
                let refused = ingest.commit();
                assert!(
                    matches!(refused, Err(Error::NotAscending { .. })),
                    "{refused:?}"
                );
                self.did("ingestion refused");
            }
            assert_eq!(self.db.revision(), self.model.revision());
            return;
        }
        let committed = ingest.commit().expect("commit");
        assert_eq!(committed.changed, !entries.is_empty());
        self.did("ingestion");
        let entries = entries.iter();
        let changes: Vec<_> = entries
            .map(|(key, value)| Change::put(key, value))
            .collect();
        self.committed(&changes, committed.revision);
    }

    fn swap(&mut self) {
        let (key, value) = (self.key(), random_value(&mut self.rng, 60));
        let held = self.model.get(&key, self.model.revision());
        let actual = held.map_or(Revision::ZERO, |entry| entry.mod_revision);
        let expected = if self.rng.bool() {
            actual
        } else {
            Revision::new(self.rng.u64(0..=(actual + 1).get()))
        };
        self.note(&format!(
            "swap {} if at {expected} (is {actual})",
            key.escape_ascii()
        ));
        match self
            .db
            .compare_and_swap(&key, Expected::Revision(expected), &value)
        {
            Ok(revision) if expected == actual => {
                self.did("swap");
                self.committed(&[Change::put(&key, &value)], revision);
            }
            Err(Error::CompareFailed {
                expected: e,
                actual: a,
                ..
            }) if expected != actual => {
                self.did("swap refused");
                assert_eq!(
                    (e.mod_revision(), Expected::from(a).mod_revision()),
                    (expected, actual)
                );
            }
            other => panic!("{other:?}"),
        }
    }

    fn change_graph(&mut self) {
        let mut changes = random_changes(&mut self.rng, &self.model);
        self.did("graph changed");
        if self.rng.u8(0..6) == 0 {
            let id = self.rng.u128(1..=BLOCKS);
            changes = vec![Change::DeleteBlock { id }];
            let graph = self.model.graph(self.model.revision());
            if graph.edges.keys().any(|e| e.source == id || e.target == id) {
                self.did("block deleted with its edges");
            }
        }
        self.note(&format!("{changes:?}"));
        let stage_all =
            |tx: &mut bowline::Transaction| changes.iter().try_for_each(|c| stage(tx, c));
        self.db.transact(stage_all).expect("it is valid");
        self.committed(&changes, self.db.revision());
    }

    // --- leases ---

    fn now(&self) -> Duration {
        bowline::Clock::monotonic(&self.clock)
    }

    fn lease(&mut self) {
        let id = self.rng.i64(1..=LEASES);
        if self.leases.contains_key(&id) {
            if self.rng.bool() {
                self.note(&format!("keep lease {id} alive"));
                self.did("lease kept alive");
                let ttl = self.db.keep_alive(lease_id(id)).expect("it exists");
                assert_eq!(ttl, self.leases[&id].0);
                self.leases.insert(id, (ttl, self.now() + ttl));
            } else {
                self.note(&format!("revoke lease {id}"));
                self.did("lease revoked");
                let count = self.db.revoke_lease(lease_id(id)).expect("it exists");
                let changes = self.end_of_lease(id);
                assert_eq!(count, changes.len() as u64);
                self.committed(&changes, self.db.revision());
            }
            return;
        }
        assert!(matches!(
            self.db.revoke_lease(lease_id(id)),
            Err(Error::LeaseNotFound { .. })
        ));
        let put = self.db.put_with_lease("k00", "", lease_id(id));
        assert!(matches!(put, Err(Error::LeaseNotFound { .. })), "{put:?}");
        let ttl = Duration::from_millis(self.rng.u64(1..5000));
        self.note(&format!("grant lease {id} for {ttl:?}"));
        self.did("lease granted");
        self.db
            .grant_lease_with_id(lease_id(id), ttl)
            .expect("it is new");
        self.leases.insert(id, (ttl, self.now() + ttl));
        let again = self.db.grant_lease_with_id(lease_id(id), ttl);
        assert!(matches!(again, Err(Error::LeaseExists { .. })), "{again:?}");
    }

    fn end_of_lease(&mut self, id: i64) -> Vec<Change> {
        self.leases.remove(&id);
        let is_held = |(_, entry): (_, &bowline_testing::model::Entry)| entry.lease == id;
        if self.model.range(.., self.model.revision()).any(is_held) {
            self.did("keys gone with a lease");
        }
        let held = self.model.range(.., self.model.revision());
        held.filter(|(_, entry)| entry.lease == id)
            .map(|(key, _)| Change::delete(key))
            .collect()
    }

    fn expire(&mut self) {
        // To the very end of a lease, to a moment before, or anywhere.
        let ends: Vec<Duration> = self.leases.values().map(|(_, end)| *end).collect();
        let left = self.rng.choice(ends).unwrap_or_default();
        let left = left.saturating_sub(self.now());
        let by = match self.rng.u8(0..4) {
            0 => left,
            1 => left.saturating_sub(Duration::from_nanos(1)),
            _ => Duration::from_millis(self.rng.u64(0..1500)),
        };
        self.note(&format!("expire after {by:?}"));
        self.clock.advance(by);
        let now = self.now();
        let due = self
            .leases
            .iter()
            .filter(|(_, (_, deadline))| *deadline <= now);
        let due: Vec<i64> = due.map(|(id, _)| *id).collect();
        if !due.is_empty() {
            self.did("lease expired");
        } else if !self.leases.is_empty() {
            self.did("lease not yet due");
        }
        assert_eq!(self.db.expire_leases().expect("expire"), due.len() as u64);
        // One transaction each, by id; the revisions are compared at the end.
        let last = self.db.revision();
        for id in due {
            let changes = self.end_of_lease(id);
            let before = self.model.revision();
            self.model.commit(&changes).expect("deletes are valid");
            assert_eq!(
                self.model.revision() - before,
                u64::from(!changes.is_empty())
            );
        }
        assert_eq!(self.model.revision(), last);
    }

    // --- upkeep ---

    fn compact(&mut self) {
        let revision = Revision::new(self.rng.u64(0..=self.model.revision().get() + 2));
        self.note(&format!("compact {revision}"));
        let (oldest, newest) = (self.db.oldest_revision(), self.model.revision());
        match self.db.trim_history(revision) {
            Ok(()) => {
                assert!((oldest..=newest).contains(&revision));
                self.compacted = revision;
                self.did("history compacted");
                assert_eq!(self.db.oldest_revision(), revision);
            }
            Err(error) => {
                self.did("compaction of history refused");
                self.check_refusal(&error, revision, oldest);
            }
        }
    }

    /// A revision that was refused is outside of what can be read.
    pub fn check_refusal(&self, error: &Error, revision: Revision, oldest: Revision) {
        let newest = self.model.revision();
        match error {
            Error::FutureRevision {
                requested,
                current,
                oldest: stated,
            } => {
                assert_eq!((*requested, *current, *stated), (revision, newest, oldest));
                assert!(revision > newest, "{error}");
            }
            Error::Compacted {
                requested,
                oldest: stated,
                current,
            } => {
                assert_eq!((*requested, *current, *stated), (revision, newest, oldest));
                assert!(revision < oldest, "{error}");
            }
            other => panic!("{other}"),
        }
    }

    /// The oldest readable revision is what the setting allows.
    fn check_floor(&self) {
        let (oldest, newest) = (self.db.oldest_revision(), self.model.revision());
        let least = self.compacted.max(Revision::new(1));
        match self.history {
            History::All => assert_eq!(oldest, least, "all history is kept"),
            History::Revisions(count) => {
                let kept = newest.saturating_sub(count).max(least);
                assert!(
                    (least..=kept).contains(&oldest),
                    "{oldest} is not in {least}..={kept}"
                );
            }
            _ => assert!((least..=newest).contains(&oldest), "{oldest} of {newest}"),
        }
    }

    fn add_counters(&mut self) {
        let counters = self.db.stats().engine.counters;
        self.counters.flushes += counters.flushes;
        self.counters.compactions += counters.compactions;
    }

    fn reopen(&mut self) {
        self.note("reopen");
        self.add_counters();
        self.snapshots.clear();
        self.watches.clear();
        self.transactions.clear();
        if self.rng.bool() {
            self.did("reopened");
            self.db.close().expect("close");
            assert!(matches!(self.db.get("k00"), Err(Error::Closed)));
        } else {
            // As the disk is, without a last word of the database.
            self.did("reopened after a kill");
            self.disk = self.disk.after_kill();
        }
        let builder = self.sizes.apply(small_database(&self.disk, &self.clock));
        let builder = builder.history(self.history);
        self.db = builder.open("db").expect("it opens again");
        // The time of a lease goes on, and a record may be late; never is less left than must be. What an opening
        // shows is up to a millisecond more than what is recorded.
        let now = self.now();
        let shown_more = Duration::from_millis(1);
        for lease in self.db.leases() {
            let (ttl, deadline) = self.leases.get_mut(&lease.id.get()).expect("it is known");
            let most = *ttl + (*ttl).max(Duration::from_secs(10));
            let bounds = deadline.saturating_sub(now + shown_more)..=most;
            assert!(bounds.contains(&lease.remaining), "{lease:?}: {bounds:?}");
            *deadline = now + lease.remaining;
        }
    }

    /// Copies the database, and compares the copy.
    fn checkpoint(&mut self) {
        self.note("checkpoint");
        self.did("checkpoint opened");
        self.checkpoints += 1;
        let path = format!("copy-{}", self.checkpoints);
        let revision = self.db.checkpoint(&path).expect("checkpoint");
        assert_eq!(revision, self.model.revision());
        let builder = self.sizes.apply(small_database(&self.disk, &self.clock));
        let copy = builder.history(self.history).open(&path);
        let copy = copy.expect("the copy opens");
        assert_eq!(copy.revision(), revision);
        self.compare(&copy.snapshot());
        let check = copy.check().expect("check");
        assert!(check.is_clean(), "the copy: {check:?}");
        copy.close().expect("close");
    }

    fn check_all(&mut self) {
        self.note("check");
        self.did("everything compared");
        assert_eq!(self.db.revision(), self.model.revision());
        self.compare(&self.db.snapshot());
        let leases: Vec<_> = self
            .db
            .leases()
            .iter()
            .map(|l| (l.id.get(), l.ttl))
            .collect();
        let expected: Vec<_> = self
            .leases
            .iter()
            .map(|(id, (ttl, _))| (*id, *ttl))
            .collect();
        assert_eq!(leases, expected);
        for id in self.leases.keys() {
            let keys = self.db.lease_keys(lease_id(*id)).expect("it exists");
            let keys: Vec<_> = keys.map(|key| key.expect("a read")).collect();
            let held = self.model.range(.., self.model.revision());
            let held = held.filter(|(_, entry)| entry.lease == *id);
            assert_eq!(keys, held.map(|(key, _)| &key[..]).collect::<Vec<_>>());
        }
        let check = self.db.check().expect("check");
        assert!(check.is_clean(), "{check:?}");
    }

    /// Compares all that a snapshot shows.
    pub fn compare(&self, snapshot: &Snapshot) {
        let found = Contents::of_snapshot(snapshot).expect("reading");
        let expected = Contents::of_model(&self.model, snapshot.revision());
        assert_eq!(
            found.difference(&expected),
            None,
            "at {}",
            snapshot.revision()
        );
    }

    // --- random choices ---

    pub fn key(&mut self) -> Vec<u8> {
        random_key(&mut self.rng)
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        let mut key = self.key();
        if self.rng.u8(0..3) == 0 {
            key.push(b'x');
        }
        match self.rng.u8(0..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    /// Any bounds that are not the wrong way round.
    pub fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        loop {
            let (lower, upper) = (self.bound(), self.bound());
            let is_valid = match (&lower, &upper) {
                // The model's map refuses the empty range between two excluded equal keys.
                (Bound::Excluded(l), Bound::Excluded(u)) => l < u,
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
                (
                    Bound::Included(l) | Bound::Excluded(l),
                    Bound::Included(u) | Bound::Excluded(u),
                ) => l <= u,
            };
            if is_valid {
                return (lower, upper);
            }
        }
    }

    fn narrow_bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = self.rng.u32(0..40);
        let end = start + self.rng.u32(0..6);
        let key = |number| format!("k{number:02}").into_bytes();
        (Bound::Included(key(start)), Bound::Excluded(key(end)))
    }

    // --- what is held while other things happen ---

    pub fn hold(&mut self, snapshot: Snapshot) {
        if self.snapshots.len() == HELD_MAX {
            self.snapshots.swap_remove(self.rng.usize(0..HELD_MAX));
        }
        self.snapshots.push(HeldSnapshot { snapshot });
    }

    fn hold_snapshot(&mut self) {
        if self.rng.bool() || self.snapshots.is_empty() {
            self.note("hold a snapshot");
            self.did("snapshot held");
            return self.hold(self.db.snapshot());
        }
        let which = self.rng.usize(0..self.snapshots.len());
        self.did("held snapshot read");
        self.note(&format!(
            "read snapshot {}",
            self.snapshots[which].snapshot.revision()
        ));
        self.compare(&self.snapshots[which].snapshot);
    }

    fn watch(&mut self) {
        if self.watches.len() < HELD_MAX && self.rng.u8(0..3) == 0 {
            let newest = self.model.revision();
            let from = self.rng.bool();
            let from = from.then(|| Revision::new(self.rng.u64(0..=newest.get() + 3)));
            let bounds = self.bounds();
            let with_previous = self.rng.bool();
            self.note(&format!("watch {bounds:?} from {from:?}"));
            if let Some(watch) = Watch::start(self, bounds, from, with_previous) {
                self.watches.push(watch);
            }
            return;
        }
        if self.watches.is_empty() {
            return;
        }
        let mut watch = self
            .watches
            .swap_remove(self.rng.usize(0..self.watches.len()));
        self.note(&format!("poll the watch that is at {}", watch.next()));
        if !watch.catch_up(self) {
            return;
        }
        match self.rng.u8(0..8) {
            0 => {}
            1 | 2 => {
                self.note("start it anew from where it is");
                self.watches.extend(watch.resume(self));
            }
            _ => self.watches.push(watch),
        }
    }

    fn transaction(&mut self) {
        if self.transactions.len() < HELD_MAX && self.rng.u8(0..3) == 0 {
            let transaction = OpenTransaction::begin(self);
            self.note(&format!("begin {:?}", transaction.isolation()));
            self.did(match transaction.isolation() {
                bowline::Isolation::Serializable => "transaction serializable",
                bowline::Isolation::Snapshot => "transaction snapshot",
            });
            self.transactions.push(transaction);
            return;
        }
        if self.transactions.is_empty() {
            return;
        }
        let which = self.rng.usize(0..self.transactions.len());
        let mut transaction = self.transactions.swap_remove(which);
        if self.rng.u8(0..3) == 0 {
            self.note(&format!("finish {transaction:?}"));
            transaction.finish(self);
        } else {
            for _ in 0..self.rng.u8(1..4) {
                let did = transaction.act(self);
                self.note(&format!(
                    "in the transaction at {}: {did}",
                    transaction.revision()
                ));
            }
            self.transactions.push(transaction);
        }
    }
}
