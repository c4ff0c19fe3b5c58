//! The layers of the configuration: of four, the first that has a key decides.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{ConfigError, SETTINGS, file};

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
fn variable_of(key: &str) -> String {
    format!("BOWLINE_{}", key.to_uppercase().replace('-', "_"))
}

/// The value of every setting, and where it was given.
#[derive(Debug, Clone)]
pub struct Layers {
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Default for Layers {
    fn default() -> Layers {
        let default = |setting: &super::Setting| {
            let value = (setting.default.to_owned(), Origin::Default);
            (setting.key, value)
        };
        Layers {
            values: SETTINGS.iter().map(default).collect(),
        }
    }
}

impl Layers {
    /// Puts a file over what is there.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or has a key that is no setting.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        self.add_text(path, &text)
    }

    /// Puts what is in the file at `path` over what is there.
    pub(crate) fn add_text(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        for (key, value, line) in file::read(path, text)? {
            let origin = Origin::File {
                path: path.to_owned(),
                line,
            };
            self.set(&key, value, origin)?;
        }
        Ok(())
    }

    /// Puts the environment over what is there.
    pub fn add_environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for (key, value) in &mut self.values {
            if let Some(text) = variable(&variable_of(key)) {
                *value = (text, Origin::Environment);
            }
        }
    }

    /// Puts a flag over what is there.
    ///
    /// # Errors
    /// `Unknown` when there is no such setting.
    pub fn add_flag(&mut self, key: &str, value: String) -> Result<(), ConfigError> {
        self.set(key, value, Origin::Flag)
    }

    fn set(&mut self, key: &str, value: String, origin: Origin) -> Result<(), ConfigError> {
        match self.values.get_mut(key) {
            Some(place) => {
                *place = (value, origin);
                Ok(())
            }
            None => Err(ConfigError::Unknown {
                key: key.to_owned(),
            }),
        }
    }

    /// The text of a setting.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |(text, _)| text)
    }

    /// The value of a setting.
    pub(super) fn parse<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        parse(self.text(key).trim()).map_err(|reason| self.wrong(key, reason))
    }

    /// The error for a setting.
    pub(super) fn wrong(&self, key: &str, reason: String) -> ConfigError {
        let origin = self.values.get(key).map(|(_, origin)| origin.clone());
        ConfigError::Value {
            key: key.to_owned(),
            origin: origin.unwrap_or(Origin::Default),
            reason,
        }
    }

    /// What is in effect, as TOML that can be used as a file again; says where each value came from.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        for setting in SETTINGS {
            let Some((text, origin)) = self.values.get(setting.key) else {
                continue;
            };
            let from = match origin {
                Origin::Flag | Origin::Environment => origin.describe(setting.key),
                Origin::File { path, line } => format!("{}:{line}", path.display()),
                Origin::Default => "default".to_owned(),
            };
            let value = match text.parse::<i64>() {
                // A name may be made of digits, too, with a zero or a sign before them.
                Ok(number) if number.to_string() == *text => text.clone(),
                // What JSON escapes, TOML does in the same way. What a terminal would obey is escaped besides.
                _ => {
                    let quoted = serde_json::Value::from(text.as_str()).to_string();
                    let mut escaped = String::with_capacity(quoted.len());
                    for c in quoted.chars() {
                        match bowline::text::is_plain(c) {
                            true => escaped.push(c),
                            // Writing into a string does not fail.
                            false => drop(write!(escaped, "\\U{:08x}", u32::from(c))),
                        }
                    }
                    escaped
                }
            };
            // Writing into a string does not fail.
            let _ = writeln!(out, "{} = {value} # {from}", setting.key);
        }
        out
    }
}
