//! The record of a user key: etcd's metadata, then the value.
//!
//! ```text
//! flags u8 (bit 0: a lease follows; bit 1: the record is blind; bits 2 to 4: blind ones below it) |
//! create revision varint | version varint | lease id varint (if flagged) | value
//! ```
//!
//! The modification revision is the revision of the version itself. A deleted key is a tombstone
//! without a record; a key put again after it starts at version 1.
//!
//! A *blind* record was written without reading the key's previous version, because reading a table costs
//! several times as much as the put. Its metadata is right if the key was absent. If the key was present,
//! the create revision is that of the version below, and the version is the sum of both:
//!
//! ```text
//!  revision          9                     4
//!           blind, created 9, version 1    created 2, version 5
//!             = created 2, version 6
//! ```
//!
//! Merges complete blind records when they meet the version below ([`Metadata`]). A reader completes a blind
//! record from the sources it was read from (`complete`). To bound this work, a record counts the blind
//! records below it in memory; on top of `BLIND_BELOW_MAX` of them a put reads the previous version and
//! writes a complete record. A record with a lease is never blind, and no blind record is written when the
//! key may be attached to a lease, because the key would have to be detached.

use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::compaction::MergeOperator;
use bowline_storage::engine::{Found, SuperVersion, Want};
use bowline_storage::{EntryKind, Value};
use bowline_types::Revision;

use super::change::{Change, ChangeKind};
use crate::error::{Error, Result, show_key};
use crate::lease::LeaseId;
use crate::trees;

const FLAG_LEASE: u8 = 1;
const FLAG_BLIND: u8 = 2;
/// The first bit of the number of blind records below in the flags.
const BELOW_SHIFT: u32 = 2;
/// The maximal number of blind records below another one in memory.
pub(crate) const BLIND_BELOW_MAX: u8 = 7;

/// A key with its value and etcd's metadata.
///
/// ```
/// use bowline::Entry;
/// # let db = bowline::Db::in_memory()?;
/// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
/// let created = db.put("workers/7", "up")?;
/// let changed = db.put_with_lease("workers/7", "busy", lease)?;
///
/// let entry: Entry = db.entry("workers/7")?.expect("an entry");
/// assert_eq!((entry.key, entry.value), ("workers/7".into(), "busy".into()));
/// assert_eq!((entry.create_revision, entry.mod_revision), (created, changed));
/// assert_eq!((entry.version, entry.lease), (2, Some(lease)));
/// # Ok::<(), bowline::Error>(())
/// ```
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
    /// The number of writes of the key since its creation, including the creation.
    pub version: u64,
    /// The lease the key is attached to.
    pub lease: Option<LeaseId>,
}

/// One change of a key in `DbReader::history`. A transaction of etcd's API may change a key more than once:
/// then several versions have the same revision.
///
/// ```
/// use bowline::{Db, Durability, History, Version};
/// # let db = Db::builder().durability(Durability::Memory).history(History::All).open("memory")?;
/// db.put("config", "a")?;
/// let deleted = db.delete("config")?.expect("it was there");
///
/// let versions: Vec<Version> = db.history("config")?;
/// assert_eq!(versions[0], Version { revision: deleted, entry: None });
/// assert_eq!(versions[1].entry.as_ref().expect("an entry").value, b"a");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The revision of the change.
    pub revision: Revision,
    /// The entry after the change; `None` for a deletion.
    pub entry: Option<Entry>,
}

impl Version {
    /// The version that a change made.
    #[doc(hidden)]
    pub fn of(change: &Change) -> Version {
        let is_put = change.kind == ChangeKind::Put;
        Version {
            revision: change.entry.mod_revision,
            entry: is_put.then(|| change.entry.clone()),
        }
    }
}

/// The metadata of a present key, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    pub create_revision: Revision,
    pub mod_revision: Revision,
    pub version: u64,
    pub lease: Option<LeaseId>,
}

impl Meta {
    /// The metadata of an entry.
    pub fn of(entry: &Entry) -> Meta {
        Meta {
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
            version: entry.version,
            lease: entry.lease,
        }
    }
}

/// The longest head, in bytes.
pub const HEAD_MAX_BYTES: usize = 31;

