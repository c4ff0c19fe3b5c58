//! The errors of the database. Each message says what happened and what to do next.

use std::time::Duration;

use bowline_types::{Expected, LeaseId};

use crate::Revision;

pub use bowline_types::show_key;

/// A result of the database.
///
/// ```
/// use bowline::{Db, Result};
///
/// fn count(db: &Db, prefix: &str) -> Result<usize> {
///     Ok(db.range(bowline::Range::prefix(prefix))?.count())
/// }
/// # let db = Db::in_memory()?;
/// # assert_eq!(count(&db, "svc/")?, 0);
/// # Ok::<(), bowline::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the database.
///
/// ```
/// use bowline::{Db, Error, Expected};
///
/// # let db = Db::in_memory()?;
/// db.put("leader", "a")?;
/// match db.compare_and_swap("leader", Expected::Absent, "b") {
///     Ok(revision) => println!("leads since revision {revision}"),
///     Err(Error::CompareFailed { actual, .. }) => println!("another leads since {actual:?}"),
///     Err(error) if error.is_retryable() => println!("try again: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage engine failed.
    #[error(transparent)]
    Storage(#[from] bowline_storage::Error),
    /// Another transaction changed data that this one read. Nothing was written. Run the transaction
    /// again, as `Db::transact` does.
    #[error(
        "conflict: {what} was changed at revision {revision}, after this transaction's snapshot {snapshot}: run the transaction again"
    )]
    Conflict {
        /// The key or range, escaped.
        what: String,
        /// The revision of the change.
        revision: Revision,
        /// The revision this transaction read at.
        snapshot: Revision,
    },
    /// `Db::transact` gave up after many conflicts in a row.
    #[error(
        "gave up after {attempts} conflicting attempts in {elapsed:?}: the keys are contended; retry later or touch fewer keys"
    )]
    TooManyConflicts {
        /// The number of attempts.
        attempts: u32,
        /// The time since the first attempt.
        elapsed: Duration,
    },
    /// A compare-and-swap found another revision than it expected. Nothing was written.
    #[error(
        "compare-and-swap lost: key {key} is {}, and should be {expected}: read it again, then retry",
        Expected::from(*actual)
    )]
    CompareFailed {
        /// The key, escaped.
        key: String,
        /// What it should be.
        expected: Expected,
        /// Its modification revision; `None`: it is absent.
        actual: Option<Revision>,
    },
    /// An update found a value that does not suit it. Nothing was written.
    #[error(
        "the key {key} cannot be updated so: {source}; put a value that suits, or use another update"
    )]
    NotUpdatable {
        /// The key, escaped.
        key: Box<str>,
        /// What does not suit.
        source: bowline_types::UpdateError,
    },
    /// The key has no bytes.
    #[error("the key is empty: give at least one byte")]
    EmptyKey,
    /// The key is too long.
    #[error("the key has {size} bytes, the limit is {limit}: use a shorter key")]
    KeyTooLarge {
        /// Bytes given.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The value (or a block's content and attributes) is longer than `Limits::value_size_max_bytes`.
    #[error("the value has {size} bytes, the limit is {limit}: split it")]
    ValueTooLarge {
        /// Bytes given.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The transaction writes more than `Limits::transaction_size_max_bytes`.
    #[error("the transaction writes {size} bytes, the limit is {limit}: split it")]
    TransactionTooLarge {
        /// Bytes staged.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The keys of an ingestion do not ascend.
    #[error(
        "key {key} was given to an ingestion after key {after}: sort the keys, with each one once"
    )]
    NotAscending {
        /// The key that is not greater than the previous one, escaped.
        key: String,
        /// The previous key, escaped.
        after: String,
    },
    /// A range ends before it starts.
    #[error("the range ends before it starts: {start} .. {end}")]
    InvalidRange {
        /// The start, escaped.
        start: String,
        /// The end, escaped.
        end: String,
    },
    /// The revision is not written yet.
    #[error(
        "revision {requested} is in the future: the newest is {current}, the oldest readable {oldest}"
    )]
    FutureRevision {
        /// The revision asked for.
        requested: Revision,
        /// The newest committed revision.
        current: Revision,
        /// The oldest readable revision.
        oldest: Revision,
    },
    /// The revision was trimmed, by `trim_history` or by the history setting.
    #[error(
        "revision {requested} has been compacted: the oldest readable is {oldest}, the newest {current}"
    )]
    Compacted {
        /// The revision asked for.
        requested: Revision,
        /// The oldest readable revision.
        oldest: Revision,
        /// The newest committed revision.
        current: Revision,
    },
    /// An edge names a block that does not exist.
    #[error("block {id} does not exist: put it first (an edge needs both of its blocks)")]
    MissingBlock {
        /// The absent block.
        id: crate::BlockId,
    },
    /// No block or edge of this kind was ever written.
    #[error("kind {name:?} is unknown; known kinds: {}", known.join(", "))]
    UnknownKind {
        /// The name given.
        name: String,
        /// Every registered kind.
        known: Vec<String>,
    },
    /// A kind's name is empty or too long.
    #[error("kind {name:?} is not valid: use 1 to 256 bytes")]
    InvalidKind {
        /// The name given.
        name: String,
    },
    /// A block of too many kinds.
    #[error(
        "the block has {count} kinds, and at most {} are possible: make the others attributes",
        bowline_types::BlockKinds::MAX
    )]
    TooManyKinds {
        /// How many it has.
        count: usize,
    },
    /// An attribute whose lists and maps contain one another too often.
    #[error(
        "the attribute {name:?} is nested deeper than {} levels: make its lists and maps flatter",
        bowline_types::AttributeValue::DEPTH_MAX
    )]
    AttributeTooDeep {
        /// The name of the attribute.
        name: String,
    },
    /// Attributes that no index can have.
    #[error(
        "no index can be by {attributes:?}: name 1 to 8 attributes, each once, of 1 to 256 bytes"
    )]
    InvalidIndex {
        /// The names given.
        attributes: String,
    },
    /// There is no index of this kind by these attributes.
    #[error(
        "no index is of the kind {kind:?} by {attributes}: it was never created, or is dropped"
    )]
    IndexNotFound {
        /// The kind given.
        kind: String,
        /// The names given.
        attributes: String,
    },
    /// An index of this kind by these attributes exists, and the one is unique and the other is not.
    #[error(
        "an index of the kind {kind:?} by {attributes} exists, and is {}unique: drop it before you create another",
        if *is_unique { "" } else { "not " }
    )]
    IndexExists {
        /// The kind given.
        kind: String,
        /// The names given.
        attributes: String,
        /// Whether the one that exists is unique.
        is_unique: bool,
    },
    /// A block would have the same values as another one in a unique index. Nothing was written.
    #[error(
        "block {block} would have the same {attributes} as block {other}, and the index of the kind {kind:?} by that is unique: \
         change or delete one of them"
    )]
    NotUnique {
        /// The kind of the index.
        kind: Box<str>,
        /// Its attributes.
        attributes: Box<str>,
        /// The block that was written.
        block: crate::BlockId,
        /// The block that has the values.
        other: crate::BlockId,
    },
    /// A unique index was to be built over blocks with the same values. There is no such index now.
    #[error(
        "blocks of the kind {kind:?} have the same {attributes}, so no index by that is unique; the first of them: {}",
        pairs.iter().map(|(block, other)| format!("{block} and {other}")).collect::<Vec<_>>().join(", ")
    )]
    BuiltNotUnique {
        /// The kind of the index.
        kind: Box<str>,
        /// Its attributes.
        attributes: Box<str>,
        /// Pairs of blocks with the same values, at most ten.
        pairs: Vec<(crate::BlockId, crate::BlockId)>,
    },
    /// A graph with a cycle has no topological order.
    #[error("the graph has a cycle: {}", cycle.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle {
        /// The blocks of one cycle, the first repeated at the end.
        cycle: Vec<crate::BlockId>,
    },
    /// An edge has no weight that a shortest path can add up.
    #[error("edge {from} -> {to} has {}", unweighable(attribute, value.as_deref()))]
    InvalidWeight {
        /// The edge's source.
        from: crate::BlockId,
        /// The edge's target.
        to: crate::BlockId,
        /// The attribute read as weight.
        attribute: String,
        /// The value of the attribute; `None` where the edge does not have it, and no default weight
        /// was given.
        value: Option<String>,
    },
    /// The computation was ended by its `Cancel`. It has no result.
    #[error("the computation was canceled before it had a result: run it again to have one")]
    Canceled,
    /// No lease has this id.
    #[error("lease {id} does not exist: it expired, was revoked, or was never granted")]
    LeaseNotFound {
        /// The id given.
        id: LeaseId,
    },
    /// A lease with this id exists already.
    #[error("lease {id} exists already: choose another id, or have one chosen")]
    LeaseExists {
        /// The id given.
        id: LeaseId,
    },
    /// A lease's time to live is out of bounds.
    #[error("a time to live of {ttl:?} is not valid: use 1 ms to 9,000,000,000 s")]
    InvalidTtl {
        /// The TTL given.
        ttl: Duration,
    },
    /// The database was opened with a setting that forbids this call.
    #[error("{what}: {why}")]
    NotSupported {
        /// The unsupported operation.
        what: &'static str,
        /// The reason, and what to do instead.
        why: &'static str,
    },
    /// The database has been closed.
    #[error("the database is closed")]
    Closed,
    /// A record in a tree does not decode. Its page had a valid checksum, so the cause is a bug or a
    /// foreign writer, not a flipped bit.
    #[error("a {what} record does not decode ({key}): {reason}; run `bowline check`")]
    InvalidRecord {
        /// The sort of record: `entry`, `block`, `edge`, `lease`, `kind`.
        what: &'static str,
        /// The key, escaped.
        key: String,
        /// What was expected.
        reason: &'static str,
    },
}

impl Error {
    /// Whether the same call may succeed when it is run again, without a repair.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Conflict { .. } | Error::TooManyConflicts { .. } => true,
            Error::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// What an edge without a usable weight has instead, and what to do about it.
fn unweighable(attribute: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => {
            format!("{attribute} = {value:?}: a weight is a finite number not below 0")
        }
        None => format!(
            "no attribute {attribute:?} to weigh it by: name one that every edge has, choose the edges by kind, \
             or give a default weight"
        ),
    }
}
