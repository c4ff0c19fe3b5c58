//! A file system whose calls are made again when a signal interrupts them.
//!
//! The engine puts it around whatever [`Vfs`] it is given, so no call of its own can forget it. An
//! interrupted call has done nothing: on Linux only opening, reading, writing, cutting, syncing and
//! locking can be interrupted at all, the last four on some network and user-space file systems.
//!
//! To flush a directory the system opens it. A flush that fails stops the database, so one that found no file to open,
//! and has flushed nothing, waits for one. Other calls that find none fail with an error of their own
//! ([`Error::TooManyFiles`](crate::Error::TooManyFiles)): their callers can try again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use crate::error::is_out_of_files;
use crate::sync::Instant;
use crate::sync::thread::sleep;

/// How long the flush of a directory waits for a file to open, and between two attempts.
const FILES_WAIT_MAX: Duration = Duration::from_secs(30);
const FILES_PAUSE: Duration = Duration::from_millis(10);

/// Wraps a file system so that no call is answered by `Interrupted`.
#[derive(Debug, Clone)]
pub struct UninterruptedVfs(Arc<dyn Vfs>);

#[derive(Debug)]
struct UninterruptedFile(Arc<dyn VfsFile>);

fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl UninterruptedVfs {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>) -> UninterruptedVfs {
        UninterruptedVfs(inner)
    }
}

impl Vfs for UninterruptedVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let file = again(|| self.0.open(path, mode))?;
        Ok(Arc::new(UninterruptedFile(file)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        again(|| self.0.create_dir(path))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        again(|| self.0.read_dir(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        again(|| self.0.metadata(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        again(|| self.0.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        again(|| self.0.remove_file(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            match again(|| self.0.sync_dir(path)) {
                Err(error) if is_out_of_files(&error) && begun.elapsed() < FILES_WAIT_MAX => {
                    sleep(FILES_PAUSE);
                }
                result => return result,
            }
        }
    }

    fn available(&self, path: &Path) -> io::Result<Option<u64>> {
        again(|| self.0.available(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        again(|| self.0.lock(path))
    }
}

impl VfsFile for UninterruptedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        again(|| self.0.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        again(|| self.0.write_at(bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        again(|| self.0.sync_data())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        again(|| self.0.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        again(|| self.0.len())
    }
}
