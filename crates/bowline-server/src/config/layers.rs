//! The four layers of configuration; the first that has a key decides.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::origin::{Origin, variable_of};
use super::{Config, ConfigError, SETTINGS, file};

/// Each setting's value and its source.
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
    /// Adds a file above the present layers.
    ///
    /// # Errors
    /// When it cannot be read, is not valid TOML, or has an unknown key.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        self.add_text(path, &text)
    }

    /// Adds the text of the file at `path` above the present layers.
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

    /// Adds the environment above the present layers.
    pub fn add_environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for (key, value) in &mut self.values {
            if let Some(text) = variable(&variable_of(key)) {
                *value = (text, Origin::Environment);
            }
        }
    }

    /// Adds a flag above the present layers.
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

    /// The parsed value of a setting.
    pub(super) fn parse<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        parse(self.text(key).trim()).map_err(|reason| self.wrong(key, reason))
    }

    /// The error for a setting's value.
    pub(super) fn wrong(&self, key: &str, reason: String) -> ConfigError {
        let origin = self.values.get(key).map(|(_, origin)| origin.clone());
        ConfigError::Value {
            key: key.to_owned(),
            origin: origin.unwrap_or(Origin::Default),
            reason,
        }
    }

    /// Fills in the defaults that follow from other settings, as `config` has them, so that what is printed is
    /// in effect.
    pub fn resolve(&mut self, config: &Config) {
        let node = &config.node;
        let members = node.initial_cluster.iter();
        let members: Vec<String> = members.map(|(name, url)| format!("{name}={url}")).collect();
        for (key, unset, value) in [
            ("data-dir", "", node.data_dir.display().to_string()),
            (
                "advertise-client-urls",
                "",
                node.advertise_client_urls.join(","),
            ),
            ("initial-cluster", "", members.join(",")),
            ("quota-backend-bytes", "0", config.quota_bytes.to_string()),
        ] {
            if let Some((text, _)) = self.values.get_mut(key)
                && text.trim() == unset
            {
                *text = value;
            }
        }
    }

    /// The effective configuration as TOML, with the source of each value; it is valid as a file. A setting that
    /// has no value is a comment.
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
            if text.is_empty() && setting.default.is_empty() {
                // Writing into a string does not fail.
                let _ = writeln!(out, "# {} is not set", setting.key);
                continue;
            }
            let value = match text.parse::<i64>() {
                // A member's name may consist of digits, even with leading zeros or a sign.
                Ok(number) if number.to_string() == *text => text.clone(),
                // JSON's escapes are valid in TOML. Control characters for terminals are escaped besides.
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
