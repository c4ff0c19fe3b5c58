//! Commands, on which the members of a cluster agree, and their outcomes.
//!
//! A command contains everything that determines its outcome. The proposer chooses ids and times, so that
//! every member reaches the same state and the same reply.

use std::time::Duration;

use bowline_storage::{Index, Value};

use bowline_core::kv::Entry;
use bowline_core::lease::LeaseLeft;
use bowline_core::options::Isolation;
use bowline_types::{
    BlockId, Expected, GraphWrite, Revision, Touched, Update, UpdateError, show_key,
};

use super::index::{IndexChange, IndexProgress, IndexRefusal};
use super::quota::{QuotaChange, QuotaRefusal};
use super::users::{Actor, TokenChange, UsersChange, UsersRefusal};

/// One command.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Reads and writes of keys at one revision, as in etcd. Refused when it looks at more than
    /// [`TXN_KEYS_MAX`](super::TXN_KEYS_MAX) keys or [`TXN_BYTES_MAX`](super::TXN_BYTES_MAX) bytes.
    Txn(Txn),
    /// [`Command::Txn`] from before there was a bound. Not proposed any more; logs may contain it.
    UnboundedTxn(Txn),
    /// Grants a lease.
    LeaseGrant {
        /// Its id, not 0; chosen by the proposer.
        id: i64,
        /// Its time to live.
        ttl: Duration,
    },
    /// Ends a lease, and deletes its keys at one revision. Refused when a command cannot delete so many: then
    /// [`Command::LeaseDeleteKeys`] comes first.
    LeaseRevoke {
        /// Its id.
        id: i64,
    },
    /// Ends an expired lease. Does nothing when the lease was renewed or granted in another term than that of
    /// the leader that found it expired.
    LeaseExpire {
        /// Its id.
        id: i64,
        /// The term of the leader that found it expired.
        term: u64,
        /// The entry that granted it, 0 for a lease of the embedded time; does nothing to another lease with
        /// this id. `None` is any, as in earlier versions.
        granted: Option<Index>,
    },
    /// Deletes keys of a lease, in the order of the keys, as many as one command may delete. The lease stays. For a
    /// lease that has too many for its end.
    LeaseDeleteKeys {
        /// Its id.
        id: i64,
        /// The term and the grant as of [`Command::LeaseExpire`], for an expired lease; `None` for one that a client
        /// revokes.
        expired: Option<(u64, Index)>,
    },
    /// [`Command::LeaseRemaining`] from before it had terms. Not proposed any more.
    LeaseCheckpoint {
        /// Leases and their remaining times.
        remaining: Vec<(i64, Duration)>,
    },
    /// Records the remaining times of leases on every member, for the next leader. Does nothing in another
    /// term than that of its leader.
    LeaseRemaining {
        /// The term of the leader.
        term: u64,
        /// The leases.
        leases: Vec<LeaseLeft>,
    },
    /// Trims the history below a revision.
    Compact {
        /// The oldest revision that stays readable.
        revision: Revision,
    },
    /// Writes of blocks and edges at one revision, in order.
    Graph(Vec<GraphWrite>),
    /// The commit of a transaction: if what it has read is unchanged, its writes are executed at one
    /// revision.
    Commit(Commit),
    /// Raises or clears an alarm of a member.
    Alarm {
        /// The member.
        member: u64,
        /// The kind of alarm.
        kind: AlarmKind,
        /// Whether it is raised.
        is_raised: bool,
    },
    /// A change of users or roles.
    Users(UsersChange),
    /// A change of tokens.
    Tokens(TokenChange),
    /// A change of quotas.
    Quota(QuotaChange),
    /// A change of indexes.
    Index(IndexChange),
    /// A command, and who asks for it. While authentication is enabled, no command of a client goes without.
    By {
        /// Who asks for it.
        actor: Actor,
        /// When the proposer has received it, by its wall clock in milliseconds: then the revision that it makes has an
        /// author. `None` where a member does not know of authors.
        at_ms: Option<u64>,
        /// The command, which is none of this kind.
        command: Box<Command>,
    },
}

impl Command {
    /// The command version from which on a command may say when it was received.
    pub const AUTHOR_VERSION: u8 = 6;

    /// The command itself, without who asks for it.
    #[must_use]
    pub fn inner(&self) -> &Command {
        match self {
            Command::By { command, .. } => command.inner(),
            command => command,
        }
    }

