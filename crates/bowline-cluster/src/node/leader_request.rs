//! The requests that members send to the leader, besides proposals and reads: leases, membership, leadership.
//!
//! A request of a client names its caller. A leader that does not know the field passes over it, and checks nothing; from a
//! member that does not send it, a request is taken for the member's own.

use std::sync::Arc;
use std::time::Duration;

use bowline::{Revision, Value};
use bowline_proto::peer::{self as proto, answer, question};
use bowline_replica::{Caller, Refusal, Session, UsersRefusal};

use super::damage::Hashes;
use super::info::{LeaseStatus, MemberInfo};
use crate::error::Error;
use crate::types::{LogId, NodeId, log_id};

/// A request to the leader.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LeaderRequest {
    LeaseKeepAlive(i64),
    LeaseTimeToLive {
        id: i64,
        with_keys: bool,
    },
    MemberAdd {
        peer_urls: Vec<String>,
        is_learner: bool,
    },
    MemberRemove(NodeId),
    MemberUpdate {
        id: NodeId,
        peer_urls: Vec<String>,
    },
    MemberPublish {
        id: NodeId,
        name: String,
        client_urls: Vec<String>,
        command_version: u32,
    },
    MemberPromote(NodeId),
    /// A directory of this incarnation claims a member id that was added.
    MemberClaim {
        id: NodeId,
        incarnation: u64,
    },
    MoveLeader(NodeId),
    /// To the leader, and from it to the member.
    MemberRepair(NodeId),
    /// A member's state machine waits for a snapshot that has everything before `next`.
    SendSnapshot {
        to: NodeId,
        next: u64,
    },
    /// To any member.
    HashesAt(Revision),
    /// The last entry of the leader's log.
    LogEnd,
}

/// The response of the leader.
#[derive(Debug, Clone)]
pub(crate) enum LeaderResponse {
    Done,
    /// `None` when there is no such lease.
    Lease(Option<LeaseStatus>),
    Member(MemberInfo),
    /// `None` until they are computed.
    Hashes(Option<Hashes>),
    LogEnd(LogId),
    Refused(Error),
}

impl LeaderRequest {
    /// Whether a repetition changes nothing.
    pub(crate) fn is_idempotent(&self) -> bool {
        match self {
            LeaderRequest::LeaseKeepAlive(_)
            | LeaderRequest::LeaseTimeToLive { .. }
            | LeaderRequest::MemberUpdate { .. }
            | LeaderRequest::MemberClaim { .. }
            | LeaderRequest::MemberRepair(_)
            | LeaderRequest::SendSnapshot { .. }
            | LeaderRequest::HashesAt(_)
            | LeaderRequest::LogEnd
            | LeaderRequest::MemberPublish { .. } => true,
            LeaderRequest::MemberAdd { .. }
            | LeaderRequest::MemberRemove(_)
            | LeaderRequest::MemberPromote(_)
            | LeaderRequest::MoveLeader(_) => false,
        }
    }

    /// Whether a caller needs the role `root`. What a request about a lease needs depends on the keys of the lease.
    pub(crate) fn needs_root(&self) -> bool {
        match self {
            LeaderRequest::LeaseKeepAlive(_) | LeaderRequest::LeaseTimeToLive { .. } => false,
            LeaderRequest::MemberAdd { .. }
            | LeaderRequest::MemberRemove(_)
            | LeaderRequest::MemberUpdate { .. }
            | LeaderRequest::MemberPublish { .. }
            | LeaderRequest::MemberPromote(_)
            | LeaderRequest::MemberClaim { .. }
            | LeaderRequest::MoveLeader(_)
            | LeaderRequest::MemberRepair(_)
            | LeaderRequest::SendSnapshot { .. }
            | LeaderRequest::HashesAt(_)
            | LeaderRequest::LogEnd => true,
        }
    }

    /// On behalf of a caller.
    pub(crate) fn into_proto_of(self, caller: &Caller) -> proto::Question {
        let caller = match caller {
            Caller::Process => None,
            Caller::Nobody => Some(proto::Caller::default()),
            Caller::User(session) => Some(proto::Caller {
                user: Some(session.user().to_owned()),
                since: session.since(),
            }),
        };
        proto::Question {
            caller,
            ..self.into_proto()
        }
    }

