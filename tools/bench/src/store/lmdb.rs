//! LMDB, through heed: a copy-on-write B-tree in a map of memory.
#![allow(
    unsafe_code,
    reason = "a map of a file is unsafe to open: somebody else may change it"
)]

use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{
    CommitOrAbort, CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls,
};

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const LMDB: System = System {
    name: "LMDB",
    version: "heed 0.23.1 (lmdb-master-sys 0.2.6)",
    configuration: "default flags (data flushed, then the meta page); a map of 64 GiB, no thread-local readers; read from a compacting copy; `Batched`: `NO_SYNC`, and a forced flush every 10 ms",
    has_log: false,
    has_memtable: false,
    has_budget: false,
    flushes_itself: false,
    is_batched_only: false,
    has_tickets: false,
    open,
};

/// The same with a map that it writes through: no copy of a page, and no call for each.
pub const LMDB_MAP: System = System {
    name: "LMDB map",
    configuration: "`Batched` only: `WRITE_MAP | MAP_ASYNC | NO_SYNC`, and a forced flush every 10 ms",
    is_batched_only: true,
    open: open_map,
    ..LMDB
};

/// Address space, not memory.
const MAP_BYTES: usize = 64 << 30;

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    let flags = match settings.durability {
        Durability::Batched => EnvFlags::NO_SYNC,
        Durability::Sync => EnvFlags::empty(),
    };
    Ok(Box::new(Lmdb::open(path, flags, MAP_BYTES)?))
}

fn open_map(path: &Path, _: &Settings) -> Fallible<Box<dyn Store>> {
    /// A file that is written through its map is made as large as the map.
    const WRITABLE_MAP_BYTES: usize = 1 << 30;
    let flags = EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC | EnvFlags::NO_SYNC;
    Ok(Box::new(Lmdb::open(path, flags, WRITABLE_MAP_BYTES)?))
}

struct Lmdb {
    env: Env<WithoutTls>,
    database: Database<'static, Bytes, Bytes>,
    path: PathBuf,
    flags: EnvFlags,
    map_bytes: usize,
}

impl Lmdb {
    fn open(path: &Path, flags: EnvFlags, map_bytes: usize) -> Fallible<Lmdb> {
        std::fs::create_dir_all(path)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes);
        // SAFETY: what these flags make unsafe is a file that a power loss left half written, or a map that
        // somebody writes to by mistake; the directory is new in every run, and nobody has the map's address.
        unsafe { options.flags(flags) };
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
        Ok(Lmdb {
            env,
            database,
            path: path.to_owned(),
            flags,
            map_bytes,
        })
    }
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

    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
        const DATA: &str = "data.mdb";
        self.sync()?;
        let copy = self.path.join("compacted");
        let mut file = std::fs::File::create_new(&copy)?;
        self.env
            .copy_to_file(&mut file, CompactionOption::Enabled)?;
        file.sync_all()?;
        let Lmdb {
            env,
            path,
            flags,
            map_bytes,
            ..
        } = *self;
        env.prepare_for_closing().wait();
        std::fs::rename(&copy, path.join(DATA))?;
        Ok(Box::new(Lmdb::open(&path, flags, map_bytes)?))
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
