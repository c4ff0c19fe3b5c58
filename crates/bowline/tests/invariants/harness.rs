//! What the invariants share: a scenario on a disk that can crash, and a judgement of every image.
//!
//! A [`Run`] carries a scenario out on a small database over a [`SimDisk`]. Each commit also goes
//! into a [`Model`]; noted are the point of the recording at which it was issued and, as a mark on
//! the disk, that it was acknowledged. [`check`] then samples the images of the crashes at all points,
//! of every kind (prefixes, missing and reordered operations, torn writes). For each it
//!
//! 1. opens the image with the shipped code,
//! 2. asks the invariant's own statement about what is [`Found`], which may go on writing,
//! 3. compares the revision with what was acknowledged and issued, and
//! 4. ends the new process too (by a kill or a power loss), opens again, and finds the same.
//!
//! The statement comes before the general checks, so that what a failure shows is the statement's.

use std::error::Error as StdError;
use std::fmt::Debug;

use bowline::{Db, DbBuilder, Error, History, Isolation, Revision, Transaction};
use bowline_testing::model::{Change, Entry};
use bowline_testing::{CrashImage, Images, ManualClock, Model, Seed, SimDisk};

use crate::support::{Contents, small_database, stage};

/// Where the database is on the disk.
pub const PATH: &str = "db";
/// Images of one invariant, unless the environment says otherwise.
const IMAGES_DEFAULT: u64 = 1_000;
const SEED_DEFAULT: u64 = 50;

/// What a statement comes to: nothing, or how it fails.
pub type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// Ends a statement unless the condition holds.
macro_rules! holds {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+).into());
        }
    };
}
/// Ends a statement unless both sides are equal.
macro_rules! same {
    ($found:expr, $expected:expr, $($why:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if *found != *expected {
            let why = format!($($why)+);
            return Err(format!("{why}: found {found:?}, expected {expected:?}").into());
        }
    }};
}
/// Ends a statement unless the result is an error of this shape.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => {
                let expected = stringify!($pattern $(if $guard)?);
                return Err(format!("found {other:?}, expected the error {expected}").into());
            }
        }
    };
}
pub(crate) use {holds, refused, same};

/// A scenario in progress.
pub struct Run {
    pub disk: SimDisk,
    pub clock: ManualClock,
    pub model: Model,
    pub rng: fastrand::Rng,
    history: History,
    db: Option<Db>,
    /// Each revision with the point of the recording before its first operation.
    issued: Vec<(Revision, usize)>,
    /// What the model was told, to tell it again up to some revision.
    changes: Vec<Vec<Change>>,
    upkeep: u64,
}

impl Run {
    fn new(seed: u64, history: History) -> Run {
        // The database draws its ids and salts from here.
        fastrand::seed(seed);
        let mut run = Run {
            disk: SimDisk::new(),
            clock: ManualClock::new(),
            model: Model::new(),
            rng: fastrand::Rng::with_seed(seed),
            history,
            db: None,
            issued: vec![(Revision::new(1), 0)],
            changes: Vec::new(),
            upkeep: 0,
        };
        run.open();
        run
    }

    /// The run as it was at a revision, with a database that was recovered to it.
    fn resumed(&self, revision: Revision, db: Db, disk: SimDisk) -> Run {
        let mut model = Model::new();
        for changes in &self.changes {
            if model.revision() == revision {
                break;
            }
            model.commit(changes).expect("it was valid before");
        }
        Run {
            disk,
            clock: self.clock.clone(),
            model,
            rng: fastrand::Rng::with_seed(revision.get()),
            history: self.history,
            db: Some(db),
            issued: vec![(revision, 0)],
            changes: Vec::new(),
            upkeep: self.upkeep,
        }
    }

    pub fn builder(&self, disk: &SimDisk) -> DbBuilder {
        small_database(disk, &self.clock).history(self.history)
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open between steps")
    }

    fn open(&mut self) {
        self.db = Some(self.builder(&self.disk).open(PATH).expect("it opens"));
    }

    /// Closes and opens again.
    pub fn reopen(&mut self) {
        self.db().close().expect("closing flushes");
        self.db = None;
        self.open();
    }

