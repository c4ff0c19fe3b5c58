//! Temporal values as text, in the forms of ISO 8601 that openCypher uses: seconds and fractions only where needed.

use jiff::ZonedDateTime;
use jiff::civil;
use jiff::tz::Offset;

pub(crate) fn show_date(date: civil::Date) -> String {
    let year = date.year();
    let sign = if year < 0 { "-" } else { "" };
    format!(
        "{sign}{:04}-{:02}-{:02}",
        year.abs(),
        date.month(),
        date.day()
    )
}

pub(crate) fn show_time(time: civil::Time) -> String {
    let mut text = format!("{:02}:{:02}", time.hour(), time.minute());
    let nanos = time.subsec_nanosecond();
    if time.second() != 0 || nanos != 0 {
        text.push_str(&format!(":{:02}", time.second()));
    }
    if nanos != 0 {
        text.push('.');
        text.push_str(format!("{nanos:09}").trim_end_matches('0'));
    }
    text
}

pub(crate) fn show_datetime(datetime: civil::DateTime) -> String {
    format!(
        "{}T{}",
        show_date(datetime.date()),
        show_time(datetime.time())
    )
}

pub(crate) fn show_offset(offset: Offset) -> String {
    let seconds = offset.seconds();
    if seconds == 0 {
        return "Z".into();
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.abs();
    let mut text = format!("{sign}{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
    if seconds % 60 != 0 {
        text.push_str(&format!(":{:02}", seconds % 60));
    }
    text
}

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
