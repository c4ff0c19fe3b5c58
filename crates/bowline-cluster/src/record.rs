//! The record: the encoding of a Raft log entry in the engine's log and on the wire.
//!
//! ```text
//! 0x52 │ version │ term │ node │ committed + 1 │ kind │ payload
//!  u8  │   u8    │ varint…              varint │  u8  │ the rest
//! ```
//!
//! The first byte distinguishes it from the batches of an embedded database. The index is not included: the
//! log has it (engine index = Raft index + 1). `committed` is the commit index known when the record was
//! written, 0 for none: a lower bound that costs no write of its own. Kind 0 is blank; kind 1 is a proposal,
//! unchanged; kind 2 is a membership:
//!
//! ```text
//! configs │ (voters │ (node)*)*  │ members │ (node │ name │ peer URLs │ client URLs │ wants vote)*
//! varint  │  varint │  varint    │ varint  │varint │bytes │ n, bytes… │  n, bytes…  │ u8
//! ```
//!
//! A membership of version 2 begins with the byte 0x42, and each member has two more varints at its end: its
//! incarnation and its command version. A membership in which all of these are 0 is written as version 1, so
//! that members of the previous version can read it. A record's version is that of its payload: 1 except for
//! a membership of version 2.
//!
//! Invariants: every record has one encoding; decoding never panics, allocates no more than a small multiple
//! of its input, and refuses voters that are not members, empty configs, and numbers out of order.

use std::collections::{BTreeMap, BTreeSet};

use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bytes::Bytes;

use crate::types::{Entry, LeaderId, LogId, Member, Membership, NodeId, Payload, Proposal};

/// The first byte of every record.
pub const FORMAT: u8 = 0x52;
/// The version of everything except memberships with incarnations or command versions.
const VERSION_PLAIN: u8 = 1;
/// The newest version.
const VERSION: u8 = 2;
/// The first byte of a membership of version 2: above any number of configs in version 1.
const MEMBERSHIP_2: u8 = 0x42;
const KIND_BLANK: u8 = 0;
const KIND_NORMAL: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;
/// More than two would be a change of membership during a change, which the consensus refuses.
const CONFIGS_MAX: usize = 8;
const MEMBERS_MAX: usize = 4096;
const URLS_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 4096;
/// A change leads to no larger membership: the mark of what is applied holds it, and has 16 KiB.
const MEMBERSHIP_BYTES_MAX: usize = 12 << 10;

/// Why bytes are not a valid record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The first byte is not that of a Raft record.
    #[error("not a Raft record: it begins with {found:?}")]
    NotARecord {
        /// The first byte; `None` when there is none.
        found: Option<u8>,
    },
    /// The record was written by a newer program.
    #[error("a Raft record of version {found}, this program reads version {VERSION}")]
    NewerVersion {
        /// The version found.
        found: u8,
    },
    /// The bytes end early or contradict themselves.
    #[error("a Raft record is malformed: {0}")]
    Malformed(&'static str),
}

/// The part of a record before its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// The leader that proposed the entry.
    pub leader: LeaderId,
    /// The commit index known when the record was written.
    pub committed: Option<u64>,
    version: u8,
    kind: u8,
}

fn malformed<T>(value: Option<T>, what: &'static str) -> Result<T, RecordError> {
    value.ok_or(RecordError::Malformed(what))
}

fn version_of_membership(membership: &Membership) -> u8 {
    let mut nodes = membership.nodes();
    let is_plain = nodes.all(|(_, member)| member.incarnation == 0 && member.command_version == 0);
    if is_plain { VERSION_PLAIN } else { VERSION }
}

fn version_of(payload: &Payload) -> u8 {
    match payload {
        Payload::Membership(membership) => version_of_membership(membership),
        Payload::Blank | Payload::Normal(_) => VERSION_PLAIN,
    }
}

