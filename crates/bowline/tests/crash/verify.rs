//! Opens crash images with the shipped code and compares what is found with the model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use bowline::{Db, Revision};
use bowline_testing::disk::Recording;
use bowline_testing::model::Entry;
use bowline_testing::{CrashImage, Images, SimDisk};

use crate::support::{Contents, small_database};
use crate::workload::{PATH, Run, Step};

/// The key that is written after each recovery.
const PROBE: &[u8] = b"probe";

/// One image in this many is crashed again during its recovery, and again during that one's.
const NEST_EVERY: u64 = 10;
/// Images of such a recovery.
const NESTED_IMAGES: u64 = 6;
/// One image in this many is judged again as a kill of the process: the next one opens what was
/// written, synced or not, and then the power goes.
const KILL_EVERY: u64 = 8;
/// Power losses after such a kill.
const AFTER_KILL_IMAGES: u64 = 6;
/// What is marked when the process after a kill has opened the database, and when it has written.
const OPENED: u64 = u64::MAX - 1;
const PROBED: u64 = u64::MAX;
/// Images of the recovery of each of these.
const NESTED_TWICE_IMAGES: u64 = 2;

/// How many images were tried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tried {
    pub images: u64,
    pub nested: u64,
    pub nested_twice: u64,
    pub copies: u64,
    pub past_revisions: u64,
    /// Power losses after the process had been killed and the next one had begun.
    pub after_kill: u64,
}

/// Judges the images of one run.
pub struct Verifier<'a> {
    run: &'a Run,
    expected: RefCell<HashMap<Revision, Rc<Contents>>>,
    pub tried: Tried,
}

/// Whether the probe was written before a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    No,
    Maybe,
    Yes,
}

type Outcome<T> = Result<T, String>;

fn in_words<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

