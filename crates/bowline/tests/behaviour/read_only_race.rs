//! A directory that is opened to be read while its owner changes it: the owner acts exactly between two steps of the
//! reader.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline::vfs::{Metadata, OpenMode, OsVfs, Vfs, VfsFile, VfsLock};
use bowline::{Background, Db, DbBuilder, Error, History, Result};
use parking_lot::Mutex;

/// The length of a log segment's header: frames follow.
const SEGMENT_HEADER_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = 256 << 10;
/// Above the threshold from which values go to blob files.
const LARGE_BYTES: usize = 4 << 10;

/// What the reader is about to do with the file of this name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Open(&'a str),
    Read(&'a str, u64),
}

impl Step<'_> {
    fn opens(self, suffix: &str) -> bool {
        matches!(self, Step::Open(name) if name.ends_with(suffix))
    }
}

/// Whether the step reads frames of the log.
fn reads_frames(step: Step<'_>) -> bool {
    matches!(step, Step::Read(name, offset)
        if name.ends_with(".log") && offset >= SEGMENT_HEADER_BYTES)
}

/// Called before each step of the reader. An error is the result of the step.
type Hook = Box<dyn FnMut(Step<'_>) -> io::Result<()> + Send>;

/// The real file system with a hook.
#[derive(Clone)]
struct HookedVfs(Arc<Mutex<Hook>>);

impl HookedVfs {
    fn new(hook: impl FnMut(Step<'_>) -> io::Result<()> + Send + 'static) -> HookedVfs {
        HookedVfs(Arc::new(Mutex::new(Box::new(hook))))
    }

    /// `act` happens once, before the first step for which `when` holds.
    fn once(
        when: impl Fn(Step<'_>) -> bool + Send + 'static,
        act: impl FnOnce() + Send + 'static,
    ) -> (HookedVfs, Arc<Mutex<bool>>) {
        let has_acted = Arc::new(Mutex::new(false));
        let (mut act, noted) = (Some(act), has_acted.clone());
        let hooked = HookedVfs::new(move |step| {
            if when(step)
                && let Some(act) = act.take()
            {
                act();
                *noted.lock() = true;
            }
            Ok(())
        });
        (hooked, has_acted)
    }
}

impl fmt::Debug for HookedVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedVfs").finish_non_exhaustive()
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

struct HookedFile {
    file: Arc<dyn VfsFile>,
    name: String,
    vfs: HookedVfs,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedFile").finish_non_exhaustive()
    }
}

impl VfsFile for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.vfs.0.lock())(Step::Read(&self.name, offset))?;
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        panic!("a reader writes to {}", self.name)
    }

    fn sync_data(&self) -> io::Result<()> {
        panic!("a reader syncs {}", self.name)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        panic!("a reader cuts {}", self.name)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Vfs for HookedVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        assert_eq!(mode, OpenMode::Read, "of {}", path.display());
        let name = name_of(path);
        (self.0.lock())(Step::Open(&name))?;
        Ok(Arc::new(HookedFile {
            file: OsVfs.open(path, mode)?,
            name,
            vfs: self.clone(),
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        panic!("a reader creates {}", path.display())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        OsVfs.read_dir(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        OsVfs.metadata(path)
    }

    fn rename(&self, from: &Path, _: &Path) -> io::Result<()> {
        panic!("a reader renames {}", from.display())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        panic!("a reader removes {}", path.display())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        panic!("a reader syncs {}", path.display())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        panic!("a reader locks {}", path.display())
    }
}

/// A database that its owner has open, without threads: what happens is what the test does.
struct Owned {
    directory: tempfile::TempDir,
    builder: DbBuilder,
    db: Db,
}

impl Owned {
    fn new() -> Owned {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = Db::builder()
            .background(Background::Manual)
            .history(History::All)
            .log_segment_bytes(SEGMENT_BYTES);
        let db = builder.clone().open(directory.path().join("data"));
        Owned {
            directory,
            builder,
            db: db.expect("the database opens"),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn read_with(&self, vfs: HookedVfs) -> Result<bowline::DbReader> {
        let builder = self.builder.clone().vfs(Arc::new(vfs));
        builder.open_read_only(self.path())
    }

    /// The names of its tables, blob files and log segments.
    fn names(&self) -> BTreeSet<String> {
        let directories = ["tables", "log"].map(|name| self.path().join(name));
        let names = directories.iter().map(|path| OsVfs.read_dir(path));
        let names = names.flat_map(|names| names.expect("a listing"));
        names.filter(|name| !name.starts_with("spare-")).collect()
    }
}

/// Fills the active segment of the log, which is `SEGMENT_BYTES` long, with the same frames each time, and has the
/// next write begin another one.
fn fill_segment(db: &Db) {
    for row in 0..5 {
        let value = vec![b'r'; 60_000];
        db.put(format!("row/{row}"), value).expect("put");
    }
}

/// The file of the log's only segment, by its inode; `None` once it has another name.
fn first_segment(data: &Path) -> Option<u64> {
    let path = data.join("log/0000000000000001.log");
    std::fs::metadata(path).ok().map(|found| found.ino())
}

/// The owner writes all of the log's only segment to tables, and uses its file again for a later segment, which covers
/// all that it held.
fn recycle_segment(owned: &Owned) -> impl FnOnce() + Send + use<> {
    let (db, path) = (owned.db.clone(), owned.path());
    let file = first_segment(&path);
    assert!(file.is_some());
    move || {
        for _ in 0..3 {
            fill_segment(&db);
            db.flush().expect("flush");
        }
        assert_eq!(first_segment(&path), None);
        let entries = std::fs::read_dir(path.join("log")).expect("a listing");
        let mut files = entries.map(|entry| entry.and_then(|it| it.metadata()).expect("a file"));
        assert!(files.any(|found| Some(found.ino()) == file), "it is gone");
    }
}

fn acted(has_acted: &Mutex<bool>) {
    assert!(*has_acted.lock(), "the owner did not act");
}

/// The reader has opened the log's only segment and read the manifest. The owner moves its contents to tables, and
/// writes another segment into the same file. All that the reader finds then is a segment that ends before its first
/// frame, as a new one does: acknowledged commits were missing if the manifest was not read again.
#[test]
fn a_segment_that_is_used_again_under_the_reader_hides_no_commit() -> Result<()> {
    let owned = Owned::new();
    owned.db.put("k", "acknowledged")?;
    let (vfs, has_acted) = HookedVfs::once(reads_frames, recycle_segment(&owned));
    let reader = owned.read_with(vfs)?;
    acted(&has_acted);
    assert_eq!(reader.get("k")?.as_deref(), Some(&b"acknowledged"[..]));
    assert_eq!(reader.revision(), owned.db.revision());
    Ok(())
}

/// The same where the manifest could be read neither before nor after, as where its owner replaces it: two failures
/// are no equal manifests.
#[test]
fn a_manifest_that_cannot_be_read_is_not_an_unchanged_one() -> Result<()> {
    let owned = Owned::new();
    owned.db.put("k", "acknowledged")?;
    let mut act = Some(recycle_segment(&owned));
    let mut readings = 0;
    let vfs = HookedVfs::new(move |step| {
        if reads_frames(step)
            && let Some(act) = act.take()
        {
            act();
        }
        readings += u32::from(step.opens("BOWLINE"));
        // The second one is that of recovery.
        let is_gone = step.opens("BOWLINE") && matches!(readings, 1 | 3);
        match is_gone {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(()),
        }
    });
    let reader = owned.read_with(vfs)?;
    assert_eq!(reader.get("k")?.as_deref(), Some(&b"acknowledged"[..]));
    Ok(())
}

/// The reader knows from the manifest which files there are, and the owner removes them before they are opened.
#[test]
fn what_is_removed_before_the_reader_opens_it_is_found_where_it_is_then() -> Result<()> {
    for suffix in [".table", ".blob", ".log"] {
        let owned = Owned::new();
        let large = vec![b'x'; LARGE_BYTES];
        for round in 0..2 {
            owned.db.put("small", format!("{round}"))?;
            owned.db.put(format!("large/{round}"), &large)?;
            owned.db.flush()?;
        }
        owned.db.put("last", "in the log")?;
        let before = owned.names();
        let db = owned.db.clone();
        let act = move || {
            db.delete("large/0").expect("delete");
            let latest = db.revision();
            db.trim_history(latest).expect("trim");
            // The log's segment is released when it is not the active one.
            fill_segment(&db);
            fill_segment(&db);
            db.compact().expect("compact");
        };
        let (vfs, has_acted) = HookedVfs::once(move |step| step.opens(suffix), act);
        let reader = owned.read_with(vfs)?;
        acted(&has_acted);
        let after = owned.names();
        let mut gone = before.difference(&after);
        assert!(
            gone.any(|name| name.ends_with(suffix)),
            "no {suffix} is gone"
        );
        assert_eq!(reader.get("small")?.as_deref(), Some(&b"1"[..]), "{suffix}");
        assert_eq!(reader.get("large/0")?, None, "{suffix}");
        assert_eq!(reader.get("large/1")?.as_deref(), Some(&large[..]));
        assert_eq!(reader.get("last")?.as_deref(), Some(&b"in the log"[..]));
    }
    Ok(())
}

/// The owner goes on for as long as the reader is open: it deletes every key, and its merges and its garbage collection
/// remove every file that the reader's state is made of. The reader has them open, and reads all of it.
#[test]
fn what_the_owner_removes_stays_readable_to_an_open_reader() -> Result<()> {
    const KEYS: usize = 50;
    let owned = Owned::new();
    let value = |key: usize, round: usize| vec![b'a' + (key + round) as u8 % 26; LARGE_BYTES];
    let put_all = |round: usize| -> Result<()> {
        for key in 0..KEYS {
            owned.db.put(format!("large/{key:02}"), value(key, round))?;
            owned
                .db
                .put(format!("small/{key:02}"), format!("{round}"))?;
        }
        Ok(())
    };
    put_all(0)?;
    owned.db.flush()?;
    let old = owned.db.revision();
    // These are in the log only.
    put_all(1)?;
    let reader = owned.builder.open_read_only(owned.path())?;
    let before = owned.names();
    assert!(
        before.iter().any(|name| name.ends_with(".blob")),
        "{before:?}"
    );

    owned.db.delete_range(..)?;
    owned.db.trim_history(owned.db.revision())?;
    for _ in 0..3 {
        fill_segment(&owned.db);
        owned.db.compact()?;
    }
    let after = owned.names();
    let left: Vec<_> = before.intersection(&after).collect();
    assert!(left.is_empty(), "{left:?} is left");

    for key in 0..KEYS {
        let large = reader.get(format!("large/{key:02}"))?;
        assert_eq!(large.as_deref(), Some(&value(key, 1)[..]));
    }
    let counted = reader
        .range(..)?
        .try_fold(0, |count, row| row.map(|_| count + 1))?;
    assert_eq!(counted, 2 * KEYS);
    let past = reader.snapshot_at(old)?;
    for key in 0..KEYS {
        let large = past.get(format!("large/{key:02}"))?;
        assert_eq!(large.as_deref(), Some(&value(key, 0)[..]));
    }
    Ok(())
}

/// An owner that changes the files during every attempt: the reader says so, instead of showing one of them.
#[test]
fn a_reader_that_never_finds_an_unchanged_manifest_says_so() {
    let owned = Owned::new();
    owned.db.put("k", "v").expect("put");
    let db = owned.db.clone();
    let vfs = HookedVfs::new(move |step| {
        if step.opens(".log") {
            db.put("k", "v").expect("put");
            db.flush().expect("flush");
        }
        Ok(())
    });
    match owned.read_with(vfs) {
        Err(Error::Storage(error)) => {
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains("try again"), "{error}");
        }
        Err(error) => panic!("{error}"),
        // Not shown: it holds the log's pages.
        Ok(_) => panic!("it was opened"),
    }
}
