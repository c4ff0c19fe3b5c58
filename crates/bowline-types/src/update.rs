//! [`Update`]: a change of a key that depends on the value it has.

use std::fmt;

/// A change of one key that is computed from the newest value at the moment when it is decided. It conflicts with nobody, and
/// many updates of one key share a flush.
///
/// Numbers are 64-bit integers with a sign, written in decimal (`42`, `-7`), as a person reads them; an absent key
/// counts as 0. An update keeps the lease of its key. One that gives the value that is there already changes nothing,
/// and takes no revision.
///
/// ```
/// use bowline_types::{Update, NewValue};
///
/// assert_eq!(Update::Add(2).apply(Some(b"40")), Ok(NewValue::Put(b"42".to_vec())));
/// assert_eq!(Update::Max(7).apply(Some(b"9")), Ok(NewValue::Unchanged));
/// assert_eq!(Update::Append(b"!".to_vec()).apply(None), Ok(NewValue::Put(b"!".to_vec())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Update {
    /// Adds to a number.
    Add(i64),
    /// Adds to a number if the sum is within these bounds, both included. If not, nothing is changed.
    AddWithin {
        /// What is added.
        amount: i64,
        /// The smallest sum.
        min: i64,
        /// The largest sum.
        max: i64,
    },
    /// Sets a number that is smaller, or absent, to this one.
    Max(i64),
    /// Sets a number that is larger, or absent, to this one.
    Min(i64),
    /// Adds bytes behind the value; an absent key has an empty one.
    Append(Vec<u8>),
    /// Sets a key that is absent.
    SetIfAbsent(Vec<u8>),
    /// Exchanges one value for another, where `None` is an absent key. If the key has another value, nothing is changed.
    Swap {
        /// What the key must have.
        expected: Option<Vec<u8>>,
        /// What it gets.
        new: Option<Vec<u8>>,
    },
}

/// What an update makes of a value.
///
/// ```
/// use bowline_types::{Update, NewValue};
///
/// let leave = Update::Swap { expected: Some(b"busy".to_vec()), new: None };
/// assert_eq!(leave.apply(Some(b"busy")), Ok(NewValue::Delete));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewValue {
    /// The key stays as it is.
    Unchanged,
    /// The key gets this value.
    Put(Vec<u8>),
    /// The key is deleted.
    Delete,
}

/// The value does not suit the update.
///
/// ```
/// use bowline_types::{Update, UpdateError};
///
/// assert_eq!(Update::Add(1).apply(Some(b"many")), Err(UpdateError::NotANumber));
/// assert_eq!(Update::Add(i64::MIN).apply(Some(b"-1")), Err(UpdateError::Overflow));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The value is not a number in decimal.
    #[error("its value is not a whole number of 64 bits in decimal, such as 42 or -7")]
    NotANumber,
    /// The sum has no place in 64 bits.
    #[error("the sum does not fit into 64 bits")]
    Overflow,
}

impl Update {
    /// The longest number, in bytes.
    const NUMBER_MAX_BYTES: usize = 20;

    /// The change of a key with this value.
    ///
    /// ```
    /// use bowline_types::{Update, NewValue};
    ///
    /// let seat = Update::AddWithin { amount: -1, min: 0, max: 100 };
    /// assert_eq!(seat.apply(Some(b"1")), Ok(NewValue::Put(b"0".to_vec())));
    /// assert_eq!(seat.apply(Some(b"0")), Ok(NewValue::Unchanged));
    /// ```
    ///
    /// # Errors
    /// [`UpdateError`]; nothing is to be changed then.
    pub fn apply(&self, value: Option<&[u8]>) -> Result<NewValue, UpdateError> {
        Ok(match self {
            Update::Add(amount) => {
                let sum = number(value)?.checked_add(*amount);
                put_number(sum.ok_or(UpdateError::Overflow)?, value)
            }
            Update::AddWithin { amount, min, max } => match number(value)?.checked_add(*amount) {
                Some(sum) if (*min..=*max).contains(&sum) => put_number(sum, value),
                _ => NewValue::Unchanged,
            },
            Update::Max(least) => match value {
                Some(_) if number(value)? >= *least => NewValue::Unchanged,
                _ => put_number(*least, value),
            },
            Update::Min(most) => match value {
                Some(_) if number(value)? <= *most => NewValue::Unchanged,
                _ => put_number(*most, value),
            },
            Update::Append(more) => {
                let old = value.unwrap_or_default();
                put([old, more].concat(), value)
            }
            Update::SetIfAbsent(new) => match value {
                Some(_) => NewValue::Unchanged,
                None => NewValue::Put(new.clone()),
            },
            Update::Swap { expected, new } => match new {
                _ if expected.as_deref() != value => NewValue::Unchanged,
                Some(new) => put(new.clone(), value),
                None if value.is_some() => NewValue::Delete,
                None => NewValue::Unchanged,
            },
        })
    }

