//! Crashes that also damage what was synced: a write under way that spoils its whole sectors, and rot.
//!
//! More than the fault model of a crash allows, and less than it could promise to survive. What must hold all the same:
//! the database does not open and says so, or it opens, and every answer is an error or right. What is there is a prefix
//! of the commits. It lacks acknowledged ones only if the damage hit the last groups of the log, which then cannot be
//! told from a torn end (docs/design/torn-or-damaged.md); each test prints how often.

use std::collections::BTreeMap;
use std::path::Path;

use bowline_testing::crash::Faults;
use bowline_testing::disk::{Damage, Inode, Operation, Payload, Recording};
use bowline_testing::{CrashImage, Images};

use crate::Test;
use crate::verify::{Found, Verifier};
use crate::workload::{Action, PATH, Run, Workload};

/// A part of the images of the crash tests.
const PERCENT: u64 = 6;

fn workload(name: &'static str) -> Workload {
    Workload {
        name,
        mix: &[
            (40, Action::Put),
            (3, Action::PutLarge),
            (20, Action::Transaction),
            (8, Action::Delete),
            (2, Action::Flush),
            (1, Action::CompactTables),
            (1, Action::Reopen),
            (1, Action::Kill),
        ],
        before: 60,
        recorded: 200,
        ..Workload::default()
    }
}

/// How often each thing was found, and at most so many steps were missing.
#[derive(Default)]
struct Tally {
    found: BTreeMap<&'static str, u64>,
    missing_max: usize,
}

impl Tally {
    fn add(&mut self, found: Found, acknowledged: usize) {
        let word = match found {
            Found::Refused => "refused",
            Found::Noticed => "noticed",
            Found::Whole => "whole",
            Found::Short(_) => "window",
        };
        *self.found.entry(word).or_default() += 1;
        if let Found::Short(step) = found {
            self.missing_max = self.missing_max.max(acknowledged - step);
        }
    }
}

fn acknowledged(image: &CrashImage) -> usize {
    image.marks().into_iter().max().unwrap_or(0) as usize
}

/// A write that was under way leaves garbage in all of its sectors, also where the bytes of an earlier write were synced.
/// The log writes group after group into the same sectors.
#[test]
fn a_torn_write_that_spoils_its_sectors_is_noticed_or_cuts_the_last_groups() {
    let test = Test::new("a_torn_write_that_spoils", PERCENT, 41);
    let _guard = test.guard();
    for (round, images) in test.rounds() {
        let mut run = Run::new(workload("neighbours"), round.0);
        run.work();
        let recording = run.disk.recording();
        let mut rng = round.rng();
        let mut verifier = Verifier::new(&run, round.0);
        let writes: Vec<_> = (0..recording.len())
            .filter(|at| matches!(recording.operations()[*at], Operation::Write { .. }))
            .collect();
        let mut tally = Tally::default();
        for _ in 0..images {
            let operation = *rng.choice(&writes).expect("the run writes");
            let sector_bytes = if rng.bool() { 512 } else { 4096 };
            let faults = Faults::Neighbours {
                operation,
                sector_bytes,
                others_kept: rng.bool(),
                seed: rng.u64(..),
            };
            let image = CrashImage::at(&recording, operation + 1, faults);
            fastrand::seed(rng.u64(..));
            let found = verifier.verify_damaged(&image, &image.build());
            let found = found.unwrap_or_else(|why| test.fail("", round, &image, &recording, &why));
            if let Found::Short(step) = found {
                let least = safe_step(&image, &recording, operation, sector_bytes);
                assert!(
                    step >= least,
                    "{image}: it is at step {step}, and step {least} is in no damaged sector"
                );
            }
            tally.add(found, acknowledged(&image));
        }
        println!(
            "neighbours: {:?}, at most {} commits missing",
            tally.found, tally.missing_max
        );
        assert!(tally.found.contains_key("whole") && tally.found.contains_key("refused"));
    }
}

/// The last step that was acknowledged before anything was written to the sectors of this write.
fn safe_step(
    image: &CrashImage,
    recording: &Recording,
    operation: usize,
    sector_bytes: u64,
) -> usize {
    let place = |at: usize| match &recording.operations()[at] {
        Operation::Write {
            inode,
            offset,
            data,
            ..
        } => Some((*inode, *offset, offset + data.len())),
        _ => None,
    };
    let (inode, offset, _) = place(operation).expect("it is a write");
    let start = offset / sector_bytes * sector_bytes;
    let is_hit = |found: (Inode, u64, u64)| found.0 == inode && found.2 > start;
    // A file is zeroed ahead before groups are written to it.
    let is_zeros = |at: usize| {
        let operation = &recording.operations()[at];
        matches!(
            operation,
            Operation::Write {
                data: Payload::Zeros(_),
                ..
            }
        )
    };
    let mut writes = (0..operation).filter(|at| !is_zeros(*at));
    let first = writes.find(|at| place(*at).is_some_and(is_hit));
    let first = first.unwrap_or(operation);
    let before = CrashImage::at(recording, first, Faults::AllKept);
    acknowledged(&before).min(acknowledged(image))
}

/// Rot of a file, and a crash.
#[test]
fn rot_together_with_a_crash_is_noticed_or_cuts_the_last_groups() {
    let test = Test::new("rot_together_with_a_crash", PERCENT, 42);
    let _guard = test.guard();
    for (round, images) in test.rounds() {
        let mut run = Run::new(workload("rot"), round.0);
        run.work();
        let recording = run.disk.recording();
        let mut rng = round.rng();
        let mut verifier = Verifier::new(&run, round.0);
        let mut tally = Tally::default();
        for image in Images::sample(&recording, round.0, images) {
            let sound = image.build();
            let files: Vec<_> = { sound.inodes().into_iter() }
                .map(|(_, path)| path)
                .filter(|path| path.starts_with(PATH) && sound.read(Path::new(path)).is_ok())
                .filter(|path| !path.ends_with("LOCK"))
                .collect();
            let Some(path) = rng.choice(&files) else {
                continue;
            };
            let bytes = sound.read(Path::new(path)).expect("it was just read");
            let len = bytes.len().max(1) as u64;
            let damage = match rng.u8(0..5) {
                0..=1 => Damage::FlipBit {
                    offset: rng.u64(0..len),
                    bit: rng.u8(0..8),
                },
                2 => Damage::ZeroSector {
                    sector: rng.u64(0..len) / 512,
                },
                3 => Damage::Misdirect {
                    from: rng.u64(0..len) / 512,
                    to: rng.u64(0..len) / 512,
                },
                _ => Damage::Cut {
                    len: rng.u64(0..len),
                },
            };
            let Ok(disk) = sound.damaged(Path::new(path), damage) else {
                continue;
            };
            fastrand::seed(rng.u64(..));
            let found = verifier.verify_damaged(&image, &disk);
            let found = found.unwrap_or_else(|why| {
                let why = format!("{damage:?} of {path}: {why}");
                test.fail("", round, &image, &recording, &why)
            });
            if let Found::Short(step) = found {
                let last = files.iter().filter(|file| is_log(file)).max();
                assert!(
                    last == Some(path),
                    "{image}, {damage:?} of {path}: it is at step {step} of {}",
                    acknowledged(&image)
                );
            }
            tally.add(found, acknowledged(&image));
        }
        println!(
            "rot and a crash: {:?}, at most {} commits missing",
            tally.found, tally.missing_max
        );
        assert!(tally.found.contains_key("whole") && tally.found.contains_key("refused"));
        assert!(tally.found.contains_key("noticed"));
    }
}

fn is_log(path: &str) -> bool {
    path.ends_with(".log")
}
