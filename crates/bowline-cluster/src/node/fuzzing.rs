//! Entry points of fuzzers for a node's marks, proposals and leader requests; see [`crate::fuzzing`].

use std::sync::Arc;

use bowline::Revision;
use bowline_proto::peer as wire;
use bowline_replica::{Caller, Refusal, Session, UsersRefusal};
use prost::Message;

use super::leader_request::{LeaderRequest, LeaderResponse, caller_of};
use crate::raft::state_machine::{decode_mark, encode_mark};
use crate::types::{StoredMembership, log_id};

/// The mark of the last applied entry.
pub(crate) fn mark(data: &[u8]) {
    if let Some((id, membership)) = decode_mark(data) {
        let again = encode_mark(&id, &membership);
        assert_eq!(again, data, "two encodings of one mark");
    }
}

/// A proposal: what passes the check before the log can be decoded for applying.
pub(crate) fn proposal(data: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(data);
    if super::proposal::check(&bytes, None).is_ok() {
        let taken = crate::raft::waiters::Waiters::new(1).take(&bytes);
        assert!(taken.is_ok(), "what was acknowledged cannot be applied");
    }
}

/// A proposal of two commands.
pub(crate) fn proposal_seed() -> Vec<u8> {
    use bowline_replica::Command;
    let commands = [
        Command::Compact {
            revision: Revision::new(7),
        },
        Command::LeaseRevoke { id: 5 },
    ];
    let waiters = crate::raft::waiters::Waiters::new(1);
    waiters.propose(&commands, Vec::new()).1.to_vec()
}

/// A leader request: what is decoded is encoded in the same way.
pub(crate) fn question(data: &[u8]) {
    let Ok(question) = wire::Question::decode(data) else {
        return;
    };
    let caller = caller_of(&question);
    if let Some(question) = LeaderRequest::from_proto(question) {
        let sent = question.into_proto_of(&caller);
        let again = LeaderRequest::from_proto(sent.clone());
        let again = again.map(|question| question.into_proto_of(&caller_of(&sent)));
        assert_eq!(again, Some(sent));
    }
}

/// A leader response.
pub(crate) fn answer(data: &[u8]) {
    let found = wire::Answer::decode(data).ok();
    if let Some(answer) = found.and_then(LeaderResponse::from_proto) {
        // A reason of another version is wrapped in our text.
        if matches!(
            answer,
            LeaderResponse::Refused(crate::Error::Stopped { .. })
        ) {
            return;
        }
        let sent = answer.into_proto();
        let again = LeaderResponse::from_proto(sent.clone()).map(LeaderResponse::into_proto);
        assert_eq!(again, Some(sent));
    }
}

/// One seed of each kind, with its selecting byte.
pub(crate) fn seeds() -> Vec<(u8, Vec<u8>)> {
    let urls = || vec!["http://a:2380".to_owned()];
    let user = Caller::User(Arc::new(Session::without_token("ann", 9)));
    let questions = [
        LeaderRequest::LeaseKeepAlive(77),
        LeaderRequest::LeaseTimeToLive {
            id: 77,
            with_keys: true,
        },
        LeaderRequest::MemberAdd {
            peer_urls: urls(),
            is_learner: true,
        },
        LeaderRequest::MemberPublish {
            id: 7,
            name: "a".to_owned(),
            client_urls: urls(),
            command_version: 3,
        },
        LeaderRequest::MoveLeader(7),
        LeaderRequest::MemberClaim {
            id: 7,
            incarnation: 1 << 50,
        },
    ];
    let answers = [
        LeaderResponse::Done,
        LeaderResponse::Lease(None),
        LeaderResponse::Member(super::MemberInfo {
            id: 7,
            name: "a".to_owned(),
            peer_urls: urls(),
            client_urls: urls(),
            is_learner: true,
        }),
        LeaderResponse::Refused(crate::Error::NotLeader),
        LeaderResponse::Refused(crate::Error::MemberNotFound { id: 7 }),
        LeaderResponse::Refused(crate::Error::PlaceTaken { id: 7 }),
        LeaderResponse::Refused(crate::Error::Refused(Refusal::Users(
            UsersRefusal::PermissionDenied,
        ))),
    ];
    let id = log_id(3, 7, 300);
    let membership = crate::record::sample_membership();
    let mut seeds = vec![
        (1, encode_mark(&id, &StoredMembership::default())),
        (
            1,
            encode_mark(&id, &StoredMembership::new(Some(id), membership)),
        ),
    ];
    for caller in [Caller::Process, Caller::Nobody, user] {
        let questions = questions.clone().into_iter();
        seeds.extend(questions.map(|question| {
            let question = question.into_proto_of(&caller);
            (2, question.encode_to_vec())
        }));
    }
    seeds.extend(answers.map(|answer| (3, answer.into_proto().encode_to_vec())));
    seeds
}
