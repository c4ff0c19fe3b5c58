//! What the rows work on: each store with the data that a row asks for, made when the first row
//! asks for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::data::{ENTRY_BYTES, VALUE_BYTES, is_value_of, key, value, value_of_length};
use crate::fallible::Fallible;
use crate::machine::{Flushes, wait_until_nothing_is_written};
use crate::measure::check;
use crate::store::{BOWLINE, Durability, Settings, Store, System, flushing};

/// The rate of the raw loop.
pub const F: &str = "F: raw `pwrite` + `fdatasync` loop";

/// How much data the rows work on.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub name: &'static str,
    /// Keys of the rows that say 100 K.
    pub small: u64,
    /// Keys of the rows that say 1 M.
    pub large: u64,
    /// Versions of a key.
    pub versions: [u64; 5],
    /// S6: the memtable; four times as much is overwritten.
    pub overwrite_memtable_bytes: usize,
    /// S6: how long a turn may take.
    pub overwrite_max: Duration,
    /// S7: the data, and the memtable it goes through.
    pub amplified_bytes: u64,
    pub amplified_memtable_bytes: usize,
    /// S8: keys and values in the log.
    pub recovered_bytes: u64,
    /// S9: the budget, and how much is written under it.
    pub budget_bytes: u64,
    pub budget_written_bytes: u64,
    /// S9: how long a store may take over it.
    pub budget_max: Duration,
}

impl Scale {
    pub const FULL: Scale = Scale {
        name: "full",
        small: 100_000,
        large: 1_000_000,
        versions: [1, 10, 100, 1_000, 100_000],
        overwrite_memtable_bytes: 64 << 20,
        overwrite_max: Duration::from_secs(15),
        amplified_bytes: 64 << 20,
        amplified_memtable_bytes: 16 << 20,
        recovered_bytes: 1 << 30,
        budget_bytes: 256 << 20,
        budget_written_bytes: 4 << 30,
        budget_max: Duration::from_secs(180),
    };
    pub const QUICK: Scale = Scale {
        name: "quick",
        overwrite_memtable_bytes: 8 << 20,
        overwrite_max: Duration::from_secs(1),
        amplified_bytes: 4 << 20,
        amplified_memtable_bytes: 1 << 20,
        recovered_bytes: 64 << 20,
        budget_bytes: 64 << 20,
        budget_written_bytes: 256 << 20,
        ..Scale::FULL
    };
    /// Tests the program, measures nothing.
    pub const SMOKE: Scale = Scale {
        name: "smoke",
        small: 500,
        large: 1_000,
        versions: [1, 2, 3, 4, 300],
        overwrite_memtable_bytes: 1 << 20,
        overwrite_max: Duration::from_millis(30),
        amplified_bytes: 256 << 10,
        amplified_memtable_bytes: 1 << 20,
        recovered_bytes: 100 << 10,
        budget_bytes: 64 << 20,
        budget_written_bytes: 1 << 20,
        budget_max: Duration::from_secs(180),
    };
}

/// What a store holds for some rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dataset {
    /// The small number of keys; every commit is flushed.
    Durable,
    /// The small number of keys, as they were just written. Never written to again.
    Small,
    /// The large number.
    Large,
    /// The large number of keys, in sorted files; read once, so that they are cached.
    Tables,
    /// The same with the small number.
    SmallTables,
    /// The large number, in three sorted runs that are not merged, where the store can be made to have them.
    Runs,
    /// The small number of keys, for the row of commits that are not flushed.
    Batched,
    /// The small number of keys, overwritten by a writer with the values they have.
    Written,
    /// What S6 overwrites.
    Overwritten,
    /// Keys with as many versions as [`Scale::versions`] says.
    Versions,
}

