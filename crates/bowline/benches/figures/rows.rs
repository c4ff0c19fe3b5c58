//! The rows: what each measures, how it checks that it did it, what it is compared with.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::{Db, Direction, Edge};
use fastrand::Rng;

use crate::data::{
    DEGREE, Data, KEY_BYTES, RAW_BYTES, RAW_FILE_BYTES, RawFile, SEED, Scale, block_id, check,
    circle, edge, get, is_value_of, key, made, value,
};
use crate::report::{Fallible, Ratio, Row, Sample, Unit, run_for, run_on};

/// Reads per look at the clock.
const BATCH: u64 = 256;

const RAW: &str = "raw `pwrite` + `fdatasync` loop (F)";
const COMMIT_1: &str = "durable commit, 1 thread";
const GET_SMALL: &str = "get, memtable, 100 K keys, 1 thread";
const GET_LARGE: &str = "get, memtable, 1 M keys, 1 thread";
const VERSIONS_1: &str = "newest of 1 version";

/// All of them, the raw disk first.
pub fn rows(data: &Data) -> Vec<Row<'_>> {
    let mut rows = commits(data);
    rows.extend(memory(data));
    rows.extend(gets(data));
    rows.extend(scans(data));
    rows.extend(versions(data));
    rows.extend(graph(data));
    rows
}

fn commits(data: &Data) -> Vec<Row<'_>> {
    use Unit::PerSecond;
    let of_raw = || Ratio::Rate {
        of: RAW,
        times: 1.0,
        label: "F",
    };
    let mut offset = 0;
    let raw = move |sample| raw_loop(data.raw()?, &mut offset, sample);
    let many = |name, threads: usize, label, goal| {
        let mut rng = Rng::with_seed(SEED ^ threads as u64);
        let of_one = Ratio::Rate {
            of: COMMIT_1,
            times: threads as f64,
            label,
        };
        let row = Row::new(name, PerSecond, move |sample| {
            durable(data.durable()?, data.scale.small, threads, &mut rng, sample)
        });
        row.against(of_raw()).against(of_one).goal(goal)
    };
    let mut rng = Rng::with_seed(SEED);
    let one = move |sample| durable(data.durable()?, data.scale.small, 1, &mut rng, sample);
    let mut rng = Rng::with_seed(SEED);
    let batched = move |sample| {
        let (db, keys) = (data.written()?, data.scale.small);
        let before = db.revision();
        let (operations, start, end) = run_for(sample, 16, || put_random(db, keys, &mut rng))?;
        check(
            db.revision() == before + operations,
            "revisions do not count the commits",
        )?;
        db.sync()?;
        Ok(Sample {
            operations,
            elapsed: end - start,
            commits_per_flush: None,
        })
    };
    vec![
        Row::new(RAW, PerSecond, raw),
        Row::new(COMMIT_1, PerSecond, one)
            .against(of_raw())
            .goal("≥ 0.93 F"),
        many(
            "durable commit, 16 threads",
            16,
            "of 16 × 1 thread",
            "≥ 0.7 of 16 × 1 thread; ≥ 58,000 /s",
        ),
        many(
            "durable commit, 64 threads",
            64,
            "of 64 × 1 thread",
            "≥ 83,000 /s",
        ),
        Row::new(
            "`Batched` commit, 100 K keys in the memtable",
            Unit::Nanoseconds,
            batched,
        )
        .goal("≤ 1,000 ns"),
    ]
}

/// What one load costs when the address of the next depends on it: what any read of more than
/// the processor's own cache is made of.
fn memory(data: &Data) -> Vec<Row<'_>> {
    let load = |name, bytes_per_key: usize, keys: u64| {
        let lines = OnceCell::new();
        let mut at = 0;
        Row::new(name, Unit::Nanoseconds, move |sample| {
            let lines = made(&lines, || Ok(circle(bytes_per_key * keys as usize)))?;
            let mut steps = 0;
            let (operations, start, end) = run_for(sample, BATCH, || {
                at = lines[at].0;
                steps += usize::from(at == 0);
                Ok(())
            })?;
            check(
                steps as u64 <= operations / lines.len() as u64 + 1,
                "not one circle",
            )?;
            Ok(Sample {
                operations,
                elapsed: end - start,
                commits_per_flush: None,
            })
        })
    };
    vec![
        load("dependent load, 16 MB", 160, data.scale.small),
        load("dependent load, 160 MB", 160, data.scale.large),
    ]
}

