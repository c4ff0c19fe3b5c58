//! Instants in time zones as text.

use bowline_types::{show_datetime, show_offset};
use jiff::ZonedDateTime;

pub(crate) fn show_zoned(zoned: &ZonedDateTime) -> String {
    let mut text = show_datetime(zoned.datetime());
    text.push_str(&show_offset(zoned.offset()));
    if let Some(name) = zone_name(zoned) {
        text.push_str(&format!("[{name}]"));
    }
    text
}

/// The name of the zone, unless it is a plain offset.
pub(crate) fn zone_name(zoned: &ZonedDateTime) -> Option<&str> {
    zoned.time_zone().iana_name().filter(|name| *name != "UTC")
}
