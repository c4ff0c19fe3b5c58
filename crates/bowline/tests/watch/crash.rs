//! Watching over a power loss: what a watcher saw is still there, and one that goes on after it
//! misses nothing.
//!
//! While a database works on a disk that records everything, each revision that a watcher is
//! given is marked in the record. Any state that a power loss could leave after the mark must hold
//! that revision; a watch from the next one on must give the rest of what was committed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bowline::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use bowline::{Background, Db, DbBuilder, Error, History, Range, Revision, Watcher};
use bowline_testing::{CrashImage, Images, ManualClock, Seed, SimDisk};
use parking_lot::Mutex;

use crate::truth::{Notes, Seen, Truth};
use crate::{setting, small, within_timeout, writers};

fn ranges() -> [Range; 4] {
    [
        Range::all(),
        Range::prefix("b/"),
        Range::key("a/03"),
        Range::from("c/04".."l/5"),
    ]
}

fn builder(vfs: Arc<dyn Vfs>, history: History, background: Background) -> DbBuilder {
    small()
        .vfs(vfs)
        .clock(Arc::new(ManualClock::new()))
        .history(history)
        .background(background)
        .memtable_bytes(8 << 10)
        .log_segment_bytes(12 << 10)
        .watch_ring_bytes(2 << 10)
}

fn start(db: &Db, number: usize) -> Watcher {
    db.watch(ranges()[number].clone())
        .with_previous()
        .start()
        .expect("a watch")
}

/// What images came to.
#[derive(Debug, Default)]
struct Tried {
    images: u64,
    with_something_seen: u64,
    beyond_what_was_seen: u64,
    compacted: u64,
}