    /// The most bytes that the new value has beside those of the present one.
    ///
    /// ```
    /// use bowline_types::Update;
    ///
    /// assert_eq!(Update::Append(b"abc".to_vec()).most_added_bytes(), 3);
    /// ```
    #[must_use]
    pub fn most_added_bytes(&self) -> usize {
        match self {
            Update::Add(_) | Update::AddWithin { .. } | Update::Max(_) | Update::Min(_) => {
                Update::NUMBER_MAX_BYTES
            }
            Update::Append(value) | Update::SetIfAbsent(value) => value.len(),
            Update::Swap { new, .. } => new.as_ref().map_or(0, Vec::len),
        }
    }

    /// The bytes that it has itself, for a budget of memory.
    ///
    /// ```
    /// use bowline_types::Update;
    ///
    /// assert!(Update::Append(vec![0; 100]).carried_bytes() >= 100);
    /// ```
    #[must_use]
    pub fn carried_bytes(&self) -> usize {
        let values = match self {
            Update::Append(value) | Update::SetIfAbsent(value) => value.len(),
            Update::Swap { expected, new } => {
                let values = [expected, new].into_iter().flatten();
                values.map(Vec::len).sum()
            }
            Update::Add(_) | Update::AddWithin { .. } | Update::Max(_) | Update::Min(_) => 0,
        };
        size_of::<Update>() + values
    }

    /// Whether it can only delete the key.
    ///
    /// ```
    /// use bowline_types::Update;
    ///
    /// assert!(Update::Swap { expected: Some(b"done".to_vec()), new: None }.only_deletes());
    /// ```
    #[must_use]
    pub fn only_deletes(&self) -> bool {
        matches!(self, Update::Swap { new: None, .. })
    }

    /// Whether the new value contains the present one, so that it may be of any length.
    ///
    /// ```
    /// use bowline_types::Update;
    ///
    /// assert!(Update::Append(b"abc".to_vec()).keeps_the_value());
    /// ```
    #[must_use]
    pub fn keeps_the_value(&self) -> bool {
        matches!(self, Update::Append(_))
    }
}

/// The name of what it does.
impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Update::Add(amount) => write!(f, "add {amount}"),
            Update::AddWithin { amount, min, max } => {
                write!(f, "add {amount} within {min}..={max}")
            }
            Update::Max(least) => write!(f, "max {least}"),
            Update::Min(most) => write!(f, "min {most}"),
            Update::Append(more) => write!(f, "append {} bytes", more.len()),
            Update::SetIfAbsent(_) => f.write_str("set if absent"),
            Update::Swap { .. } => f.write_str("swap"),
        }
    }
}

/// A value as a number; 0 for none. Digits with at most one sign, and no more zeros than the number needs: so each number
/// has one form, and a value that merely begins like one is none.
fn number(value: Option<&[u8]>) -> Result<i64, UpdateError> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(value).map_err(|_| UpdateError::NotANumber)?;
    let number: i64 = text.parse().map_err(|_| UpdateError::NotANumber)?;
    match number.to_string() == text {
        true => Ok(number),
        false => Err(UpdateError::NotANumber),
    }
}

fn put_number(number: i64, value: Option<&[u8]>) -> NewValue {
    put(number.to_string().into_bytes(), value)
}

