//! What the texts of servers become, and what may be tried again.

use super::*;

fn of(code: Code, text: &str) -> Error {
    Error::from_status(&Status::new(code, text), "here:1")
}

#[test]
fn texts_become_errors() {
    for (code, text, expected) in [
        (
            Code::OutOfRange,
            "mvcc: required revision has been compacted",
            "Compacted",
        ),
        (
            Code::OutOfRange,
            "mvcc: required revision is a future revision",
            "FutureRevision",
        ),
        (Code::InvalidArgument, "key is not provided", "EmptyKey"),
        (Code::InvalidArgument, "key not found", "KeyNotFound"),
        (
            Code::InvalidArgument,
            "duplicate key given in txn request",
            "DuplicateKey",
        ),
        (
            Code::InvalidArgument,
            "too many operations in txn request",
            "TooManyOperations",
        ),
        (
            Code::InvalidArgument,
            "request is too large",
            "RequestTooLarge",
        ),
        (Code::NotFound, "requested lease not found", "LeaseNotFound"),
        (
            Code::FailedPrecondition,
            "lease already exists",
            "LeaseExists",
        ),
        (Code::OutOfRange, "too large lease TTL", "LeaseTtlTooLarge"),
        (
            Code::ResourceExhausted,
            "mvcc: database space exceeded",
            "NoSpace",
        ),
        (
            Code::ResourceExhausted,
            "too many requests",
            "TooManyRequests",
        ),
        (Code::Unavailable, "no leader", "NoLeader"),
        (Code::Unavailable, "request timed out", "ServerTimedOut"),
        (
            Code::Unavailable,
            "request timed out, possibly due to connection lost",
            "ServerTimedOut",
        ),
        (Code::NotFound, "member not found", "MemberNotFound"),
        (Code::DataLoss, "corrupt cluster", "Corrupt"),
        (
            Code::PermissionDenied,
            "permission denied",
            "PermissionDenied",
        ),
        (Code::Unauthenticated, "invalid auth token", "InvalidToken"),
        (
            Code::InvalidArgument,
            "revision of auth store is old",
            "InvalidToken",
        ),
        (Code::InvalidArgument, "user name is empty", "UserRequired"),
        (
            Code::InvalidArgument,
            "authentication failed, invalid user ID or password",
            "AuthenticationFailed",
        ),
        (
            Code::FailedPrecondition,
            "user name not found",
            "UserNotFound",
        ),
        (
            Code::FailedPrecondition,
            "user name already exists",
            "UserExists",
        ),
        (
            Code::FailedPrecondition,
            "role name not found",
            "RoleNotFound",
        ),
        (
            Code::FailedPrecondition,
            "role name already exists",
            "RoleExists",
        ),
        (Code::InvalidArgument, "role name is empty", "RoleNameEmpty"),
        (
            Code::FailedPrecondition,
            "role is not granted to the user",
            "RoleNotGranted",
        ),
        (
            Code::FailedPrecondition,
            "permission is not granted to the role",
            "PermissionNotGranted",
        ),
        (
            Code::FailedPrecondition,
            "root user does not exist",
            "RootUserMissing",
        ),
        (
            Code::FailedPrecondition,
            "root user does not have root role",
            "RootRoleMissing",
        ),
        (
            Code::InvalidArgument,
            "invalid auth management",
            "InvalidAuthChange",
        ),
        (
            Code::FailedPrecondition,
            "authentication is not enabled",
            "AuthNotEnabled",
        ),
    ] {
        let error = of(code, &format!("etcdserver: {text}"));
        assert!(
            format!("{error:?}").starts_with(expected),
            "{text}: {error:?}"
        );
    }
    let exists = "an index of the kind \"person\" by name exists, and is not unique: drop it before you create another";
    let error = of(Code::FailedPrecondition, exists);
    assert!(matches!(&error, Error::IndexExists { message } if message == exists));
    let refused = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    let refused = Error::of_text(Code::Cancelled, refused);
    assert!(matches!(refused, Error::InvalidToken), "{refused:?}");
    assert!(matches!(
        of(Code::NotFound, "etcdserver: something new"),
        Error::Other { code: Code::NotFound, message } if message == "etcdserver: something new"
    ));
}

#[test]
fn only_what_was_not_done_may_be_tried_again() {
    for text in ["no leader", "too many requests"] {
        let error = Error::of_text(Code::Unavailable, &format!("etcdserver: {text}")).of_change();
        assert!(error.is_retryable(), "{error:?}");
    }
    let repaired = "bowline: the data of this member is being replaced by that of another one";
    let error = of(Code::Unavailable, repaired).of_change();
    assert!(error.is_retryable(), "{error:?}");
    for (code, text) in [
        (Code::Unavailable, "etcdserver: request timed out"),
        (Code::Unavailable, "etcdserver: leader changed"),
        (Code::Unavailable, "etcdserver: server stopped"),
        (Code::Unavailable, "transport is closing"),
        (Code::Internal, "stream terminated"),
        (Code::Unknown, "?"),
        (Code::Cancelled, "?"),
        (Code::DeadlineExceeded, "context deadline exceeded"),
        // The answer was too large for this client: the change was made.
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 9 bytes",
        ),
    ] {
        let error = of(code, text).of_change();
        assert!(
            matches!(error, Error::UnknownOutcome { .. }),
            "{text}: {error:?}"
        );
        assert!(!error.is_retryable());
    }
    for (code, text) in [
        (Code::InvalidArgument, "etcdserver: key is not provided"),
        (Code::FailedPrecondition, "etcdserver: not leader"),
        (Code::ResourceExhausted, "no memory is left for this call"),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (9 vs. 1)",
        ),
    ] {
        let error = of(code, text).of_change();
        assert!(
            !matches!(error, Error::UnknownOutcome { .. }),
            "{text}: {error:?}"
        );
    }
}

#[test]
fn a_block_that_is_not_unique_is_named_in_the_details() {
    let id = |id: u128| Bytes::copy_from_slice(&BlockId(id).to_bytes());
    let found = NotUnique {
        kind: "person".to_owned(),
        attributes: "name, age".to_owned(),
        block: id(1),
        other: id(2),
    };
    let refused = |found: &NotUnique| {
        let details = bowline_proto::problem::to_details(9, "not unique", found);
        let status = Status::with_details(Code::FailedPrecondition, "not unique", details);
        Error::from_status(&status, "here:1")
    };
    let error = refused(&found);
    assert!(
        matches!(&error, Error::NotUnique { kind, attributes, block: BlockId(1), other: BlockId(2) }
            if **kind == *"person" && **attributes == *"name, age"),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    assert!(matches!(error.of_change(), Error::NotUnique { .. }));
    // Ids that are none: what the server says is left.
    let cut = NotUnique {
        other: Bytes::new(),
        ..found
    };
    assert!(matches!(refused(&cut), Error::Other { .. }));
}
