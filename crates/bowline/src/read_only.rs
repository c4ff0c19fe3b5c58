//! Opening a directory to read it, beside its owner if there is one; and checking that of a member that is stopped.
//!
//! Recovery runs as ever, over an [`OverlayVfs`]: nothing is written to the directory, and its lock is left alone.
//!
//! The owner goes on meanwhile. It appends to the log and to the manifest, and after a flush it removes segments and
//! tables that the manifest no longer needs. The overlay lists the names first, and recovery reads the manifest after
//! that. So a segment that is gone by then is either covered by that manifest, or the attempt fails and is repeated; and
//! so it is where the manifest changed during the attempt. A frame of the log that was being written looks torn, or
//! damaged if it was finished while its neighbors were read: another attempt finds it whole. A segment that the owner
//! uses again while it is read looks like one that has not begun: only the manifest shows that its commits are elsewhere.
//!
//! Whatever the owner does after that does not concern the reader: the log is in memory, and each table and blob file is
//! open, so that its contents stay when its name goes.
//!
//! Invariants:
//!
//! - Nothing in the directory changes.
//! - A commit that was acknowledged before the call is in the result: the log is read after the call began, and all of
//!   it that the manifest of that time does not cover was there to be read.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bowline_storage::Error as StorageError;
use bowline_storage::engine::Replicated;
use bowline_storage::version::Layout;
use bowline_storage::vfs::{self, OsVfs, OverlayVfs, Vfs};

use crate::builder::DbBuilder;
use crate::check::{self, Check};
use crate::expiry;
use crate::reader::DbReader;
use bowline_core::error::{Error, Result};
use bowline_core::options::Background;

/// How often the files may change under the reader.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);
/// No manifest is larger.
const MANIFEST_MAX_BYTES: u64 = 1 << 30;

impl DbBuilder {
    /// Opens the database in `path` to read it, and writes nothing there: also beside the process that has it open.
    ///
    /// The result shows the database of the moment at which it was opened, with every commit that was acknowledged
    /// before the call; later commits are not seen. Commits that were being made may be among what is seen. What
    /// opening has to write, it keeps in memory, and so are the leases that have expired ended there only.
    ///
    /// The reader has every file open, so that it can read its state for as long as it lives, whatever the owner removes
    /// meanwhile. The space of removed files is free when the last reader of them is dropped.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::open(&path)?;
    /// db.put("svc/api", "10.0.0.7")?;
    ///
    /// // As another process would, while this one has it open.
    /// let reader = bowline::Db::builder().open_read_only(&path)?;
    /// db.put("svc/api", "10.0.0.8")?;
    /// assert_eq!(reader.get("svc/api")?.as_deref(), Some(&b"10.0.0.7"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`DbBuilder::open`] without `Locked`; `NotADatabase` where there is no database. `Corrupt` or
    /// `MissingFile` also when the owner changed the files during every attempt.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<DbReader> {
        let path = path.as_ref();
        let below = self.vfs.clone();
        let layout = Layout::new(path);
        for attempt in 1.. {
            let before = manifest(&*below, &layout).ok();
            let overlay = OverlayVfs::new(below.clone(), path);
            let opened = match overlay {
                Ok(overlay) => {
                    let mut reader = self.clone();
                    reader.is_read_only = true;
                    let reader = reader.vfs(Arc::new(overlay)).create(false);
                    let reader = reader.background(Background::Manual);
                    reader.open_handle(path.to_owned())
                }
                Err(error) => Err(StorageError::io("list", path, error).into()),
            };
            let is_same = before == manifest(&*below, &layout).ok();
            let is_last = attempt == ATTEMPTS_MAX;
            match opened {
                // Two manifests that could not be read are not the same one.
                Ok(handle) if is_same && before.is_some() => {
                    // Nobody else does, without threads.
                    if let Err(error) = expiry::expire(&handle) {
                        tracing::warn!(%error, "an expired lease is shown");
                    }
                    return Ok(DbReader::new(handle));
                }
                Err(Error::Storage(error)) if may_pass(&error) && !is_last => {}
                Err(error) if is_same || is_last => return Err(error),
                Ok(_) if is_last => break,
                Ok(_) | Err(_) => {}
            }
            thread::sleep(PAUSE * attempt);
        }
        Err(Error::Storage(StorageError::corrupt(
            path,
            0,
            "its owner changed the files each time they were read: try again, or ask the owner",
        )))
    }
}

/// Verifies the directory of a cluster's member that is stopped: its files, and, if these are whole, the
/// cross-references between its trees. Nothing in the directory changes.
///
/// The trees are read as of the last flush. The log behind it is verified as bytes only, since it may hold
/// entries that the cluster has not agreed on; the member applies the others when it starts.
///
/// ```no_run
/// let check = bowline::check_member("node1")?;
/// assert!(check.is_clean(), "{:?}", check.problems);
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// # Errors
/// [`Error::Storage`] with `Locked` while the member runs, and with `NotADatabase` when the directory holds no
/// database. Damage is listed in the result.
pub fn check_member(path: impl AsRef<Path>) -> Result<Check> {
    let path = path.as_ref();
    let lock = Layout::new(path).lock();
    let held = OsVfs.lock(&lock);
    let held = held.map_err(|error| StorageError::io("lock", &lock, error))?;
    let Some(_held) = held else {
        let path = path.to_owned();
        return Err(StorageError::Locked { path }.into());
    };
    let mut check = Check::new(check::check_files(path)?);
    if check.files.is_clean() {
        let reader = open_member(path)?;
        check::check_trees(reader.handle(), &mut check)?;
    }
    Ok(check)
}

/// Opens the directory of a member that is stopped, without the part of the log behind the last flush: only its
/// cluster knows which of those entries were agreed on.
fn open_member(path: &Path) -> Result<DbReader> {
    let overlay = OverlayVfs::new(Arc::new(OsVfs), path);
    let overlay = overlay.map_err(|error| StorageError::io("list", path, error))?;
    let replicated = Replicated {
        // Of a database that would be created.
        database_id: 0,
        first_file_id: 0,
        locked: &mut |_| Ok(()),
        damaged: &mut |_| Ok(false),
        visit: &mut |_, _| Ok(()),
    };
    let builder = DbBuilder::new()
        .vfs(Arc::new(overlay))
        .background(Background::Manual)
        .create(false);
    let (reader, _log) = builder.open_replicated(path.to_owned(), replicated)?;
    Ok(reader)
}

/// Whether an error may be due to what the owner did meanwhile: to a frame that it was writing, or to a file that it
/// removed after it was listed.
fn may_pass(error: &StorageError) -> bool {
    let is_gone =
        matches!(error, StorageError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
    is_gone || error.is_corruption()
}

/// What the directory says about its state: the name file, and the manifests.
fn manifest(vfs: &dyn Vfs, layout: &Layout) -> Result<Vec<(String, Vec<u8>)>> {
    let root = layout.root();
    let names = vfs.read_dir(root);
    let names = names.map_err(|error| StorageError::io("list", root, error))?;
    let is_state = |name: &String| name == "BOWLINE" || Layout::manifest_number(name).is_some();
    let mut found = Vec::new();
    for name in names.into_iter().filter(is_state) {
        let bytes = vfs::read_file(vfs, &root.join(&name), MANIFEST_MAX_BYTES)?;
        found.push((name, bytes));
    }
    Ok(found)
}
