//! The rows of the graph store that are about its engine: memtables, compaction, the log, tables.
//! They use the crate `bowline-storage` where a database does not show the part by itself.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline::{Block, BlockId, CompactionOptions, CountersSnapshot, Db, Strategy};
use bowline_storage::counters::Counters;
use bowline_storage::log::{Log, LogOptions};
use bowline_storage::memtable::{DeferredReclaim, Memtable};
use bowline_storage::table::{PageCache, Table, TableMeta, TableOptions, TableWriter};
use bowline_storage::vfs::{OsVfs, Vfs};
use bowline_storage::{EntryKind, TreeId};
use fastrand::Rng;

use super::common::{BATCHED, Kind, Place, at_least, row};
use crate::data::{Key, key};
use crate::fallible::Fallible;
use crate::machine::RawFile;
use crate::measure::{MACHINE, Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::timing::{BATCH, run_for, run_prepared, time};

const CONTENT_BYTES: usize = 500;
/// What one flush of the log covers.
const LOG_BATCH_BYTES: usize = 1 << 20;
const LOG_ENTRY_BYTES: usize = 4 << 10;
const DISK_SEQUENTIAL: &str = "the disk's own sequential writing";

pub fn rows(place: &Place) -> Vec<Row<'_>> {
    let mut rows = memtables(place);
    rows.extend(compactions(place));
    rows.extend(logs(place));
    rows.extend(tables(place));
    rows
}

/// A directory that does not exist yet.
fn fresh(place: &Place, name: &str, counter: &Cell<u64>) -> PathBuf {
    counter.set(counter.get() + 1);
    place.directory.join(format!("{name}-{}", counter.get()))
}

fn content(number: u64) -> Vec<u8> {
    let mut content = vec![0; CONTENT_BYTES];
    crate::data::fill(number, &mut content);
    content
}

fn write_blocks(db: &Db, numbers: impl Iterator<Item = u64>) -> Fallible<u64> {
    let numbers: Vec<u64> = numbers.collect();
    for chunk in numbers.chunks(1_000) {
        db.transact(|tx| {
            chunk.iter().try_for_each(|&n| {
                let id = BlockId::from_bytes(key(n));
                tx.put_block(&Block::new(id, "block").content(content(n)))
            })
        })?;
    }
    Ok(numbers.len() as u64)
}

fn memtables(place: &Place) -> Vec<Row<'_>> {
    const FLUSHED_BLOCKS: u64 = 1_000;
    let counter = Cell::new(0);
    let flush = move |turn: Turn| {
        let db = place.open(
            &format!("flush-{}", counter.replace(counter.get() + 1)),
            BATCHED,
        )?;
        let blocks = FLUSHED_BLOCKS.min(place.scale.blocks);
        let prepare = || write_blocks(&db, 0..blocks).map(drop);
        let before = db.stats().engine.counters.flushes;
        let timed = run_prepared(at_least(turn.sample, 20), 1, prepare, |_| Ok(db.flush()?))?;
        let flushes = db.stats().engine.counters.flushes - before;
        check(flushes >= timed.operations, "nothing was flushed")?;
        Ok(Sample::time(timed))
    };
    let reset = |name, entries: u64| {
        row(
            name,
            Unit::Nanoseconds,
            Kind::Read,
            "< 1 µs",
            0.0,
            move |turn| {
                let memtable = Cell::new(None);
                let deferred_reclaim = DeferredReclaim::new();
                let prepare = || {
                    deferred_reclaim.free();
                    let mut made = Memtable::new(1, 1, (entries as usize * 400).max(1 << 20));
                    made.reclaim_with(deferred_reclaim.clone());
                    let mut writer = made.writer();
                    for n in 0..entries {
                        writer.insert(TreeId(0), &key(n), n + 1, EntryKind::Put, &[7; 100])?;
                    }
                    drop(writer);
                    check(made.entries() == entries, "entries are missing")?;
                    memtable.set(Some(made));
                    Ok(())
                };
                let timed = run_prepared(
                    turn.sample.min(Duration::from_micros(20)),
                    1,
                    prepare,
                    |_| {
                        drop(memtable.take());
                        Ok(())
                    },
                )?;
                Ok(Sample::time(timed))
            },
        )
        .bound(Bound::AtMost(1_000.0))
    };
    vec![
        row(
            "memtable flush",
            Unit::Nanoseconds,
            Kind::Batched,
            "0.75 ms",
            0.53e6,
            flush,
        )
        // The published figure is of a disk in memory.
        .bound(Bound::AtMost(5e6))
        .remark(
            "1,000 blocks of 500 bytes; tables, manifest and directory are flushed to the disk",
        ),
        reset("arena reset, 1,000 entries", 1_000.min(place.scale.blocks)),
        reset("arena reset, 100,000 entries", 10 * place.scale.blocks),
    ]
}

