//! Merges in ranges, over tables and over blob files: interrupted at every step, on a full disk, with threads, and what holds writers
//! back while merges are behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering as Order};
use std::sync::{Condvar as StdCondvar, Mutex as StdMutex};
use std::time::Instant;

use super::tests::{Harness, STRATEGIES, TREES, Versions, options};
use super::*;
use crate::SystemClock;
use crate::blob::BlobOptions;
use crate::compaction::Strategy;
use crate::vfs::{MemoryVfs, Metadata, OpenMode, VfsFile};

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
    let opened = recovery::open(Arc::new(vfs), clock, layout, options.clone(), None);
    Engine::start(opened.unwrap().0).unwrap()
}

/// Merges all that is due; how many merges that were.
fn merge_all(engine: &Engine) -> Result<u64> {
    let mut merges = 0;
    while engine.shared.compact_once()? {
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
    let version = engine.shared.super_version.load_full().version.clone();
    let tables = version.tables().map(|table| table.path());
    let paths = tables.chain(version.blobs.values().map(|blob| blob.file.path()));
    paths
        .map(|path| path.file_name().unwrap())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// The merges under way that the manifest on `disk` has.
fn under_way(disk: &MemoryVfs) -> State {
    let layout = Layout::new("/db");
    let identity = Identity::read(disk, &layout).unwrap().unwrap();
    Manifest::read(disk, &layout, &identity).unwrap().0
}

fn finished_ranges(state: &State) -> u64 {
    state
        .merges
        .values()
        .map(|merge| merge.done.len() as u64)
        .sum()
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
fn a_merge_killed_at_any_step_loses_nothing_and_goes_on_where_it_was() {
    for has_blobs in KINDS {
        kill_at_any_step(merging(1, has_blobs));
    }
}

fn kill_at_any_step((disk, versions, options, all): Merging) {
    let (mut most_resumed, mut step) = (0, 0);
    loop {
        step += 1;
        let killed = copy_of(&disk);
        let vfs = TrippedVfs::new(&killed, Trip::Kill);
        let engine = open_idle(vfs.clone(), &options);
        vfs.arm(step);
        let result = merge_all(&engine);
        let before = engine.stats().counters.compaction_ranges;
        drop(engine);
        if result.is_ok() {
            break;
        }
        let left = copy_of(&killed);
        let finished = finished_ranges(&under_way(&left));
        // With all history kept from now on, the floor of what was merged is the only one there is.
        let later = EngineOptions {
            history: History::All,
            ..options.clone()
        };
        let engine = open_idle(left.clone(), &later);
        merge_all(&engine).unwrap();
        let counters = engine.stats().counters;
        assert_eq!(counters.compaction_ranges_resumed, finished, "step {step}");
        // One may have been finished, and not be written down.
        let merged = before + counters.compaction_ranges;
        assert!(
            merged <= all + 1,
            "step {step}: {merged} ranges, {all} are needed"
        );
        most_resumed = most_resumed.max(finished);
        check(&left, &later, engine, &versions);
    }
    assert!(
        step > all && most_resumed >= 2,
        "{step} steps, {most_resumed} taken up"
    );
}

#[test]
fn a_merge_that_fails_at_any_step_is_taken_up_in_the_same_process() {
    for has_blobs in KINDS {
        fail_at_any_step(merging(2, has_blobs));
    }
}

fn fail_at_any_step((disk, versions, options, all): Merging) {
    let (mut resumed, mut step) = (0, 0);
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
                assert!(engine.shared.flush_into_tables().is_err());
                drop(engine);
                open_idle(vfs.clone(), &options)
            }
            Err(_) => engine,
        };
        merge_all(&engine).unwrap();
        resumed += engine.stats().counters.compaction_ranges_resumed;
        // What was made for an edit that failed is removed by the next opening.
        drop(engine);
        let engine = open_idle(disk.clone(), &options);
        check(&disk, &options, engine, &versions);
    }
    assert!(
        step > all && resumed >= all,
        "{step} steps, {resumed} taken up"
    );
}

#[test]
fn a_merge_on_a_full_disk_gives_back_all_room_it_took() {
    for has_blobs in KINDS {
        fill_at_any_step(merging(3, has_blobs));
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
        assert_eq!(engine.stats().counters.compaction_ranges_resumed, 0);
        vfs.arm(0);
        merge_all(&engine).unwrap();
        check(&disk, &options, engine, &versions);
    }
    assert!(step > all, "{step} steps");
}