impl<'a> Verifier<'a> {
    pub fn new(run: &'a Run) -> Verifier<'a> {
        Verifier {
            run,
            expected: RefCell::default(),
            tried: Tried::default(),
        }
    }

    /// The steps that an image may show: from the last one acknowledged to the last one issued.
    fn span(&self, image: &CrashImage) -> (usize, usize) {
        let acknowledged = image.marks().last().map_or(0, |step| *step as usize);
        let is_issued = |step: &Step| step.issued_at < image.point();
        let issued = self.run.steps.iter().rposition(is_issued).unwrap_or(0);
        (acknowledged, issued.max(acknowledged))
    }

    /// Everything that must hold for one image.
    pub fn verify(&mut self, image: &CrashImage) -> Outcome<()> {
        let span = self.span(image);
        let number = self.tried.images;
        self.tried.images += 1;
        let disk = image.build();

        let db = self.open(&disk)?;
        let step = self.identify(&db, span)?;
        self.verify_past(&db, number)?;
        self.write_probe(&db, step)?;
        // Everything recovery showed, and the probe, must survive the next crash.
        disk.mark(1);
        let next = if number.is_multiple_of(2) {
            disk.after_power_loss()
        } else {
            disk.after_kill()
        };
        let recording = disk.recording();
        drop(db);

        let again = self.open(&next)?;
        in_words("second opening", self.compare(&again, step, Probe::Yes))?;
        drop(again);

        if number.is_multiple_of(5) {
            self.verify_copies(image, &disk)?;
        }
        if number.is_multiple_of(KILL_EVERY) {
            let result = self.verify_kill(&self.run.disk.recording(), image);
            result.map_err(|why| format!("after a kill at that point, {why}"))?;
        }
        if number.is_multiple_of(NEST_EVERY) {
            for nested in Images::sample(&recording, number, NESTED_IMAGES) {
                self.tried.nested += 1;
                let probe = if nested.marks().is_empty() {
                    Probe::Maybe
                } else {
                    Probe::Yes
                };
                let result = self.verify_nested(&nested, step, probe);
                result.map_err(|why| format!("then, while recovering, {nested}: {why}"))?;
            }
        }
        Ok(())
    }

    /// A crash during recovery loses nothing of what was there.
    fn verify_nested(&mut self, image: &CrashImage, step: usize, probe: Probe) -> Outcome<()> {
        let disk = image.build();
        let db = self.open(&disk)?;
        let probe = self.compare(&db, step, probe)?;
        let recording = disk.recording();
        drop(db);
        for nested in Images::sample(&recording, image.point() as u64, NESTED_TWICE_IMAGES) {
            self.tried.nested_twice += 1;
            let db = self.open(&nested.build())?;
            let result = self.compare(&db, step, probe);
            result.map_err(|why| format!("then, while recovering again, {nested}: {why}"))?;
        }
        Ok(())
    }

    fn open(&self, disk: &SimDisk) -> Outcome<Db> {
        self.open_path(disk, PATH)
    }

    fn open_path(&self, disk: &SimDisk, path: &str) -> Outcome<Db> {
        let workload = &self.run.workload;
        let builder = small_database(disk, &self.run.clock)
            .durability(workload.durability)
            .history(workload.history);
        in_words("it does not open", builder.open(path))
    }

    fn expected(&self, revision: Revision) -> Rc<Contents> {
        let mut expected = self.expected.borrow_mut();
        let contents = || Rc::new(Contents::of_model(&self.run.model, revision));
        expected.entry(revision).or_insert_with(contents).clone()
    }

    /// Which step of the span the database is at. It must be exactly one of them, whole.
    fn identify(&self, db: &Db, (first, last): (usize, usize)) -> Outcome<usize> {
        let revision = db.revision();
        let leases = leases_of(db);
        let steps = &self.run.steps;
        let at_revision = |step: &usize| steps[*step].revision == revision;
        if !(first..=last).any(|step| at_revision(&step)) {
            let (least, most) = (steps[first].revision, steps[last].revision);
            return Err(format!(
                "at revision {revision}, must be from {least} to {most}"
            ));
        }
        let step = (first..=last)
            .rev()
            .find(|s| at_revision(s) && steps[*s].leases == leases);
        let step = step.ok_or_else(|| {
            format!("revision {revision} has leases {leases:?}, as no step from {first} to {last}")
        })?;
        self.compare(db, step, Probe::No)?;
        let (oldest, floor) = (db.oldest_revision(), steps[first].floor);
        if oldest < floor {
            return Err(format!("history before {floor} is back, down to {oldest}"));
        }
        Ok(step)
    }

    /// The whole state, and that all its parts agree. Tells whether the probe is there.
    fn compare(&self, db: &Db, step: usize, probe: Probe) -> Outcome<Probe> {
        let step = &self.run.steps[step];
        let mut expected = Contents::clone(&self.expected(step.revision));
        let found = in_words("get", db.get(PROBE))?;
        let probe = match (probe, found.is_some()) {
            (Probe::No | Probe::Maybe, false) => Probe::No,
            (Probe::Yes | Probe::Maybe, true) => Probe::Yes,
            _ => return Err(format!("the probe is {found:?}, should be {probe:?}")),
        };
        let mut revision = step.revision;
        if probe == Probe::Yes {
            revision += 1;
            let entry = Entry {
                value: PROBE.to_vec(),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                lease: 0,
            };
            expected.keys.insert(PROBE.to_vec(), entry);
        }
        if db.revision() != revision {
            return Err(format!("at revision {}, must be {revision}", db.revision()));
        }
        let contents = in_words("reading", Contents::of_snapshot(&db.snapshot()))?;
        if let Some(difference) = contents.difference(&expected) {
            return Err(format!("at revision {revision}, {difference}"));
        }
        if leases_of(db) != step.leases {
            return Err(format!(
                "leases {:?}, expected {:?}",
                leases_of(db),
                step.leases
            ));
        }
        for lease in step.leases.keys() {
            let keys = in_words("the keys of a lease", db.lease_keys(*lease))?;
            let keys: BTreeSet<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
            let held = expected
                .keys
                .iter()
                .filter(|(_, entry)| entry.lease == *lease);
            let held: BTreeSet<Vec<u8>> = held.map(|(key, _)| key.clone()).collect();
            if keys != held {
                return Err(format!("lease {lease} has {keys:?}, expected {held:?}"));
            }
        }
        if db.oldest_revision() > revision {
            let oldest = db.oldest_revision();
            return Err(format!(
                "the oldest revision is {oldest}, the newest {revision}"
            ));
        }
        let check = in_words("check", db.check())?;
        if !check.is_clean() {
            return Err(format!(
                "the check found {:?} {:?}",
                check.problems, check.files
            ));
        }
        Ok(probe)
    }

    /// One revision of the past, if any is kept.
    fn verify_past(&mut self, db: &Db, number: u64) -> Outcome<()> {
        let (oldest, newest) = (db.oldest_revision(), db.revision());
        let past = oldest + number.wrapping_mul(0x9e37_79b9) % (newest - oldest + 1);
        if past == newest {
            return Ok(());
        }
        self.tried.past_revisions += 1;
        let snapshot = in_words("the past", db.snapshot_at(past))?;
        let contents = in_words("reading the past", Contents::of_snapshot(&snapshot))?;
        match contents.difference(&self.expected(past)) {
            Some(difference) => Err(format!("as of {past} (oldest {oldest}), {difference}")),
            None => Ok(()),
        }
    }

    fn write_probe(&self, db: &Db, step: usize) -> Outcome<()> {
        let revision = in_words("the probe", db.put(PROBE, PROBE))?;
        in_words("sync", db.sync())?;
        let expected = self.run.steps[step].revision + 1;
        if revision != expected {
            return Err(format!(
                "the probe is at revision {revision}, must be at {expected}"
            ));
        }
        self.compare(db, step, Probe::Yes).map(drop)
    }

    /// The process is killed at a point, the next one opens what reads back, and the power goes
    /// during that or after it. What the new process has shown must not vanish.
    fn verify_kill(&mut self, recording: &Recording, image: &CrashImage) -> Outcome<()> {
        let point = image.point();
        let (first, last) = self.span(image);
        let disk = SimDisk::killed_at(recording, point);
        let db = self.open(&disk)?;
        let step = self.identify(&db, (first, last))?;
        disk.mark(OPENED);
        self.write_probe(&db, step)?;
        disk.mark(PROBED);
        let later = disk.recording();
        drop(db);
        for image in Images::sample_from(&later, point, point as u64, AFTER_KILL_IMAGES) {
            self.tried.after_kill += 1;
            let marks = image.marks();
            let result = self.open(&image.build()).and_then(|db| {
                if marks.contains(&PROBED) {
                    self.compare(&db, step, Probe::Yes).map(drop)
                } else if marks.contains(&OPENED) {
                    self.compare(&db, step, Probe::Maybe).map(drop)
                } else {
                    self.identify(&db, (first, step)).map(drop)
                }
            });
            result.map_err(|why| format!("{image}: {why}"))?;
        }
        Ok(())
    }

    /// A copy that was complete before the crash is a database of its own.
    fn verify_copies(&mut self, image: &CrashImage, disk: &SimDisk) -> Outcome<()> {
        let whole = self
            .run
            .copies
            .iter()
            .rfind(|copy| copy.done_at <= image.point());
        let Some(copy) = whole else { return Ok(()) };
        self.tried.copies += 1;
        let db = in_words(&copy.path, self.open_path(disk, &copy.path))?;
        in_words(&copy.path, self.compare(&db, copy.step, Probe::No)).map(drop)
    }
}

fn leases_of(db: &Db) -> BTreeMap<i64, Duration> {
    db.leases()
        .into_iter()
        .map(|lease| (lease.id, lease.ttl))
        .collect()
}
