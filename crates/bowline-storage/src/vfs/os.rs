//! The real file system, through `rustix`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, FlockOperation, Mode, OFlags};

use super::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};

/// The operating system's file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsVfs;

#[derive(Debug)]
struct OsFile(OwnedFd);

#[derive(Debug)]
struct OsLock {
    // Closing the descriptor releases the lock.
    _fd: OwnedFd,
}

impl VfsLock for OsLock {}

impl Vfs for OsVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let fd = fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(OsFile(fd)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Ok(fs::mkdir(path, Mode::RWXU)?)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            // A name that is not UTF-8 was not made by us; the lossy form only names it.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::stat(path) {
            Ok(stat) => {
                let is_dir = fs::FileType::from_raw_mode(stat.st_mode).is_dir();
                let len = if is_dir {
                    0
                } else {
                    u64::try_from(stat.st_size).unwrap_or(0)
                };
                let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                Ok(Some(Metadata {
                    len,
                    allocated,
                    is_dir,
                }))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(fs::rename(from, to)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Ok(fs::unlink(path)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty())?;
        Ok(fs::fsync(&fd)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(OsLock { _fd: fd }))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl VfsFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.0, buffer, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.0, bytes, offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&self.0)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&self.0, len)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(&self.0)?.st_size).unwrap_or(0))
    }
}
