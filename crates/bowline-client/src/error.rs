//! The errors of the client, and their mapping from the server's replies.
//!
//! A server of etcd's API reports an error by a gRPC code and a text. The text is part of the API: it never
//! changes, and only the text distinguishes errors of one code. So the text decides, and an unknown text
//! gives [`Error::Other`] with both.
//!
//! # The outcome of a failed request
//!
//! ```text
//!   no connection could be made             nothing was sent: Unreachable, and the next endpoint
//!                                           is tried, whatever the request
//!   the server refused before it proposed   nothing was written: a typed error
//!   the connection broke, time ran out,     a read is tried again; a change fails with
//!   the leader changed meanwhile            UnknownOutcome, and is never tried again
//! ```

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use tonic::{Code, Status};

use bowline_proto::problem::of_details;
use bowline_proto::v1::NotUnique;
use bowline_types::{BlockId, Expected, Revision, Touched};

use crate::problem::QueryProblem;

/// Shorthand for results of the client.
///
/// ```
/// use bowline_client::{Client, Result};
///
/// async fn greeting(client: &Client) -> Result<String> {
///     let found = client.get("greeting").await?;
///     Ok(String::from_utf8_lossy(found.value().unwrap_or_default()).into_owned())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the client.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Error;
///
/// match client.put("greeting", "hello").await {
///     Ok(put) => println!("revision {}", put.header.revision),
///     // It may have been written: only a read can tell.
///     Err(Error::UnknownOutcome { .. }) => println!("{:?}", client.get("greeting").await?.value()),
///     // Nothing was written, and a later try may succeed.
///     Err(error) if error.is_retryable() => println!("try again: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors of any read
///
/// `Unreachable`, `Disconnected`, `NoLeader`, `LeaderChanged`, `NotServing`, `ServerTimedOut`, `Stopped`: the client has
/// tried other endpoints within the request timeout, and may be asked again. `TimedOut`: an endpoint was silent for what was
/// left of the timeout; the next request goes to another. `Other` with the code `DataLoss`, `Corrupt`, `NotForLearner`: other
/// endpoints were tried, too; the text of the first says what is damaged. `InvalidReply`: another endpoint may answer. With
/// users: `PermissionDenied`, `UserRequired`, `AuthenticationFailed`, `InvalidToken`.
///
/// # Errors of any change
///
/// `UnknownOutcome`: read the data before another try. Nothing was changed after any other error: `Unreachable`,
/// `NoLeader`, `NotServing`, `TooManyRequests` and `RateExceeded` (try again later), `NoSpace`, `QuotaExceeded`,
/// `RequestTooLarge`, `Corrupt`, and those of users. Of writes of blocks: `NotUnique`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested revision has been compacted.
    #[error("the revision asked for is compacted{}: start from a newer one", oldest(*.compact_revision))]
    Compacted {
        /// The oldest readable revision, if the server sends it (for watches).
        compact_revision: Option<Revision>,
    },
    /// The requested revision is in the future.
    #[error("the revision asked for is in the future")]
    FutureRevision,
    /// The request has no key.
    #[error("the key is empty: give at least one byte")]
    EmptyKey,
    /// A put was to keep the value or the lease of a key that does not exist.
    #[error("the key does not exist, so it has no value or lease to keep")]
    KeyNotFound,
    /// A put was to keep the value, and gives one.
    #[error("the put is to keep the value, and gives one: leave it out")]
    ValueProvided,
    /// A put was to keep the lease, and gives one.
    #[error("the put is to keep the lease, and gives one: leave it out")]
    LeaseProvided,
    /// The transaction has more operations than the server takes.
    #[error("the transaction has more operations than the server takes: split it")]
    TooManyOperations,
    /// The transaction would write a key twice.
    #[error("the transaction writes a key twice: one key can change once at one revision")]
    DuplicateKey,
    /// The sort order is not one the server knows.
    #[error("the server does not know this sort order")]
    InvalidSort,
    /// The request is larger than the server, or this client, takes.
    #[error("the request exceeds the server's --max-request-bytes: split it")]
    RequestTooLarge,
    /// There is no such lease, or it has ended.
    #[error("the lease does not exist, or it has ended")]
    LeaseNotFound,
    /// There is a lease with this id already.
    #[error("a lease with this id exists already")]
    LeaseExists,
    /// The time to live is above the server's limit.
    #[error("the time to live is above the server's limit")]
    LeaseTtlTooLarge,
    /// The database is full. Deleting and compacting go on.
    #[error("the database is full: delete and compact, then disarm the alarm")]
    NoSpace,
    /// The server has more requests waiting than it takes. Nothing was written.
    #[error("the server has too many requests waiting: try again later")]
    TooManyRequests,
    /// The user, or the address, makes more requests or reads more bytes in a second than it may: try again later.
    #[error("{message}")]
    RateExceeded {
        /// Who it is, the limit, and when to try again.
        message: String,
    },
    /// A write would take more than the quota of a prefix allows: see [`Client::set_quota`](crate::Client::set_quota).
    #[error("{message}")]
    QuotaExceeded {
        /// The prefix, the limit, the use, and what it would have become.
        message: String,
    },
    /// The cluster has no leader, as far as this member knows. Nothing was written.
    #[error("the cluster has no leader")]
    NoLeader,
    /// The member does nothing for clients at present, as its data is being repaired or its audit log has no room: ask
    /// another, or later. Nothing was written.
    #[error("the member refuses requests at present: {message}")]
    NotServing {
        /// Why, in its words.
        message: String,
    },
    /// Only the leader does this, and this member is not it.
    #[error("this member is not the leader: ask the leader")]
    NotLeader,
    /// The leader changed before the request was done.
    #[error("the leader changed before the request was done")]
    LeaderChanged,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopped,
    /// The server timed out while it processed the request.
    #[error("the server gave up waiting: {message}")]
    ServerTimedOut {
        /// The text of the server.
        message: String,
    },
    /// There is no such member.
    #[error("the member does not exist")]
    MemberNotFound,
    /// There is a member with this id already.
    #[error("the member exists already")]
    MemberExists,
    /// Another member has one of these peer addresses.
    #[error("a member with one of these peer URLs exists already")]
    PeerAddressExists,
    /// The addresses of the member are not acceptable.
    #[error("the peer URLs of the member are not valid: give http://HOST:PORT, without a path")]
    InvalidMemberAddress,
    /// The learner has not caught up with the leader yet.
    #[error("the learner has not caught up with the leader yet: try again later")]
    LearnerNotReady,
    /// The member to promote is not a learner.
    #[error("the member is not a learner")]
    NotLearner,
    /// The cluster has as many learners as it takes.
    #[error("the cluster has as many learners as it takes: promote or remove one")]
    TooManyLearners,
    /// The change would leave too few healthy or started members.
    #[error("the change would leave the cluster without a working majority: {message}")]
    Unhealthy {
        /// The text of the server.
        message: String,
    },
    /// A learner does not answer this request.
    #[error("this member is a learner, which does not answer this request: ask another")]
    NotForLearner,
    /// The member named cannot become the leader: it is no voter.
    #[error(
        "this member cannot become the leader: name a voter of the cluster, as `member list` shows them"
    )]
    BadTransferee,
    /// Data of a member is damaged.
    #[error("the data of a member is damaged")]
    Corrupt,
    /// The user may not do this.
    #[error(
        "permission denied: the user needs a role with this permission; `root` grants it with `role grant` and `user \
         grant-role`"
    )]
    PermissionDenied,
    /// The name or the password is wrong.
    #[error("the login was refused: {message}: check the name of the user and its password")]
    AuthenticationFailed {
        /// The text of the server.
        message: String,
    },
    /// The request names no user, and authentication is enabled.
    #[error("the server answers users only: log in with the name of a user and its password")]
    UserRequired,
    /// The token is not, or no longer, valid.
    #[error("the token is not valid, or no longer: log in again")]
    InvalidToken,
    /// Authentication is not enabled.
    #[error("authentication is not enabled: enable it first")]
    AuthNotEnabled,
    /// There is no user `root`, without which authentication cannot be enabled.
    #[error("there is no user `root`: add it before authentication is enabled")]
    RootUserMissing,
    /// The user `root` does not have the role `root`, without which authentication cannot be enabled.
    #[error(
        "the user `root` does not have the role `root`: grant it before authentication is enabled"
    )]
    RootRoleMissing,
    /// A change would take the last root away while authentication is enabled, or the range of a permission is empty.
    #[error(
        "it would leave the cluster without a root while authentication is enabled, or the range of the permission is \
         empty"
    )]
    InvalidAuthChange,
    /// There is no such user.
    #[error("the user does not exist: list the users, or add it")]
    UserNotFound,
    /// There is a user with this name already.
    #[error("a user with this name exists already")]
    UserExists,
    /// There is no such role.
    #[error("the role does not exist: list the roles, or add it")]
    RoleNotFound,
    /// There is a role with this name already.
    #[error("a role with this name exists already")]
    RoleExists,
    /// The role has no name.
    #[error("the name of the role is empty: give one")]
    RoleNameEmpty,
    /// The user does not have the role.
    #[error("the user does not have this role")]
    RoleNotGranted,
    /// The role does not have the permission.
    #[error(
        "the role does not have this permission: revoke it with the key and the end that it was granted with"
    )]
    PermissionNotGranted,
    /// A block, edge or kind of a graph request does not exist.
    #[error("{message}")]
    NotFound {
        /// The text of the server, with the remedy.
        message: String,
    },
    /// A request of the graph is one that the server, or what is stored there, does not allow.
    #[error("{message}")]
    Refused {
        /// The text of the server, with the remedy.
        message: String,
    },
    /// A block would have the same values as another one in a unique index: see
    /// [`Client::create_unique_index`](crate::Client::create_unique_index). Nothing was written.
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
        block: BlockId,
        /// The block that has the values.
        other: BlockId,
    },
    /// An index of this kind by these attributes exists, and the one is unique and the other is not.
    #[error("{message}")]
    IndexExists {
        /// The text of the server, with the remedy.
        message: String,
    },
    /// A query in Cypher is wrong, not supported, or over a limit. Nothing was written.
    #[error("{0}")]
    Query(Box<QueryProblem>),
    /// The server has run a query that writes many times, and each time others had changed what it reads. Nothing was
    /// written.
    #[error("{message}")]
    Contended {
        /// The text of the server.
        message: String,
    },
    /// Something that a transaction has read was changed meanwhile, or, under snapshot isolation, something
    /// that it writes. Nothing was written.
    #[error(
        "conflict: {what} was changed at revision {revision}, after this transaction's snapshot {snapshot}: run the transaction again"
    )]
    Conflict {
        /// What: the first that was.
        what: Touched,
        /// The revision of the change.
        revision: Revision,
        /// The revision this transaction has read at.
        snapshot: Revision,
    },
    /// [`Client::transact`](crate::Client::transact) stopped after many conflicts in a row. Nothing was
    /// written.
    #[error(
        "gave up after {attempts} conflicting attempts in {elapsed:?}: the keys are contended; retry later or touch fewer keys"
    )]
    TooManyConflicts {
        /// The number of attempts.
        attempts: u32,
        /// The time since the first attempt.
        elapsed: Duration,
    },
    /// A transaction expected a key at another revision. Nothing was written.
    #[error(
        "compare-and-swap lost: key {} is {}, and should be {expected}: read it again, then retry",
        .key.escape_ascii(),
        Expected::from(*actual)
    )]
    CompareFailed {
        /// The key.
        key: Bytes,
        /// What it should be.
        expected: Expected,
        /// Its modification revision; `None`: it is absent.
        actual: Option<Revision>,
    },
    /// The server does not have this request.
    #[error("the server does not have this request: {message}")]
    Unimplemented {
        /// The text of the server.
        message: String,
    },
    /// The server ended a watch.
    #[error("the server ended the watch: {reason}")]
    WatchCanceled {
        /// Why, in its words.
        reason: String,
    },

    /// No endpoint could be reached. Nothing was sent.
    #[error("{endpoint} cannot be reached: {message}")]
    Unreachable {
        /// The endpoint tried last.
        endpoint: String,
        /// Why.
        message: String,
    },
    /// The connection broke before the answer came.
    #[error("the connection broke before the answer came: {message}")]
    Disconnected {
        /// How.
        message: String,
    },
    /// No answer came within the request timeout.
    #[error("no answer came in time")]
    TimedOut,
    /// The outcome of a change is unknown: the request was sent, but no reply confirms or denies it. The
    /// client never sends it again. Read the data to find out.
    #[error(
        "it is not known whether the change was made: {cause}; read it back before trying again"
    )]
    UnknownOutcome {
        /// The error instead of a reply.
        cause: Box<Error>,
    },
    /// The lease was not kept alive in time, or has ended.
    #[error("the lease may have ended: nothing renewed it in time: {cause}")]
    LeaseLost {
        /// The error of the last attempt.
        cause: Box<Error>,
    },
    /// An endpoint is not an address.
    #[error("{endpoint:?} is not an endpoint: {message}")]
    InvalidEndpoint {
        /// What was given.
        endpoint: String,
        /// The problem.
        message: String,
    },
    /// What was given cannot be sent.
    #[error("{message}")]
    InvalidArgument {
        /// The problem.
        message: String,
    },
    /// The server's reply is malformed.
    #[error("the server's reply is malformed: {message}")]
    InvalidReply {
        /// The problem.
        message: String,
    },
    /// An error that this client does not know.
    #[error("{message} ({})", code_name(*.code))]
    Other {
        /// The gRPC code.
        code: Code,
        /// The text of the server.
        message: String,
    },
}

