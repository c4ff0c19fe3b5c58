//! RocksDB, through rust-rocksdb: the log-structured merge tree that the others are compared with.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, Options, ReadOptions,
    SnapshotWithThreadMode, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::interface::{Durability, Reader, See, SeeAt, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const ROCKSDB: System = System {
    name: "RocksDB",
    version: "rust-rocksdb 0.54.0 (rust-librocksdb-sys 0.49.0+11.12.0)",
    configuration: "leveled with dynamic levels, LZ4, filters of 10 bits per key, hash index in data blocks, HyperClock cache, log files recycled and rotated before each sample of durable commits until one is used again, as many background jobs as cores; recovers without flushing; `Sync`: each write synced; `Batched`: not, and the log synced every 10 ms",
    has_log: true,
    has_memtable: true,
    has_budget: true,
    flushes_itself: false,
    is_batched_only: false,
    has_tickets: false,
    open,
};

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as i32;
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_hyper_clock_cache(settings.cache_bytes, 0));
    blocks.set_bloom_filter(10.0, false);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.increase_parallelism(cores);
    options.set_write_buffer_size(settings.memtable_bytes);
    options.set_max_write_buffer_number(4);
    options.set_recycle_log_file_num(4);
    options.set_avoid_flush_during_recovery(true);
    let db = DB::open(&options, path)?;
    let mut writes = WriteOptions::default();
    writes.set_sync(settings.durability == Durability::Sync);
    Ok(Box::new(RocksDb {
        db,
        writes,
        path: path.to_owned(),
        logs: Mutex::default(),
    }))
}

struct RocksDb {
    db: DB,
    writes: WriteOptions,
    path: PathBuf,
    /// The inodes of the log's files so far. A file that is used again has another name and the same inode.
    logs: Mutex<HashSet<u64>>,
}

impl RocksDb {
    /// The inode of the file that the log is written to.
    fn current_log(&self) -> Fallible<u64> {
        let mut newest = None;
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                newest = newest.max(Some((number, entry.metadata()?.ino())));
            }
        }
        Ok(newest.ok_or("RocksDB has no log")?.1)
    }
}

impl Store for RocksDb {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        Ok(self.db.put_opt(key, value, &self.writes)?)
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(&batch, &self.writes)?)
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
        self.db.flush()?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        self.db
            .wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(self)
    }

    /// It cuts a log off where its records end when it closes it, so that each is filled before: with more
    /// than a sample writes.
    fn recycle_log(&self) -> Fallible<()> {
        const FILLING_KEY: &[u8] = b"filling of the log";
        const FILLING_BYTES: usize = 1 << 20;
        const FILLINGS: usize = 32;
        const ROTATIONS_MAX: usize = 16;
        let filling = vec![0x5a; FILLING_BYTES];
        for _ in 0..ROTATIONS_MAX {
            let current = self.current_log()?;
            self.logs
                .lock()
                .map_err(|_| "a lock is poisoned")?
                .insert(current);
            let mut unflushed = WriteOptions::default();
            unflushed.set_sync(false);
            for _ in 0..FILLINGS {
                self.db.put_opt(FILLING_KEY, &filling, &unflushed)?;
            }
            self.db.delete_opt(FILLING_KEY, &unflushed)?;
            self.db.flush_wal(true)?;
            self.db.flush()?;
            self.db
                .wait_for_compact(&WaitForCompactOptions::default())?;
            let logs = self.logs.lock().map_err(|_| "a lock is poisoned")?;
            if logs.contains(&self.current_log()?) {
                return Ok(());
            }
        }
        Err("RocksDB uses none of its log's files again".into())
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        let snapshot = self.db.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&snapshot);
        Ok(Box::new(RocksDbReader {
            db: &self.db,
            options,
            snapshot,
        }))
    }
}

struct RocksDbReader<'a> {
    db: &'a DB,
    /// Reads at the snapshot. Made once: making them costs more than a read of a cached key.
    options: ReadOptions,
    snapshot: SnapshotWithThreadMode<'a, DB>,
}

impl Reader for RocksDbReader<'_> {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match self.db.get_pinned_opt(key, &self.options)? {
            Some(value) => see(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn get_many(&self, keys: &[Key], see: &mut SeeAt<'_>) -> Fallible<()> {
        let found = self
            .db
            .batched_multi_get_pinned_opt(keys, false, &self.options);
        for (position, value) in found.into_iter().enumerate() {
            see(position, &value?.ok_or("one of several keys is missing")?)?;
        }
        Ok(())
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        let mut entries = self.snapshot.raw_iterator();
        entries.seek_to_first();
        for _ in 0..limit {
            let Some((key, value)) = entries.item() else {
                break;
            };
            see(key, value)?;
            entries.next();
        }
        Ok(entries.status()?)
    }
}
