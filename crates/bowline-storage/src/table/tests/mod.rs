//! Tests of whole tables. The parts of the file have their own, beside them.

mod damage;
mod model;
mod shapes;

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::counters::Counters;
use crate::error::Result;
use crate::frame::Compression;
use crate::types::{EntryKind, Revision, TreeId};
use crate::value::Value;
use crate::vfs::{MemoryVfs, Vfs};

/// An entry to write: key, revision, kind, value.
type Entry = (Vec<u8>, Revision, EntryKind, Vec<u8>);

/// A disk, a cache and counters for tables.
struct Bench {
    vfs: Arc<dyn Vfs>,
    cache: Arc<PageCache>,
    counters: Arc<Counters>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_cache(1 << 20)
    }

    fn with_cache(budget_bytes: u64) -> Bench {
        let counters = Arc::<Counters>::default();
        let cache = Arc::new(PageCache::new(budget_bytes, counters.clone()));
        Bench {
            vfs: Arc::new(MemoryVfs::default()),
            cache,
            counters,
        }
    }

    fn path(file_id: u64) -> PathBuf {
        PathBuf::from(format!("{file_id}.table"))
    }

    fn writer(&self, file_id: u64, options: &TableOptions) -> TableWriter {
        TableWriter::create(&self.vfs, Self::path(file_id), file_id, TreeId(3), options).unwrap()
    }

    fn write(&self, file_id: u64, options: &TableOptions, entries: &[Entry]) -> TableMeta {
        let mut writer = self.writer(file_id, options);
        for (key, revision, kind, value) in entries {
            writer.add(key, *revision, *kind, value).unwrap();
        }
        writer.finish().unwrap()
    }

    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let path = Self::path(meta.file_id);
        Table::open(
            &self.vfs,
            path,
            meta,
            self.cache.clone(),
            self.counters.clone(),
        )
        .map(Arc::new)
    }

    fn table(&self, file_id: u64, options: &TableOptions, entries: &[Entry]) -> Arc<Table> {
        self.open(&self.write(file_id, options, entries)).unwrap()
    }
}

fn put(key: impl Into<Vec<u8>>, revision: Revision, value: impl Into<Vec<u8>>) -> Entry {
    (key.into(), revision, EntryKind::Put, value.into())
}

/// Pages so small that every table has many, and every key that has versions spans some.
fn tiny() -> TableOptions {
    TableOptions {
        page_bytes: 100,
        restart_interval: 3,
        ..TableOptions::default()
    }
}

/// The value where a cursor stands, to keep.
fn value_owned(cursor: &TableReadCursor) -> Value {
    let mut value = Value::EMPTY;
    cursor.slice_into(0..cursor.value().len(), &mut value);
    value
}

/// Everything a version cursor shows from where it is.
fn rest_of(mut cursor: TableVersionCursor) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while cursor.valid() {
        let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
        entries.push((key, cursor.revision(), cursor.kind(), value));
        cursor.next()?;
    }
    Ok(entries)
}

fn all_of(table: &Arc<Table>, use_cache: bool) -> Result<Vec<Entry>> {
    let mut cursor = table.version_cursor(use_cache);
    cursor.seek_first()?;
    rest_of(cursor)
}
