//! The engine against a map of versions, for every strategy of compaction.

mod blobs;
mod compaction;
mod operands;
mod prefixes;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::*;
use crate::compaction::{CompactionOptions, Strategy};
use crate::version::Identity;
use crate::vfs::MemoryVfs;
use crate::workers::Background;
use crate::{EntryKind, SystemClock, TreeId};

pub(super) const TREES: u8 = 3;

/// What a tree had at a revision.
type Held = Option<(Revision, BTreeMap<Vec<u8>, Vec<u8>>)>;

/// What a tree's key held from a revision on; `None` = deleted.
pub(super) type Versions = BTreeMap<(u8, Vec<u8>, std::cmp::Reverse<Revision>), Option<Vec<u8>>>;

pub(super) struct Harness {
    pub(super) vfs: MemoryVfs,
    pub(super) options: EngineOptions,
    pub(super) engine: Engine,
    pub(super) versions: Versions,
    pub(super) value_bytes_max: usize,
}

pub(super) fn options(strategy: Strategy, history: History) -> EngineOptions {
    let mut options = EngineOptions::new(usize::from(TREES));
    options.memtable_bytes = 4 << 10;
    options.cache_bytes = 64 << 10;
    options.log.segment_bytes = 32 << 10;
    options.log.first_segment_bytes = 8 << 10;
    options.log.background = Background::Manual;
    options.history = history;
    options.manifest_rewrite_bytes = 4 << 10;
    options.compaction = CompactionOptions {
        strategy,
        runs_max: 3,
        table_bytes: 2 << 10,
        level_base_bytes: 8 << 10,
        threads: 3,
        range_bytes_min: 256,
        last_level_compression: None,
    };
    for tree in &mut options.trees {
        tree.page_bytes = 256;
    }
    options
}

pub(super) fn open(vfs: &MemoryVfs, options: &EngineOptions) -> Engine {
    let clock = Arc::new(SystemClock::new());
    Engine::open(Arc::new(vfs.clone()), clock, "/db", options.clone()).unwrap()
}

impl Harness {
    fn new(strategy: Strategy, history: History) -> Harness {
        Harness::with(MemoryVfs::default(), options(strategy, history))
    }

    pub(super) fn with(vfs: MemoryVfs, options: EngineOptions) -> Harness {
        let engine = open(&vfs, &options);
        Harness {
            vfs,
            options,
            engine,
            versions: Versions::new(),
            value_bytes_max: 60,
        }
    }

    pub(super) fn commit(&mut self, rng: &mut fastrand::Rng) {
        let mut batch = Vec::new();
        let revision = self.engine.visible() + 1;
        let mut writer = BatchWriter::start(&mut batch, revision);
        let count = rng.u64(1..6);
        for _ in 0..count {
            let tree = rng.u8(0..TREES);
            let key = format!("key-{:03}", rng.u32(0..200)).into_bytes();
            let value =
                (rng.u8(0..4) > 0).then(|| vec![rng.u8(..); rng.usize(0..self.value_bytes_max)]);
            match &value {
                Some(value) => writer.put(TreeId(tree), &key, &[], value),
                None => writer.delete(TreeId(tree), &key),
            }
            self.versions
                .insert((tree, key, std::cmp::Reverse(revision)), value);
        }
        let mut round = self
            .engine
            .begin_group(1, count, batch.len() as u64)
            .unwrap();
        round.apply(&batch).unwrap();
        assert_eq!(round.finish().unwrap(), revision);
        self.engine.run_background_if_manual().unwrap();
    }

    fn expected(&self, tree: u8, key: &[u8], at: Revision) -> Option<Vec<u8>> {
        let from = (tree, key.to_vec(), std::cmp::Reverse(at));
        let found = self.versions.range(from..).next();
        let found = found.filter(|((t, k, _), _)| *t == tree && k == key);
        found.and_then(|(_, value)| value.clone())
    }

