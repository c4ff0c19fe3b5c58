//! Damage in the middle of a log is told from a torn end, wherever it is.
//!
//! A log of several segments with many groups each is damaged at every group, in every part of it.
//! Whatever is followed by something that was written later is damage, and the error names the
//! segment and the group. Only the last group of a log that was not closed looks as if a crash had
//! torn it.

use bowline::{Error, StorageError};

use crate::judge::{Judge, Outcome};
use crate::layout::{Frame, log_frames};
use crate::victim::{Ending, Shape, Victim};
use crate::{damage::Damage, damage::Decay, damage::Part};

/// The segments with what they hold, oldest first.
fn segments(victim: &Victim) -> Vec<(&String, Vec<Frame>)> {
    let logs = victim
        .files
        .iter()
        .filter(|(path, _)| path.ends_with(".log"));
    logs.map(|(path, bytes)| (path, log_frames(path, bytes)))
        .collect()
}

/// Every place that is damaged: parts of the header, the body's first byte, middle and last byte.
fn places(frame: &Frame) -> Vec<usize> {
    let (start, end) = (frame.at.start, frame.at.end);
    let header = [0, 3, 4, 8, 11, 12, 16, 23, 24, 31, 32, 36, 37, 39];
    let mut places: Vec<_> = header.iter().map(|at| start + at).collect();
    if end > start + 40 {
        places.extend((start + 40..end).step_by(11));
        places.push(end - 1);
    }
    places
}

fn flipped(victim: &Victim, path: &str, at: usize, bit: u8) -> Damage {
    let mut bytes = victim.files[path].clone();
    bytes[at] ^= 1 << bit;
    let what = format!("{path}, byte {at}, bit {bit}");
    Damage::new(Part::LogFrames, Decay::Flip, path, bytes, what)
}

/// The place an opening names, or the revision it comes to.
fn open(victim: &Victim, damage: &Damage) -> Result<u64, (String, u64)> {
    let disk = damage.apply(&victim.disk);
    match victim.builder(&disk).open(victim.path) {
        Ok(db) => Ok(db.revision().get()),
        Err(Error::Storage(StorageError::Corrupt { path, offset, .. })) => {
            Err((path.to_string_lossy().into_owned(), offset))
        }
        Err(other) => panic!("{damage}: {other}"),
    }
}

#[test]
fn damage_of_any_group_but_the_last_is_an_error_at_its_place() {
    let victim = Victim::new(Shape::LogOnly, Ending::Killed, 71);
    let segments = segments(&victim);
    let held: Vec<_> = segments
        .iter()
        .filter(|(_, frames)| !frames.is_empty())
        .collect();
    assert!(held.len() >= 3, "{} segments", held.len());
    let last_segment = held[held.len() - 1].0;
    let (mut damaged, mut groups) = (0, 0);
    for (path, frames) in &held {
        let data: Vec<_> = frames
            .iter()
            .filter(|frame| frame.is_data || frame.is_begin)
            .collect();
        let all_but = usize::from(*path == last_segment);
        for frame in &data[..data.len() - all_but] {
            groups += 1;
            for (number, at) in places(frame).into_iter().enumerate() {
                let damage = flipped(&victim, path, at, (number % 8) as u8);
                let start = frame.at.start as u64;
                assert_eq!(
                    open(&victim, &damage),
                    Err(((*path).clone(), start)),
                    "{damage}"
                );
                damaged += 1;
            }
        }
    }
    println!(
        "{damaged} places in {groups} groups of {} segments",
        held.len()
    );
    assert!(groups >= 60, "{groups} groups");
}

#[test]
fn damage_of_the_last_group_of_an_unclosed_log_leaves_out_that_group_alone() {
    let victim = Victim::new(Shape::LogOnly, Ending::Killed, 72);
    let segments = segments(&victim);
    let (path, frames) = segments
        .iter()
        .rev()
        .find(|(_, frames)| !frames.is_empty())
        .unwrap();
    let (last, before) = (&frames[frames.len() - 1], &frames[frames.len() - 2]);
    for at in last.at.clone() {
        let damage = flipped(&victim, path, at, (at % 8) as u8);
        assert_eq!(open(&victim, &damage), Ok(before.revision), "{damage}");
    }
    // And all that is left is right, and goes on from there.
    let damage = flipped(&victim, path, last.at.start + 41, 0);
    let outcome = Judge::new(&victim, Some(&damage), 1).judge(&mut fastrand::Rng::with_seed(1));
    assert!(matches!(outcome, Ok(Outcome::Window(_, 1))), "{outcome:?}");
}

#[test]
fn damage_of_any_group_of_a_closed_log_is_an_error_at_its_place() {
    let victim = Victim::new(Shape::LogOnly, Ending::Closed, 73);
    let mut seals = 0;
    for (path, frames) in &segments(&victim) {
        let is_last = frames
            .last()
            .is_some_and(|frame| frame.at.end == victim.files[*path].len());
        for frame in frames {
            let is_seal = !frame.is_data && !frame.is_begin;
            seals += u32::from(is_seal && is_last);
            if is_seal && !is_last {
                continue;
            }
            for (number, at) in places(frame).into_iter().enumerate() {
                let damage = flipped(&victim, path, at, (number % 8) as u8);
                let start = frame.at.start as u64;
                assert_eq!(
                    open(&victim, &damage),
                    Err(((*path).clone(), start)),
                    "{damage}"
                );
            }
        }
    }
    assert_eq!(seals, 1, "a closed log ends with a seal");
}

/// A whole sector of zeros in the middle: the groups before it are sound, those behind vouch for
/// what is gone.
#[test]
fn a_lost_sector_in_mid_log_is_an_error_at_the_first_group_it_hit() {
    let victim = Victim::new(Shape::LogOnly, Ending::Killed, 74);
    let segments = segments(&victim);
    let held: Vec<_> = segments
        .iter()
        .filter(|(_, frames)| !frames.is_empty())
        .collect();
    let mut tried = 0;
    for (path, frames) in &held {
        let is_last = *path == held[held.len() - 1].0;
        let end = frames
            .iter()
            .filter(|frame| frame.is_data)
            .map(|frame| frame.at.end)
            .max();
        let end = end.expect("groups");
        for sector in (4096..end).step_by(512) {
            let hit = sector..(sector + 512).min(end);
            let is_hit = |frame: &&Frame| frame.at.start < hit.end && hit.start < frame.at.end;
            let first = frames.iter().find(is_hit).expect("a group");
            let proof = frames
                .iter()
                .any(|frame| frame.is_data && frame.at.start >= hit.end);
            if is_last && !proof {
                continue;
            }
            let mut bytes = victim.files[*path].clone();
            bytes[sector..sector + 512].fill(0);
            let what = format!("{path}, sector at {sector}");
            let damage = Damage::new(Part::LogFrames, Decay::Zero512, path, bytes, what);
            let place = ((*path).clone(), first.at.start as u64);
            assert_eq!(open(&victim, &damage), Err(place), "{damage}");
            tried += 1;
        }
    }
    assert!(tried >= 30, "{tried} sectors");
}
