//! The codec between Raft's types and the wire's. Input is checked here, once.

use bowline_proto::peer as wire;
use openraft::StoredMembership as Stored;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tonic::Status;

use crate::peer::{Acknowledgements, SnapshotFile};
use crate::record::{self, RecordError};
use crate::types::{
    Entry, LeaderId, LogId, Membership, NodeId, SnapshotMeta, TypeConfig, Vote, log_id,
};

/// The result of one request of a stream.
pub(super) type AppendResult = Result<Option<LogId>, StreamAppendError<TypeConfig>>;

/// More files than any snapshot: with tables of 64 MiB it is 8 TiB.
const FILES_MAX: usize = 1 << 17;
const NAME_BYTES_MAX: usize = 255;
/// The largest term. A term grows by one per election, so no honest cluster comes near it; above it, a member
/// could not begin an election any more.
pub(super) const TERM_MAX: u64 = 1 << 62;
/// How far a peer's term may be ahead of ours. That many elections unheard by this member take 136 years at
/// the default timeout, and 8 months at the shortest possible one (5 ms); a member that is cut off does not
/// raise its term, because of pre-votes. So one forged message cannot use up the terms: that would take a
/// billion.
pub(super) const TERMS_AHEAD_MAX: u64 = 1 << 32;
/// More members than any cluster has.
const MEMBERS_MAX: usize = 1 << 10;
/// The largest index: at a million entries a second, a log reaches it after 2,000 years.
pub(super) const INDEX_MAX: u64 = 1 << 56;
/// The approximate limit of a request with several entries. A larger one is split.
pub(super) const APPEND_BYTES: usize = 8 << 20;
/// The most bytes of an entry on the wire beyond its payload.
const ENTRY_OVERHEAD_BYTES: usize = 128;

fn invalid(what: &str) -> Status {
    Status::invalid_argument(format!("a malformed message of a peer: {what}"))
}

fn present<T>(value: Option<T>, what: &str) -> Result<T, Status> {
    value.ok_or_else(|| invalid(&format!("no {what}")))
}

pub(super) fn put_log_id(id: &LogId) -> wire::LogId {
    wire::LogId {
        term: id.leader_id.term,
        node: id.leader_id.node_id,
        index: id.index,
    }
}

pub(super) fn get_log_id(id: wire::LogId) -> Result<LogId, Status> {
    if id.index > INDEX_MAX {
        return Err(invalid("an index that no log reaches"));
    }
    check_term(id.term)?;
    Ok(log_id(id.term, id.node, id.index))
}

fn check_term(term: u64) -> Result<(), Status> {
    match term > TERM_MAX {
        true => Err(invalid("a term that no cluster reaches")),
        false => Ok(()),
    }
}

/// Refuses a vote whose term is too far ahead of `known`.
pub(super) fn check_ahead(vote: &Vote, known: u64) -> Result<(), Status> {
    let term = vote.leader_id.term;
    match term > known.saturating_add(TERMS_AHEAD_MAX) {
        true => Err(invalid(&format!(
            "term {term}, where this member is at {known}"
        ))),
        false => Ok(()),
    }
}

/// Refuses a vote that is not the sender's: its sender determines what a vote may request.
pub(super) fn check_own(vote: &Vote, from: NodeId) -> Result<(), Status> {
    match vote.leader_id.node_id == from {
        true => Ok(()),
        false => Err(invalid(&format!(
            "a vote of member {:016x}, sent by {from:016x}",
            vote.leader_id.node_id
        ))),
    }
}

fn get_optional(id: Option<wire::LogId>) -> Result<Option<LogId>, Status> {
    id.map(get_log_id).transpose()
}

pub(super) fn put_vote(vote: &Vote) -> wire::Ballot {
    wire::Ballot {
        term: vote.leader_id.term,
        node: vote.leader_id.node_id,
        committed: vote.committed,
    }
}

pub(super) fn get_vote(vote: Option<wire::Ballot>) -> Result<Vote, Status> {
    let vote = present(vote, "vote")?;
    check_term(vote.term)?;
    Ok(Vote {
        leader_id: LeaderId {
            term: vote.term,
            node_id: vote.node,
        },
        committed: vote.committed,
    })
}

/// The vote of a leader: openraft accepts appends and snapshots of no one else.
pub(super) fn get_leader_vote(vote: Option<wire::Ballot>) -> Result<Vote, Status> {
    let vote = get_vote(vote)?;
    if !vote.committed {
        return Err(invalid("from one who does not lead"));
    }
    Ok(vote)
}

