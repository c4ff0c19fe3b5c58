//! What the rows work on: keys and values computed from numbers, and one database for each kind
//! of row, made when the first of them asks for it.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::{Block, BlockId, Db, Durability, Edge, Snapshot};
use fastrand::Rng;

use crate::report::Fallible;

pub const SEED: u64 = 0xDEAD_BEEF_CAFE_BABE;
pub const KEY_BYTES: usize = 16;
pub const VALUE_BYTES: usize = 100;
pub const RAW_BYTES: usize = 150;
pub const RAW_FILE_BYTES: u64 = 64 << 20;
/// How long `Batched` may wait with a flush, here.
pub const EVERY: Duration = Duration::from_millis(10);
/// Holds all that the rows from memory need, so that they never read a table.
pub const LARGE_MEMTABLE_BYTES: usize = 1 << 30;
pub const DEGREE: u64 = 10;

/// How much data the rows work on.
pub struct Scale {
    pub small: u64,
    pub large: u64,
    pub versions: u64,
    pub blocks: u64,
}

pub const FULL: Scale = Scale {
    small: 100_000,
    large: 1_000_000,
    versions: 100_000,
    blocks: 10_000,
};
pub const SMOKE: Scale = Scale {
    small: 500,
    large: 1_000,
    versions: 300,
    blocks: 100,
};

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): spreads numbers.
pub fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(SEED);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The key of a number: in random order, and computed, so that a read of it costs no memory.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&spread(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The value of a number: the number, then bytes that do not compress.
pub fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_be_bytes());
    for (at, chunk) in value[8..].chunks_mut(8).enumerate() {
        let noise = spread(number.wrapping_mul(31).wrapping_add(at as u64)).to_be_bytes();
        chunk.copy_from_slice(&noise[..chunk.len()]);
    }
    value
}

pub fn is_value_of(value: &[u8], number: u64) -> bool {
    value.len() == VALUE_BYTES && value.starts_with(&number.to_be_bytes())
}

pub fn block_id(number: u64) -> BlockId {
    BlockId::from_bytes(key(number))
}

/// Makes each database at its first use.
pub struct Data {
    pub scale: Scale,
    pub directory: PathBuf,
    raw: OnceCell<RawFile>,
    /// `Sync`, default settings.
    durable: OnceCell<Db>,
    /// `Batched`, never written to once filled.
    small: OnceCell<Db>,
    large: OnceCell<Db>,
    /// `Batched`, written to by its rows.
    written: OnceCell<Db>,
    tables: OnceCell<Db>,
    versions: OnceCell<Db>,
    edges: OnceCell<Db>,
    hops: OnceCell<Db>,
}

/// Like the standard library's unstable `get_or_try_init`.
pub fn made<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Fallible<T>) -> Fallible<&T> {
    if cell.get().is_none() {
        let _ = cell.set(make()?);
    }
    cell.get().ok_or_else(|| "not made".into())
}

impl Data {
    pub fn new(scale: Scale, directory: PathBuf) -> Data {
        Data {
            scale,
            directory,
            raw: OnceCell::new(),
            durable: OnceCell::new(),
            small: OnceCell::new(),
            large: OnceCell::new(),
            written: OnceCell::new(),
            tables: OnceCell::new(),
            versions: OnceCell::new(),
            edges: OnceCell::new(),
            hops: OnceCell::new(),
        }
    }

    fn in_memtable(&self, name: &str) -> Fallible<Db> {
        let builder = Db::builder().durability(Durability::Batched { every: EVERY });
        Ok(builder
            .memtable_bytes(LARGE_MEMTABLE_BYTES)
            .open(self.directory.join(name))?)
    }

    pub fn raw(&self) -> Fallible<&RawFile> {
        made(&self.raw, || RawFile::create(&self.directory.join("raw")))
    }

    pub fn durable(&self) -> Fallible<&Db> {
        made(&self.durable, || {
            let db = Db::open(self.directory.join("durable"))?;
            fill(&db, self.scale.small)?;
            Ok(db)
        })
    }

    pub fn small(&self) -> Fallible<&Db> {
        made(&self.small, || {
            let db = self.in_memtable("small")?;
            fill(&db, self.scale.small)?;
            Ok(db)
        })
    }

    pub fn large(&self) -> Fallible<&Db> {
        made(&self.large, || {
            let db = self.in_memtable("large")?;
            fill(&db, self.scale.large)?;
            Ok(db)
        })
    }

