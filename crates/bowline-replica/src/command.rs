//! What the members of a cluster agree on: commands, and what becomes of them.
//!
//! A command says everything that decides its outcome. Ids and times are chosen by who proposes it,
//! never by who applies it, so that every member comes to the same state and the same reply.

use std::time::Duration;

use bowline_storage::{Index, Revision, Value};

use bowline_core::kv::Entry;
use bowline_core::lease::{LeaseId, LeaseLeft};
use bowline_core::options::Isolation;
use bowline_types::{BlockId, GraphWrite, Touched, show_key};

/// One command.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Reads and writes of keys at one revision, in etcd's manner. Refused when it looks at more than
    /// [`TXN_KEYS_MAX`](super::TXN_KEYS_MAX) keys or [`TXN_BYTES_MAX`](super::TXN_BYTES_MAX) bytes.
    Txn(Txn),
    /// What [`Command::Txn`] was before it knew a bound. Nobody proposes it; logs may have it.
    UnboundedTxn(Txn),
    /// Makes a lease.
    LeaseGrant {
        /// Its id, above 0; chosen by who proposes it.
        id: LeaseId,
        /// Its time to live.
        ttl: Duration,
    },
    /// Ends a lease, and deletes its keys at one revision.
    LeaseRevoke {
        /// Its id.
        id: LeaseId,
    },
    /// Ends a lease whose time is over. Does nothing when the lease was renewed or granted by a
    /// leader of another term than the one that found it expired.
    LeaseExpire {
        /// Its id.
        id: LeaseId,
        /// The term of the leader that found it expired.
        term: u64,
        /// The entry that granted it, 0 for a lease that none did; does nothing to another lease of
        /// this id. `None` is any, as earlier versions had it.
        granted: Option<Index>,
    },
    /// What [`Command::LeaseRemaining`] was before it knew terms. Nobody proposes it.
    LeaseCheckpoint {
        /// Leases, and what they have left.
        remaining: Vec<(LeaseId, Duration)>,
    },
    /// Tells every member how long leases have left, for the leader that comes next. Does nothing in
    /// another term than that of the leader that tells it.
    LeaseRemaining {
        /// The term of that leader.
        term: u64,
        /// The leases.
        leases: Vec<LeaseLeft>,
    },
    /// Gives up the revisions below one.
    Compact {
        /// The oldest revision that stays readable.
        revision: Revision,
    },
    /// Writes of blocks and edges at one revision, in order.
    Graph(Vec<GraphWrite>),
    /// The end of a transaction: what it has read must be as it was, then its writes are carried out
    /// at one revision.
    Commit(Commit),
    /// Raises or clears an alarm of a member.
    Alarm {
        /// Whose.
        member: u64,
        /// Which.
        kind: AlarmKind,
        /// Whether it is raised.
        is_raised: bool,
    },
}