    pub(crate) fn into_proto(self) -> proto::Question {
        use question::Question as Q;
        let question = match self {
            LeaderRequest::LeaseKeepAlive(id) => Q::LeaseKeepAlive(id),
            LeaderRequest::LeaseTimeToLive { id, with_keys } => {
                Q::LeaseTimeToLive(proto::LeaseTimeToLive { id, with_keys })
            }
            LeaderRequest::MemberAdd {
                peer_urls,
                is_learner,
            } => Q::MemberAdd(proto::MemberAdd {
                peer_urls,
                is_learner,
            }),
            LeaderRequest::MemberRemove(id) => Q::MemberRemove(id),
            LeaderRequest::MemberUpdate { id, peer_urls } => {
                Q::MemberUpdate(proto::MemberUpdate { id, peer_urls })
            }
            LeaderRequest::MemberPublish {
                id,
                name,
                client_urls,
                command_version,
            } => Q::MemberPublish(proto::MemberPublish {
                id,
                name,
                client_urls,
                command_version,
            }),
            LeaderRequest::MemberPromote(id) => Q::MemberPromote(id),
            LeaderRequest::MemberClaim { id, incarnation } => {
                Q::MemberClaim(proto::MemberClaim { id, incarnation })
            }
            LeaderRequest::MoveLeader(id) => Q::MoveLeader(id),
            LeaderRequest::MemberRepair(id) => Q::MemberRepair(id),
            LeaderRequest::SendSnapshot { to, next } => {
                Q::SendSnapshot(proto::SendSnapshot { to, next })
            }
            LeaderRequest::HashesAt(revision) => Q::HashesAt(revision.get()),
            LeaderRequest::LogEnd => Q::LogEnd(true),
        };
        proto::Question {
            question: Some(question),
            caller: None,
        }
    }

    /// `None` for a request that this version does not know.
    pub(crate) fn from_proto(question: proto::Question) -> Option<LeaderRequest> {
        use question::Question as Q;
        Some(match question.question? {
            Q::LeaseKeepAlive(id) => LeaderRequest::LeaseKeepAlive(id),
            Q::LeaseTimeToLive(asked) => LeaderRequest::LeaseTimeToLive {
                id: asked.id,
                with_keys: asked.with_keys,
            },
            Q::MemberAdd(add) => LeaderRequest::MemberAdd {
                peer_urls: add.peer_urls,
                is_learner: add.is_learner,
            },
            Q::MemberRemove(id) => LeaderRequest::MemberRemove(id),
            Q::MemberUpdate(update) => LeaderRequest::MemberUpdate {
                id: update.id,
                peer_urls: update.peer_urls,
            },
            Q::MemberPublish(publish) => LeaderRequest::MemberPublish {
                id: publish.id,
                name: publish.name,
                client_urls: publish.client_urls,
                command_version: publish.command_version,
            },
            Q::MemberPromote(id) => LeaderRequest::MemberPromote(id),
            Q::MemberClaim(claim) => LeaderRequest::MemberClaim {
                id: claim.id,
                incarnation: claim.incarnation,
            },
            Q::MoveLeader(id) => LeaderRequest::MoveLeader(id),
            Q::MemberRepair(id) => LeaderRequest::MemberRepair(id),
            Q::SendSnapshot(asked) => LeaderRequest::SendSnapshot {
                to: asked.to,
                next: asked.next,
            },
            Q::HashesAt(revision) => LeaderRequest::HashesAt(Revision::new(revision)),
            Q::LogEnd(_) => LeaderRequest::LogEnd,
        })
    }
}

/// Who a question is asked for.
pub(crate) fn caller_of(question: &proto::Question) -> Caller {
    match &question.caller {
        None => Caller::Process,
        Some(proto::Caller { user: None, .. }) => Caller::Nobody,
        Some(proto::Caller {
            user: Some(user),
            since,
        }) => Caller::User(Arc::new(Session::without_token(user, *since))),
    }
}

/// An error for what a caller may not do.
fn of_users(refusal: UsersRefusal) -> Error {
    Error::Refused(Refusal::Users(refusal))
}

impl LeaderResponse {
    pub(crate) fn into_proto(self) -> proto::Answer {
        use answer::Answer as A;
        let answer = match self {
            LeaderResponse::Done => A::Done(proto::Done {}),
            LeaderResponse::Lease(None) => A::Lease(proto::LeaseState::default()),
            LeaderResponse::Lease(Some(status)) => A::Lease(proto::LeaseState {
                is_there: true,
                id: status.id,
                granted_ms: millis(status.granted),
                remaining_ms: millis(status.remaining),
                keys: status.keys.iter().map(|key| key.to_vec().into()).collect(),
            }),
            LeaderResponse::Member(member) => A::Member(proto::Member {
                id: member.id,
                name: member.name,
                peer_urls: member.peer_urls,
                client_urls: member.client_urls,
                is_learner: member.is_learner,
                ..proto::Member::default()
            }),
            LeaderResponse::Hashes(None) => A::Hashes(proto::Hashes::default()),
            LeaderResponse::Hashes(Some([keys, blocks, edges_out, edges_in])) => {
                A::Hashes(proto::Hashes {
                    is_ready: true,
                    keys,
                    blocks,
                    edges_out,
                    edges_in,
                })
            }
            LeaderResponse::LogEnd(end) => A::LogEnd(proto::LogId {
                term: end.leader_id.term,
                node: end.leader_id.node_id,
                index: end.index,
            }),
            LeaderResponse::Refused(error) => {
                let (reason, member_id) = match &error {
                    Error::NotLeader | Error::NoLeader => (Reason::NotLeader, 0),
                    Error::NotLearner { id } => (Reason::NotLearner, *id),
                    Error::MemberNotFound { id } => (Reason::MemberNotFound, *id),
                    Error::PlaceTaken { id } => (Reason::PlaceTaken, *id),
                    Error::PeerUrlExists => (Reason::PeerUrlExists, 0),
                    Error::LearnerNotReady => (Reason::LearnerNotReady, 0),
                    Error::TooManyLearners => (Reason::TooManyLearners, 0),
                    Error::BadTransferee { id } => (Reason::BadTransferee, *id),
                    Error::MembershipChanging => (Reason::MembershipChanging, 0),
                    Error::Timeout => (Reason::Timeout, 0),
                    Error::LeaderChanged => (Reason::LeaderChanged, 0),
                    Error::NotEnoughStarted => (Reason::NotEnoughStarted, 0),
                    Error::Unhealthy => (Reason::Unhealthy, 0),
                    Error::TooManyLeaseKeys => (Reason::TooManyLeaseKeys, 0),
                    Error::NoOtherVoter => (Reason::NoOtherVoter, 0),
                    Error::MemberTooLarge => (Reason::MemberTooLarge, 0),
                    Error::Refused(Refusal::Users(UsersRefusal::NoUser)) => (Reason::NoUser, 0),
                    Error::Refused(Refusal::Users(UsersRefusal::InvalidToken)) => {
                        (Reason::InvalidToken, 0)
                    }
                    Error::Refused(Refusal::Users(UsersRefusal::PermissionDenied)) => {
                        (Reason::PermissionDenied, 0)
                    }
                    _ => (Reason::Other, 0),
                };
                A::Refused(proto::Refused {
                    reason: reason as u32,
                    member_id,
                    text: error.to_string(),
                })
            }
        };
        proto::Answer {
            answer: Some(answer),
        }
    }

