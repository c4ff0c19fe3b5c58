//! The errors of a configuration.

use std::path::PathBuf;

use super::Origin;

/// An error of the configuration. Its text names where the value was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is no TOML, or has a key that means nothing.
    #[error("{}:{line}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A value cannot be used.
    #[error("{}: {reason}", origin.describe(key))]
    Value {
        /// The setting.
        key: String,
        /// Where its value was given.
        origin: Origin,
        /// What is wrong.
        reason: String,
    },
    /// There is no such setting.
    #[error("there is no setting {key:?}")]
    Unknown {
        /// What was given.
        key: String,
    },
}