impl Command {
    /// Whether a client asks for it, rather than the members themselves: then it is refused while the
    /// data of members are known to differ. Alarms can be ended even then.
    pub(crate) fn is_asked_for(&self) -> bool {
        match self {
            Command::Txn(_)
            | Command::UnboundedTxn(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseRevoke { .. }
            | Command::Compact { .. }
            | Command::Graph(_)
            | Command::Commit(_) => true,
            Command::LeaseExpire { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::LeaseRemaining { .. }
            | Command::Alarm { .. } => false,
        }
    }

    /// The version of commands that a member must know to apply it.
    #[must_use]
    pub fn version(&self) -> u8 {
        match self {
            Command::Txn(_)
            | Command::UnboundedTxn(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseRevoke { .. }
            | Command::Compact { .. }
            | Command::Graph(_)
            | Command::Commit(_)
            | Command::LeaseExpire { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::LeaseRemaining { .. }
            | Command::Alarm { .. } => 1,
        }
    }

    /// Whether it may take space: then it is refused while the space is used up.
    #[must_use]
    pub fn takes_space(&self) -> bool {
        match self {
            Command::Txn(txn) | Command::UnboundedTxn(txn) => txn.takes_space(),
            Command::LeaseGrant { .. } => true,
            Command::Graph(writes) => writes.iter().any(takes_space),
            Command::Commit(commit) => commit.takes_space(),
            _ => false,
        }
    }
}

/// Conditions, and what is done if all of them hold, or if not. All writes have one revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// Done when all conditions hold.
    pub success: Vec<Op>,
    /// Done otherwise.
    pub failure: Vec<Op>,
}

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Reads.
    Range(RangeOp),
    /// Sets a key.
    Put(PutOp),
    /// Deletes keys.
    DeleteRange(DeleteRangeOp),
    /// A transaction within; it has its part of the same revision.
    Txn(Txn),
}

/// A condition on a key, or on every key of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// The key, or the first of the range.
    pub key: Vec<u8>,
    /// As in etcd: empty is the key alone, `[0]` is every key from `key` on, otherwise the first
    /// key beyond the range.
    pub range_end: Vec<u8>,
    /// What must hold.
    pub relation: Relation,
    /// What is compared, and with what.
    pub target: Target,
}

/// How a key's side relates to the given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Relation {
    /// Is the same.
    Equal = 0,
    /// Is larger.
    Greater = 1,
    /// Is smaller.
    Less = 2,
    /// Is another.
    NotEqual = 3,
}

/// What of a key is compared, with the other side. A key that is absent has 0 for each number, and
/// no value: then no condition on its value holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// The number of writes since its creation.
    Version(u64),
    /// The revision that created it.
    Create(Revision),
    /// The revision that wrote it last.
    Mod(Revision),
    /// Its value.
    Value(Vec<u8>),
    /// Its lease.
    Lease(LeaseId),
}

/// What a range is sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key = 0,
    /// The version.
    Version = 1,
    /// The revision that created it.
    Create = 2,
    /// The revision that wrote it last.
    Mod = 3,
    /// The value.
    Value = 4,
}

/// In which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SortOrder {
    /// By key for the target key, ascending for any other.
    #[default]
    None = 0,
    /// Smallest first.
    Ascend = 1,
    /// Largest first.
    Descend = 2,
}

/// Reads a key or a range. Bounds of 0 do not bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RangeOp {
    /// The key, or the first of the range.
    pub key: Vec<u8>,
    /// See [`Compare::range_end`].
    pub range_end: Vec<u8>,
    /// How many entries at most; 0 is all.
    pub limit: u64,
    /// The revision to read at; 0 is the newest. Above what a signed number holds, it is one below
    /// 0 of who asked: in a transaction that is below every revision there is.
    pub revision: Revision,
    /// What to sort by.
    pub sort_target: SortTarget,
    /// In which order.
    pub sort_order: SortOrder,
    /// Without values.
    pub keys_only: bool,
    /// Only the number of entries.
    pub count_only: bool,
    /// The least revision of the last write.
    pub min_mod_revision: Revision,
    /// The greatest revision of the last write.
    pub max_mod_revision: Revision,
    /// The least revision of the creation.
    pub min_create_revision: Revision,
    /// The greatest revision of the creation.
    pub max_create_revision: Revision,
}

/// Sets a key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PutOp {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
    /// The lease it goes with; 0 is none.
    pub lease: LeaseId,
    /// Whether the reply tells what was there before.
    pub prev_kv: bool,
    /// Keeps the value that is there; refused when the key is absent.
    pub ignore_value: bool,
    /// Keeps the lease that is there; refused when the key is absent.
    pub ignore_lease: bool,
}

/// Deletes a key or a range.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteRangeOp {
    /// The key, or the first of the range.
    pub key: Vec<u8>,
    /// See [`Compare::range_end`].
    pub range_end: Vec<u8>,
    /// Whether the reply tells what was there.
    pub prev_kv: bool,
}

