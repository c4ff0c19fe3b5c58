//! Types of time that `jiff` does not have, and the text forms of all.
//!
//! ```text
//!   duration   months, days, seconds, nanoseconds
//!   offset     a time of day with an offset
//!   show       text forms
//! ```

mod duration;
mod offset;
mod show;

pub use duration::Duration;
pub(crate) use duration::{NANOS, SECONDS_PER_DAY, out_of_range};
pub use offset::OffsetTime;
pub(crate) use offset::{nanos_of, time_of};
pub(crate) use show::{show_date, show_datetime, show_offset, show_time, show_zoned, zone_name};
