//! Merges in ranges, over tables and over blob files: interrupted at every step, on a full disk, with
//! threads, and what holds writers back while merges are behind.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Order};
use std::sync::{Condvar as StdCondvar, Mutex as StdMutex};
use std::time::{Duration, Instant};

use super::*;
use crate::blob::BlobOptions;
use crate::compaction::Strategy;
use crate::table::Table;
use crate::vfs::{MemoryVfs, Metadata, OpenMode, VfsFile, VfsLock};
use crate::workers::Background;
use crate::{SystemClock, TreeId};

// --- disks ---

/// What a [`TrippedVfs`] does from an operation on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trip {
    /// Nothing works any more: the process is gone.
    Kill,
    /// The operation fails once.
    Once,
    /// There is no room.
    Full,
    /// There is no room for blob files.
    FullOfBlobs,
}

/// Passes on to a disk in memory, until the n-th operation that changes something.
#[derive(Debug, Clone)]
struct TrippedVfs {
    disk: MemoryVfs,
    trip: Trip,
    /// How many operations there were, and the one that fails; 0 is none.
    count: Arc<AtomicU64>,
    at: Arc<AtomicU64>,
}

impl TrippedVfs {
    fn new(disk: &MemoryVfs, trip: Trip) -> TrippedVfs {
        TrippedVfs {
            disk: disk.clone(),
            trip,
            count: Arc::default(),
            at: Arc::default(),
        }
    }

    /// Trips at the n-th operation from now on; never with 0.
    fn arm(&self, at: u64) {
        self.count.store(0, Order::Relaxed);
        self.at.store(at, Order::Relaxed);
    }

    fn step(&self, takes_room: bool) -> io::Result<()> {
        let number = self.count.fetch_add(1, Order::Relaxed) + 1;
        let at = self.at.load(Order::Relaxed);
        let fails = match self.trip {
            _ if at == 0 => false,
            Trip::Kill => number >= at,
            Trip::Once => number == at,
            Trip::Full => number >= at && takes_room,
            Trip::FullOfBlobs => false,
        };
        match (fails, self.trip) {
            (false, _) => Ok(()),
            (true, Trip::Full) => Err(io::ErrorKind::StorageFull.into()),
            (true, _) => Err(io::Error::other("tripped")),
        }
    }
}

#[derive(Debug)]
struct TrippedFile(Arc<dyn VfsFile>, TrippedVfs);

impl Vfs for TrippedVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        if mode == OpenMode::CreateNew {
            self.step(true)?;
            let is_armed = self.at.load(Order::Relaxed) > 0;
            let is_blob = path
                .extension()
                .is_some_and(|extension| extension == "blob");
            if self.trip == Trip::FullOfBlobs && is_armed && is_blob {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(TrippedFile(file, self.clone())))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.read_dir(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.disk.metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(false)?;
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(false)?;
        self.disk.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(false)?;
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.disk.lock(path)
    }
}

impl VfsFile for TrippedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.1.step(true)?;
        self.0.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.step(false)?;
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.step(false)?;
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// Holds back the tables that merges in the background make, when they are more than were let
/// through.
#[derive(Debug, Clone)]
struct GatedVfs {
    disk: MemoryVfs,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// How many may still pass, and how many wait.
    state: StdMutex<(u64, u64)>,
    changed: StdCondvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |state| state.0 == 0)
            .unwrap();
        state.0 -= 1;
        state.1 -= 1;
    }

    fn let_through(&self, more: u64) {
        self.state.lock().unwrap().0 += more;
        self.changed.notify_all();
    }

    /// Waits until somebody waits in vain.
    fn wait_until_shut(&self) {
        let state = self.state.lock().unwrap();
        let shut = self
            .changed
            .wait_while(state, |state| state.0 > 0 || state.1 == 0);
        drop(shut.unwrap());
    }
}

impl Vfs for GatedVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let is_of_merge = std::thread::current().name() == Some("bowline-compact");
        if mode == OpenMode::CreateNew && is_of_merge {
            self.gate.pass();
        }
        self.disk.open(path, mode)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.read_dir(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.disk.metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.disk.lock(path)
    }
}

