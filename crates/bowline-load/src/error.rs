//! The errors of a load: it did not run, or measured nothing.

use std::io;

/// Why a load was not run, or measured nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parameters contradict each other.
    #[error("{0}")]
    Usage(String),
    /// There is nothing to run.
    #[error("{0}")]
    NotFound(String),
    /// A server does not answer, or ended.
    #[error("{0}")]
    Unreachable(String),
    /// A server cannot be started.
    #[error("{0}")]
    System(String),
    /// A comparison is worse than the kept one.
    #[error("{0}")]
    Worse(String),
    /// A mistake of the load generator.
    #[error("{0}")]
    Internal(String),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A server refused what prepares the load.
    #[error(transparent)]
    Client(#[from] bowline_client::Error),
}

/// What a load gives, or why there is nothing.
pub type Result<T, E = Error> = std::result::Result<T, E>;