    /// Whether a client requests it, rather than a member: then it is refused while the data of members is
    /// known to differ. Alarms can be cleared even then.
    pub(crate) fn is_asked_for(&self) -> bool {
        match self {
            Command::Txn(_)
            | Command::UnboundedTxn(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseRevoke { .. }
            | Command::Compact { .. }
            | Command::Graph(_)
            | Command::Commit(_)
            | Command::Users(_)
            | Command::Quota(_) => true,
            Command::LeaseDeleteKeys { expired, .. } => expired.is_none(),
            Command::Index(change) => !matches!(change, IndexChange::Step { .. }),
            Command::By { command, .. } => command.is_asked_for(),
            Command::LeaseExpire { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::LeaseRemaining { .. }
            | Command::Tokens(_)
            | Command::Alarm { .. } => false,
        }
    }

    /// The command version that a member must support to apply it.
    #[must_use]
    pub fn version(&self) -> u8 {
        match self {
            Command::Txn(_)
            | Command::UnboundedTxn(_)
            | Command::LeaseGrant { .. }
            | Command::LeaseRevoke { .. }
            | Command::Compact { .. }
            | Command::LeaseExpire { .. }
            | Command::LeaseCheckpoint { .. }
            | Command::LeaseRemaining { .. }
            | Command::Alarm { .. } => 1,
            Command::LeaseDeleteKeys { .. } => 2,
            Command::Users(_) | Command::Tokens(_) => 5,
            Command::Quota(_) => 6,
            Command::Index(_) => 8,
            Command::By { at_ms, command, .. } => {
                let own = if at_ms.is_some() {
                    Command::AUTHOR_VERSION
                } else {
                    5
                };
                command.version().max(own)
            }
            Command::Graph(writes) => writes.iter().map(version_of_write).max().unwrap_or(1),
            Command::Commit(commit) => {
                let of_write = |write: &CommitWrite| match write {
                    CommitWrite::Graph(write) => version_of_write(write),
                    CommitWrite::Update { .. } => 9,
                    _ => 1,
                };
                let of_read = |read: &CommitRead| match read {
                    CommitRead::Blocks { .. } => 7,
                    CommitRead::Entries { .. } => 8,
                    _ => 1,
                };
                let reads = commit.reads.iter().map(of_read);
                let writes = commit.writes.iter().map(of_write);
                reads.chain(writes).max().unwrap_or(1)
            }
        }
    }

    /// Whether it may take space: then it is refused while the space is used up.
    #[must_use]
    pub fn takes_space(&self) -> bool {
        match self {
            Command::Txn(txn) | Command::UnboundedTxn(txn) => txn.takes_space(),
            Command::LeaseGrant { .. } | Command::Index(IndexChange::Create { .. }) => true,
            Command::Graph(writes) => writes.iter().any(takes_space),
            Command::Commit(commit) => commit.takes_space(),
            Command::By { command, .. } => command.takes_space(),
            _ => false,
        }
    }
}

/// The command version that a write of the graph needs.
fn version_of_write(write: &GraphWrite) -> u8 {
    let attributes = match write {
        GraphWrite::PutBlock(block) if block.kinds.only().is_none() => return 4,
        GraphWrite::PutBlock(block) => &block.attributes,
        GraphWrite::PutEdge(edge) => &edge.attributes,
        GraphWrite::DeleteBlock(_) | GraphWrite::DeleteEdge(_) => return 1,
    };
    match bowline_core::graph::are_texts(attributes) {
        true => 1,
        false => 3,
    }
}

/// Conditions, and two branches of operations. All writes have one revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// Executed when all conditions hold.
    pub success: Vec<Op>,
    /// Executed otherwise.
    pub failure: Vec<Op>,
}

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A read.
    Range(RangeOp),
    /// A put.
    Put(PutOp),
    /// A deletion.
    DeleteRange(DeleteRangeOp),
    /// A nested transaction, at the same revision.
    Txn(Txn),
}

/// A condition on a key, or on every key of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// As in etcd: empty for the key alone, `[0]` for every key from `key` on, otherwise the first key beyond
    /// the range.
    pub range_end: Vec<u8>,
    /// The required relation.
    pub relation: Relation,
    /// The compared attribute and the given value.
    pub target: Target,
}

/// The relation of a key's attribute to the given value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Relation {
    /// Equal.
    Equal = 0,
    /// Greater.
    Greater = 1,
    /// Less.
    Less = 2,
    /// Not equal.
    NotEqual = 3,
}

/// The compared attribute, with the given value. An absent key has 0 for each number, and no value: then no
/// condition on its value holds.
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
    Lease(i64),
}

/// The sort key of a range.
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

/// The sort order.
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

/// A read of a key or a range. A bound of 0 is no bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RangeOp {
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// See [`Compare::range_end`].
    pub range_end: Vec<u8>,
    /// The most entries; 0 is all.
    pub limit: u64,
    /// The revision to read at; 0 is the newest. A number above the signed maximum is a negative one of the
    /// client: in a transaction it is below every revision.
    pub revision: Revision,
    /// The sort key.
    pub sort_target: SortTarget,
    /// The sort order.
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
    /// The lease of the key; 0 is none.
    pub lease: i64,
    /// Whether the reply has the previous entry.
    pub prev_kv: bool,
    /// Keeps the present value; refused when the key is absent.
    pub ignore_value: bool,
    /// Keeps the present lease; refused when the key is absent.
    pub ignore_lease: bool,
}

