//! The table of codes and texts.

use super::*;
use bowline::Revision;

#[test]
fn codes_and_texts_are_those_that_clients_know() {
    // Without the prefix `etcdserver: `.
    let table: &[(Fault, Code, &str)] = &[
        (
            Fault::KeyNotProvided,
            Code::InvalidArgument,
            "key is not provided",
        ),
        (Fault::KeyNotFound, Code::InvalidArgument, "key not found"),
        (
            Fault::ValueProvided,
            Code::InvalidArgument,
            "value is provided",
        ),
        (
            Fault::LeaseProvided,
            Code::InvalidArgument,
            "lease is provided",
        ),
        (
            Fault::TooManyOperations,
            Code::InvalidArgument,
            "too many operations in txn request",
        ),
        (
            Fault::DuplicateKey,
            Code::InvalidArgument,
            "duplicate key given in txn request",
        ),
        (
            Fault::InvalidSort,
            Code::InvalidArgument,
            "invalid sort option",
        ),
        (
            Fault::RequestTooLarge,
            Code::InvalidArgument,
            "request is too large",
        ),
        (
            Fault::UserNameEmpty,
            Code::InvalidArgument,
            "user name is empty",
        ),
        (
            Fault::AuthenticationFailed,
            Code::InvalidArgument,
            "authentication failed, invalid user ID or password",
        ),
        (
            Fault::InvalidMemberUrls,
            Code::InvalidArgument,
            "given member URLs are invalid",
        ),
        (
            Fault::Compacted,
            Code::OutOfRange,
            "mvcc: required revision has been compacted",
        ),
        (
            Fault::FutureRevision,
            Code::OutOfRange,
            "mvcc: required revision is a future revision",
        ),
        (Fault::TtlTooLarge, Code::OutOfRange, "too large lease TTL"),
        (
            Fault::NoSpace,
            Code::ResourceExhausted,
            "mvcc: database space exceeded",
        ),
        (
            Fault::TooManyRequests,
            Code::ResourceExhausted,
            "too many requests",
        ),
        (
            Fault::LeaseNotFound,
            Code::NotFound,
            "requested lease not found",
        ),
        (Fault::MemberNotFound, Code::NotFound, "member not found"),
        (
            Fault::LeaseExists,
            Code::FailedPrecondition,
            "lease already exists",
        ),
        (Fault::NotLeader, Code::FailedPrecondition, "not leader"),
        (
            Fault::NotLearner,
            Code::FailedPrecondition,
            "can only promote a learner member",
        ),
        (
            Fault::LearnerNotReady,
            Code::FailedPrecondition,
            "can only promote a learner member which is in sync with leader",
        ),
        (
            Fault::TooManyLearners,
            Code::FailedPrecondition,
            "too many learner members in cluster",
        ),
        (
            Fault::LearnerUnsupported,
            Code::FailedPrecondition,
            "rpc not supported for learner",
        ),
        (
            Fault::NotEnoughStarted,
            Code::Unknown,
            "re-configuration failed due to not enough started members",
        ),
        (Fault::Unhealthy, Code::Unavailable, "unhealthy cluster"),
        (
            Fault::BadTransferee,
            Code::FailedPrecondition,
            "bad leader transferee",
        ),
        (
            Fault::PeerUrlExists,
            Code::FailedPrecondition,
            "Peer URLs already exists",
        ),
        (
            Fault::AuthNotEnabled,
            Code::FailedPrecondition,
            "authentication is not enabled",
        ),
        (Fault::NoLeader, Code::Unavailable, "no leader"),
        (Fault::LeaderChanged, Code::Unavailable, "leader changed"),
        (Fault::Stopped, Code::Unavailable, "server stopped"),
        (Fault::Timeout, Code::Unavailable, "request timed out"),
        (
            Fault::PermissionDenied,
            Code::PermissionDenied,
            "permission denied",
        ),
        (
            Fault::InvalidToken,
            Code::Unauthenticated,
            "invalid auth token",
        ),
        (Fault::WatchCanceled, Code::Cancelled, "watch canceled"),
        (Fault::CorruptCluster, Code::DataLoss, "corrupt cluster"),
        (
            Fault::UserNotFound,
            Code::FailedPrecondition,
            "user name not found",
        ),
        (
            Fault::RoleNameEmpty,
            Code::InvalidArgument,
            "role name is empty",
        ),
        (
            Fault::RoleNotFound,
            Code::FailedPrecondition,
            "role name not found",
        ),
        (
            Fault::PermissionNotGiven,
            Code::InvalidArgument,
            "permission not given",
        ),
        (Fault::UnknownMethod, Code::Unknown, "unknown method"),
        (
            Fault::DowngradeVersionMalformed,
            Code::InvalidArgument,
            "wrong downgrade target version format",
        ),
        (
            Fault::DowngradeVersionInvalid,
            Code::InvalidArgument,
            "invalid downgrade target version",
        ),
    ];
    for (fault, code, text) in table {
        let status = Status::from(fault.clone());
        assert_eq!(status.code(), *code, "{fault:?}");
        assert_eq!(status.message(), format!("etcdserver: {text}"), "{fault:?}");
    }
}

