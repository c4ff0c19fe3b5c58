//! Calculations with types of time, and what `jiff` does not show.
//!
//! ```text
//!   duration   sums, products, order
//!   zoned      text forms
//! ```

mod duration;
mod zoned;

pub(crate) use duration::{Amount, Calculate, NANOS, SECONDS_PER_DAY, out_of_range};
pub(crate) use zoned::{show_zoned, zone_name};