fn put(new: Vec<u8>, value: Option<&[u8]>) -> NewValue {
    match value == Some(&new[..]) {
        true => NewValue::Unchanged,
        false => NewValue::Put(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &str) -> Result<NewValue, UpdateError> {
        Ok(NewValue::Put(value.as_bytes().to_vec()))
    }

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn numbers() {
        let cases = [
            (Update::Add(5), None, put("5")),
            (Update::Add(-5), Some("2"), put("-3")),
            (Update::Add(0), None, put("0")),
            (Update::Add(0), Some("3"), Ok(NewValue::Unchanged)),
            (
                Update::Add(1),
                Some("9223372036854775807"),
                Err(UpdateError::Overflow),
            ),
            (
                Update::Add(-1),
                Some("-9223372036854775808"),
                Err(UpdateError::Overflow),
            ),
            (Update::Max(-4), None, put("-4")),
            (Update::Max(4), Some("3"), put("4")),
            (Update::Max(4), Some("4"), Ok(NewValue::Unchanged)),
            (Update::Max(4), Some("5"), Ok(NewValue::Unchanged)),
            (Update::Min(4), None, put("4")),
            (Update::Min(4), Some("5"), put("4")),
            (Update::Min(4), Some("3"), Ok(NewValue::Unchanged)),
        ];
        for (update, value, expected) in cases {
            let made = update.apply(value.map(str::as_bytes));
            assert_eq!(made, expected, "{update} of {value:?}");
        }
    }

    #[test]
    fn bounds_hold_also_where_a_sum_has_no_place() {
        let within = |amount, min, max| Update::AddWithin { amount, min, max };
        let cases = [
            (within(1, 0, 3), Some("2"), put("3")),
            (within(1, 0, 3), Some("3"), Ok(NewValue::Unchanged)),
            (within(-1, 0, 3), None, Ok(NewValue::Unchanged)),
            (
                within(1, i64::MIN, i64::MAX),
                Some("9223372036854775807"),
                Ok(NewValue::Unchanged),
            ),
            // Back into the bounds.
            (within(-5, 0, 3), Some("7"), put("2")),
            (within(1, 3, 0), Some("1"), Ok(NewValue::Unchanged)),
        ];
        for (update, value, expected) in cases {
            let made = update.apply(value.map(str::as_bytes));
            assert_eq!(made, expected, "{update} of {value:?}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let wrong = [
            "",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "x",
            "9223372036854775808",
            "\u{661}",
        ];
        for value in wrong {
            for update in [Update::Add(1), Update::Max(1), Update::Min(1)] {
                let made = update.apply(Some(value.as_bytes()));
                assert_eq!(made, Err(UpdateError::NotANumber), "{update} of {value:?}");
            }
        }
        assert_eq!(
            Update::Add(1).apply(Some(&[0xff])),
            Err(UpdateError::NotANumber)
        );
    }

    #[test]
    fn values() {
        let swap = |expected: Option<&str>, new: Option<&str>| Update::Swap {
            expected: expected.map(bytes),
            new: new.map(bytes),
        };
        let cases = [
            (Update::Append(bytes("b")), Some("a"), put("ab")),
            (Update::Append(bytes("")), None, put("")),
            (
                Update::Append(bytes("")),
                Some("a"),
                Ok(NewValue::Unchanged),
            ),
            (Update::SetIfAbsent(bytes("")), None, put("")),
            (
                Update::SetIfAbsent(bytes("b")),
                Some("a"),
                Ok(NewValue::Unchanged),
            ),
            (swap(Some("a"), Some("b")), Some("a"), put("b")),
            (
                swap(Some("a"), Some("b")),
                Some("c"),
                Ok(NewValue::Unchanged),
            ),
            (swap(Some("a"), Some("b")), None, Ok(NewValue::Unchanged)),
            (
                swap(Some("a"), Some("a")),
                Some("a"),
                Ok(NewValue::Unchanged),
            ),
            (swap(None, Some("b")), None, put("b")),
            (swap(None, Some("b")), Some("a"), Ok(NewValue::Unchanged)),
            (swap(Some("a"), None), Some("a"), Ok(NewValue::Delete)),
            (swap(Some("a"), None), None, Ok(NewValue::Unchanged)),
            (swap(None, None), None, Ok(NewValue::Unchanged)),
        ];
        for (update, value, expected) in cases {
            let made = update.apply(value.map(str::as_bytes));
            assert_eq!(made, expected, "{update:?} of {value:?}");
        }
    }

    #[test]
    fn no_value_is_longer_than_is_said() {
        for value in [None, Some("7"), Some("-9223372036854775807")] {
            let length = value.map_or(0, str::len);
            for update in [
                Update::Add(-1),
                Update::Max(i64::MIN),
                Update::Min(i64::MIN),
                Update::Append(bytes("abc")),
                Update::SetIfAbsent(bytes("abc")),
                Update::Swap {
                    expected: value.map(bytes),
                    new: Some(bytes("abc")),
                },
            ] {
                if let Ok(NewValue::Put(new)) = update.apply(value.map(str::as_bytes)) {
                    let most = update.most_added_bytes();
                    let kept = if update.keeps_the_value() { length } else { 0 };
                    assert!(new.len() <= kept + most, "{update:?} of {value:?}");
                }
            }
        }
    }
}
