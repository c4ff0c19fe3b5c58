//! The operations on a disk: one [`Operation`] per call that changed or synced something, in the order of
//! execution, and the [`Recording`] that holds them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::tree::Tree;

/// The identity of a file or directory, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Inode(pub(crate) u64);

/// One entry of one directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory.
    pub directory: Inode,
    /// The name in it.
    pub name: Arc<str>,
    /// The path that the program used, for messages.
    pub path: Arc<Path>,
}

/// The bytes of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// That many zeros.
    Zeros(u64),
    /// These bytes.
    Bytes(Arc<[u8]>),
}

impl Payload {
    pub(crate) fn new(bytes: &[u8]) -> Payload {
        if bytes.iter().all(|byte| *byte == 0) {
            Payload::Zeros(bytes.len() as u64)
        } else {
            Payload::Bytes(bytes.into())
        }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Payload::Zeros(len) => *len,
            Payload::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One call that changed or synced something, and succeeded (or failed as the name says).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A directory was created.
    CreateDir {
        /// Its name.
        at: Place,
        /// The directory.
        inode: Inode,
    },
    /// An empty file was created.
    Create {
        /// Its name.
        at: Place,
        /// The file.
        inode: Inode,
    },
    /// Bytes were written.
    Write {
        /// The file.
        inode: Inode,
        /// The offset in bytes.
        offset: u64,
        /// The bytes.
        data: Payload,
        /// Whether the file became longer.
        grows: bool,
    },
    /// A bit decayed at rest. The medium holds it like that from now on, whatever is flushed.
    FlipBit {
        /// The file.
        inode: Inode,
        /// Byte of the file.
        offset: u64,
        /// Bit of the byte, 0 to 7.
        bit: u8,
    },
    /// A file was truncated or extended.
    SetLen {
        /// The file.
        inode: Inode,
        /// Its new length in bytes.
        len: u64,
    },
    /// A file's data and length were synced.
    SyncFile {
        /// The file.
        inode: Inode,
    },
    /// A sync failed: the data that it should have covered may be lost, whatever a later sync returns.
    SyncFileFailed {
        /// The file.
        inode: Inode,
    },
    /// A file or directory was renamed; a file with the new name was replaced.
    Rename {
        /// The old name.
        from: Place,
        /// The new name.
        to: Place,
        /// The renamed file or directory.
        inode: Inode,
    },
    /// A file's name was removed.
    Remove {
        /// The name.
        at: Place,
        /// The file.
        inode: Inode,
    },
    /// The names in a directory were synced.
    SyncDir {
        /// The directory.
        directory: Inode,
    },
    /// A sync of a directory failed: the names that it should have covered may be lost, until a later sync of it.
    SyncDirFailed {
        /// The directory.
        directory: Inode,
    },
}

impl Operation {
    /// The call's name: `write`, `sync` and so on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::CreateDir { .. } => "create dir",
            Operation::Create { .. } => "create",
            Operation::Write { .. } => "write",
            Operation::FlipBit { .. } => "flip bit",
            Operation::SetLen { .. } => "set len",
            Operation::SyncFile { .. } => "sync",
            Operation::SyncFileFailed { .. } => "failed sync",
            Operation::Rename { .. } => "rename",
            Operation::Remove { .. } => "remove",
            Operation::SyncDir { .. } => "sync dir",
            Operation::SyncDirFailed { .. } => "failed sync dir",
        }
    }

    /// The affected file or directory.
    #[must_use]
    pub fn inode(&self) -> Inode {
        match self {
            Operation::CreateDir { inode, .. }
            | Operation::Create { inode, .. }
            | Operation::Write { inode, .. }
            | Operation::FlipBit { inode, .. }
            | Operation::SetLen { inode, .. }
            | Operation::SyncFile { inode }
            | Operation::SyncFileFailed { inode }
            | Operation::Rename { inode, .. }
            | Operation::Remove { inode, .. } => *inode,
            Operation::SyncDir { directory } | Operation::SyncDirFailed { directory } => *directory,
        }
    }

    /// The inodes that must be synced before the operation is safe; none for a sync, and for what the medium did.
    pub(crate) fn needs(&self) -> [Option<Inode>; 2] {
        match self {
            Operation::CreateDir { at, .. }
            | Operation::Create { at, .. }
            | Operation::Remove { at, .. } => [Some(at.directory), None],
            Operation::Rename { from, to, .. } => {
                let second = (from.directory != to.directory).then_some(to.directory);
                [Some(from.directory), second]
            }
            Operation::Write { inode, .. } | Operation::SetLen { inode, .. } => {
                [Some(*inode), None]
            }
            Operation::FlipBit { .. }
            | Operation::SyncFile { .. }
            | Operation::SyncFileFailed { .. }
            | Operation::SyncDir { .. }
            | Operation::SyncDirFailed { .. } => [None, None],
        }
    }

    /// The inodes with whose other operations it stays in order.
    pub(crate) fn touches(&self) -> impl Iterator<Item = Inode> {
        let flipped = match self {
            Operation::FlipBit { inode, .. } => Some(*inode),
            _ => None,
        };
        self.needs().into_iter().flatten().chain(flipped)
    }
}

