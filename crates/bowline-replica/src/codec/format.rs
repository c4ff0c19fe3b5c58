//! The numbers of the encoding: bounds, and the tags of commands, operations, reads and writes.

/// In the version: whoever applies the commands must know of quotas.
pub(super) const WITH_QUOTAS: u8 = 0x80;
/// In the version: whoever applies the commands must know of indexes.
pub(super) const WITH_INDEXES: u8 = 0x40;

/// The most commands in one entry.
pub const COMMANDS_MAX: usize = 1024;

/// The greatest depth of nested transactions. No decoded message of etcd's API is deeper: each level takes
/// two of the decoder's hundred.
pub const TXN_DEPTH_MAX: usize = 50;

pub(super) const TAG_UNBOUNDED_TXN: u8 = 1;
pub(super) const TAG_LEASE_GRANT: u8 = 2;
pub(super) const TAG_LEASE_REVOKE: u8 = 3;
pub(super) const TAG_LEASE_EXPIRE: u8 = 4;
pub(super) const TAG_LEASE_CHECKPOINT: u8 = 5;
pub(super) const TAG_COMPACT: u8 = 6;
pub(super) const TAG_GRAPH: u8 = 7;
pub(super) const TAG_ALARM: u8 = 8;
pub(super) const TAG_COMMIT: u8 = 9;
pub(super) const TAG_LEASE_EXPIRE_GRANTED: u8 = 10;
pub(super) const TAG_LEASE_REMAINING: u8 = 11;
pub(super) const TAG_TXN: u8 = 12;
pub(super) const TAG_LEASE_DELETE_KEYS: u8 = 13;
pub(super) const TAG_BY: u8 = 14;
pub(super) const TAG_USERS: u8 = 15;
pub(super) const TAG_TOKENS: u8 = 16;
pub(super) const TAG_BY_AT: u8 = 17;
pub(super) const TAG_QUOTA: u8 = 18;
pub(super) const TAG_INDEX: u8 = 19;

pub(super) const OP_RANGE: u8 = 1;
pub(super) const OP_PUT: u8 = 2;
pub(super) const OP_DELETE_RANGE: u8 = 3;
pub(super) const OP_TXN: u8 = 4;

pub(super) const READ_KEY: u8 = 1;
pub(super) const READ_RANGE: u8 = 2;
pub(super) const READ_BLOCK: u8 = 3;
pub(super) const READ_EDGE: u8 = 4;
pub(super) const READ_EDGES_OUT: u8 = 5;
pub(super) const READ_EDGES_IN: u8 = 6;
pub(super) const READ_BLOCKS: u8 = 7;
pub(super) const READ_ENTRIES: u8 = 8;

pub(super) const WRITE_PUT: u8 = 1;
pub(super) const WRITE_DELETE: u8 = 2;
pub(super) const WRITE_DELETE_RANGE: u8 = 3;
pub(super) const WRITE_GRAPH: u8 = 4;
pub(super) const WRITE_UPDATE: u8 = 5;
pub(super) const UPDATE_ADD: u8 = 1;
pub(super) const UPDATE_ADD_WITHIN: u8 = 2;
pub(super) const UPDATE_MAX: u8 = 3;
pub(super) const UPDATE_MIN: u8 = 4;
pub(super) const UPDATE_APPEND: u8 = 5;
pub(super) const UPDATE_SET_IF_ABSENT: u8 = 6;
pub(super) const UPDATE_SWAP: u8 = 7;
