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
    /// The command was committed, and applying it refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no leader: a majority is down or unreachable, or an election is under way.
    #[error(
        "no member leads the cluster now: try again; if it stays so, a majority is unreachable"
    )]
    NoLeader,
    /// The leader changed while the command was under way. The outcome is unknown.
    #[error("the leader changed before the outcome was known: read before you try again")]
    LeaderChanged,
    /// This member is not the leader, and the call is for the leader itself.
    #[error("this member does not lead")]
    NotLeader,
    /// No reply in time. The outcome of a command is unknown.
    #[error("no answer in time: the outcome is unknown; read before you try again")]
    Timeout,
    /// The node is closing, or has failed.
    #[error("the node has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// The tables of this member are being replaced, and it cannot do this until they are. Nothing was done.
    #[error("the data of this member is being replaced by that of another one: ask another member")]
    Repairing,
    /// There is no other voter whose data could replace a member's.
    #[error("no other voter has the data: restore a snapshot, or copy the directory of a backup")]
    NoOtherVoter,
    /// Too many commands are queued.
    #[error("too many requests wait: try again later")]
    TooManyRequests,
    /// A command is too large for a log entry.
    #[error("a command of {size} bytes is over the limit of {limit} bytes: split it")]
    RequestTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The keys of a lease do not fit into one reply.
    #[error(
        "the keys of the lease do not fit into one reply: ask for its time without the keys, and \
         attach fewer keys to one lease"
    )]
    TooManyLeaseKeys,
    /// Nested transactions are too deep.
    #[error("transactions within transactions are over the limit of {limit} levels")]
    RequestTooDeep {
        /// The limit.
        limit: usize,
    },
    /// The command needs a newer version than some member can apply.
    #[error(
        "the command needs version {version} of commands, and member {member:x} reads up to version \
         {known}: run the newer program on every member first"
    )]
    CommandTooNew {
        /// The version that the command needs.
        version: u8,
        /// A member that does not support it.
        member: NodeId,
        /// The newest version that this member supports.
        known: u8,
    },
    /// The leader refused the proposal. Nothing was done.
    #[error("the leader refused the command: {reason}")]
    ProposalRefused {
        /// Why.
        reason: String,
    },
    /// The change would leave too few started voters.
    #[error("the change would leave too few started members: add another one first")]
    NotEnoughStarted,
    /// The change would leave a majority that is not reachable.
    #[error(
        "the change would leave a cluster whose majority does not answer: start those members, or \
         remove first the ones that are down"
    )]
    Unhealthy,
    /// This member is a learner, and the call is for voters.
    #[error("this member is a learner, which does not serve this call")]
    Learner,
    /// The member to be promoted is already a voter.
    #[error("member {id:x} is not a learner")]
    NotLearner {
        /// Its id.
        id: NodeId,
    },
    /// The member's id is bound to another directory.
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
    /// A member's name or URLs do not fit into the membership.
    #[error(
        "the name and the URLs are too much for the membership: a member has at most 64 URLs of 4 KiB, and \
         all members have 12 KiB"
    )]
    MemberTooLarge,
    /// The learner lags too far behind for promotion.
    #[error("the learner has not caught up with the leader yet: try again later")]
    LearnerNotReady,
    /// The limit of learners is reached.
    #[error("the cluster has too many learners: promote or remove one first")]
    TooManyLearners,
    /// Leadership cannot be transferred to this member.
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
    /// A setting is invalid.
    #[error("{setting}: {reason}")]
    Config {
        /// The setting.
        setting: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The data directory does not match the settings.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Files of this member are damaged or missing. They may have held acknowledged entries, so the member
    /// does not vote.
    #[error(
        "{source}; this member may lack what it acknowledged, so it does not start: remove it from its \
         cluster and add it again with an empty directory in place of {} (with no other member left, \
         restore a snapshot)",
        path.display()
    )]
    Damaged {
        /// The data directory.
        path: PathBuf,
        /// The file, the place and the damage.
        source: Box<bowline::Error>,
    },
    /// The system refused a listening address.
    #[error("cannot listen at {address}: {reason}; is it in use?")]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        reason: String,
    },
    /// Another member is unreachable, or refuses.
    #[error("member at {url}: {reason}")]
    Peer {
        /// Its URL.
        url: String,
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// Whether the call certainly did nothing, and may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::NoLeader
            | Error::Repairing
            | Error::TooManyRequests
            | Error::LearnerNotReady
            | Error::Unhealthy
            | Error::MembershipChanging => true,
            Error::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Whether files of this member's database are damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Error::Storage(bowline::Error::Storage(error)) if error.is_corruption())
    }

    /// The error for a database that could not be opened.
    pub(crate) fn of_opening(dir: &Path, error: bowline::Error) -> Error {
        match &error {
            bowline::Error::Storage(cause) if cause.is_corruption() => Error::Damaged {
                path: dir.to_owned(),
                source: Box::new(error),
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
    /// A record of the log cannot be decoded.
    #[error("the log entry {index} cannot be read")]
    Record {
        /// Its Raft index.
        index: u64,
        /// Why.
        source: RecordError,
    },
    /// The log contradicts its owner's state.
    #[error("the Raft log contradicts the database: {0}; restore the member from its cluster")]
    Contradiction(String),
    /// A call would leave a hole in the log, or reads one.
    #[error("the Raft log has no entry {index}: it {held}")]
    Hole {
        /// The Raft index in question.
        index: u64,
        /// The log's contents there.
        held: String,
    },
    /// An earlier write failed, or the store is closed.
    #[error("the Raft log takes no more writes: {0}")]
    Stopped(Arc<str>),
}

impl LogStoreError {
    /// Whether the log lacked disk space or a file descriptor. Nothing was done then, and a retry may
    /// succeed.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, LogStoreError::Storage(error) if error.is_shortage())
    }
}

impl From<LogStoreError> for io::Error {
    fn from(error: LogStoreError) -> io::Error {
        io::Error::other(error)
    }
}
