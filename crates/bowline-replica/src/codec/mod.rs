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
//! read       | kind u8: 1 key, 2 range, 3 block, 4 edge, 5 edges out, 6 edges in | its fields |
//! write      | kind u8: 1 put, 2 delete, 3 delete range, 4 of the graph | its fields |
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
//! quotas, and so would not count, it is a newer version, of which it applies nothing.
//!
//! The decoder accepts exactly the encoder's output: unknown tags, excess depth, trailing bytes and unsorted
//! names are refused, and a count is bounded by the remaining bytes. A command with an unknown tag must stop
//! the member rather than be skipped: the other members may know it.

mod graph_writes;
mod users;

use std::time::Duration;

use bowline_storage::Value;
use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bytes::Bytes;

use super::command::{
    AlarmKind, Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp, Expectation, Op,
    PutOp, RangeOp, Relation, SortOrder, SortTarget, Target, Txn,
};
use super::quota::{put_quota_change, read_quota_change};
use bowline_core::graph::BlockId;
use bowline_core::lease::{LeaseId, LeaseLeft};
use bowline_core::options::Isolation;
use bowline_types::Revision;
use graph_writes::put_graph_write;

/// The newest command version that this program encodes and decodes.
pub const COMMAND_VERSION: u8 = 7;

/// In the version: whoever applies the commands must know of quotas.
const WITH_QUOTAS: u8 = 0x80;

/// The most commands in one entry.
pub const COMMANDS_MAX: usize = 1024;

/// The greatest depth of nested transactions. No decoded message of etcd's API is deeper: each level takes
/// two of the decoder's hundred.
pub const TXN_DEPTH_MAX: usize = 50;

const TAG_UNBOUNDED_TXN: u8 = 1;
const TAG_LEASE_GRANT: u8 = 2;
const TAG_LEASE_REVOKE: u8 = 3;
const TAG_LEASE_EXPIRE: u8 = 4;
const TAG_LEASE_CHECKPOINT: u8 = 5;
const TAG_COMPACT: u8 = 6;
const TAG_GRAPH: u8 = 7;
const TAG_ALARM: u8 = 8;
const TAG_COMMIT: u8 = 9;
const TAG_LEASE_EXPIRE_GRANTED: u8 = 10;
const TAG_LEASE_REMAINING: u8 = 11;
const TAG_TXN: u8 = 12;
const TAG_LEASE_DELETE_KEYS: u8 = 13;
const TAG_BY: u8 = 14;
const TAG_USERS: u8 = 15;
const TAG_TOKENS: u8 = 16;
const TAG_BY_AT: u8 = 17;
const TAG_QUOTA: u8 = 18;

const OP_RANGE: u8 = 1;
const OP_PUT: u8 = 2;
const OP_DELETE_RANGE: u8 = 3;
const OP_TXN: u8 = 4;

const READ_KEY: u8 = 1;
const READ_RANGE: u8 = 2;
const READ_BLOCK: u8 = 3;
const READ_EDGE: u8 = 4;
const READ_EDGES_OUT: u8 = 5;
const READ_EDGES_IN: u8 = 6;
const READ_BLOCKS: u8 = 7;

const WRITE_PUT: u8 = 1;
const WRITE_DELETE: u8 = 2;
const WRITE_DELETE_RANGE: u8 = 3;
const WRITE_GRAPH: u8 = 4;

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
    bytes.first().map(|version| version & !WITH_QUOTAS)
}

/// Marks encoded commands: only a program that knows of quotas may apply them.
pub fn require_quotas(encoded: &mut [u8]) {
    if let Some(version) = encoded.first_mut() {
        *version |= WITH_QUOTAS;
    }
}

