//! fjall: a log-structured merge tree.

use std::path::Path;

use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const FJALL: System = System {
    name: "fjall",
    version: "fjall 3.1.13 (lsm-tree 3.1.10)",
    configuration: "LZ4, leveled compaction, filters of 10 bits per key in every level; a journal as large as it takes; `Sync`: each batch `SyncData`; `Batched`: `Buffer`, and `SyncData` every 10 ms",
    has_log: true,
    has_memtable: true,
    has_budget: true,
    flushes_itself: false,
    is_batched_only: false,
    has_tickets: false,
    open,
};

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    /// The smallest that it takes.
    const JOURNAL_BYTES_MIN: u64 = 64 << 20;
    let memtable_bytes = settings.memtable_bytes as u64;
    let db = Database::builder(path)
        .cache_size(settings.cache_bytes as u64)
        .max_journaling_size((4 * memtable_bytes).max(JOURNAL_BYTES_MIN))
        .open()?;
    let options = move || {
        let bloom = BloomConstructionPolicy::BitsPerKey(10.0);
        KeyspaceCreateOptions::default()
            .max_memtable_size(memtable_bytes)
            .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(bloom)))
    };
    let entries = db.keyspace("entries", options)?;
    Ok(Box::new(Fjall {
        db,
        entries,
        mode: match settings.durability {
            Durability::Sync => PersistMode::SyncData,
            Durability::Batched => PersistMode::Buffer,
        },
    }))
}

struct Fjall {
    db: Database,
    entries: Keyspace,
    mode: PersistMode,
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        let mut batch = self.db.batch().durability(Some(self.mode));
        batch.insert(&self.entries, key, value);
        Ok(batch.commit()?)
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        let mut batch = self.db.batch().durability(Some(self.mode));
        for (key, value) in entries {
            batch.insert(&self.entries, &key[..], &value[..]);
        }
        Ok(batch.commit()?)
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
        self.entries.rotate_memtable_and_wait()?;
        self.entries.major_compact()?;
        Ok(self)
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader {
            snapshot: self.db.snapshot(),
            entries: &self.entries,
        }))
    }
}

struct FjallReader<'a> {
    snapshot: Snapshot,
    entries: &'a Keyspace,
}

impl Reader for FjallReader<'_> {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match self.snapshot.get(self.entries, key)? {
            Some(value) => see(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        for entry in self.snapshot.iter(self.entries).take(limit as usize) {
            let (key, value) = entry.into_inner()?;
            see(&key, &value)?;
        }
        Ok(())
    }
}
