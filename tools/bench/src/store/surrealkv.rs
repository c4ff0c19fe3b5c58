//! SurrealKV: a log-structured merge tree whose commits are futures.

use std::path::Path;

use surrealkv::{
    CompactRangeOptions, CompressionType, Error, LSMIterator, Mode, Options, Transaction, Tree,
    TreeBuilder,
};
use tokio::runtime::Runtime;

use super::interface::{Durability, Reader, See, Settings, Store, System};
use crate::data::Key;
use crate::fallible::Fallible;

pub const SURREALKV: System = System {
    name: "SurrealKV",
    version: "surrealkv 1.2.0",
    configuration: "no versions kept, blocks of 8 KiB (its 64 KiB make point reads slower), its log written ahead with zeros, no compression in level 0 and Snappy below; commits awaited on a runtime of its own; `Sync`: `Immediate`; `Batched`: `Eventual`, and a flush of the log every 10 ms",
    has_log: true,
    has_memtable: true,
    has_budget: true,
    flushes_itself: false,
    is_batched_only: false,
    has_tickets: false,
    open,
};

fn open(path: &Path, settings: &Settings) -> Fallible<Box<dyn Store>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let options = Options::new()
        .with_path(path.to_owned())
        .with_max_memtable_size(settings.memtable_bytes)
        .with_block_cache_capacity(settings.cache_bytes as u64)
        .with_block_size(8 << 10)
        .with_wal_preallocation(true)
        .with_compression_per_level(vec![
            CompressionType::None,
            CompressionType::SnappyCompression,
        ]);
    let tree = {
        let _inside = runtime.enter();
        TreeBuilder::with_options(options).build()?
    };
    Ok(Box::new(SurrealKv {
        tree,
        runtime,
        durability: match settings.durability {
            Durability::Sync => surrealkv::Durability::Immediate,
            Durability::Batched => surrealkv::Durability::Eventual,
        },
    }))
}

struct SurrealKv {
    tree: Tree,
    runtime: Runtime,
    durability: surrealkv::Durability,
}

impl SurrealKv {
    /// Its transactions conflict over a key that two of them only write: then it is done again, as
    /// whoever uses it has to.
    fn commit(&self, writes: impl Fn(&mut Transaction) -> surrealkv::Result<()>) -> Fallible<()> {
        loop {
            let transaction = self.tree.begin_with_mode(Mode::WriteOnly)?;
            let mut transaction = transaction.with_durability(self.durability);
            writes(&mut transaction)?;
            match self.runtime.block_on(transaction.commit()) {
                Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                result => return Ok(result?),
            }
        }
    }
}

impl Store for SurrealKv {
    fn put(&self, key: &[u8], value: &[u8]) -> Fallible<()> {
        self.commit(|transaction| transaction.set(key, value))
    }

    fn put_all(&self, entries: &[(Key, Vec<u8>)]) -> Fallible<()> {
        self.commit(|transaction| {
            entries
                .iter()
                .try_for_each(|(key, value)| transaction.set(&key[..], &value[..]))
        })
    }

    fn sync(&self) -> Fallible<()> {
        Ok(self.tree.flush_wal(true)?)
    }

    fn settle(self: Box<Self>) -> Fallible<Box<dyn Store>> {
        let options = CompactRangeOptions {
            flush_memtable: true,
            ..CompactRangeOptions::default()
        };
        let inside = self.runtime.enter();
        self.tree.compact_range(None, None, &options)?;
        drop(inside);
        Ok(self)
    }

    fn reader(&self) -> Fallible<Box<dyn Reader + '_>> {
        Ok(Box::new(self.tree.begin_with_mode(Mode::ReadOnly)?))
    }
}

impl Drop for SurrealKv {
    fn drop(&mut self) {
        // Who drops it cannot be told, and what it held is checked where it matters.
        let _ = self.runtime.block_on(self.tree.close());
    }
}

impl Reader for Transaction {
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Fallible<()>) -> Fallible<bool> {
        match Transaction::get(self, key)? {
            Some(value) => see(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&self, limit: u64, see: &mut See<'_>) -> Fallible<()> {
        let mut entries = self.iter()?;
        entries.seek_first()?;
        for _ in 0..limit {
            if !entries.valid() {
                break;
            }
            see(entries.key().user_key(), &entries.value_ref()?)?;
            entries.next()?;
        }
        Ok(())
    }
}