/// Opens the image and goes on watching where the watchers of before had come to.
fn judge(
    image: &CrashImage,
    truth: &Truth,
    history: History,
    tried: &mut Tried,
) -> Result<(), String> {
    let disk = image.build();
    let opened = builder(Arc::new(disk), history, Background::Manual).open("/db");
    let seen = image.marks().into_iter().max().unwrap_or(0);
    let db = match opened {
        Ok(db) => db,
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let newest = db.revision();
    tried.images += 1;
    tried.with_something_seen += u64::from(seen > 0);
    tried.beyond_what_was_seen += u64::from(newest > seen);
    if newest < seen {
        return Err(format!("{seen} was seen, {newest} is left"));
    }
    let mut watchers = Vec::new();
    for range in ranges() {
        // With all history, every second image is also read from its very beginning.
        let mut from = match history {
            History::All if newest.get().is_multiple_of(2) => 1,
            _ => seen.max(1) + 1,
        };
        let mut watcher = loop {
            match db
                .watch(range.clone())
                .from(Revision::new(from))
                .with_previous()
                .start()
            {
                Ok(watcher) => break watcher,
                Err(Error::Compacted { oldest, .. })
                    if history != History::All && oldest > from && oldest <= newest =>
                {
                    tried.compacted += 1;
                    from = oldest.get();
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        let mut found = Vec::new();
        while let Some(changes) = watcher.try_recv().map_err(|error| error.to_string())? {
            found.push(Seen::new(&changes, &range, true, db.oldest_revision()));
        }
        truth.judge(&range, Revision::new(from), newest + 1, &found)?;
        watchers.push((range, watcher));
    }
    // And on into what is written now.
    let revision = db.put("b/zz", "x").map_err(|error| error.to_string())?;
    if revision != newest + 1 {
        return Err(format!("{revision} came after {newest}"));
    }
    for (range, watcher) in &mut watchers {
        let next = watcher.try_recv().map_err(|error| error.to_string())?;
        let expected = range.contains(b"b/zz").then_some(revision);
        if next.as_ref().map(|changes| changes.revision) != expected {
            return Err(format!("{range:?}: {next:?} follows {newest}"));
        }
    }
    Ok(())
}

fn judge_all(disk: &SimDisk, truth: &Truth, history: History, seed: Seed, name: &str) -> Tried {
    let mut tried = Tried::default();
    let count = setting("BOWLINE_WATCH_IMAGES", 300).div_ceil(3);
    let mut images = Images::sample(&disk.recording(), seed.0, count);
    for image in &mut images {
        if let Err(why) = judge(&image, truth, history, &mut tried) {
            panic!("{name}, {image}: {why}");
        }
    }
    println!("{name}: {tried:?}, {}", images.coverage());
    assert!(tried.with_something_seen * 2 > tried.images, "{tried:?}");
    assert!(tried.beyond_what_was_seen > 0, "{tried:?}");
    tried
}

#[test]
fn what_a_watcher_saw_survives_a_power_loss() {
    let seed = Seed::from_env_or(21);
    let _guard = seed.print_on_failure("-p bowline --test watch what_a_watcher_saw");
    for (history, name) in [
        (History::All, "a crash with all history"),
        (History::None, "a crash without history"),
    ] {
        let mut rng = seed.rng();
        let disk = SimDisk::new();
        let notes = Mutex::new(Notes::default());
        let vfs = || Arc::new(disk.clone());
        let open = || {
            builder(vfs(), history, Background::Manual)
                .open("/db")
                .expect("it opens")
        };
        let mut db = open();
        let mut watchers: Vec<_> = (0..ranges().len())
            .map(|number| start(&db, number))
            .collect();
        for step in 0..300 {
            match rng.u8(0..40) {
                0 => writers::one_lease(&db, &mut rng, &notes, false).expect("a lease"),
                1 => writers::upkeep(&db, &mut rng, false, &Default::default()).expect("upkeep"),
                2 if step > 20 => {
                    drop((watchers, db));
                    db = open();
                    watchers = (0..ranges().len())
                        .map(|number| start(&db, number))
                        .collect();
                }
                _ => writers::write_once(&db, &mut rng, &notes).expect("a commit"),
            }
            for watcher in &mut watchers {
                while let Some(changes) = watcher.try_recv().expect("they keep up") {
                    disk.mark(changes.revision.get());
                }
            }
        }
        let truth = notes.lock().resolve(db.revision());
        judge_all(&disk, &truth, history, seed, name);
    }
}

/// A disk that takes its time for a sync, so that whoever looks too early has the time to.
#[derive(Debug)]
struct SlowSync(SimDisk);

#[derive(Debug)]
struct SlowFile(Arc<dyn VfsFile>);

impl Vfs for SlowSync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(SlowFile(self.0.open(path, mode)?)))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.read_dir(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.0.metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        self.0.lock(path)
    }
}

impl VfsFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        thread::sleep(Duration::from_millis(1));
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// Watchers on threads of their own: they would see what is published before its flush, and the
/// crashes between the two would take it back.
#[test]
fn nothing_is_seen_before_it_is_flushed() {
    const WRITERS: u64 = 2;
    let seed = Seed::from_env_or(22);
    let _guard = seed.print_on_failure("-p bowline --test watch nothing_is_seen");
    within_timeout("watchers on a slow disk", || {
        let disk = SimDisk::new();
        let notes = Mutex::new(Notes::default());
        let vfs = Arc::new(SlowSync(disk.clone()));
        let db = builder(vfs, History::All, Background::Threads)
            .open("/db")
            .expect("it opens");
        let writing = AtomicUsize::new(WRITERS as usize);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, notes, writing) = (&db, &notes, &writing);
                scope.spawn(move || {
                    let mut rng = seed.part(writer).rng();
                    let _done = crate::Done(writing);
                    for _ in 0..100 {
                        writers::write_once(db, &mut rng, notes).expect("a commit");
                    }
                });
            }
            for number in 0..2 {
                let (disk, writing) = (&disk, &writing);
                let mut watcher = start(&db, number);
                scope.spawn(move || {
                    let wait = Duration::from_millis(5);
                    while writing.load(Ordering::SeqCst) > 0 {
                        if let Some(changes) = watcher.recv_timeout(wait).expect("it keeps up") {
                            disk.mark(changes.revision.get());
                        }
                    }
                });
            }
        });
        let newest: Revision = db.revision();
        let truth = notes.lock().resolve(newest);
        drop(db);
        let recording = disk.recording();
        let marked = recording.marks_until(recording.len()).len();
        assert!(marked > 50, "{marked} revisions were seen");
        judge_all(&disk, &truth, History::All, seed, "watchers on a slow disk");
    });
}
