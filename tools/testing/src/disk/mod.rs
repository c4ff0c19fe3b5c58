//! An in-memory file system that records its operations.
//!
//! [`SimDisk`] shows a running program the state after all operations, and keeps the operations. From its
//! [`Recording`], [`crash`](crate::crash) builds the states that a power loss could leave; each is a
//! `SimDisk` again, with an empty recording, so that a crash during recovery is tried the same way.
//!
//! Invariant: the live state is the recording's base with every operation applied in order. One lock guards
//! both, so the recorded order is the order in which the disk executed the calls.

mod contents;
mod damage;
mod file;
mod operation;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bowline_storage::vfs::{Metadata, OpenMode, Vfs, VfsFile, VfsLock};
use parking_lot::Mutex;

pub use damage::Damage;
pub use operation::{Inode, Operation, Payload, Place, Recording};

use file::{EIO, SimFile, SimLock};
use tree::Node;
pub(crate) use tree::Tree;

/// A file system in memory that records every operation. Clones are the same disk.
///
/// ```
/// use bowline_storage::vfs::{OpenMode, Vfs};
/// use bowline_testing::SimDisk;
/// use std::path::Path;
///
/// let disk = SimDisk::new();
/// let file = disk.open(Path::new("log"), OpenMode::CreateNew)?;
/// disk.sync_dir(Path::new(""))?;
/// file.write_at(b"synced", 0)?;
/// file.sync_data()?;
/// file.write_at(b", not synced", 6)?;
///
/// assert_eq!(disk.after_kill().read(Path::new("log"))?, b"synced, not synced");
/// assert_eq!(disk.after_power_loss().read(Path::new("log"))?, b"synced");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SimDisk {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    live: Tree,
    base: Tree,
    operations: Vec<Operation>,
    marks: Vec<(usize, u64)>,
    next_inode: Inode,
    locked: BTreeSet<Inode>,
    file_syncs: Syncs,
    directory_syncs: Syncs,
}

/// Which of the next syncs fail.
#[derive(Clone, Copy, Default, Debug)]
struct Syncs {
    /// So many still succeed before the failing ones.
    sound: u64,
    failing: u64,
}

impl Syncs {
    /// Counts one. Gives whether it fails.
    fn fails(&mut self) -> bool {
        if self.sound > 0 {
            self.sound -= 1;
            return false;
        }
        let fails = self.failing > 0;
        self.failing -= u64::from(fails);
        fails
    }
}

impl Shared {
    fn record(&mut self, operation: Operation) {
        self.live.apply(&operation);
        self.operations.push(operation);
    }

    fn take_inode(&mut self) -> Inode {
        let inode = self.next_inode;
        self.next_inode = Inode(inode.0 + 1);
        inode
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk. Its root directory exists, as `/` and as the empty path.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::from_tree(Tree::new())
    }

