//! The ballast: a file of zeros that is removed on a full disk.
//!
//! A flush or a compaction must write before it can free anything. On a full disk, the space of the
//! ballast lets it do so. The file lies among the spares of the log and has a spare's name. So if a
//! killed process leaves it behind, the next opening of the log removes it before it needs space itself.
//!
//! Only jobs that free space may use the ballast: an explicit flush or compaction, and a job after
//! deletions. They call [`Ballast::permit`] first.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::vfs::{self, OpenMode, Vfs};

/// A smaller file would be of no use.
const BYTES_MIN: u64 = 4096;

/// Allocates and removes the file.
#[derive(Debug)]
pub(super) struct Ballast {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    wanted_bytes: u64,
    /// Whether the file exists. Held during its allocation and removal.
    exists: Mutex<bool>,
    /// Whether the next job on a full disk may use the space.
    is_permitted: AtomicBool,
}

impl Ballast {
    pub(super) fn new(vfs: Arc<dyn Vfs>, path: PathBuf, wanted_bytes: u64) -> Ballast {
        Ballast {
            vfs,
            path,
            wanted_bytes: wanted_bytes.max(BYTES_MIN),
            exists: Mutex::new(false),
            is_permitted: AtomicBool::new(false),
        }
    }

    /// Whether the file exists.
    pub(super) fn exists(&self) -> bool {
        *self.exists.lock()
    }

    /// Allocates the file if it does not exist, as large as the disk allows. Best effort.
    pub(super) fn allocate(&self) {
        let mut exists = self.exists.lock();
        let mut bytes = self.wanted_bytes;
        while !*exists && bytes >= BYTES_MIN {
            match self.create(bytes) {
                Ok(()) => *exists = true,
                Err(error) => {
                    self.remove_file();
                    if !matches!(error, Error::NoSpace { .. }) {
                        tracing::warn!(%error, "no reserve for a full disk");
                        return;
                    }
                }
            }
            bytes /= 2;
        }
    }

    /// Permits the next job that finds the disk full to use the space.
    pub(super) fn permit(&self) {
        self.is_permitted.store(true, Ordering::Relaxed);
    }

    /// Takes the permission: `true` once after [`Ballast::permit`].
    pub(super) fn take_permission(&self) -> bool {
        self.is_permitted.swap(false, Ordering::Relaxed)
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        let mut exists = self.exists.lock();
        if std::mem::take(&mut *exists) {
            self.remove_file();
        }
    }

    fn create(&self, bytes: u64) -> Result<()> {
        let file = self
            .vfs
            .open(&self.path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &self.path, e))?;
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(0)];
        vfs::write_all_at(&*file, &self.path, &zeros, 0)?;
        // Some file systems allocate the blocks only at the sync.
        vfs::sync_data(&*file, &self.path)
    }

    fn remove_file(&self) {
        if let Err(cause) = self.vfs.remove_file(&self.path)
            && cause.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %cause, "the reserve stays until the next open");
        }
    }
}