fn raw_loop(raw: &RawFile, offset: &mut u64, sample: Duration) -> Fallible<Sample> {
    let mut record = [0; RAW_BYTES];
    let mut rng = Rng::with_seed(*offset ^ SEED);
    rng.fill(&mut record);
    let (operations, start, end) = run_for(sample, 1, || {
        *offset += RAW_BYTES as u64;
        if *offset + RAW_BYTES as u64 > RAW_FILE_BYTES {
            *offset = 0;
        }
        record[0] = record[0].wrapping_add(1);
        raw.file.write_all_at(&record, *offset)?;
        Ok(raw.file.sync_data()?)
    })?;
    let mut back = [0; RAW_BYTES];
    raw.file.read_exact_at(&mut back, *offset)?;
    check(
        back == record,
        "the raw file does not hold what was written",
    )?;
    Ok(Sample {
        operations,
        elapsed: end - start,
        commits_per_flush: None,
    })
}

/// Overwrites random keys, each in a commit of its own that returns when it is flushed.
fn durable(
    db: &Db,
    keys: u64,
    threads: usize,
    rng: &mut Rng,
    sample: Duration,
) -> Fallible<Sample> {
    let before = db.stats();
    let states = (0..threads).map(|_| rng.fork()).collect();
    let mut taken = run_on(states, sample, 1, |rng| put_random(db, keys, rng))?;
    let after = db.stats();
    let commits = after.revision - before.revision;
    check(
        commits == taken.operations,
        "revisions do not count the commits",
    )?;
    let flushes = after.engine.counters.log_syncs - before.engine.counters.log_syncs;
    check(
        flushes * threads as u64 >= commits,
        "more commits than threads for a flush",
    )?;
    taken.commits_per_flush = (threads > 1).then(|| commits as f64 / flushes as f64);
    Ok(taken)
}

fn put_random(db: &Db, keys: u64, rng: &mut Rng) -> Fallible<()> {
    let number = rng.u64(..keys);
    db.put(key(number), value(number))?;
    Ok(())
}

/// Reads random keys through one snapshot.
fn get_random(
    db: &Db,
    keys: u64,
    threads: usize,
    rng: &mut Rng,
    sample: Duration,
) -> Fallible<Sample> {
    let snapshot = db.snapshot();
    let states = (0..threads).map(|_| rng.fork()).collect();
    run_on(states, sample, BATCH, |rng| get(&snapshot, rng.u64(..keys)))
}

fn gets(data: &Data) -> Vec<Row<'_>> {
    use Unit::Nanoseconds;
    let from = |name, db: fn(&Data) -> Fallible<&Db>, keys: u64, threads| {
        let mut rng = Rng::with_seed(SEED);
        Row::new(name, Nanoseconds, move |sample| {
            let db = db(data)?;
            let before = db.stats().engine.counters;
            let taken = get_random(db, keys, threads, &mut rng, sample)?;
            let after = db.stats().engine.counters;
            check(
                after.cache_misses == before.cache_misses,
                "a read went to the disk",
            )?;
            Ok(taken)
        })
    };
    let map = |name, keys: u64| {
        let mut rng = Rng::with_seed(SEED);
        let map = OnceCell::new();
        Row::new(name, Nanoseconds, move |sample| {
            let map: &HashMap<_, _> =
                made(&map, || Ok((0..keys).map(|n| (key(n), value(n))).collect()))?;
            run_on(vec![rng.fork()], sample, BATCH, |rng| {
                let number = rng.u64(..keys);
                // A copy, since a read of the database gives one.
                let found = map.get(&key(number)).copied();
                check(
                    found.is_some_and(|value| is_value_of(&value, number)),
                    "not in the map",
                )
            })
        })
    };
    let Scale { small, large, .. } = data.scale;
    let twice = |of| Ratio::Rate {
        of,
        times: 1.0,
        label: "× 1 thread",
    };
    let mut rng = Rng::with_seed(SEED);
    let beside = move |sample| beside_writer(data.written()?, small, &mut rng, sample);
    vec![
        map("`std::collections::HashMap`, 100 K keys", small),
        from(GET_SMALL, Data::small, small, 1).goal("≤ 60 ns"),
        from(
            "get, memtable, 100 K keys, 2 threads",
            Data::small,
            small,
            2,
        )
        .against(twice(GET_SMALL))
        .goal("≥ 1.9 × 1 thread"),
        Row::new(
            "get, memtable, 100 K keys, beside a writer",
            Nanoseconds,
            beside,
        )
        .against(Ratio::Time {
            of: GET_SMALL,
            label: "of alone",
        })
        .goal("≤ 1.3 of alone"),
        map("`std::collections::HashMap`, 1 M keys", large),
        from(GET_LARGE, Data::large, large, 1).goal("≤ 200 ns"),
        from("get, memtable, 1 M keys, 2 threads", Data::large, large, 2)
            .against(twice(GET_LARGE))
            .goal("≥ 1.9 × 1 thread"),
        from("get, cached tables, 1 M keys", Data::tables, large, 1).goal("≤ 1,200 ns"),
    ]
}

