//! Temporal values: dates, times, instants, durations.
//!
//! The calendar, the time zones and their history are those of the crate `jiff`, with its bundled database, so answers
//! do not depend on the machine. Years run from -9999 to 9999; openCypher's larger years are refused by name.
//!
//! ```text
//!   read       the text form, read
//!   fields     values from parts: {year: 2024, week: 1}
//!   parts      parts of values: date.week
//!   truncate   the start of the month, of the week, …
//!   between    the duration between two values
//!   calculate  + - * /
//! ```

mod between;
mod calculate;
mod fields;
mod parts;
mod read;
mod truncate;

pub(crate) use between::{Span, between};
pub(crate) use calculate::{calculate, negate};
pub(crate) use fields::{Shape, build, from_epoch, from_value, now, now_in, read_text};
pub(crate) use parts::component;
pub(crate) use truncate::truncate;