/// A database one of whose merges was killed with some ranges finished, in which values were moved
/// if it has blob files.
fn interrupted(seed: u64, has_blobs: bool) -> (MemoryVfs, Versions, EngineOptions) {
    let (disk, versions, options, _) = merging(seed, has_blobs);
    for step in 1.. {
        let killed = copy_of(&disk);
        let vfs = TrippedVfs::new(&killed, Trip::Kill);
        let engine = open_idle(vfs.clone(), &options);
        vfs.arm(step);
        assert!(
            merge_all(&engine).is_err(),
            "no merge had two ranges finished"
        );
        drop(engine);
        let state = under_way(&killed);
        let has_moved = state.finished_ranges().any(|files| !files.blobs.is_empty());
        if finished_ranges(&state) >= 2 && has_moved == has_blobs {
            return (copy_of(&killed), versions, options);
        }
    }
    unreachable!()
}

#[test]
fn a_finished_range_that_is_damaged_or_gone_is_merged_again() {
    for has_blobs in KINDS {
        let (disk, versions, options) = interrupted(4, has_blobs);
        let layout = Layout::new("/db");
        let state = under_way(&disk);
        let files = state.finished_ranges().collect::<Vec<_>>();
        let tables = files.iter().flat_map(|files| &files.tables);
        let table = tables.map(|meta| (layout.table(meta.file_id), meta.file_bytes));
        let blobs = files.iter().flat_map(|files| &files.blobs);
        let blob = blobs.map(|meta| (layout.blob(meta.file_id), meta.file_bytes));
        let firsts = [{ table }.next(), { blob }.next()];
        assert_eq!(firsts.iter().flatten().count(), 1 + usize::from(has_blobs));
        for (path, bytes) in firsts.into_iter().flatten() {
            for offset in [None, Some(20), Some(bytes / 2), Some(bytes - 20)] {
                spoil(&copy_of(&disk), &path, offset, &versions, &options);
            }
        }
    }
}

fn spoil(
    disk: &MemoryVfs,
    path: &Path,
    offset: Option<u64>,
    versions: &Versions,
    options: &EngineOptions,
) {
    match offset {
        None => disk.remove_file(path).unwrap(),
        Some(offset) => {
            let file = disk.open(path, OpenMode::ReadWrite).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, offset).unwrap();
            file.write_at(&[byte[0] ^ 0x20], offset).unwrap();
        }
    }
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let report = check_directory(&vfs, "/db").unwrap();
    let told = report.files.iter().find(|file| file.path == path).unwrap();
    assert!(
        report.is_clean() && told.summary.contains("begin anew"),
        "{told:?}"
    );
    let engine = open_idle(disk.clone(), options);
    merge_all(&engine).unwrap();
    assert_eq!(engine.stats().counters.compaction_ranges_resumed, 0);
    check(disk, options, engine, versions);
}

/// What finished ranges made and refer to is there until it is the database's, and no copy, count of
/// garbage or file of a version knows of it before.
#[test]
fn a_merge_over_blob_files_is_taken_up_with_the_values_its_ranges_moved() {
    let (disk, versions, options) = interrupted(10, true);
    let layout = Layout::new("/db");
    let state = under_way(&disk);
    let mut made: BTreeMap<u64, u64> = BTreeMap::new();
    let mut carried = 0;
    for files in state.finished_ranges() {
        made.extend(files.blobs.iter().map(|blob| (blob.file_id, 0)));
        for to in files.references.iter().flat_map(|(_, all)| all.iter()) {
            match made.get_mut(&to.file_id) {
                Some(bytes) => *bytes += to.bytes,
                None => carried += u64::from(state.blobs.contains_key(&to.file_id)),
            }
        }
    }
    assert!(
        !made.is_empty() && carried > 0,
        "{made:?}, {carried} carried"
    );
    assert!(made.keys().all(|id| !state.blobs.contains_key(id)));
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let report = check_directory(&vfs, "/db").unwrap();
    let of_merge = |file: &&FileReport| file.summary.ends_with("values, of a merge under way");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.files.iter().filter(of_merge).count(), made.len());

    // Opened and closed, with a flush above it and a manifest that was written anew.
    let mut quiet = options.clone();
    quiet.compaction.runs_max = 1000;
    let clock = Arc::new(SystemClock::new());
    let (shared, _) =
        recovery::open(Arc::new(disk.clone()), clock, layout.clone(), quiet, None).unwrap();
    let stats = shared.stats();
    let live: u64 = state.blobs.values().map(|blob| blob.file_bytes).sum();
    assert_eq!(
        (stats.blob_bytes, stats.blob_files),
        (live, state.blobs.len() as u64)
    );
    assert!(stats.merging_bytes > 0);
    drop(shared);
    assert_eq!(under_way(&disk).merges, state.merges);

    let finished = finished_ranges(&state);
    let engine = open_idle(disk.clone(), &options);
    engine.shared.compact_once().unwrap();
    assert_eq!(engine.stats().counters.compaction_ranges_resumed, finished);
    {
        // Under their own numbers, and as much of them as was recorded.
        let version = engine.shared.super_version.load_full().version.clone();
        for (id, bytes) in &made {
            assert_eq!(version.blobs[id].referred_bytes, *bytes, "blob file {id}");
        }
    }
    let engine = check(&disk, &options, engine, &versions);
    merge_all(&engine).unwrap();
    check(&disk, &options, engine, &versions);
}

