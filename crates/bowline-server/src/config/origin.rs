//! The source of a setting's value.

use std::path::PathBuf;

/// The source of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In a file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The default.
    Default,
}

impl Origin {
    /// The source as an error names it.
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