impl Error {
    /// Whether the same request may succeed later, and is safe to send again: nothing was written.
    ///
    /// After a [`Conflict`](Error::Conflict), run the whole transaction again, with its reads.
    ///
    /// [`UnknownOutcome`](Error::UnknownOutcome) is not: sending it again could do it twice.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let put = loop {
    ///     match client.put("greeting", "hello").await {
    ///         Err(error) if error.is_retryable() => {
    ///             tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    ///         }
    ///         outcome => break outcome?,
    ///     }
    /// };
    /// println!("revision {}", put.header.revision);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::TooManyRequests
                | Error::RateExceeded { .. }
                | Error::NoLeader
                | Error::NotServing { .. }
                | Error::NotLeader
                | Error::LeaderChanged
                | Error::Stopped
                | Error::ServerTimedOut { .. }
                | Error::LearnerNotReady
                | Error::Unreachable { .. }
                | Error::Disconnected { .. }
                | Error::TimedOut
                | Error::Conflict { .. }
                | Error::TooManyConflicts { .. }
                | Error::Contended { .. }
        )
    }

    /// Whether another endpoint may succeed, if the request may be sent twice.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(
            self,
            Error::NoLeader
                | Error::NotServing { .. }
                | Error::LeaderChanged
                | Error::Stopped
                | Error::ServerTimedOut { .. }
                | Error::NotForLearner
                | Error::Unreachable { .. }
                | Error::Disconnected { .. }
                // Its data differs from that of the others, which go on.
                | Error::Corrupt
                // Its data is damaged; its text says where. Another member has the same data.
                | Error::Other {
                    code: Code::DataLoss,
                    ..
                }
        )
    }

    /// Whether the change may have been made in spite of this error.
    fn leaves_doubt(&self) -> bool {
        match self {
            Error::LeaderChanged
            | Error::Stopped
            | Error::ServerTimedOut { .. }
            | Error::Disconnected { .. }
            | Error::TimedOut
            | Error::InvalidReply { .. } => true,
            Error::Other { code, .. } => !matches!(
                code,
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::FailedPrecondition
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::ResourceExhausted
                    | Code::Unimplemented
            ),
            _ => false,
        }
    }

    /// This error, as the end of a request that changes something.
    pub(crate) fn of_change(self) -> Error {
        if self.leaves_doubt() {
            Error::UnknownOutcome {
                cause: Box::new(self),
            }
        } else {
            self
        }
    }

    /// Converts a status of the transport. `endpoint` is the target of the request.
    pub(crate) fn from_status(status: &Status, endpoint: &str) -> Error {
        let message = || status.message().to_owned();
        // A status with a cause was made on this side: the server's own have none.
        if let Some(source) = status.source() {
            let message = with_sources(source);
            if is_connect_error(source) {
                let endpoint = endpoint.to_owned();
                return Error::Unreachable { endpoint, message };
            }
            return Error::Disconnected { message };
        }
        if status.code() == Code::OutOfRange && status.message().starts_with("Error, decoded") {
            // The transport's own limit, which has no cause either: an answer that was thrown away.
            return Error::InvalidReply { message: message() };
        }
        if let Some(problem) = QueryProblem::of_details(status.details(), status.message()) {
            return Error::Query(Box::new(problem));
        }
        if let Some(error) = not_unique(status.details()) {
            return error;
        }
        Error::of_text(status.code(), status.message())
    }

    /// Converts the code and the text of a server.
    pub(crate) fn of_text(code: Code, text: &str) -> Error {
        let message = || text.to_owned();
        // etcd writes the reason why it refuses a watch so.
        let known = text.strip_prefix("rpc error: code = ");
        let known = known.and_then(|rest| rest.split_once(" desc = "));
        let known = known.map_or(text, |(_, known)| known);
        let known = known.strip_prefix("etcdserver: ").unwrap_or(known);
        match known {
            "mvcc: required revision has been compacted" => Error::Compacted {
                compact_revision: None,
            },
            "mvcc: required revision is a future revision" => Error::FutureRevision,
            "key is not provided" => Error::EmptyKey,
            "key not found" => Error::KeyNotFound,
            "value is provided" => Error::ValueProvided,
            "lease is provided" => Error::LeaseProvided,
            "too many operations in txn request" => Error::TooManyOperations,
            "duplicate key given in txn request" => Error::DuplicateKey,
            "invalid sort option" => Error::InvalidSort,
            "request is too large" => Error::RequestTooLarge,
            "requested lease not found" => Error::LeaseNotFound,
            "lease already exists" => Error::LeaseExists,
            "too large lease TTL" => Error::LeaseTtlTooLarge,
            "mvcc: database space exceeded" => Error::NoSpace,
            "too many requests" => Error::TooManyRequests,
            "no leader" => Error::NoLeader,
            "not leader" => Error::NotLeader,
            "leader changed" => Error::LeaderChanged,
            "server stopped" => Error::Stopped,
            "member not found" => Error::MemberNotFound,
            "member ID already exist" => Error::MemberExists,
            "Peer URLs already exists" => Error::PeerAddressExists,
            "given member URLs are invalid" => Error::InvalidMemberAddress,
            "can only promote a learner member which is in sync with leader" => {
                Error::LearnerNotReady
            }
            "can only promote a learner member" => Error::NotLearner,
            "too many learner members in cluster" => Error::TooManyLearners,
            "rpc not supported for learner" => Error::NotForLearner,
            "bad leader transferee" => Error::BadTransferee,
            "corrupt cluster" => Error::Corrupt,
            "permission denied" => Error::PermissionDenied,
            "invalid auth token" => Error::InvalidToken,
            // The second is of an etcd whose users have changed since the login.
            "revision of auth store is old" => Error::InvalidToken,
            "authentication is not enabled" => Error::AuthNotEnabled,
            // Also of a user to be added that has no name, which this client does not send.
            "user name is empty" => Error::UserRequired,
            "user name not found" => Error::UserNotFound,
            "user name already exists" => Error::UserExists,
            "role name not found" => Error::RoleNotFound,
            "role name already exists" => Error::RoleExists,
            "role name is empty" => Error::RoleNameEmpty,
            "role is not granted to the user" => Error::RoleNotGranted,
            "permission is not granted to the role" => Error::PermissionNotGranted,
            "root user does not exist" => Error::RootUserMissing,
            "root user does not have root role" => Error::RootRoleMissing,
            "invalid auth management" => Error::InvalidAuthChange,
            "unhealthy cluster" | "re-configuration failed due to not enough started members" => {
                Error::Unhealthy { message: message() }
            }
            "authentication failed, invalid user ID or password"
            | "auth: authentication failed, password was given for no password user" => {
                Error::AuthenticationFailed {
                    message: known.trim_start_matches("auth: ").to_owned(),
                }
            }
            text if text.starts_with("request timed out") => {
                Error::ServerTimedOut { message: message() }
            }
            _ if code == Code::Unimplemented => Error::Unimplemented { message: message() },
            text if text.starts_with("bowline: rate exceeded") => {
                let message = text.trim_start_matches("bowline: ").to_owned();
                Error::RateExceeded { message }
            }
            text if text.starts_with("bowline: the quota of the prefix") => {
                let message = text.trim_start_matches("bowline: ").to_owned();
                Error::QuotaExceeded { message }
            }
            text if text.starts_with("an index of the kind ")
                && code == Code::FailedPrecondition =>
            {
                Error::IndexExists { message: message() }
            }
            // grpc-go says it so.
            text if code == Code::ResourceExhausted && text.contains("received message larger") => {
                Error::RequestTooLarge
            }
            text if is_not_serving(text) => Error::NotServing {
                message: text.trim_start_matches("bowline: ").to_owned(),
            },
            // A server or something between that goes away; no server of this API says anything else of a request
            // that it refused.
            _ if code == Code::Unavailable => Error::Disconnected { message: message() },
            _ => Error::Other {
                code,
                message: message(),
            },
        }
    }
}