/// Reads through one snapshot while another thread overwrites the same keys as fast as it can.
fn beside_writer(db: &Db, keys: u64, rng: &mut Rng, sample: Duration) -> Fallible<Sample> {
    let is_over = AtomicBool::new(false);
    let before = db.revision();
    let mut writer_rng = rng.fork();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                put_random(db, keys, &mut writer_rng)?;
            }
            Fallible::Ok(())
        });
        let taken = get_random(db, keys, 1, rng, sample);
        is_over.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")??;
        check(db.revision() > before, "the writer wrote nothing")?;
        taken
    })
}

fn scans(data: &Data) -> Vec<Row<'_>> {
    let scan = |name, db: fn(&Data) -> Fallible<&Db>, goal| {
        Row::new(name, Unit::Nanoseconds, move |sample| {
            let (db, count) = (db(data)?, data.scale.small);
            let (scans, start, end) = run_for(sample, 1, || {
                let mut seen = 0;
                let mut last = [0; KEY_BYTES];
                for entry in db.range(..)?.take(count as usize) {
                    let entry = entry?;
                    check(entry.key[..] > last[..], "a scan out of order")?;
                    last.copy_from_slice(&entry.key);
                    let number = entry.key.last_chunk().copied().map(u64::from_be_bytes);
                    let is_right = number.is_some_and(|n| is_value_of(&entry.value, n));
                    check(is_right, "a scan gave another value")?;
                    seen += 1;
                }
                check(seen == count, "a scan ended early")
            })?;
            Ok(Sample {
                operations: scans * count,
                elapsed: end - start,
                commits_per_flush: None,
            })
        })
        .goal(goal)
    };
    vec![
        scan(
            "scan of 100 K entries, memtable, per entry",
            Data::small,
            "",
        ),
        scan(
            "scan of 100 K of 1 M entries, cached tables, per entry",
            Data::tables,
            "",
        ),
    ]
}

fn versions(data: &Data) -> Vec<Row<'_>> {
    let newest = |name, count: u64| {
        Row::new(name, Unit::Nanoseconds, move |sample| {
            let db = data.versions()?;
            let newest = db.entry(key(count))?;
            check(
                newest.is_some_and(|entry| entry.version == count.max(1)),
                "versions are missing",
            )?;
            run_on(vec![()], sample, BATCH, |()| {
                let found = db.get(key(std::hint::black_box(count)))?;
                check(
                    found.is_some_and(|value| is_value_of(&value, count)),
                    "not the value",
                )
            })
        })
    };
    let more = |name, count| {
        let ratio = Ratio::Time {
            of: VERSIONS_1,
            label: "of 1 version",
        };
        newest(name, count)
            .against(ratio)
            .goal("≤ 1.2 of 1 version")
    };
    vec![
        newest(VERSIONS_1, 1),
        more("newest of 100 versions", data.scale.versions / 1_000),
        more("newest of 100,000 versions", data.scale.versions),
    ]
}

fn graph(data: &Data) -> Vec<Row<'_>> {
    let mut next = 0;
    let insert = move |sample| {
        let (db, blocks) = (data.edges()?, data.scale.blocks);
        let first = next;
        let (operations, start, end) = run_for(sample, 16, || {
            let tx = db.begin();
            tx.put_edge(&edge(next, blocks))?;
            next += 1;
            check(tx.commit()?.changed, "an edge that changed nothing")
        })?;
        let graph = db.snapshot().graph();
        for n in [first, next - 1] {
            let Edge { source, target, .. } = edge(n, blocks);
            check(
                graph.edge(source, "next", target)?.is_some(),
                "an edge is missing",
            )?;
        }
        Ok(Sample {
            operations,
            elapsed: end - start,
            commits_per_flush: None,
        })
    };
    let mut rng = Rng::with_seed(SEED);
    let hop = move |sample| {
        let (graph, blocks) = (data.hops()?.snapshot().graph(), data.scale.blocks);
        run_on(vec![rng.fork()], sample, BATCH, |rng| {
            let id = block_id(rng.u64(..blocks));
            let found = graph.neighbors(id, Direction::Out, std::iter::empty::<&str>())?;
            check(
                found.len() as u64 == DEGREE,
                "not the neighbours that were written",
            )
        })
    };
    vec![
        Row::new(
            "edge insert, `Batched`, 10 K blocks",
            Unit::Nanoseconds,
            insert,
        )
        .goal("≤ 2,000 ns"),
        Row::new("1-hop, 10 neighbours, memtable", Unit::Nanoseconds, hop).goal("≤ 130 ns"),
    ]
}