    fn expected_range(&self, tree: u8, at: Revision) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut keys: Vec<_> = self
            .versions
            .keys()
            .filter(|(t, ..)| *t == tree)
            .map(|(_, k, _)| k.clone())
            .collect();
        keys.dedup();
        let present = |key: Vec<u8>| self.expected(tree, &key, at).map(|value| (key, value));
        keys.into_iter().filter_map(present).collect()
    }

    fn get(&self, tree: u8, key: &[u8], at: Revision) -> Option<Vec<u8>> {
        let read = |found: Option<Found<'_>>| {
            found
                .filter(|f| f.kind == EntryKind::Put)
                .map(|f| f.bytes().to_vec())
        };
        self.engine.read_at(TreeId(tree), key, at, read).unwrap()
    }

    fn scan(&self, tree: u8, at: Revision, direction: ScanDirection) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = self.engine.scan(TreeId(tree), lower, upper, at, direction);
        let mut found = Vec::new();
        while scan.advance().unwrap() {
            found.push((scan.key().to_vec(), scan.bytes().to_vec()));
        }
        found
    }

    pub(super) fn compare_at(&self, at: Revision) {
        for tree in 0..TREES {
            let expected = self.expected_range(tree, at);
            assert_eq!(
                self.scan(tree, at, ScanDirection::Forward),
                expected,
                "tree {tree} at {at}"
            );
            let mut backward = self.scan(tree, at, ScanDirection::Backward);
            backward.reverse();
            assert_eq!(backward, expected, "tree {tree} at {at}, backward");
            for number in 0..200 {
                let key = format!("key-{number:03}").into_bytes();
                let expected = self.expected(tree, &key, at);
                assert_eq!(
                    self.get(tree, &key, at),
                    expected,
                    "tree {tree}, {number} at {at}"
                );
            }
        }
    }

    pub(super) fn reopen(&mut self) {
        self.engine.close().unwrap();
        self.engine = open(&self.vfs, &self.options);
    }

    pub(super) fn check_files(&self) {
        let vfs: Arc<dyn Vfs> = Arc::new(self.vfs.clone());
        let report = self
            .engine
            .while_files_rest(|| check_directory(&vfs, "/db"))
            .unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

pub(super) const STRATEGIES: [Strategy; 3] =
    [Strategy::LazyLeveling, Strategy::Leveled, Strategy::Tiered];

/// Each strategy with a seed, from `first` on; and one of them with a fresh seed.
fn strategies(first: u64) -> impl Iterator<Item = (u64, Strategy)> {
    let seeds = crate::seeds(first..first + STRATEGIES.len() as u64);
    seeds.map(move |seed| {
        let number = seed.wrapping_sub(first) % STRATEGIES.len() as u64;
        (seed, STRATEGIES[number as usize])
    })
}

#[test]
fn every_strategy_keeps_every_revision_readable() {
    for (seed, strategy) in strategies(11) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(strategy, History::All);
        for step in 0..700 {
            harness.commit(&mut rng);
            if step % 150 == 149 {
                harness.reopen();
            }
            if step % 100 == 99 {
                let newest = harness.engine.visible();
                harness.compare_at(newest);
                harness.compare_at(rng.u64(1..=newest));
            }
        }
        harness.check_files();
        let counters = harness.engine.stats().counters;
        let deepest = harness.engine.stats().levels.iter().map(Vec::len).max();
        assert!(
            counters.flushes > 5 && counters.compactions > 3,
            "{strategy:?}: {counters:?}"
        );
        // Merges are cut into ranges, and the reads above went over their seams.
        assert!(
            2 * counters.compaction_ranges > 3 * counters.compactions,
            "{strategy:?}: {counters:?}"
        );
        assert!(deepest >= Some(3), "{strategy:?} never went below level 1");
        harness.engine.compact_tables().unwrap();
        harness.compare_at(harness.engine.visible());
        harness.compare_at(2);
        harness.check_files();
    }
}

#[test]
fn without_history_space_comes_back_and_pins_still_read() {
    for (seed, strategy) in strategies(31) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(strategy, History::None);
        let mut pins = Vec::new();
        for step in 0..600 {
            harness.commit(&mut rng);
            if step % 97 == 50 {
                pins.push(harness.engine.pin_newest());
            }
            if step % 130 == 129 {
                pins.remove(rng.usize(0..pins.len()));
                for pin in &pins {
                    harness.compare_at(pin.revision());
                }
                harness.compare_at(harness.engine.visible());
            }
        }
        pins.clear();
        harness.engine.compact_tables().unwrap();
        harness.compare_at(harness.engine.visible());
        let entries: u64 = harness
            .engine
            .stats()
            .levels
            .iter()
            .flatten()
            .map(|level| level.entries)
            .sum();
        let present: usize = (0..TREES)
            .map(|tree| harness.expected_range(tree, harness.engine.visible()).len())
            .sum();
        // Tombstones of the very last revision may stay for a watch that starts there.
        assert!(
            entries <= present as u64 + 5,
            "{strategy:?}: {entries} entries, {present} keys"
        );
        assert!(harness.engine.pin_at(2).is_err(), "the past was trimmed");
    }
}