/// The files of a database, without its lock, on another disk.
fn copy_of(disk: &MemoryVfs) -> MemoryVfs {
    let copy = MemoryVfs::default();
    let layout = Layout::new("/db");
    for directory in [layout.root().to_owned(), layout.log(), layout.tables()] {
        copy.create_dir(&directory).unwrap();
        for name in disk.read_dir(&directory).unwrap() {
            let path = directory.join(name);
            if disk.metadata(&path).unwrap().unwrap().is_dir || path == layout.lock() {
                continue;
            }
            let bytes = crate::vfs::read_file(disk, &path, u64::MAX).unwrap();
            let file = copy.open(&path, OpenMode::CreateNew).unwrap();
            crate::vfs::write_all_at(&*file, &path, &bytes, 0).unwrap();
        }
    }
    copy
}

// --- databases ---

/// A closed database with many runs in level 0 that nobody has merged, and what it holds.
fn unmerged(seed: u64, change: impl FnOnce(&mut EngineOptions)) -> (MemoryVfs, Versions) {
    let mut options = options(Strategy::LazyLeveling, History::All);
    options.compaction.runs_max = 1000;
    change(&mut options);
    let mut harness = Harness::with(MemoryVfs::default(), options);
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..70 {
        harness.commit(&mut rng);
    }
    harness.engine.flush().unwrap();
    harness.engine.close().unwrap();
    (harness.vfs.clone(), harness.versions)
}

/// The same with large values, most of which are older: they are in one run, in blob files that are
/// garbage by about half.
fn unmerged_with_blobs(seed: u64) -> (MemoryVfs, Versions) {
    let mut options = with_blobs(options(Strategy::LazyLeveling, History::Revisions(5)));
    options.blobs.garbage_percent_max = 99;
    options.compaction.runs_max = 1000;
    let mut harness = Harness::with(MemoryVfs::default(), options);
    harness.value_bytes_max = 200;
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..2 {
        for _ in 0..40 {
            harness.commit(&mut rng);
        }
        harness.engine.compact_tables().unwrap();
    }
    for _ in 0..25 {
        harness.commit(&mut rng);
    }
    harness.engine.flush().unwrap();
    assert!(harness.engine.stats().blob_garbage_bytes > 0);
    harness.engine.close().unwrap();
    (harness.vfs.clone(), harness.versions)
}

fn with_blobs(options: EngineOptions) -> EngineOptions {
    EngineOptions {
        blobs: BlobOptions {
            threshold_bytes: Some(64),
            garbage_percent_max: 20,
            file_bytes: 1 << 10,
        },
        ..options
    }
}

/// Opens without doing what is due.
fn open_idle(vfs: impl Vfs + 'static, options: &EngineOptions) -> Engine {
    let clock = Arc::new(SystemClock::new());
    let layout = Layout::new("/db");
    let opened = open::open(Arc::new(vfs), clock, layout, options.clone(), None);
    Engine::start(opened.unwrap().0).unwrap()
}

/// Merges all that is due; how many merges that were.
fn merge_all(engine: &Engine) -> Result<u64> {
    let mut merges = 0;
    while engine.compactor.compact_once()? {
        merges += 1;
    }
    Ok(merges)
}

/// Compares the database on `disk`, opened by `engine`, with what it must hold, and its files with
/// those it names.
fn check(disk: &MemoryVfs, options: &EngineOptions, engine: Engine, versions: &Versions) -> Engine {
    let harness = Harness {
        vfs: disk.clone(),
        options: options.clone(),
        engine,
        versions: versions.clone(),
        value_bytes_max: 0,
    };
    let (floor, newest) = (harness.engine.history_floor(), harness.engine.visible());
    // At a floor that is too low there was hardly anything; a little above it there was.
    for at in [floor, floor + (newest - floor) / 4, newest] {
        harness.compare_at(at);
    }
    assert_eq!(files(disk), named(&harness.engine));
    harness.check_garbage();
    harness.engine
}

fn files(disk: &MemoryVfs) -> BTreeSet<String> {
    let names = disk.read_dir(&Layout::new("/db").tables()).unwrap();
    names.into_iter().collect()
}

