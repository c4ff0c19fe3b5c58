//! A file of zeros that is there to be given up: on a full disk its room lets a flush or a merge
//! write what it must write before it can free anything.
//!
//! It lies among the spares of the log and has a spare's name, so whatever a killed process leaves
//! of it is removed when the log is opened, before that needs room itself.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::vfs::{self, OpenMode, Vfs};

/// Less is of no use.
const BYTES_MIN: u64 = 4096;

/// The keeper of the file.
#[derive(Debug)]
pub(super) struct Ballast {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    wanted_bytes: u64,
    is_there: Mutex<bool>,
    /// Whether somebody deletes or compacts in order to free space. What merely grows must not use
    /// it up.
    is_released: AtomicBool,
}

impl Ballast {
    pub(super) fn new(vfs: Arc<dyn Vfs>, path: PathBuf, wanted_bytes: u64) -> Ballast {
        Ballast {
            vfs,
            path,
            wanted_bytes: wanted_bytes.max(BYTES_MIN),
            is_there: Mutex::new(false),
            is_released: AtomicBool::new(false),
        }
    }

    /// Whether the file is there.
    pub(super) fn is_there(&self) -> bool {
        *self.is_there.lock()
    }

    /// Makes the file when it is not there, as large as the disk lets it. Best effort.
    pub(super) fn take_in(&self) {
        let mut is_there = self.is_there.lock();
        let mut bytes = self.wanted_bytes;
        while !*is_there && bytes >= BYTES_MIN {
            match self.make(bytes) {
                Ok(()) => *is_there = true,
                Err(error) => {
                    self.remove();
                    if !matches!(error, Error::NoSpace { .. }) {
                        tracing::warn!(%error, "no reserve for a full disk");
                        return;
                    }
                }
            }
            bytes /= 2;
        }
    }

    /// Lets the next job that meets a full disk have the room.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }

    /// Whether a job may have the room; once for each [`Ballast::release`].
    pub(super) fn take_release(&self) -> bool {
        self.is_released.swap(false, Ordering::Relaxed)
    }

    /// Removes the file.
    pub(super) fn give_up(&self) {
        let mut is_there = self.is_there.lock();
        if std::mem::take(&mut *is_there) {
            self.remove();
        }
    }

    fn make(&self, bytes: u64) -> Result<()> {
        let file = self
            .vfs
            .open(&self.path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &self.path, e))?;
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(0)];
        vfs::write_all_at(&*file, &self.path, &zeros, 0)?;
        // Some file systems find room for what was written only now.
        vfs::sync_data(&*file, &self.path)
    }

    fn remove(&self) {
        if let Err(cause) = self.vfs.remove_file(&self.path)
            && cause.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %cause, "the reserve stays until the next open");
        }
    }
}
