//! Opens crash images with the shipped code and compares what is found with the model.
//!
//! Each opening begins a *life*: it must find one step of those that the crash allows (and a
//! number of the probes that earlier lives wrote), promises what it found, writes probes, and
//! may flush or merge. Then the life is crashed in turn, at any point of its recovery and its work,
//! by a power loss or by a kill from which another process goes on with what was written and not
//! synced; and so on, to some depth. What a life may find:
//!
//! - at least what was promised before the crash;
//! - after a power loss on a disk on which everything was durable: exactly what the life before
//!   it found, since finding it changed nothing;
//! - after a kill, before the killed life has promised anything: any step up to the one that it
//!   was about to find.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bowline::{Background, Db, Durability, Revision};
use bowline_testing::crash::{Faults, ImageId};
use bowline_testing::disk::Recording;
use bowline_testing::lease_id;
use bowline_testing::model::Entry;
use bowline_testing::{CrashImage, Images, SimDisk};

use crate::places::{Place, Places, places};
use crate::support::{Contents, small_database};
use crate::workload::{Copy, PATH, Run, Step};

/// One image in this many is crashed again during its recovery.
const AGAIN_EVERY: u8 = 16;
/// At the point of one image in this many, the process is killed, and the next one goes on.
const KILL_EVERY: u8 = 12;
/// The same at each of the first crashes at a place.
const KILL_FIRST: u64 = 3;
/// Power losses after a kill in which something that the killed process had not synced is lost,
/// and what the next one did is kept.
const OVERTAKEN: usize = 4;
/// Crashes of such a life, of a life that such a crash began, and so on.
const CRASHES: [u64; DEPTH] = [6, 3, 2];
const DEPTH: usize = 3;
/// One of those in this many begins a life to be crashed in turn.
const DEEPER_EVERY: u8 = 3;

/// How many were tried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tried {
    pub images: u64,
    /// Databases opened.
    pub openings: u64,
    /// Crashes of a life that a crash had begun, by how many came before.
    pub crashed_again: [u64; DEPTH],
    /// Processes killed, with another one going on.
    pub kills: u64,
    pub copies: u64,
    pub unfinished_copies: u64,
    pub past_revisions: u64,
}

impl Tried {
    pub fn add(&mut self, other: &Tried) {
        self.images += other.images;
        self.openings += other.openings;
        for (sum, more) in self.crashed_again.iter_mut().zip(other.crashed_again) {
            *sum += more;
        }
        self.kills += other.kills;
        self.copies += other.copies;
        self.unfinished_copies += other.unfinished_copies;
        self.past_revisions += other.past_revisions;
    }
}

/// Judges the images of one run.
pub struct Verifier<'a> {
    run: &'a Run,
    seed: u64,
    expected: RefCell<HashMap<Revision, Rc<Contents>>>,
    pub tried: Tried,
    /// Those of the run, then those of recoveries.
    pub places: Places,
    of_run: Vec<Place>,
}

/// What a life may find: one of these steps, and that many probes (both bounds included).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    steps: (usize, usize),
    probes: (u64, u64),
    /// Below this revision history was trimmed for good.
    floor: Revision,
}

/// What a process found, and what it did.
struct Life {
    recording: Recording,
    /// The kill that it went on from; none when everything was durable.
    begun: Option<CrashImage>,
    before: Known,
    step: usize,
    floor: Revision,
    /// Probes that were there, and where each further one was issued.
    probes: u64,
    issued: Vec<usize>,
    /// At this point of the recording, so many probes were durable.
    promises: Vec<(usize, u64)>,
    /// Of the operations from the beginning of this life on.
    first: usize,
    places: Vec<Place>,
    /// The disk after a crash at the end.
    next: SimDisk,
}

impl Life {
    /// What the next life may find after a crash at a point of this one.
    fn known_at(&self, point: usize) -> Known {
        let promised = self.promises.iter().rfind(|(at, _)| *at <= point);
        let issued = self.issued.iter().filter(|at| **at < point).count() as u64;
        let (step, probes, floor) = (self.step, self.probes, self.floor);
        match promised {
            Some((_, durable)) => Known {
                steps: (step, step),
                probes: (*durable, probes + issued),
                floor,
            },
            None if self.begun.is_some() => Known {
                steps: (self.before.steps.0, step),
                probes: (self.before.probes.0, probes),
                floor: self.before.floor,
            },
            None => Known {
                steps: (step, step),
                probes: (probes, probes),
                floor,
            },
        }
    }
}