/// A tree that holds a revision: whatever is merged, and however often it is opened anew, what the tree had then and
/// the versions since lead to what it has now. A tree that holds none keeps nothing for that.
#[test]
fn what_a_tree_holds_leads_from_there_to_now() {
    for (seed, strategy) in strategies(77) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(strategy, History::None);
        let mut held: Held = None;
        let mut rounds = 0;
        for step in 0..700 {
            harness.commit(&mut rng);
            if step % 70 == 35 {
                harness.engine.compact_tables().unwrap();
            }
            if step % 110 == 60 {
                let vfs = harness.vfs.clone();
                harness.engine.close().unwrap();
                harness.engine = open(&vfs, &harness.options);
            }
            let held_revision = held.as_ref().map(|(revision, _)| *revision);
            assert_eq!(harness.engine.held_revision(TreeId(0)), held_revision);
            if step % 50 == 49 {
                let newest = harness.engine.visible();
                let now = BTreeMap::from_iter(harness.expected_range(0, newest));
                if let Some((revision, mut then)) = held.take() {
                    let mut changes = Vec::new();
                    let all = Bound::Unbounded;
                    let span = (revision + 1, newest);
                    let visit = &mut |key: &[u8], at, kind, value: &[u8]| {
                        let value = (kind == EntryKind::Put).then(|| value.to_vec());
                        changes.push((at, key.to_vec(), value));
                        Next::All
                    };
                    let engine = &harness.engine;
                    engine
                        .for_each_version(TreeId(0), all, all, span, visit)
                        .unwrap();
                    changes.sort();
                    for (_, key, value) in changes {
                        match value {
                            Some(value) => then.insert(key, value),
                            None => then.remove(&key),
                        };
                    }
                    assert_eq!(then, now, "{strategy:?} from {revision} to {newest}");
                    rounds += 1;
                }
                let pin = harness.engine.pin_newest();
                let hold = (step % 100 == 49).then_some(pin.revision());
                harness.engine.hold_tree(TreeId(0), hold).unwrap();
                held = hold.map(|revision| (revision, now));
            }
        }
        assert!(rounds > 3, "{rounds}");
    }
}

/// Keys that are alike in their first eight bytes, that end within them, and that have zeros there:
/// a scan that compares by these must still compare the keys.
#[test]
fn a_scan_of_any_range_over_many_runs_is_that_of_a_sorted_map() {
    for seed in crate::seeds(17..18) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let key = |rng: &mut fastrand::Rng| {
            let start = [&b""[..], b"a", b"tenant/", b"tenant/1", b"tenant/12"][rng.usize(..5)];
            let mut key = start.to_vec();
            key.extend((0..rng.usize(..5)).map(|_| b"\0a\xff"[rng.usize(..3)]));
            key
        };
        let mut options = options(Strategy::Tiered, History::All);
        options.compaction.runs_max = 9;
        let engine = open(&MemoryVfs::default(), &options);
        // Newest revision first.
        let mut model = BTreeMap::<Vec<u8>, Vec<(Revision, Option<u8>)>>::new();
        for round in 0..9 {
            for _ in 0..40 {
                let revision = engine.visible() + 1;
                let (key, value) = (key(&mut rng), (rng.u8(..4) > 0).then(|| rng.u8(..)));
                let mut batch = Vec::new();
                let mut writer = BatchWriter::start(&mut batch, revision);
                match value {
                    Some(value) => writer.put(TreeId(1), &key, &[], &[value]),
                    None => writer.delete(TreeId(1), &key),
                }
                let mut commit = engine.begin_group(1, 1, batch.len() as u64).unwrap();
                commit.apply(&batch).unwrap();
                commit.finish().unwrap();
                model.entry(key).or_default().insert(0, (revision, value));
            }
            if round < 8 {
                engine.flush().unwrap();
            }
        }
        let runs: u64 = engine.stats().levels[1]
            .iter()
            .map(|level| level.runs)
            .sum();
        assert!(runs >= 6, "{runs} runs are not many");
        for _ in 0..2_000 {
            let mut bounds = [key(&mut rng), key(&mut rng)];
            bounds.sort();
            if bounds[0] == bounds[1] {
                // An empty range of one kind is no range for the model.
                bounds[1].push(0);
            }
            let [lower, upper] = bounds.map(|key| match rng.u8(..6) {
                0 | 1 => Bound::Included(key),
                2 | 3 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            });
            let at = rng.u64(1..=engine.visible());
            let present = |(key, versions): (&Vec<u8>, &Vec<(Revision, Option<u8>)>)| {
                let (_, value) = versions.iter().find(|(revision, _)| *revision <= at)?;
                value.map(|value| (key.clone(), value))
            };
            let range = (lower.clone(), upper.clone());
            let mut expected: Vec<_> = model.range(range.clone()).filter_map(present).collect();
            for direction in [ScanDirection::Forward, ScanDirection::Backward] {
                let (lower, upper) = (lower.clone(), upper.clone());
                let mut scan = engine.scan(TreeId(1), lower, upper, at, direction);
                let mut found = Vec::new();
                while scan.advance().unwrap() {
                    assert_eq!(scan.position(), Some(scan.key()));
                    found.push((scan.key().to_vec(), scan.bytes()[0]));
                }
                assert!(scan.position().is_none());
                assert_eq!(found, expected, "{range:?} at {at} {direction:?}");
                expected.reverse();
            }
        }
    }
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    for seed in crate::seeds(5..6) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(Strategy::LazyLeveling, History::All);
        for _ in 0..200 {
            harness.commit(&mut rng);
        }
        let revision = harness
            .engine
            .checkpoint(std::path::Path::new("/copy"))
            .unwrap();
        assert_eq!(revision, harness.engine.visible());
        let error = harness
            .engine
            .checkpoint(std::path::Path::new("/copy"))
            .unwrap_err();
        assert!(error.to_string().contains("/copy"), "{error}");
        let expected: Vec<_> = (0..TREES)
            .map(|tree| harness.expected_range(tree, revision))
            .collect();
        for _ in 0..100 {
            harness.commit(&mut rng);
        }
        let clock = Arc::new(SystemClock::new());
        let vfs = Arc::new(harness.vfs.clone());
        for _ in 0..2 {
            let copy =
                Engine::open(vfs.clone(), clock.clone(), "/copy", harness.options.clone()).unwrap();
            assert_eq!(copy.visible(), revision);
            assert_eq!(copy.database_id(), harness.engine.database_id());
            let other = Harness {
                vfs: harness.vfs.clone(),
                options: harness.options.clone(),
                engine: copy,
                versions: Versions::new(),
                value_bytes_max: 60,
            };
            for tree in 0..TREES {
                let found = other.scan(tree, revision, ScanDirection::Forward);
                assert_eq!(found, expected[usize::from(tree)]);
            }
        }
    }
}

