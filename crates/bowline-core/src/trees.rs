//! The trees of a database and the keys of the system tree.

use bowline_storage::TreeId;
use bowline_types::LeaseId;

/// User keys; see [`crate::kv::record`].
pub const KV: TreeId = TreeId(0);
/// Blocks by id.
pub const BLOCK: TreeId = TreeId(1);
/// Edges by source, kind, target.
pub const EDGE_OUT: TreeId = TreeId(2);
/// Edges by target, kind, source.
pub const EDGE_IN: TreeId = TreeId(3);
/// Kinds and leases.
pub const SYSTEM: TreeId = TreeId(4);
/// Blocks by the values of attributes, and what indexes there are; see [`crate::index`].
pub const INDEX: TreeId = TreeId(5);
/// Whether a write to the tree takes a revision. Those of kinds, leases and alarms do not: they are written at the last one.
#[inline]
pub fn takes_revision(tree: TreeId) -> bool {
    tree != SYSTEM
}

/// How many trees there are.
pub const COUNT: usize = 6;

const TAG_KIND: u8 = b'k';
const TAG_LEASE: u8 = b'l';
const TAG_LEASE_KEY: u8 = b'a';
const TAG_LEASE_REMAINING: u8 = b'p';
const TAG_COMPACTED: u8 = b'c';
const TAG_APPLIED: u8 = b'r';
const TAG_ALARM: u8 = b'!';
const TAG_ORDER: u8 = b'o';
const TAG_USERS: u8 = b'u';
const TAG_AUTHOR: u8 = b'w';
const TAG_QUOTA: u8 = b'q';

/// `k` + kind id (u32 BE) → the kind's name.
pub fn kind_key(id: u32) -> [u8; 5] {
    let mut key = [TAG_KIND; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// All kinds.
pub(crate) fn kinds_prefix() -> [u8; 1] {
    [TAG_KIND]
}

/// `l` + lease id (i64 BE) → its time to live in ms (varint).
pub fn lease_key(id: LeaseId) -> [u8; 9] {
    let mut key = [TAG_LEASE; 9];
    key[1..].copy_from_slice(&id.get().to_be_bytes());
    key
}

/// All leases.
pub fn leases_prefix() -> [u8; 1] {
    [TAG_LEASE]
}

/// `a` + lease id (i64 BE) + user key → nothing: the key is attached to the lease.
pub fn attachment_key(id: LeaseId, key: &[u8]) -> Vec<u8> {
    let mut out = attachment_prefix(id).to_vec();
    out.extend_from_slice(key);
    out
}

/// `p` + lease id (i64 BE) → the remaining time that the leader recorded last, in ms (varint).
pub fn lease_remaining_key(id: LeaseId) -> [u8; 9] {
    let mut key = [TAG_LEASE_REMAINING; 9];
    key[1..].copy_from_slice(&id.get().to_be_bytes());
    key
}

/// All recorded remaining times.
pub(crate) fn leases_remaining_prefix() -> [u8; 1] {
    [TAG_LEASE_REMAINING]
}

/// `c` → the oldest revision that the members of a cluster have agreed to keep (varint).
pub fn compacted_key() -> [u8; 1] {
    [TAG_COMPACTED]
}

/// `r` → the applied position in a cluster's log; see `bowline-replica`.
pub fn applied_key() -> [u8; 1] {
    [TAG_APPLIED]
}

/// `o` → the order of a revision's writes, if it is not the key order; see [`crate::kv::order`].
pub fn order_key() -> [u8; 1] {
    [TAG_ORDER]
}

/// `w` → who has made a revision, if that is known; see [`crate::kv::author`].
pub fn author_key() -> [u8; 1] {
    [TAG_AUTHOR]
}

/// `!` + member id (u64 BE) + alarm (u8) → nothing: the alarm is raised.
pub fn alarm_key(member: u64, kind: u8) -> [u8; 10] {
    let mut key = [TAG_ALARM; 10];
    key[1..9].copy_from_slice(&member.to_be_bytes());
    key[9] = kind;
    key
}

/// All alarms.
pub fn alarms_prefix() -> [u8; 1] {
    [TAG_ALARM]
}

/// `q` + prefix → the quota of the prefix, and what its keys take; see [`crate::quota`].
pub fn quota_key(prefix: &[u8]) -> Vec<u8> {
    [&[TAG_QUOTA], prefix].concat()
}

/// All quotas.
pub(crate) fn quotas_prefix() -> [u8; 1] {
    [TAG_QUOTA]
}

/// All records of users, roles and tokens.
pub fn users_prefix() -> [u8; 1] {
    [TAG_USERS]
}

/// `u` `c` → whether authentication is enabled, and the auth revision.
pub fn users_config_key() -> [u8; 2] {
    [TAG_USERS, b'c']
}

/// `u` `u` + name → a user.
pub fn user_key(name: &str) -> Vec<u8> {
    [&[TAG_USERS, b'u'], name.as_bytes()].concat()
}

/// `u` `r` + name → a role.
pub fn role_key(name: &str) -> Vec<u8> {
    [&[TAG_USERS, b'r'], name.as_bytes()].concat()
}

/// `u` `t` + SHA-256 of a token → its session.
pub fn token_key(hash: &[u8; 32]) -> [u8; 34] {
    let mut key = [TAG_USERS; 34];
    key[1] = b't';
    key[2..].copy_from_slice(hash);
    key
}

/// What the record of users under a key is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRecord<'a> {
    Config,
    User(&'a str),
    Role(&'a str),
    Token(&'a [u8; 32]),
}

/// Splits the key of a record of users.
pub fn split_user_record(key: &[u8]) -> Option<UserRecord<'_>> {
    let (of, rest) = key.strip_prefix(&[TAG_USERS])?.split_first()?;
    let name = || std::str::from_utf8(rest).ok();
    match of {
        b'c' if rest.is_empty() => Some(UserRecord::Config),
        b'u' => name().map(UserRecord::User),
        b'r' => name().map(UserRecord::Role),
        b't' => rest.try_into().ok().map(UserRecord::Token),
        _ => None,
    }
}

/// All attachments of a lease.
pub fn attachment_prefix(id: LeaseId) -> [u8; 9] {
    let mut key = [TAG_LEASE_KEY; 9];
    key[1..].copy_from_slice(&id.get().to_be_bytes());
    key
}

/// All attachments.
pub fn attachments_prefix() -> [u8; 1] {
    [TAG_LEASE_KEY]
}

/// The lease id in the key of a lease or of its remaining time: the eight bytes behind the tag.
pub(crate) fn lease_of_key(key: &[u8]) -> Option<LeaseId> {
    let id = key.get(1..)?.try_into().ok()?;
    LeaseId::new(i64::from_be_bytes(id))
}

/// Splits an attachment key into lease id and user key.
pub fn split_attachment(key: &[u8]) -> Option<(LeaseId, &[u8])> {
    let rest = key.strip_prefix(&[TAG_LEASE_KEY])?;
    let (id, user_key) = rest.split_first_chunk::<8>()?;
    Some((LeaseId::new(i64::from_be_bytes(*id))?, user_key))
}

/// The smallest key above every key that starts with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}
