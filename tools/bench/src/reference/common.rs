//! What the rows of the reference tables have in common: scale, place, kinds, and their names.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::{Db, DbBuilder, Durability};

use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn};
use crate::result::{Bound, Reference, Unit};
use crate::store::BATCHED_EVERY;

pub const SYNC: &str = "Sync";
pub const BATCHED: &str = "Batched";
/// Both ways to write.
pub const MODES: [&str; 2] = [SYNC, BATCHED];

/// How much data the rows work on.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub name: &'static str,
    /// Keys of most rows of the transactional store.
    pub keys: u64,
    /// For the rows that say how many.
    pub scaling: [u64; 3],
    /// Blocks of most rows of the graph.
    pub blocks: u64,
    /// What compactions merge, in blocks of each run.
    pub run_blocks: u64,
    pub log_bytes: u64,
    pub log_segment_bytes: u64,
}

impl Scale {
    pub const FULL: Scale = Scale {
        name: "full",
        keys: 10_000,
        scaling: [10_000, 100_000, 1_000_000],
        blocks: 10_000,
        run_blocks: 20_000,
        log_bytes: 1 << 30,
        log_segment_bytes: 64 << 20,
    };
    pub const QUICK: Scale = Scale {
        name: "quick",
        run_blocks: 5_000,
        log_bytes: 128 << 20,
        ..Scale::FULL
    };
    /// Tests the program, measures nothing.
    pub const SMOKE: Scale = Scale {
        name: "smoke",
        keys: 200,
        scaling: [100, 200, 300],
        blocks: 200,
        run_blocks: 50,
        log_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
    };
}

/// Where the rows work.
pub struct Place {
    pub scale: Scale,
    pub directory: PathBuf,
}

impl Place {
    pub fn new(scale: Scale, directory: &Path) -> Place {
        Place {
            scale,
            directory: directory.to_owned(),
        }
    }

    /// Settings for a database in which all fits into memory.
    pub fn builder(&self, mode: &str) -> DbBuilder {
        const MEMTABLE_BYTES: usize = 1 << 30;
        Db::builder()
            .memtable_bytes(MEMTABLE_BYTES)
            .durability(if mode == BATCHED {
                Durability::Batched {
                    every: BATCHED_EVERY,
                }
            } else {
                Durability::Sync
            })
    }

    pub fn open(&self, name: &str, mode: &str) -> Fallible<Db> {
        let path = self.directory.join(format!("{name}-{mode}"));
        Ok(self.builder(mode).open(path)?)
    }
}

/// One database for each mode, made when a row first asks for it.
#[derive(Default)]
pub struct Both {
    sync: OnceCell<Db>,
    batched: OnceCell<Db>,
}

impl Both {
    pub fn get(&self, mode: &str, make: impl FnOnce() -> Fallible<Db>) -> Fallible<&Db> {
        let cell = if mode == BATCHED {
            &self.batched
        } else {
            &self.sync
        };
        if cell.get().is_none() {
            let _ = cell.set(make()?);
        }
        cell.get().ok_or_else(|| "not made".into())
    }
}

/// How a row of a reference table is judged.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Reads, or does what no disk takes part in.
    Read,
    /// Is flushed, here as there.
    Durable,
    /// †: was not flushed there.
    Unflushed,
    /// Not flushed, and does not claim to be.
    Batched,
    /// Only the flushed way.
    Flushed,
}

/// A row of a reference table. `here` is the figure of the reference measured here, 0 where that
/// was not done.
pub fn row<'a>(
    name: &'static str,
    unit: Unit,
    kind: Kind,
    published: &'static str,
    here: f64,
    run: impl FnMut(Turn) -> Fallible<Sample> + 'a,
) -> Row<'a> {
    let (contestants, judged) = match kind {
        Kind::Read | Kind::Flushed => (vec![SYNC], SYNC),
        Kind::Durable => (MODES.to_vec(), SYNC),
        Kind::Unflushed => (MODES.to_vec(), BATCHED),
        Kind::Batched => (vec![BATCHED], BATCHED),
    };
    let mut row = Row::new(name, unit, contestants, run);
    let here = (here > 0.0).then_some(here);
    if let Some(here) = here {
        // The goal: ahead of the figure measured here, by ten times where it is durable.
        let times = if matches!(kind, Kind::Durable) {
            10.0
        } else {
            1.0
        };
        row.bound = Some(if unit.is_more_better() {
            Bound::AtLeast(here * times)
        } else {
            Bound::AtMost(here / times)
        });
    }
    row.reference = Some(Reference {
        published: published.to_owned(),
        here,
        is_unflushed: matches!(kind, Kind::Unflushed),
        judged: judged.to_owned(),
    });
    row
}

/// At least so long, that a sample of what takes long has more than one operation.
pub fn at_least(sample: Duration, milliseconds: u64) -> Duration {
    sample
        .max(Duration::from_millis(milliseconds))
        .min(sample * 4)
}