/// A program that runs for one write, a thousand times, left a thousand segments of the log.
#[test]
fn many_short_openings_do_not_pile_up_files() {
    for seed in crate::seeds(9..10) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(Strategy::LazyLeveling, History::All);
        for _ in 0..100 {
            harness.commit(&mut rng);
            harness.reopen();
            let segments = harness
                .vfs
                .read_dir(&Layout::new("/db").log())
                .unwrap()
                .len();
            assert!(
                segments <= LOG_SEGMENTS_AT_OPEN_MAX + 3,
                "{segments} files in the log"
            );
        }
        harness.compare_at(harness.engine.visible());
    }
}

#[test]
fn a_group_dropped_half_way_stops_writing_and_shows_nothing() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut harness = Harness::new(Strategy::LazyLeveling, History::All);
    harness.commit(&mut rng);
    let visible = harness.engine.visible();
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, visible + 1);
    writer.put(TreeId(0), b"lost", &[], b"value");
    let mut round = harness
        .engine
        .begin_group(1, 1, batch.len() as u64)
        .unwrap();
    round.apply(&batch).unwrap();
    drop(round);
    assert_eq!(harness.engine.visible(), visible);
    assert_eq!(harness.get(0, b"lost", visible), None);
    let refused = harness.engine.begin_group(1, 1, 10).map(drop);
    assert!(
        matches!(refused, Err(Error::Poisoned { .. })),
        "{refused:?}"
    );
    harness.reopen();
    assert_eq!(harness.engine.visible(), visible);
    harness.commit(&mut rng);
    harness.compare_at(visible + 1);
}

#[test]
fn a_version_above_a_bound_is_found_wherever_it_lies() {
    for seed in crate::seeds(3..4) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut harness = Harness::new(Strategy::LazyLeveling, History::All);
        for _ in 0..300 {
            harness.commit(&mut rng);
        }
        let newest = harness.engine.visible();
        for _ in 0..2_000 {
            let (tree, since) = (rng.u8(0..TREES), rng.u64(0..newest + 2));
            let key = format!("key-{:03}", rng.u32(0..210)).into_bytes();
            let from = (tree, key.clone(), std::cmp::Reverse(Revision::MAX));
            let last = harness.versions.range(from..).next();
            let last = last.filter(|((t, k, _), _)| *t == tree && *k == key);
            let expected = last
                .map(|((.., revision), _)| revision.0)
                .filter(|last| *last > since);
            let read = |found: Option<Found<'_>>| found.map(|found| found.revision);
            let found = harness
                .engine
                .read_since(TreeId(tree), &key, since, read)
                .unwrap();
            assert_eq!(found, expected);
            let bound = Bound::Included(&key[..]);
            let changed = harness
                .engine
                .changed_since(TreeId(tree), bound, bound, since)
                .unwrap();
            assert_eq!(changed, expected.is_some());
        }
    }
}

