//! Recovery with several threads gives the same result, or the same error, as with one.

use std::collections::BTreeMap;

use bowline_testing::Seed;

use super::*;
use crate::engine::{BatchReader, BatchWriter};
use crate::vfs::{MemoryVfs, OpenMode};
use crate::workers::Background;
use crate::{EntryKind, Index, Revision, TreeId};

const TREES: u8 = 3;
const THREADS: [usize; 4] = [1, 2, 3, 7];

fn options() -> EngineOptions {
    let mut options = EngineOptions::new(usize::from(TREES));
    options.memtable_bytes = 40 << 10;
    options.log.segment_bytes = 256 << 10;
    options.log.first_segment_bytes = 32 << 10;
    options.log.background = Background::Manual;
    options
}

fn recover(vfs: &MemoryVfs, options: &EngineOptions, after: Index) -> Result<Log> {
    let counters = Arc::new(Counters::default());
    let dir = Layout::new("/db").log();
    let log_options = options.log.clone();
    Log::recover(
        Arc::new(vfs.clone()),
        dir,
        log_options,
        counters,
        after,
        false,
    )
}

/// A batch of one to a few operations.
fn batch(rng: &mut fastrand::Rng, revision: Revision) -> Vec<u8> {
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, revision);
    for _ in 0..rng.usize(1..4) {
        let tree = TreeId(rng.u8(0..TREES));
        let key = format!("key-{:03}", rng.u32(0..300)).into_bytes();
        match rng.u8(0..4) {
            0 => writer.delete(tree, &key),
            _ => writer.put(tree, &key, b"head", &vec![rng.u8(..); rng.usize(0..300)]),
        }
    }
    batch
}

/// A log of random batches in groups; `spoil` may change one batch.
fn write_log(
    vfs: &MemoryVfs,
    rng: &mut fastrand::Rng,
    entries: u64,
    mut spoil: impl FnMut(u64, &mut Vec<u8>),
) {
    let mut log = recover(vfs, &options(), 0).expect("an empty log opens");
    let mut revision = 1;
    let mut number = 0;
    while number < entries {
        for _ in 0..rng.u64(1..6) {
            revision += u64::from(rng.u8(0..8) > 0);
            let mut bytes = batch(rng, revision);
            spoil(number, &mut bytes);
            log.stage(&bytes);
            number += 1;
        }
        log.write().expect("it is written");
        if rng.bool() {
            log.sync().expect("it is synced");
        }
    }
}

type Versions = BTreeMap<(u8, Vec<u8>, Revision), (EntryKind, Vec<u8>)>;

/// All versions in the memtables, in which a newer one may not hold an older version than the ones
/// before it; and what the log ends with.
fn contents(replayed: &Replayed) -> (Versions, Revision, Index) {
    let mut versions = Versions::new();
    let mut newest = 0;
    let mut generation = 0;
    for memtable in &replayed.memtables {
        assert!(memtable.generation() > generation, "generations grow");
        generation = memtable.generation();
        assert!(memtable.min_revision() >= newest, "memtables are in order");
        newest = memtable.max_revision();
        for tree in 0..TREES {
            let mut cursor = memtable.version_cursor(TreeId(tree));
            cursor.seek_first();
            while cursor.valid() {
                let place = (tree, cursor.key().to_vec(), cursor.revision());
                versions.insert(place, (cursor.kind(), cursor.value().to_vec()));
                cursor.next();
            }
        }
    }
    let last = replayed.memtables.last();
    let index = last.map_or(0, |memtable| memtable.max_index());
    assert!(replayed.memtables.is_empty() || index == replayed.last_index);
    (versions, replayed.last_revision, replayed.last_index)
}

#[test]
fn any_number_of_threads_recovers_the_same() {
    for seed in crate::seeds(0..12) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let vfs = MemoryVfs::default();
        let entries = rng.u64(1..1500);
        write_log(&vfs, &mut rng, entries, |_, _| {});
        let log = recover(&vfs, &options(), 0).expect("it opens");
        let layout = Layout::new("/db");
        for flushed_index in [0, entries / 3] {
            // What comes before may have any revision.
            let state = State {
                flushed_index,
                flushed_revision: revision_of(&log, flushed_index),
                ..State::default()
            };
            let replay = |threads| replay(&log, &layout, &options(), &state, threads);
            let expected = contents(&replay(1).expect("it is whole"));
            assert!(expected.0.len() as u64 >= (entries - flushed_index) / 4);
            for threads in THREADS {
                let found = contents(&replay(threads).expect("it is whole"));
                assert!(found == expected, "seed {seed}, {threads} threads");
            }
        }
    }
}

/// The revision of the entry, or that of a new database.
fn revision_of(log: &Log, index: Index) -> Revision {
    let mut revision = 1;
    for stretch in log.replay(0, 1) {
        let visit = &mut |at: Index, bytes: &[u8]| {
            if at == index {
                revision = BatchReader::new(bytes).expect("a batch").revision();
            }
            Ok(())
        };
        stretch.visit(visit).expect("it is whole");
    }
    revision
}