pub(super) fn put_append(
    sequence: u64,
    sender: Option<wire::Sender>,
    request: &AppendEntriesRequest<TypeConfig>,
) -> wire::AppendRequest {
    let committed = request.leader_commit.map(|id| id.index);
    let put_entry = |entry: &Entry| {
        let mut head = Vec::with_capacity(32);
        record::encode_head(entry, committed, &mut head);
        wire::Entry {
            head: head.into(),
            payload: record::payload(entry),
        }
    };
    wire::AppendRequest {
        sender,
        sequence,
        vote: Some(put_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(put_log_id),
        committed: request.leader_commit.as_ref().map(put_log_id),
        entries: request.entries.iter().map(put_entry).collect(),
        acknowledged: None,
        acknowledgements: Vec::new(),
    }
}

/// Splits a request into parts of about [`APPEND_BYTES`], so that no message exceeds a peer's limit: each
/// part continues the one before, and has a reply of its own.
pub(super) fn split_append(
    mut request: AppendEntriesRequest<TypeConfig>,
    bytes_max: usize,
) -> Vec<AppendEntriesRequest<TypeConfig>> {
    let mut parts = Vec::new();
    loop {
        let (mut bytes, mut count) = (0, 0);
        for entry in &request.entries {
            bytes += ENTRY_OVERHEAD_BYTES + record::payload_bytes(entry);
            // An entry above the limit goes alone.
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        if count >= request.entries.len() {
            parts.push(request);
            return parts;
        }
        let rest = request.entries.split_off(count);
        let last = request.entries.last().map(|entry| entry.log_id);
        let next = AppendEntriesRequest {
            vote: request.vote,
            prev_log_id: last,
            entries: rest,
            leader_commit: request.leader_commit,
        };
        parts.push(std::mem::replace(&mut request, next));
    }
}

/// Decodes a leader's request. Code `Unimplemented` means that a newer program has made it.
pub(super) fn get_append(
    request: wire::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
    let prev_log_id = get_optional(request.previous)?;
    let first = prev_log_id.map_or(0, |id| id.index + 1);
    if first
        .checked_add(request.entries.len() as u64 + 1)
        .is_none()
    {
        return Err(invalid("an index that cannot be"));
    }
    let vote = get_leader_vote(request.vote)?;
    let leader_commit = get_optional(request.committed)?;
    for id in prev_log_id.iter().chain(&leader_commit) {
        if id.leader_id > vote.leader_id {
            return Err(invalid("an entry of a later leader"));
        }
    }
    let mut last = prev_log_id;
    let mut entries = Vec::with_capacity(request.entries.len());
    for (index, entry) in (first..).zip(request.entries) {
        let entry = record::decode_parts(index, &entry.head, entry.payload);
        let entry = entry.map_err(|error| match error {
            RecordError::NewerVersion { .. } => Status::unimplemented(error.to_string()),
            _ => invalid(&error.to_string()),
        })?;
        let id = entry.log_id;
        if last.is_some_and(|last| last >= id) || id.leader_id > vote.leader_id {
            return Err(invalid("entries out of order"));
        }
        last = Some(entry.log_id);
        entries.push(entry);
    }
    if let Some(committed) = &leader_commit {
        for id in prev_log_id.iter().chain(&last) {
            check_one_log(id, committed)?;
        }
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

/// Refuses two entries that no log has both: from one entry of a log to the next, neither term nor index falls.
pub(super) fn check_one_log(a: &LogId, b: &LogId) -> Result<(), Status> {
    match a.index.cmp(&b.index) == a.cmp(b) {
        true => Ok(()),
        false => Err(invalid(&format!("a log with both {a} and {b}"))),
    }
}

/// What this member knows of the consensus.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) vote: Vote,
    pub(super) applied: Option<LogId>,
    pub(super) last_index: Option<u64>,
}

/// Refuses a leader's request with an entry that contradicts the one that this member has applied last: every leader has
/// the committed ones. openraft takes what is said of a committed entry for granted; a later term at an earlier index made
/// it forget what was committed, and another entry could take the place of one that had been applied.
///
/// An end of the committed entries behind the last entry of the log and of an earlier leader is left out: openraft would
/// apply entries up to there that are not there. This member hears of it again. So is what a leader says that leads no
/// more, which openraft answers with the later vote.
pub(super) fn check_applied(
    request: &mut AppendEntriesRequest<TypeConfig>,
    known: &Known,
) -> Result<(), Status> {
    if request.vote < known.vote {
        request.leader_commit = None;
        return Ok(());
    }
    if let Some(applied) = &known.applied {
        let entries = request.entries.iter().map(|entry| &entry.log_id);
        let others = request.prev_log_id.iter().chain(&request.leader_commit);
        for id in others.chain(entries) {
            check_one_log(id, applied)?;
        }
    }
    let last = request.entries.last().map(|entry| entry.log_id);
    let last_index = last.map(|id| id.index).max(known.last_index);
    let leader = request.vote.leader_id;
    request.leader_commit = request
        .leader_commit
        .filter(|id| id.leader_id == leader || Some(id.index) <= last_index);
    Ok(())
}

/// The acknowledgement reported by the leader of `vote`; it must not be of a later leader. So whatever a
/// message claims, a member that has an entry of a later term owes nothing.
pub(super) fn get_acknowledged(id: wire::LogId, vote: &Vote) -> Result<LogId, Status> {
    let last = get_log_id(id)?;
    if last.leader_id > vote.leader_id {
        return Err(invalid("an acknowledgement from the future"));
    }
    Ok(last)
}

pub(super) fn put_acknowledgement((member_id, last): (&NodeId, &LogId)) -> wire::Acknowledgement {
    wire::Acknowledgement {
        member_id: *member_id,
        last: Some(put_log_id(last)),
    }
}

/// What the leader of `vote` says that members have acknowledged to it.
pub(super) fn get_acknowledgements(
    all: Vec<wire::Acknowledgement>,
    vote: &Vote,
) -> Result<Acknowledgements, Status> {
    if all.len() > MEMBERS_MAX {
        return Err(invalid("more members than a cluster has"));
    }
    let get = |one: wire::Acknowledgement| {
        let last = get_acknowledged(present(one.last, "entry")?, vote)?;
        Ok((one.member_id, last))
    };
    all.into_iter().map(get).collect()
}

/// What another member remembers that this one has acknowledged, in a message with `vote`.
pub(super) fn get_remembered(
    id: Option<wire::LogId>,
    vote: &Vote,
) -> Result<Option<LogId>, Status> {
    id.map(|id| get_acknowledged(id, vote)).transpose()
}

pub(super) fn put_append_reply(sequence: u64, result: &AppendResult) -> wire::AppendReply {
    use wire::append_reply::Result as Reply;
    let result = match result {
        Ok(last) => Reply::Matched(wire::Matched {
            last: last.as_ref().map(put_log_id),
        }),
        Err(StreamAppendError::Conflict(id)) => Reply::Conflict(put_log_id(id)),
        Err(StreamAppendError::HigherVote(vote)) => Reply::HigherVote(put_vote(vote)),
    };
    wire::AppendReply {
        sequence,
        result: Some(result),
    }
}

pub(super) fn get_append_reply(reply: wire::AppendReply) -> Result<AppendResult, Status> {
    use wire::append_reply::Result as Reply;
    Ok(match present(reply.result, "result")? {
        Reply::Matched(matched) => Ok(get_optional(matched.last)?),
        Reply::Conflict(id) => Err(StreamAppendError::Conflict(get_log_id(id)?)),
        Reply::HigherVote(vote) => Err(StreamAppendError::HigherVote(get_vote(Some(vote))?)),
    })
}

pub(super) fn put_vote_request(
    sender: wire::Sender,
    request: &VoteRequest<TypeConfig>,
) -> wire::VoteRequest {
    wire::VoteRequest {
        sender: Some(sender),
        vote: Some(put_vote(&request.vote)),
        last: request.last_log_id.as_ref().map(put_log_id),
        leadership_transfer: request.leadership_transfer,
        remembered: None,
    }
}

pub(super) fn get_vote_request(
    request: wire::VoteRequest,
) -> Result<VoteRequest<TypeConfig>, Status> {
    let mut voting = VoteRequest::new(get_vote(request.vote)?, get_optional(request.last)?);
    voting.leadership_transfer = request.leadership_transfer;
    Ok(voting)
}

pub(super) fn put_vote_reply(reply: &VoteResponse<TypeConfig>) -> wire::VoteReply {
    wire::VoteReply {
        vote: Some(put_vote(&reply.vote)),
        granted: reply.vote_granted,
        last: reply.last_log_id.as_ref().map(put_log_id),
        remembered: None,
    }
}

pub(super) fn get_vote_reply(reply: wire::VoteReply) -> Result<VoteResponse<TypeConfig>, Status> {
    let last = get_optional(reply.last)?;
    Ok(VoteResponse::new(
        get_vote(reply.vote)?,
        last,
        reply.granted,
    ))
}

pub(super) fn put_transfer(
    sender: wire::Sender,
    request: &TransferLeaderRequest<TypeConfig>,
) -> wire::TransferLeaderRequest {
    wire::TransferLeaderRequest {
        sender: Some(sender),
        vote: Some(put_vote(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(put_log_id),
    }
}

pub(super) fn get_transfer(
    request: wire::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, Status> {
    let (vote, last) = (get_vote(request.vote)?, get_optional(request.last)?);
    Ok(TransferLeaderRequest::new(vote, request.to, last))
}

pub(super) fn put_transfer_reply(
    reply: &TransferLeaderResponse<TypeConfig>,
) -> wire::TransferLeaderReply {
    use wire::transfer_leader_reply::Refusal;
    let refusal = match reply {
        Ok(()) => None,
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            Some(Refusal::VoteChanged(put_vote(actual)))
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            Some(Refusal::NotFlushed(wire::Matched {
                last: actual.as_ref().map(put_log_id),
            }))
        }
    };
    wire::TransferLeaderReply { refusal }
}

pub(super) fn get_transfer_reply(
    request: &TransferLeaderRequest<TypeConfig>,
    reply: wire::TransferLeaderReply,
) -> Result<TransferLeaderResponse<TypeConfig>, Status> {
    use wire::transfer_leader_reply::Refusal;
    Ok(match reply.refusal {
        None => Ok(()),
        Some(Refusal::VoteChanged(vote)) => Err(TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: get_vote(Some(vote))?,
        }),
        Some(Refusal::NotFlushed(matched)) => Err(TransferLeaderError::LogNotFlushed {
            expected: request.last_log_id().copied(),
            actual: get_optional(matched.last)?,
        }),
    })
}

pub(super) fn put_head(
    sender: wire::Sender,
    vote: &Vote,
    meta: &SnapshotMeta,
    id: String,
    state: bytes::Bytes,
    files: impl Iterator<Item = SnapshotFile>,
) -> wire::SnapshotHead {
    let mut membership = Vec::new();
    record::encode_membership(meta.last_membership.membership(), &mut membership);
    wire::SnapshotHead {
        is_repair: false,
        sender: Some(sender),
        vote: Some(put_vote(vote)),
        last: meta.last_log_id.as_ref().map(put_log_id),
        membership_id: meta.last_membership.log_id().as_ref().map(put_log_id),
        membership: membership.into(),
        id,
        state,
        files: files
            .map(|file| wire::SnapshotFile {
                name: file.name,
                length: file.bytes,
                crc32c: file.crc32c,
            })
            .collect(),
    }
}

/// Decodes a head: the vote, the snapshot's metadata, and its files.
pub(super) fn get_head(
    head: &wire::SnapshotHead,
) -> Result<(Vote, SnapshotMeta, Vec<SnapshotFile>), Status> {
    let membership: Membership =
        record::decode_membership(&head.membership).map_err(|error| invalid(&error.to_string()))?;
    let meta = SnapshotMeta {
        last_log_id: get_optional(head.last)?,
        last_membership: Stored::new(get_optional(head.membership_id)?, membership),
    };
    if head.files.len() > FILES_MAX {
        return Err(invalid("too many files"));
    }
    let mut files: Vec<SnapshotFile> = Vec::with_capacity(head.files.len());
    let mut names = std::collections::BTreeSet::new();
    for file in &head.files {
        check_name(&file.name)?;
        if !names.insert(&file.name) {
            return Err(invalid("two files of one name"));
        }
        files.push(SnapshotFile {
            name: file.name.clone(),
            bytes: file.length,
            crc32c: file.crc32c,
        });
    }
    let vote = get_leader_vote(head.vote)?;
    let Some(last) = meta.last_log_id else {
        return Err(invalid("a snapshot of nothing"));
    };
    if last.leader_id > vote.leader_id || meta.last_membership.log_id() > &Some(last) {
        return Err(invalid("a snapshot from the future"));
    }
    Ok((vote, meta, files))
}

/// A name must stay within its directory.
fn check_name(name: &str) -> Result<(), Status> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('.')
        || !name.bytes().all(is_plain)
    {
        return Err(invalid(&format!("a file named {name:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