/// Emptying blob files rewrites tables that a merge under way reads: it ends, and leaves nothing.
#[test]
fn emptying_a_blob_file_that_a_merge_under_way_reads_ends_it() {
    let (disk, versions, options) = interrupted(11, true);
    let engine = open_idle(disk.clone(), &options);
    let tree = *under_way(&disk).merges.keys().next().unwrap();
    let pick = {
        let version = engine.shared.super_version.load_full().version.clone();
        let run = version.tree(tree).runs().last().unwrap().clone();
        let levels = &version.tree(tree).levels;
        let has = |runs: &Vec<Arc<Run>>| runs.iter().any(|other| other.id == run.id);
        let blobs = version.blobs.iter();
        let of_tree = blobs.filter(|(_, blob)| blob.file.meta().tree == tree);
        crate::compaction::BlobPick {
            level: levels.iter().position(has).unwrap(),
            run: run.id,
            tables: run.tables.clone(),
            emptied: of_tree.map(|(id, _)| *id).collect(),
        }
    };
    engine.shared.empty_blobs(tree, &pick).unwrap();
    drop(pick);
    assert!(engine.shared.manifest.lock().state.merges.is_empty());
    let engine = check(&disk, &options, engine, &versions);
    merge_all(&engine).unwrap();
    assert_eq!(engine.stats().counters.compaction_ranges_resumed, 0);
    check(&disk, &options, engine, &versions);
}

#[test]
fn what_is_under_way_is_in_no_copy_and_ends_with_a_merge_of_all() {
    for has_blobs in KINDS {
        give_up_for_a_merge_of_all(interrupted(5, has_blobs));
    }
}

