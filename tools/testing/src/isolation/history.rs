//! Histories: what transactions did and saw, and what a store promises of them.

/// What a key held. Lists grow by [`Op::Append`], values are replaced by [`Op::Write`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Version {
    /// Never written, or deleted.
    Absent,
    /// The number of the write.
    Value(u64),
    /// The numbers of the appends, oldest first.
    List(Vec<u64>),
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The version.
    pub version: Version,
    /// The revision that it was shown with, when it was.
    pub revision: Option<u64>,
}

/// One operation. Numbers of writes are unique in a history, and above 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A read of one key.
    Read {
        /// The key.
        key: String,
        /// What was found.
        seen: Seen,
    },
    /// A read of all keys of a range.
    Scan {
        /// The first key of the range.
        lower: String,
        /// The first key behind the range.
        upper: String,
        /// The keys that were present, in order.
        found: Vec<(String, Seen)>,
    },
    /// A condition that was checked at commit: the key held this. Not a read of the snapshot.
    Expect {
        /// The key.
        key: String,
        /// What it had to hold.
        seen: Seen,
    },
    /// Replaces what the key holds.
    Write {
        /// The key.
        key: String,
        /// The number of the write.
        value: u64,
    },
    /// Adds an element to the list that the key holds.
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

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It committed; the revision, if it was given one.
    Committed(Option<u64>),
    /// It did not, and no one may see what it wrote.
    Aborted,
    /// Nobody was told. It committed if its writes are seen.
    Unknown,
}

/// One transaction of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The thread, or session, that ran it.
    pub process: u64,
    /// When it began: a number of a clock that all processes share.
    pub invoked: u64,
    /// When its outcome was known; never for an unknown one.
    pub completed: Option<u64>,
    /// What became of it.
    pub outcome: Outcome,
    /// The revision that its reads are said to be of.
    pub snapshot: Option<u64>,
    /// What it did, in order.
    pub ops: Vec<Op>,
}

/// Transactions, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The transactions; reports call the first T0.
    pub transactions: Vec<Transaction>,
}

/// What the store promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Strict serializability: as if one by one, in an order that real time agrees with.
    Serializable,
    /// Strong snapshot isolation: write skew is allowed.
    Snapshot,
}

/// Which of the store's claims are used to order versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trust {
    /// None.
    Nothing,
    /// The revisions that readers were given.
    Read,
    /// Also those that committers were given, and the snapshots. They are checked, too.
    Commits,
}
