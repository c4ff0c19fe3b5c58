//! The errors of calls: one table of gRPC codes and texts.
//!
//! etcd's clients compare these texts byte for byte, so each is written once, here, and a test checks the
//! table. [`Fault::parts`] is exhaustive: a new fault does not compile without its code.

use std::borrow::Cow;
use std::time::Duration;

use bowline_cluster::Error;
use bowline_proto::problem::to_details;
use bowline_proto::v1 as pb;
use bowline_replica::{IndexRefusal, NotUnique, QuotaRefusal, Refusal, UsersRefusal};
use bytes::Bytes;
use http::HeaderMap;
use tonic::{Code, Status};

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A request names no key.
    KeyNotProvided,
    /// A put that keeps value or lease found no key, or an operation is empty.
    KeyNotFound,
    /// A put keeps the value and gives one.
    ValueProvided,
    /// A put keeps the lease and gives one.
    LeaseProvided,
    /// A list of a transaction is too long.
    TooManyOperations,
    /// A transaction writes a key twice.
    DuplicateKey,
    /// The sort order or target is unknown.
    InvalidSort,
    /// The request is too large.
    RequestTooLarge,
    /// A user has no name.
    UserNameEmpty,
    /// Name or password are wrong.
    AuthenticationFailed,
    /// The peer URLs of a member are invalid.
    InvalidMemberUrls,
    /// The revision is trimmed.
    Compacted,
    /// A revision does not exist yet.
    FutureRevision,
    /// The TTL of a lease is too large.
    TtlTooLarge,
    /// The quota is used up, or the disk is full.
    NoSpace,
    /// Too many requests are under way.
    TooManyRequests,
    /// A transaction exceeds the bound of work.
    TooMuchWork,
    /// A request deletes or writes more than one command may.
    TooManyWrites,
    /// The quota of a prefix is used up, or a change of quotas is refused.
    Quota(QuotaRefusal),
    /// A block would have the values of another one in a unique index.
    NotUnique(Box<NotUnique>),
    /// There are as many as there may be; names what to do.
    TooMany(String),
    /// A principal makes more requests, or scans more bytes, than it may in a second.
    RateExceeded(String),
    /// Clients use up their memory budget.
    OutOfMemory,
    /// The audit log has no room, and calls are not made without their lines.
    AuditLogFull,
    /// A reply is too long for one message.
    TooLong,
    /// The keys of a lease do not fit into one reply.
    TooManyLeaseKeys,
    /// The data of this member is being replaced.
    Repairing,
    /// A request did not arrive completely in time.
    PartialRequest(Duration),
    /// There is no such lease.
    LeaseNotFound,
    /// There is no such member.
    MemberNotFound,
    /// The lease exists already.
    LeaseExists,
    /// This member verifies tokens, and has no key to sign one.
    VerifyOnly,
    /// Only the leader can do this.
    NotLeader,
    /// Only a learner can be promoted.
    NotLearner,
    /// The learner is too far behind.
    LearnerNotReady,
    /// There are too many learners.
    TooManyLearners,
    /// A learner does not serve this call.
    LearnerUnsupported,
    /// The change of membership would leave too few started members.
    NotEnoughStarted,
    /// The change of membership would leave a majority that is not reachable.
    Unhealthy,
    /// The target of a leadership transfer is invalid.
    BadTransferee,
    /// Another member has this peer URL.
    PeerUrlExists,
    /// Authentication is off.
    AuthNotEnabled,
    /// There is no leader.
    NoLeader,
    /// The leader changed during the request.
    LeaderChanged,
    /// The server is stopping.
    Stopped,
    /// The request timed out.
    Timeout,
    /// The user has no permission.
    PermissionDenied,
    /// The token is not or no longer valid.
    InvalidToken,
    /// The watch was canceled.
    WatchCanceled,
    /// The data of the members differs.
    CorruptCluster,
    /// There is no such user.
    UserNotFound,
    /// A role has no name.
    RoleNameEmpty,
    /// There is no such role.
    RoleNotFound,
    /// A grant to a role names no permission.
    PermissionNotGiven,
    /// A change of users is refused, or a caller does not have the rights.
    Users(UsersRefusal),
    /// A password was given for a user that has none.
    NoPasswordUser,
    /// The target of a downgrade is not a version.
    DowngradeVersionMalformed,
    /// A downgrade to that version is not possible.
    DowngradeVersionInvalid,
    /// The action has an unknown number.
    UnknownMethod,
    /// The lease ended while it waited for a lock.
    SessionExpired,
    /// The caller is not, or no longer, the leader of the election.
    NotElected,
    /// The election has no leader.
    NobodyElected,
    /// The request names no leader key.
    LeaderKeyMissing,
    /// A part of the request is invalid; names it.
    Invalid(&'static str),
    /// The request could never succeed; names the reason.
    Malformed(String),
    /// Something that the request needs is missing; names it.
    Missing(String),
    /// The stored data does not allow it; names the reason.
    Unfit(String),
    /// Others change the same all the time; names what to do.
    Contended(String),
    /// Not offered.
    Unsupported(&'static str),
    /// It is possible later; names what it waits for.
    NotYet(String),
    /// Data on this node's disk is damaged; names where.
    Damaged(String),
    /// This node failed; names the reason.
    Internal(String),
}

impl Fault {
    /// The gRPC code and text.
    #[must_use]
    pub fn parts(&self) -> (Code, Cow<'static, str>) {
        let (code, text) = match self {
            Fault::KeyNotProvided => (Code::InvalidArgument, "etcdserver: key is not provided"),
            Fault::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
            Fault::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
            Fault::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
            Fault::TooManyOperations => (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
            ),
            Fault::DuplicateKey => (
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
            ),
            Fault::InvalidSort => (Code::InvalidArgument, "etcdserver: invalid sort option"),
            Fault::RequestTooLarge => (Code::InvalidArgument, "etcdserver: request is too large"),
            Fault::UserNameEmpty => (Code::InvalidArgument, "etcdserver: user name is empty"),
            Fault::AuthenticationFailed => (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
            ),
            Fault::InvalidMemberUrls => (
                Code::InvalidArgument,
                "etcdserver: given member URLs are invalid",
            ),
            Fault::Compacted => (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            Fault::FutureRevision => (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
            ),
            Fault::TtlTooLarge => (Code::OutOfRange, "etcdserver: too large lease TTL"),
            Fault::NoSpace => (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
            ),
            Fault::TooManyRequests => (Code::ResourceExhausted, "etcdserver: too many requests"),
            Fault::TooMuchWork => (
                Code::ResourceExhausted,
                "the transaction looks at too many keys or bytes: read large ranges outside of transactions, a page at a time, and write in several",
            ),
            Fault::TooManyWrites => (
                Code::ResourceExhausted,
                "bowline: the request deletes or writes more than one command may: delete a large range in several parts",
            ),
            Fault::Quota(refusal) => {
                let code = match refusal {
                    QuotaRefusal::Exceeded { .. } | QuotaRefusal::TooMany => {
                        Code::ResourceExhausted
                    }
                    QuotaRefusal::NotFound { .. } => Code::NotFound,
                    _ => Code::InvalidArgument,
                };
                return (code, format!("bowline: {refusal}").into());
            }
            Fault::NotUnique(found) => {
                let text = IndexRefusal::NotUnique(found.clone()).to_string();
                let text = cut(&text, REFUSAL_BYTES_MAX).to_owned();
                return (Code::FailedPrecondition, text.into());
            }
            Fault::TooMany(text) => return (Code::ResourceExhausted, text.clone().into()),
            Fault::RateExceeded(text) => return (Code::ResourceExhausted, text.clone().into()),
            Fault::OutOfMemory => (
                Code::ResourceExhausted,
                "bowline: the memory for clients is used up; retry later, ask for less at once, or \
                 raise --max-connection-memory or --max-client-memory",
            ),
            Fault::AuditLogFull => (
                Code::Unavailable,
                "bowline: the audit log cannot be written, and calls are not made without it; see its file and its disk",
            ),
            Fault::TooLong => (
                Code::ResourceExhausted,
                "bowline: the range has 4 GiB or more; ask for a part of it, or use RangeStream",
            ),
            Fault::Repairing => (
                Code::Unavailable,
                "bowline: the data of this member is being replaced by that of another one",
            ),
            Fault::TooManyLeaseKeys => (
                Code::ResourceExhausted,
                "bowline: the keys of the lease do not fit into one reply; ask for its time without the \
                 keys, and attach fewer keys to one lease",
            ),
            Fault::PartialRequest(timeout) => {
                let text = format!(
                    "bowline: the request was begun and not ended within {timeout:?}; see \
                     --partial-request-timeout"
                );
                return (Code::DeadlineExceeded, text.into());
            }
            Fault::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found"),
            Fault::MemberNotFound => (Code::NotFound, "etcdserver: member not found"),
            Fault::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists"),
            Fault::NotLeader => (Code::FailedPrecondition, "etcdserver: not leader"),
            Fault::NotLearner => (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member",
            ),
            Fault::LearnerNotReady => (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            Fault::TooManyLearners => (
                Code::FailedPrecondition,
                "etcdserver: too many learner members in cluster",
            ),
            Fault::LearnerUnsupported => (
                Code::FailedPrecondition,
                "etcdserver: rpc not supported for learner",
            ),
            Fault::NotEnoughStarted => (
                // etcd sends it with this code.
                Code::Unknown,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            Fault::Unhealthy => (Code::Unavailable, "etcdserver: unhealthy cluster"),
            Fault::BadTransferee => (
                Code::FailedPrecondition,
                "etcdserver: bad leader transferee",
            ),
            Fault::PeerUrlExists => (
                Code::FailedPrecondition,
                "etcdserver: Peer URLs already exists",
            ),
            Fault::AuthNotEnabled => (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
            ),
            Fault::NoLeader => (Code::Unavailable, "etcdserver: no leader"),
            Fault::LeaderChanged => (Code::Unavailable, "etcdserver: leader changed"),
            Fault::Stopped => (Code::Unavailable, "etcdserver: server stopped"),
            Fault::Timeout => (Code::Unavailable, "etcdserver: request timed out"),
            Fault::PermissionDenied => (Code::PermissionDenied, "etcdserver: permission denied"),
            Fault::InvalidToken => (Code::Unauthenticated, "etcdserver: invalid auth token"),
            Fault::WatchCanceled => (Code::Cancelled, "etcdserver: watch canceled"),
            Fault::CorruptCluster => (Code::DataLoss, "etcdserver: corrupt cluster"),
            Fault::UserNotFound => (Code::FailedPrecondition, "etcdserver: user name not found"),
            Fault::RoleNameEmpty => (Code::InvalidArgument, "etcdserver: role name is empty"),
            Fault::RoleNotFound => (Code::FailedPrecondition, "etcdserver: role name not found"),
            Fault::PermissionNotGiven => {
                (Code::InvalidArgument, "etcdserver: permission not given")
            }
            Fault::Users(refusal) => return users_parts(*refusal),
            // etcd sends it without a code.
            Fault::NoPasswordUser => (
                Code::Unknown,
                "auth: authentication failed, password was given for no password user",
            ),
            // etcd sends it without a code.
            Fault::VerifyOnly => (
                Code::Unknown,
                "auth: token signing attempted with verify-only key",
            ),
            Fault::UnknownMethod => (Code::Unknown, "etcdserver: unknown method"),
            Fault::DowngradeVersionMalformed => (
                Code::InvalidArgument,
                "etcdserver: wrong downgrade target version format",
            ),
            Fault::DowngradeVersionInvalid => (
                Code::InvalidArgument,
                "etcdserver: invalid downgrade target version",
            ),
            // etcd's server sends these four in the words of its client library, without a code.
            Fault::SessionExpired => (Code::Unknown, "mutex: session is expired"),
            Fault::NotElected => (Code::Unknown, "election: not leader"),
            Fault::NobodyElected => (Code::Unknown, "election: no leader"),
            Fault::LeaderKeyMissing => (Code::Unknown, "\"leader\" field must be provided"),
            Fault::Invalid(text) => (Code::InvalidArgument, *text),
            Fault::Malformed(text) => return (Code::InvalidArgument, text.clone().into()),
            Fault::Missing(text) => return (Code::NotFound, text.clone().into()),
            Fault::Unfit(text) => return (Code::FailedPrecondition, text.clone().into()),
            Fault::Contended(text) => return (Code::Aborted, text.clone().into()),
            Fault::Unsupported(text) => (Code::Unimplemented, *text),
            Fault::NotYet(text) => return (Code::FailedPrecondition, text.clone().into()),
            Fault::Damaged(text) => return (Code::DataLoss, text.clone().into()),
            Fault::Internal(text) => return (Code::Internal, text.clone().into()),
        };
        (code, Cow::Borrowed(text))
    }
}

/// The code and text of a refusal of users.
fn users_parts(refusal: UsersRefusal) -> (Code, Cow<'static, str>) {
    use UsersRefusal as R;
    let (code, text) = match refusal {
        R::UserNameEmpty | R::NoUser => return Fault::UserNameEmpty.parts(),
        R::UserNotFound => return Fault::UserNotFound.parts(),
        R::RoleNameEmpty => return Fault::RoleNameEmpty.parts(),
        R::RoleNotFound => return Fault::RoleNotFound.parts(),
        R::NotEnabled => return Fault::AuthNotEnabled.parts(),
        R::InvalidToken => return Fault::InvalidToken.parts(),
        R::PermissionDenied => return Fault::PermissionDenied.parts(),
        R::TooManyTokens => return Fault::TooManyRequests.parts(),
        R::UserExists => (
            Code::FailedPrecondition,
            "etcdserver: user name already exists",
        ),
        R::RoleExists => (
            Code::FailedPrecondition,
            "etcdserver: role name already exists",
        ),
        R::RoleNotGranted => (
            Code::FailedPrecondition,
            "etcdserver: role is not granted to the user",
        ),
        R::PermissionNotGranted => (
            Code::FailedPrecondition,
            "etcdserver: permission is not granted to the role",
        ),
        R::RootUserMissing => (
            Code::FailedPrecondition,
            "etcdserver: root user does not exist",
        ),
        R::RootRoleMissing => (
            Code::FailedPrecondition,
            "etcdserver: root user does not have root role",
        ),
        R::InvalidManagement => (Code::InvalidArgument, "etcdserver: invalid auth management"),
        R::NameTooLong => return (Code::InvalidArgument, format!("bowline: {refusal}").into()),
        other => return (Code::Internal, other.to_string().into()),
    };
    (code, Cow::Borrowed(text))
}

impl From<UsersRefusal> for Fault {
    fn from(refusal: UsersRefusal) -> Fault {
        Fault::Users(refusal)
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Status {
        let (code, text) = fault.parts();
        match &fault {
            Fault::NotUnique(found) => {
                let details = to_details(code.into(), &text, &to_wire(found));
                Status::with_details(code, text, details)
            }
            _ => Status::new(code, text),
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        match refusal {
            Refusal::Compacted { .. } => Fault::Compacted,
            Refusal::FutureRevision { .. } => Fault::FutureRevision,
            Refusal::LeaseNotFound { .. } => Fault::LeaseNotFound,
            Refusal::LeaseExists { .. } => Fault::LeaseExists,
            Refusal::KeyNotFound => Fault::KeyNotFound,
            Refusal::DuplicateKey => Fault::DuplicateKey,
            Refusal::NoSpace => Fault::NoSpace,
            Refusal::Corrupt => Fault::CorruptCluster,
            Refusal::Users(refusal) => refusal.into(),
            Refusal::TooLarge { .. } => Fault::RequestTooLarge,
            Refusal::TooMuchWork { .. } => Fault::TooMuchWork,
            Refusal::TooManyWrites { .. } => Fault::TooManyWrites,
            Refusal::Quota(refusal) => Fault::Quota(refusal),
            Refusal::Index(refusal) => refusal.into(),
            // The library's text, so that a program reads the same in both places.
            Refusal::MissingBlock { id } => bowline::Error::MissingBlock { id }.into(),
            Refusal::InvalidKind { name } => bowline::Error::InvalidKind { name }.into(),
            Refusal::NotUpdatable { key, source } => {
                bowline::Error::NotUpdatable { key, source }.into()
            }
            other => Fault::Internal(other.to_string()),
        }
    }
}

/// In the library's words, as other refusals are.
impl From<IndexRefusal> for Fault {
    fn from(refusal: IndexRefusal) -> Fault {
        match refusal {
            IndexRefusal::TooMany => Fault::TooMany(refusal.to_string()),
            IndexRefusal::Dropped => Fault::Contended(refusal.to_string()),
            refusal => bowline::Error::from(refusal).into(),
        }
    }
}

fn to_wire(found: &NotUnique) -> pb::NotUnique {
    let id = |id: bowline::BlockId| Bytes::copy_from_slice(&id.to_bytes());
    pb::NotUnique {
        kind: found.kind.clone(),
        attributes: found.attributes.clone(),
        block: id(found.block),
        other: id(found.other),
    }
}

impl From<bowline::Error> for Fault {
    fn from(error: bowline::Error) -> Fault {
        use bowline::Error as E;
        match error {
            E::Compacted { .. } => Fault::Compacted,
            E::FutureRevision { .. } => Fault::FutureRevision,
            E::LeaseNotFound { .. } => Fault::LeaseNotFound,
            E::LeaseExists { .. } => Fault::LeaseExists,
            E::EmptyKey => Fault::KeyNotProvided,
            E::KeyTooLarge { .. } | E::ValueTooLarge { .. } | E::TransactionTooLarge { .. } => {
                Fault::RequestTooLarge
            }
            E::Closed => Fault::Stopped,
            E::MissingBlock { .. } | E::UnknownKind { .. } | E::IndexNotFound { .. } => {
                Fault::Missing(short(&error))
            }
            E::InvalidKind { .. }
            | E::InvalidIndex { .. }
            | E::TooManyKinds { .. }
            | E::NotSupported { .. } => Fault::Malformed(short(&error)),
            E::Cycle { .. }
            | E::InvalidWeight { .. }
            | E::NotUpdatable { .. }
            | E::IndexExists { .. }
            | E::BuiltNotUnique { .. } => Fault::Unfit(short(&error)),
            E::NotUnique {
                kind,
                attributes,
                block,
                other,
            } => Fault::NotUnique(Box::new(NotUnique {
                kind: kind.into(),
                attributes: attributes.into(),
                block,
                other,
            })),
            E::Storage(
                bowline_storage::Error::Corrupt { .. } | bowline_storage::Error::MissingFile { .. },
            )
            | E::InvalidRecord { .. } => Fault::Damaged(short(&error)),
            other => Fault::Internal(other.to_string()),
        }
    }
}

/// An error's text, cut so that it fits into a response header: some errors list every id.
fn short(error: &bowline::Error) -> String {
    const CHARACTERS_MAX: usize = 1_000;
    let text = error.to_string();
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The longest text of a refusal that has details: both travel in headers.
pub(crate) const REFUSAL_BYTES_MAX: usize = 1 << 10;

/// At most so many bytes of a text.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::NoLeader => Fault::NoLeader,
            Error::LeaderChanged => Fault::LeaderChanged,
            Error::NotLeader => Fault::NotLeader,
            Error::Timeout => Fault::Timeout,
            Error::Stopped { .. } => Fault::Stopped,
            Error::TooManyRequests => Fault::TooManyRequests,
            Error::RequestTooLarge { .. } => Fault::RequestTooLarge,
            Error::Learner => Fault::LearnerUnsupported,
            Error::NotLearner { .. } => Fault::NotLearner,
            Error::MemberNotFound { .. } => Fault::MemberNotFound,
            Error::PeerUrlExists => Fault::PeerUrlExists,
            Error::LearnerNotReady => Fault::LearnerNotReady,
            Error::TooManyLearners => Fault::TooManyLearners,
            Error::BadTransferee { .. } => Fault::BadTransferee,
            Error::NotEnoughStarted => Fault::NotEnoughStarted,
            // While one change is under way, etcd lets another wait until its deadline.
            Error::MembershipChanging => Fault::Timeout,
            Error::Unhealthy => Fault::Unhealthy,
            Error::TooManyLeaseKeys => Fault::TooManyLeaseKeys,
            Error::Repairing => Fault::Repairing,
            error @ (Error::NoOtherVoter | Error::MemberTooLarge) => {
                Fault::Unfit(error.to_string())
            }
            Error::RequestTooDeep { .. } => Fault::TooManyOperations,
            // A member that has just started announces its version in a moment.
            error @ Error::CommandTooNew { .. } => Fault::NotYet(error.to_string()),
            Error::Storage(error) => error.into(),
            other => Fault::Internal(other.to_string()),
        }
    }
}

/// Replaces this gRPC library's text for a message above the size limit by that of etcd's library.
pub(crate) fn in_words_of_etcd(status: Status) -> Status {
    const FOUND: &str = "Error, decoded message length too large: found ";
    const LIMIT: &str = " bytes, the limit is: ";
    let sizes = status.message().strip_prefix(FOUND);
    let sizes = sizes.and_then(|rest| rest.split_once(LIMIT));
    let Some((found, limit)) = sizes.filter(|_| status.code() == Code::OutOfRange) else {
        return status;
    };
    let limit = limit.trim_end_matches(" bytes");
    let text = format!("grpc: received message larger than max ({found} vs. {limit})");
    Status::resource_exhausted(text)
}

/// The trailers that carry a status.
pub(crate) fn trailers_of(status: &Status) -> Option<HeaderMap> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).ok().map(|()| trailers)
}

/// The status for an error of the node.
pub(crate) fn status(error: impl Into<Fault>) -> Status {
    let fault: Fault = error.into();
    fault.into()
}

/// Whether a change that ended so may have been made, or may still be.
pub(crate) fn leaves_doubt(status: &Status) -> bool {
    let doubts = [Fault::Timeout, Fault::LeaderChanged, Fault::Stopped];
    doubts.iter().any(|fault| {
        let (code, text) = fault.parts();
        status.code() == code && status.message() == text
    })
}

#[cfg(test)]
mod tests;
