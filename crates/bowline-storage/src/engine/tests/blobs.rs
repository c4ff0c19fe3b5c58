//! Large values in files of their own: the same answers, garbage that is counted right and bounded,
//! and files that stay exactly as long as somebody may read them.

use std::collections::BTreeSet;

use super::*;
use crate::blob::BlobOptions;
use crate::vfs::OpenMode;

fn with_blobs(strategy: Strategy, history: History, garbage_percent_max: u8) -> EngineOptions {
    let mut options = options(strategy, history);
    options.blobs = BlobOptions {
        threshold_bytes: Some(64),
        garbage_percent_max,
        file_bytes: 3 << 10,
    };
    options
}

fn harness(strategy: Strategy, history: History, garbage_percent_max: u8) -> Harness {
    let mut harness = Harness::with(
        MemoryVfs::default(),
        with_blobs(strategy, history, garbage_percent_max),
    );
    harness.value_bytes_max = 300;
    harness
}

impl Harness {
    fn put_all(&mut self, keys: impl IntoIterator<Item = String>, value_bytes: usize) {
        let revision = self.engine.visible() + 1;
        let mut batch = Vec::new();
        let mut writer = BatchWriter::start(&mut batch, revision);
        let mut count = 0;
        for key in keys {
            let mut value = vec![0; value_bytes];
            fastrand::fill(&mut value);
            writer.put(TreeId(0), key.as_bytes(), &[], &value);
            let place = (0, key.into_bytes(), std::cmp::Reverse(revision));
            self.versions.insert(place, Some(value));
            count += 1;
        }
        let bytes = batch.len() as u64;
        let mut round = self.engine.begin_group(1, count, bytes).unwrap();
        round.apply(&batch).unwrap();
        assert_eq!(round.finish().unwrap(), revision);
        self.engine.run_background_if_manual().unwrap();
    }

    fn blob_names(&self) -> BTreeSet<String> {
        let names = self.vfs.read_dir(&Layout::new("/db").tables()).unwrap();
        let blobs = names.into_iter().filter(|name| name.ends_with(".blob"));
        blobs.collect()
    }

    /// The recorded garbage is what really nobody refers to, and the directory has exactly the files
    /// that the state names.
    pub(in crate::engine) fn check_garbage(&self) {
        self.check_files();
        let current = self.engine.core.view.load_full();
        let mut referred: BTreeMap<u64, u64> = BTreeMap::new();
        let mut places = BTreeSet::new();
        for table in current.version.tables() {
            let mut cursor = table.version_cursor(false);
            cursor.seek_first().unwrap();
            while cursor.valid() {
                if let Some(pointer) = cursor.pointer().unwrap() {
                    let is_first = places.insert((pointer.file_id, pointer.offset));
                    assert!(is_first, "two entries have one record");
                    *referred.entry(pointer.file_id).or_default() += pointer.record_bytes;
                }
                cursor.next().unwrap();
            }
        }
        let blobs = current.version.blobs.iter();
        let recorded: BTreeMap<u64, u64> = blobs
            .map(|(id, blob)| {
                let all = blob.file.meta().record_bytes();
                (*id, all - blob.garbage_bytes())
            })
            .collect();
        assert_eq!(referred, recorded);
        let layout = Layout::new("/db");
        let named = recorded.keys().map(|id| {
            let path = layout.blob(*id);
            path.file_name().unwrap().to_string_lossy().into_owned()
        });
        assert_eq!(self.blob_names(), named.collect());
        let stats = self.engine.stats();
        assert_eq!(stats.blob_files, recorded.len() as u64);
    }
}