// The head that the engine returns without reading a large value contains the metadata.
const _: () = assert!(HEAD_MAX_BYTES <= bowline_storage::blob::HEAD_BYTES);

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The metadata; in a blind record, as if the key was absent before.
    pub meta: Meta,
    pub is_blind: bool,
    /// In a blind record: the number of blind records below it in memory at the put.
    pub blind_below: u8,
}

impl Head {
    /// The complete metadata, from the `sources` that the record was read from.
    #[inline]
    pub fn complete(self, key: &[u8], sources: &SuperVersion) -> Result<Meta> {
        match self.is_blind {
            true => complete(key, self.meta, sources),
            false => Ok(self.meta),
        }
    }
}

/// The metadata of a blind record on top of the version below.
fn on_top_of(blind: Meta, below: Meta) -> Meta {
    Meta {
        create_revision: below.create_revision,
        // Only a damaged record is near the maximum.
        version: blind.version.saturating_add(below.version),
        ..blind
    }
}

/// Completes a blind record from the sources it was read from. In newer sources the version below may be
/// merged into it already.
#[cold]
fn complete(key: &[u8], blind: Meta, sources: &SuperVersion) -> Result<Meta> {
    let mut meta = blind;
    let mut at = blind.mod_revision;
    while let Some(under) = at.get().checked_sub(1) {
        let below = sources.get(trees::KV, key, under, 0, Want::Head, |found| {
            head_of(key, found.as_ref())
        })??;
        let Some(below) = below else { break };
        at = below.meta.mod_revision;
        meta = on_top_of(meta, below.meta);
        if !below.is_blind {
            break;
        }
    }
    Ok(meta)
}

/// The merge operator: completes blind records from the versions below them.
#[derive(Debug)]
pub struct Metadata;

impl MergeOperator for Metadata {
    fn is_operand(&self, value: &[u8]) -> bool {
        value.first().is_some_and(|flags| flags & FLAG_BLIND != 0)
    }

    fn apply(
        &self,
        (revision, operand): (u64, &[u8]),
        below: Option<(u64, &[u8])>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (blind, start) = decode(operand, Revision::new(revision))?;
        let head = match below {
            Some((revision, bytes)) => {
                let (below, _) = decode(bytes, Revision::new(revision))?;
                Head {
                    meta: on_top_of(blind.meta, below.meta),
                    is_blind: below.is_blind,
                    blind_below: 0,
                }
            }
            None => Head {
                is_blind: false,
                blind_below: 0,
                ..blind
            },
        };
        encode(&head, out);
        out.extend_from_slice(&operand[start..]);
        Some(())
    }
}

/// Encodes the record's head into `out`, which is cleared.
pub fn encode_head(meta: &Meta, out: &mut Vec<u8>) {
    let head = Head {
        meta: *meta,
        is_blind: false,
        blind_below: 0,
    };
    encode(&head, out);
}

/// Encodes the head of a blind record into `out`, which is cleared.
pub(crate) fn encode_blind_head(revision: Revision, blind_below: u8, out: &mut Vec<u8>) {
    let meta = Meta {
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: None,
    };
    let head = Head {
        meta,
        is_blind: true,
        blind_below,
    };
    encode(&head, out);
}

pub fn encode(head: &Head, out: &mut Vec<u8>) {
    out.clear();
    let meta = &head.meta;
    let flags = match (meta.lease, head.is_blind) {
        (None, false) => 0,
        (None, true) => FLAG_BLIND | head.blind_below.min(BLIND_BELOW_MAX) << BELOW_SHIFT,
        (_, _) => FLAG_LEASE,
    };
    out.push(flags);
    put_varint(out, meta.create_revision.get());
    put_varint(out, meta.version);
    if let Some(lease) = meta.lease {
        put_varint(out, lease.get() as u64);
    }
}

