//! Opens a damaged database with the shipped code and decides what became of it.

use std::path::Path;
use std::sync::Arc;

use bowline::vfs::Vfs;
use bowline::{Db, Error, Revision, StorageError};
use bowline_storage::engine::check_directory;
use bowline_storage::log::Log;
use bowline_testing::SimDisk;

use crate::damage::{Damage, Decay, Part, is_blob, is_log, is_table};
use crate::layout::{Frame, log_frames, manifest_records};
use crate::reads::{PROBE, Reader, Truth};
use crate::victim::{Ending, Files, Step, Victim, files_of};

/// What became of a damaged database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It does not open: the error names the damage.
    Refused,
    /// It opens; what needs the damaged bytes is an error.
    ReadError,
    /// No read came to the damaged bytes; the check lists them.
    Listed,
    /// Opening left out or wrote anew what was damaged. Nothing is missing.
    Repaired(&'static str),
    /// The last groups of a log that looks unclosed are gone: what cannot be told from a torn tail.
    /// How many groups, too.
    Window(&'static str, u64),
    /// The bytes mean nothing.
    Harmless(&'static str),
}

/// Judges one damage of one victim.
pub struct Judge<'a> {
    victim: &'a Victim,
    damage: Option<&'a Damage>,
    oldest: u64,
}

impl<'a> Judge<'a> {
    /// Without a damage, everything must be right.
    pub fn new(victim: &'a Victim, damage: Option<&'a Damage>, oldest: u64) -> Judge<'a> {
        Judge {
            victim,
            damage,
            oldest,
        }
    }

    pub fn judge(&self, rng: &mut fastrand::Rng) -> Result<Outcome, String> {
        let sound = self.victim.disk.after_kill();
        let disk = self
            .damage
            .map_or(sound.clone(), |damage| damage.apply(&sound));
        let before = files_of(&disk, self.victim.path);
        let is_listed = self.check_lists(&disk)?;
        let found = self.log_end(&disk);
        let outcome = match self.open(&disk) {
            Err(error) => {
                self.names(&error)
                    .map_err(|why| format!("does not open: {error}: {why}"))?;
                if !is_listed {
                    return Err(format!("does not open, and the check is clean: {error}"));
                }
                if self.open(&disk).is_ok() {
                    return Err(format!("opens only the second time; first {error}"));
                }
                self.unchanged(&before, &files_of(&disk, self.victim.path))?;
                Outcome::Refused
            }
            Ok(db) => {
                let (step, lost) = self.step(&db, found)?;
                self.opened(&disk, &db, step, lost, is_listed, rng)?
            }
        };
        match (self.damage, outcome) {
            (None, Outcome::Harmless(_)) | (Some(_), _) => Ok(outcome),
            (None, outcome) => Err(format!("undamaged, but {outcome:?}")),
        }
    }

    fn opened(
        &self,
        disk: &SimDisk,
        db: &Db,
        step: &Step,
        lost: u64,
        is_listed: bool,
        rng: &mut fastrand::Rng,
    ) -> Result<Outcome, String> {
        let mut truth = Truth {
            model: &self.victim.model,
            step,
            probe: None,
            oldest: Revision::new(self.oldest),
        };
        let names: &dyn Fn(&Error) -> Result<(), String> = &|error| self.names(error);
        let errors = Reader::read_all(db, truth, names, rng)?;
        if errors > 0 && !is_listed {
            return Err(format!("{errors} reads failed, and the check is clean"));
        }
        if is_listed {
            self.open_check_lists(db)?;
            self.writes_go_on_or_fail(disk, db, truth, rng)?;
            return Ok(match errors {
                0 => Outcome::Listed,
                _ => Outcome::ReadError,
            });
        }
        // All is well, and stays so.
        if self.damage.is_none() {
            // What a damaged one is asked for, too: the memory it takes is the measure.
            db.checkpoint("checkpoint")
                .map_err(|e| format!("checkpoint: {e}"))?;
        }
        let put = db.put(PROBE, PROBE).map_err(|e| format!("put: {e}"))?;
        truth.probe = Some(put);
        Reader::read_all(db, truth, names, rng).map_err(|why| format!("after a put: {why}"))?;
        db.close().map_err(|e| format!("close: {e}"))?;
        let db = self
            .open(disk)
            .map_err(|e| format!("opens only once: {e}"))?;
        let errors = Reader::read_all(&db, truth, names, rng);
        let errors = errors.map_err(|why| format!("opened again: {why}"))?;
        let check = db.check().map_err(|e| format!("check: {e}"))?;
        if errors > 0 || !check.is_clean() {
            let found = (check.problems, check.files);
            return Err(format!("opened again: {errors} errors, {found:?}"));
        }
        self.why_all_is_well(lost)
    }

    fn open(&self, disk: &SimDisk) -> Result<Db, Error> {
        self.victim
            .builder(disk)
            .create(false)
            .open(self.victim.path)
    }

    /// Whether an error is one of damage and names the file that was hit, and a place in it.
    fn names(&self, error: &Error) -> Result<(), String> {
        match error {
            Error::Storage(error) => self.storage_names(error),
            _ => Err("not an error of damage".to_owned()),
        }
    }

    fn storage_names(&self, error: &StorageError) -> Result<(), String> {
        let Some(damage) = self.damage else {
            return Err("nothing is damaged".to_owned());
        };
        let (path, offset) = match error {
            StorageError::Corrupt { path, offset, .. } => (path, *offset),
            StorageError::MissingFile { path, .. } => (path, 0),
            // The version is looked at first, so that a newer file is not called damaged.
            StorageError::NewerFormat { path, .. } if damage.part == Part::Identity => (path, 0),
            _ => return Err("not an error of damage".to_owned()),
        };
        let path = path.to_string_lossy();
        let log = format!("{}/log", self.victim.path);
        // What a manifest lost shows in the files that it names or no longer names.
        let hit = damage.changes.iter().any(|(hit, _)| {
            *hit == *path
                || (is_log(hit) && path.starts_with(&log))
                || (!is_log(hit)
                    && !is_table(hit)
                    && !is_blob(hit)
                    && path.starts_with(self.victim.path))
        });
        if !hit {
            return Err(format!("{path} was not hit"));
        }
        let before = self.victim.files.get(&*path).map_or(0, Vec::len);
        let after = damage.changes.iter().find(|(hit, _)| *hit == *path);
        let after = after.and_then(|(_, new)| new.as_ref()).map_or(0, Vec::len);
        if offset > before.max(after) as u64 {
            return Err(format!("offset {offset} of {before} or {after} bytes"));
        }
        Ok(())
    }

    /// Whether the check of the directory lists the damage.
    fn check_lists(&self, disk: &SimDisk) -> Result<bool, String> {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.after_kill());
        let report = match check_directory(&vfs, self.victim.path) {
            Ok(report) => report,
            Err(error) => return self.storage_names(&error).map(|()| true),
        };
        for error in report.errors() {
            self.storage_names(error)
                .map_err(|why| format!("check: {error}: {why}"))?;
        }
        Ok(!report.is_clean())
    }

    fn open_check_lists(&self, db: &Db) -> Result<(), String> {
        let check = db.check().map_err(|e| format!("the check gives up: {e}"))?;
        for error in check.files.errors() {
            self.storage_names(error)
                .map_err(|why| format!("check: {error}: {why}"))?;
        }
        match check.files.is_clean() {
            true => Err("the check of the open database lists no file".to_owned()),
            false => Ok(()),
        }
    }

    /// The index at which the damaged log ends.
    fn log_end(&self, disk: &SimDisk) -> Option<u64> {
        let disk = disk.after_kill();
        let log = format!("{}/log", self.victim.path);
        Log::verify(&disk, Path::new(&log))
            .ok()
            .map(|report| report.next_index)
    }

    /// What the database must hold, and how many groups of the log are lost. Only those may be that
    /// were hit themselves, all at the end of the last segment.
    fn step(&self, db: &Db, log_end: Option<u64>) -> Result<(&'a Step, u64), String> {
        let frames = self.frames();
        let is_lost = |frame: &Frame| log_end.is_some_and(|end| frame.first_index >= end);
        let has_log = !frames.is_empty();
        let lost = frames.iter().filter(|(_, frame)| has_log && is_lost(frame));
        let lost: Vec<_> = lost.filter(|(_, frame)| frame.is_data).collect();
        let last = self.victim.last();
        if lost.is_empty() {
            return Ok((last, 0));
        }
        let Some(damage) = self.damage else {
            return Err("groups are lost without damage".to_owned());
        };
        for (path, frame) in &lost {
            let hit = damage.changed(&self.victim.files, path);
            if !hit.iter().any(|at| frame.at.contains(at)) {
                let (at, index) = (&frame.at, frame.first_index);
                return Err(format!(
                    "LOST group {index} of {path} at {at:?}, which was not hit"
                ));
            }
        }
        if self.victim.ending == Ending::Closed && damage.decay != Decay::StaleFile {
            return Err("LOST groups of a closed log".to_owned());
        }
        let kept = frames
            .iter()
            .filter(|(_, frame)| frame.is_data && !is_lost(frame));
        let kept = kept.map(|(_, frame)| frame.revision).max();
        let revision = db.revision();
        if kept.is_some_and(|kept| kept != revision.get()) {
            return Err(format!("at {revision}, the groups left end at {kept:?}"));
        }
        let leases: std::collections::BTreeMap<_, _> = db
            .leases()
            .into_iter()
            .map(|lease| (lease.id.get(), lease.ttl))
            .collect();
        let steps = self.victim.steps.iter().rev();
        let mut steps = steps.filter(|step| step.revision == revision && step.leases == leases);
        let step = steps
            .next()
            .ok_or("no prefix of the commits has these leases")?;
        Ok((step, lost.len() as u64))
    }

    /// Every frame of the undamaged log.
    fn frames(&self) -> Vec<(&'a String, Frame)> {
        let logs = self
            .victim
            .files
            .iter()
            .filter(|(path, _)| path.ends_with(".log"));
        logs.flat_map(|(path, bytes)| {
            log_frames(path, bytes)
                .into_iter()
                .map(move |frame| (path, frame))
        })
        .collect()
    }

    /// Writes, a flush, a merge and a checkpoint over damage: each succeeds without touching it, or
    /// fails and changes nothing. Nothing becomes wrong by it.
    fn writes_go_on_or_fail(
        &self,
        disk: &SimDisk,
        db: &Db,
        mut truth: Truth<'_>,
        rng: &mut fastrand::Rng,
    ) -> Result<(), String> {
        let names: &dyn Fn(&Error) -> Result<(), String> = &|error| self.names(error);
        let or_damage = |what: &str, result: Result<(), Error>| match result {
            Ok(()) => Ok(true),
            Err(error) => match self.names(&error) {
                Ok(()) => Ok(false),
                Err(why) => Err(format!("{what}: {error}: {why}")),
            },
        };
        let mut put = 0;
        if or_damage("put", db.put(PROBE, PROBE).map(|at| put = at.get()))? {
            truth.probe = Some(Revision::new(put));
        }
        or_damage("flush", db.flush())?;
        if or_damage("checkpoint", db.checkpoint("checkpoint").map(drop))? {
            return Err("a checkpoint of damage was made".to_owned());
        }
        let tables = |disk: &SimDisk| -> Vec<String> {
            let damaged = self.damage.into_iter().flat_map(|damage| &damage.changes);
            let names = disk.paths();
            damaged
                .map(|(path, _)| path.clone())
                .filter(|path| names.contains(path))
                .collect()
        };
        let before = tables(disk);
        let merged = or_damage("merge", db.compact())?;
        if !merged && tables(disk) != before {
            return Err("a merge failed and its damaged input is gone".to_owned());
        }
        let errors = Reader::read_all(db, truth, names, rng);
        errors.map_err(|why| format!("after writes and a merge: {why}"))?;
        or_damage("close", db.close())?;
        match self.open(disk) {
            Err(error) => self
                .names(&error)
                .map_err(|why| format!("again: {error}: {why}")),
            Ok(db) => {
                let errors = Reader::read_all(&db, truth, names, rng);
                errors
                    .map(drop)
                    .map_err(|why| format!("opened after a merge: {why}"))
            }
        }
    }

    /// Why a damaged database holds everything, or all but the last groups. What has no reason here
    /// went unnoticed.
    fn why_all_is_well(&self, lost: u64) -> Result<Outcome, String> {
        let Some(damage) = self.damage else {
            return Ok(Outcome::Harmless("nothing is damaged"));
        };
        if lost > 0 {
            let what = match (self.victim.ending, damage.decay) {
                (Ending::Closed, _) => "an older copy of the last segment of a closed log",
                (_, Decay::StaleFile) => "an older copy of the last segment of an unclosed log",
                _ => "the last groups of an unclosed log, all of them hit",
            };
            return Ok(Outcome::Window(what, lost));
        }
        let hit = |path: &str| damage.changed(&self.victim.files, path);
        let outcomes = damage.changes.iter().map(|(path, _)| {
            if path.ends_with(".tmp") {
                return Ok(Outcome::Harmless("a spare of the log holds nothing"));
            }
            if path.ends_with(".log") {
                let frames = log_frames(path, &self.victim.files[path]);
                let is_hit = |frame: &Frame| hit(path).iter().any(|at| frame.at.contains(at));
                return Ok(match frames.iter().any(is_hit) {
                    true => Outcome::Repaired("a frame without entries at the end of the log"),
                    false => Outcome::Harmless("behind the last frame of a segment"),
                });
            }
            if path.contains("/manifest-") {
                return manifest_ends(&self.victim.files[path], &hit(path));
            }
            Err("no part of this file is free".to_owned())
        });
        let outcomes: Result<Vec<_>, String> = outcomes.collect();
        let outcomes = outcomes.map_err(|why| format!("UNNOTICED: {why}"))?;
        // Of two, the graver.
        let gravest = outcomes.into_iter().min();
        gravest.ok_or_else(|| "nothing was changed".to_owned())
    }

    /// A refused opening leaves everything as it was, but for spares of the log. One that is
    /// refused for a page of the leases or kinds has opened the engine before, which goes on in a
    /// new segment and may merge; then what is damaged stays as it was.
    fn unchanged(&self, before: &Files, after: &Files) -> Result<(), String> {
        let pages = self.damage.filter(|damage| {
            damage.part == Part::TablePages || damage.is_in_pages_only(&self.victim.files)
        });
        let matters = |path: &&String| match pages {
            Some(damage) => damage.changes.iter().any(|(hit, _)| hit == *path),
            None => !path.ends_with(".tmp"),
        };
        let paths = before.keys().chain(after.keys()).filter(matters);
        let changed: Vec<_> = paths
            .filter(|path| before.get(*path) != after.get(*path))
            .collect();
        match changed.is_empty() {
            true => Ok(()),
            false => Err(format!("a refused opening changed {changed:?}")),
        }
    }
}

/// What a manifest may have lost without an error: its last records, when all of them were hit, as
/// by a torn write.
fn manifest_ends(bytes: &[u8], hit: &[usize]) -> Result<Outcome, String> {
    let records = manifest_records(bytes);
    let is_hit = |record: &&std::ops::Range<usize>| hit.iter().any(|at| record.contains(at));
    let first = records.iter().position(|record| is_hit(&record));
    let end = records
        .last()
        .map_or(0, |last| last.end.next_multiple_of(8));
    match first {
        Some(first) if records[first..].iter().all(|record| is_hit(&record)) => Ok(
            Outcome::Repaired("the manifest's end was torn, the log has what it said"),
        ),
        Some(first) => Err(format!("record {first} of {} was hit", records.len())),
        None if hit.iter().all(|at| *at >= end) => Ok(Outcome::Repaired(
            "what follows the manifest's last record was left out",
        )),
        None if hit.iter().all(|at| *at >= 16) => {
            Ok(Outcome::Harmless("between two records of the manifest"))
        }
        None => Err("its header was hit".to_owned()),
    }
}
