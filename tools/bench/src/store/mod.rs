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
mod interface;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "surrealkv")]
mod surrealkv;

use crate::fallible::Fallible;

pub use bowline::BOWLINE;
pub use interface::{BATCHED_EVERY, Durability, Settings, Store, System, flushing};

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
    #[cfg(feature = "lmdb")]
    lmdb::LMDB_MAP,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::interface::Reader;
    use super::*;
    use crate::data::{Key, VALUE_BYTES, is_value_of, key, number_of, value};

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
                let store = store.settle().unwrap();
                check_all(system, &*store);
                store.recycle_log().unwrap();
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
        let keys: Vec<_> = (0..300).rev().map(key).collect();
        let mut positions = Vec::new();
        let mut see = |position: usize, value: &[u8]| {
            assert!(is_value_of(value, 299 - position as u64, VALUE_BYTES));
            positions.push(position);
            Ok(())
        };
        reader.get_many(&keys, &mut see).unwrap();
        positions.sort_unstable();
        assert!(positions.into_iter().eq(0..300), "{}", system.name);
        let absent = [key(1), key(300)];
        assert!(reader.get_many(&absent, &mut |_, _| Ok(())).is_err());
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
            fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
                Ok(self)
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
