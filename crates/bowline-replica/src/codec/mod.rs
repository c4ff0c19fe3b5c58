//! The encoding of commands, in the log and on the wire between members.
//!
//! ```text
//! commands   | version u8 | count varint | (length varint, command) * count |
//! command    | tag u8 | fields in the order of the type |
//! txn        | compares: count, each | success: count, each | failure: count, each |
//! bytes      | length varint | that many bytes |
//! number     | varint; a signed one by its 64 bits |
//! duration   | ms varint |
//! commit     | read revision | isolation u8 | reads: count, each | expectations: count, each |
//!            | writes: count, each |
//! read       | kind u8: 1 key, 2 range, 3 block, 4 edge, 5 edges out, 6 edges in, 7 blocks, 8 entries of an index |
//!            | its fields |
//! write      | kind u8: 1 put, 2 delete, 3 delete range, 4 of the graph, 5 update | its fields |
//! update     | key | kind u8: 1 add, 2 add within, 3 max, 4 min, 5 append, 6 set if absent, 7 swap |
//!            | its fields; of a swap: which values u8: 1 expected, 2 new | each |
//! graph      | kind u8: 1 block, 2 no block, 3 edge, 4 no edge, 5 block and 6 edge with typed values,
//!            | 7 block of no kind or of several | its fields |
//! ```
//!
//! The version is the newest that one of the commands needs ([`Command::version`]). A program decodes every
//! version up to [`COMMAND_VERSION`]. A change that adds a kind of command, or a field, raises it, and makes
//! the new command need the new version: no member proposes it before every member has announced that
//! version.
//!
//! While there are quotas, the highest bit of the version is set ([`require_quotas`]): to a member that does not know of
//! quotas, and so would not count, it is a newer version, of which it applies nothing. So is the next bit while there are
//! indexes ([`require_indexes`]), which such a member would not keep.
//!
//! The decoder accepts exactly the encoder's output: unknown tags, excess depth, trailing bytes and unsorted
//! names are refused, and a count is bounded by the remaining bytes. A command with an unknown tag must stop
//! the member rather than be skipped: the other members may know it.

mod decoder;
mod format;
mod graph_writes;
mod users;

use std::time::Duration;

use bowline_storage::codec::{put_bytes, put_varint};
use bytes::Bytes;

use super::command::{Command, Commit, CommitRead, CommitWrite, Compare, Op, Target, Txn};
use super::index::put_index_change;
use super::quota::put_quota_change;
use bowline_core::lease::LeaseLeft;
use bowline_core::options::Isolation;
use bowline_types::Update;
use decoder::Decoder;
pub use format::{COMMANDS_MAX, TXN_DEPTH_MAX};
use format::{
    OP_DELETE_RANGE, OP_PUT, OP_RANGE, OP_TXN, READ_BLOCK, READ_BLOCKS, READ_EDGE, READ_EDGES_IN,
    READ_EDGES_OUT, READ_ENTRIES, READ_KEY, READ_RANGE, TAG_ALARM, TAG_BY, TAG_BY_AT, TAG_COMMIT,
    TAG_COMPACT, TAG_GRAPH, TAG_INDEX, TAG_LEASE_CHECKPOINT, TAG_LEASE_DELETE_KEYS,
    TAG_LEASE_EXPIRE, TAG_LEASE_EXPIRE_GRANTED, TAG_LEASE_GRANT, TAG_LEASE_REMAINING,
    TAG_LEASE_REVOKE, TAG_QUOTA, TAG_TOKENS, TAG_TXN, TAG_UNBOUNDED_TXN, TAG_USERS, UPDATE_ADD,
    UPDATE_ADD_WITHIN, UPDATE_APPEND, UPDATE_MAX, UPDATE_MIN, UPDATE_SET_IF_ABSENT, UPDATE_SWAP,
    WITH_INDEXES, WITH_QUOTAS, WRITE_DELETE, WRITE_DELETE_RANGE, WRITE_GRAPH, WRITE_PUT,
    WRITE_UPDATE,
};
use graph_writes::put_graph_write;

/// The newest command version that this program encodes and decodes.
pub const COMMAND_VERSION: u8 = 9;