    /// Ends the process without closing anything, and opens again. No transaction or snapshot of
    /// the scenario may be alive.
    pub fn kill(&mut self) {
        std::mem::forget(self.db.take());
        self.disk.kill();
        self.open();
    }

    /// Begins the recording anew, with everything so far durable.
    pub fn begin_recording(&mut self) {
        self.db().close().expect("closing flushes");
        self.db = None;
        self.disk = self.disk.after_kill();
        self.issued = vec![(self.model.revision(), 0)];
        self.disk.mark(self.model.revision().get());
        self.open();
    }

    /// Does one of: nothing, flush, flush and merge. A scenario calls it between its steps, so that
    /// data is in the log, in tables and in merged tables.
    pub fn upkeep(&mut self) {
        self.upkeep += 1;
        match self.upkeep % 4 {
            1 => self.db().flush().expect("it flushes"),
            3 => self.db().compact().expect("it merges"),
            _ => {}
        }
    }

    /// [`Run::upkeep`], and now and then the end of the process.
    pub fn upkeep_or_end(&mut self) {
        match self.upkeep % 6 {
            4 => self.reopen(),
            5 => self.kill(),
            _ => {}
        }
        self.upkeep();
    }

    /// Makes changes by `call`, which gives the revision it committed at.
    pub fn step(
        &mut self,
        changes: &[Change],
        call: impl FnOnce(&Db) -> Result<Revision, Error>,
    ) -> Revision {
        let point = self.disk.point();
        let revision = self.model.commit(changes).expect("the change is valid");
        self.issued.push((revision, point));
        self.changes.push(changes.to_vec());
        let found = call(self.db()).unwrap_or_else(|error| panic!("{changes:?}: {error}"));
        assert_eq!(found, revision, "the revision of {changes:?}");
        self.disk.mark(revision.get());
        revision
    }

    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Revision {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.step(&[Change::put(key, value)], |db| db.put(key, value))
    }

    /// Deletes a key that is present.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Revision {
        let key = key.as_ref();
        self.step(&[Change::delete(key)], |db| {
            Ok(db
                .delete(key)?
                .unwrap_or_else(|| panic!("{key:?} was there")))
        })
    }

    /// Changes in one transaction.
    pub fn transact(&mut self, changes: &[Change]) -> Revision {
        self.step(changes, |db| {
            db.transact(|tx| changes.iter().try_for_each(|change| stage(tx, change)))?;
            Ok(db.revision())
        })
    }

    /// Commits a transaction that has staged just these changes.
    pub fn commit(&mut self, tx: Transaction, changes: &[Change]) -> Revision {
        self.step(changes, |_| Ok(tx.commit()?.revision))
    }

    /// Makes a call that must be refused, and must not take a revision or write anything. (The disk
    /// may be written to: the call can be the one that finds the memtable full.)
    pub fn refused<T: Debug>(&mut self, call: impl FnOnce(&Db) -> Result<T, Error>) -> Error {
        let written = |db: &Db| {
            let counters = db.stats().engine.counters;
            (db.revision(), counters.commits, counters.user_bytes_written)
        };
        let before = written(self.db());
        let error = call(self.db()).expect_err("it must be refused");
        let after = written(self.db());
        assert_eq!(
            after, before,
            "{error}: and yet it wrote (revision, commits, bytes)"
        );
        error
    }

    /// Notes that commits up to a revision were issued from a point on, without telling the model.
    pub fn issue(&mut self, revision: Revision, point: usize) {
        self.issued.push((revision, point));
    }

    /// A key's value now.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        value(self.db(), key).expect("it is read")
    }
}

/// A crash image that was opened.
pub struct Found<'a> {
    pub run: &'a Run,
    pub db: Db,
    pub disk: SimDisk,
    pub image: &'a CrashImage,
    /// The number of the image: a statement that cannot try everything tries another part each time.
    pub number: u64,
    /// The newest revision that was acknowledged before the crash.
    pub acknowledged: Revision,
    /// The newest one that had been issued.
    pub issued: Revision,
    /// The one it was found at.
    pub revision: Revision,
}