/// Appends the head of the record of `entry`.
pub fn encode_head(entry: &Entry, committed: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(&[FORMAT, version_of(&entry.payload)]);
    put_varint(out, entry.log_id.leader_id.term);
    put_varint(out, entry.log_id.leader_id.node_id);
    // No log reaches the last index.
    put_varint(out, committed.map_or(0, |index| index.saturating_add(1)));
    out.push(match entry.payload {
        Payload::Blank => KIND_BLANK,
        Payload::Normal(_) => KIND_NORMAL,
        Payload::Membership(_) => KIND_MEMBERSHIP,
    });
}

/// The encoded payload of `entry`; a proposal is not copied.
#[must_use]
pub fn payload(entry: &Entry) -> Bytes {
    match &entry.payload {
        Payload::Blank => Bytes::new(),
        Payload::Normal(proposal) => proposal.0.clone(),
        Payload::Membership(membership) => {
            let mut out = Vec::new();
            encode_membership(membership, &mut out);
            out.into()
        }
    }
}

/// The approximate length of the payload of `entry`, without encoding it.
#[must_use]
pub fn payload_bytes(entry: &Entry) -> usize {
    match &entry.payload {
        Payload::Blank => 0,
        Payload::Normal(proposal) => proposal.0.len(),
        Payload::Membership(membership) => {
            let texts = |urls: &[String]| urls.iter().map(|url| url.len() + 2).sum::<usize>();
            let member = |member: &Member| {
                member.name.len() + texts(&member.peer_urls) + texts(&member.client_urls) + 64
            };
            membership.nodes().map(|(_, found)| member(found)).sum()
        }
    }
}

/// Appends the record of `entry`.
pub fn encode(entry: &Entry, committed: Option<u64>, out: &mut Vec<u8>) {
    encode_head(entry, committed, out);
    match &entry.payload {
        Payload::Blank => {}
        Payload::Normal(proposal) => out.extend_from_slice(&proposal.0),
        Payload::Membership(membership) => encode_membership(membership, out),
    }
}

/// Whether `bytes` begin as a record does.
#[must_use]
pub(crate) fn is_record(bytes: &[u8]) -> bool {
    bytes.first() == Some(&FORMAT)
}

/// Decodes the head; returns its length, too.
pub fn decode_head(bytes: &[u8]) -> Result<(RecordHead, usize), RecordError> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8();
    if format != Some(FORMAT) {
        return Err(RecordError::NotARecord { found: format });
    }
    let version = malformed(reader.u8(), "no version")?;
    if version > VERSION {
        return Err(RecordError::NewerVersion { found: version });
    }
    if version == 0 {
        return Err(RecordError::Malformed("version 0"));
    }
    let term = malformed(reader.varint(), "no term")?;
    let node_id = malformed(reader.varint(), "no node")?;
    let committed = malformed(reader.varint(), "no committed index")?.checked_sub(1);
    let kind = malformed(reader.u8(), "no kind")?;
    let leader = LeaderId { term, node_id };
    let head = RecordHead {
        leader,
        committed,
        version,
        kind,
    };
    Ok((head, reader.position()))
}

/// Decodes the record of the entry at the Raft index `index`. A proposal is a slice of `bytes`.
pub fn decode(index: u64, bytes: &Bytes) -> Result<(Entry, RecordHead), RecordError> {
    let (head, len) = decode_head(bytes)?;
    Ok((decode_payload(index, head, bytes.slice(len..))?, head))
}

/// Decodes a record whose head and payload are separate, as on the wire.
pub(crate) fn decode_parts(index: u64, head: &[u8], payload: Bytes) -> Result<Entry, RecordError> {
    let (decoded, len) = decode_head(head)?;
    if len != head.len() {
        return Err(RecordError::Malformed("bytes behind the head"));
    }
    decode_payload(index, decoded, payload)
}