/// Bytes that are not commands of a known version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are invalid.
    #[error("commands do not decode at byte {at}: {reason}; run the same version on every member")]
    Malformed {
        /// The offset in bytes.
        at: usize,
        /// What was expected.
        reason: &'static str,
    },
    /// The bytes are from a newer program.
    #[error(
        "commands of version {found}, this program reads up to version {COMMAND_VERSION}: run a newer \
         program on this member"
    )]
    Newer {
        /// The version found.
        found: u8,
    },
}

/// The version of encoded commands; `None` for no bytes.
#[must_use]
pub fn commands_version(bytes: &[u8]) -> Option<u8> {
    let flags = WITH_QUOTAS | WITH_INDEXES;
    bytes.first().map(|version| version & !flags)
}

/// Marks encoded commands: only a program that knows of quotas may apply them.
pub fn require_quotas(encoded: &mut [u8]) {
    if let Some(version) = encoded.first_mut() {
        *version |= WITH_QUOTAS;
    }
}

/// Marks encoded commands: only a program that knows of indexes may apply them.
pub fn require_indexes(encoded: &mut [u8]) {
    if let Some(version) = encoded.first_mut() {
        *version |= WITH_INDEXES;
    }
}

/// Whether commands are marked by [`require_quotas`], and by [`require_indexes`].
#[cfg(any(test, fuzzing))]
pub(crate) fn required(encoded: &[u8]) -> (bool, bool) {
    let has = |flag| matches!(encoded, [version, ..] if version & flag != 0);
    (has(WITH_QUOTAS), has(WITH_INDEXES))
}

/// Appends commands.
pub fn encode_commands<'a>(
    commands: impl ExactSizeIterator<Item = &'a Command>,
    out: &mut Vec<u8>,
) {
    let (version_at, mut version) = (out.len(), 1);
    out.push(version);
    put_varint(out, commands.len() as u64);
    let mut one = Vec::new();
    for command in commands {
        version = version.max(command.version());
        one.clear();
        put_command(command, &mut one);
        put_bytes(out, &one);
    }
    if let Some(written) = out.get_mut(version_at) {
        *written = version;
    }
}

/// Decodes commands. Values share the buffer.
///
/// # Errors
/// [`DecodeError`] for bytes that [`encode_commands`] of this version does not make.
pub fn decode_commands(buffer: &Bytes) -> Result<Vec<Command>, DecodeError> {
    if let Some(found) = commands_version(buffer).filter(|found| *found > COMMAND_VERSION) {
        return Err(DecodeError::Newer { found });
    }
    let mut decoder = Decoder::new(buffer);
    let commands = decoder.commands();
    let at = decoder.reader.position();
    commands.map_err(|reason| DecodeError::Malformed { at, reason })
}

fn put_command(command: &Command, out: &mut Vec<u8>) {
    match command {
        Command::Txn(txn) => {
            out.push(TAG_TXN);
            put_txn(txn, out);
        }
        Command::UnboundedTxn(txn) => {
            out.push(TAG_UNBOUNDED_TXN);
            put_txn(txn, out);
        }
        Command::LeaseGrant { id, ttl } => {
            out.push(TAG_LEASE_GRANT);
            put_varint(out, *id as u64);
            put_duration(*ttl, out);
        }
        Command::LeaseRevoke { id } => {
            out.push(TAG_LEASE_REVOKE);
            put_varint(out, *id as u64);
        }
        Command::LeaseExpire { id, term, granted } => {
            out.push(match granted {
                Some(_) => TAG_LEASE_EXPIRE_GRANTED,
                None => TAG_LEASE_EXPIRE,
            });
            put_varint(out, *id as u64);
            put_varint(out, *term);
            if let Some(index) = granted {
                put_varint(out, *index);
            }
        }
        Command::LeaseDeleteKeys { id, expired } => {
            out.push(TAG_LEASE_DELETE_KEYS);
            put_varint(out, *id as u64);
            out.push(u8::from(expired.is_some()));
            if let Some((term, granted)) = expired {
                put_varint(out, *term);
                put_varint(out, *granted);
            }
        }
        Command::LeaseCheckpoint { remaining } => {
            out.push(TAG_LEASE_CHECKPOINT);
            put_varint(out, remaining.len() as u64);
            for (id, left) in remaining {
                put_varint(out, *id as u64);
                put_duration(*left, out);
            }
        }
        Command::LeaseRemaining { term, leases } => {
            out.push(TAG_LEASE_REMAINING);
            put_varint(out, *term);
            put_varint(out, leases.len() as u64);
            leases.iter().for_each(|left| put_lease_left(left, out));
        }
        Command::Compact { revision } => {
            out.push(TAG_COMPACT);
            put_varint(out, revision.get());
        }
        Command::Graph(writes) => {
            out.push(TAG_GRAPH);
            put_varint(out, writes.len() as u64);
            for write in writes {
                put_graph_write(write, out);
            }
        }
        Command::Alarm {
            member,
            kind,
            is_raised,
        } => {
            out.push(TAG_ALARM);
            put_varint(out, *member);
            out.extend_from_slice(&[*kind as u8, u8::from(*is_raised)]);
        }
        Command::Commit(commit) => {
            out.push(TAG_COMMIT);
            put_commit(commit, out);
        }
        Command::By { .. } => put_by(command, out),
        Command::Users(change) => {
            out.push(TAG_USERS);
            users::put_users_change(change, out);
        }
        Command::Tokens(change) => {
            out.push(TAG_TOKENS);
            users::put_token_change(change, out);
        }
        Command::Quota(change) => put_quota_change(TAG_QUOTA, change, out),
        Command::Index(change) => {
            out.push(TAG_INDEX);
            put_index_change(change, out);
        }
    }
}