fn named(engine: &Engine) -> BTreeSet<String> {
    let version = engine.core.view.load_full().version.clone();
    let tables = version.tables().map(|table| table.path());
    let paths = tables.chain(version.blobs.values().map(|blob| blob.file.path()));
    paths
        .map(|path| path.file_name().unwrap())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

// --- interrupted ---

/// Whether values are in the tables, or also in blob files.
const KINDS: [bool; 2] = [false, true];

type Merging = (MemoryVfs, Versions, EngineOptions, u64);

/// What is merged, and how many ranges that takes when nothing comes between.
fn merging(seed: u64, has_blobs: bool) -> Merging {
    let mut options = options(Strategy::LazyLeveling, History::Revisions(5));
    let (disk, versions) = match has_blobs {
        false => unmerged(seed, |_| {}),
        true => {
            options = with_blobs(options);
            unmerged_with_blobs(seed)
        }
    };
    let copy = copy_of(&disk);
    let engine = open_idle(copy.clone(), &options);
    merge_all(&engine).unwrap();
    let counters = engine.stats().counters;
    let (merges, ranges) = (counters.compactions, counters.compaction_ranges);
    assert!(
        ranges >= 2 * merges && merges >= u64::from(TREES),
        "{ranges} in {merges}"
    );
    assert_eq!(counters.blob_compaction_bytes_written > 0, has_blobs);
    check(&copy, &options, engine, &versions);
    (disk, versions, options, ranges)
}

#[test]
fn a_merge_killed_at_any_step_loses_nothing_and_starts_anew() {
    for has_blobs in KINDS {
        for seed in crate::seeds(1..2) {
            kill_at_any_step(merging(seed, has_blobs));
        }
    }
}

fn kill_at_any_step((disk, versions, options, all): Merging) {
    let (mut most_begun, mut step) = (0, 0);
    loop {
        step += 1;
        let killed = copy_of(&disk);
        let vfs = TrippedVfs::new(&killed, Trip::Kill);
        let engine = open_idle(vfs.clone(), &options);
        vfs.arm(step);
        let result = merge_all(&engine);
        let counters = engine.stats().counters;
        most_begun = most_begun.max(counters.compaction_ranges - counters.compactions);
        drop(engine);
        if result.is_ok() {
            break;
        }
        let left = copy_of(&killed);
        // With all history kept from now on, the floor of what was merged is the only one there is.
        let later = EngineOptions {
            history: History::All,
            ..options.clone()
        };
        let engine = open_idle(left.clone(), &later);
        assert_eq!(files(&left), named(&engine), "step {step}");
        merge_all(&engine).unwrap();
        check(&left, &later, engine, &versions);
    }
    assert!(
        step > all && most_begun >= 2,
        "{step} steps, {most_begun} ranges at most"
    );
}

#[test]
fn a_merge_that_fails_at_any_step_is_repeated_in_the_same_process() {
    for has_blobs in KINDS {
        for seed in crate::seeds(2..3) {
            fail_at_any_step(merging(seed, has_blobs));
        }
    }
}

fn fail_at_any_step((disk, versions, options, all): Merging) {
    let mut step = 0;
    loop {
        step += 1;
        let disk = copy_of(&disk);
        let vfs = TrippedVfs::new(&disk, Trip::Once);
        let engine = open_idle(vfs.clone(), &options);
        vfs.arm(step);
        let engine = match merge_all(&engine) {
            Ok(_) if vfs.count.load(Order::Relaxed) < step => break,
            // The removal of a table failed, or there was nothing to fail.
            Ok(_) => continue,
            Err(Error::Poisoned { .. }) => {
                // The edit may be on the disk, and here it is: whatever else is tried meanwhile, its
                // tables stay.
                assert!(matches!(
                    engine.compact_tables(),
                    Err(Error::Poisoned { .. })
                ));
                assert!(matches!(merge_all(&engine), Err(Error::Poisoned { .. })));
                assert!(engine.flusher.flush_into_tables(&engine.compactor).is_err());
                drop(engine);
                open_idle(vfs.clone(), &options)
            }
            Err(_) => engine,
        };
        merge_all(&engine).unwrap();
        // A file that could not be removed is removed by the next opening.
        drop(engine);
        let engine = open_idle(disk.clone(), &options);
        check(&disk, &options, engine, &versions);
    }
    assert!(step > all, "{step} steps");
}

#[test]
fn a_merge_on_a_full_disk_gives_back_all_room_it_took() {
    for has_blobs in KINDS {
        for seed in crate::seeds(3..4) {
            fill_at_any_step(merging(seed, has_blobs));
        }
    }
}

fn fill_at_any_step((disk, versions, options, all): Merging) {
    let mut step = 0;
    loop {
        step += 1;
        let disk = copy_of(&disk);
        let vfs = TrippedVfs::new(&disk, Trip::Full);
        let engine = open_idle(vfs.clone(), &options);
        vfs.arm(step);
        match merge_all(&engine) {
            Ok(_) => break,
            Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("step {step}: {error}"),
        }
        assert_eq!(files(&disk), named(&engine), "step {step}");
        vfs.arm(0);
        merge_all(&engine).unwrap();
        check(&disk, &options, engine, &versions);
    }
    assert!(step > all, "{step} steps");
}

#[test]
fn a_merge_interrupted_by_a_close_leaves_no_file() {
    let (disk, versions) = unmerged(7, |_| {});
    let mut options = options(Strategy::LazyLeveling, History::All);
    options.log.background = Background::Threads;
    options.compaction.threads = 1;
    let gate = Arc::new(Gate::default());
    let vfs = GatedVfs {
        disk: disk.clone(),
        gate: gate.clone(),
    };
    let engine = open_idle(vfs, &options);
    gate.let_through(2);
    gate.wait_until_shut();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| engine.close());
        while !engine.core.jobs.is_closing() {
            std::thread::yield_now();
        }
        gate.let_through(1000);
        closing.join().unwrap().unwrap();
    });
    let counters = engine.stats().counters;
    assert_eq!((counters.compactions, counters.compaction_ranges), (0, 2));
    assert_eq!(files(&disk), named(&engine));
    drop(engine);
    options.log.background = Background::Manual;
    let engine = open_idle(disk.clone(), &options);
    assert!(merge_all(&engine).unwrap() >= u64::from(TREES));
    check(&disk, &options, engine, &versions);
}

