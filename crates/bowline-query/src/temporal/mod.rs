//! Temporal values: dates, times, instants, durations.
//!
//! The calendar, the time zones and their history are those of the crate `jiff`, with its bundled database, so answers
//! do not depend on the machine. Years run from -9999 to 9999; openCypher's larger years are refused by name.
//!
//! ```text
//!   duration   months, days, seconds, nanoseconds
//!   offset     a time of day with an offset
//!   show       the text form
//!   read       the text form, read
//!   fields     values from parts: {year: 2024, week: 1}
//!   parts      parts of values: date.week
//!   truncate   the start of the month, of the week, …
//!   between    the duration between two values
//!   calculate  + - * /
//! ```

mod between;
mod calculate;
mod duration;
mod fields;
mod offset;
mod parts;
mod read;
mod show;
mod truncate;

pub(crate) use between::{Span, between};
pub(crate) use calculate::{calculate, negate};
pub use duration::Duration;
pub(crate) use fields::{Shape, build, from_epoch, from_value, now, now_in, read_text};
pub use offset::OffsetTime;
pub(crate) use parts::component;
pub(crate) use show::{show_date, show_datetime, show_time, show_zoned};
pub(crate) use truncate::truncate;

use crate::error::Error;

/// A result that the calendar cannot hold.
fn out_of_range() -> Error {
    Error::Unsupported { what: "a year outside of -9999 to 9999".into(), span: None, place: None }
}

const NANOS: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