fn decode_payload(index: u64, head: RecordHead, payload: Bytes) -> Result<Entry, RecordError> {
    let payload = match head.kind {
        KIND_BLANK if payload.is_empty() => Payload::Blank,
        KIND_BLANK => return Err(RecordError::Malformed("bytes in a blank entry")),
        KIND_NORMAL => Payload::Normal(Proposal(payload)),
        KIND_MEMBERSHIP => Payload::Membership(decode_membership(&payload)?),
        _ => return Err(RecordError::Malformed("an unknown kind")),
    };
    if head.version != version_of(&payload) {
        return Err(RecordError::Malformed(
            "of another version than its payload",
        ));
    }
    Ok(Entry {
        log_id: LogId::new(head.leader, index),
        payload,
    })
}

/// Appends a membership.
pub(crate) fn encode_membership(membership: &Membership, out: &mut Vec<u8>) {
    let version = version_of_membership(membership);
    if version > VERSION_PLAIN {
        out.push(MEMBERSHIP_2);
    }
    let configs = membership.get_joint_config();
    put_varint(out, configs.len() as u64);
    for config in configs {
        put_varint(out, config.len() as u64);
        for node in config {
            put_varint(out, *node);
        }
    }
    put_varint(out, membership.nodes().count() as u64);
    for (node, member) in membership.nodes() {
        put_varint(out, *node);
        encode_member(member, version, out);
    }
}

/// Whether every member takes a membership with this member in place of `id`, or beside the others. An appended record
/// that cannot be decoded stops every member that has it. A new member leaves room for what it publishes later.
pub(crate) fn fits_in(membership: &Membership, id: NodeId, member: &Member) -> bool {
    const PUBLISHED_BYTES: usize = 2 << 10;
    let encoded = |member: &Member| {
        let mut one = Vec::new();
        put_varint(&mut one, id);
        encode_member(member, VERSION, &mut one);
        one
    };
    let mut all = Vec::new();
    encode_membership(membership, &mut all);
    let one = encoded(member);
    let mut reader = Reader::new(&one);
    let decodes = reader.varint().is_some() && decode_member(&mut reader, VERSION).is_ok();
    let before = membership.get_node(&id).map(encoded);
    let is_room = match before {
        // One that does not grow always fits.
        Some(before) => {
            let grown = one.len().saturating_sub(before.len());
            grown == 0 || all.len() + grown <= MEMBERSHIP_BYTES_MAX
        }
        None => all.len() + one.len() + PUBLISHED_BYTES <= MEMBERSHIP_BYTES_MAX,
    };
    decodes && is_room
}

/// Appends a member.
fn encode_member(member: &Member, version: u8, out: &mut Vec<u8>) {
    put_bytes(out, member.name.as_bytes());
    for urls in [&member.peer_urls, &member.client_urls] {
        put_varint(out, urls.len() as u64);
        for url in urls {
            put_bytes(out, url.as_bytes());
        }
    }
    out.push(u8::from(member.wants_vote));
    if version > VERSION_PLAIN {
        put_varint(out, member.incarnation);
        put_varint(out, u64::from(member.command_version));
    }
}