/// Whether a member says that it did nothing of a request, as its data is being repaired or its audit log has no room.
fn is_not_serving(text: &str) -> bool {
    text.starts_with("bowline: the data of this member is being replaced")
        || text.starts_with("bowline: the audit log cannot be written")
}

/// The block that a unique index does not allow, among the details of a refusal.
fn not_unique(details: &[u8]) -> Option<Error> {
    let found: NotUnique = of_details(details)?;
    let id = |bytes: &[u8]| bytes.try_into().ok().map(BlockId::from_bytes);
    Some(Error::NotUnique {
        block: id(&found.block)?,
        other: id(&found.other)?,
        kind: found.kind.into(),
        attributes: found.attributes.into(),
    })
}

/// Where to start, if it is known.
fn oldest(compact_revision: Option<Revision>) -> String {
    compact_revision.map_or(String::new(), |revision| {
        format!("; the oldest left is {revision}")
    })
}

/// The name of a gRPC code, as its specification writes it.
///
/// ```
/// use bowline_client::{Code, code_name};
///
/// assert_eq!(code_name(Code::ResourceExhausted), "RESOURCE_EXHAUSTED");
/// ```
#[must_use]
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Whether the connection was never made, so that nothing can have been sent.
fn is_connect_error(error: &(dyn StdError + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// An error and its causes on one line, each said once.
pub(crate) fn with_sources(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