/// Decodes a record: its head, and the offset of the value.
#[inline]
pub fn decode(bytes: &[u8], mod_revision: Revision) -> Option<(Head, usize)> {
    let mut reader = Reader::new(bytes);
    let flags = reader.u8()?;
    let is_blind = flags & FLAG_BLIND != 0;
    let blind_below = flags >> BELOW_SHIFT;
    let is_known = match is_blind {
        true => flags & FLAG_LEASE == 0 && blind_below <= BLIND_BELOW_MAX,
        false => flags <= FLAG_LEASE,
    };
    if !is_known {
        return None;
    }
    let create_revision = reader.varint()?;
    let version = reader.varint()?;
    let lease = if flags & FLAG_LEASE != 0 {
        LeaseId::new(reader.varint()? as i64)
    } else {
        None
    };
    // A record without a lease has no lease field.
    let is_padded = flags & FLAG_LEASE != 0 && lease.is_none();
    if create_revision > mod_revision.get() || version == 0 || is_padded {
        return None;
    }
    let meta = Meta {
        create_revision: Revision::new(create_revision),
        mod_revision,
        version,
        lease,
    };
    let head = Head {
        meta,
        is_blind,
        blind_below,
    };
    Some((head, reader.position()))
}

#[cold]
pub fn invalid(key: &[u8]) -> Error {
    Error::InvalidRecord {
        what: "entry",
        key: show_key(key),
        reason: "its head is damaged",
    }
}

/// The head of a found version; `None` when it is a tombstone or nothing was found.
pub fn head_of(key: &[u8], found: Option<&Found<'_>>) -> Result<Option<Head>> {
    match found {
        Some(found) if found.kind == EntryKind::Put => {
            let (head, _) =
                decode(found.bytes(), Revision::new(found.revision)).ok_or_else(|| invalid(key))?;
            Ok(Some(head))
        }
        _ => Ok(None),
    }
}

/// The metadata of a found version; `None` when it is a tombstone or nothing was found.
pub(crate) fn meta_of(key: &[u8], found: Option<&Found<'_>>) -> Result<Option<Meta>> {
    match (head_of(key, found)?, found) {
        (Some(head), Some(found)) => head.complete(key, found.sources()).map(Some),
        _ => Ok(None),
    }
}