    pub(crate) fn from_tree(tree: Tree) -> SimDisk {
        let shared = Shared {
            live: tree.clone(),
            next_inode: tree.next_inode(),
            base: tree,
            operations: Vec::new(),
            marks: Vec::new(),
            locked: BTreeSet::new(),
            file_syncs: Syncs::default(),
            directory_syncs: Syncs::default(),
        };
        SimDisk {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// The operations so far. Later ones do not change it.
    #[must_use]
    pub fn recording(&self) -> Recording {
        let shared = self.shared.lock();
        Recording {
            base: shared.base.clone(),
            operations: shared.operations.as_slice().into(),
            marks: shared.marks.as_slice().into(),
        }
    }

    /// The number of operations so far: the current point.
    #[must_use]
    pub fn point(&self) -> usize {
        self.shared.lock().operations.len()
    }

    /// Notes a number at the current point, for example "revision 42 was acknowledged": every later crash
    /// image has it among its [`CrashImage::marks`](crate::crash::CrashImage::marks).
    pub fn mark(&self, number: u64) {
        let mut shared = self.shared.lock();
        let point = shared.operations.len();
        shared.marks.push((point, number));
    }

    /// A disk that shows `live`, the state at `point`, and continues the recording from there.
    pub(crate) fn continued(recording: &Recording, point: usize, live: Tree) -> SimDisk {
        let operations = recording.operations()[..point].to_vec();
        let created = operations.iter().filter_map(|operation| match operation {
            Operation::Create { inode, .. } | Operation::CreateDir { inode, .. } => {
                Some(Inode(inode.0 + 1))
            }
            _ => None,
        });
        let next_inode = created.fold(recording.base.next_inode(), Inode::max);
        let marks = recording.marks.iter().filter(|(at, _)| *at <= point);
        let shared = Shared {
            live,
            base: recording.base.clone(),
            next_inode,
            marks: marks.copied().collect(),
            operations,
            locked: BTreeSet::new(),
            file_syncs: Syncs::default(),
            directory_syncs: Syncs::default(),
        };
        SimDisk {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Releases all locks, as when the process that holds them is killed. The next process continues with
    /// this disk and this recording, and reads all writes, synced or not. The rest of the killed program must
    /// not touch the disk any more, not even by a drop: [`std::mem::forget`] it.
    pub fn kill(&self) {
        self.shared.lock().locked.clear();
    }

    /// Makes the next `count` calls of `sync_data`, on any file, fail with `EIO`. A crash may then lose the
    /// data that they should have covered even when a later sync succeeds: the system has marked it as clean.
    pub fn fail_syncs(&self, count: u64) {
        self.fail_syncs_after(0, count);
    }

    /// [`SimDisk::fail_syncs`] after `sound` more calls that succeed.
    pub fn fail_syncs_after(&self, sound: u64, count: u64) {
        self.shared.lock().file_syncs = Syncs {
            sound,
            failing: count,
        };
    }

    /// The same for calls of `sync_dir`: a crash may then lose the names that they should have covered.
    pub fn fail_directory_syncs_after(&self, sound: u64, count: u64) {
        self.shared.lock().directory_syncs = Syncs {
            sound,
            failing: count,
        };
    }

    /// A whole file, as the running program sees it.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let shared = self.shared.lock();
        let inode = shared.live.resolve(path)?.ok_or(io::ErrorKind::NotFound)?;
        let contents = shared.live.file(inode).ok_or(io::ErrorKind::IsADirectory)?;
        Ok(contents.to_vec())
    }

    /// The paths of all files and directories, sorted, without a leading slash.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.shared
            .lock()
            .live
            .paths()
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    }

    /// The paths of all files and directories, with their inodes.
    #[must_use]
    pub fn inodes(&self) -> Vec<(Inode, String)> {
        let paths = self.shared.lock().live.paths();
        paths
            .into_iter()
            .map(|(path, inode)| (inode, path))
            .collect()
    }

    /// Puts a durable file at `path` before a recording begins, replacing an existing one.
    ///
    /// # Panics
    /// When something was recorded already, or the parent directory does not exist.
    pub fn put_durable(&self, path: &Path, bytes: &[u8]) {
        let mut shared = self.shared.lock();
        assert!(
            shared.operations.is_empty(),
            "a durable file comes before the first operation"
        );
        let at = shared
            .live
            .place(path)
            .expect("the parent directory must exist");
        let old = shared.live.entry(&at);
        let inode = shared.take_inode();
        let data = Payload::new(bytes);
        if let Some(inode) = old {
            shared.live.apply(&Operation::Remove {
                at: at.clone(),
                inode,
            });
        }
        shared.live.apply(&Operation::Create { at, inode });
        shared.live.apply(&Operation::Write {
            inode,
            offset: 0,
            data,
            grows: true,
        });
        shared.live.forget_unreachable();
        shared.base = shared.live.clone();
    }
}

impl Vfs for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut shared = self.shared.lock();
        let inode = match (shared.live.resolve(path)?, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => match shared.live.node(inode) {
                Some(Node::File(_)) => inode,
                _ => return Err(io::ErrorKind::IsADirectory.into()),
            },
            (None, OpenMode::CreateNew) => create(&mut shared, path)?,
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile {
            shared: self.shared.clone(),
            inode,
            writable,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        if shared.live.resolve(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let at = shared.live.place(path)?;
        let inode = shared.take_inode();
        shared.record(Operation::CreateDir { at, inode });
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let shared = self.shared.lock();
        let inode = shared.live.resolve(path)?.ok_or(io::ErrorKind::NotFound)?;
        let entries = shared
            .live
            .entries(inode)
            .ok_or(io::ErrorKind::NotADirectory)?;
        Ok(entries.keys().map(ToString::to_string).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let shared = self.shared.lock();
        // As with `stat`: a missing parent directory counts as a missing name.
        let found = match shared.live.resolve(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => found?,
        };
        Ok(found
            .and_then(|inode| shared.live.node(inode))
            .map(|node| match node {
                Node::Directory(_) => Metadata {
                    len: 0,
                    allocated: 0,
                    is_dir: true,
                },
                Node::File(contents) => {
                    let (len, allocated) = (contents.len(), contents.allocated());
                    Metadata {
                        len,
                        allocated,
                        is_dir: false,
                    }
                }
            }))
    }

    /// Directories may be renamed, too, to a free name or onto an empty directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let (from, to) = (shared.live.place(from)?, shared.live.place(to)?);
        let inode = shared.live.entry(&from).ok_or(io::ErrorKind::NotFound)?;
        let target = shared.live.entry(&to);
        if target == Some(inode) {
            return Ok(());
        }
        let is_dir = shared.live.entries(inode).is_some();
        if is_dir && to.path.starts_with(&from.path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match target.and_then(|target| shared.live.node(target)) {
            Some(Node::Directory(_)) if !is_dir => Err(io::ErrorKind::IsADirectory)?,
            Some(Node::Directory(entries)) if !entries.is_empty() => {
                Err(io::ErrorKind::DirectoryNotEmpty)?;
            }
            Some(Node::File(_)) if is_dir => Err(io::ErrorKind::NotADirectory)?,
            _ => {}
        }
        shared.record(Operation::Rename { from, to, inode });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let at = shared.live.place(path)?;
        let inode = shared.live.entry(&at).ok_or(io::ErrorKind::NotFound)?;
        shared.live.file(inode).ok_or(io::ErrorKind::IsADirectory)?;
        shared.record(Operation::Remove { at, inode });
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let directory = shared.live.resolve(path)?.ok_or(io::ErrorKind::NotFound)?;
        shared
            .live
            .entries(directory)
            .ok_or(io::ErrorKind::NotADirectory)?;
        if shared.directory_syncs.fails() {
            shared.record(Operation::SyncDirFailed { directory });
            return Err(io::Error::from_raw_os_error(EIO));
        }
        shared.record(Operation::SyncDir { directory });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsLock>>> {
        let mut shared = self.shared.lock();
        let inode = match shared.live.resolve(path)? {
            Some(inode) => inode,
            None => create(&mut shared, path)?,
        };
        shared.live.file(inode).ok_or(io::ErrorKind::IsADirectory)?;
        if !shared.locked.insert(inode) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock {
            shared: self.shared.clone(),
            inode,
        })))
    }
}

fn create(shared: &mut Shared, path: &Path) -> io::Result<Inode> {
    let at = shared.live.place(path)?;
    let inode = shared.take_inode();
    shared.record(Operation::Create { at, inode });
    Ok(inode)
}