/// Runs of the same blocks, merged into one.
fn compactions(place: &Place) -> Vec<Row<'_>> {
    const RUNS: u64 = 4;
    let one = |name: &'static str,
               amplification,
               strategy,
               runs_max,
               (published, bound): (_, f64)| {
        let counter = Cell::new(0);
        let run = move |turn: Turn| {
            let path = fresh(place, name, &counter).with_extension("");
            let path = path.to_string_lossy().replace([' ', ',', '→'], "-");
            let options = CompactionOptions {
                strategy,
                runs_max,
                ..CompactionOptions::default()
            };
            let db = place.builder(BATCHED).compaction(options).open(&path)?;
            let mut rng = Rng::with_seed(turn.seed);
            let mut put = 0;
            let is_by_hand = runs_max > RUNS as usize;
            let before = db.stats().engine.counters;
            let mut start = Instant::now();
            for _ in 0..RUNS {
                let range = 0..place.scale.run_blocks;
                put += write_blocks(&db, range.map(|_| rng.u64(..RUNS * place.scale.run_blocks)))?;
                start = Instant::now();
                db.flush()?;
            }
            if is_by_hand {
                start = Instant::now();
                db.compact()?;
            } else {
                // The fourth run makes the level full.
                wait_for_compaction(&db, &before)?;
            }
            let elapsed = start.elapsed();
            let after = db.stats().engine;
            let counters = after.counters;
            check(
                counters.compactions > before.compactions,
                "nothing was merged",
            )?;
            let user = put as f64 * (CONTENT_BYTES + 16) as f64;
            let written = (counters.flush_bytes_written + counters.compaction_bytes_written) as f64;
            let merged = counters.compaction_bytes_read as f64;
            drop(db);
            std::fs::remove_dir_all(&path)?;
            Ok(Sample::figure(merged / elapsed.as_secs_f64())
                .also(amplification, written / user)
                .note("MB merged", merged / 1e6))
        };
        let mut told = Row::told(amplification, Unit::Times, vec![BATCHED]);
        told.remark = "table bytes written per byte put, flushes included".into();
        [
            row(name, Unit::BytesPerSecond, Kind::Batched, published, 0.0, run)
                .long()
                .bound(Bound::AtLeast(bound))
                .remark(format!(
                    "{RUNS} runs of {} blocks that overlap; bytes read, per second until the merge is durable",
                    place.scale.run_blocks
                )),
            told,
        ]
    };
    let rows = [
        one(
            "compaction L0→L1",
            "compaction L0→L1, write amplification",
            Strategy::Leveled,
            RUNS as usize,
            ("87 MB/s, write amp 2.3", 3.0 * 87e6),
        ),
        one(
            "compaction, size-tiered",
            "compaction, size-tiered, write amplification",
            Strategy::Tiered,
            RUNS as usize,
            ("94 MB/s, write amp 2.1", 3.0 * 94e6),
        ),
        one(
            "compaction, manual",
            "compaction, manual, write amplification",
            Strategy::LazyLeveling,
            usize::MAX,
            ("102 MB/s, write amp 1.0", 3.0 * 102e6),
        ),
    ];
    rows.into_iter().flatten().collect()
}