#[test]
fn answers_are_the_same_and_garbage_is_counted_right() {
    for (seed, strategy) in strategies(51) {
        for history in [History::All, History::None] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut harness = harness(strategy, history, 30);
            let mut pins = Vec::new();
            for step in 0..300 {
                harness.commit(&mut rng);
                if step % 41 == 20 {
                    pins.push(harness.engine.pin_newest());
                }
                if step % 60 == 59 {
                    if pins.len() > 2 {
                        pins.remove(rng.usize(0..pins.len()));
                    }
                    harness.check_garbage();
                    for pin in &pins {
                        harness.compare_at(pin.revision());
                    }
                    harness.compare_at(harness.engine.visible());
                }
                if step == 150 {
                    harness.reopen();
                    pins.clear();
                }
            }
            harness.engine.compact_tables().unwrap();
            harness.check_garbage();
            harness.compare_at(harness.engine.visible());
            let counters = harness.engine.stats().counters;
            assert!(counters.blob_flush_bytes_written > 10_000, "{counters:?}");
            if history == History::None {
                let moved = counters.blob_compaction_bytes_written;
                assert!(moved > 0, "{strategy:?} never emptied a file");
            }
        }
    }
}

/// Every version in order, as a watch that starts in the past reads them.
#[test]
fn every_version_is_visited_with_its_whole_value() {
    for seed in crate::seeds(5..6) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = harness(Strategy::LazyLeveling, History::All, 30);
        for _ in 0..150 {
            harness.commit(&mut rng);
        }
        harness.engine.flush().unwrap();
        for tree in 0..TREES {
            let (mut whole, mut heads) = (BTreeMap::new(), BTreeMap::new());
            let unbounded = Bound::Unbounded;
            let span = (0, Revision::MAX);
            let tree_id = TreeId(tree);
            let engine = &harness.engine;
            engine
                .for_each_version(tree_id, unbounded, unbounded, span, &mut |k, r, kind, v| {
                    let value = (kind == EntryKind::Put).then(|| v.to_vec());
                    whole.insert((k.to_vec(), std::cmp::Reverse(r)), value);
                    Next::All
                })
                .unwrap();
            engine
                .peek_versions(tree_id, unbounded, unbounded, span, &mut |k, r, _, v| {
                    heads.insert((k.to_vec(), std::cmp::Reverse(r)), v.to_vec());
                    Next::All
                })
                .unwrap();
            let own = harness.versions.iter().filter(|((t, ..), _)| *t == tree);
            let expected: BTreeMap<_, _> = own
                .map(|((_, key, revision), value)| ((key.clone(), *revision), value.clone()))
                .collect();
            assert_eq!(whole, expected);
            assert_eq!(heads.len(), expected.len());
            for (place, head) in &heads {
                let value = expected[place].clone().unwrap_or_default();
                assert!(value.starts_with(head) && head.len() >= value.len().min(32));
            }
        }
    }
}

/// What decides a commit needs the head of the version before, and no read of the blob file.
#[test]
fn a_look_at_the_head_reads_no_blob_file() {
    let mut harness = harness(Strategy::LazyLeveling, History::None, 60);
    harness.put_all((0..20).map(|number| format!("key-{number:03}")), 2_000);
    harness.engine.flush().unwrap();
    let engine = &harness.engine;
    let at = engine.visible();
    let key = b"key-007";
    let value = harness.expected(0, key, at).unwrap();
    let peek = |found: Option<Found<'_>>| found.map(|found| found.bytes().to_vec());
    let heads = || {
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = engine
            .scan(TreeId(0), lower, upper, at, ScanDirection::Forward)
            .heads();
        let mut heads = Vec::new();
        while scan.advance().unwrap() {
            heads.push(scan.bytes().len());
        }
        heads
    };
    // The pages come into the cache.
    heads();
    let before = engine.stats().counters.read_bytes;
    for head in [
        engine.peek_at(TreeId(0), key, at, peek).unwrap(),
        engine.peek_newest(TreeId(0), key, peek).unwrap(),
        engine.peek_since(TreeId(0), key, 0, peek).unwrap(),
    ] {
        assert_eq!(head.unwrap(), value[..crate::blob::HEAD_BYTES]);
    }
    let newer = engine.read_since(TreeId(0), key, at, peek).unwrap();
    assert_eq!(newer, None);
    let len = |found: Option<Found<'_>>| found.map(|found| found.value_bytes());
    assert_eq!(
        engine.peek_at(TreeId(0), key, at, len).unwrap(),
        Some(2_000)
    );
    let changed = engine.changed_since(TreeId(0), Bound::Unbounded, Bound::Unbounded, 0);
    assert!(changed.unwrap());
    assert_eq!(heads(), [crate::blob::HEAD_BYTES; 20]);
    assert_eq!(engine.stats().counters.read_bytes, before);
    assert_eq!(harness.get(0, key, at), Some(value));
    assert!(harness.engine.stats().counters.read_bytes > before);
}

