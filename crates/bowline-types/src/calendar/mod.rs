//! Types of time that `jiff` does not have, and the text forms of all, as openCypher writes them.
//!
//! ```text
//!   duration   months, days, seconds, nanoseconds
//!   offset     a time of day with an offset
//!   instant    an instant in a time zone, as plain data
//!   show       text forms
//!   parse      and back
//! ```

mod duration;
mod instant;
mod offset;
mod parse;
mod show;

pub use duration::Duration;
pub use instant::ZonedInstant;
pub use offset::{OffsetTime, nanos_of, time_of};
pub use parse::{ParseTimeError, parse_date, parse_datetime};
pub use show::{show_date, show_datetime, show_offset, show_time};
