//! Every byte to and from disk goes through [`Vfs`].
//!
//! The engine is written against this small interface so that the exact shipped code runs on a
//! disk that forgets unsynced data ([crash tests]), on one that fails, and in memory.
//!
//! The rules an implementation may assume of the engine, and tests check:
//!
//! - A crash may lose writes that [`VfsFile::sync_data`] has not covered, or tear them at 512 bytes.
//! - A created, renamed or removed name is durable only after [`Vfs::sync_dir`] of its parent.
//! - A call that a signal interrupts is made again, and so is the flush of a directory for which there was no open
//!   file ([`UninterruptedVfs`]).
//! - After a failed sync the engine never counts the data as safe, regardless of the result of a later sync.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use bowline_storage::vfs::{MemoryVfs, Metadata, OpenMode, UninterruptedVfs, Vfs, VfsFile, VfsLock};
//! use bowline_storage::vfs::{read_exact_at, read_file, read_full_at, sync_data, sync_parent, write_all_at};
//!
//! // With `OsVfs` in the place of `MemoryVfs`, the same happens on the disk.
//! let vfs = UninterruptedVfs::new(Arc::new(MemoryVfs::default()));
//! let (directory, path) = (Path::new("d"), Path::new("d/settings"));
//! vfs.create_dir(directory)?;
//! let lock: Option<Box<dyn VfsLock>> = vfs.lock(&directory.join("LOCK"))?;
//! assert!(lock.is_some() && vfs.lock(&directory.join("LOCK"))?.is_none());
//!
//! // Content and name are durable.
//! let file: Arc<dyn VfsFile> = vfs.open(path, OpenMode::CreateNew)?;
//! write_all_at(&*file, path, b"threads=4", 0)?;
//! sync_data(&*file, path)?;
//! sync_parent(&vfs, path)?;
//!
//! let Metadata { len, is_dir, .. } = vfs.metadata(path)?.expect("it was created");
//! assert_eq!((len, is_dir), (9, false));
//! let mut name = [0; 7];
//! read_exact_at(&*file, path, &mut name, 0)?;
//! assert_eq!(&name, b"threads");
//! assert_eq!(read_full_at(&*file, path, &mut [0; 100], 8)?, 1);
//! assert_eq!(read_file(&vfs, path, 1_000)?, b"threads=4");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [crash tests]: https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai

mod memory;
mod os;
mod overlay;
mod uninterrupted;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use memory::MemoryVfs;
pub use os::OsVfs;
pub use overlay::OverlayVfs;
pub use uninterrupted::UninterruptedVfs;

use crate::error::{Error, Result};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// The file must exist; it is only read.
    Read,
    /// The file must exist; it is read and written.
    ReadWrite,
    /// The file must not exist; it is created with mode 0600, read and written.
    CreateNew,
}

/// The metadata of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Bytes the file occupies on disk.
    pub allocated: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A file system.
pub trait Vfs: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>>;
    /// Creates a directory with mode 0700. Its parent must exist; that it exists already is an
    /// `AlreadyExists` error.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The metadata of a name; `None` when it does not exist.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;
    /// Renames a file; it replaces a file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes created, renamed and removed names in this directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// How many bytes may still be written where `path` is, as far as that can be told. What is
    /// `Some` may be gone a moment later: it is for refusing early, not for relying on.
    fn available(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }
    /// Takes the lock file at `path` (created when absent) for this process. `None` when it is
    /// taken. The lock is released when the guard is dropped or the process ends.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>>;
}

/// An open file. Reads and writes may be short, as the operating system's may; use
/// [`read_exact_at`], [`read_full_at`] and [`write_all_at`].
pub trait VfsFile: Send + Sync + Debug {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes up to `bytes.len()` bytes at `offset`, growing the file as needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes the data, and the length if it changed, durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Held while a data directory is open.
pub trait VfsLock: Send + Sync + Debug {}

/// Reads exactly `buffer.len()` bytes. An earlier end of the file is damage ([`Error::Corrupt`]).
pub fn read_exact_at(
    file: &dyn VfsFile,
    path: &Path,
    buffer: &mut [u8],
    offset: u64,
) -> Result<()> {
    let read = read_full_at(file, path, buffer, offset)?;
    if read < buffer.len() {
        return Err(Error::corrupt(
            path,
            offset + read as u64,
            format!(
                "the file ends here, {} more bytes were expected",
                buffer.len() - read
            ),
        ));
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns how many bytes were read.
pub fn read_full_at(
    file: &dyn VfsFile,
    path: &Path,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`.
pub fn write_all_at(file: &dyn VfsFile, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => {
                let error = io::Error::new(io::ErrorKind::WriteZero, "the disk took no bytes");
                return Err(Error::io("write", path, error));
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("write", path, error)),
        }
    }
    Ok(())
}

/// Reads a whole small file of at most `limit` bytes. More is damage ([`Error::Corrupt`]).
pub fn read_file(vfs: &dyn Vfs, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = vfs
        .open(path, OpenMode::Read)
        .map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("stat", path, e))?;
    if len > limit {
        return Err(Error::corrupt(
            path,
            0,
            format!("{len} bytes long, at most {limit} expected"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    read_exact_at(&*file, path, &mut bytes, 0)?;
    Ok(bytes)
}

/// Syncs a file's data, naming the file in the error.
pub fn sync_data(file: &dyn VfsFile, path: &Path) -> Result<()> {
    file.sync_data()
        .map_err(|error| Error::io("sync", path, error))
}

/// Syncs the directory that holds `path`.
pub fn sync_parent(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new(""));
    vfs.sync_dir(parent)
        .map_err(|e| Error::io("sync", parent, e))
}