/// Values are moved to save room. When there is none for that, they stay where they are, and merges
/// are done all the same.
#[test]
fn a_merge_that_finds_no_room_for_the_values_it_moves_carries_them_on() {
    let (disk, versions, options, _) = merging(13, true);
    let with_room = open_idle(copy_of(&disk), &options);
    with_room.compact_tables().unwrap();
    let expected = with_room.stats();
    assert!(expected.counters.blob_compaction_bytes_written > 0);

    let vfs = TrippedVfs::new(&disk, Trip::FullOfBlobs);
    let engine = open_idle(vfs.clone(), &options);
    vfs.arm(1);
    engine.compact_tables().unwrap();
    let stats = engine.stats();
    let moved = stats.counters.blob_compaction_bytes_written;
    assert_eq!((stats.counters.compactions, moved), (u64::from(TREES), 0));
    assert!(stats.blob_garbage_bytes > expected.blob_garbage_bytes);
    let engine = check(&disk, &options, engine, &versions);
    vfs.arm(0);
    merge_all(&engine).unwrap();
    check(&disk, &options, engine, &versions);
}

// --- ranges ---

#[test]
fn a_table_that_crosses_the_borders_of_ranges_is_merged_once() {
    // One large table in each run, and four ranges.
    let large = |options: &mut EngineOptions| {
        options.compaction.table_bytes = 1 << 20;
        options.compaction.range_bytes_min = 256;
        options.compaction.threads = 4;
    };
    let (disk, versions) = unmerged(8, large);
    let mut options = options(Strategy::LazyLeveling, History::All);
    large(&mut options);
    let engine = open_idle(disk.clone(), &options);
    let crossing = {
        let version = engine.core.view.load_full().version.clone();
        let tables: Vec<_> = version.tree(TreeId(0)).tables().cloned().collect();
        let cuts = crate::compaction::cut(&tables, 4);
        assert_eq!(cuts.len(), 3);
        let meets = |table: &&Arc<Table>, number| {
            let range = crate::compaction::KeyRange::nth(&cuts, number);
            range.meets(&table.meta().min_key, &table.meta().max_key)
        };
        let is_in_all = |table: &&Arc<Table>| (0..4).all(|number| meets(table, number));
        tables.iter().filter(is_in_all).count()
    };
    assert!(crossing >= 3, "{crossing} tables");
    engine.compact_tables().unwrap();
    assert_eq!(
        engine.stats().counters.compaction_ranges,
        4 * u64::from(TREES)
    );
    let tables = |levels: &Vec<LevelStats>| levels.iter().map(|level| level.tables).sum::<u64>();
    assert!(
        engine
            .stats()
            .levels
            .iter()
            .all(|levels| tables(levels) == 4)
    );
    check(&disk, &options, engine, &versions);
}

