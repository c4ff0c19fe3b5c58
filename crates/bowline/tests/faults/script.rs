//! The scripted life of a database, and the judgement of everything it says meanwhile.
//!
//! The script is the same in each run; what differs is what goes wrong. After each step the runner
//! knows what was acknowledged, and what was refused with an unknown outcome:
//!
//! - A commit that failed with `Poisoned` may be on the disk or not, whole; no later commit is ever
//!   acknowledged by the same handle. After any other error it is not there.
//! - An error names the file, and says rightly whether to try again.
//! - What failed for a passing reason succeeds when it is tried again.
//! - Readers see exactly what was acknowledged, in the running database and after each reopening:
//!   of the disk as it is, and of the disk that lost whatever was not synced.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bowline::vfs::Vfs;
use bowline::{BlobOptions, Db, Durability, Error, Revision, StorageError};
use bowline_testing::fault::Traced;
use bowline_testing::lease_id;
use bowline_testing::model::Change;
use bowline_testing::{FaultVfs, ManualClock, Model, SimDisk};

use crate::support::{Contents, random_changes, random_value, small_database, stage};

/// Where the database is on the disk.
const PATH: &str = "db";
/// Where its copy goes.
const COPY: &str = "copy";
const LEASE: i64 = 7;

/// What a run checks beyond the promises that always hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Nothing may fail.
    NoError,
    /// One call fails; whatever is tried again goes well.
    OneFault,
    /// Everything fails from some call on, until the disk is mended at the end.
    FromHereOn,
}

/// Which script.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Script {
    /// Everything, each commit flushed.
    Synced,
    /// The same, commits flushed now and then.
    Batched,
    /// A manifest that grows until it is replaced.
    Manifest,
    /// Sorted keys that go straight into tables, between other commits.
    Ingestion,
}