/// Decodes a membership that takes all of `bytes`.
pub(crate) fn decode_membership(bytes: &[u8]) -> Result<Membership, RecordError> {
    let (version, bytes) = match bytes.split_first() {
        Some((&MEMBERSHIP_2, rest)) => (VERSION, rest),
        _ => (VERSION_PLAIN, bytes),
    };
    let mut reader = Reader::new(bytes);
    let mut configs = Vec::new();
    for _ in 0..count(&mut reader, CONFIGS_MAX)? {
        let mut config = BTreeSet::new();
        for _ in 0..count(&mut reader, MEMBERS_MAX)? {
            let node = malformed(reader.varint(), "no voter")?;
            ascending(config.last(), node)?;
            config.insert(node);
        }
        configs.push(config);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..count(&mut reader, MEMBERS_MAX)? {
        let node = malformed(reader.varint(), "no member")?;
        ascending(nodes.last_key_value().map(|(node, _)| node), node)?;
        nodes.insert(node, decode_member(&mut reader, version)?);
    }
    if !reader.is_empty() {
        return Err(RecordError::Malformed("bytes behind the membership"));
    }
    let membership = Membership::new(configs, nodes)
        .map_err(|_| RecordError::Malformed("a membership that cannot be"))?;
    match version_of_membership(&membership) == version {
        true => Ok(membership),
        false => Err(RecordError::Malformed(
            "a membership of a version that it does not need",
        )),
    }
}

fn decode_member(reader: &mut Reader<'_>, version: u8) -> Result<Member, RecordError> {
    let name = text(reader)?;
    let peer_urls = texts(reader)?;
    let client_urls = texts(reader)?;
    let wants_vote = match reader.u8() {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(RecordError::Malformed("neither a voter to be nor not")),
    };
    let (mut incarnation, mut command_version) = (0, 0);
    if version > VERSION_PLAIN {
        incarnation = malformed(reader.varint(), "no incarnation")?;
        let found = malformed(reader.varint(), "no version of commands")?;
        command_version = malformed(u32::try_from(found).ok(), "a version of commands too high")?;
    }
    Ok(Member {
        name,
        peer_urls,
        client_urls,
        wants_vote,
        incarnation,
        command_version,
    })
}

fn count(reader: &mut Reader<'_>, limit: usize) -> Result<usize, RecordError> {
    let count = malformed(reader.varint_usize(), "no count")?;
    // Each counted item takes at least one byte.
    if count > limit.min(reader.remaining()) {
        return Err(RecordError::Malformed("more than can be"));
    }
    Ok(count)
}

fn ascending(last: Option<&NodeId>, next: NodeId) -> Result<(), RecordError> {
    match last {
        Some(last) if *last >= next => Err(RecordError::Malformed("nodes out of order")),
        _ => Ok(()),
    }
}

fn texts(reader: &mut Reader<'_>) -> Result<Vec<String>, RecordError> {
    (0..count(reader, URLS_MAX)?)
        .map(|_| text(reader))
        .collect()
}

fn text(reader: &mut Reader<'_>) -> Result<String, RecordError> {
    let bytes = malformed(reader.bytes(), "no text")?;
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(RecordError::Malformed("a text too long"));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| RecordError::Malformed("a text not in UTF-8"))
}

/// A membership during a change, with members of every kind.
#[cfg(any(test, fuzzing))]
pub(crate) fn sample_membership() -> Membership {
    sample_membership_of(1 << 63, 7)
}

