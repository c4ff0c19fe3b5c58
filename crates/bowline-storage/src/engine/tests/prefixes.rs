//! Reads of the keys with a prefix, against a scan of the same range.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bowline_testing::Seed;

use super::*;
use crate::error::Result;

const TREE: TreeId = TreeId(1);

/// Keys as those of edges: one of some blocks, one of three kinds, a far end. Some are shorter.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut key = vec![0; 12];
    key.extend(rng.u32(..60).to_be_bytes());
    key.extend([0, 0, 0, rng.u8(..3)]);
    if rng.u8(..4) > 0 {
        key.extend([rng.u8(..2); 7]);
    }
    key.extend((0..rng.usize(..3)).map(|_| rng.u8(..6)));
    key.truncate(if rng.u8(..20) == 0 {
        rng.usize(..19)
    } else {
        64
    });
    key
}

fn prefix(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut prefix = key(rng);
    prefix.truncate([0, 3, 15, 16, 16, 16, 20, 20, 28, 64][rng.usize(..10)]);
    prefix
}

fn commit(engine: &Engine, rng: &mut fastrand::Rng) {
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, engine.visible() + 1);
    let count = rng.u64(1..6);
    for _ in 0..count {
        let key = key(rng);
        if rng.u8(..3) > 0 {
            writer.put(TREE, &key, &[], &[7]);
        } else {
            writer.delete(TREE, &key);
        }
    }
    let mut group = engine.begin_group(1, count, batch.len() as u64).unwrap();
    group.apply(&batch).unwrap();
    group.finish().unwrap();
}

fn scanned(engine: &Engine, prefix: &[u8], at: Revision) -> Vec<Vec<u8>> {
    let lower = Bound::Included(prefix.to_vec());
    let mut scan = engine.scan(TREE, lower, Bound::Unbounded, at, ScanDirection::Forward);
    let mut found = Vec::new();
    while scan.advance().unwrap() && scan.key().starts_with(prefix) {
        found.push(scan.key().to_vec());
    }
    found
}

fn read(reader: &mut PrefixReader<'_>, prefix: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let visit = |key: &[u8]| -> Result<bool> {
        found.push(key.to_vec());
        Ok(found.len() < limit)
    };
    reader.visit(prefix, visit).unwrap();
    found
}

/// Of many prefixes by one reader, at any revision, over memtables, runs of several tables, or both.
#[test]
fn a_reader_of_prefixes_finds_what_a_scan_finds() {
    let mut most_sources = (0, 0, 0);
    for seed in crate::seeds(0..40) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let strategy = [Strategy::LazyLeveling, Strategy::Tiered][seed as usize % 2];
        let mut options = options(strategy, History::All);
        options.sealed_memtables_max = 8;
        options.compaction.runs_max = 6;
        let engine = open(&MemoryVfs::default(), &options);
        for _ in 0..4 {
            for _ in 0..rng.usize(1..60) {
                commit(&engine, &mut rng);
            }
            match rng.u8(..4) {
                0 => engine.flush().unwrap(),
                1 => engine.run_background_if_manual().unwrap(),
                _ => {}
            }
            let at = rng.u64(0..=engine.visible());
            let sources = engine.super_version_at(at).unwrap();
            let tables = sources
                .version
                .tree(TREE)
                .runs()
                .map(|run| run.tables.len());
            let tables_max = tables.max().unwrap_or(0);
            let runs = sources.version.tree(TREE).runs().count();
            most_sources.0 = most_sources.0.max(sources.memtables().count());
            most_sources.1 = most_sources.1.max(runs);
            most_sources.2 = most_sources.2.max(tables_max);
            let mut reader = sources.prefix_reader(TREE, at);
            for _ in 0..60 {
                let prefix = prefix(&mut rng);
                let mut expected = scanned(&engine, &prefix, at);
                assert_eq!(
                    read(&mut reader, &prefix, usize::MAX),
                    expected,
                    "{prefix:?} at {at}"
                );
                let limit = rng.usize(1..5);
                expected.truncate(limit);
                assert_eq!(
                    read(&mut reader, &prefix, limit),
                    expected,
                    "{prefix:?} at {at}"
                );
            }
        }
    }
    let (memtables, runs, tables) = most_sources;
    let are_many = memtables > 3 && runs > 2 && tables > 2;
    assert!(Seed::named().is_some() || are_many, "{most_sources:?}");
}

/// At a pinned revision, while another thread commits, and memtables become tables.
#[test]
fn a_reader_of_prefixes_beside_a_writer_finds_what_a_scan_finds() {
    let mut rng = fastrand::Rng::with_seed(1);
    let options = options(Strategy::LazyLeveling, History::All);
    let engine = open(&MemoryVfs::default(), &options);
    commit(&engine, &mut rng);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (engine, is_over) = (&engine, &is_over);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut last = false;
                while !last {
                    last = is_over.load(Relaxed);
                    let pin = engine.pin_newest();
                    let at = pin.revision();
                    let sources = engine.super_version_at(at).unwrap();
                    let mut reader = sources.prefix_reader(TREE, at);
                    for _ in 0..20 {
                        let prefix = prefix(&mut rng);
                        let found = read(&mut reader, &prefix, usize::MAX);
                        assert_eq!(found, scanned(engine, &prefix, at), "{prefix:?} at {at}");
                    }
                }
            });
        }
        for _ in 0..1_500 {
            commit(&engine, &mut rng);
            engine.run_background_if_manual().unwrap();
        }
        is_over.store(true, Relaxed);
    });
}
