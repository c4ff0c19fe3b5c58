//! Temporal values as text, in the forms of ISO 8601 that openCypher uses: seconds and fractions only where needed.

use jiff::civil;
use jiff::tz::Offset;

/// A date.
///
/// ```
/// assert_eq!(bowline_types::show_date(jiff::civil::date(2026, 1, 2)), "2026-01-02");
/// ```
#[must_use]
pub fn show_date(date: civil::Date) -> String {
    let year = date.year();
    let sign = if year < 0 { "-" } else { "" };
    format!(
        "{sign}{:04}-{:02}-{:02}",
        year.abs(),
        date.month(),
        date.day()
    )
}

/// A time of day: seconds and fractions only where they are not zero.
///
/// ```
/// assert_eq!(bowline_types::show_time(jiff::civil::time(12, 30, 0, 0)), "12:30");
/// ```
#[must_use]
pub fn show_time(time: civil::Time) -> String {
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

/// A date and a time of day.
///
/// ```
/// assert_eq!(bowline_types::show_datetime(jiff::civil::date(2026, 1, 2).at(3, 4, 5, 0)), "2026-01-02T03:04:05");
/// ```
#[must_use]
pub fn show_datetime(datetime: civil::DateTime) -> String {
    format!(
        "{}T{}",
        show_date(datetime.date()),
        show_time(datetime.time())
    )
}

/// An offset from UTC.
///
/// ```
/// assert_eq!(bowline_types::show_offset(jiff::tz::offset(-3)), "-03:00");
/// ```
#[must_use]
pub fn show_offset(offset: Offset) -> String {
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