/// By the store's name, what it holds, and the length of values.
type Stores = HashMap<(&'static str, Dataset, usize), Rc<dyn Store>>;

/// The stores, and where they are.
pub struct Stage {
    pub scale: Scale,
    pub directory: PathBuf,
    pub systems: Vec<&'static System>,
    pub flushes: Flushes,
    /// This program, where it can be started again for a row that needs a process of its own.
    pub program: PathBuf,
    stores: RefCell<Stores>,
    directories: Cell<u64>,
}

impl Stage {
    pub fn new(
        scale: Scale,
        directory: &Path,
        systems: Vec<&'static System>,
        program: PathBuf,
    ) -> Stage {
        Stage {
            scale,
            directory: directory.to_owned(),
            systems,
            flushes: Flushes::of(directory),
            program,
            stores: RefCell::default(),
            directories: Cell::new(0),
        }
    }

    /// The names of the stores that take part in a row.
    pub fn names(&self, takes_part: impl Fn(&System) -> bool) -> Vec<&'static str> {
        let systems = self.systems.iter();
        let systems = systems.filter(|system| !system.is_batched_only && takes_part(system));
        systems.map(|system| system.name).collect()
    }

    /// The names of all, those that are only for the row of commits that are not flushed with them.
    pub fn names_of_batched(&self) -> Vec<&'static str> {
        self.systems.iter().map(|system| system.name).collect()
    }

    pub fn system(&self, name: &str) -> Fallible<&'static System> {
        let mut systems = self.systems.iter().copied();
        Ok(systems
            .find(|system| system.name == name)
            .ok_or("a row of a store that does not take part")?)
    }

    /// A directory that does not exist yet. Removed with all that is on the stage.
    pub fn fresh_directory(&self, name: &str) -> PathBuf {
        let number = self.directories.get();
        self.directories.set(number + 1);
        self.directory.join(format!("{name}-{number}"))
    }

    /// The store with some data; made at the first call.
    pub fn store(&self, system: &'static System, dataset: Dataset) -> Fallible<Rc<dyn Store>> {
        self.store_of(system, dataset, VALUE_BYTES)
    }

    /// [`Stage::store`] with values of another length.
    pub fn store_of(
        &self,
        system: &'static System,
        dataset: Dataset,
        value_bytes: usize,
    ) -> Fallible<Rc<dyn Store>> {
        // Where nothing is told apart, one copy serves.
        let dataset = match dataset {
            Dataset::Tables | Dataset::Runs if !system.has_memtable => Dataset::Large,
            Dataset::SmallTables if !system.has_memtable => Dataset::Small,
            // Only Bowline has a goal for runs that are not merged: the others are at their best.
            Dataset::Runs if system.name != BOWLINE.name => Dataset::Tables,
            other => other,
        };
        let place = (system.name, dataset, value_bytes);
        if let Some(store) = self.stores.borrow().get(&place) {
            return Ok(store.clone());
        }
        let path = self.fresh_directory(&format!("{}-{dataset:?}", system.name));
        let mut store = (system.open)(&path, &self.settings(dataset))?;
        flushing(system, &*store, || self.fill(&*store, dataset, value_bytes))?;
        store.sync()?;
        let is_settled = match dataset {
            Dataset::Tables | Dataset::SmallTables | Dataset::Overwritten => true,
            // What is read is settled by the store's own means. A memtable is the state that these rows are of.
            Dataset::Small | Dataset::Large | Dataset::Written => !system.has_memtable,
            Dataset::Durable | Dataset::Batched | Dataset::Runs | Dataset::Versions => false,
        };
        if is_settled {
            store = store.settle()?;
        }
        read_all(&*store, self.keys(dataset), value_bytes)?;
        // Whatever it still does belongs to nobody's turn.
        wait_until_nothing_is_written()?;
        let store: Rc<dyn Store> = store.into();
        self.stores.borrow_mut().insert(place, store.clone());
        Ok(store)
    }

    fn settings(&self, dataset: Dataset) -> Settings {
        /// Holds all that the rows from memory need, so that they never read a table.
        const LARGE_BYTES: usize = 1 << 30;
        let ordinary = Settings {
            durability: Durability::Batched,
            memtable_bytes: 64 << 20,
            cache_bytes: 64 << 20,
        };
        match dataset {
            Dataset::Durable => Settings {
                durability: Durability::Sync,
                ..ordinary
            },
            Dataset::Small
            | Dataset::Large
            | Dataset::Batched
            | Dataset::Written
            | Dataset::Versions => Settings {
                memtable_bytes: LARGE_BYTES,
                ..ordinary
            },
            Dataset::Tables | Dataset::SmallTables => Settings {
                cache_bytes: LARGE_BYTES,
                ..ordinary
            },
            Dataset::Runs => Settings {
                memtable_bytes: LARGE_BYTES,
                cache_bytes: LARGE_BYTES,
                ..ordinary
            },
            Dataset::Overwritten => Settings {
                memtable_bytes: self.scale.overwrite_memtable_bytes,
                ..ordinary
            },
        }
    }

    /// How many keys a dataset has.
    pub fn keys(&self, dataset: Dataset) -> u64 {
        match dataset {
            Dataset::Durable
            | Dataset::Small
            | Dataset::SmallTables
            | Dataset::Batched
            | Dataset::Written => self.scale.small,
            Dataset::Large | Dataset::Tables | Dataset::Runs => self.scale.large,
            Dataset::Overwritten => 4 * self.scale.overwrite_memtable_bytes as u64 / ENTRY_BYTES,
            // Not numbered from 0.
            Dataset::Versions => 0,
        }
    }

    fn fill(&self, store: &dyn Store, dataset: Dataset, value_bytes: usize) -> Fallible<()> {
        if dataset == Dataset::Versions {
            for count in self.scale.versions {
                for _ in 0..count {
                    store.put(&key(count), &value(count))?;
                }
            }
            return Ok(());
        }
        let keys = self.keys(dataset);
        if dataset != Dataset::Runs {
            return fill(store, 0..keys, value_bytes);
        }
        let mut runs = None;
        for part in 0..RUNS {
            // Keys are spread, so each part is of the whole range.
            fill(
                store,
                part * keys / RUNS..(part + 1) * keys / RUNS,
                value_bytes,
            )?;
            runs = store.add_run()?;
        }
        check(
            runs == Some(RUNS),
            "there are not as many runs as are asked for",
        )
    }
}

/// Runs of [`Dataset::Runs`]: one less than what is merged.
const RUNS: u64 = 3;

/// Writes keys, a thousand to a transaction.
pub fn fill(store: &dyn Store, numbers: Range<u64>, value_bytes: usize) -> Fallible<()> {
    for start in numbers.clone().step_by(1_000) {
        let numbers = start..numbers.end.min(start + 1_000);
        let entry = |number| (key(number), value_of_length(number, value_bytes));
        let entries: Vec<_> = numbers.map(entry).collect();
        store.put_all(&entries)?;
    }
    Ok(())
}

/// Reads every key once.
fn read_all(store: &dyn Store, count: u64, value_bytes: usize) -> Fallible<()> {
    let reader = store.reader()?;
    for number in 0..count {
        let mut see = |value: &[u8]| {
            check(
                is_value_of(value, number, value_bytes),
                "a key does not have its value",
            )
        };
        check(reader.get(&key(number), &mut see)?, "a key is missing")?;
    }
    Ok(())
}
