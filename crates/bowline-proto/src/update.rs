//! Updates of a key to and from their message.

use bowline_types::Update;
use prost::bytes::Bytes;

use crate::v1::{AddWithin, KeyUpdate, Swap, key_update::Change};

/// As a message carries it.
///
/// ```
/// use bowline_proto::update::{of_wire, to_wire};
/// use bowline_types::Update;
///
/// let message = to_wire("seats".into(), Update::Add(-1));
/// assert_eq!(message.key, "seats");
/// assert_eq!(of_wire(message.change), Some(Update::Add(-1)));
/// ```
#[must_use]
pub fn to_wire(key: Bytes, update: Update) -> KeyUpdate {
    let change = match update {
        Update::Add(amount) => Change::Add(amount),
        Update::AddWithin { amount, min, max } => Change::AddWithin(AddWithin { amount, min, max }),
        Update::Max(least) => Change::Max(least),
        Update::Min(most) => Change::Min(most),
        Update::Append(more) => Change::Append(more.into()),
        Update::SetIfAbsent(value) => Change::SetIfAbsent(value.into()),
        Update::Swap { expected, new } => Change::Swap(Swap {
            expected: expected.map(Bytes::from),
            new: new.map(Bytes::from),
        }),
    };
    KeyUpdate {
        key,
        change: Some(change),
    }
}

/// From a message; `None` for one that this program does not know.
#[must_use]
pub fn of_wire(change: Option<Change>) -> Option<Update> {
    Some(match change? {
        Change::Add(amount) => Update::Add(amount),
        Change::AddWithin(AddWithin { amount, min, max }) => Update::AddWithin { amount, min, max },
        Change::Max(least) => Update::Max(least),
        Change::Min(most) => Update::Min(most),
        Change::Append(more) => Update::Append(more.into()),
        Change::SetIfAbsent(value) => Update::SetIfAbsent(value.into()),
        Change::Swap(Swap { expected, new }) => Update::Swap {
            expected: expected.map(Vec::from),
            new: new.map(Vec::from),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_update_comes_back() {
        let swap = |expected: Option<&str>, new: Option<&str>| Update::Swap {
            expected: expected.map(Vec::from),
            new: new.map(Vec::from),
        };
        for update in [
            Update::Add(i64::MIN),
            Update::AddWithin {
                amount: -1,
                min: i64::MIN,
                max: i64::MAX,
            },
            Update::Max(-7),
            Update::Min(i64::MAX),
            Update::Append(Vec::new()),
            Update::SetIfAbsent(b"a".to_vec()),
            swap(None, None),
            swap(Some(""), None),
            swap(None, Some("")),
            swap(Some("a"), Some("b")),
        ] {
            let message = to_wire("k".into(), update.clone());
            assert_eq!(of_wire(message.change), Some(update));
        }
        assert_eq!(of_wire(None), None);
    }
}