#[test]
fn a_scan_reads_values_that_follow_each_other_at_once() {
    let vfs = MemoryVfs::default();
    let mut options = with_blobs(Strategy::LazyLeveling, History::None, 60);
    options.blobs.file_bytes = 1 << 30;
    options.memtable_bytes = 1 << 20;
    let engine = open(&vfs, &options);
    let mut harness = Harness {
        vfs,
        options,
        engine,
        versions: Versions::new(),
        value_bytes_max: 60,
    };
    harness.put_all((0..300).map(|number| format!("key-{number:03}")), 1_000);
    harness.engine.flush().unwrap();
    let at = harness.engine.visible();
    let all = harness.scan(0, at, ScanDirection::Forward);
    assert_eq!(all, harness.expected_range(0, at));
    // Pages, and every value once: the chunks neither overlap nor fall short.
    let stats = harness.engine.stats();
    let most = stats.blob_bytes + stats.table_bytes;
    let read = stats.counters.read_bytes;
    assert!(read <= most, "{read} bytes read of {most}");
}

#[test]
fn a_reader_reads_on_from_a_file_that_was_emptied() {
    let mut harness = harness(Strategy::LazyLeveling, History::None, 10);
    let keys = || (0..12).map(|number| format!("key-{number:03}"));
    harness.put_all(keys(), 500);
    harness.engine.compact_tables().unwrap();
    let old_names = harness.blob_names();
    assert!(!old_names.is_empty());
    let pin = harness.engine.pin_newest();
    let at = pin.revision();
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    let engine = &harness.engine;
    let mut scan = engine.scan(TreeId(0), lower, upper, at, ScanDirection::Forward);
    assert!(scan.advance().unwrap());
    let mut found = vec![(scan.key().to_vec(), scan.bytes().to_vec())];
    // Half of each file goes, what the pin reads moves.
    drop(pin);
    harness.put_all(keys().step_by(2), 500);
    harness.engine.compact_tables().unwrap();
    let new_names = harness.blob_names();
    assert!(new_names.is_superset(&old_names), "the scan holds them");
    let stats = harness.engine.stats();
    assert!(stats.blob_files < new_names.len() as u64, "none went");
    while scan.advance().unwrap() {
        found.push((scan.key().to_vec(), scan.bytes().to_vec()));
    }
    assert_eq!(found, harness.expected_range(0, at));
    harness.compare_at(harness.engine.visible());
    drop(scan);
    assert!(harness.blob_names().is_disjoint(&old_names), "they stay");
    harness.check_garbage();
}

#[test]
fn a_pinned_revision_keeps_its_values() {
    let mut harness = harness(Strategy::Leveled, History::None, 10);
    let keys = || (0..12).map(|number| format!("key-{number:03}"));
    harness.put_all(keys(), 500);
    let pin = harness.engine.pin_newest();
    for _ in 0..5 {
        harness.put_all(keys(), 500);
        harness.engine.compact_tables().unwrap();
        harness.check_garbage();
        harness.compare_at(pin.revision());
    }
    drop(pin);
    harness.put_all(keys(), 500);
    harness.engine.compact_tables().unwrap();
    harness.check_garbage();
    assert_eq!(harness.engine.stats().blob_garbage_bytes, 0);
}

