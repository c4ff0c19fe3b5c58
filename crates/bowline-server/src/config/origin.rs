//! Where a value was given.

use std::path::PathBuf;

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In a file.
    File {
        /// Which.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
    },
    /// Nowhere.
    Default,
}

impl Origin {
    /// The place as an error names it.
    #[must_use]
    pub fn describe(&self, key: &str) -> String {
        match self {
            Origin::Flag => format!("--{key}"),
            Origin::Environment => variable_of(key),
            Origin::File { path, line } => format!("{}:{line}: {key}", path.display()),
            Origin::Default => format!("{key} (default)"),
        }
    }
}

/// The environment variable of a setting.
pub(super) fn variable_of(key: &str) -> String {
    format!("BOWLINE_{}", key.to_uppercase().replace('-', "_"))
}