#[test]
fn locks_and_elections_refuse_in_words_of_their_own() {
    for (fault, text) in [
        (Fault::SessionExpired, "mutex: session is expired"),
        (Fault::NotElected, "election: not leader"),
        (Fault::NobodyElected, "election: no leader"),
        (Fault::LeaderKeyMissing, "\"leader\" field must be provided"),
    ] {
        let status = Status::from(fault);
        assert_eq!((status.code(), status.message()), (Code::Unknown, text));
    }
}

#[test]
fn what_leaves_no_doubt_has_a_text_that_the_client_knows() {
    for (fault, text) in [
        (
            Fault::Repairing,
            "bowline: the data of this member is being replaced",
        ),
        (
            Fault::AuditLogFull,
            "bowline: the audit log cannot be written",
        ),
    ] {
        let status = Status::from(fault);
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().starts_with(text), "{status}");
    }
}

#[test]
fn what_the_node_refuses_has_its_row() {
    let of = |error: Error| status(error).message().to_owned();
    let compacted = Refusal::Compacted {
        revision: Revision::new(1),
        oldest: Revision::new(2),
    };
    assert_eq!(
        of(compacted.into()),
        "etcdserver: mvcc: required revision has been compacted"
    );
    assert_eq!(of(Error::Timeout), "etcdserver: request timed out");
    let refusal = Refusal::TooManyWrites { size: 2, limit: 1 };
    let too_many = status(Error::from(refusal));
    assert_eq!(too_many.code(), Code::ResourceExhausted, "{too_many}");
    assert_eq!(
        of(bowline::Error::EmptyKey.into()),
        "etcdserver: key is not provided"
    );
    let id = bowline::BlockId(7);
    let missing = bowline::Error::MissingBlock { id };
    assert_eq!(of(Refusal::MissingBlock { id }.into()), missing.to_string());
    let unknown = Fault::from(bowline::Error::UnknownKind {
        name: "k".to_owned(),
        known: vec!["é".repeat(256); 100],
    });
    let (code, text) = unknown.parts();
    assert_eq!((code, text.chars().count()), (Code::NotFound, 1_001));
    let full = Error::Storage(bowline::Error::Closed);
    assert_eq!(of(full), "etcdserver: server stopped");
}

/// What a write is refused for by a unique index has the library's words, and the blocks for programs.
#[test]
fn a_refusal_for_an_index_is_the_librarys() {
    let (kind, attributes) = (|| "person".to_owned(), || "name, age".to_owned());
    let (block, other) = (bowline::BlockId(1), bowline::BlockId(2));
    let pairs = vec![(block, other)];
    let found = NotUnique {
        kind: kind(),
        attributes: attributes(),
        block,
        other,
    };
    for (refusal, code, library) in [
        (
            IndexRefusal::Invalid {
                attributes: String::new(),
            },
            Code::InvalidArgument,
            bowline::Error::InvalidIndex {
                attributes: String::new(),
            },
        ),
        (
            IndexRefusal::Exists {
                kind: kind(),
                attributes: attributes(),
                is_unique: true,
            },
            Code::FailedPrecondition,
            bowline::Error::IndexExists {
                kind: kind(),
                attributes: attributes(),
                is_unique: true,
            },
        ),
        (
            IndexRefusal::NotFound {
                kind: kind(),
                attributes: attributes(),
            },
            Code::NotFound,
            bowline::Error::IndexNotFound {
                kind: kind(),
                attributes: attributes(),
            },
        ),
        (
            IndexRefusal::BuiltNotUnique {
                kind: kind(),
                attributes: attributes(),
                pairs: pairs.clone(),
            },
            Code::FailedPrecondition,
            bowline::Error::BuiltNotUnique {
                kind: kind().into(),
                attributes: attributes().into(),
                pairs,
            },
        ),
        (
            IndexRefusal::NotUnique(Box::new(found.clone())),
            Code::FailedPrecondition,
            bowline::Error::NotUnique {
                kind: kind().into(),
                attributes: attributes().into(),
                block,
                other,
            },
        ),
    ] {
        let refused = status(Error::from(Refusal::Index(refusal)));
        let text = library.to_string();
        assert_eq!((refused.code(), refused.message()), (code, text.as_str()));
        assert_eq!(status(library).message(), text);
    }
    assert_eq!(status(IndexRefusal::Dropped).code(), Code::Aborted);
    let too_many = status(IndexRefusal::TooMany);
    assert_eq!(too_many.code(), Code::ResourceExhausted);
    let refused = Status::from(Fault::NotUnique(Box::new(found.clone())));
    let details = bowline_proto::problem::of_details(refused.details());
    assert_eq!(details, Some(to_wire(&found)));
    // The longest fits into headers.
    let long = NotUnique {
        kind: "\u{7}".repeat(256),
        attributes: "ä".repeat(1_031),
        ..found
    };
    let refused = Status::from(Fault::NotUnique(Box::new(long)));
    let bytes = |(_, value): (&http::HeaderName, &http::HeaderValue)| value.len();
    let headers = trailers_of(&refused).unwrap();
    let bytes: usize = headers.iter().map(bytes).sum();
    assert!(bytes < 8 << 10, "{bytes}");
}
