//! The settings of the audit log.

use std::path::{Path, absolute};

use super::parse::{number, one_of};
use super::{ConfigError, Layers};
use crate::audit::{AuditOptions, Events, Overflow, Target};

/// The settings; `None` without `--audit-log`. The others are looked at all the same.
pub(super) fn of_layers(layers: &Layers) -> Result<Option<AuditOptions>, ConfigError> {
    let events = layers.parse("audit-events", Events::parse)?;
    let overflow = layers.parse("audit-overflow", |text| one_of(text, &["block", "drop"]))?;
    let at_least = |key: &str, least: u64| match layers.parse(key, number)? {
        value if value < least => Err(layers.wrong(key, format!("must be at least {least}"))),
        value => Ok(value),
    };
    let file_bytes_max = at_least("audit-file-bytes", AuditOptions::FILE_BYTES_MIN)?;
    let files_max = at_least("audit-files", 1)?;
    let queue_bytes_max = at_least("audit-queue-bytes", AuditOptions::QUEUE_BYTES_MIN)?;
    let target = match layers.text("audit-log") {
        "" => return Ok(None),
        "stdout" => Target::StandardOutput,
        path => {
            // The directory of a path without one is the present one.
            let path = absolute(Path::new(path));
            Target::File(path.map_err(|error| layers.wrong("audit-log", error.to_string()))?)
        }
    };
    Ok(Some(AuditOptions {
        target,
        events,
        overflow: match overflow {
            0 => Overflow::Block,
            _ => Overflow::Drop,
        },
        file_bytes_max,
        files_max: u32::try_from(files_max).unwrap_or(u32::MAX),
        queue_bytes_max: usize::try_from(queue_bytes_max).unwrap_or(usize::MAX),
        wait_max: AuditOptions::WAIT_MAX,
    }))
}
