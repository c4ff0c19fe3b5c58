//! LMDB, through heed: a copy-on-write B-tree in a map of memory.
#![allow(
    unsafe_code,
    reason = "a map of a file is unsafe to open: somebody else may change it"
)]

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const LMDB: System = System {
    name: "LMDB",
    version: "heed 0.23.1 (lmdb-master-sys 0.2.6)",
    configuration: "default flags (data flushed, then the meta page); a map of 64 GiB, no thread-local readers; `Batched`: `NO_SYNC`, and a forced flush every 10 ms",
    has_log: false,
    has_memtable: false,
    has_budget: false,
    flushes_itself: false,
    open,
};

/// Address space, not memory.
const MAP_BYTES: usize = 64 << 30;

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    std::fs::create_dir_all(path)?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES);
    if settings.durability == Durability::Batched {
        // SAFETY: what `NO_SYNC` makes unsafe is a file that a power loss left half written; the
        // directory is new in every run.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the directory is of this process alone, and nobody changes its files but LMDB.
    let env = unsafe { options.open(path)? };
    let transaction = env.write_txn()?;
    let database = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            let database = opener.create_database::<Bytes, Bytes>(transaction, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
        })?
        .commit()
        .ok_or("no unnamed database")?;
    Ok(Box::new(Lmdb { env, database }))
}

struct Lmdb {
    env: Env<WithoutTls>,
    database: Database<'static, Bytes, Bytes>,
}

impl Store for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        let mut transaction = self.env.write_txn()?;
        self.database.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in entries {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Fallible<()> {
        self.sync()
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        Ok(Box::new(LmdbReader {
            transaction: self.env.read_txn()?,
            database: self.database,
        }))
    }
}

struct LmdbReader<'a> {
    transaction: RoTxn<'a, WithoutTls>,
    database: Database<'static, Bytes, Bytes>,
}

impl Reader for LmdbReader<'_> {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match self.database.get(&self.transaction, key)? {
            Some(value) => see(value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        for entry in self.database.iter(&self.transaction)?.take(limit as usize) {
            let (key, value) = entry?;
            see(key, value)?;
        }
        Ok(())
    }
}
