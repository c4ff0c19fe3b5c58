//! The configuration file: TOML. Keys are settings; values are texts, numbers, booleans or lists of texts.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::{ConfigError, SETTINGS};

/// Reads keys, values as text, and line numbers.
pub(super) fn read(path: &Path, text: &str) -> Result<Vec<(String, String, usize)>, ConfigError> {
    let line_of = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
    let wrong = |offset: usize, reason: String| ConfigError::File {
        path: path.to_owned(),
        line: line_of(offset),
        reason,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        wrong(offset, error.message().to_owned())
    })?;
    let mut values = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, offset) = (key.get_ref(), key.span().start);
        if !SETTINGS.iter().any(|setting| setting.key == name) {
            return Err(wrong(offset, format!("there is no setting {name:?}")));
        }
        let Some(text) = text_of(value.get_ref()) else {
            let reason = format!("{name} must be text, a number, a boolean or a list of texts");
            return Err(wrong(value.span().start, reason));
        };
        values.push((name.to_string(), text, line_of(offset)));
    }
    Ok(values)
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(list) => {
            let texts = list.iter().map(|value| match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            });
            Some(texts.collect::<Option<Vec<_>>>()?.join(","))
        }
        _ => None,
    }
}