    pub(crate) fn from_proto(answer: proto::Answer) -> Option<LeaderResponse> {
        use answer::Answer as A;
        Some(match answer.answer? {
            A::Done(_) => LeaderResponse::Done,
            A::Lease(state) if !state.is_there => LeaderResponse::Lease(None),
            A::Lease(state) => LeaderResponse::Lease(Some(LeaseStatus {
                id: state.id,
                granted: Duration::from_millis(state.granted_ms),
                remaining: Duration::from_millis(state.remaining_ms),
                keys: state.keys.into_iter().map(Value::from).collect(),
            })),
            A::Member(member) => LeaderResponse::Member(MemberInfo {
                id: member.id,
                name: member.name,
                peer_urls: member.peer_urls,
                client_urls: member.client_urls,
                is_learner: member.is_learner,
            }),
            A::Hashes(found) => LeaderResponse::Hashes(found.is_ready.then_some([
                found.keys,
                found.blocks,
                found.edges_out,
                found.edges_in,
            ])),
            A::LogEnd(end) => LeaderResponse::LogEnd(log_id(end.term, end.node, end.index)),
            A::Refused(refused) => {
                let id = refused.member_id;
                let reasons = [
                    (Reason::NotLeader, Error::NotLeader),
                    (Reason::NotLearner, Error::NotLearner { id }),
                    (Reason::MemberNotFound, Error::MemberNotFound { id }),
                    (Reason::PlaceTaken, Error::PlaceTaken { id }),
                    (Reason::PeerUrlExists, Error::PeerUrlExists),
                    (Reason::LearnerNotReady, Error::LearnerNotReady),
                    (Reason::TooManyLearners, Error::TooManyLearners),
                    (Reason::BadTransferee, Error::BadTransferee { id }),
                    (Reason::MembershipChanging, Error::MembershipChanging),
                    (Reason::Timeout, Error::Timeout),
                    (Reason::LeaderChanged, Error::LeaderChanged),
                    (Reason::NotEnoughStarted, Error::NotEnoughStarted),
                    (Reason::Unhealthy, Error::Unhealthy),
                    (Reason::TooManyLeaseKeys, Error::TooManyLeaseKeys),
                    (Reason::NoOtherVoter, Error::NoOtherVoter),
                    (Reason::MemberTooLarge, Error::MemberTooLarge),
                    (Reason::NoUser, of_users(UsersRefusal::NoUser)),
                    (Reason::InvalidToken, of_users(UsersRefusal::InvalidToken)),
                    (
                        Reason::PermissionDenied,
                        of_users(UsersRefusal::PermissionDenied),
                    ),
                ];
                let mut known = reasons.into_iter();
                let known = known.find(|(reason, _)| *reason as u32 == refused.reason);
                let other = Error::Stopped {
                    reason: refused.text,
                };
                LeaderResponse::Refused(known.map_or(other, |(_, error)| error))
            }
        })
    }
}

/// The leader's reasons for a refusal, on the wire.
#[derive(Clone, Copy)]
enum Reason {
    Other = 0,
    NotLeader = 1,
    NotLearner = 2,
    MemberNotFound = 3,
    PeerUrlExists = 4,
    LearnerNotReady = 5,
    TooManyLearners = 6,
    BadTransferee = 7,
    MembershipChanging = 8,
    Timeout = 9,
    LeaderChanged = 10,
    NotEnoughStarted = 11,
    Unhealthy = 12,
    PlaceTaken = 13,
    TooManyLeaseKeys = 14,
    NoOtherVoter = 15,
    MemberTooLarge = 16,
    NoUser = 17,
    InvalidToken = 18,
    PermissionDenied = 19,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
