//! The interface of the stores that are measured.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::data::Key;
use crate::fallible::Fallible;

/// How long `Batched` may wait with a flush.
pub const BATCHED_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged after the flush.
    Sync,
    /// Acknowledged before it; at most [`BATCHED_EVERY`] can be lost.
    Batched,
}

/// What a row asks of a store that is opened for it.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub durability: Durability,
    /// What may be written before it goes to sorted files, where there is such a thing.
    pub memtable_bytes: usize,
    /// The store's own cache, where there is one.
    pub cache_bytes: usize,
}

/// What a store counts itself, where it does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Flushes of the log.
    pub flushes: Option<u64>,
    /// Reads that had to go to a file.
    pub cache_misses: Option<u64>,
    /// What it wrote.
    pub written: Option<Written>,
}

/// Bytes that a store wrote, by what they are.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Records of the log.
    pub log: u64,
    /// What stood in the place of records before them.
    pub zeros: u64,
    /// Sorted files, by flushes of the memtable.
    pub flushed: u64,
    /// Sorted files, by merges.
    pub merged: u64,
}

/// An open store. Dropping it closes it.
pub trait Store: Send + Sync {
    /// Sets one key, in a transaction of its own.
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()>;
    /// Sets several keys in one transaction.
    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()>;
    /// Makes everything that was acknowledged survive a power loss.
    fn sync(&self) -> Fallible<()>;
    /// Brings everything into sorted files, merged as far as they ever are; a tree of pages is compacted by
    /// its own means.
    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>>;
    /// Brings what is in memory into sorted files of its own, where there are such things; gives how many
    /// sorted runs there are now, where the store counts them.
    fn add_run(&self) -> Fallible<Option<u64>> {
        Ok(None)
    }
    /// Has the log begin a file that was used before, where it does that at all: what a store in use does all
    /// the time, and one that is short of work for its memtable never.
    fn recycle_log(&self) -> Fallible<()> {
        Ok(())
    }
    /// A snapshot of the newest state.
    fn reader(&self) -> Fallible<Box<dyn Reader + '_>>;
    /// Commits by one thread that does not wait for each, where the store can do that.
    fn commits_under_way(&self, _under_way_max: usize) -> Fallible<Box<dyn UnderWay + '_>> {
        Err("this store waits for each commit".into())
    }
    /// Adds to the number of a key by one call, where the store can do that; returns the sum.
    fn add(&self, _key: &[u8], _amount: i64) -> Fallible<i64> {
        Err("this store has no additions".into())
    }
    /// What it counts itself.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// Commits of one thread of which several are under way.
pub trait UnderWay {
    /// Sets one key, in a transaction of its own. Waits until no more are under way than may be.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Fallible<()>;
    /// Waits until none is.
    fn wait(&mut self) -> Fallible<()>;
}

/// A snapshot. Belongs to the thread that made it.
pub trait Reader {
    /// Shows the value of a key; false when there is none.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool>;
    /// Shows the values of several keys, by their positions; fails when one is missing. One after the other
    /// where a store has no call for it.
    fn get_many(&self, keys: &[Key], see: &mut SeeAt<'_>) -> Fallible<()> {
        for (position, key) in keys.iter().enumerate() {
            let found = self.get(key, &mut |value| see(position, value))?;
            if !found {
                return Err("one of several keys is missing".into());
            }
        }
        Ok(())
    }
    /// Shows the first entries in the order of their keys.
    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()>;
}

/// Who is shown entries: key, value.
pub type See<'a> = dyn FnMut(&[u8], &[u8]) -> Fallible<()> + 'a;

/// Who is shown one of several values: position, value.
pub type SeeAt<'a> = dyn FnMut(usize, &[u8]) -> Fallible<()> + 'a;

/// A store that can take part.
#[derive(Debug, Clone, Copy)]
pub struct System {
    pub name: &'static str,
    pub version: &'static str,
    /// How it is opened, and why this is the best it can honestly do.
    pub configuration: &'static str,
    /// Whether opening it after a crash reads a log.
    pub has_log: bool,
    /// Whether what was just written is elsewhere than what was written long ago.
    pub has_memtable: bool,
    /// Whether its memory follows from its settings, and not from the kernel's page cache.
    pub has_budget: bool,
    /// Whether it flushes by time itself, opened as `Batched`.
    pub flushes_itself: bool,
    /// Whether it is another way to open a store for the row of commits that are not flushed, and in no other row.
    pub is_batched_only: bool,
    /// Whether a thread can have several commits under way.
    pub has_tickets: bool,
    pub open: fn(&Path, &Settings) -> Fallible<Box<dyn Store>>,
}

/// Does some work on a store opened as `Batched`, which is flushed in time meanwhile.
pub fn flushing<T>(
    system: &System,
    store: &dyn Store,
    work: impl FnOnce() -> Fallible<T>,
) -> Fallible<T> {
    if system.flushes_itself {
        return work();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(BATCHED_EVERY);
                store.sync()?;
            }
            Fallible::Ok(())
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        flusher.join().map_err(|_| "the flusher panicked")??;
        result
    })
}