fn put_lease_left(LeaseLeft { id, granted, left }: &LeaseLeft, out: &mut Vec<u8>) {
    put_varint(out, id.get() as u64);
    put_varint(out, *granted);
    out.push(u8::from(left.is_some()));
    if let Some(left) = left {
        put_duration(*left, out);
    }
}

/// A command that has an actor, and the time when it was received, if it has one.
fn put_by(command: &Command, out: &mut Vec<u8>) {
    if let Command::By {
        actor,
        at_ms,
        command,
    } = command
    {
        out.push(if at_ms.is_some() { TAG_BY_AT } else { TAG_BY });
        users::put_actor(actor, out);
        if let Some(at_ms) = at_ms {
            put_varint(out, *at_ms);
        }
        put_command(command, out);
    }
}

fn put_commit(commit: &Commit, out: &mut Vec<u8>) {
    put_varint(out, commit.read_revision.get());
    out.push(match commit.isolation {
        Isolation::Serializable => 0,
        Isolation::Snapshot => 1,
    });
    put_varint(out, commit.reads.len() as u64);
    for read in &commit.reads {
        put_read(read, out);
    }
    put_varint(out, commit.expectations.len() as u64);
    for expectation in &commit.expectations {
        put_bytes(out, &expectation.key);
        put_varint(out, expectation.mod_revision.get());
    }
    put_varint(out, commit.writes.len() as u64);
    for write in &commit.writes {
        put_write(write, out);
    }
}

fn put_read(read: &CommitRead, out: &mut Vec<u8>) {
    match read {
        CommitRead::Key(key) => {
            out.push(READ_KEY);
            put_bytes(out, key);
        }
        CommitRead::Range { key, range_end } => {
            out.push(READ_RANGE);
            put_bytes(out, key);
            put_bytes(out, range_end);
        }
        CommitRead::Block(id) => {
            out.push(READ_BLOCK);
            out.extend_from_slice(&id.to_bytes());
        }
        CommitRead::Edge {
            source,
            kind,
            target,
        } => {
            out.push(READ_EDGE);
            out.extend_from_slice(&source.to_bytes());
            put_bytes(out, kind.as_bytes());
            out.extend_from_slice(&target.to_bytes());
        }
        CommitRead::EdgesOut(id) => {
            out.push(READ_EDGES_OUT);
            out.extend_from_slice(&id.to_bytes());
        }
        CommitRead::EdgesIn(id) => {
            out.push(READ_EDGES_IN);
            out.extend_from_slice(&id.to_bytes());
        }
        CommitRead::Blocks { first, last } => {
            out.push(READ_BLOCKS);
            out.extend_from_slice(&first.to_bytes());
            out.extend_from_slice(&last.to_bytes());
        }
        CommitRead::Entries { index, first, end } => {
            out.push(READ_ENTRIES);
            put_varint(out, u64::from(*index));
            put_bytes(out, first);
            put_bytes(out, end);
        }
    }
}