/// A run of the script.
pub struct Run {
    pub disk: SimDisk,
    pub vfs: FaultVfs,
    clock: ManualClock,
    script: Script,
    expect: Expect,
    rng: fastrand::Rng,
    db: Option<Db>,
    /// Handles of processes that were killed: dropping one earlier would do more than they did.
    killed: Vec<Db>,
    /// What was acknowledged.
    model: Model,
    /// The state with the commit of unknown outcome, if there is one.
    maybe: Option<Model>,
    /// The revision that no power loss can take back.
    durable: Revision,
    /// Whether this handle has refused a commit as `Poisoned`.
    is_stopped: bool,
    /// Whether a lease's grant failed, so that nobody knows whether it exists.
    is_lease_unknown: bool,
    /// The phases with the number of calls before each.
    pub phases: Vec<(&'static str, usize)>,
    /// What the database said, in words.
    pub errors: Vec<String>,
}

impl Run {
    pub fn new(script: Script, expect: Expect) -> Run {
        // Salts and ids come from the thread's generator: the same run each time.
        fastrand::seed(1);
        let disk = SimDisk::new();
        let vfs = FaultVfs::new(disk.clone());
        vfs.start_trace();
        Run {
            disk,
            vfs,
            clock: ManualClock::new(),
            script,
            expect,
            rng: fastrand::Rng::with_seed(2),
            db: None,
            killed: Vec::new(),
            model: Model::new(),
            maybe: None,
            durable: Revision::new(1),
            is_stopped: false,
            is_lease_unknown: false,
            phases: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Runs the whole script, then judges what is left on the disk.
    pub fn run(&mut self) {
        match self.script {
            Script::Synced | Script::Batched => self.life(),
            Script::Manifest => self.replaced_manifest(),
            Script::Ingestion => self.ingestions(),
        }
        self.end();
    }

    fn life(&mut self) {
        self.phase("create");
        self.open();
        self.phase("commit");
        for _ in 0..12 {
            self.random_commit();
        }
        self.leases();
        self.see();
        self.phase("rotate");
        for at in 0..16 {
            self.put(&format!("large{}", at % 5), 2_500);
        }
        self.see();
        self.phase("flush");
        self.random_commit();
        self.upkeep("flush", |db| db.flush());
        self.see();
        self.phase("merge");
        self.random_commit();
        self.delete_range();
        self.upkeep("compact_tables", |db| db.compact());
        self.see();
        self.phase("trim");
        for _ in 0..4 {
            self.random_commit();
        }
        self.upkeep("sync", Db::sync);
        self.upkeep("compact", |db| match db.trim_history(db.revision()) {
            // The floor in memory rose before the disk failed.
            Err(Error::Compacted { .. }) => Ok(()),
            other => other,
        });
        self.upkeep("compact_tables", |db| db.compact());
        self.see();
        self.phase("checkpoint");
        self.random_commit();
        self.checkpoint();
        // Built, saved by the close, and read again: what fails there costs a build, and no answer.
        self.phase("graph view");
        self.view();
        self.phase("check");
        self.check();
        self.random_commit();
        self.phase("close");
        self.close();
        self.phase("open");
        self.open();
        self.phase("graph view again");
        self.view();
        self.phase("read");
        self.see();
        self.phase("commit again");
        for _ in 0..3 {
            self.random_commit();
        }
        self.see();
        // The process is killed: the log is not sealed, and its tail is to be made sure of.
        self.phase("open after a kill");
        self.kill();
        self.open();
        self.see();
        self.random_commit();
        self.phase("close again");
        self.close();
    }

    fn replaced_manifest(&mut self) {
        self.phase("create");
        self.open();
        self.phase("long keys");
        for at in 0..9 {
            let key = format!("{at}{}", "k".repeat(60_000));
            self.commit(&[Change::put(key.as_bytes(), b"v")]);
        }
        self.upkeep("flush", |db| db.flush());
        self.see();
        self.delete_range();
        self.phase("replace the manifest");
        self.upkeep("compact_tables", |db| db.compact());
        self.see();
        self.phase("append to the new one");
        self.random_commit();
        self.upkeep("flush", |db| db.flush());
        self.see();
        self.phase("close");
        self.close();
        self.phase("open");
        self.open();
        self.see();
        self.random_commit();
        self.upkeep("flush", |db| db.flush());
        self.close();
    }

    fn ingestions(&mut self) {
        self.phase("create");
        self.open();
        self.phase("ingest into nothing");
        self.ingest(40, false);
        self.see();
        self.phase("commit");
        for _ in 0..4 {
            self.random_commit();
        }
        self.leases();
        self.phase("ingest beside a memtable");
        self.ingest(25, false);
        self.see();
        self.random_commit();
        self.phase("ingest beside a commit");
        self.ingest(25, true);
        self.see();
        self.phase("merge");
        self.upkeep("compact_tables", |db| db.compact());
        self.see();
        self.phase("close");
        self.close();
        self.phase("open");
        self.open();
        self.see();
        self.ingest(10, false);
        self.random_commit();
        self.phase("open after a kill");
        self.kill();
        self.open();
        self.see();
        self.random_commit();
        self.phase("close again");
        self.close();
    }

    /// Puts every third key or so at one revision; with `beside`, another commit comes in between.
    fn ingest(&mut self, count: u32, beside: bool) {
        let keys = (0..count).map(|number| format!("k{:03}", number * 3));
        let changes: Vec<_> = keys
            .chain(["leased".to_owned()])
            .map(|key| Change::put(key.as_bytes(), &random_value(&mut self.rng, 200)))
            .collect();
        let Some(db) = self.db.clone() else { return };
        let begin = || {
            let mut ingest = db.ingest()?;
            for change in &changes {
                if let Change::Put { key, value, .. } = change {
                    ingest.put(key, value)?;
                }
            }
            Ok(ingest)
        };
        if !beside {
            self.commit_by(&changes, |_| begin()?.commit().map(drop));
            return;
        }
        // With a commit before its own it is written again.
        match begin() {
            Ok(ingest) => {
                self.random_commit();
                let begun = RefCell::new(Some(ingest));
                self.commit_by(&changes, |_| {
                    let begun = begun.take().expect("it is committed once");
                    begun.commit().map(drop)
                });
            }
            Err(error) => self.judge("ingest", &error),
        }
    }

    fn phase(&mut self, name: &'static str) {
        self.phases.push((name, self.vfs.trace().len()));
    }

    fn durability(&self) -> Durability {
        match self.script {
            Script::Batched => Durability::Batched {
                every: Duration::from_secs(3600),
            },
            _ => Durability::Sync,
        }
    }

    /// In one script most values have files of their own.
    fn blobs(&self) -> BlobOptions {
        match self.script {
            Script::Batched => BlobOptions {
                threshold_bytes: Some(64),
                garbage_percent_max: 20,
                file_bytes: 2 << 10,
            },
            _ => BlobOptions::default(),
        }
    }

    fn open_on(&self, vfs: Arc<dyn Vfs>, path: &str) -> Result<Db, Error> {
        small_database(&self.disk, &self.clock)
            .vfs(vfs)
            .blobs(self.blobs())
            .durability(self.durability())
            .open(path)
    }

    /// Opens the database, a second time when it fails: an opening that fails leaves the directory
    /// as good as it was.
    fn open(&mut self) {
        let vfs: Arc<dyn Vfs> = Arc::new(self.vfs.clone());
        let mut result = self.open_on(vfs.clone(), PATH);
        if let Err(error) = &result {
            self.judge("open", error);
            result = self.open_on(vfs, PATH);
        }
        match result {
            Ok(db) => {
                self.is_stopped = false;
                self.settle(&db);
                self.db = Some(db);
            }
            Err(error) if self.expect == Expect::FromHereOn => self.judge("open", &error),
            Err(error) => panic!("the second opening failed: {error}"),
        }
    }

    /// After an opening, whether the commit of unknown outcome happened is known.
    fn settle(&mut self, db: &Db) {
        if let Some(maybe) = self.maybe.take()
            && db.revision() == maybe.revision()
        {
            self.model = maybe;
        }
        assert_eq!(db.revision(), self.model.revision(), "after opening");
        // Everything an opened database shows is on the disk.
        self.durable = self.model.revision();
        if self.is_lease_unknown && db.leases().iter().all(|lease| lease.id != lease_id(LEASE)) {
            self.is_lease_unknown = false;
        }
    }

    /// Whether an error is one that the fault explains, with everything a user needs to know.
    fn judge(&mut self, what: &str, error: &Error) {
        let text = format!("{what}: {error}");
        assert!(
            self.expect != Expect::NoError,
            "nothing should fail: {text}"
        );
        let faulty: Vec<Traced> = self.faulty();
        let names = |text: &str| {
            faulty
                .iter()
                .flat_map(|call| &call.paths)
                .any(|path| text.contains(&*path.to_string_lossy()))
        };
        let source = match error {
            Error::Storage(source) => source,
            Error::LeaseNotFound { .. } | Error::LeaseExists { .. } if self.is_lease_unknown => {
                return;
            }
            other => panic!("an unexpected kind of error: {other:?}"),
        };
        match source {
            StorageError::Io {
                operation, source, ..
            } => {
                assert!(!operation.is_empty(), "{text}");
                assert!(!error.is_retryable(), "{text}");
                // What could not be removed after a failure may stand in the way.
                let is_in_the_way = self.expect == Expect::FromHereOn
                    && source.kind() == std::io::ErrorKind::DirectoryNotEmpty;
                assert!(source.raw_os_error() == Some(5) || is_in_the_way, "{text}");
            }
            StorageError::NoSpace { .. } | StorageError::TooManyFiles { .. } => {
                assert!(error.is_retryable(), "{text}");
            }
            StorageError::Poisoned { .. } => assert!(!error.is_retryable(), "{text}"),
            other => panic!("an unexpected kind of error: {other:?}"),
        }
        assert!(names(&text), "{text} names none of {faulty:?}");
        self.errors.push(text);
    }

    fn faulty(&self) -> Vec<Traced> {
        let mut calls = self.vfs.trace();
        // The failures of the simulated disk itself are not told apart from sound syncs.
        if calls.iter().any(|call| call.is_injected) {
            calls.retain(|call| call.is_injected);
        }
        calls
    }

    fn random_commit(&mut self) {
        let mut changes = random_changes(&mut self.rng, &self.model);
        // Something in each, so that each takes a revision.
        let value = random_value(&mut self.rng, 60);
        changes.push(Change::put(b"always", &value));
        self.commit(&changes);
    }

    fn put(&mut self, key: &str, len: usize) {
        let mut value = vec![0; len];
        self.rng.fill(&mut value);
        self.commit(&[Change::put(key.as_bytes(), &value)]);
    }

    fn commit(&mut self, changes: &[Change]) {
        self.commit_by(changes, |db| {
            db.transact(|tx| changes.iter().try_for_each(|change| stage(tx, change)))
        });
    }

    fn commit_by(&mut self, changes: &[Change], call: impl Fn(&Db) -> Result<(), Error>) {
        let mut next = self.model.clone();
        if next.commit(changes).is_err() || next.revision() == self.model.revision() {
            // With a refused commit before it, it may have become void.
            return;
        }
        let Some(db) = self.db.clone() else { return };
        match call(&db) {
            Ok(()) => {
                assert!(
                    !self.is_stopped,
                    "acknowledged after a commit of unknown outcome: {:?}",
                    self.errors
                );
                self.model = next;
                if self.script != Script::Batched {
                    self.durable = self.model.revision();
                }
            }
            Err(error) => {
                self.judge("commit", &error);
                if is_poisoned(&error) {
                    if !self.is_stopped {
                        self.maybe = Some(next);
                    }
                    self.is_stopped = true;
                }
            }
        }
        assert_eq!(db.revision(), self.model.revision(), "after {changes:?}");
    }

    fn leases(&mut self) {
        let Some(db) = self.db.clone() else { return };
        if let Err(error) = db.grant_lease_with_id(lease_id(LEASE), Duration::from_secs(60)) {
            self.is_lease_unknown = true;
            self.judge("grant", &error);
            self.is_stopped |= is_poisoned(&error);
        }
        let change = Change::Put {
            key: b"leased".to_vec(),
            value: b"v".to_vec(),
            lease: LEASE,
        };
        self.commit_by(&[change], |db| {
            db.put_with_lease(b"leased", b"v", lease_id(LEASE))
                .map(drop)
        });
        let held = self.model.get(b"leased", self.model.revision()).is_some();
        if held && self.rng.bool() {
            self.commit_by(&[Change::delete(b"leased")], |db| {
                db.revoke_lease(lease_id(LEASE)).map(drop)
            });
        }
    }

    fn delete_range(&mut self) {
        let held = self.model.range(.., self.model.revision());
        let changes: Vec<_> = held
            .filter(|(key, _)| *key < &b"k2".to_vec())
            .map(|(key, _)| Change::delete(key))
            .collect();
        self.commit_by(&changes, |db| db.delete_range(..b"k2".to_vec()).map(drop));
    }

    /// Does something that changes nothing a reader sees. What a passing fault has kept from
    /// happening can be done again.
    fn upkeep(&mut self, what: &str, call: impl Fn(&Db) -> Result<(), Error>) {
        let Some(db) = self.db.clone() else { return };
        let mut result = call(&db);
        if let Err(first) = result.clone() {
            self.judge(what, &first);
            result = call(&db);
            if let Err(second) = &result {
                self.judge(what, second);
                let may_fail = self.expect == Expect::FromHereOn
                    || (is_poisoned(second) && !first.is_retryable());
                assert!(may_fail, "{what} again: {second}, after {first}");
            }
        }
        let syncs = !["compact", "graph view"].contains(&what);
        if result.is_ok() && syncs && !self.is_stopped {
            self.durable = self.model.revision();
        }
        assert_eq!(db.revision(), self.model.revision(), "after {what}");
    }

    /// Reads everything.
    fn see(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let contents = || Contents::of_snapshot(&db.snapshot());
        let mut found = contents();
        if let Err(error) = &found {
            self.judge("read", error);
            found = contents();
        }
        match found {
            Ok(found) => {
                let expected = Contents::of_model(&self.model, self.model.revision());
                let difference = found.difference(&expected);
                assert_eq!(difference, None, "what readers see");
            }
            Err(error) if self.expect == Expect::FromHereOn => self.judge("read", &error),
            Err(error) => panic!("reading again failed: {error}"),
        }
    }

    /// Copies the database; a copy that failed is not a database, and can be made again.
    fn checkpoint(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let open_copy =
            |run: &Run, disk: SimDisk| small_database(&disk, &run.clock).create(false).open(COPY);
        let mut result = db.checkpoint(COPY);
        if let Err(first) = result.clone() {
            self.judge("checkpoint", &first);
            match open_copy(self, self.disk.after_kill()) {
                Err(Error::Storage(
                    StorageError::NotADatabase { .. } | StorageError::MissingFile { .. },
                )) => {}
                Err(other) => panic!("an unfinished copy: {other}, after {first}"),
                // Complete, but for the last sync, and then not even its name could be removed.
                Ok(copy) if self.expect == Expect::FromHereOn => self.assert_is_copy(&copy),
                Ok(_) => panic!("an unfinished copy opens, after {first}"),
            }
            result = db.checkpoint(COPY);
            if let Err(second) = &result {
                self.judge("checkpoint", second);
                let may_fail = self.expect == Expect::FromHereOn
                    || (is_poisoned(second) && !first.is_retryable());
                assert!(may_fail, "the copy again: {second}, after {first}");
            }
        }
        if result.is_ok() {
            if !self.is_stopped {
                self.durable = self.model.revision();
            }
            for disk in [self.disk.after_kill(), self.disk.after_power_loss()] {
                self.assert_is_copy(&open_copy(self, disk).expect("a copy opens"));
            }
        }
    }

    fn assert_is_copy(&self, copy: &Db) {
        let found = Contents::of_snapshot(&copy.snapshot()).expect("a copy reads");
        let expected = Contents::of_model(&self.model, self.model.revision());
        assert_eq!(found.difference(&expected), None, "the copy");
    }

    /// A check tells of a file that it could not read, and does not call it damaged.
    fn view(&mut self) {
        self.upkeep("graph view", |db| db.build_graph_view().map(drop));
    }

    fn check(&mut self) {
        let Some(db) = self.db.clone() else { return };
        for attempt in 0..2 {
            match db.check() {
                Ok(check) if check.is_clean() => return,
                Ok(check) => {
                    assert!(check.problems.is_empty(), "{:?}", check.problems);
                    let errors: Vec<_> = check.files.errors().cloned().collect();
                    for error in errors {
                        self.judge("check", &Error::Storage(error));
                    }
                }
                Err(error) => self.judge("check", &error),
            }
            let may_fail = attempt == 0 || self.expect == Expect::FromHereOn || self.is_stopped;
            assert!(may_fail, "a second check fails as well: {:?}", self.errors);
        }
    }

    /// Judges the disk on the way: of no use before anything went wrong, or when nothing may.
    fn judge_disk_meanwhile(&self) {
        if self.expect != Expect::NoError && !self.errors.is_empty() {
            self.judge_disk();
        }
    }

    fn close(&mut self) {
        if let Some(db) = self.db.take() {
            match db.close() {
                Ok(()) => self.durable = self.model.revision(),
                Err(error) => self.judge("close", &error),
            }
        }
        self.judge_disk_meanwhile();
    }

    fn kill(&mut self) {
        self.judge_disk_meanwhile();
        self.killed.extend(self.db.take());
        self.disk.kill();
    }

    /// What is on the disk after the end of the script, with nothing failing any more.
    fn end(&mut self) {
        self.vfs.clear();
        self.disk.fail_syncs(0);
        self.db = None;
        self.judge_disk();
        self.killed.clear();
    }

    /// Opens what a kill and what a power loss would leave now, and compares.
    fn judge_disk(&self) {
        for (disk, has_lost) in [
            (self.disk.after_kill(), false),
            (self.disk.after_power_loss(), true),
        ] {
            let context = if has_lost { "power loss" } else { "kill" };
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let db = match self.open_on(vfs.clone(), PATH) {
                Ok(db) => db,
                Err(error) => panic!("after a {context} it does not open: {error}"),
            };
            let least = if has_lost {
                self.durable
            } else {
                self.model.revision()
            };
            let revision = db.revision();
            let model = match &self.maybe {
                Some(maybe) if maybe.revision() == revision => maybe,
                _ => &self.model,
            };
            assert!(
                (least..=model.revision()).contains(&revision),
                "after a {context} at revision {revision}, not one of {least}..={}; {:?}",
                model.revision(),
                self.errors
            );
            let found = Contents::of_snapshot(&db.snapshot()).expect("it reads");
            let expected = Contents::of_model(model, revision);
            assert_eq!(found.difference(&expected), None, "after a {context}");
            let probe = db.put("probe", "v").expect("it writes");
            assert!(db.check().expect("it is checked").is_clean());
            drop(db);
            let db = self.open_on(vfs, PATH).expect("it opens again");
            assert_eq!(db.revision(), probe, "after a {context} and a reopening");
        }
    }
}

fn is_poisoned(error: &Error) -> bool {
    matches!(error, Error::Storage(StorageError::Poisoned { .. }))
}