#[test]
fn garbage_is_bounded() {
    for (seed, strategy) in strategies(71) {
        for percent in [20, 60] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut harness = harness(strategy, History::None, percent);
            for _ in 0..150 {
                let keys = (0..8).map(|_| rng.u32(0..100)).collect::<BTreeSet<_>>();
                harness.put_all(keys.into_iter().map(|key| format!("key-{key:03}")), 400);
                // Whatever the merges have met: together it is never more than the bound.
                let stats = harness.engine.stats();
                let records = stats.blob_bytes - 80 * stats.blob_files;
                assert!(
                    stats.blob_garbage_bytes * 100 <= records * u64::from(percent),
                    "{strategy:?}, {percent}: {stats:?}"
                );
            }
            harness.engine.compact_tables().unwrap();
            harness.check_garbage();
            // 100 keys of 400 bytes, overwritten twelve times.
            let stats = harness.engine.stats();
            let live = 100 * (400 + 21);
            let most = live * 100 / (100 - u64::from(percent)) + 80 * stats.blob_files;
            assert!(stats.blob_bytes <= most, "{} > {most}", stats.blob_bytes);
        }
    }
}

/// No merge comes by itself where nobody writes: the run is rewritten in its place.
#[test]
fn a_file_in_a_quiet_range_does_not_stay_for_ever() {
    let mut options = with_blobs(Strategy::LazyLeveling, History::All, 60);
    let vfs = MemoryVfs::default();
    options.blobs.garbage_percent_max = 99;
    let engine = open(&vfs, &options);
    let mut harness = Harness {
        vfs,
        options,
        engine,
        versions: Versions::new(),
        value_bytes_max: 60,
    };
    let keys = |prefix: &str| {
        (0..20)
            .map(move |n| format!("{prefix}-{n:03}"))
            .collect::<Vec<_>>()
    };
    harness.put_all(keys("key"), 300);
    harness.engine.compact_tables().unwrap();
    let old_names = harness.blob_names();
    // Three quarters are overwritten and trimmed, but nothing is emptied with this bound.
    let overwritten = keys("key").into_iter().enumerate();
    let overwritten = overwritten.filter(|(number, _)| number % 4 != 0);
    harness.put_all(overwritten.map(|(_, key)| key), 300);
    let newest = harness.engine.visible();
    harness.engine.compact_history(newest).unwrap().unwrap();
    harness.engine.compact_tables().unwrap();
    assert!(harness.blob_names().is_superset(&old_names));
    let garbage = harness.engine.stats().blob_garbage_bytes;
    assert!(garbage > 3_000, "{garbage}");
    let before: Vec<_> = harness.engine.stats().levels;
    harness.options.blobs.garbage_percent_max = 30;
    harness.reopen();
    harness.engine.run_background_if_manual().unwrap();
    let stats = harness.engine.stats();
    assert!(stats.counters.blob_collections > 0);
    assert_eq!(stats.counters.compactions, 0, "no merge took part in it");
    assert!(harness.blob_names().is_disjoint(&old_names));
    let runs = |levels: &Vec<Vec<LevelStats>>| -> Vec<Vec<u64>> {
        let of_tree = |levels: &Vec<LevelStats>| levels.iter().map(|level| level.runs).collect();
        levels.iter().map(of_tree).collect()
    };
    assert_eq!(
        runs(&stats.levels),
        runs(&before),
        "a run has changed its place"
    );
    harness.check_garbage();
    harness.compare_at(newest);
}