fn give_up_for_a_merge_of_all((disk, versions, options): (MemoryVfs, Versions, EngineOptions)) {
    let mut quiet = options.clone();
    quiet.compaction.runs_max = 1000;
    let engine = open_idle(disk.clone(), &quiet);
    let stats = engine.stats();
    assert!(stats.merging_bytes > 0 && stats.space_amplification() > Some(1.0));
    engine.checkpoint(Path::new("/copy")).unwrap();
    let frozen = Edit::decode(&engine.freeze().unwrap().state).unwrap();
    assert!(frozen.merges_begun.is_empty() && frozen.ranges_merged.is_empty());
    let clock = Arc::new(SystemClock::new());
    let copy = Engine::open(Arc::new(disk.clone()), clock, "/copy", quiet.clone()).unwrap();
    assert!(copy.shared.manifest.lock().state.merges.is_empty());
    assert_eq!(copy.stats().merging_bytes, 0);
    let blobs = |engine: &Engine| {
        let version = engine.shared.super_version.load_full().version.clone();
        version.blobs.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(blobs(&copy), blobs(&engine));
    let report = check_directory(&(Arc::new(disk.clone()) as Arc<dyn Vfs>), "/copy").unwrap();
    assert!(report.is_clean(), "{report:?}");
    drop(copy);
    engine.compact_tables().unwrap();
    assert_eq!(engine.stats().counters.compaction_ranges_resumed, 0);
    assert!(engine.shared.manifest.lock().state.merges.is_empty());
    assert_eq!(engine.stats().merging_bytes, 0);
    check(&disk, &quiet, engine, &versions);
}

#[test]
fn a_flush_above_a_merge_under_way_does_not_disturb_it() {
    let (disk, versions, options) = interrupted(6, true);
    let finished = finished_ranges(&under_way(&disk));
    let engine = open_idle(disk.clone(), &options);
    let mut harness = Harness {
        vfs: disk.clone(),
        options: options.clone(),
        engine,
        versions,
        value_bytes_max: 0,
    };
    let mut batch = Vec::new();
    let revision = harness.engine.visible() + 1;
    let mut writer = BatchWriter::start(&mut batch, revision);
    for number in (0..200).step_by(3) {
        let key = format!("key-{number:03}").into_bytes();
        writer.put(TreeId(0), &key, &[], b"newer");
        let version = (0, key, std::cmp::Reverse(revision));
        harness.versions.insert(version, Some(b"newer".to_vec()));
    }
    let mut round = harness
        .engine
        .begin_round(1, 67, batch.len() as u64)
        .unwrap();
    round.apply(&batch).unwrap();
    round.finish().unwrap();
    harness.engine.flush().unwrap();
    harness.compare_at(revision);
    merge_all(&harness.engine).unwrap();
    let resumed = harness.engine.stats().counters.compaction_ranges_resumed;
    assert_eq!(resumed, finished);
    harness.compare_at(revision);
    harness.compare_at(harness.engine.history_floor());
    assert_eq!(files(&disk), named(&harness.engine));
}

#[test]
fn a_merge_interrupted_by_a_close_goes_on_at_the_next_opening() {
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
        while !engine.shared.is_closing.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        gate.let_through(1000);
        closing.join().unwrap().unwrap();
    });
    drop(engine);
    let finished = finished_ranges(&under_way(&disk));
    assert_eq!(finished, 2);
    options.log.background = Background::Manual;
    let engine = open_idle(disk.clone(), &options);
    merge_all(&engine).unwrap();
    assert_eq!(engine.stats().counters.compaction_ranges_resumed, finished);
    check(&disk, &options, engine, &versions);
}

/// Values are moved to save room. When there is none for that, they stay where they are, and merges
/// are done all the same.
#[test]
fn a_merge_that_finds_no_room_for_the_values_it_moves_carries_them_on() {
    let (disk, versions, options) = interrupted(13, true);
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
    assert!(engine.shared.manifest.lock().state.merges.is_empty());
    let engine = check(&disk, &options, engine, &versions);
    vfs.arm(0);
    merge_all(&engine).unwrap();
    check(&disk, &options, engine, &versions);
}

/// A member of a cluster that lags behind gets the tables and blob files of another, in the middle of
/// a merge.
#[test]
fn a_state_that_is_installed_ends_a_merge_under_way() {
    for has_blobs in KINDS {
        let (disk, versions, options) = interrupted(12, has_blobs);
        let other = copy_of(&disk);
        let engine = open_idle(other, &options);
        // Members do not share numbers.
        engine.shared.next_file_id.store(1 << 32, Ordering::Relaxed);
        engine.compact_tables().unwrap();
        let frozen = engine.freeze().unwrap();
        let incoming = Path::new("/incoming");
        disk.create_dir(incoming).unwrap();
        for table in &frozen.tables {
            let mut bytes = vec![0; table.file_bytes() as usize];
            table.file().read_at(&mut bytes, 0).unwrap();
            let path = incoming.join(table.name());
            let file = disk.open(&path, OpenMode::CreateNew).unwrap();
            crate::vfs::write_all_at(&*file, &path, &bytes, 0).unwrap();
        }
        let engine = open_idle(disk.clone(), &options);
        assert!(!engine.shared.manifest.lock().state.merges.is_empty());
        engine.install(&frozen.state, incoming, true).unwrap();
        assert!(engine.shared.manifest.lock().state.merges.is_empty());
        assert_eq!(engine.stats().merging_bytes, 0);
        check(&disk, &options, engine, &versions);
    }
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
        let version = engine.shared.super_version.load_full().version.clone();
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
    for (number, strategy) in STRATEGIES.into_iter().enumerate() {
        let mut rng = fastrand::Rng::with_seed(number as u64 + 91);
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
        let mut round = engine.begin_round(1, 1, batch.len() as u64).unwrap();
        round.apply(&batch).unwrap();
        round.finish().unwrap();
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
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
        is_over.store(true, Ordering::Relaxed);
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
    use crate::table::Compression;
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
