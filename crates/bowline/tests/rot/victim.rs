//! The databases that are damaged, what they are known to hold, and the older versions of their
//! files.
//!
//! Each is built twice from the same choices with other bytes in the values: the *twin* is a
//! database that agrees with it in most names, lengths and places, as two databases on one disk
//! may. A misdirected write can put a piece of the one into the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bowline::{BlobOptions, Db, DbBuilder, History, Revision};
use bowline_testing::lease_id;
use bowline_testing::model::{Change, EdgeKey};
use bowline_testing::{ManualClock, Model, SimDisk};

use crate::support::{BLOCKS, EDGE_KINDS, block_kinds, small_database, stage};

/// How a database is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Three keys, no table.
    Tiny,
    /// Tables on several levels with history, graph and leases; a log that was rotated and
    /// recycled and holds more.
    Levels,
    /// Several segments of log and no table.
    LogOnly,
    /// Pages of 8 KiB and compressed values.
    LargePages,
    /// Opened several times, with tables and a chain of short segments.
    Reopened,
    /// A manifest that was replaced by a new one.
    Rewritten,
    /// A checkpoint of a database: tables and a manifest, no log.
    Checkpoint,
    /// Most values in blob files.
    Blobs,
}

/// How its last process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Closed,
    Killed,
}

/// All that is tried.
pub const SHAPES: [(Shape, Ending); 14] = [
    (Shape::Tiny, Ending::Closed),
    (Shape::Tiny, Ending::Killed),
    (Shape::Levels, Ending::Closed),
    (Shape::Levels, Ending::Killed),
    (Shape::LogOnly, Ending::Closed),
    (Shape::LogOnly, Ending::Killed),
    (Shape::LargePages, Ending::Closed),
    (Shape::LargePages, Ending::Killed),
    (Shape::Reopened, Ending::Closed),
    (Shape::Reopened, Ending::Killed),
    (Shape::Rewritten, Ending::Killed),
    (Shape::Checkpoint, Ending::Closed),
    (Shape::Blobs, Ending::Closed),
    (Shape::Blobs, Ending::Killed),
];

/// One entry of the commit order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub revision: Revision,
    pub leases: BTreeMap<i64, Duration>,
}

/// All files of a database by path, without the lock.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A database at rest.
pub struct Victim {
    pub shape: Shape,
    pub ending: Ending,
    pub path: &'static str,
    pub disk: SimDisk,
    pub model: Model,
    /// Oldest first; the last is what it holds.
    pub steps: Vec<Step>,
    pub files: Files,
    /// Earlier contents of its files, those of released segments included.
    pub older: BTreeMap<String, Vec<Vec<u8>>>,
    /// The files of the other database.
    pub twin: Files,
}

impl Victim {
    pub fn new(shape: Shape, ending: Ending, seed: u64) -> Victim {
        let work = |noise| {
            // The database draws its id and its salts from here.
            fastrand::seed(noise);
            let mut work = Work::new(shape, seed, noise);
            work.run();
            work.end(ending)
        };
        let mut victim = work(seed ^ 1);
        victim.twin = work(seed ^ 2).files;
        victim
    }

    pub fn builder(&self, disk: &SimDisk) -> DbBuilder {
        builder(self.shape, disk)
    }

    pub fn last(&self) -> &Step {
        self.steps.last().expect("there is a first step")
    }
}

fn builder(shape: Shape, disk: &SimDisk) -> DbBuilder {
    let builder = small_database(disk, &ManualClock::new()).history(History::All);
    match shape {
        Shape::LogOnly => builder.memtable_bytes(256 << 10),
        Shape::LargePages => builder
            .page_bytes(8 << 10)
            .memtable_bytes(128 << 10)
            .log_segment_bytes(48 << 10),
        Shape::Blobs => builder.blobs(BlobOptions {
            threshold_bytes: Some(64),
            garbage_percent_max: 20,
            file_bytes: 4 << 10,
        }),
        _ => builder,
    }
}

/// The files below `path`, without the lock.
pub fn files_of(disk: &SimDisk, path: &str) -> Files {
    let prefix = format!("{path}/");
    let inside = |name: &String| name.starts_with(&prefix) && !name.ends_with("/LOCK");
    let contents = |name: String| Some((name.clone(), disk.read(Path::new(&name)).ok()?));
    disk.paths()
        .into_iter()
        .filter(inside)
        .filter_map(contents)
        .collect()
}