/// A run above others is rewritten in its place. It is not the last one: what it says of absent keys
/// hides what the others have.
#[test]
fn emptying_a_file_keeps_what_hides_older_versions() {
    let mut options = with_blobs(Strategy::Tiered, History::None, 99);
    options.compaction.runs_max = 100;
    options.memtable_bytes = 1 << 20;
    let mut harness = Harness::with(MemoryVfs::default(), options);
    let keys = |from: u32, to: u32| (from..to).map(|n| format!("key-{n:03}"));
    harness.put_all(keys(0, 10), 70);
    harness.engine.flush().unwrap();
    let revision = harness.engine.visible() + 1;
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, revision);
    for key in keys(0, 10) {
        writer.delete(TreeId(0), key.as_bytes());
        let place = (0, key.into_bytes(), std::cmp::Reverse(revision));
        harness.versions.insert(place, None);
    }
    let bytes = batch.len() as u64;
    let mut round = harness.engine.begin_group(1, 10, bytes).unwrap();
    round.apply(&batch).unwrap();
    round.finish().unwrap();
    harness.put_all(keys(20, 30), 70);
    harness.engine.flush().unwrap();
    // No reader needs the tombstones any more, but for what they hide.
    harness.put_all(keys(40, 41), 70);

    let current = harness.engine.core.view.load_full();
    let newest = current.version.tree(TreeId(0)).runs().next().unwrap();
    let tables = newest.tables.iter();
    let references = tables.filter_map(|it| current.version.references.get(&it.meta().file_id));
    let emptied: BTreeSet<u64> = references
        .flat_map(|references| references.iter().map(|reference| reference.file_id))
        .collect();
    assert!(!emptied.is_empty());
    let pick = crate::compaction::BlobPick {
        level: 0,
        run: newest.id,
        tables: newest.tables.clone(),
        emptied: emptied.clone(),
    };
    drop(current);
    let compactor = &harness.engine.compactor;
    compactor.collect_blobs(TreeId(0), &pick).unwrap();
    drop(pick);
    let current = harness.engine.core.view.load_full();
    let is_gone = |id| !current.version.blobs.contains_key(id);
    assert!(emptied.iter().all(is_gone));
    assert_eq!(current.version.tree(TreeId(0)).runs().count(), 2);
    drop(current);
    harness.compare_at(harness.engine.visible());
    harness.check_garbage();
}

/// Values of 1 KiB, each overwritten ten times, at random; once with one level of merges, once with
/// several.
#[test]
fn write_amplification_beyond_the_log_stays_below_two() {
    for keys in [400, 3200] {
        let mut options = EngineOptions::new(usize::from(TREES));
        options.memtable_bytes = 128 << 10;
        options.log.background = Background::Manual;
        options.log.segment_bytes = 1 << 20;
        options.compaction.table_bytes = 64 << 10;
        options.compaction.level_base_bytes = 64 << 10;
        options.blobs.file_bytes = 256 << 10;
        let mut harness = Harness::with(MemoryVfs::default(), options);
        let mut rng = fastrand::Rng::with_seed(13);
        let mut user_bytes = 0;
        for _ in 0..keys * 10 / 8 {
            let some = (0..8).map(|_| rng.u32(0..keys)).collect::<BTreeSet<_>>();
            user_bytes += some.len() as u64 * (1024 + 8);
            let some = some.into_iter().map(|key| format!("key-{key:04}"));
            harness.put_all(some, 1024);
        }
        harness.engine.flush().unwrap();
        harness.engine.run_background_if_manual().unwrap();
        let counters = harness.engine.stats().counters;
        let tables = counters.flush_bytes_written + counters.compaction_bytes_written;
        let blobs = counters.blob_flush_bytes_written + counters.blob_compaction_bytes_written;
        let amplification = (tables + blobs) as f64 / user_bytes as f64;
        println!("{keys} keys: tables {tables}, blobs {blobs} of {user_bytes}: {amplification:.2}");
        assert!(amplification <= 2.0, "{amplification:.2}: {counters:?}");
        harness.engine.compact_tables().unwrap();
        harness.check_garbage();
        let space = harness.engine.stats().blob_bytes as f64 / f64::from(keys * 1024);
        println!("{space:.2} times the values once merged");
        assert!(space <= 2.1, "{space:.2}");
        let at = harness.engine.visible();
        assert_eq!(
            harness.scan(0, at, ScanDirection::Forward),
            harness.expected_range(0, at)
        );
    }
}