#[test]
fn threads_merge_what_one_does_for_every_strategy() {
    for (seed, strategy) in strategies(91) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut options = options(strategy, History::All);
        options.log.background = Background::Threads;
        options.compaction.range_bytes_min = 256;
        let mut harness = Harness::with(MemoryVfs::default(), options);
        for step in 0..400 {
            harness.commit(&mut rng);
            if step % 100 == 99 {
                harness.compare_at(rng.u64(1..=harness.engine.visible()));
            }
            if step == 250 {
                harness.reopen();
            }
        }
        harness.engine.compact_tables().unwrap();
        harness.compare_at(harness.engine.visible());
        harness.compare_at(rng.u64(1..=harness.engine.visible()));
        harness.check_files();
        let counters = harness.engine.stats().counters;
        let merges = counters.compactions;
        assert!(
            counters.compaction_ranges > 2 * merges,
            "{strategy:?}: {counters:?}"
        );
    }
}

// --- back-pressure ---

#[test]
fn writers_are_slowed_before_they_are_stopped() {
    let mut options = options(Strategy::LazyLeveling, History::None);
    options.log.background = Background::Threads;
    let gate = Arc::new(Gate::default());
    let vfs = GatedVfs {
        disk: MemoryVfs::default(),
        gate: gate.clone(),
    };
    let clock = Arc::new(SystemClock::new());
    let engine = Engine::open(Arc::new(vfs), clock, "/db", options).unwrap();
    let counters = || engine.stats().counters;
    let put = |number: u64| {
        let revision = engine.visible() + 1;
        let mut batch = Vec::new();
        let mut writer = BatchWriter::start(&mut batch, revision);
        writer.put(TreeId(0), &(number % 50).to_be_bytes(), &[], &[7; 100]);
        let mut round = engine.begin_group(1, 1, batch.len() as u64).unwrap();
        round.apply(&batch).unwrap();
        round.finish().unwrap();
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Order::Relaxed) {
                put(number);
                number += 1;
            }
        });
        // No merge is done, so that level 0 only grows.
        let start = Instant::now();
        while counters().rounds_stopped == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{:?}",
                counters()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        // Each of the many between the first that was slowed and the one that waits.
        let slowed = counters().rounds_slowed;
        assert!(
            slowed >= 20,
            "{slowed} rounds were slowed before one was stopped"
        );
        gate.let_through(u64::MAX / 2);
        let (commits, start) = (counters().commits, Instant::now());
        while counters().commits < commits + 100 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{:?}",
                counters()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Order::Relaxed);
        writer.join().unwrap();
    });
    let counters = counters();
    assert!(
        counters.rounds_slowed > counters.rounds_stopped,
        "{counters:?}"
    );
    let stats = engine.stats();
    assert!(stats.table_write_amplification() > Some(0.0));
    assert!(stats.write_amplification() > stats.table_write_amplification());
}

#[cfg(feature = "zstd")]
#[test]
fn the_last_level_is_zstd_when_asked_and_read_whatever_is_asked_now() {
    use crate::frame::Compression;
    let (disk, versions) = unmerged(9, |_| {});
    let mut options = options(Strategy::LazyLeveling, History::All);
    options.compaction.runs_max = 1000;
    options.compaction.table_bytes = 1 << 20;
    options.compaction.range_bytes_min = 1 << 20;
    for tree in &mut options.trees {
        tree.page_bytes = 4 << 10;
    }
    let mut bytes = Vec::new();
    for level in [None, Some(3), None, Some(19)] {
        options.compaction.last_level_compression = level.map(|level| Compression::Zstd { level });
        let engine = open_idle(disk.clone(), &options);
        // What was written under the setting before.
        let engine = check(&disk, &options, engine, &versions);
        engine.compact_tables().unwrap();
        bytes.push(engine.stats().table_bytes);
        check(&disk, &options, engine, &versions).close().unwrap();
    }
    let (lz4, zstd) = (bytes[0].min(bytes[2]), bytes[1].max(bytes[3]));
    assert!(zstd + zstd / 16 < lz4, "{bytes:?}");
}
