//! Updates: the new value of a key from its newest one.
//!
//! Invariant: what an update makes depends on the update, the entry and the limits alone, so members that apply it on the same
//! entry make the same.

use bowline_types::{NewValue, Update};

use crate::error::{Error, Result, show_key};
use crate::kv::Entry;
use crate::options::Limits;
use crate::state::check_pair;

/// What an update makes of a key that has this entry.
///
/// # Errors
/// `NotUpdatable` when the value does not suit, `ValueTooLarge` or `TransactionTooLarge` when the new one is too long.
pub fn decide(
    key: &[u8],
    update: &Update,
    entry: Option<&Entry>,
    limits: &Limits,
) -> Result<NewValue> {
    let made = update.apply(entry.map(|entry| &entry.value[..]));
    let made = made.map_err(|source| Error::NotUpdatable {
        key: show_key(key).into(),
        source,
    })?;
    if let NewValue::Put(value) = &made {
        check_pair(key, value.len(), limits)?;
    }
    Ok(made)
}
