//! A snapshot in transfer: an opaque state and files, at the sender or as they arrived.

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
    /// The CRC-32C of the whole file. For an outgoing file it is computed at the sending.
    pub crc32c: u32,
}

/// A file of an outgoing snapshot.
#[derive(Clone, Debug)]
pub struct OutgoingFile {
    /// Its description.
    pub described: SnapshotFile,
    /// Its bytes.
    pub file: Arc<dyn VfsFile>,
    /// The engine's table, which is verified before it is sent: damage does not spread.
    pub table: Option<FrozenTable>,
}

/// The contents of a snapshot.
#[derive(Clone, Debug)]
pub enum SnapshotData {
    /// A snapshot of this node. The open files keep their contents during the transfer.
    Outgoing {
        /// The sender's state for the installer.
        state: Bytes,
        /// The files.
        files: Vec<OutgoingFile>,
    },
    /// A received snapshot: every file is complete, checked and synced.
    Incoming {
        /// The sender's state for the installer.
        state: Bytes,
        /// The directory of the files.
        directory: PathBuf,
        /// The files.
        files: Vec<SnapshotFile>,
        /// While this lives, the next snapshot, whose arrival would remove the files, waits.
        arrival: Arc<OwnedMutexGuard<()>>,
    },
}