/// Everything a program did to a disk, from a state in which everything was durable.
///
/// A *point* `t` of a recording is the moment after its first `t` operations; there are
/// `len() + 1` of them.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) base: Tree,
    pub(crate) operations: Arc<[Operation]>,
    /// Point and number, in the order of marking (so points never decrease).
    pub(crate) marks: Arc<[(usize, u64)]>,
}

impl Recording {
    /// The operations, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The number of operations; also the last point.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The numbers marked at `point` or before, in the order of marking.
    #[must_use]
    pub fn marks_until(&self, point: usize) -> Vec<u64> {
        let count = self.marks.partition_point(|(at, _)| *at <= point);
        self.marks[..count]
            .iter()
            .map(|(_, number)| *number)
            .collect()
    }

    /// A description of the operation with this index, with the name its file was created with.
    #[must_use]
    pub fn describe(&self, index: usize) -> String {
        match self.operations.get(index) {
            Some(operation) => format!(
                "#{index} {}",
                Described {
                    recording: self,
                    operation
                }
            ),
            None => format!("#{index} (not recorded)"),
        }
    }

    fn name_of(&self, inode: Inode) -> String {
        let created = self
            .operations
            .iter()
            .find_map(|operation| match operation {
                Operation::Create { at, inode: created }
                | Operation::CreateDir { at, inode: created }
                    if *created == inode =>
                {
                    Some(at.path.display().to_string())
                }
                _ => None,
            });
        let found = created.or_else(|| self.base.path_of(inode));
        found.unwrap_or_else(|| format!("inode {}", inode.0))
    }
}

struct Described<'a> {
    recording: &'a Recording,
    operation: &'a Operation,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |inode: &Inode| self.recording.name_of(*inode);
        match self.operation {
            Operation::CreateDir { at, .. } => write!(f, "create_dir {}", at.path.display()),
            Operation::Create { at, .. } => write!(f, "create {}", at.path.display()),
            Operation::Write {
                inode,
                offset,
                data,
                ..
            } => {
                write!(
                    f,
                    "write {} bytes at {offset} of {}",
                    data.len(),
                    name(inode)
                )
            }
            Operation::FlipBit { inode, offset, bit } => {
                write!(f, "flip bit {bit} of byte {offset} of {}", name(inode))
            }
            Operation::SetLen { inode, len } => write!(f, "set_len {len} of {}", name(inode)),
            Operation::SyncFile { inode } => write!(f, "sync {}", name(inode)),
            Operation::SyncFileFailed { inode } => write!(f, "failed sync {}", name(inode)),
            Operation::Rename { from, to, .. } => {
                write!(f, "rename {} to {}", from.path.display(), to.path.display())
            }
            Operation::Remove { at, .. } => write!(f, "remove {}", at.path.display()),
            Operation::SyncDir { directory } => write!(f, "sync_dir {}", name(directory)),
            Operation::SyncDirFailed { directory } => {
                write!(f, "failed sync_dir {}", name(directory))
            }
        }
    }
}