#[test]
fn a_checkpoint_has_the_values_and_is_checked() {
    for seed in crate::seeds(5..6) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = harness(Strategy::LazyLeveling, History::All, 40);
        for _ in 0..120 {
            harness.commit(&mut rng);
        }
        let revision = harness
            .engine
            .checkpoint(std::path::Path::new("/copy"))
            .unwrap();
        let vfs: Arc<dyn Vfs> = Arc::new(harness.vfs.clone());
        let report = check_directory(&vfs, "/copy").unwrap();
        assert!(report.is_clean(), "{report:?}");
        let expected: Vec<_> = (0..TREES)
            .map(|tree| harness.expected_range(tree, revision))
            .collect();
        let clock = Arc::new(SystemClock::new());
        let copy = Engine::open(vfs, clock, "/copy", harness.options.clone()).unwrap();
        // Numbers go on behind those of the copied files.
        let mut copy = Harness {
            vfs: harness.vfs.clone(),
            options: harness.options.clone(),
            engine: copy,
            versions: harness.versions.clone(),
            value_bytes_max: 300,
        };
        for (tree, expected) in expected.iter().enumerate() {
            let found = copy.scan(tree as u8, revision, ScanDirection::Forward);
            assert_eq!(found, *expected);
        }
        for _ in 0..60 {
            copy.commit(&mut rng);
        }
        copy.compare_at(copy.engine.visible());
        // A copy of damage is refused.
        harness.engine.flush().unwrap();
        let name = harness.blob_names().pop_first().unwrap();
        let path = Layout::new("/db").tables().join(name);
        let file = harness.vfs.open(&path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 60).unwrap();
        file.write_at(&[byte[0] ^ 1], 60).unwrap();
        let target = std::path::Path::new("/second");
        let error = harness.engine.checkpoint(target).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let vfs: Arc<dyn Vfs> = Arc::new(harness.vfs.clone());
        let report = check_directory(&vfs, "/db").unwrap();
        assert!(report.errors().all(Error::is_corruption) && !report.is_clean());
    }
}

/// What is given away holds the blob files; who takes it looks at every one of them.
#[test]
fn a_frozen_state_is_restored_with_its_values() {
    for seed in crate::seeds(7..8) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = harness(Strategy::LazyLeveling, History::All, 40);
        for _ in 0..80 {
            harness.commit(&mut rng);
        }
        let frozen = harness.engine.freeze().unwrap();
        let at = frozen.revision;
        for number in 0..200 {
            let key = format!("key-{number:03}").into_bytes();
            let expected = harness.expected(1, &key, at);
            assert_eq!(frozen.read(TreeId(1), &key).unwrap(), expected);
        }
        let files: Vec<(String, Vec<u8>)> = (frozen.tables.iter())
            .map(|table| {
                let mut bytes = vec![0; table.file_bytes() as usize];
                let read = table.file().read_at(&mut bytes, 0).unwrap();
                assert_eq!(read, bytes.len());
                (table.name(), bytes)
            })
            .collect();
        let is_blob = |(name, _): &&(String, Vec<u8>)| name.ends_with(".blob");
        assert!(files.iter().filter(is_blob).count() > 2);
        let vfs: Arc<dyn Vfs> = Arc::new(harness.vfs.clone());
        let restore = |path: &str, files: &[(String, Vec<u8>)]| {
            let options = RestoreOptions {
                source: std::path::Path::new("saved"),
                state: &frozen.state,
                database_id: 5,
                file_id_base: 0,
                trees: usize::from(TREES),
            };
            let mut restore = Restore::begin(vfs.clone(), std::path::Path::new(path), &options)?;
            for (name, bytes) in files {
                restore.table(name, bytes.len() as u64, &mut &bytes[..])?;
            }
            let changes = BTreeMap::from([(b"key-000".to_vec(), None)]);
            restore.finish(TreeId(2), &changes, || Ok::<_, Error>(()))
        };
        restore("/restored", &files).unwrap();
        let clock = Arc::new(SystemClock::new());
        let options = harness.options.clone();
        let engine = Engine::open(vfs.clone(), clock, "/restored", options.clone()).unwrap();
        let mut versions = harness.versions.clone();
        versions.insert((2, b"key-000".to_vec(), std::cmp::Reverse(at)), None);
        let mut restored = Harness {
            vfs: harness.vfs.clone(),
            options,
            engine,
            versions,
            value_bytes_max: 300,
        };
        restored.compare_at(at);
        // No number of a file is given twice.
        for _ in 0..60 {
            restored.commit(&mut rng);
        }
        restored.compare_at(restored.engine.visible());

        let blob = files.iter().position(|file| is_blob(&file)).unwrap();
        let mut damaged = files.clone();
        damaged[blob].1[70] ^= 1;
        let mut missing = files.clone();
        missing.remove(blob);
        let doubled = [&files[..], &files[blob..=blob]].concat();
        for (number, files) in [damaged, missing, doubled].iter().enumerate() {
            let path = format!("/refused-{number}");
            let error = restore(&path, files).unwrap_err();
            assert!(error.is_corruption(), "{error}");
            let tables = Layout::new(&path).tables();
            let left = harness.vfs.read_dir(&tables).unwrap_or_default();
            assert_eq!(left, [""; 0]);
        }
    }
}

