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
struct OsLock(OwnedFd);

impl VfsLock for OsLock {}

impl Drop for OsLock {
    /// To close the descriptor is not enough: a process that another thread is just starting has a copy of it until its
    /// program begins, and would keep the lock for as long.
    fn drop(&mut self) {
        if let Err(error) = fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock is released only when its descriptor is closed");
        }
    }
}

impl Vfs for OsVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let fd = open_file(path, flags)?;
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

    fn available(&self, path: &Path) -> io::Result<Option<u64>> {
        let found = fs::statvfs(path)?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        let fd = open_file(path, OFlags::RDWR | OFlags::CREATE)?;
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(OsLock(fd)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a file, created with mode 0600 if it is created. A symbolic link in the file's own place is
/// not followed: whoever can put one into a directory could have another file overwritten. Links
/// before the last component are followed, so a data directory or its `log` may be one.
fn open_file(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
        rustix::io::Errno::LOOP => io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a symbolic link, which is not followed: put the file itself in its place",
        ),
        error => error.into(),
    })
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        let found = std::fs::metadata(path).expect("it is there");
        found.permissions().mode() & 0o777
    }

    /// Data was readable by no other user already; held by a test since issue 17.
    #[test]
    fn what_is_made_is_for_its_owner_only() {
        let root = tempfile::tempdir().expect("a directory");
        let [dir, file, lock] = ["dir", "dir/file", "dir/LOCK"].map(|name| root.path().join(name));
        OsVfs.create_dir(&dir).expect("made");
        OsVfs.open(&file, OpenMode::CreateNew).expect("made");
        drop(OsVfs.lock(&lock).expect("locked"));
        assert_eq!(
            [&dir, &file, &lock].map(|path| mode(path)),
            [0o700, 0o600, 0o600]
        );
        let again = OsVfs
            .open(&file, OpenMode::CreateNew)
            .expect_err("it exists");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    /// A database that was closed while another thread started a process could not be opened for a moment: until its program
    /// begins, a new process has a copy of each descriptor, and a lock belongs to all copies.
    #[test]
    fn a_lock_is_released_although_there_is_a_copy_of_its_descriptor() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("LOCK");
        let lock = OsLock(open_file(&path, OFlags::RDWR | OFlags::CREATE).expect("made"));
        fs::flock(&lock.0, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let copy = lock.0.try_clone().expect("a copy, as a new process has it");
        assert!(OsVfs.lock(&path).expect("asked").is_none(), "it is locked");
        drop(lock);
        assert!(OsVfs.lock(&path).expect("asked").is_some(), "it is free");
        drop(copy);
    }

    /// A link under the name of a lock or of a data file was followed: with one in a directory that
    /// others may write to, a file elsewhere was created, or read and overwritten.
    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let [target, link, dangling] =
            ["target", "link", "dangling"].map(|name| root.path().join(name));
        std::fs::write(&target, "theirs").expect("written");
        symlink(&target, &link).expect("linked");
        symlink(root.path().join("nothing"), &dangling).expect("linked");
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            let refused = OsVfs.open(&link, mode).expect_err("a link");
            assert!(refused.to_string().contains("symbolic link"), "{refused}");
        }
        OsVfs
            .open(&dangling, OpenMode::CreateNew)
            .expect_err("a link");
        for path in [&link, &dangling] {
            let refused = OsVfs.lock(path).expect_err("a link");
            assert!(refused.to_string().contains("symbolic link"), "{refused}");
        }
        assert!(!root.path().join("nothing").exists());
        // The directory of the data may be reached through one.
        let alias = root.path().join("alias");
        let dir = root.path().join("dir");
        std::fs::create_dir(&dir).expect("made");
        symlink(&dir, &alias).expect("linked");
        OsVfs
            .open(&alias.join("file"), OpenMode::CreateNew)
            .expect("made");
        OsVfs.sync_dir(&alias).expect("synced");
    }
}
