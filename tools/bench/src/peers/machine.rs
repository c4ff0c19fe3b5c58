//! Rows of the machine itself: what no store can beat.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use fastrand::Rng;

use super::stage::{F, Stage};
use crate::data::{Key, SEED, VALUE_BYTES, is_value_of, key, value};
use crate::fallible::Fallible;
use crate::machine::{RAW_BYTES, RawFile};
use crate::measure::{MACHINE, Row, Sample, check};
use crate::result::Unit;
use crate::timing::{BATCH, run_for, run_on, time};

pub const SMALL_MAP: &str = "`std::collections::HashMap`, 100 K keys";
pub const LARGE_MAP: &str = "`std::collections::HashMap`, 1 M keys";

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let scale = &stage.scale;
    vec![
        raw(&stage.directory),
        load("dependent load, 16 MB", 160 * scale.small as usize),
        load("dependent load, 160 MB", 160 * scale.large as usize),
        map(SMALL_MAP, scale.small),
        map(LARGE_MAP, scale.large),
        Row::new(
            "first touch of memory",
            Unit::BytesPerSecond,
            vec![MACHINE],
            |_| touch(),
        )
        .long()
        .remark("1 GiB that no process had a moment before: what recovery fills at best"),
    ]
}

/// How often the disk under a directory flushes at best.
pub fn raw(directory: &Path) -> Row<'_> {
    let mut raw = None;
    let run = move |turn: crate::measure::Turn| {
        let raw = match &mut raw {
            Some(raw) => raw,
            none => none.insert(RawFile::create(&directory.join("raw"), u64::MAX)?),
        };
        Ok(Sample::rate(raw.flush_loop(RAW_BYTES, turn.sample)?))
    };
    Row::new(F, Unit::PerSecond, vec![MACHINE], run).remark("150 bytes, on zeros written before")
}

/// How fast the system gives memory. On a virtual machine it may have to come from the host first,
/// at a fraction of the speed.
fn touch() -> Fallible<Sample> {
    const BYTES: usize = 1 << 30;
    const PAGE_BYTES: usize = 4096;
    let (elapsed, ()) = time(|| {
        let mut memory = vec![0u8; BYTES];
        for page in memory.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
        let touched = std::hint::black_box(&memory).iter().step_by(PAGE_BYTES);
        let pages: usize = touched.map(|&byte| usize::from(byte)).sum();
        check(pages == BYTES / PAGE_BYTES, "memory forgets")
    })?;
    Ok(Sample::figure(BYTES as f64 / elapsed.as_secs_f64()))
}

/// One cache line that says where to go next.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(usize);

/// Lines that lead through all of `bytes` in random order, in one circle (Sattolo's algorithm).
fn circle(bytes: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = (0..bytes / size_of::<Line>()).map(Line).collect();
    let mut rng = Rng::with_seed(SEED);
    for at in (1..lines.len()).rev() {
        lines.swap(at, rng.usize(..at));
    }
    lines
}

/// What one load costs when the address of the next depends on it: what any read of more than
/// the processor's own cache is made of.
pub fn load(name: &'static str, bytes: usize) -> Row<'static> {
    let lines = OnceCell::new();
    let mut at = 0;
    Row::new(name, Unit::Nanoseconds, vec![MACHINE], move |turn| {
        let lines = lines.get_or_init(|| circle(bytes));
        let mut returns = 0;
        let timed = run_for(turn.sample, BATCH, || {
            at = lines[at].0;
            returns += u64::from(at == 0);
            Ok(())
        })?;
        check(
            returns <= timed.operations / lines.len() as u64 + 1,
            "not one circle",
        )?;
        Ok(Sample::time(timed))
    })
}

type Map = HashMap<Key, [u8; VALUE_BYTES]>;

/// The same keys without revisions, order or anybody else.
fn map(name: &'static str, keys: u64) -> Row<'static> {
    let map = OnceCell::<Map>::new();
    Row::new(name, Unit::Nanoseconds, vec![MACHINE], move |turn| {
        let map = map.get_or_init(|| (0..keys).map(|n| (key(n), value(n))).collect());
        let timed = run_on(1, turn.sample, BATCH, |_| {
            let mut rng = Rng::with_seed(turn.seed);
            Ok(move || -> Fallible<()> {
                let number = rng.u64(..keys);
                let found = map.get(&key(number));
                let is_right = found.is_some_and(|value| is_value_of(value, number, VALUE_BYTES));
                check(is_right, "not in the map")
            })
        })?;
        Ok(Sample::time(timed))
    })
}