    /// Its keys are in the memtable, with room for a sample's worth of versions.
    pub fn written(&self) -> Fallible<&Db> {
        let db = made(&self.written, || {
            let db = self.in_memtable("written")?;
            fill(&db, self.scale.small)?;
            Ok(db)
        })?;
        if db.stats().engine.memtable_bytes > LARGE_MEMTABLE_BYTES as u64 / 4 {
            db.compact_tables()?;
            fill(db, self.scale.small)?;
        }
        Ok(db)
    }

    /// All in one run of tables, their pages in the cache.
    pub fn tables(&self) -> Fallible<&Db> {
        made(&self.tables, || {
            let db = Db::builder()
                .durability(Durability::Batched { every: EVERY })
                .cache_bytes(1 << 30)
                .open(self.directory.join("tables"))?;
            fill(&db, self.scale.large)?;
            db.compact_tables()?;
            let snapshot = db.snapshot();
            for number in 0..self.scale.large {
                get(&snapshot, number)?;
            }
            let entries: u64 = db.stats().engine.levels[0].iter().map(|l| l.entries).sum();
            check(entries == self.scale.large, "not every entry is in a table")?;
            Ok(db)
        })
    }

    /// One key for each count of versions; key `n` has `n` of them.
    pub fn versions(&self) -> Fallible<&Db> {
        made(&self.versions, || {
            let db = self.in_memtable("versions")?;
            for count in [1, self.scale.versions / 1_000, self.scale.versions] {
                for _ in 0..count.max(1) {
                    db.put(key(count), value(count))?;
                }
            }
            Ok(db)
        })
    }

    fn with_blocks(&self, name: &str) -> Fallible<Db> {
        let db = self.in_memtable(name)?;
        db.transact(|tx| {
            (0..self.scale.blocks).try_for_each(|n| tx.put_block(&Block::new(block_id(n), "block")))
        })?;
        Ok(db)
    }

    pub fn edges(&self) -> Fallible<&Db> {
        made(&self.edges, || self.with_blocks("edges"))
    }

    pub fn hops(&self) -> Fallible<&Db> {
        made(&self.hops, || {
            let db = self.with_blocks("hops")?;
            for round in 0..DEGREE {
                db.transact(|tx| {
                    (0..self.scale.blocks)
                        .map(|n| round * self.scale.blocks + n)
                        .try_for_each(|n| tx.put_edge(&edge(n, self.scale.blocks)))
                })?;
            }
            Ok(db)
        })
    }
}

/// The `n`-th of a list of different edges that gives the blocks one after the other one edge.
pub fn edge(n: u64, blocks: u64) -> Edge {
    let (source, round) = (n % blocks, n / blocks);
    let target = (source + 1 + round) % blocks;
    Edge::new(block_id(source), "next", block_id(target))
}

/// Writes the keys `0..count`, a thousand to a transaction.
pub fn fill(db: &Db, count: u64) -> Fallible<()> {
    for start in (0..count).step_by(1_000) {
        db.transact(|tx| {
            (start..count.min(start + 1_000)).try_for_each(|n| tx.put(key(n), value(n)))
        })?;
    }
    Ok(())
}

pub fn check(holds: bool, what: &str) -> Fallible<()> {
    if holds {
        Ok(())
    } else {
        Err(what.to_owned().into())
    }
}

/// One cache line that says where to go next.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub usize);

/// Lines that lead through all of `bytes` in random order, in one circle (Sattolo's algorithm).
pub fn circle(bytes: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = (0..bytes / size_of::<Line>()).map(Line).collect();
    let mut rng = Rng::with_seed(SEED);
    for at in (1..lines.len()).rev() {
        lines.swap(at, rng.usize(..at));
    }
    lines
}

/// A file written with zeros and synced, to be overwritten from start to end, round and round.
pub struct RawFile {
    pub file: File,
}

impl RawFile {
    fn create(path: &Path) -> Fallible<RawFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..RAW_FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        Ok(RawFile { file })
    }
}

/// Reads a key and checks its value.
pub fn get(snapshot: &Snapshot, number: u64) -> Fallible<()> {
    let found = snapshot.get(key(number))?;
    let is_right = found.is_some_and(|value| is_value_of(&value, number));
    check(is_right, "a read gave no or another value")
}
