//! Bowline itself.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;

use bowline::{Db, Snapshot, Ticket, Update};

use super::interface::{
    BATCHED_EVERY, Counts, Durability, Reader, See, SeeAt, Settings, Store, System, UnderWay,
    Written,
};
use crate::data::Key;
use crate::fallible::Fallible;

pub const BOWLINE: System = System {
    name: "Bowline",
    version: concat!("bowline ", env!("CARGO_PKG_VERSION")),
    configuration: "default settings, but for the sizes of memtable and cache; scans by `RangeIter::visit`; `Batched` every 10 ms by its own thread",
    has_log: true,
    has_memtable: true,
    has_budget: true,
    flushes_itself: true,
    is_batched_only: false,
    has_tickets: true,
    open,
};

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    let durability = match settings.durability {
        Durability::Sync => bowline::Durability::Sync,
        Durability::Batched => bowline::Durability::Batched {
            every: BATCHED_EVERY,
        },
    };
    let db = Db::builder()
        .durability(durability)
        .memtable_bytes(settings.memtable_bytes)
        .cache_bytes(settings.cache_bytes as u64)
        .open(path)?;
    Ok(Box::new(Bowline { db }))
}

struct Bowline {
    db: Db,
}

impl Store for Bowline {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        self.db.put(key, value)?;
        Ok(())
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        self.db.transact(|tx| {
            entries
                .iter()
                .try_for_each(|(key, value)| tx.put(key, value))
        })?;
        Ok(())
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.db.sync()?)
    }

    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
        self.db.compact()?;
        Ok(self)
    }

    fn add_run(&self) -> Fallible<Option<u64>> {
        self.db.flush()?;
        let stats = self.db.stats().engine;
        // Those of the tree with the most: that of the keys.
        let runs = |levels: &Vec<bowline::LevelStats>| levels.iter().map(|level| level.runs).sum();
        Ok(stats.levels.iter().map(runs).max())
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        Ok(Box::new(self.db.snapshot()))
    }

    fn commits_under_way(&self, under_way_max: usize) -> Fallible<Box<dyn UnderWay + '_>> {
        Ok(Box::new(Tickets {
            db: &self.db,
            under_way: VecDeque::with_capacity(under_way_max),
            under_way_max,
        }))
    }

    fn add(&self, key: &[u8], amount: i64) -> Fallible<i64> {
        let sum = self.db.update(key, Update::Add(amount))?;
        let sum = sum.value.ok_or("a sum that is absent")?;
        Ok(std::str::from_utf8(&sum)?.parse()?)
    }

    fn counts(&self) -> Counts {
        let counters = self.db.stats().engine.counters;
        Counts {
            flushes: Some(counters.log_syncs),
            cache_misses: Some(counters.cache_misses),
            written: Some(Written {
                log: counters.log_bytes_written,
                zeros: counters.log_bytes_prepared,
                flushed: counters.flush_bytes_written + counters.blob_flush_bytes_written,
                merged: counters.compaction_bytes_written + counters.blob_compaction_bytes_written,
            }),
        }
    }
}

struct Tickets<'a> {
    db: &'a Db,
    under_way: VecDeque<Ticket>,
    under_way_max: usize,
}

impl UnderWay for Tickets<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Fallible<()> {
        if self.under_way.len() == self.under_way_max
            && let Some(oldest) = self.under_way.pop_front()
        {
            oldest.wait()?;
        }
        self.under_way.push_back(self.db.put_later(key, value)?);
        Ok(())
    }

    fn wait(&mut self) -> Fallible<()> {
        for ticket in self.under_way.drain(..) {
            ticket.wait()?;
        }
        Ok(())
    }
}

impl Reader for Snapshot {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match Snapshot::get(self, key)? {
            Some(value) => see(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn get_many(&self, keys: &[Key], see: &mut SeeAt<'_>) -> Fallible<()> {
        let values = Snapshot::get_many(self, keys)?;
        for (position, value) in values.iter().enumerate() {
            let value = value.as_ref().ok_or("one of several keys is missing")?;
            see(position, value)?;
        }
        Ok(())
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        let mut left = limit;
        let visited = self.range(..)?.visit(|entry| {
            if left == 0 {
                return ControlFlow::Break(Ok(()));
            }
            left -= 1;
            match see(entry.key, entry.value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        })?;
        match visited {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(result) => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{LARGE_VALUE_BYTES, fill, key};

    /// S7 once said 0.11 bytes beyond the log for a byte put: values of 1 KiB lie in blob files, and
    /// only tables were counted.
    #[test]
    fn what_was_written_covers_every_file_of_sorted_data() {
        const KEYS: u64 = 4_000;
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            durability: Durability::Batched,
            memtable_bytes: 64 << 20,
            cache_bytes: 8 << 20,
        };
        let store = open(directory.path(), &settings).unwrap();
        let entries: Vec<_> = (0..KEYS)
            .map(|number| {
                let mut value = vec![0; LARGE_VALUE_BYTES];
                fill(number, &mut value);
                (key(number), value)
            })
            .collect();
        store.put_all(&entries).unwrap();
        let store = store.settle().unwrap();
        let written = store.counts().written.unwrap();
        let least = KEYS * LARGE_VALUE_BYTES as u64;
        assert!(written.log >= least, "{written:?}");
        assert!(written.flushed + written.merged >= least, "{written:?}");
    }
}
