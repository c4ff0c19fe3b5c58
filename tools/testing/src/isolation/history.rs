//! Histories: the operations and results of transactions, and the isolation level that a store promises.

/// A key's contents. Lists grow by [`Op::Append`], values are replaced by [`Op::Write`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    /// Never written, or deleted.
    Absent,
    /// The number of the write.
    Value(u64),
    /// The numbers of the appends, oldest first.
    List(Vec<u64>),
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The version.
    pub version: Version,
    /// The revision returned with it, if any.
    pub revision: Option<u64>,
}

/// One operation. The numbers of writes are unique in a history, and above 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A read of one key.
    Read {
        /// The key.
        key: String,
        /// The result.
        seen: Seen,
    },
    /// A read of all keys of a range.
    Scan {
        /// The first key of the range.
        lower: String,
        /// The first key beyond the range.
        upper: String,
        /// The present keys, in order.
        found: Vec<(String, Seen)>,
    },
    /// A condition checked at commit: the key held this. Not a read of the snapshot.
    Expect {
        /// The key.
        key: String,
        /// The required contents.
        seen: Seen,
    },
    /// Replaces the key's contents.
    Write {
        /// The key.
        key: String,
        /// The number of the write.
        value: u64,
    },
    /// Appends an element to the key's list.
    Append {
        /// The key.
        key: String,
        /// The number of the write.
        value: u64,
    },
    /// Removes the key.
    Delete {
        /// The key.
        key: String,
        /// The number of the write.
        value: u64,
    },
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It committed, with its revision if there is one.
    Committed(Option<u64>),
    /// It did not, and its writes must be invisible.
    Aborted,
    /// The outcome is unknown. It committed if its writes are seen.
    Unknown,
}

/// One transaction of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The thread, or session, that ran it.
    pub process: u64,
    /// The start time, by a clock that all processes share.
    pub invoked: u64,
    /// The time at which its outcome was known; `None` for an unknown one.
    pub completed: Option<u64>,
    /// Its outcome.
    pub outcome: Outcome,
    /// The claimed revision of its reads.
    pub snapshot: Option<u64>,
    /// Its operations, in order.
    pub ops: Vec<Op>,
}

/// Transactions, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The transactions; reports call the first T0.
    pub transactions: Vec<Transaction>,
}

/// The promised isolation level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Strict serializability: equivalent to a serial order that agrees with real time.
    Serializable,
    /// Strong snapshot isolation: write skew is allowed.
    Snapshot,
}

/// The store's claims that are used to order versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trust {
    /// None.
    Nothing,
    /// The revisions that readers received.
    Read,
    /// Also those that committers received, and the snapshots. They are checked, too.
    Commits,
}