fn put_write(write: &CommitWrite, out: &mut Vec<u8>) {
    match write {
        CommitWrite::Put { key, value, lease } => {
            out.push(WRITE_PUT);
            put_bytes(out, key);
            put_bytes(out, value);
            put_varint(out, *lease as u64);
        }
        CommitWrite::Delete { key } => {
            out.push(WRITE_DELETE);
            put_bytes(out, key);
        }
        CommitWrite::DeleteRange { key, range_end } => {
            out.push(WRITE_DELETE_RANGE);
            put_bytes(out, key);
            put_bytes(out, range_end);
        }
        CommitWrite::Graph(write) => {
            out.push(WRITE_GRAPH);
            put_graph_write(write, out);
        }
        CommitWrite::Update { key, update } => {
            out.push(WRITE_UPDATE);
            put_bytes(out, key);
            put_update(update, out);
        }
    }
}

fn put_update(update: &Update, out: &mut Vec<u8>) {
    let mut numbers = |tag: u8, numbers: &[i64]| {
        out.push(tag);
        numbers
            .iter()
            .for_each(|number| put_varint(out, *number as u64));
    };
    match update {
        Update::Add(amount) => numbers(UPDATE_ADD, &[*amount]),
        Update::AddWithin { amount, min, max } => {
            numbers(UPDATE_ADD_WITHIN, &[*amount, *min, *max]);
        }
        Update::Max(least) => numbers(UPDATE_MAX, &[*least]),
        Update::Min(most) => numbers(UPDATE_MIN, &[*most]),
        Update::Append(more) => {
            out.push(UPDATE_APPEND);
            put_bytes(out, more);
        }
        Update::SetIfAbsent(value) => {
            out.push(UPDATE_SET_IF_ABSENT);
            put_bytes(out, value);
        }
        Update::Swap { expected, new } => {
            out.push(UPDATE_SWAP);
            out.push(u8::from(expected.is_some()) | u8::from(new.is_some()) << 1);
            for value in [expected, new].into_iter().flatten() {
                put_bytes(out, value);
            }
        }
    }
}

/// Rounded up: a lease may live longer, never shorter.
fn put_duration(duration: Duration, out: &mut Vec<u8>) {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    put_varint(out, u64::try_from(ms).unwrap_or(u64::MAX));
}

fn put_txn(txn: &Txn, out: &mut Vec<u8>) {
    put_varint(out, txn.compares.len() as u64);
    for compare in &txn.compares {
        put_compare(compare, out);
    }
    for branch in [&txn.success, &txn.failure] {
        put_varint(out, branch.len() as u64);
        for op in branch {
            put_op(op, out);
        }
    }
}

fn put_compare(compare: &Compare, out: &mut Vec<u8>) {
    put_bytes(out, &compare.key);
    put_bytes(out, &compare.range_end);
    out.push(compare.relation as u8);
    match &compare.target {
        Target::Version(number) => put_target(0, *number, out),
        Target::Create(number) => put_target(1, number.get(), out),
        Target::Mod(number) => put_target(2, number.get(), out),
        Target::Value(value) => {
            out.push(3);
            put_bytes(out, value);
        }
        Target::Lease(id) => put_target(4, *id as u64, out),
    }
}

fn put_target(tag: u8, number: u64, out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(out, number);
}

fn put_op(op: &Op, out: &mut Vec<u8>) {
    match op {
        Op::Range(range) => {
            out.push(OP_RANGE);
            put_bytes(out, &range.key);
            put_bytes(out, &range.range_end);
            for number in [
                range.limit,
                range.revision.get(),
                range.min_mod_revision.get(),
                range.max_mod_revision.get(),
                range.min_create_revision.get(),
                range.max_create_revision.get(),
            ] {
                put_varint(out, number);
            }
            let flags = u8::from(range.keys_only) | u8::from(range.count_only) << 1;
            out.extend_from_slice(&[range.sort_target as u8, range.sort_order as u8, flags]);
        }
        Op::Put(put) => {
            out.push(OP_PUT);
            put_bytes(out, &put.key);
            put_bytes(out, &put.value);
            put_varint(out, put.lease as u64);
            let flags = u8::from(put.prev_kv)
                | u8::from(put.ignore_value) << 1
                | u8::from(put.ignore_lease) << 2;
            out.push(flags);
        }
        Op::DeleteRange(delete) => {
            out.push(OP_DELETE_RANGE);
            put_bytes(out, &delete.key);
            put_bytes(out, &delete.range_end);
            out.push(u8::from(delete.prev_kv));
        }
        Op::Txn(txn) => {
            out.push(OP_TXN);
            put_txn(txn, out);
        }
    }
}
