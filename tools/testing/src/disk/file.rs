//! An open file and a held lock of the test disk.

use std::io;
use std::sync::Arc;

use bowline_storage::vfs::{VfsFile, VfsLock};
use parking_lot::Mutex;

use super::contents::Contents;
use super::operation::{Inode, Operation, Payload};
use super::{Shared, tree::Tree};

/// `EIO`, which has no stable [`io::ErrorKind`].
pub(super) const EIO: i32 = 5;

/// An open file. It stays usable when its name is removed.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) shared: Arc<Mutex<Shared>>,
    pub(super) inode: Inode,
    pub(super) writable: bool,
}

impl SimFile {
    fn contents<'a>(&self, live: &'a Tree) -> io::Result<&'a Contents> {
        live.file(self.inode)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

impl VfsFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self
            .contents(&self.shared.lock().live)?
            .read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        let end = Contents::check_end(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let data = Payload::new(bytes);
        let mut shared = self.shared.lock();
        let grows = end > self.contents(&shared.live)?.len();
        shared.record(Operation::Write {
            inode: self.inode,
            offset,
            data,
            grows,
        });
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut shared = self.shared.lock();
        if shared.file_syncs.fails() {
            shared.record(Operation::SyncFileFailed { inode: self.inode });
            return Err(io::Error::from_raw_os_error(EIO));
        }
        shared.record(Operation::SyncFile { inode: self.inode });
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        Contents::check_end(len, 0)?;
        let mut shared = self.shared.lock();
        if self.contents(&shared.live)?.len() != len {
            shared.record(Operation::SetLen {
                inode: self.inode,
                len,
            });
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.contents(&self.shared.lock().live)?.len())
    }
}

/// A held lock; the lock file stays when it is released.
#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) shared: Arc<Mutex<Shared>>,
    pub(super) inode: Inode,
}

impl VfsLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.lock().locked.remove(&self.inode);
    }
}