fn wait_for_compaction(db: &Db, before: &CountersSnapshot) -> Fallible<()> {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let start = Instant::now();
    while db.stats().engine.counters.compactions == before.compactions {
        check(
            start.elapsed() < TIMEOUT,
            "nothing was merged in two minutes",
        )?;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn open_log(place: &Place, directory: PathBuf, counters: &Arc<Counters>) -> Fallible<Log> {
    let options = LogOptions {
        segment_bytes: place.scale.log_segment_bytes,
        first_segment_bytes: place.scale.log_segment_bytes,
        ..LogOptions::default()
    };
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
    let counters = counters.clone();
    Ok(Log::open(
        vfs,
        directory,
        options,
        counters,
        0,
        false,
        &mut |_, _| Ok(()),
    )?)
}

/// Entries whose content does not compress, as many as one flush covers.
fn log_batch() -> Vec<Vec<u8>> {
    let mut rng = Rng::with_seed(crate::data::SEED);
    (0..LOG_BATCH_BYTES / LOG_ENTRY_BYTES)
        .map(|_| {
            let mut entry = vec![0; LOG_ENTRY_BYTES];
            rng.fill(&mut entry);
            entry
        })
        .collect()
}

/// A log that writes as a store does that has run for a while: its segments were used before, and are used again.
struct SequentialLog {
    log: Log,
    counters: Arc<Counters>,
    batch: Vec<Vec<u8>>,
    rotations: u64,
}

impl SequentialLog {
    /// One that has rotated several times.
    fn warm(place: &Place) -> Fallible<SequentialLog> {
        const ROTATIONS: u64 = 4;
        let counters = Arc::new(Counters::default());
        let directory = place.directory.join("log-sequential");
        let mut warm = SequentialLog {
            log: open_log(place, directory, &counters)?,
            counters,
            batch: log_batch(),
            rotations: 0,
        };
        while warm.rotations <= ROTATIONS {
            warm.write()?;
        }
        Ok(warm)
    }

    /// Writes and flushes a batch.
    fn write(&mut self) -> Fallible<()> {
        let log = &mut self.log;
        let segments = log.segment_count();
        for entry in &self.batch {
            log.stage(entry);
        }
        log.write()?;
        log.sync()?;
        self.rotations += u64::from(log.segment_count() > segments);
        // As a store does that has flushed its tables: segments are used again.
        if log.segment_count() > 2 {
            let behind = 2 * self.batch.len() as u64;
            log.release_prefix(log.durable_index().saturating_sub(behind))?;
        }
        Ok(())
    }
}

fn logs(place: &Place) -> Vec<Row<'_>> {
    let mut raw = None;
    let disk = move |turn: Turn| {
        let raw = match &mut raw {
            Some(raw) => raw,
            none => none.insert(RawFile::create(
                &place.directory.join("sequential"),
                place.scale.log_bytes,
            )?),
        };
        let timed = raw.flush_loop(LOG_BATCH_BYTES, turn.sample)?;
        let bytes = timed.operations as f64 * LOG_BATCH_BYTES as f64;
        Ok(Sample::figure(bytes / timed.elapsed.as_secs_f64()))
    };
    let mut sequential_log = None;
    let sequential = move |turn: Turn| {
        let log = match &mut sequential_log {
            Some(log) => log,
            none => none.insert(SequentialLog::warm(place)?),
        };
        let before = log.counters.snapshot().log_syncs;
        let timed = run_for(turn.sample, 1, || log.write())?;
        let syncs = log.counters.snapshot().log_syncs - before;
        check(syncs >= timed.operations, "the log was not flushed")?;
        let bytes = timed.operations as f64 * LOG_BATCH_BYTES as f64;
        Ok(Sample::figure(bytes / timed.elapsed.as_secs_f64()))
    };
    let image = std::cell::OnceCell::<PathBuf>::new();
    let recovery = move |_: Turn| {
        let batches = place.scale.log_bytes / LOG_BATCH_BYTES as u64;
        let counters = Arc::new(Counters::default());
        if image.get().is_none() {
            let directory = place.directory.join("log-recovered");
            let mut log = open_log(place, directory.clone(), &counters)?;
            let batch = log_batch();
            for _ in 0..batches {
                for entry in &batch {
                    log.stage(entry);
                }
                log.write()?;
            }
            log.sync()?;
            log.close()?;
            let _ = image.set(directory);
        }
        let directory = image.get().ok_or("not made")?.clone();
        let mut seen = 0;
        let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
        let options = LogOptions::default();
        let (elapsed, log) = time(|| {
            let mut visit = |_, entry: &[u8]| {
                seen += entry.len();
                Ok(())
            };
            Ok(Log::open(
                vfs, directory, options, counters, 0, true, &mut visit,
            )?)
        })?;
        log.close()?;
        let bytes = batches as usize * LOG_BATCH_BYTES;
        check(seen == bytes, "entries are missing from the log")?;
        Ok(Sample::figure(bytes as f64 / elapsed.as_secs_f64()))
    };
    let rotations = Cell::new(0);
    let rotation = move |turn: Turn| {
        const SEGMENT_BYTES: u64 = 1 << 20;
        let directory = fresh(place, "rotation", &rotations);
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            ..LogOptions::default()
        };
        let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
        let counters = Arc::new(Counters::default());
        let mut log = Log::open(
            vfs,
            directory.clone(),
            options,
            counters,
            0,
            false,
            &mut |_, _| Ok(()),
        )?;
        let entry = vec![7; LOG_ENTRY_BYTES];
        let (mut rotating, mut count) = (Duration::ZERO, 0u32);
        let start = Instant::now();
        while start.elapsed() < turn.sample || count == 0 {
            let segments = log.segment_count();
            log.stage(&entry);
            let (elapsed, ()) = time(|| Ok(log.write()?))?;
            if log.segment_count() > segments {
                rotating += elapsed;
                count += 1;
                log.release_prefix(log.durable_index())?;
            }
            // As every commit of `Sync` does. The next segment is prepared meanwhile.
            log.sync()?;
        }
        log.close()?;
        std::fs::remove_dir_all(&directory)?;
        Ok(Sample::figure(
            rotating.as_nanos() as f64 / f64::from(count),
        ))
    };
    vec![
        Row::new(DISK_SEQUENTIAL, Unit::BytesPerSecond, vec![MACHINE], disk)
            .remark("1 MiB and `fdatasync`, on zeros written before"),
        row(
            "log sequential write",
            Unit::BytesPerSecond,
            Kind::Flushed,
            "487 MB/s",
            0.0,
            sequential,
        )
        .over(
            DISK_SEQUENTIAL,
            1.0,
            "of the disk's own",
            Some(Bound::AtLeast(0.85)),
        )
        .remark("256 entries of 4 KiB for each flush; after four rotations"),
        row(
            "log recovery",
            Unit::BytesPerSecond,
            Kind::Flushed,
            "892 MB/s",
            0.0,
            recovery,
        )
        .long()
        .bound(Bound::AtLeast(1e9))
        .remark(format!(
            "{} MiB, in the page cache",
            place.scale.log_bytes >> 20
        )),
        row(
            "segment rotation",
            Unit::Nanoseconds,
            Kind::Flushed,
            "127 µs",
            0.0,
            rotation,
        )
        .bound(Bound::AtMost(50_000.0))
        .remark("the write that begins a segment, each write before it being flushed"),
    ]
}

