//! The settings of the audit log.

use std::path::{Path, absolute};

use super::parse::{number, one_of};
use crate::audit::{AuditOptions, Events, Overflow, Target};

/// The setting whose value is wrong, and why.
pub(super) type Wrong = (&'static str, String);

/// The settings, by the texts of their values; `None` without `--audit-log`. The others are looked at all the same.
pub(super) fn of_texts<'t>(
    text: impl Fn(&'static str) -> &'t str,
) -> Result<Option<AuditOptions>, Wrong> {
    const LOG: &str = "audit-log";
    const EVENTS: &str = "audit-events";
    const OVERFLOW: &str = "audit-overflow";
    let events = Events::parse(text(EVENTS)).map_err(|reason| (EVENTS, reason))?;
    let overflow = one_of(text(OVERFLOW), &["block", "drop"]);
    let overflow = overflow.map_err(|reason| (OVERFLOW, reason))?;
    let at_least = |key: &'static str, least: u64| match number(text(key)) {
        Ok(value) if value < least => Err((key, format!("must be at least {least}"))),
        value => value.map_err(|reason| (key, reason)),
    };
    let file_bytes_max = at_least("audit-file-bytes", AuditOptions::FILE_BYTES_MIN)?;
    let files_max = at_least("audit-files", 1)?;
    let queue_bytes_max = at_least("audit-queue-bytes", AuditOptions::QUEUE_BYTES_MIN)?;
    let target = match text(LOG) {
        "" => return Ok(None),
        "stdout" => Target::StandardOutput,
        path => {
            // The directory of a path without one is the present one.
            let path = absolute(Path::new(path));
            Target::File(path.map_err(|error| (LOG, error.to_string()))?)
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
