//! redb: a copy-on-write B-tree in one file.

use std::path::Path;

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const REDB: System = System {
    name: "redb",
    version: "redb 4.5.0",
    configuration: "one-phase commits with checksums (its default, one flush each); cache of the row's memtable and cache together; compacted before it is read; `Batched`: commits of durability `None`, and an empty immediate one every 10 ms",
    has_log: false,
    has_memtable: false,
    has_budget: true,
    flushes_itself: false,
    is_batched_only: false,
    has_tickets: false,
    open,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    std::fs::create_dir_all(path)?;
    let db = Database::builder()
        .set_cache_size(settings.memtable_bytes + settings.cache_bytes)
        .create(path.join("redb"))?;
    // So that a reader of an empty database finds it.
    let transaction = db.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(Box::new(Redb {
        db,
        durability: match settings.durability {
            Durability::Sync => redb::Durability::Immediate,
            Durability::Batched => redb::Durability::None,
        },
    }))
}

struct Redb {
    db: Database,
    durability: redb::Durability,
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.db.begin_write()?.commit()?)
    }

    fn settle(mut self: Box<Self>) -> Fallible<Box<dyn Store>> {
        self.sync()?;
        // As long as it makes the file smaller.
        while self.db.compact()? {}
        Ok(self)
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        Ok(Box::new(self.db.begin_read()?.open_table(TABLE)?))
    }
}

impl Reader for ReadOnlyTable<&'static [u8], &'static [u8]> {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match ReadableTable::get(self, key)? {
            Some(value) => see(value.value()).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        for entry in self.iter()?.take(limit as usize) {
            let (key, value) = entry?;
            see(key.value(), value.value())?;
        }
        Ok(())
    }
}