/// A table of blocks, and what opens it.
struct Built {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    meta: TableMeta,
}

/// Numbers in the order of their keys.
fn in_order(count: u64) -> Vec<Key> {
    let mut keys: Vec<Key> = (0..count).map(key).collect();
    keys.sort_unstable();
    keys
}

fn build(path: PathBuf, keys: &[Key]) -> Fallible<Built> {
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&vfs, path.clone(), 1, TreeId(0), &options)?;
    for key in keys {
        let number = crate::data::number_of(key).unwrap_or_default();
        writer.add(key, 1, EntryKind::Put, &content(number))?;
    }
    let meta = writer.finish()?;
    Ok(Built { vfs, path, meta })
}

impl Built {
    fn open(&self) -> Fallible<Arc<Table>> {
        let counters = Arc::new(Counters::default());
        let cache = Arc::new(PageCache::new(256 << 20, counters.clone()));
        let table = Table::open(&self.vfs, self.path.clone(), &self.meta, cache, counters)?;
        Ok(Arc::new(table))
    }
}

fn tables(place: &Place) -> Vec<Row<'_>> {
    let keys = std::rc::Rc::new(in_order(place.scale.blocks));
    let built = std::rc::Rc::new(std::cell::OnceCell::<Built>::new());
    let counter = Cell::new(0);
    let building = {
        let keys = keys.clone();
        move |turn: Turn| {
            let timed = run_for(turn.sample, 1, || {
                let path = fresh(place, "table", &counter);
                let built = build(path, &keys)?;
                check(
                    built.meta.entries == keys.len() as u64,
                    "entries are missing",
                )?;
                Ok(std::fs::remove_file(built.path)?)
            })?;
            Ok(Sample::time(timed))
        }
    };
    let with_table =
        |name, published, bound: f64, operation: fn(&Built, &[Key], Turn) -> Fallible<Sample>| {
            let (keys, built) = (keys.clone(), built.clone());
            row(
                name,
                Unit::Nanoseconds,
                Kind::Read,
                published,
                0.0,
                move |turn| {
                    if built.get().is_none() {
                        let _ = built.set(build(place.directory.join("table"), &keys)?);
                    }
                    operation(built.get().ok_or("not made")?, &keys, turn)
                },
            )
            .bound(Bound::AtMost(bound))
        };
    vec![
        row(
            "table build 10 K blocks",
            Unit::Nanoseconds,
            Kind::Flushed,
            "89 ms",
            0.0,
            building,
        )
        .bound(Bound::AtMost(89e6))
        .remark("500 bytes each, flushed to the disk"),
        with_table(
            "table scan 10 K blocks",
            "67 ms",
            67e6,
            |built, keys, turn| {
                let table = built.open()?;
                let timed = run_for(turn.sample, 1, || {
                    let mut cursor = table.read_cursor(1);
                    cursor.seek_first()?;
                    let mut seen = 0;
                    while cursor.valid() {
                        check(cursor.key() == keys[seen], "a scan out of order")?;
                        check(cursor.value().len() == CONTENT_BYTES, "another value")?;
                        seen += 1;
                        cursor.next()?;
                    }
                    check(seen == keys.len(), "a scan ended early")
                })?;
                Ok(Sample::time(timed))
            },
        ),
        with_table("table load index", "1.2 ms", 1.2e6, |built, _, turn| {
            let timed = run_for(turn.sample, 1, || built.open().map(drop))?;
            Ok(Sample::time(timed))
        })
        .remark("opening the table: footer, properties, filter and index"),
        with_table(
            "table get, binary search and page",
            "34 ns the search alone",
            1_000.0,
            |built, keys, turn| {
                let table = built.open()?;
                let mut get = |key: &Key| {
                    let found = table.get(key, 1)?.ok_or("a key is missing")?;
                    check(found.value.len() == CONTENT_BYTES, "another value")
                };
                keys.iter().try_for_each(&mut get)?;
                let mut rng = Rng::with_seed(turn.seed);
                let timed = run_for(turn.sample, BATCH, || get(&keys[rng.usize(..keys.len())]))?;
                Ok(Sample::time(timed))
            },
        )
        .remark("its parts have no door of their own; pages cached"),
        with_table(
            "table filter check",
            "12 ns at 0.1 %",
            12.0,
            |built, keys, turn| {
                let table = built.open()?;
                let mut rng = Rng::with_seed(turn.seed);
                let mut found = 0u64;
                let timed = run_for(turn.sample, BATCH, || {
                    let number = keys.len() as u64 + rng.u64(..1 << 40);
                    found += u64::from(table.get(&key(number), 1)?.is_some());
                    Ok(())
                })?;
                check(found == 0, "an absent key was found")?;
                Ok(Sample::time(timed))
            },
        )
        .remark("a look-up of an absent key, within the table's bounds or not"),
    ]
}