/// What became of a database that has lost more than a crash may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Found {
    /// It does not open.
    Refused,
    /// It opens, and something in it cannot be read, or a check finds it.
    Noticed,
    /// Everything acknowledged is there.
    Whole,
    /// It is as it was at this step, and later ones were acknowledged.
    Short(usize),
}

type Outcome<T> = Result<T, String>;

fn in_words<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn probe_key(number: u64) -> Vec<u8> {
    format!("probe-{number}").into_bytes()
}

impl<'a> Verifier<'a> {
    pub fn new(run: &'a Run, seed: u64) -> Verifier<'a> {
        let of_run = run.places();
        let mut places = Places::default();
        for place in &of_run {
            places.passed(*place);
        }
        Verifier {
            run,
            seed,
            expected: RefCell::default(),
            tried: Tried::default(),
            places,
            of_run,
        }
    }

    /// The points behind operations of the run at places where fewer crashes than `few` were
    /// tried.
    pub fn rare_points(&self, few: u64) -> BTreeSet<usize> {
        let places = self.of_run.iter().enumerate();
        let is_rare = |place: &Place| self.places.0.get(place).is_none_or(|(_, n)| *n < few);
        places
            .filter(|(_, place)| is_rare(place))
            .map(|(index, _)| index + 1)
            .collect()
    }

    /// The steps that an image may show: from the last one acknowledged to the last one issued.
    fn known_at(&self, image: &CrashImage) -> Known {
        let acknowledged = image.marks().into_iter().max().unwrap_or(0) as usize;
        let is_issued = |step: &Step| step.issued_at < image.point();
        let issued = self.run.steps.iter().rposition(is_issued).unwrap_or(0);
        Known {
            steps: (acknowledged, issued.max(acknowledged)),
            probes: (0, 0),
            floor: self.run.steps[acknowledged].floor,
        }
    }

    /// Everything that must hold for one image. What is tried of it depends on nothing but the
    /// seed, the image's name, and whether it is among the first at its place.
    pub fn verify(&mut self, image: &CrashImage) -> Outcome<()> {
        self.tried.images += 1;
        let place = image.point().checked_sub(1).map(|last| self.of_run[last]);
        let is_first = place.is_some_and(|place| self.places.crashed(place) <= KILL_FIRST);
        let name = image.id().map_or(0, |ImageId { kind, number }| {
            (number << 3).wrapping_add(kind as u64 + 1)
        });
        let mut rng =
            fastrand::Rng::with_seed(self.seed ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // The database draws its salts from here.
        fastrand::seed(rng.u64(..));
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.verify_all(image, is_first, &mut rng)
        }));
        result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", text.unwrap_or("no message")))
        })
    }

    /// Judges a disk with the crash of an image and a damage of what was synced. What can be read is right, and what
    /// is there is a prefix of the commits.
    pub fn verify_damaged(&mut self, image: &CrashImage, disk: &SimDisk) -> Outcome<Found> {
        let (acknowledged, issued) = self.known_at(image).steps;
        let judge = AssertUnwindSafe(|| self.find(disk, (acknowledged, issued)));
        catch_unwind(judge).unwrap_or_else(|_| Err("it panicked, see above".to_owned()))
    }

    fn find(&mut self, disk: &SimDisk, (acknowledged, issued): (usize, usize)) -> Outcome<Found> {
        self.tried.openings += 1;
        let workload = &self.run.workload;
        let builder = small_database(disk, &self.run.clock)
            .background(Background::Manual)
            .durability(workload.durability)
            .history(workload.history);
        let db = match builder.open(PATH) {
            Ok(db) => db,
            Err(bowline::Error::Storage(_)) => return Ok(Found::Refused),
            Err(error) => return Err(format!("the error is not of the storage: {error}")),
        };
        let is_clean = db.check().is_ok_and(|check| check.is_clean());
        let known = Known {
            steps: (0, issued),
            probes: (0, 0),
            floor: Revision::new(0),
        };
        if Contents::of_snapshot(&db.snapshot()).is_err() {
            return match is_clean {
                true => Err("reads fail, and the check is clean".to_owned()),
                false => Ok(Found::Noticed),
            };
        }
        match self.state_of(&db, known) {
            Ok((step, _)) if step < acknowledged => Ok(Found::Short(step)),
            Ok(_) if !is_clean => Ok(Found::Noticed),
            Ok(_) => Ok(Found::Whole),
            Err(why) => Err(why),
        }
    }

    fn verify_all(
        &mut self,
        image: &CrashImage,
        is_first: bool,
        rng: &mut fastrand::Rng,
    ) -> Outcome<()> {
        let known = self.known_at(image);
        let life = self.live(&image.build(), None, known, rng, 0)?;
        let second = self.open(&life.next)?;
        let end = life.known_at(usize::MAX);
        let found = self.identify(&second, end);
        drop(second);
        in_words("second opening", found)?;
        self.verify_copies(image, rng)?;
        if rng.u8(0..AGAIN_EVERY) == 0 {
            self.crash_again(&life, rng, 0)?;
        }
        if rng.u8(0..KILL_EVERY) == 0 || is_first {
            self.tried.kills += 1;
            let begun = Some(image.clone());
            let result = self
                .live(&image.kill(), begun, known, rng, 0)
                .and_then(|life| {
                    self.overtake(image, &life, rng)?;
                    self.crash_again(&life, rng, 0)
                });
            result.map_err(|why| format!("after a kill at that point, {why}"))?;
        }
        Ok(())
    }

    /// Opens a disk, sees what it holds, writes to it, and gives its recording. `depth` lives
    /// were crashed before, besides the one that was recorded.
    fn live(
        &mut self,
        disk: &SimDisk,
        begun: Option<CrashImage>,
        before: Known,
        rng: &mut fastrand::Rng,
        depth: usize,
    ) -> Outcome<Life> {
        let first = disk.point();
        let inodes = disk.inodes();
        let db = self.open(disk)?;
        let opened = disk.point();
        let (step, probes) = self.identify(&db, before)?;
        let mut promises = vec![(opened, probes)];
        let floor = db.oldest_revision();
        if depth == 0 {
            self.verify_past(&db, rng)?;
        }
        let mut issued = Vec::new();
        let base = self.run.steps[step].revision + 1;
        let mut put = |number: u64, promises: &mut Vec<(usize, u64)>| {
            issued.push(disk.point());
            let revision = in_words("a probe", db.put(probe_key(number), "probe"))?;
            if revision != base + number {
                let wanted = base + number;
                return Err(format!("a probe is at revision {revision}, not {wanted}"));
            }
            if self.run.workload.durability == Durability::Sync {
                promises.push((disk.point(), number + 1));
            }
            Ok(())
        };
        let mut number = probes;
        put(number, &mut promises)?;
        number += 1;
        match rng.u8(0..12) {
            0 => in_words("a flush", db.flush())?,
            1 => in_words("a merge", db.compact())?,
            2..4 => {
                for _ in 0..3 {
                    put(number, &mut promises)?;
                    number += 1;
                }
            }
            _ => {}
        }
        in_words("a sync", db.sync())?;
        promises.push((disk.point(), number));
        let all = Known {
            steps: (step, step),
            probes: (number, number),
            floor,
        };
        if self.state_of(&db, all)? != (step, number) {
            return Err("a probe is gone at once".to_owned());
        }
        let recording = disk.recording();
        let next = if rng.bool() || begun.is_some() {
            disk.after_kill()
        } else {
            disk.after_power_loss()
        };
        drop(db);
        const LIVES: [(&str, &str); DEPTH] = [
            ("recovery", "work after it"),
            ("recovery of a recovery", "work after that"),
            ("recovery of that", "work after the third"),
        ];
        let phases = LIVES[depth];
        let places = places(&recording.operations()[first..], inodes, |index| {
            if first + index < opened {
                phases.0
            } else {
                phases.1
            }
        });
        for place in &places {
            self.places.passed(*place);
        }
        Ok(Life {
            recording,
            begun,
            before,
            step,
            floor,
            probes,
            issued,
            promises,
            first,
            places,
            next,
        })
    }

    /// Of what a killed process had written and not synced one thing, or everything, is lost after
    /// all, though the next process has read it, and what that one did is kept.
    fn overtake(
        &mut self,
        killed: &CrashImage,
        life: &Life,
        rng: &mut fastrand::Rng,
    ) -> Outcome<()> {
        let pending = killed.pending();
        for _ in 0..OVERTAKEN.min(2 * pending.len()) {
            let missing = match rng.u8(0..4) {
                0 => pending.clone(),
                _ => rng.choice(&pending).into_iter().copied().collect(),
            };
            // Behind the whole recovery, or anywhere.
            let point = match (rng.bool(), life.promises.first()) {
                (true, Some((opened, _))) => *opened,
                _ => rng.usize(life.first + 1..=life.recording.len()),
            };
            let image = CrashImage::at(&life.recording, point, Faults::Missing(missing));
            self.tried.crashed_again[0] += 1;
            let result = self
                .open(&image.build())
                .and_then(|db| self.identify(&db, life.known_at(point)));
            result.map_err(|why| format!("then {image}: {why}"))?;
        }
        Ok(())
    }

    /// Crashes a life anywhere. Nothing of what it promised may be lost.
    fn crash_again(&mut self, life: &Life, rng: &mut fastrand::Rng, depth: usize) -> Outcome<()> {
        let (seed, count) = (rng.u64(..), CRASHES[depth]);
        let images = match &life.begun {
            Some(killed) => Images::sample_after_kill(&life.recording, killed, seed, count),
            None => Images::sample(&life.recording, seed, count),
        };
        for image in images {
            self.tried.crashed_again[depth] += 1;
            if let Some(last) = image.point().checked_sub(life.first + 1) {
                self.places.crashed(life.places[last]);
            }
            let known = life.known_at(image.point());
            let deeper = depth + 1 < DEPTH && rng.u8(0..DEEPER_EVERY) == 0;
            let by_kill = deeper && rng.bool();
            let result = if deeper {
                let (disk, begun) = if by_kill {
                    self.tried.kills += 1;
                    (image.kill(), Some(image.clone()))
                } else {
                    (image.build(), None)
                };
                self.live(&disk, begun, known, rng, depth + 1)
                    .and_then(|next| self.crash_again(&next, rng, depth + 1))
            } else {
                self.open(&image.build())
                    .and_then(|db| self.identify(&db, known).map(drop))
            };
            let how = if by_kill {
                "killed at the point of"
            } else {
                ""
            };
            result.map_err(|why| format!("then, in that life, {how} {image}: {why}"))?;
        }
        Ok(())
    }

    fn open(&mut self, disk: &SimDisk) -> Outcome<Db> {
        self.open_path(disk, PATH)
    }

    fn open_path(&mut self, disk: &SimDisk, path: &str) -> Outcome<Db> {
        self.tried.openings += 1;
        let workload = &self.run.workload;
        let builder = small_database(disk, &self.run.clock)
            .background(Background::Manual)
            .durability(workload.durability)
            .history(workload.history);
        in_words("it does not open", builder.open(path))
    }

    fn expected(&self, revision: Revision) -> Rc<Contents> {
        let mut expected = self.expected.borrow_mut();
        let contents = || Rc::new(Contents::of_model(&self.run.model, revision));
        expected.entry(revision).or_insert_with(contents).clone()
    }

    /// Which of the known states the database is in. It must be exactly one of them, whole, and
    /// all its parts must agree.
    fn identify(&self, db: &Db, known: Known) -> Outcome<(usize, u64)> {
        let found = self.state_of(db, known)?;
        let (oldest, newest) = (db.oldest_revision(), db.revision());
        if oldest < known.floor || oldest > newest {
            return Err(format!(
                "history begins at {oldest}, trimmed below {}, the newest is {newest}",
                known.floor
            ));
        }
        let check = in_words("check", db.check())?;
        if !check.is_clean() {
            let (problems, files) = (check.problems, check.files);
            return Err(format!("the check found {problems:?} {files:?}"));
        }
        Ok(found)
    }

    fn state_of(&self, db: &Db, known: Known) -> Outcome<(usize, u64)> {
        let Known {
            steps: (first, last),
            probes: (least, most),
            ..
        } = known;
        let (revision, leases) = (db.revision(), leases_of(db));
        let steps = &self.run.steps;
        let mut of_revision = false;
        let candidates = (first..=last).rev().flat_map(|step| {
            let probes = (least..=most).rev();
            probes.map(move |probes| (step, probes))
        });
        let found = candidates.into_iter().find(|(step, probes)| {
            let is_it = steps[*step].revision + *probes == revision;
            of_revision |= is_it;
            is_it && steps[*step].leases == leases
        });
        let Some((step, probes)) = found else {
            let (from, to) = (steps[first].revision + least, steps[last].revision + most);
            return Err(match of_revision {
                false => format!("at revision {revision}, must be from {from} to {to}"),
                true => format!(
                    "revision {revision} has leases {leases:?}, as no step from {first} to {last}"
                ),
            });
        };
        let mut expected = Contents::clone(&self.expected(steps[step].revision));
        for number in 0..probes {
            let revision = steps[step].revision + 1 + number;
            let entry = Entry {
                value: b"probe".to_vec(),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                lease: 0,
            };
            expected.keys.insert(probe_key(number), entry);
        }
        let contents = in_words("reading", Contents::of_snapshot(&db.snapshot()))?;
        if let Some(difference) = contents.difference(&expected) {
            return Err(format!("at revision {revision}, {difference}"));
        }
        for lease in leases.keys() {
            let keys = in_words(
                "the keys of a lease",
                db.lease_keys(lease_id(*lease))
                    .and_then(Iterator::collect::<bowline::Result<Vec<_>>>),
            )?;
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
        Ok((step, probes))
    }

    /// One revision of the past, if any is kept.
    fn verify_past(&mut self, db: &Db, rng: &mut fastrand::Rng) -> Outcome<()> {
        let (oldest, newest) = (db.oldest_revision(), db.revision());
        let past = rng.u64(oldest.get()..=newest.get());
        if past == newest.get() {
            return Ok(());
        }
        self.tried.past_revisions += 1;
        let snapshot = in_words("the past", db.snapshot_at(Revision::new(past)))?;
        let contents = in_words("reading the past", Contents::of_snapshot(&snapshot))?;
        match contents.difference(&self.expected(Revision::new(past))) {
            Some(difference) => Err(format!("as of {past} (oldest {oldest}), {difference}")),
            None => Ok(()),
        }
    }

    /// A copy that was complete before the crash is a database of its own. One that was not does
    /// not open, unless all of it is there.
    fn verify_copies(&mut self, image: &CrashImage, rng: &mut fastrand::Rng) -> Outcome<()> {
        let point = image.point();
        let run = self.run;
        let begun = run.copies.iter().rfind(|copy| copy.begun_at <= point);
        let Some(copy) = begun else {
            return Ok(());
        };
        let is_whole = copy.done_at <= point;
        if is_whole && rng.u8(0..5) > 0 {
            return Ok(());
        }
        let disk = image.build();
        let Copy { path, step, .. } = copy;
        let paths = disk.paths();
        // A directory in which nothing was made yet is nothing, and may become a database.
        let inside = |found: &String| Path::new(found).parent() == Some(Path::new(path));
        if !is_whole && !paths.iter().any(inside) {
            return Ok(());
        }
        let identity = Path::new(path).join("BOWLINE");
        let has_identity = paths.iter().any(|found| Path::new(found) == identity);
        if is_whole {
            self.tried.copies += 1;
        } else {
            self.tried.unfinished_copies += 1;
        }
        let known = Known {
            steps: (*step, *step),
            probes: (0, 0),
            floor: run.steps[*step].floor,
        };
        match (self.open_path(&disk, path), is_whole || has_identity) {
            (Ok(db), true) => in_words(path, self.identify(&db, known)).map(drop),
            (Err(why), true) => Err(format!("{path}: {why}")),
            (Ok(db), false) => Err(format!(
                "{path} was not finished, and opened at revision {}",
                db.revision()
            )),
            (Err(_), false) => Ok(()),
        }
    }
}

fn leases_of(db: &Db) -> BTreeMap<i64, Duration> {
    db.leases()
        .into_iter()
        .map(|lease| (lease.id.get(), lease.ttl))
        .collect()
}