/// A deletion of a key or a range.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteRangeOp {
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// See [`Compare::range_end`].
    pub range_end: Vec<u8>,
    /// Whether the reply has the deleted entries.
    pub prev_kv: bool,
}

/// The read set and the writes of a transaction, as in [`bowline::Transaction`]: optimistic, validated when
/// it is applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commit {
    /// The revision of all reads; 0 without reads, and then nothing is validated against it. Below the last
    /// compaction the commit is refused.
    pub read_revision: Revision,
    /// What must be unchanged since: the reads, or the writes.
    pub isolation: Isolation,
    /// The read set.
    pub reads: Vec<CommitRead>,
    /// Conditions under either isolation.
    pub expectations: Vec<Expectation>,
    /// The writes, in order. Of several writes of one key the last counts.
    pub writes: Vec<CommitWrite>,
}

impl Commit {
    /// Whether it updates a key.
    #[must_use]
    pub fn has_updates(&self) -> bool {
        let is_update = |write: &CommitWrite| matches!(write, CommitWrite::Update { .. });
        self.writes.iter().any(is_update)
    }

    fn takes_space(&self) -> bool {
        self.writes.iter().any(|write| match write {
            CommitWrite::Put { .. } => true,
            CommitWrite::Graph(write) => takes_space(write),
            CommitWrite::Update { update, .. } => !update.only_deletes(),
            CommitWrite::Delete { .. } | CommitWrite::DeleteRange { .. } => false,
        })
    }
}

/// A read of a transaction, of a present or an absent item.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitRead {
    /// A key.
    Key(Vec<u8>),
    /// Every key of a range, including absent ones.
    Range {
        /// The first key.
        key: Vec<u8>,
        /// See [`Compare::range_end`].
        range_end: Vec<u8>,
    },
    /// A block.
    Block(BlockId),
    /// The blocks from one id to another, both included, absent ones, too.
    Blocks {
        /// The first.
        first: BlockId,
        /// The last.
        last: BlockId,
    },
    /// The entries of an index from one key to another, absent ones, too.
    Entries {
        /// The number of the index.
        index: u32,
        /// The first key.
        first: Vec<u8>,
        /// The first key behind them.
        end: Vec<u8>,
    },
    /// An edge.
    Edge {
        /// The source block.
        source: BlockId,
        /// Its kind.
        kind: String,
        /// The target block.
        target: BlockId,
    },
    /// The outgoing edges of a block, including absent ones.
    EdgesOut(BlockId),
    /// The incoming edges of a block, including absent ones.
    EdgesIn(BlockId),
}

/// A condition on a key's revision, for fencing.
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
        /// The lease of the key; 0 is none.
        lease: i64,
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
    /// A write of a block or an edge.
    Graph(GraphWrite),
    /// Changes a key by a rule, on the value that it has then: with the earlier writes of the commit, and without regard to
    /// the read revision, so that it conflicts with nobody.
    Update {
        /// The key.
        key: Vec<u8>,
        /// The rule.
        update: Update,
    },
}

/// What an update of a commit has made of its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdatedKey {
    /// Whether it has changed it.
    pub is_changed: bool,
    /// The value behind it; `None` when the key is absent.
    pub value: Option<Value>,
}

/// The kinds of alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AlarmKind {
    /// The member's space is used up: commands that take space are refused.
    NoSpace = 1,
    /// The member's data differs from the others'.
    Corrupt = 2,
}

/// The result of a command: the same on every member.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The newest revision after the command.
    pub revision: Revision,
    /// Its outcome, or the reason of its refusal.
    pub result: Result<Outcome, Refusal>,
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Of [`Command::Txn`].
    Txn(TxnReply),
    /// The outcome of commands without details.
    Done,
    /// Of [`Command::LeaseRevoke`] and [`Command::LeaseExpire`].
    LeaseEnded {
        /// The number of deleted keys.
        deleted: u64,
    },
    /// Of [`Command::LeaseDeleteKeys`].
    LeaseKeysDeleted {
        /// The number of deleted keys.
        deleted: u64,
    },
    /// Of [`Command::Graph`]: for each write, whether it created something or, for a deletion, found
    /// something.
    Graph(Vec<bool>),
    /// Of [`Command::Commit`].
    Committed {
        /// The number of present keys that it deleted.
        deleted: u64,
        /// Whether it changed anything, and so has a revision.
        is_changed: bool,
        /// What came of its updates, in their order. Empty on a member without a waiter.
        updated: Vec<UpdatedKey>,
    },
    /// Of [`Command::Index`].
    Index(IndexProgress),
}

