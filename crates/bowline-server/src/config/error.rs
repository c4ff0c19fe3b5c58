//! Errors of the configuration.

use std::path::PathBuf;

use super::Origin;

/// A configuration error. Its text names the source of the value.
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
    /// The file is not valid TOML, or has an unknown key.
    #[error("{}:{line}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A value is invalid.
    #[error("{}: {reason}", origin.describe(key))]
    Value {
        /// The setting.
        key: String,
        /// The source of its value.
        origin: Origin,
        /// What is wrong.
        reason: String,
    },
    /// The setting is unknown.
    #[error("there is no setting {key:?}")]
    Unknown {
        /// The given key.
        key: String,
    },
}