#[test]
fn opening_refuses_without_a_named_file_and_removes_what_nothing_names() {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut harness = harness(Strategy::LazyLeveling, History::All, 40);
    for _ in 0..60 {
        harness.commit(&mut rng);
    }
    harness.engine.flush().unwrap();
    harness.engine.close().unwrap();
    let layout = Layout::new("/db");
    let leftover = layout.blob(0xffff);
    let file = harness.vfs.open(&leftover, OpenMode::CreateNew).unwrap();
    file.write_at(b"unfinished", 0).unwrap();
    harness.reopen();
    assert!(harness.vfs.metadata(&leftover).unwrap().is_none());
    harness.check_garbage();
    harness.engine.close().unwrap();

    let name = harness.blob_names().pop_last().unwrap();
    let path = layout.tables().join(name);
    harness
        .vfs
        .rename(&path, &layout.root().join("away"))
        .unwrap();
    let clock = Arc::new(SystemClock::new());
    let vfs: Arc<dyn Vfs> = Arc::new(harness.vfs.clone());
    let options = harness.options.clone();
    let error = Engine::open(vfs.clone(), clock, "/db", options).unwrap_err();
    assert!(
        matches!(&error, Error::MissingFile { path: missing, .. } if *missing == path),
        "{error}"
    );
    let report = check_directory(&vfs, "/db").unwrap();
    let mut errors = report.errors();
    assert!(errors.any(|error| matches!(error, Error::MissingFile { .. })));
    harness
        .vfs
        .rename(&layout.root().join("away"), &path)
        .unwrap();
    harness.reopen();
    harness.compare_at(harness.engine.visible());
}

/// What the program before wrote has its values in its tables, and nothing of blob files in its
/// manifest: that is what is written without a threshold.
#[test]
fn a_directory_without_blob_files_goes_on_with_them_and_back() {
    for seed in crate::seeds(8..9) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = harness(Strategy::LazyLeveling, History::All, 40);
        for threshold_bytes in [None, Some(64), None, Some(200)] {
            harness.options.blobs.threshold_bytes = threshold_bytes;
            harness.reopen();
            for _ in 0..60 {
                harness.commit(&mut rng);
            }
            harness.check_garbage();
            harness.compare_at(harness.engine.visible());
            harness.engine.compact_tables().unwrap();
            harness.check_garbage();
            harness.compare_at(harness.engine.visible());
            harness.compare_at(2);
            let has_blobs = !harness.blob_names().is_empty();
            let was_asked = threshold_bytes.is_some() || harness.engine.visible() > 100;
            assert_eq!(has_blobs, was_asked, "{threshold_bytes:?}");
        }
    }
}
