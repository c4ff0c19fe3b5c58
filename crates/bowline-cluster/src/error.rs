//! The errors of a node and of its log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_replica::Refusal;

use crate::record::RecordError;
use crate::types::NodeId;

/// Shorthand for results of a node.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a node.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The members agreed on the command, and that it cannot be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No member leads: a majority is down or cannot be reached, or an election is going on.
    #[error(
        "no member leads the cluster now: try again; if it stays so, a majority is unreachable"
    )]
    NoLeader,
    /// The leader changed while the command was under way. Whether it was carried out is unknown.
    #[error("the leader changed before the outcome was known: read before you try again")]
    LeaderChanged,
    /// This member does not lead, and the call is for the leader itself.
    #[error("this member does not lead")]
    NotLeader,
    /// No answer in time. Whether the command was carried out is unknown.
    #[error("no answer in time: the outcome is unknown; read before you try again")]
    Timeout,
    /// The node is closing, or has failed.
    #[error("the node has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// More commands wait than are let in.
    #[error("too many requests wait: try again later")]
    TooManyRequests,
    /// A command is larger than a log entry may be.
    #[error("a command of {size} bytes is over the limit of {limit} bytes: split it")]
    RequestTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Transactions within transactions are deeper than they may be.
    #[error("transactions within transactions are over the limit of {limit} levels")]
    RequestTooDeep {
        /// The limit.
        limit: usize,
    },
    /// The command is newer than what some member can apply.
    #[error(
        "the command needs version {version} of commands, and member {member:x} reads up to version \
         {known}: run the newer program on every member first"
    )]
    CommandTooNew {
        /// The version that it needs.
        version: u8,
        /// A member that does not read it.
        member: NodeId,
        /// The version which that member reads.
        known: u8,
    },
    /// The leader did not take the command. Nothing was done.
    #[error("the leader refused the command: {reason}")]
    ProposalRefused {
        /// Why.
        reason: String,
    },
    /// A change would leave fewer voters than a cluster needs.
    #[error("the change would leave too few started members: add another one first")]
    NotEnoughStarted,
    /// A change would leave a majority that does not answer.
    #[error(
        "the change would leave a cluster whose majority does not answer: start those members, or \
         remove first the ones that are down"
    )]
    Unhealthy,
    /// This member is a learner, and the call is for members that vote.
    #[error("this member is a learner, which does not serve this call")]
    Learner,
    /// The member to be promoted votes already.
    #[error("member {id:x} is no learner")]
    NotLearner {
        /// Its id.
        id: NodeId,
    },
    /// The place of a member is another directory's.
    #[error(
        "the place of member {id:x} belongs to another directory: remove that member and add it \
         again, and start it with an empty directory"
    )]
    PlaceTaken {
        /// Its id.
        id: NodeId,
    },
    /// No member has this id.
    #[error("member {id:x} was not found")]
    MemberNotFound {
        /// The id given.
        id: NodeId,
    },
    /// Another member has this URL.
    #[error("another member has this peer URL")]
    PeerUrlExists,
    /// The learner lags too far behind to be promoted.
    #[error("the learner has not caught up with the leader yet: try again later")]
    LearnerNotReady,
    /// There are as many learners as are let in.
    #[error("the cluster has too many learners: promote or remove one first")]
    TooManyLearners,
    /// Leadership cannot be given to this member.
    #[error("member {id:x} cannot take over: it is down, lags behind, or is no voter")]
    BadTransferee {
        /// The id given.
        id: NodeId,
    },
    /// Another change of the membership is under way.
    #[error("another change of the membership is under way: try again later")]
    MembershipChanging,
    /// The database failed.
    #[error(transparent)]
    Storage(#[from] bowline::Error),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogStoreError),
    /// A setting cannot be right.
    #[error("{setting}: {reason}")]
    Config {
        /// Which.
        setting: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The data directory is not what the settings say.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Files of this member are damaged or gone. It may have acknowledged what was in them, so it does
    /// not vote.
    #[error(
        "{source}; this member may lack what it acknowledged, so it does not start: remove it from its \
         cluster and add it again with an empty directory in place of {} (with no other member left, \
         restore a snapshot)",
        path.display()
    )]
    Damaged {
        /// The data directory.
        path: PathBuf,
        /// Which file, where, and what is wrong with it.
        source: bowline::Error,
    },
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {reason}; is it in use?")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// Another member cannot be reached, or refuses.
    #[error("member at {url}: {reason}")]
    Peer {
        /// Its URL.
        url: String,
        /// What went wrong.
        reason: String,
    },
}

impl Error {
    /// Whether the same call may succeed later, and certainly did nothing now.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::NoLeader
            | Error::TooManyRequests
            | Error::LearnerNotReady
            | Error::Unhealthy
            | Error::MembershipChanging => true,
            Error::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// The error of a member whose database could not be opened.
    pub(crate) fn of_opening(dir: &Path, error: bowline::Error) -> Error {
        match &error {
            bowline::Error::Storage(cause) if cause.is_corruption() => Error::Damaged {
                path: dir.to_owned(),
                source: error,
            },
            _ => error.into(),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "it goes into `map_err` as it is"
    )]
    pub(crate) fn stopped(reason: impl ToString) -> Error {
        Error::Stopped {
            reason: reason.to_string(),
        }
    }
}

impl From<bowline_storage::Error> for Error {
    fn from(error: bowline_storage::Error) -> Error {
        Error::Storage(error.into())
    }
}

/// An error of the log store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogStoreError {
    /// The engine's log, or the member's file, failed.
    #[error(transparent)]
    Storage(#[from] bowline_storage::Error),
    /// A record of the log cannot be read.
    #[error("the log entry {index} cannot be read")]
    Record {
        /// Its Raft index.
        index: u64,
        /// Why.
        source: RecordError,
    },
    /// What the log and its owner say does not fit together.
    #[error("the Raft log contradicts the database: {0}; restore the member from its cluster")]
    Contradiction(String),
    /// A call that leaves a hole, or reads one.
    #[error("the Raft log has no entry {index}: it {held}")]
    Hole {
        /// The Raft index in question.
        index: u64,
        /// What is there instead.
        held: String,
    },
    /// An earlier write failed, or the store is closed.
    #[error("the Raft log takes no more writes: {0}")]
    Stopped(Arc<str>),
}

impl LogStoreError {
    /// Whether the log lacked room or a file to open, nothing was done, and the same can be tried again.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, LogStoreError::Storage(error) if error.is_shortage())
    }
}

impl From<LogStoreError> for io::Error {
    fn from(error: LogStoreError) -> io::Error {
        io::Error::other(error)
    }
}
