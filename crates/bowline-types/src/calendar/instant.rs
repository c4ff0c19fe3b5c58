//! An instant in a time zone.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::Offset;

use super::show::{show_datetime, show_offset};

/// An instant, how far the local time was from UTC then, and the name of the zone if there was one. Plain data: no
/// database of zones is asked, so every program reads and compares it in the same way.
///
/// ```
/// use bowline_types::ZonedInstant;
/// use jiff::{Timestamp, tz};
///
/// let landing = ZonedInstant {
///     instant: Timestamp::new(-14_182_916, 0).unwrap(),
///     offset: tz::offset(2),
///     zone: Some("Africa/Cairo".into()),
/// };
/// assert_eq!(landing.to_string(), "1969-07-20T22:18:04+02:00[Africa/Cairo]");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ZonedInstant {
    /// The instant.
    pub instant: Timestamp,
    /// The offset from UTC of its local time.
    pub offset: Offset,
    /// The name of the zone in the IANA database; `None` for a plain offset.
    pub zone: Option<String>,
}

impl fmt::Display for ZonedInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = show_datetime(self.offset.to_datetime(self.instant));
        write!(f, "{local}{}", show_offset(self.offset))?;
        match &self.zone {
            Some(zone) => write!(f, "[{zone}]"),
            None => Ok(()),
        }
    }
}
