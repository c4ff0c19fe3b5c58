//! A checker of transaction isolation: from what transactions read and wrote, it infers which of
//! them depend on which, and looks for cycles.
//!
//! In the manner of Elle (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations", VLDB 2020). Every write of a history has a value of its own, so a
//! read says whose write it saw. From that, and from the order of the versions of each key, come
//! the dependencies of Adya ("Weak Consistency", MIT 1999):
//!
//! | edge | meaning |
//! |---|---|
//! | `ww` | the second overwrote a version of the first |
//! | `wr` | the second read a version of the first |
//! | `rw` | the second overwrote a version that the first read: *anti-dependency* |
//! | `process` | the first came before the second on the same thread |
//! | `realtime` | the first had completed before the second began |
//!
//! A history is strictly serializable only if these have no cycle. Under (strong) snapshot
//! isolation every cycle has two `rw` edges in a row, neither of which can be explained away:
//! Fekete et al., "Making Snapshot Isolation Serializable" (TODS 2005), and in the form used here,
//! `(process ∪ realtime ∪ ww ∪ wr) ; rw?` has no cycle, Cerone and Gotsman, "Analysing Snapshot
//! Isolation" (JACM 2018). Write skew is such a cycle; a lost update is not.
//!
//! The order of versions is taken from, in rising order of [`Trust`]:
//!
//! - lists: a list that was read shows the order of its elements;
//! - a transaction that read a version and wrote one: the first is older;
//! - real time, for keys that are not lists: a write that was complete before another began;
//! - the revisions that readers were given with the values ([`Trust::Read`]);
//! - the revisions that committers were given ([`Trust::Commits`]).
//!
//! The last is a claim of the database under test. So a history is judged twice: once without any
//! revision, and once with them, when they must also agree with all the rest (`revisions`).
//!
//! ```text
//! text ── History ── observe ── order ── graph ── cycles ── Report
//!                       │          │                │          ▲
//!                       └──────────┴─── revisions ──┴──────────'
//! ```
//!
//! What it does not see: a key without a reader; an absent key that was deleted, when revisions
//! are not trusted (`Counts::unresolved`). A range read counts as a read of every key that
//! the history knows within its bounds, found or absent, which is what finds phantoms.
//!
//! ```
//! use bowline_testing::isolation::{check, History, Level, Trust};
//!
//! let history = History::parse(
//!     "t 0 1 4 committed - - r x 0; w x 7\n\
//!      t 1 2 5 committed - - r x 0; w x 8\n",
//! )?;
//! let report = check(&history, Level::Snapshot, Trust::Nothing);
//! assert_eq!(report.names(), ["lost-update", "G2-item"]);
//! # Ok::<(), String>(())
//! ```

mod cycles;
mod graph;
mod observe;
mod order;
mod report;
mod revisions;
#[cfg(test)]
mod tests;
mod text;

pub use report::{Anomaly, Counts, Kind, Report};

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

/// Judges a history. What `level` allows is in the report, but not among its
/// [violations](Report::violations).
///
/// # Panics
/// When the history is not one: two writes of one number, or a number of 0.
#[must_use]
pub fn check(history: &History, level: Level, trust: Trust) -> Report {
    let mut report = Report::new(level);
    let observed = observe::Observed::of(history, level, trust, &mut report);
    let orders = order::orders(&observed, trust, &mut report);
    if trust == Trust::Commits {
        revisions::check(&observed, level, &mut report);
    }
    let graph = graph::Graph::of(&observed, &orders, &mut report.counts);
    cycles::find(&graph, &observed, &mut report);
    report
}
