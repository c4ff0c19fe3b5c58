//! What is stored under a user key: etcd's metadata, then the value.
//!
//! ```text
//! flags u8 (bit 0: a lease follows) | create revision varint | version varint |
//! lease id varint (if flagged) | value
//! ```
//!
//! The modification revision is the revision of the version itself. A deleted key is a tombstone
//! without a record; a key put again after it starts at version 1.

use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::tree::Found;
use bowline_storage::{EntryKind, Revision, Value};

use crate::error::{Error, Result, show_key};
use crate::lease::LeaseId;
use crate::watch::{Change, ChangeKind};

const FLAG_LEASE: u8 = 1;

/// A key with its value and etcd's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Value,
    /// The value.
    pub value: Value,
    /// The revision that created the key (after its last deletion).
    pub create_revision: Revision,
    /// The revision that wrote this value.
    pub mod_revision: Revision,
    /// How often the key was written since its creation; 1 for the first time.
    pub version: u64,
    /// The lease the key is attached to; 0 = none.
    pub lease: LeaseId,
}

/// One change of a key, as [`Db::history`](crate::Db::history) tells it. A transaction that came through
/// etcd's API may change a key more than once: then several have one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// When.
    pub revision: Revision,
    /// What was written; `None` for a deletion.
    pub entry: Option<Entry>,
}

impl Version {
    /// What a change tells of its key.
    pub(crate) fn of(change: &Change) -> Version {
        let is_put = change.kind == ChangeKind::Put;
        Version {
            revision: change.entry.mod_revision,
            entry: is_put.then(|| change.entry.clone()),
        }
    }
}

/// The metadata of a present key, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Meta {
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
    pub(crate) version: u64,
    pub(crate) lease: LeaseId,
}

/// The longest head, in bytes.
pub(crate) const HEAD_MAX_BYTES: usize = 31;

// What an engine tells of a value without reading it is enough for the metadata.
const _: () = assert!(HEAD_MAX_BYTES <= bowline_storage::blob::HEAD_BYTES);

/// Encodes the record's head into `out`, which is cleared.
pub(crate) fn encode_head(meta: &Meta, out: &mut Vec<u8>) {
    out.clear();
    out.push(if meta.lease == 0 { 0 } else { FLAG_LEASE });
    put_varint(out, meta.create_revision);
    put_varint(out, meta.version);
    if meta.lease != 0 {
        put_varint(out, meta.lease as u64);
    }
}

/// Takes a record apart: metadata, and where the value starts.
#[inline]
pub(crate) fn decode(bytes: &[u8], mod_revision: Revision) -> Option<(Meta, usize)> {
    let mut reader = Reader::new(bytes);
    let flags = reader.u8()?;
    if flags & !FLAG_LEASE != 0 {
        return None;
    }
    let create_revision = reader.varint()?;
    let version = reader.varint()?;
    let lease = if flags & FLAG_LEASE != 0 {
        reader.varint()? as i64
    } else {
        0
    };
    // A lease that is none is written as no lease.
    let is_padded = flags & FLAG_LEASE != 0 && lease == 0;
    if create_revision > mod_revision || version == 0 || is_padded {
        return None;
    }
    Some((
        Meta {
            create_revision,
            mod_revision,
            version,
            lease,
        },
        reader.position(),
    ))
}

#[cold]
fn invalid(key: &[u8]) -> Error {
    Error::InvalidRecord {
        what: "entry",
        key: show_key(key),
        reason: "its head is damaged",
    }
}

/// The metadata of a found version; `None` when it is a tombstone or nothing was found.
pub(crate) fn meta_of(key: &[u8], found: Option<&Found<'_>>) -> Result<Option<Meta>> {
    match found {
        Some(found) if found.kind == EntryKind::Put => {
            let (meta, _) = decode(found.bytes(), found.revision).ok_or_else(|| invalid(key))?;
            Ok(Some(meta))
        }
        _ => Ok(None),
    }
}

/// The value alone, built where it is to stay: a short one lies in [`Value`] itself, and to hand that up through
/// two calls would copy it twice more. `value` is `Ok(None)` before.
#[inline]
pub(crate) fn value_into(key: &[u8], found: Option<Found<'_>>, value: &mut Result<Option<Value>>) {
    if let Some(found) = found
        && found.kind == EntryKind::Put
    {
        let bytes = found.bytes();
        match decode(bytes, found.revision) {
            Some((_, start)) => {
                *value = Ok(Some(Value::EMPTY));
                if let Ok(Some(value)) = value {
                    found.slice_into(start..bytes.len(), value);
                }
            }
            None => *value = Err(invalid(key)),
        }
    }
}

/// The whole entry.
pub(crate) fn entry_of(key: &[u8], found: Option<Found<'_>>) -> Result<Option<Entry>> {
    match found {
        Some(found) if found.kind == EntryKind::Put => {
            let bytes = found.bytes();
            let (meta, start) = decode(bytes, found.revision).ok_or_else(|| invalid(key))?;
            Ok(Some(meta.entry(key, found.slice(start..bytes.len()))))
        }
        _ => Ok(None),
    }
}

/// The entry of a stored record.
pub(crate) fn entry_of_record(key: &[u8], revision: Revision, bytes: &[u8]) -> Result<Entry> {
    let (meta, start) = decode(bytes, revision).ok_or_else(|| invalid(key))?;
    Ok(meta.entry(key, Value::copy_from(&bytes[start..])))
}

impl Meta {
    /// The entry with this metadata.
    pub(crate) fn entry(&self, key: &[u8], value: Value) -> Entry {
        Entry {
            key: Value::copy_from(key),
            value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_within_their_bound() {
        for lease in [0, 1, i64::MAX, -1] {
            for number in [1, 127, 128, u64::MAX] {
                let meta = Meta {
                    create_revision: number,
                    mod_revision: u64::MAX,
                    version: number,
                    lease,
                };
                let mut out = vec![1, 2];
                encode_head(&meta, &mut out);
                assert!(out.len() <= HEAD_MAX_BYTES);
                let head = out.len();
                out.extend_from_slice(b"value");
                assert_eq!(decode(&out, u64::MAX), Some((meta, head)));
            }
        }
    }

    #[test]
    fn damaged_heads_are_refused() {
        assert_eq!(decode(&[], 9), None);
        assert_eq!(decode(&[2, 1, 1], 9), None, "unknown flag");
        assert_eq!(
            decode(&[0, 10, 1], 9),
            None,
            "created after it was modified"
        );
        assert_eq!(decode(&[0, 1, 0], 9), None, "version 0");
        assert_eq!(decode(&[1, 1, 1], 9), None, "the lease is missing");
        // It had two encodings once, with and without a lease of 0.
        assert_eq!(decode(&[1, 1, 1, 0], 9), None, "a lease that is none");
    }
}