/// A crash while a torn manifest is replaced leaves the torn one and, unfinished, the next and the
/// next `BOWLINE`. The next opening wrote these anew, made them current, and then removed them as
/// leftovers: the manifest was gone, and `BOWLINE.new` could not be found.
#[test]
fn a_manifest_written_over_a_leftover_is_not_removed_as_one() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut harness = Harness::new(Strategy::LazyLeveling, History::All);
    for _ in 0..60 {
        harness.commit(&mut rng);
    }
    harness.engine.close().unwrap();
    let layout = Layout::new("/db");
    let number = Identity::read(&harness.vfs, &layout)
        .unwrap()
        .unwrap()
        .manifest;
    let open_file = |path: &std::path::Path, mode| harness.vfs.open(path, mode).unwrap();
    let torn = open_file(&layout.manifest(number), crate::vfs::OpenMode::ReadWrite);
    torn.write_at(&[9; 20], torn.len().unwrap()).unwrap();
    let leftover = open_file(
        &layout.manifest(number + 1),
        crate::vfs::OpenMode::CreateNew,
    );
    leftover.write_at(b"unfinished", 0).unwrap();
    let leftover = open_file(&layout.identity_new(), crate::vfs::OpenMode::CreateNew);
    leftover.write_at(b"unfinished", 0).unwrap();
    harness.reopen();
    harness.check_files();
    harness.commit(&mut rng);
    harness.reopen();
    harness.compare_at(harness.engine.visible());
    let names = harness.vfs.read_dir(layout.root()).unwrap();
    let manifests = names
        .iter()
        .filter(|name| Layout::manifest_number(name).is_some());
    assert_eq!(manifests.count(), 1, "{names:?}");
}

/// Others committed between the end of the memtable and its flush, which raised the floor to their revisions. The copy, which
/// has not got them, could read no revision, and a watch of it never began.
#[test]
fn a_checkpoint_beside_writers_can_read_its_own_revision() {
    let vfs = MemoryVfs::default();
    let options = options(Strategy::LazyLeveling, History::None);
    let engine = &open(&vfs, &options);
    let commit = |key: &[u8], value: Option<&[u8]>| {
        let mut batch = Vec::new();
        let revision = engine.visible() + 1;
        let mut writer = BatchWriter::start(&mut batch, revision);
        match value {
            Some(value) => writer.put(TreeId(0), key, &[], value),
            None => writer.delete(TreeId(0), key),
        }
        let mut round = engine.begin_group(1, 1, batch.len() as u64).unwrap();
        round.apply(&batch).unwrap();
        round.finish().unwrap()
    };
    commit(b"a", Some(b"1"));
    let deleted = commit(b"a", None);
    std::thread::scope(|scope| {
        let checkpoint = engine.while_files_rest(|| {
            let checkpoint =
                scope.spawn(move || engine.checkpoint(std::path::Path::new("/copy")).unwrap());
            while engine.core.view.load_full().sealed.is_empty() {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                commit(b"b", Some(b"2"));
            }
            checkpoint
        });
        assert_eq!(checkpoint.join().unwrap(), deleted);
    });
    let clock = Arc::new(SystemClock::new());
    let copy = Engine::open(Arc::new(vfs.clone()), clock, "/copy", options).unwrap();
    assert_eq!(copy.visible(), deleted);
    assert!(copy.history_floor() <= deleted);
    assert_eq!(copy.pin_at(deleted).unwrap().revision(), deleted);
    assert_eq!(copy.pin_watch_next().0, deleted + 1);
    copy.pin_watch(deleted).unwrap();
    // Who watches the copy from its oldest revision on sees the deletion.
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], revision: u64, kind: EntryKind, _: &[u8]| {
        seen.push((key.to_vec(), revision, kind));
        Next::All
    };
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    copy.for_each_version(TreeId(0), lower, upper, (deleted, deleted), &mut visit)
        .unwrap();
    assert_eq!(seen, [(b"a".to_vec(), deleted, EntryKind::Delete)]);
}
