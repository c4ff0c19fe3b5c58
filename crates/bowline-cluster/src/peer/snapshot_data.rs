//! A snapshot on its way: opaque bytes and files, as its sender has them or as they arrived.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_storage::engine::FrozenTable;
use bowline_storage::vfs::VfsFile;
use bytes::Bytes;
use tokio::sync::OwnedMutexGuard;

/// A file of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotFile {
    /// Its name, without a directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The CRC-32C of all of it. Of one that is to be sent it is found out when it is sent.
    pub crc32c: u32,
}

/// A file of a snapshot that is to be sent.
#[derive(Clone, Debug)]
pub struct OutgoingFile {
    /// What it is.
    pub described: SnapshotFile,
    /// Its bytes.
    pub file: Arc<dyn VfsFile>,
    /// What it is to the engine, which checks it before it is sent: damage does not spread.
    pub table: Option<FrozenTable>,
}

/// What a snapshot holds.
#[derive(Clone, Debug)]
pub enum SnapshotData {
    /// A snapshot of this node. The open files keep what they show as long as it is sent.
    Outgoing {
        /// What its maker wants its installer to know.
        state: Bytes,
        /// The files.
        files: Vec<OutgoingFile>,
    },
    /// A snapshot that arrived: every file is there, whole, checked and synced.
    Incoming {
        /// What its maker wants its installer to know.
        state: Bytes,
        /// Where the files are, by their names.
        directory: PathBuf,
        /// The files.
        files: Vec<SnapshotFile>,
        /// Keeps the next one from arriving, which would remove the files, as long as this lives.
        arrival: Arc<OwnedMutexGuard<()>>,
    },
}