/// Also where the entry is the first of a stretch, and the check needs what another thread has read.
#[test]
fn any_number_of_threads_finds_the_same_fault() {
    let mut refused = 0;
    for seed in crate::seeds(0..150) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let vfs = MemoryVfs::default();
        let spoilt = [rng.u64(0..300), rng.u64(0..300)];
        let how = rng.u8(0..4);
        let mut faults = rng.clone();
        write_log(&vfs, &mut rng, 300, |number, bytes| {
            if !spoilt.contains(&number) {
                return;
            }
            let revision = BatchReader::new(bytes).expect("a batch").revision();
            match how {
                0 => bytes[0] = 9,
                1 => {
                    let ahead = faults.u64(2..5);
                    *bytes = batch(&mut faults, revision + ahead);
                }
                2 => *bytes = batch(&mut faults, revision.saturating_sub(2)),
                _ => bytes.extend_from_slice(&[TREES, 2, 1, b'k']),
            }
        });
        let log = recover(&vfs, &options(), 0).expect("its frames are whole");
        let layout = Layout::new("/db");
        let state = State {
            flushed_revision: 1,
            ..State::default()
        };
        let fault = |threads| {
            let replayed = replay(&log, &layout, &options(), &state, threads);
            replayed.err().map(|error| error.to_string())
        };
        let expected = fault(1);
        refused += u64::from(expected.is_some());
        for threads in THREADS {
            assert_eq!(fault(threads), expected, "seed {seed}, {threads} threads");
        }
    }
    assert!(Seed::named().is_some() || refused > 120, "{refused}");
}

/// A fault of each entry in turn, so that some are the first of a stretch whatever its bounds.
#[test]
fn a_revision_left_out_between_two_stretches_is_a_fault() {
    for number in 0..60 {
        let mut rng = fastrand::Rng::with_seed(7);
        let vfs = MemoryVfs::default();
        let mut log = recover(&vfs, &options(), 0).expect("an empty log opens");
        for entry in 0..60_u64 {
            let revision = 2 + entry + u64::from(entry >= number);
            let mut bytes = Vec::new();
            let mut writer = BatchWriter::start(&mut bytes, revision);
            writer.put(TreeId(0), b"key", &[], &vec![rng.u8(..); 30_000]);
            log.stage(&bytes);
            log.write().expect("it is written");
        }
        drop(log);
        let log = recover(&vfs, &options(), 0).expect("its frames are whole");
        let state = State {
            flushed_revision: 1,
            ..State::default()
        };
        for threads in THREADS {
            let replayed = replay(&log, &Layout::new("/db"), &options(), &state, threads);
            let error = replayed.err().expect("a revision is left out").to_string();
            let revisions = format!("revision {} follows {}", number + 3, number + 1);
            assert!(error.contains(&revisions), "{threads} threads: {error}");
        }
    }
}

/// As an opening does it: with threads when the log is large enough for them.
#[test]
fn a_large_log_is_recovered_whole() {
    const ENTRIES: u32 = 3000;
    let vfs = MemoryVfs::default();
    let mut options = EngineOptions::new(usize::from(TREES));
    options.sync = SyncPolicy::Every(std::time::Duration::from_secs(60));
    let open = || {
        let clock = Arc::new(crate::SystemClock::new());
        crate::engine::Engine::open(Arc::new(vfs.clone()), clock, "/db", options.clone())
            .expect("it opens")
    };
    let engine = open();
    let value = vec![7; 4 << 10];
    for number in 0..ENTRIES {
        let mut bytes = Vec::new();
        let mut writer = BatchWriter::start(&mut bytes, u64::from(number) + 2);
        let key = (number % 1000).to_be_bytes();
        writer.put(TreeId(1), &key, &number.to_be_bytes(), &value);
        let mut round = engine.begin_group(1, 1, bytes.len() as u64).expect("room");
        round.apply(&bytes).expect("it is valid");
        round.finish().expect("it is written");
    }
    assert_eq!(
        engine.stats().counters.flushes,
        0,
        "all of it is in the log"
    );
    drop(engine);
    let engine = open();
    assert_eq!(engine.visible(), u64::from(ENTRIES) + 1);
    for key in 0..1000_u32 {
        let read = engine.read_newest(TreeId(1), &key.to_be_bytes(), |found| {
            found.map(|found| found.bytes()[..4].to_vec())
        });
        let read = read.expect("it is readable").expect("the key is there");
        assert_eq!(read, (key + 2000).to_be_bytes());
    }
    engine.close().expect("it closes");
    let vfs: Arc<dyn Vfs> = Arc::new(vfs);
    let report = crate::engine::check_directory(&vfs, "/db").expect("a database");
    assert!(report.is_clean(), "{report:?}");
}

/// Segments are read by several threads: what they find in a log that was cut, torn and damaged is
/// what one finds.
#[test]
fn a_damaged_log_is_refused_alike_however_it_is_read() {
    let mut outcomes = BTreeMap::new();
    for seed in crate::seeds(0..120) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let vfs = MemoryVfs::default();
        write_log(&vfs, &mut rng, 250, |_, _| {});
        let dir = Layout::new("/db").log();
        let names = vfs.read_dir(&dir).expect("it lists");
        let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
        for _ in 0..rng.u8(0..3) {
            let path = dir.join(segments[rng.usize(0..segments.len())]);
            let file = vfs.open(&path, OpenMode::ReadWrite).expect("it opens");
            let at = rng.u64(0..file.len().expect("a length"));
            match rng.u8(0..8) {
                0 => file.set_len(at).expect("it is cut"),
                _ => {
                    file.write_at(&[rng.u8(..); 3], at).expect("it is damaged");
                }
            }
        }
        let found = |threads| crate::log::scan_for_test(&vfs, &dir, threads);
        let expected = found(1);
        *outcomes.entry(expected.is_ok()).or_insert(0) += 1;
        for threads in THREADS {
            assert_eq!(found(threads), expected, "seed {seed}, {threads} threads");
        }
    }
    let is_either = outcomes.values().all(|count| *count > 20);
    assert!(Seed::named().is_some() || is_either, "{outcomes:?}");
}