const PATH: &str = "db";
const COPY: &str = "copy";

/// A database in the making.
struct Work {
    shape: Shape,
    disk: SimDisk,
    db: Option<Db>,
    /// Chooses what is done; the same in the twin.
    choices: fastrand::Rng,
    /// Fills the values; another in the twin.
    noise: fastrand::Rng,
    model: Model,
    steps: Vec<Step>,
    older: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Work {
    fn new(shape: Shape, seed: u64, noise: u64) -> Work {
        let disk = SimDisk::new();
        Work {
            shape,
            db: Some(builder(shape, &disk).open(PATH).expect("it opens")),
            disk,
            choices: fastrand::Rng::with_seed(seed),
            noise: fastrand::Rng::with_seed(noise),
            model: Model::new(),
            steps: vec![Step {
                revision: Revision::new(1),
                leases: BTreeMap::new(),
            }],
            older: BTreeMap::new(),
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    fn run(&mut self) {
        match self.shape {
            Shape::Tiny => {
                for number in 0..3u8 {
                    let value = self.bytes(20);
                    self.commit(&[Change::put(&[b'k', b'0' + number], &value)]);
                    self.keep_versions();
                }
            }
            Shape::Levels | Shape::Checkpoint | Shape::Rewritten | Shape::Blobs => self.levels(),
            Shape::LogOnly => self.mixed(140),
            Shape::LargePages => {
                for _ in 0..3 {
                    for _ in 0..60 {
                        let key = self.key();
                        // Half of it compresses.
                        let mut value = self.bytes(150);
                        value.resize(300, b'v');
                        self.commit(&[Change::put(&key, &value)]);
                    }
                    self.mixed(20);
                    self.db().flush().expect("flush");
                    self.keep_versions();
                }
                self.db().compact().expect("merge");
                self.mixed(25);
            }
            Shape::Reopened => {
                for round in 0..4 {
                    self.mixed(25);
                    if round == 1 {
                        self.db().flush().expect("flush");
                    }
                    self.keep_versions();
                    if round % 2 == 0 {
                        self.db().close().expect("close");
                        self.db = None;
                    } else {
                        self.kill();
                    }
                    self.db = Some(
                        builder(self.shape, &self.disk)
                            .open(PATH)
                            .expect("it opens"),
                    );
                }
                self.mixed(12);
            }
        }
    }

    fn levels(&mut self) {
        for _ in 0..5 {
            self.mixed(55);
            self.db().flush().expect("flush");
            self.keep_versions();
            self.db().compact().expect("merge");
        }
        let revision = self.model.revision();
        self.db()
            .trim_history(Revision::new(revision.get() / 3))
            .expect("history is trimmed");
        self.mixed(50);
        self.db().flush().expect("flush");
        self.mixed(30);
        self.keep_versions();
        self.mixed(10);
    }

    /// Keys, leases and a graph.
    fn mixed(&mut self, count: usize) {
        for number in 0..count {
            match self.choices.u8(0..10) {
                0..4 => {
                    let (key, len) = (self.key(), self.choices.usize(1..120));
                    let value = self.bytes(len);
                    self.commit(&[Change::put(&key, &value)]);
                }
                4 => {
                    let key = self.key();
                    self.commit(&[Change::delete(&key)]);
                }
                5 => self.lease(),
                _ => self.transaction(),
            }
            if number % 20 == 7 {
                self.keep_versions();
            }
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{:02}", self.choices.u8(0..40)).into_bytes()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.noise.u8(..)).collect()
    }

    fn commit(&mut self, changes: &[Change]) {
        let before = self.model.revision();
        let revision = self.model.commit(changes).expect("the change is valid");
        let db = self.db.as_ref().expect("it is open");
        db.transact(|tx| changes.iter().try_for_each(|change| stage(tx, change)))
            .expect("nothing fails on a sound disk");
        if revision > before {
            let leases = self.leases();
            self.steps.push(Step { revision, leases });
        }
    }

    fn leases(&self) -> BTreeMap<i64, Duration> {
        self.steps.last().expect("the first").leases.clone()
    }

    /// Grants a lease and attaches keys, or ends one.
    fn lease(&mut self) {
        let id = self.choices.i64(1..=5);
        let mut leases = self.leases();
        if leases.remove(&id).is_some() {
            let held = self.model.range(.., self.model.revision());
            let attached = held.filter(|(_, entry)| entry.lease == id);
            let changes: Vec<_> = attached.map(|(key, _)| Change::delete(key)).collect();
            let revision = self.model.commit(&changes).expect("deletes are valid");
            self.db().revoke_lease(lease_id(id)).expect("revoked");
            self.steps.push(Step { revision, leases });
            return;
        }
        let ttl = Duration::from_millis(self.choices.u64(1000..9000));
        self.db()
            .grant_lease_with_id(lease_id(id), ttl)
            .expect("granted");
        leases.insert(id, ttl);
        let revision = self.model.revision();
        self.steps.push(Step { revision, leases });
        for _ in 0..2 {
            let (key, value) = (self.key(), self.bytes(16));
            self.commit(&[Change::Put {
                key,
                value,
                lease: id,
            }]);
        }
    }

    fn transaction(&mut self) {
        let graph = self.model.graph(self.model.revision());
        let mut present: BTreeSet<u128> = graph.blocks.keys().copied().collect();
        let mut changes = Vec::new();
        if self.choices.u8(0..3) == 0 {
            let (key, value) = (self.key(), self.bytes(30));
            changes.push(Change::put(&key, &value));
        }
        if self.choices.u8(0..12) == 0 && present.len() > 8 {
            let id = self.choices.u128(1..=BLOCKS);
            self.commit(&[Change::DeleteBlock { id }]);
            return;
        }
        for _ in 0..2 {
            let (id, len) = (self.choices.u128(1..=BLOCKS), self.choices.usize(1..60));
            let content = self.bytes(len);
            changes.push(Change::put_block(id, block_kinds(&content), &content));
            present.insert(id);
        }
        let present: Vec<_> = present.into_iter().collect();
        let mut touched = BTreeSet::new();
        for _ in 0..4 {
            let source = present[self.choices.usize(0..present.len())];
            let target = present[self.choices.usize(0..present.len())];
            let kind = EDGE_KINDS[self.choices.usize(0..EDGE_KINDS.len())];
            let edge = EdgeKey::new(source, kind, target);
            if !touched.insert(edge.clone()) {
                continue;
            }
            let is_there = graph.edges.contains_key(&edge);
            if is_there && self.choices.bool() {
                changes.push(Change::DeleteEdge { edge });
            } else {
                let attributes = format!("{:08x}", self.noise.u32(..)).into_bytes();
                changes.push(Change::PutEdge { edge, attributes });
            }
        }
        self.commit(&changes);
    }

    /// Remembers the files as they are now.
    fn keep_versions(&mut self) {
        for (path, bytes) in files_of(&self.disk, PATH) {
            let kept = self.older.entry(path).or_default();
            if kept.last() != Some(&bytes) {
                kept.push(bytes);
            }
        }
    }

    fn kill(&mut self) {
        std::mem::forget(self.db.take());
        self.disk.kill();
    }

    fn end(mut self, ending: Ending) -> Victim {
        let mut path = PATH;
        if self.shape == Shape::Checkpoint {
            self.db().checkpoint(COPY).expect("a checkpoint");
            path = COPY;
        }
        match ending {
            Ending::Closed => {
                self.db().close().expect("close");
                self.db = None;
            }
            Ending::Killed => self.kill(),
        }
        if self.shape == Shape::Rewritten {
            self.rewrite_manifest();
        }
        // From here on everything is durable, and nothing was done yet.
        let disk = self.disk.after_kill();
        let files = files_of(&disk, path);
        for (path, kept) in &mut self.older {
            kept.retain(|bytes| files.get(path) != Some(bytes));
        }
        Victim {
            shape: self.shape,
            ending,
            path,
            disk,
            model: self.model,
            steps: self.steps,
            files,
            older: self.older,
            twin: Files::new(),
        }
    }

    /// A torn record at the end makes the next opening write a new manifest.
    fn rewrite_manifest(&mut self) {
        let files = files_of(&self.disk, PATH);
        let manifest = files.keys().find(|name| name.contains("/manifest-"));
        let manifest = manifest.expect("a manifest").clone();
        let mut bytes = files[&manifest].clone();
        bytes.extend_from_slice(&[7; 100]);
        let torn = self.disk.replaced(Path::new(&manifest), &bytes);
        self.disk = torn.expect("it exists");
        self.db = Some(
            builder(self.shape, &self.disk)
                .open(PATH)
                .expect("it opens"),
        );
        self.mixed(10);
        self.kill();
        let files = files_of(&self.disk, PATH);
        assert!(!files.contains_key(&manifest), "it was not replaced");
    }
}