/// What a transaction has read and wants to write, as [`bowline::Transaction`] has it: optimistic, decided
/// when it is applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commit {
    /// The revision at which everything was read; 0 when nothing was, and then nothing is compared with
    /// it. Below the last compaction the commit is refused.
    pub read_revision: Revision,
    /// What must be unchanged since: what was read, or what is written.
    pub isolation: Isolation,
    /// What was read.
    pub reads: Vec<CommitRead>,
    /// Conditions under either isolation.
    pub expectations: Vec<Expectation>,
    /// What is written, in order. Of several writes of one key the last counts.
    pub writes: Vec<CommitWrite>,
}

impl Commit {
    fn takes_space(&self) -> bool {
        self.writes.iter().any(|write| match write {
            CommitWrite::Put { .. } => true,
            CommitWrite::Graph(write) => takes_space(write),
            CommitWrite::Delete { .. } | CommitWrite::DeleteRange { .. } => false,
        })
    }
}

/// What a transaction has read, present or absent.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitRead {
    /// A key.
    Key(Vec<u8>),
    /// Every key of a range, also those that are not there.
    Range {
        /// The first key.
        key: Vec<u8>,
        /// See [`Compare::range_end`].
        range_end: Vec<u8>,
    },
    /// A block.
    Block(BlockId),
    /// An edge.
    Edge {
        /// From.
        source: BlockId,
        /// Its kind.
        kind: String,
        /// To.
        target: BlockId,
    },
    /// The edges that leave a block, also those that are not there.
    EdgesOut(BlockId),
    /// The edges that arrive at a block, also those that are not there.
    EdgesIn(BlockId),
}

/// A key that must be at a revision, for fencing.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// The key.
    pub key: Vec<u8>,
    /// The revision of its last write; 0 means absent.
    pub mod_revision: Revision,
}

/// A write of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitWrite {
    /// Sets a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Value,
        /// The lease it goes with; 0 is none.
        lease: LeaseId,
    },
    /// Deletes a key; does nothing when it is absent.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Deletes every key of a range.
    DeleteRange {
        /// The first key.
        key: Vec<u8>,
        /// See [`Compare::range_end`].
        range_end: Vec<u8>,
    },
    /// Writes a block or an edge.
    Graph(GraphWrite),
}

/// What an alarm tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AlarmKind {
    /// The member's space is used up: what takes space is refused.
    NoSpace = 1,
    /// The member's data differs from that of the others.
    Corrupt = 2,
}

/// What became of a command: the same on every member.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The newest revision after the command.
    pub revision: Revision,
    /// What it did, or why it did nothing.
    pub result: Result<Outcome, Refusal>,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Of [`Command::Txn`].
    Txn(TxnReply),
    /// Of the commands that tell nothing.
    Done,
    /// Of [`Command::LeaseRevoke`] and [`Command::LeaseExpire`]: how many keys went.
    LeaseEnded {
        /// Keys that were deleted.
        deleted: u64,
    },
    /// Of [`Command::Graph`]: for each write, whether it found (for a deletion) or made something.
    Graph(Vec<bool>),
    /// Of [`Command::Commit`].
    Committed {
        /// How many present keys it deleted.
        deleted: u64,
        /// Whether it changed anything, and so has a revision.
        is_changed: bool,
    },
}

/// What a transaction did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TxnReply {
    /// Whether all conditions held.
    pub succeeded: bool,
    /// One for each operation of the branch that was taken. Empty on a member where nobody asked.
    pub replies: Vec<OpReply>,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per operation: a box would be an allocation for each put"
)]
pub enum OpReply {
    /// Of a read.
    Range(RangeReply),
    /// Of a put: what was there before, when it was asked for.
    Put(Option<Entry>),
    /// Of a deletion: how many, and what was there, when it was asked for.
    DeleteRange {
        /// How many keys.
        deleted: u64,
        /// What was there.
        previous: Vec<Entry>,
    },
    /// Of a transaction within.
    Txn(TxnReply),
}

/// What a read found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RangeReply {
    /// The entries, sorted as asked; without values when only keys were asked for.
    pub entries: Vec<Entry>,
    /// How many entries the range has, whatever the limit.
    pub count: u64,
    /// Whether the limit left some out.
    pub more: bool,
}