/// Whether commands are marked by [`require_quotas`].
#[cfg(any(test, fuzzing))]
pub(crate) fn requires_quotas(encoded: &[u8]) -> bool {
    matches!(encoded, [version, ..] if version & WITH_QUOTAS != 0)
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
    let mut decoder = Decoder {
        buffer,
        reader: Reader::new(buffer),
        base: 0,
    };
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

type Decoded<T> = Result<T, &'static str>;

struct Decoder<'a> {
    buffer: &'a Bytes,
    reader: Reader<'a>,
    /// The offset of the reader's bytes in the buffer.
    base: usize,
}

const CUT: &str = "the bytes end";

impl<'a> Decoder<'a> {
    fn commands(&mut self) -> Decoded<Vec<Command>> {
        let version = self.u8()? & !WITH_QUOTAS;
        let count = self.count()?;
        if count > COMMANDS_MAX {
            return Err("more commands than come together");
        }
        let mut commands = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes = self.reader.bytes().ok_or(CUT)?;
            let end = self.base + self.reader.position();
            let mut one = Decoder {
                buffer: self.buffer,
                reader: Reader::new(bytes),
                base: end - bytes.len(),
            };
            commands.push(one.command()?);
            if !one.reader.is_empty() {
                return Err("a command is longer than its fields");
            }
        }
        let needed = commands.iter().map(Command::version).max().unwrap_or(1);
        match self.reader.is_empty() {
            true if version == needed => Ok(commands),
            true => Err("a version other than that of the commands"),
            false => Err("bytes are left over"),
        }
    }

    fn u8(&mut self) -> Decoded<u8> {
        self.reader.u8().ok_or(CUT)
    }

    fn number(&mut self) -> Decoded<u64> {
        self.reader.varint().ok_or(CUT)
    }

    fn signed(&mut self) -> Decoded<i64> {
        self.number().map(|number| number as i64)
    }

    fn duration(&mut self) -> Decoded<Duration> {
        self.number().map(Duration::from_millis)
    }

    /// A count of items, each of which takes at least one byte.
    fn count(&mut self) -> Decoded<usize> {
        let count = self.reader.varint_usize().ok_or(CUT)?;
        match count <= self.reader.remaining() {
            true => Ok(count),
            false => Err("a count beyond the bytes that are there"),
        }
    }

    fn bytes(&mut self) -> Decoded<Vec<u8>> {
        self.reader.bytes().map(<[u8]>::to_vec).ok_or(CUT)
    }

    fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?).map_err(|_| "a text that is not UTF-8")
    }

    fn value(&mut self) -> Decoded<Value> {
        let len = self.reader.bytes().ok_or(CUT)?.len();
        let end = self.base + self.reader.position();
        Ok(Value::slice_of(self.buffer, end - len..end))
    }

    fn flags(&mut self, known: u8) -> Decoded<u8> {
        let flags = self.u8()?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err("a flag that is unknown"),
        }
    }

    fn command(&mut self) -> Decoded<Command> {
        match self.u8()? {
            TAG_BY => self.by(false),
            TAG_BY_AT => self.by(true),
            tag => self.command_of_tag(tag),
        }
    }

    /// A command that is none with an actor.
    fn command_of_tag(&mut self, tag: u8) -> Decoded<Command> {
        Ok(match tag {
            TAG_USERS => Command::Users(self.users_change()?),
            TAG_TOKENS => Command::Tokens(self.token_change()?),
            TAG_QUOTA => {
                let change = read_quota_change(&mut self.reader);
                Command::Quota(change.ok_or("a change of quotas that is unknown")?)
            }
            TAG_TXN => Command::Txn(self.txn(0)?),
            TAG_UNBOUNDED_TXN => Command::UnboundedTxn(self.txn(0)?),
            TAG_LEASE_GRANT => Command::LeaseGrant {
                id: self.signed()?,
                ttl: self.duration()?,
            },
            TAG_LEASE_REVOKE => Command::LeaseRevoke { id: self.signed()? },
            TAG_LEASE_EXPIRE => Command::LeaseExpire {
                id: self.signed()?,
                term: self.number()?,
                granted: None,
            },
            TAG_LEASE_EXPIRE_GRANTED => Command::LeaseExpire {
                id: self.signed()?,
                term: self.number()?,
                granted: Some(self.number()?),
            },
            TAG_LEASE_DELETE_KEYS => Command::LeaseDeleteKeys {
                id: self.signed()?,
                expired: match self.flags(1)? {
                    0 => None,
                    _ => Some((self.number()?, self.number()?)),
                },
            },
            TAG_LEASE_REMAINING => {
                let term = self.number()?;
                let leases = (0..self.count()?).map(|_| self.lease_left());
                let leases = leases.collect::<Decoded<_>>()?;
                Command::LeaseRemaining { term, leases }
            }
            TAG_LEASE_CHECKPOINT => {
                let remaining = (0..self.count()?).map(|_| Ok((self.signed()?, self.duration()?)));
                Command::LeaseCheckpoint {
                    remaining: remaining.collect::<Decoded<_>>()?,
                }
            }
            TAG_COMPACT => Command::Compact {
                revision: Revision::new(self.number()?),
            },
            TAG_GRAPH => {
                let writes = (0..self.count()?).map(|_| self.graph_write());
                Command::Graph(writes.collect::<Decoded<_>>()?)
            }
            TAG_ALARM => Command::Alarm {
                member: self.number()?,
                kind: match self.u8()? {
                    1 => AlarmKind::NoSpace,
                    2 => AlarmKind::Corrupt,
                    _ => return Err("an alarm that is unknown"),
                },
                is_raised: self.flags(1)? == 1,
            },
            TAG_COMMIT => Command::Commit(self.commit()?),
            _ => return Err("a command that is unknown"),
        })
    }

    fn commit(&mut self) -> Decoded<Commit> {
        let read_revision = self.number()?;
        let isolation = match self.u8()? {
            0 => Isolation::Serializable,
            1 => Isolation::Snapshot,
            _ => return Err("an isolation that is unknown"),
        };
        let reads = (0..self.count()?).map(|_| self.read());
        let reads = reads.collect::<Decoded<_>>()?;
        let expectations = (0..self.count()?).map(|_| {
            Ok(Expectation {
                key: self.bytes()?,
                mod_revision: Revision::new(self.number()?),
            })
        });
        let expectations = expectations.collect::<Decoded<_>>()?;
        let writes = (0..self.count()?).map(|_| self.write());
        Ok(Commit {
            read_revision: Revision::new(read_revision),
            isolation,
            reads,
            expectations,
            writes: writes.collect::<Decoded<_>>()?,
        })
    }

    fn read(&mut self) -> Decoded<CommitRead> {
        Ok(match self.u8()? {
            READ_KEY => CommitRead::Key(self.bytes()?),
            READ_RANGE => CommitRead::Range {
                key: self.bytes()?,
                range_end: self.bytes()?,
            },
            READ_BLOCK => CommitRead::Block(self.block_id()?),
            READ_EDGE => CommitRead::Edge {
                source: self.block_id()?,
                kind: self.text()?,
                target: self.block_id()?,
            },
            READ_EDGES_OUT => CommitRead::EdgesOut(self.block_id()?),
            READ_EDGES_IN => CommitRead::EdgesIn(self.block_id()?),
            READ_BLOCKS => CommitRead::Blocks {
                first: self.block_id()?,
                last: self.block_id()?,
            },
            _ => return Err("a read that is unknown"),
        })
    }

    fn write(&mut self) -> Decoded<CommitWrite> {
        Ok(match self.u8()? {
            WRITE_PUT => CommitWrite::Put {
                key: self.bytes()?,
                value: self.value()?,
                lease: self.signed()?,
            },
            WRITE_DELETE => CommitWrite::Delete { key: self.bytes()? },
            WRITE_DELETE_RANGE => CommitWrite::DeleteRange {
                key: self.bytes()?,
                range_end: self.bytes()?,
            },
            WRITE_GRAPH => CommitWrite::Graph(self.graph_write()?),
            _ => return Err("a write that is unknown"),
        })
    }

    fn lease_left(&mut self) -> Decoded<LeaseLeft> {
        Ok(LeaseLeft {
            id: LeaseId::new(self.signed()?).ok_or("a lease without an id")?,
            granted: self.number()?,
            left: match self.flags(1)? {
                0 => None,
                _ => Some(self.duration()?),
            },
        })
    }

    fn txn(&mut self, depth: usize) -> Decoded<Txn> {
        if depth > TXN_DEPTH_MAX {
            return Err("transactions within transactions, too deep");
        }
        let compares = (0..self.count()?).map(|_| self.compare());
        let compares = compares.collect::<Decoded<_>>()?;
        let success = (0..self.count()?).map(|_| self.op(depth));
        let success = success.collect::<Decoded<_>>()?;
        let failure = (0..self.count()?).map(|_| self.op(depth));
        let failure = failure.collect::<Decoded<_>>()?;
        Ok(Txn {
            compares,
            success,
            failure,
        })
    }

    fn compare(&mut self) -> Decoded<Compare> {
        Ok(Compare {
            key: self.bytes()?,
            range_end: self.bytes()?,
            relation: match self.u8()? {
                0 => Relation::Equal,
                1 => Relation::Greater,
                2 => Relation::Less,
                3 => Relation::NotEqual,
                _ => return Err("a relation that is unknown"),
            },
            target: match self.u8()? {
                0 => Target::Version(self.number()?),
                1 => Target::Create(Revision::new(self.number()?)),
                2 => Target::Mod(Revision::new(self.number()?)),
                3 => Target::Value(self.bytes()?),
                4 => Target::Lease(self.signed()?),
                _ => return Err("a target that is unknown"),
            },
        })
    }

    fn op(&mut self, depth: usize) -> Decoded<Op> {
        Ok(match self.u8()? {
            OP_RANGE => {
                let mut range = RangeOp {
                    key: self.bytes()?,
                    range_end: self.bytes()?,
                    limit: self.number()?,
                    revision: Revision::new(self.number()?),
                    min_mod_revision: Revision::new(self.number()?),
                    max_mod_revision: Revision::new(self.number()?),
                    min_create_revision: Revision::new(self.number()?),
                    max_create_revision: Revision::new(self.number()?),
                    ..RangeOp::default()
                };
                range.sort_target = match self.u8()? {
                    0 => SortTarget::Key,
                    1 => SortTarget::Version,
                    2 => SortTarget::Create,
                    3 => SortTarget::Mod,
                    4 => SortTarget::Value,
                    _ => return Err("a sort target that is unknown"),
                };
                range.sort_order = match self.u8()? {
                    0 => SortOrder::None,
                    1 => SortOrder::Ascend,
                    2 => SortOrder::Descend,
                    _ => return Err("a sort order that is unknown"),
                };
                let flags = self.flags(3)?;
                (range.keys_only, range.count_only) = (flags & 1 != 0, flags & 2 != 0);
                Op::Range(range)
            }
            OP_PUT => {
                let (key, value, lease) = (self.bytes()?, self.value()?, self.signed()?);
                let flags = self.flags(7)?;
                Op::Put(PutOp {
                    key,
                    value,
                    lease,
                    prev_kv: flags & 1 != 0,
                    ignore_value: flags & 2 != 0,
                    ignore_lease: flags & 4 != 0,
                })
            }
            OP_DELETE_RANGE => Op::DeleteRange(DeleteRangeOp {
                key: self.bytes()?,
                range_end: self.bytes()?,
                prev_kv: self.flags(1)? == 1,
            }),
            OP_TXN => Op::Txn(self.txn(depth + 1)?),
            _ => return Err("an operation that is unknown"),
        })
    }

    fn block_id(&mut self) -> Decoded<BlockId> {
        let bytes = self.reader.take(16).ok_or(CUT)?;
        let bytes: [u8; 16] = bytes.try_into().map_err(|_| CUT)?;
        Ok(BlockId(u128::from_be_bytes(bytes)))
    }
}
