//! The errors of the engine. Each says what happened, where, and what to do next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Revision;

/// Shorthand for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the storage engine.
///
/// ```
/// # use bowline_storage::Error;
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::Locked { .. } => "close it in the other process",
///         _ if error.is_shortage() => "free space on the disk, or close files; then go on",
///         _ if error.is_retryable() => "try again",
///         _ if error.is_corruption() => "restore a checkpoint",
///         _ => "read the message",
///     }
/// }
/// # assert_eq!(advice(&Error::Closed), "read the message");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The attempted operation: `open`, `read`, `write`, `sync`, `rename`, …
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The disk or the quota is full. Nothing of the refused write was kept.
    #[error("no space left for {}: free space on the disk, then try again; reads still work", path.display())]
    NoSpace {
        /// The file that could not grow or be created.
        path: PathBuf,
    },
    /// The process, or the system, has as many open files as it may have. Nothing was done.
    #[error("cannot {operation} {}: there may be no more open files; close some or raise their limit, then try again", path.display())]
    TooManyFiles {
        /// The attempted operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// Bytes on disk differ from those that were written.
    #[error("{} is damaged at offset {offset}: {reason}; restore it from a checkpoint or a replica", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// The expected and the found content.
        reason: String,
    },
    /// A file the manifest names is gone.
    #[error("{} is missing: {reason}; restore it from a checkpoint or a replica", path.display())]
    MissingFile {
        /// The missing file.
        path: PathBuf,
        /// Why it is needed.
        reason: String,
    },
    /// Another process (or another handle in this one) has the directory open.
    #[error("{} is in use by another process: close it there first, or choose another directory", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
    /// The path is not a Bowline data directory.
    #[error("{} is not a Bowline database: {reason}", path.display())]
    NotADatabase {
        /// The path given.
        path: PathBuf,
        /// What the path has instead.
        reason: String,
    },
    /// The directory belongs to a member of a cluster, whose log holds what others have not agreed
    /// to yet.
    #[error("{} belongs to a member of a cluster: reach it through its server, or serve it again with `bowline serve`", path.display())]
    Member {
        /// The data directory.
        path: PathBuf,
    },
    /// A snapshot outlived the state it was taken of: the member lagged behind, and took over the
    /// tables of another.
    #[error(
        "revision {at} is gone since the state of another member was taken over, which begins at {oldest}: take a new snapshot"
    )]
    Replaced {
        /// The revision read at.
        at: Revision,
        /// The oldest there is now.
        oldest: Revision,
    },
    /// A file was replaced, and a reader holds it still, so that another one of its name cannot come. Nothing
    /// was done.
    #[error("{} was replaced, but is still read: try again when its last reader has ended", path.display())]
    StillRead {
        /// The file.
        path: PathBuf,
    },
    /// The directory was written by a newer version.
    #[error("{} has format version {found}, this program reads up to {supported}: use a newer bowline", path.display())]
    NewerFormat {
        /// The file that carries the version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
    /// The file needs a feature that this program was built without.
    #[error("{} needs {feature}, which this program was built without: use one that has the feature `{feature}`", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature it needs.
        feature: &'static str,
    },
    /// An earlier write or flush failed, so the content of the disk is unknown. No write is accepted any
    /// more; reads go on. Reopening recovers everything that was acknowledged.
    #[error("writes are refused since an earlier failure ({reason}): reopen the database")]
    Poisoned {
        /// The failure.
        reason: Arc<str>,
    },
    /// A batch is larger than the engine takes.
    #[error("a batch of {size} bytes is over the limit of {limit} bytes: split it")]
    BatchTooLarge {
        /// Bytes asked for.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The engine has been closed.
    #[error("the database is closed")]
    Closed,
    /// A caller used an interface against its contract. A bug in Bowline, not in the data.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl Error {
    /// Wraps an I/O error, telling a full disk and a lack of open files from the rest.
    #[doc(hidden)]
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Error {
        if is_out_of_files(&source) {
            return Error::TooManyFiles {
                operation,
                path: path.to_owned(),
            };
        }
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace {
                path: path.to_owned(),
            },
            _ => Error::Io {
                operation,
                path: path.to_owned(),
                source: Arc::new(source),
            },
        }
    }

    /// Damage found at `offset` of `path`.
    #[doc(hidden)]
    pub fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            path: path.to_owned(),
            offset,
            reason: reason.into(),
        }
    }

    /// Whether the same call may succeed later without anything being repaired.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::NoSpace { .. }
                | Error::TooManyFiles { .. }
                | Error::Locked { .. }
                | Error::Replaced { .. }
                | Error::StillRead { .. }
        )
    }

    /// Whether the call lacked room on the disk or a file to open, did nothing, and succeeds once there is some.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::TooManyFiles { .. })
    }

    /// Whether the error says that bytes on disk are damaged or gone.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::MissingFile { .. })
    }
}

/// Whether a call found no more open files allowed, to the process or on the system.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}
