//! RocksDB, through rust-rocksdb: the log-structured merge tree that the others are compared with.

use std::path::Path;

use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, Options, ReadOptions,
    SnapshotWithThreadMode, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const ROCKSDB: System = System {
    name: "RocksDB",
    version: "rust-rocksdb 0.54.0 (rust-librocksdb-sys 0.49.0+11.12.0)",
    configuration: "leveled with dynamic levels, LZ4, filters of 10 bits per key, hash index in data blocks, HyperClock cache, filter of the memtable, log files recycled, as many background jobs as cores; recovers without flushing; `Sync`: each write synced; `Batched`: not, and the log synced every 10 ms",
    has_log: true,
    has_memtable: true,
    has_budget: true,
    flushes_itself: false,
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
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_memtable_whole_key_filtering(true);
    options.set_recycle_log_file_num(4);
    options.set_avoid_flush_during_recovery(true);
    let db = DB::open(&options, path)?;
    let mut writes = WriteOptions::default();
    writes.set_sync(settings.durability == Durability::Sync);
    Ok(Box::new(RocksDb { db, writes }))
}

struct RocksDb {
    db: DB,
    writes: WriteOptions,
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

    fn settle(&self) -> Fallible<()> {
        self.db.flush()?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(self
            .db
            .wait_for_compact(&WaitForCompactOptions::default())?)
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