/// Sets `value`, which is `Ok(None)` before. A short value is stored inside [`Value`]: returning it through
/// two calls would copy it twice more. Not inlined, so that the look-up around it is.
#[inline(never)]
pub fn value_into(key: &[u8], found: Option<Found<'_>>, value: &mut Result<Option<Value>>) {
    if let Some(found) = found
        && found.kind == EntryKind::Put
    {
        let bytes = found.bytes();
        match decode(bytes, Revision::new(found.revision)) {
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

/// Writes the value of what was found to `value`, which holds none. For who keeps the values of several keys where they
/// are to stay.
#[inline]
pub fn value_to(key: &[u8], found: Option<Found<'_>>, value: &mut Option<Value>) -> Result<()> {
    if let Some(found) = found
        && found.kind == EntryKind::Put
    {
        let bytes = found.bytes();
        let (_, start) =
            decode(bytes, Revision::new(found.revision)).ok_or_else(|| invalid(key))?;
        found.slice_into(start..bytes.len(), value.insert(Value::EMPTY));
    }
    Ok(())
}

/// The whole entry.
pub fn entry_of(key: &[u8], found: Option<Found<'_>>) -> Result<Option<Entry>> {
    match found {
        Some(found) if found.kind == EntryKind::Put => {
            let bytes = found.bytes();
            let (head, start) =
                decode(bytes, Revision::new(found.revision)).ok_or_else(|| invalid(key))?;
            let meta = head.complete(key, found.sources())?;
            Ok(Some(meta.entry(key, found.slice(start..bytes.len()))))
        }
        _ => Ok(None),
    }
}

/// The entry of a version that was visited in `sources`.
pub fn entry_of_version(
    key: &[u8],
    revision: Revision,
    bytes: &[u8],
    sources: &SuperVersion,
) -> Result<Entry> {
    let (head, start) = decode(bytes, revision).ok_or_else(|| invalid(key))?;
    let meta = head.complete(key, sources)?;
    Ok(meta.entry(key, Value::copy_from(&bytes[start..])))
}

/// The entry of a record that is not blind.
pub fn entry_of_record(key: &[u8], revision: Revision, bytes: &[u8]) -> Result<Entry> {
    match decode(bytes, revision) {
        Some((head, start)) if !head.is_blind => {
            Ok(head.meta.entry(key, Value::copy_from(&bytes[start..])))
        }
        _ => Err(invalid(key)),
    }
}

impl Meta {
    /// The entry with this metadata.
    pub fn entry(&self, key: &[u8], value: Value) -> Entry {
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

    fn head(create_revision: Revision, version: u64, is_blind: bool) -> Head {
        let meta = Meta {
            create_revision,
            mod_revision: Revision::MAX,
            version,
            lease: None,
        };
        Head {
            meta,
            is_blind,
            blind_below: 0,
        }
    }

    #[test]
    fn heads_round_trip_within_their_bound() {
        for lease in [0, 1, i64::MAX, -1] {
            for number in [1, 127, 128, u64::MAX] {
                for is_blind in [false, lease == 0] {
                    let mut head = head(Revision::new(number), number, is_blind);
                    head.meta.lease = LeaseId::new(lease);
                    if is_blind {
                        head.blind_below = (number % 8) as u8;
                    }
                    let mut out = vec![1, 2];
                    encode(&head, &mut out);
                    assert!(out.len() <= HEAD_MAX_BYTES);
                    let start = out.len();
                    out.extend_from_slice(b"value");
                    assert_eq!(decode(&out, Revision::MAX), Some((head, start)));
                    assert_eq!(Metadata.is_operand(&out), is_blind);
                }
            }
        }
    }

    #[test]
    fn damaged_heads_are_refused() {
        assert_eq!(decode(&[], Revision::new(9)), None);
        assert_eq!(decode(&[32, 1, 1], Revision::new(9)), None, "unknown flag");
        assert_eq!(
            decode(&[4, 1, 1], Revision::new(9)),
            None,
            "a number of a blind one"
        );
        assert_eq!(
            decode(&[34, 1, 1], Revision::new(9)),
            None,
            "too many below"
        );
        assert_eq!(
            decode(&[3, 1, 1, 7], Revision::new(9)),
            None,
            "blind, with a lease"
        );
        assert_eq!(
            decode(&[0, 10, 1], Revision::new(9)),
            None,
            "created after it was modified"
        );
        assert_eq!(decode(&[0, 1, 0], Revision::new(9)), None, "version 0");
        assert_eq!(
            decode(&[1, 1, 1], Revision::new(9)),
            None,
            "the lease is missing"
        );
        // There were two encodings once, with and without a lease of 0.
        assert_eq!(
            decode(&[1, 1, 1, 0], Revision::new(9)),
            None,
            "a lease that is none"
        );
        assert!(
            entry_of_record(b"k", Revision::new(9), &[2, 9, 1]).is_err(),
            "blind, with nothing to complete it from"
        );
    }

    #[test]
    fn a_blind_record_counts_on_from_what_lies_below() {
        let record = |create_revision, version, is_blind| {
            let mut out = Vec::new();
            encode(&head(create_revision, version, is_blind), &mut out);
            out.extend_from_slice(b"v");
            out
        };
        let apply = |operand: &[u8], below: Option<(u64, &[u8])>| {
            let mut out = Vec::new();
            Metadata.apply((9, operand), below, &mut out).map(|()| out)
        };
        let blind = record(Revision::new(9), 1, true);
        assert_eq!(
            apply(&blind, None),
            Some(record(Revision::new(9), 1, false))
        );
        let (known, unknown) = (
            record(Revision::new(2), 5, false),
            record(Revision::new(6), 2, true),
        );
        let on_known = apply(&blind, Some((4, &known)));
        assert_eq!(on_known, Some(record(Revision::new(2), 6, false)));
        let on_blind = apply(&blind, Some((7, &unknown)));
        assert_eq!(on_blind, Some(record(Revision::new(6), 3, true)));
        // The order of application does not matter.
        let first = Metadata.apply((7, &unknown), Some((4, &known)), &mut Vec::new());
        assert_eq!(first, Some(()));
        assert_eq!(
            apply(&on_blind.unwrap(), Some((4, &known))),
            Some(record(Revision::new(2), 8, false))
        );
        assert_eq!(
            apply(&blind, Some((Revision::new(4).get(), b"damaged"))),
            None
        );
        assert_eq!(apply(b"", None), None);
    }
}
