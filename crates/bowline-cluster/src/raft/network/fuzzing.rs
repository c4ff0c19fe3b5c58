//! Entry points of fuzzers for peer messages; see [`crate::fuzzing`].

use std::fmt::Debug;

use bowline_proto::peer as wire;
use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse};
use prost::Message;
use tonic::Status;

use super::wire as codec;
use crate::peer::SnapshotFile;
use crate::types::{
    Entry, LeaderId, Payload, Proposal, SnapshotMeta, StoredMembership, Vote, log_id,
};

/// A message of a kind: an accepted one fulfils openraft's assumptions, and is encoded in the same way.
pub(crate) fn message(which: u8, data: &[u8]) {
    match which {
        0 => append(data),
        1 => {
            let found = wire::AppendReply::decode(data).ok();
            if let Some(Ok(result)) = found.map(codec::get_append_reply) {
                let sent = codec::put_append_reply(7, &result);
                same(codec::get_append_reply(sent), &result);
            }
        }
        2 => {
            let found = wire::VoteRequest::decode(data).ok();
            if let Some(Ok(request)) = found.map(codec::get_vote_request) {
                let sent = codec::put_vote_request(wire::Sender::default(), &request);
                same(codec::get_vote_request(sent), &request);
            }
        }
        3 => {
            let found = wire::VoteReply::decode(data).ok();
            if let Some(Ok(reply)) = found.map(codec::get_vote_reply) {
                let sent = codec::put_vote_reply(&reply);
                same(codec::get_vote_reply(sent), &reply);
            }
        }
        4 => head(data),
        5 => {
            let found = wire::TransferLeaderRequest::decode(data).ok();
            if let Some(Ok(request)) = found.map(codec::get_transfer) {
                let sent = codec::put_transfer(wire::Sender::default(), &request);
                same(codec::get_transfer(sent), &request);
            }
        }
        _ => {}
    }
}

/// Not every Raft type has `Eq`; all have `Debug`.
fn same<T: Debug>(again: Result<T, Status>, first: &T) {
    let again = again.map(|again| format!("{again:?}"));
    assert_eq!(again.ok(), Some(format!("{first:?}")));
}

fn append(data: &[u8]) {
    // As in a server: payloads share the buffer.
    let Ok(request) = wire::AppendRequest::decode(Bytes::copy_from_slice(data)) else {
        return;
    };
    let Ok(request) = codec::get_append(request) else {
        return;
    };
    assert!(request.vote.committed, "not of a leader");
    let first = request.prev_log_id.map_or(0, |id| id.index + 1);
    let mut last = request.prev_log_id;
    for (index, entry) in (first..).zip(&request.entries) {
        assert_eq!(entry.log_id.index, index);
        assert!(last < Some(entry.log_id) && entry.log_id.leader_id <= request.vote.leader_id);
        last = Some(entry.log_id);
    }
    same(
        codec::get_append(codec::put_append(7, None, &request)),
        &request,
    );
}

fn head(data: &[u8]) {
    let Ok(head) = wire::SnapshotHead::decode(data) else {
        return;
    };
    let Ok((vote, meta, files)) = codec::get_head(&head) else {
        return;
    };
    assert!(vote.committed && meta.last_log_id.is_some());
    for file in &files {
        let path = std::path::Path::new(&file.name);
        assert_eq!(path.file_name(), Some(path.as_os_str()), "{file:?}");
    }
    let sender = wire::Sender::default();
    let files_again = files.iter().cloned();
    let sent = codec::put_head(
        sender,
        &vote,
        &meta,
        String::new(),
        Bytes::new(),
        files_again,
    );
    same(codec::get_head(&sent), &(vote, meta, files));
}

/// One message of each kind, with its selecting byte.
pub(crate) fn seeds() -> Vec<(u8, Vec<u8>)> {
    let vote = Vote {
        leader_id: LeaderId {
            term: 3,
            node_id: 300,
        },
        committed: true,
    };
    let id = |index| log_id(3, 300, index);
    let membership = crate::record::sample_membership();
    let payloads = [
        Payload::Blank,
        Payload::Normal(Proposal("proposal".into())),
        Payload::Membership(membership.clone()),
    ];
    let entries = (7..).zip(payloads).map(|(index, payload)| Entry {
        log_id: id(index),
        payload,
    });
    let append = AppendEntriesRequest {
        vote,
        prev_log_id: Some(id(6)),
        entries: entries.collect(),
        leader_commit: Some(id(5)),
    };
    let sender = || wire::Sender {
        cluster_id: 1 << 40,
        member_id: 300,
        incarnation: 1 << 50,
        target_id: 200,
        target_incarnation: 1 << 51,
    };
    let meta = SnapshotMeta {
        last_log_id: Some(id(9)),
        last_membership: StoredMembership::new(Some(id(8)), membership),
    };
    let file = SnapshotFile {
        name: "0000000000000001.table".to_owned(),
        bytes: 5000,
        crc32c: 6,
    };
    let (name, state) = ("id".to_owned(), Bytes::from("state"));
    let head = codec::put_head(sender(), &vote, &meta, name, state, [file].into_iter());
    let voting = VoteRequest::new(vote, Some(id(9)));
    let voted = VoteResponse::new(vote, Some(id(9)), true);
    let transfer = TransferLeaderRequest::new(vote, 300, Some(id(9)));
    vec![
        (
            0,
            codec::put_append(9, Some(sender()), &append).encode_to_vec(),
        ),
        (
            1,
            codec::put_append_reply(9, &Ok(Some(id(9)))).encode_to_vec(),
        ),
        (
            2,
            codec::put_vote_request(sender(), &voting).encode_to_vec(),
        ),
        (3, codec::put_vote_reply(&voted).encode_to_vec()),
        (4, head.encode_to_vec()),
        (5, codec::put_transfer(sender(), &transfer).encode_to_vec()),
    ]
}