/// The result of a transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TxnReply {
    /// Whether all conditions held.
    pub succeeded: bool,
    /// One per operation of the executed branch. Empty on a member without a waiter.
    pub replies: Vec<OpReply>,
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per operation: a box would be an allocation for each put"
)]
pub enum OpReply {
    /// Of a read.
    Range(RangeReply),
    /// Of a put: the previous entry, if requested.
    Put(Option<Entry>),
    /// Of a deletion.
    DeleteRange {
        /// The number of deleted keys.
        deleted: u64,
        /// The deleted entries, if requested.
        previous: Vec<Entry>,
    },
    /// Of a nested transaction.
    Txn(TxnReply),
}

/// The result of a read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RangeReply {
    /// The entries in the requested order; without values when only keys were requested.
    pub entries: Vec<Entry>,
    /// The number of entries in the range, whatever the limit.
    pub count: u64,
    /// Whether the limit left some out.
    pub more: bool,
}

/// Why a command was refused: the same on every member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The revision is trimmed.
    #[error("revision {revision} has been compacted: the oldest one is {oldest}")]
    Compacted {
        /// The requested revision.
        revision: Revision,
        /// The oldest readable one.
        oldest: Revision,
    },
    /// The revision does not exist yet.
    #[error("revision {revision} is in the future: the newest one is {newest}")]
    FutureRevision {
        /// The requested revision.
        revision: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// There is no such lease.
    #[error("lease {id:x} was not found")]
    LeaseNotFound {
        /// Its id.
        id: i64,
    },
    /// The lease exists already.
    #[error("lease {id:x} exists already")]
    LeaseExists {
        /// Its id.
        id: i64,
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
    /// A member's data differs from the others'.
    #[error("the data of members differ: find out which is right, then clear the alarm")]
    Corrupt,
    /// An edge needs a block that does not exist.
    #[error("block {id} does not exist: put it before its edges")]
    MissingBlock {
        /// Its id.
        id: BlockId,
    },
    /// The name of a kind is empty or too long.
    #[error("{name:?} is no name of a kind: it has 1 to 256 bytes")]
    InvalidKind {
        /// The name, shortened.
        name: String,
    },
    /// An update found a value that does not suit it.
    #[error(
        "the key {key} cannot be updated so: {source}; put a value that suits, or use another update"
    )]
    NotUpdatable {
        /// The key, escaped.
        key: Box<str>,
        /// What does not suit.
        source: UpdateError,
    },
    /// Something in the transaction's read set or, under snapshot isolation, in its writes was changed since.
    #[error(
        "conflict: {what} was changed at revision {revision}, after this transaction's snapshot {snapshot}: run the transaction again"
    )]
    Conflict {
        /// The first such item, in the order of the command.
        what: Touched,
        /// The revision of its last change.
        revision: Revision,
        /// The revision of the transaction's reads.
        snapshot: Revision,
    },
    /// A key is not at the expected revision.
    #[error(
        "key {} is {}, and should be {}: read it again, then retry",
        show_key(.key), Expected::of_mod_revision(*actual), Expected::of_mod_revision(*expected)
    )]
    CompareFailed {
        /// The key.
        key: Vec<u8>,
        /// The expected revision of its last write; 0 = absent.
        expected: Revision,
        /// The present revision; 0 = absent.
        actual: Revision,
    },
    /// A transaction exceeds the bound of work.
    #[error(
        "the transaction looks at more than {keys} keys or {bytes} bytes: read large ranges outside of transactions, a page at a time, and write in several"
    )]
    TooMuchWork {
        /// The most keys.
        keys: u64,
        /// The most bytes.
        bytes: u64,
    },
    /// A command would write more than one may.
    #[error(
        "the writes take {size} bytes or more, and one command may take {limit}: write less at once; delete a large \
         range in several parts"
    )]
    TooManyWrites {
        /// The size at which it was refused, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A change of users is refused, or an actor does not have the rights.
    #[error(transparent)]
    Users(#[from] UsersRefusal),
    /// A quota is used up, or a change of quotas is refused.
    #[error(transparent)]
    Quota(#[from] QuotaRefusal),
    /// An index does not allow it, or a change of indexes is refused.
    #[error(transparent)]
    Index(#[from] IndexRefusal),
    /// Something exceeds a limit.
    #[error("{what} of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Its name.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl Txn {
    /// A transaction of one operation without conditions.
    #[must_use]
    pub fn of(op: Op) -> Txn {
        Txn {
            success: vec![op],
            ..Txn::default()
        }
    }

    /// Whether neither branch writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let reads = |op: &Op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::DeleteRange(_) => false,
            Op::Txn(txn) => txn.is_read_only(),
        };
        self.success.iter().chain(&self.failure).all(reads)
    }

    /// Whether a branch puts a key, and so takes space.
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
