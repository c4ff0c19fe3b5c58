//! The stores that are measured, behind one small interface.
//!
//! What the interface asks of each is the same work, in the words of each:
//!
//! - [`Store::put`] is one transaction of one key. Opened with [`Durability::Sync`] it returns when
//!   the change survives a power loss. With [`Durability::Batched`] it may return before; somebody
//!   then flushes every [`BATCHED_EVERY`]: the store itself where it can, else [`flushing`].
//! - A [`Reader`] is a snapshot: everything it reads is of one moment. Who reads looks at every
//!   byte of a value ([`data::is_value_of`](crate::data::is_value_of)), so it is no matter whether
//!   the store copies it.
//! - [`Store::settle`] leaves nothing in memory that is not in the store's sorted files, and
//!   nothing to merge.
//!
//! Every store is opened in its best honest configuration, which its [`System`] states in words.

mod bowline;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "surrealkv")]
mod surrealkv;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::data::Key;
use crate::measure::Fallible;

/// How long `Batched` may wait with a flush.
pub const BATCHED_EVERY: Duration = Duration::from_millis(10);

pub use bowline::BOWLINE;

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
    /// Brings everything into sorted files, merged as far as they ever are.
    fn settle(&self) -> Fallible<()>;
    /// A snapshot of the newest state.
    fn reader(&self) -> Fallible<Box<dyn Reader + '_>>;
    /// What it counts itself.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// A snapshot. Belongs to the thread that made it.
pub trait Reader {
    /// Shows the value of a key; false when there is none.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool>;
    /// Shows the first entries in the order of their keys.
    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()>;
}

/// Who is shown entries: key, value.
pub type See<'a> = dyn FnMut(&[u8], &[u8]) -> Fallible<()> + 'a;

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
    pub open: fn(&Path, &Settings) -> Fallible<Box<dyn Store>>,
}

/// Bowline, and the others where they are compiled in.
pub const SYSTEMS: &[System] = &[
    BOWLINE,
    #[cfg(feature = "rocksdb")]
    rocksdb::ROCKSDB,
    #[cfg(feature = "fjall")]
    fjall::FJALL,
    #[cfg(feature = "redb")]
    redb::REDB,
    #[cfg(feature = "lmdb")]
    lmdb::LMDB,
    #[cfg(feature = "surrealkv")]
    surrealkv::SURREALKV,
];

/// The store of a name.
pub fn system(name: &str) -> Fallible<&'static System> {
    let found = SYSTEMS.iter().find(|system| system.name == name);
    Ok(found.ok_or_else(|| {
        let names: Vec<_> = SYSTEMS.iter().map(|system| system.name).collect();
        format!("no store named {name}: there are {}", names.join(", "))
    })?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{VALUE_BYTES, is_value_of, key, number_of, value};

    /// Each store answers as a sorted map does, also after it was opened again, and settles.
    #[test]
    fn each_store_does_what_the_interface_says() {
        for system in SYSTEMS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store");
            for durability in [Durability::Sync, Durability::Batched] {
                let settings = Settings {
                    durability,
                    memtable_bytes: 4 << 20,
                    cache_bytes: 8 << 20,
                };
                let store = (system.open)(&path, &settings).unwrap();
                let entries: Vec<_> = (0..300).map(|n| (key(n), vec![0; 5])).collect();
                store.put_all(&entries).unwrap();
                let before = store.reader().unwrap();
                for n in 0..300 {
                    store.put(&key(n), &value(n)).unwrap();
                }
                store.sync().unwrap();
                let mut lengths = Vec::new();
                let mut see = |_: &[u8], value: &[u8]| {
                    lengths.push(value.len());
                    Ok(())
                };
                before.scan(1_000, &mut see).unwrap();
                assert_eq!(lengths, [5; 300], "{}: not a snapshot", system.name);
                drop(before);
                check_all(system, &*store);
                store.settle().unwrap();
                check_all(system, &*store);
                drop(store);
                let store = (system.open)(&path, &settings).unwrap();
                check_all(system, &*store);
            }
        }
    }

    fn check_all(system: &System, store: &dyn Store) {
        let reader = store.reader().unwrap();
        for n in 0..300 {
            let mut see = |value: &[u8]| {
                assert!(is_value_of(value, n, VALUE_BYTES), "{}", system.name);
                Ok(())
            };
            assert!(reader.get(&key(n), &mut see).unwrap(), "{}", system.name);
        }
        assert!(!reader.get(&key(300), &mut |_| Ok(())).unwrap());
        let mut seen = Vec::new();
        let mut see = |key: &[u8], value: &[u8]| {
            let number = number_of(key).unwrap();
            assert!(is_value_of(value, number, VALUE_BYTES), "{}", system.name);
            seen.push(key.to_vec());
            Ok(())
        };
        reader.scan(200, &mut see).unwrap();
        assert_eq!(seen.len(), 200, "{}", system.name);
        assert!(seen.is_sorted(), "{}", system.name);
    }

    #[test]
    fn whoever_does_not_flush_by_itself_is_flushed() {
        struct Counting(std::sync::atomic::AtomicU64);
        impl Store for Counting {
            fn put(&self, _: &[u8], _: &[u8]) -> Fallible<()> {
                Ok(())
            }
            fn put_all(&self, _: &[(Key, Vec<u8>)]) -> Fallible<()> {
                Ok(())
            }
            fn sync(&self) -> Fallible<()> {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            fn settle(&self) -> Fallible<()> {
                Ok(())
            }
            fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
                Err("not read".into())
            }
        }
        let store = Counting(0.into());
        let system = System {
            flushes_itself: false,
            ..BOWLINE
        };
        let work = || {
            std::thread::sleep(BATCHED_EVERY * 10);
            Ok(())
        };
        flushing(&system, &store, work).unwrap();
        assert!(store.0.into_inner() >= 2);
    }

    /// What is told of a store must be the version that was built.
    #[test]
    fn versions_told_are_those_of_the_lock_file() {
        let lock = include_str!("../../../../Cargo.lock");
        for system in SYSTEMS {
            // "fjall 3.1.13 (lsm-tree 3.1.10)": pairs of words.
            let words = system.version.replace(['(', ')', ','], " ");
            let words: Vec<_> = words.split_ascii_whitespace().collect();
            for pair in words.chunks(2) {
                let [package, version] = pair else {
                    panic!("{}: not pairs of package and version", system.version)
                };
                let line = format!("name = \"{package}\"\nversion = \"{version}\"\n");
                assert!(lock.contains(&line), "{package} {version} is not locked");
            }
        }
    }
}