/// The same, where one member has this incarnation and this command version.
#[cfg(any(test, fuzzing))]
pub(crate) fn sample_membership_of(incarnation: u64, command_version: u32) -> Membership {
    let member = |name: &str| Member {
        name: name.to_owned(),
        peer_urls: vec![format!("http://{name}:2380")],
        client_urls: vec![format!("http://{name}:2379"), String::new()],
        wants_vote: name == "c",
        incarnation: if name == "b" { incarnation } else { 0 },
        command_version: if name == "b" { command_version } else { 0 },
    };
    let nodes: BTreeMap<_, _> = [(1, member("a")), (200, member("b")), (3000, member("c"))]
        .into_iter()
        .collect();
    let configs = vec![BTreeSet::from([1, 200]), BTreeSet::from([1])];
    Membership::new(configs, nodes).expect("valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    fn entries() -> Vec<Entry> {
        [
            Payload::Blank,
            Payload::Normal(Proposal("put".into())),
            Payload::Normal(Proposal(Bytes::new())),
            Payload::Membership(sample_membership()),
            Payload::Membership(sample_membership_of(0, 0)),
            Payload::Membership(sample_membership_of(5, 0)),
            Payload::Membership(sample_membership_of(0, u32::MAX)),
        ]
        .into_iter()
        .map(|payload| Entry {
            log_id: log_id(300, 7, 41),
            payload,
        })
        .collect()
    }

    #[test]
    fn a_record_reads_back_as_written() {
        for entry in entries() {
            for committed in [None, Some(0), Some(40)] {
                let mut bytes = Vec::new();
                encode(&entry, committed, &mut bytes);
                let (decoded, head) = decode(41, &bytes.clone().into()).expect("valid");
                assert_eq!(decoded, entry);
                assert_eq!(head.committed, committed);
                let mut head = Vec::new();
                encode_head(&entry, committed, &mut head);
                let apart = decode_parts(41, &head, payload(&entry)).expect("valid");
                assert_eq!(apart, entry);
                assert_eq!([&head[..], &payload(&entry)].concat(), bytes);
            }
        }
    }

    #[test]
    fn a_record_that_ends_early_is_an_error() {
        for entry in entries() {
            let mut bytes = Vec::new();
            encode(&entry, Some(9), &mut bytes);
            for len in 0..bytes.len() {
                let cut = Bytes::copy_from_slice(&bytes[..len]);
                match decode(41, &cut) {
                    // A proposal has no length of its own: the log's frame has it.
                    Ok((decoded, _)) => assert!(matches!(decoded.payload, Payload::Normal(_))),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refuse = |bytes: &[u8]| decode(0, &Bytes::copy_from_slice(bytes)).expect_err("refused");
        assert_eq!(refuse(b""), RecordError::NotARecord { found: None });
        assert_eq!(refuse(b"\x01"), RecordError::NotARecord { found: Some(1) });
        assert_eq!(
            refuse(b"\x52\x03\x01\x01\0\0"),
            RecordError::NewerVersion { found: 3 }
        );
        let malformed = [
            &b"\x52\x00\x01\x01\0\0"[..],
            // A blank with a payload, an unknown kind.
            b"\x52\x01\x01\x01\0\0x",
            b"\x52\x01\x01\x01\0\x03",
            // A voter that is not a member; an empty config; members out of order; too many configs.
            b"\x52\x01\x01\x01\0\x02\x01\x01\x05\x00",
            b"\x52\x01\x01\x01\0\x02\x01\x00\x00",
            b"\x52\x01\x01\x01\0\x02\x00\x02\x02\0\0\0\0\x01\0\0\0\0",
            b"\x52\x01\x01\x01\0\x02\xff\xff\x03",
            // In version 2: a blank; a membership of version 1; one that needs no version 2; one in a record
            // of version 1; a command version of 33 bits.
            b"\x52\x02\x01\x01\0\0",
            b"\x52\x02\x01\x01\0\x02\x01\x01\x05\x01\x05\0\0\0\0",
            b"\x52\x02\x01\x01\0\x02\x42\x01\x01\x05\x01\x05\0\0\0\0\0\0",
            b"\x52\x01\x01\x01\0\x02\x42\x01\x01\x05\x01\x05\0\0\0\0\x07\0",
            b"\x52\x02\x01\x01\0\x02\x42\x01\x01\x05\x01\x05\0\0\0\0\x07\x80\x80\x80\x80\x10",
        ];
        for bytes in malformed {
            assert!(
                matches!(refuse(bytes), RecordError::Malformed(_)),
                "{bytes:?}"
            );
        }
    }

    /// A cluster from before there were incarnations continues: its memberships are read and written
    /// unchanged, so that members of both versions understand each other.
    #[test]
    fn a_membership_of_version_1_stays_one() {
        let old = b"\x52\x01\x01\x01\0\x02\x01\x01\x05\x01\x05\x01a\0\0\x01";
        let (entry, head) = decode(7, &Bytes::from_static(old)).expect("valid");
        let Payload::Membership(membership) = &entry.payload else {
            panic!("{entry:?}");
        };
        let member = membership.get_node(&5).expect("a member");
        assert_eq!((member.incarnation, member.command_version), (0, 0));
        let mut again = Vec::new();
        encode(&entry, head.committed, &mut again);
        assert_eq!(again, old);
        // A program of version 1 refuses a membership with an incarnation, and does not misread it.
        let mut new = Vec::new();
        let payload = Payload::Membership(sample_membership_of(5, 0));
        encode(&Entry { payload, ..entry }, None, &mut new);
        assert_eq!(new[1], 2);
    }
}