impl Found<'_> {
    /// What the model says was under a key at the revision found.
    pub fn expected(&self, key: impl AsRef<[u8]>) -> Option<&Entry> {
        self.run.model.get(key.as_ref(), self.revision)
    }

    pub fn expected_value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.expected(key).map(|entry| entry.value.clone())
    }

    pub fn value(&self, key: impl AsRef<[u8]>) -> Outcome<Option<Vec<u8>>> {
        Ok(value(&self.db, key)?)
    }

    /// Acknowledged commits are there, and only issued ones.
    pub fn is_in_span(&self) -> Outcome {
        let (at, least, most) = (self.revision, self.acknowledged, self.issued);
        holds!(
            (least..=most).contains(&at),
            "at revision {at}, must be from {least} to {most}"
        );
        Ok(())
    }

    /// Everything, with all metadata, is as the model has it at the revision found.
    pub fn is_as_the_model(&self) -> Outcome {
        self.db_is_as_the_model(&self.db, self.revision)
    }

    /// Everything in a database is as the model has it at a revision.
    pub fn db_is_as_the_model(&self, db: &Db, revision: Revision) -> Outcome {
        same!(db.revision(), revision, "the revision");
        let contents = Contents::of_snapshot(&db.snapshot())?;
        let difference = contents.difference(&Contents::of_model(&self.run.model, revision));
        holds!(
            difference.is_none(),
            "at revision {revision}, {}",
            difference.unwrap_or_default()
        );
        Ok(())
    }

    /// Every readable revision of the past is as the model has it.
    pub fn past_is_as_the_model(&self) -> Outcome {
        for revision in (self.db.oldest_revision().get()..=self.revision.get()).map(Revision::new) {
            let contents = Contents::of_snapshot(&self.db.snapshot_at(revision)?)?;
            let difference = contents.difference(&Contents::of_model(&self.run.model, revision));
            holds!(
                difference.is_none(),
                "as of {revision}, {}",
                difference.unwrap_or_default()
            );
        }
        Ok(())
    }

    /// Opens the database on another disk.
    pub fn open(&self, disk: &SimDisk) -> Outcome<Db> {
        Ok(self.run.builder(disk).open(PATH)?)
    }

    /// Lets a scenario go on with what was recovered; afterwards everything must be as the model,
    /// which goes on from the revision found, has it. Must not kill the process.
    pub fn run_on(&mut self, scenario: impl FnOnce(&mut Run)) -> Outcome {
        let (db, disk) = (self.db.clone(), self.disk.clone());
        let mut run = self.run.resumed(self.revision, db, disk);
        same!(run.model.revision(), self.revision, "the revision");
        scenario(&mut run);
        self.db = run.db().clone();
        let contents = Contents::of_snapshot(&self.db.snapshot())?;
        let expected = Contents::of_model(&run.model, run.model.revision());
        let difference = contents.difference(&expected);
        holds!(
            difference.is_none(),
            "after going on, {}",
            difference.unwrap_or_default()
        );
        Ok(())
    }

    /// Brings what is in the database to another place, by the image's number: leaves it, flushes
    /// it, merges it, or opens it again.
    pub fn stir(&mut self) -> Outcome {
        match self.number % 4 {
            1 => self.db.flush()?,
            2 => self.db.compact()?,
            3 => {
                self.db.close()?;
                self.db = self.open(&self.disk)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Carries out a scenario, then judges images of its crashes by `statement`.
pub fn check<T>(
    name: &'static str,
    history: History,
    scenario: impl Fn(&mut Run) -> T,
    mut statement: impl FnMut(&mut Found<'_>, &T) -> Outcome,
) {
    let images: u64 = match std::env::var("BOWLINE_INVARIANT_IMAGES") {
        Ok(text) => text
            .parse()
            .expect("BOWLINE_INVARIANT_IMAGES must be a number"),
        Err(_) => IMAGES_DEFAULT,
    };
    let test = format!("-p bowline --test invariants {name}");
    let fixed = (Seed::from_env_or(SEED_DEFAULT), images);
    // A tenth more is new in each run.
    let fresh = Seed::fresh(&test).map(|seed| (seed, images.div_ceil(10)));
    for (seed, images) in std::iter::once(fixed).chain(fresh) {
        check_with(name, history, seed, images, &scenario, &mut statement);
    }
}

fn check_with<T>(
    name: &'static str,
    history: History,
    seed: Seed,
    images: u64,
    scenario: &impl Fn(&mut Run) -> T,
    statement: &mut impl FnMut(&mut Found<'_>, &T) -> Outcome,
) {
    let _repeat = RepeatOnFailure { name, seed, images };
    let mut run = Run::new(seed.0, history);
    let noted = scenario(&mut run);
    let mut sample = Images::sample(&run.disk.recording(), seed.0, images);
    let mut number = 0;
    // What the images showed, for the report: few revisions would say little.
    let mut revisions = std::collections::BTreeSet::new();
    for image in &mut sample {
        let _shown = ShowOnPanic(&image);
        match judge(&run, &image, number, &mut |found| statement(found, &noted)) {
            Ok(revision) => revisions.insert(revision),
            Err(why) => panic!("{name}: {why}"),
        };
        number += 1;
    }
    println!(
        "{name}: {} revisions found in {}",
        revisions.len(),
        sample.coverage()
    );
    assert!(number > 0, "no image was tried");
}

fn judge(
    run: &Run,
    image: &CrashImage,
    number: u64,
    statement: &mut dyn FnMut(&mut Found<'_>) -> Outcome,
) -> Outcome<Revision> {
    let disk = image.build();
    let db = run
        .builder(&disk)
        .open(PATH)
        .map_err(|error| format!("it does not open: {error}"))?;
    let is_issued = |(_, point): &&(Revision, usize)| *point < image.point();
    let first = run.issued[0].0;
    let issued = run.issued.iter().filter(is_issued).map(|(r, _)| *r).max();
    let acknowledged = image.marks().into_iter().max().unwrap_or(first.get());
    let revision = db.revision();
    let mut found = Found {
        run,
        revision,
        acknowledged: Revision::new(acknowledged),
        issued: issued.unwrap_or(first).max(Revision::new(acknowledged)),
        db,
        disk,
        image,
        number,
    };
    statement(&mut found)?;
    found.is_in_span()?;

    let before = (
        found.db.revision(),
        Contents::of_snapshot(&found.db.snapshot())?,
    );
    let next = if number.is_multiple_of(2) {
        found.disk.after_power_loss()
    } else {
        found.disk.after_kill()
    };
    let again = found
        .open(&next)
        .map_err(|error| format!("it does not open again: {error}"))?;
    let difference = Contents::of_snapshot(&again.snapshot())?.difference(&before.1);
    same!(again.revision(), before.0, "the second opening");
    holds!(
        difference.is_none(),
        "the second opening: {}",
        difference.unwrap_or_default()
    );
    Ok(revision)
}

struct ShowOnPanic<'a>(&'a CrashImage);

impl Drop for ShowOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the image: {}", self.0);
        }
    }
}

struct RepeatOnFailure {
    name: &'static str,
    seed: Seed,
    images: u64,
}

impl Drop for RepeatOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let RepeatOnFailure { name, seed, images } = self;
            eprintln!(
                "repeat with: BOWLINE_SEED={} BOWLINE_INVARIANT_IMAGES={images} \
                 cargo test -p bowline --test invariants {name}",
                seed.0
            );
        }
    }
}

// --- words for scenarios ---

/// A key's value.
pub fn value(db: &Db, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
    Ok(db.get(key)?.map(|value| value.to_vec()))
}

/// A key's value as a transaction sees it.
pub fn tx_value(tx: &mut Transaction, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
    Ok(tx.get(key)?.map(|value| value.to_vec()))
}

/// A number as a value and back; nothing is 0.
pub fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| {
        let text = String::from_utf8_lossy(&value);
        text.parse().unwrap_or(u64::MAX)
    })
}

/// Keys and values, in order.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The keys and values that a transaction sees.
pub fn tx_range(tx: &mut Transaction) -> Result<Pairs, Error> {
    tx.range(..)?
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
        .collect()
}

/// The keys and values of a database that begin with a prefix.
pub fn with_prefix(db: &Db, prefix: &str) -> Result<Pairs, Error> {
    db.range(bowline::Range::prefix(prefix))?
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
        .collect()
}

/// Both isolations.
pub const ISOLATIONS: [Isolation; 2] = [Isolation::Serializable, Isolation::Snapshot];
