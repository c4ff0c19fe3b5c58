//! The arguments of `bowline update`.

use bowline::Update;
use clap::{Args, Subcommand};

use super::{Encoding, Write};

/// `bowline update`.
#[derive(Debug, Args)]
pub struct UpdateKey {
    /// The key
    pub key: String,
    /// How it is changed.
    #[command(subcommand)]
    pub change: Change,
    /// How the key and the values are written.
    #[command(flatten)]
    pub encoding: Encoding,
    /// How the write is acknowledged.
    #[command(flatten)]
    pub write: Write,
}

/// How a key is changed.
#[derive(Debug, Subcommand)]
pub enum Change {
    /// Add to a number; within bounds, if some are given
    #[command(after_help = "Examples:
  bowline update jobs/next add 1
  bowline update seats add -1 --min 0")]
    Add {
        /// What is added
        #[arg(allow_negative_numbers = true)]
        amount: i64,
        /// The smallest sum; one below it changes nothing
        #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
        min: Option<i64>,
        /// The largest sum; one above it changes nothing
        #[arg(long, allow_negative_numbers = true, value_name = "NUMBER")]
        max: Option<i64>,
    },
    /// Set a number that is smaller, or absent
    #[command(after_help = "Examples:
  bowline update highest max 7")]
    Max {
        /// The least number that the key has then
        #[arg(allow_negative_numbers = true)]
        number: i64,
    },
    /// Set a number that is larger, or absent
    #[command(after_help = "Examples:
  bowline update lowest min 7")]
    Min {
        /// The largest number that the key has then
        #[arg(allow_negative_numbers = true)]
        number: i64,
    },
    /// Add bytes behind the value
    #[command(after_help = "Examples:
  bowline update log append 'one more;'")]
    Append {
        /// The bytes
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Set a key that is absent
    #[command(after_help = "Examples:
  bowline update leader set-if-absent node-1")]
    SetIfAbsent {
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Exchange one value for another
    #[command(after_help = "Examples:
  bowline update state swap --expected idle --new busy
  bowline update lock swap --expected me")]
    Swap {
        /// The value that the key must have; it must be absent if this is
        #[arg(long, allow_negative_numbers = true, value_name = "VALUE")]
        expected: Option<String>,
        /// The value that it gets; it is deleted if this is absent
        #[arg(long, allow_negative_numbers = true, value_name = "VALUE")]
        new: Option<String>,
    },
}

impl Change {
    /// As the library and the client have it.
    ///
    /// # Errors
    /// A value that is not in the encoding.
    pub fn update(&self, encoding: Encoding) -> Result<Update, String> {
        let optional = |text: &Option<String>| {
            let decoded = text.as_deref().map(|text| encoding.decode(text));
            decoded.transpose()
        };
        Ok(match self {
            Change::Add {
                amount,
                min: None,
                max: None,
            } => Update::Add(*amount),
            Change::Add { amount, min, max } => Update::AddWithin {
                amount: *amount,
                min: min.unwrap_or(i64::MIN),
                max: max.unwrap_or(i64::MAX),
            },
            Change::Max { number } => Update::Max(*number),
            Change::Min { number } => Update::Min(*number),
            Change::Append { value } => Update::Append(encoding.decode(value)?),
            Change::SetIfAbsent { value } => Update::SetIfAbsent(encoding.decode(value)?),
            Change::Swap { expected, new } => Update::Swap {
                expected: optional(expected)?,
                new: optional(new)?,
            },
        })
    }
}

/// Whether an update that has left the key as it was, with this value, was not allowed to change it: a value that was the
/// new one before is no refusal.
pub(crate) fn is_refused(update: &Update, value: Option<&[u8]>) -> bool {
    match update {
        Update::SetIfAbsent(_) => true,
        Update::Swap { new, .. } => new.as_deref() != value,
        Update::AddWithin { amount, min, max } => {
            let number = value.map_or(Some(0), |value| {
                std::str::from_utf8(value).ok()?.parse().ok()
            });
            *amount != 0 || !number.is_some_and(|number: i64| (*min..=*max).contains(&number))
        }
        Update::Add(_) | Update::Max(_) | Update::Min(_) | Update::Append(_) => false,
    }
}
