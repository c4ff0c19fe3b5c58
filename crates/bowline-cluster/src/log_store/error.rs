//! The errors of the log store.

use std::io;
use std::sync::Arc;

/// An error of the log store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogStoreError {
    /// The engine's log, or the member's file, failed.
    #[error(transparent)]
    Storage(#[from] bowline_storage::Error),
    /// A record of the log cannot be read.
    #[error("the log entry {index} cannot be read")]
    Record {
        /// Its Raft index.
        index: u64,
        /// Why.
        source: crate::record::RecordError,
    },
    /// What the log and its owner say does not fit together.
    #[error("the Raft log contradicts the database: {0}; restore the member from its cluster")]
    Contradiction(String),
    /// A call that leaves a hole, or reads one.
    #[error("the Raft log has no entry {index}: it {held}")]
    Hole {
        /// The Raft index in question.
        index: u64,
        /// What is there instead.
        held: String,
    },
    /// An earlier write failed, or the store is closed.
    #[error("the Raft log takes no more writes: {0}")]
    Stopped(Arc<str>),
}

impl LogStoreError {
    /// Whether the log lacked room or a file to open, nothing was done, and the same can be tried again.
    pub(super) fn is_shortage(&self) -> bool {
        matches!(self, LogStoreError::Storage(error) if error.is_shortage())
    }
}

impl From<LogStoreError> for io::Error {
    fn from(error: LogStoreError) -> io::Error {
        io::Error::other(error)
    }
}
