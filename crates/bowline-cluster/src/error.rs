//! What a node refuses.

use bowline::replica::Refusal;

/// An error of a node.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command was refused by every member alike.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no leader.
    #[error("there is no leader")]
    NoLeader,
    /// The leader changed meanwhile.
    #[error("the leader changed")]
    LeaderChanged,
    /// This member does not lead.
    #[error("this member is not the leader")]
    NotLeader,
    /// It took too long; whether it was done is unknown.
    #[error("the request timed out: whether it was done is unknown")]
    Timeout,
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
    /// Too much is under way.
    #[error("too many requests are under way")]
    TooManyRequests,
    /// The request is too large.
    #[error("the request has {size} bytes, the limit is {limit}")]
    RequestTooLarge {
        /// Its bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A learner does not serve this.
    #[error("a learner does not serve this")]
    Learner,
    /// The member is no learner.
    #[error("the member is no learner")]
    NotLearner,
    /// There is no such member.
    #[error("member {id:x} was not found")]
    MemberNotFound {
        /// Its id.
        id: u64,
    },
    /// Another member has this peer URL.
    #[error("another member has this peer URL")]
    PeerUrlExists,
    /// The learner has not caught up.
    #[error("the learner has not caught up with the leader")]
    LearnerNotReady,
    /// There are as many learners as there may be.
    #[error("there are too many learners")]
    TooManyLearners,
    /// Leadership cannot be given to this member.
    #[error("leadership cannot be given to this member")]
    BadTransferee,
    /// The database failed.
    #[error(transparent)]
    Storage(#[from] bowline::Error),
    /// A setting is wrong.
    #[error("{setting}: {reason}")]
    Config {
        /// Which.
        setting: &'static str,
        /// Why.
        reason: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Bind {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
}