/// Why a command did nothing: the same on every member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The revision has been given up.
    #[error("revision {revision} has been compacted: the oldest one is {oldest}")]
    Compacted {
        /// Asked for.
        revision: Revision,
        /// The oldest there is.
        oldest: Revision,
    },
    /// The revision does not exist yet.
    #[error("revision {revision} is in the future: the newest one is {newest}")]
    FutureRevision {
        /// Asked for.
        revision: Revision,
        /// The newest there is.
        newest: Revision,
    },
    /// There is no such lease.
    #[error("lease {id:x} was not found")]
    LeaseNotFound {
        /// Its id.
        id: LeaseId,
    },
    /// There is such a lease already.
    #[error("lease {id:x} exists already")]
    LeaseExists {
        /// Its id.
        id: LeaseId,
    },
    /// A put that keeps the value or the lease found no key.
    #[error("the key was not found")]
    KeyNotFound,
    /// A transaction puts a key twice.
    #[error("a key is put twice in one transaction: put it once, with the last value")]
    DuplicateKey,
    /// A member's space is used up.
    #[error("the space is used up: delete and compact, then clear the alarm")]
    NoSpace,
    /// A member's data differs from that of the others.
    #[error("the data of members differ: find out which is right, then clear the alarm")]
    Corrupt,
    /// An edge needs a block that is not there.
    #[error("block {id} does not exist: put it before its edges")]
    MissingBlock {
        /// Its id.
        id: BlockId,
    },
    /// The name of a kind is empty or too long.
    #[error("{name:?} is no name of a kind: it has 1 to 256 bytes")]
    InvalidKind {
        /// The name, cut.
        name: String,
    },
    /// Something that a transaction has read, or under snapshot isolation written, was changed since.
    #[error(
        "conflict: {what} was changed at revision {revision}, after this transaction's snapshot {snapshot}: run the transaction again"
    )]
    Conflict {
        /// The first that was, in the order of the command.
        what: Touched,
        /// When it was changed last.
        revision: Revision,
        /// The revision the transaction has read at.
        snapshot: Revision,
    },
    /// A transaction expected a key at another revision.
    #[error(
        "key {} is at revision {actual} (0 = absent), expected {expected}: read it again, then retry", show_key(.key)
    )]
    CompareFailed {
        /// The key.
        key: Vec<u8>,
        /// The expected revision of its last write; 0 = absent.
        expected: Revision,
        /// The one it has; 0 = absent.
        actual: Revision,
    },
    /// A transaction looks at more than one may.
    #[error(
        "the transaction looks at more than {keys} keys or {bytes} bytes: read large ranges outside of transactions, a page at a time, and write in several"
    )]
    TooMuchWork {
        /// How many keys it may look at.
        keys: u64,
        /// How many bytes it may look at.
        bytes: u64,
    },
    /// Something is over a limit.
    #[error("{what} of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// What.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl Txn {
    /// One operation without conditions.
    #[must_use]
    pub fn of(op: Op) -> Txn {
        Txn {
            success: vec![op],
            ..Txn::default()
        }
    }

    /// Whether no branch of it writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let reads = |op: &Op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::DeleteRange(_) => false,
            Op::Txn(txn) => txn.is_read_only(),
        };
        self.success.iter().chain(&self.failure).all(reads)
    }

    /// Whether a branch of it puts a key, and so takes space.
    #[must_use]
    pub fn takes_space(&self) -> bool {
        let puts = |op: &Op| match op {
            Op::Put(_) => true,
            Op::Range(_) | Op::DeleteRange(_) => false,
            Op::Txn(txn) => txn.takes_space(),
        };
        self.success.iter().chain(&self.failure).any(puts)
    }
}

fn takes_space(write: &GraphWrite) -> bool {
    matches!(write, GraphWrite::PutBlock(_) | GraphWrite::PutEdge(_))
}
