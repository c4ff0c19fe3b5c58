//! [`Decoder`]: commands from the bytes of an entry.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::graph::BlockId;
use bowline_core::lease::{LeaseId, LeaseLeft};
use bowline_core::options::Isolation;
use bowline_storage::Value;
use bowline_storage::codec::Reader;
use bowline_types::{Revision, Update};
use bytes::Bytes;

use super::format::{
    COMMANDS_MAX, OP_DELETE_RANGE, OP_PUT, OP_RANGE, OP_TXN, READ_BLOCK, READ_BLOCKS, READ_EDGE,
    READ_EDGES_IN, READ_EDGES_OUT, READ_ENTRIES, READ_KEY, READ_RANGE, TAG_ALARM, TAG_BY,
    TAG_BY_AT, TAG_COMMIT, TAG_COMPACT, TAG_GRAPH, TAG_INDEX, TAG_LEASE_CHECKPOINT,
    TAG_LEASE_DELETE_KEYS, TAG_LEASE_EXPIRE, TAG_LEASE_EXPIRE_GRANTED, TAG_LEASE_GRANT,
    TAG_LEASE_REMAINING, TAG_LEASE_REVOKE, TAG_QUOTA, TAG_TOKENS, TAG_TXN, TAG_UNBOUNDED_TXN,
    TAG_USERS, TXN_DEPTH_MAX, UPDATE_ADD, UPDATE_ADD_WITHIN, UPDATE_APPEND, UPDATE_MAX, UPDATE_MIN,
    UPDATE_SET_IF_ABSENT, UPDATE_SWAP, WITH_INDEXES, WITH_QUOTAS, WRITE_DELETE, WRITE_DELETE_RANGE,
    WRITE_GRAPH, WRITE_PUT, WRITE_UPDATE,
};
use crate::command::{
    AlarmKind, Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp, Expectation, Op,
    PutOp, RangeOp, Relation, SortOrder, SortTarget, Target, Txn,
};
use crate::index::read_index_change;
use crate::quota::read_quota_change;

pub(super) type Decoded<T> = Result<T, &'static str>;

/// Reads commands from the bytes of an entry.
pub(super) struct Decoder<'a> {
    buffer: &'a Bytes,
    pub(super) reader: Reader<'a>,
    /// The offset of the reader's bytes in the buffer.
    base: usize,
    /// The name of the last user: commands of one user share its memory.
    user: Option<Arc<str>>,
}

pub(super) const CUT: &str = "the bytes end";

impl<'a> Decoder<'a> {
    pub(super) fn new(buffer: &'a Bytes) -> Decoder<'a> {
        Decoder {
            buffer,
            reader: Reader::new(buffer),
            base: 0,
            user: None,
        }
    }

    pub(super) fn commands(&mut self) -> Decoded<Vec<Command>> {
        let version = self.u8()? & !(WITH_QUOTAS | WITH_INDEXES);
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
                user: self.user.take(),
            };
            commands.push(one.command()?);
            self.user = one.user;
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

    pub(super) fn u8(&mut self) -> Decoded<u8> {
        self.reader.u8().ok_or(CUT)
    }

    pub(super) fn number(&mut self) -> Decoded<u64> {
        self.reader.varint().ok_or(CUT)
    }

    pub(super) fn signed(&mut self) -> Decoded<i64> {
        self.number().map(|number| number as i64)
    }

    pub(super) fn duration(&mut self) -> Decoded<Duration> {
        self.number().map(Duration::from_millis)
    }

    /// A count of items, each of which takes at least one byte.
    pub(super) fn count(&mut self) -> Decoded<usize> {
        let count = self.reader.varint_usize().ok_or(CUT)?;
        match count <= self.reader.remaining() {
            true => Ok(count),
            false => Err("a count beyond the bytes that are there"),
        }
    }

    pub(super) fn bytes(&mut self) -> Decoded<Vec<u8>> {
        self.reader.bytes().map(<[u8]>::to_vec).ok_or(CUT)
    }

    pub(super) fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?).map_err(|_| "a text that is not UTF-8")
    }

    /// The name of a user.
    pub(super) fn user(&mut self) -> Decoded<Arc<str>> {
        let name = self.reader.bytes().ok_or(CUT)?;
        if let Some(known) = self.user.as_ref().filter(|known| known.as_bytes() == name) {
            return Ok(known.clone());
        }
        let name = std::str::from_utf8(name).map_err(|_| "a text that is not UTF-8")?;
        Ok(self.user.insert(name.into()).clone())
    }

    pub(super) fn value(&mut self) -> Decoded<Value> {
        let len = self.reader.bytes().ok_or(CUT)?.len();
        let end = self.base + self.reader.position();
        Ok(Value::slice_of(self.buffer, end - len..end))
    }

    pub(super) fn flags(&mut self, known: u8) -> Decoded<u8> {
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
    pub(super) fn command_of_tag(&mut self, tag: u8) -> Decoded<Command> {
        Ok(match tag {
            TAG_USERS => Command::Users(self.users_change()?),
            TAG_TOKENS => Command::Tokens(self.token_change()?),
            TAG_QUOTA => {
                let change = read_quota_change(&mut self.reader);
                Command::Quota(change.ok_or("a change of quotas that is unknown")?)
            }
            TAG_INDEX => {
                let change = read_index_change(&mut self.reader);
                Command::Index(change.ok_or("a change of indexes that is unknown")?)
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
            READ_ENTRIES => {
                let index = u32::try_from(self.number()?);
                CommitRead::Entries {
                    index: index.map_err(|_| "a number of an index that is too large")?,
                    first: self.bytes()?,
                    end: self.bytes()?,
                }
            }
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
            WRITE_UPDATE => CommitWrite::Update {
                key: self.bytes()?,
                update: self.update()?,
            },
            _ => return Err("a write that is unknown"),
        })
    }

    fn update(&mut self) -> Decoded<Update> {
        Ok(match self.u8()? {
            UPDATE_ADD => Update::Add(self.signed()?),
            UPDATE_ADD_WITHIN => Update::AddWithin {
                amount: self.signed()?,
                min: self.signed()?,
                max: self.signed()?,
            },
            UPDATE_MAX => Update::Max(self.signed()?),
            UPDATE_MIN => Update::Min(self.signed()?),
            UPDATE_APPEND => Update::Append(self.bytes()?),
            UPDATE_SET_IF_ABSENT => Update::SetIfAbsent(self.bytes()?),
            UPDATE_SWAP => {
                let flags = self.flags(3)?;
                let mut value = |flag: u8| match flags & flag {
                    0 => Ok(None),
                    _ => self.bytes().map(Some),
                };
                Update::Swap {
                    expected: value(1)?,
                    new: value(2)?,
                }
            }
            _ => return Err("an update that is unknown"),
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

    pub(super) fn block_id(&mut self) -> Decoded<BlockId> {
        let bytes = self.reader.take(16).ok_or(CUT)?;
        let bytes: [u8; 16] = bytes.try_into().map_err(|_| CUT)?;
        Ok(BlockId(u128::from_be_bytes(bytes)))
    }
}
