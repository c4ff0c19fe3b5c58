//! The membership of a cluster, and changes of it.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::cluster_client::ClusterClient;

use crate::caller::Caller;
use crate::error::Result;
use crate::types::{Header, ReadLevel};

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started.
    pub client_urls: Vec<String>,
    /// Whether it only learns, and does not vote.
    pub is_learner: bool,
}

/// All members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Members {
    /// What comes with every answer.
    pub header: Header,
    /// The members.
    pub members: Vec<Member>,
}

/// What came of adding a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AddReply {
    /// What comes with every answer.
    pub header: Header,
    /// The new member.
    pub member: Member,
    /// All members, the new one among them.
    pub members: Vec<Member>,
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Member {
        Member {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_ur_ls,
            client_urls: member.client_ur_ls,
            is_learner: member.is_learner,
        }
    }
}

fn members_of(members: Vec<pb::Member>) -> Vec<Member> {
    members.into_iter().map(Member::from).collect()
}

pub(crate) async fn members(caller: &Caller, level: ReadLevel) -> Result<Members> {
    let request = pb::MemberListRequest {
        linearizable: level != ReadLevel::Eventual,
    };
    let (reply, metadata) = caller
        .read(request, |channel, request| async move {
            ClusterClient::new(channel).member_list(request).await
        })
        .await?;
    Ok(Members {
        header: Header::new(reply.header, &metadata),
        members: members_of(reply.members),
    })
}

pub(crate) async fn add_member(
    caller: &Caller,
    peer_urls: Vec<String>,
    is_learner: bool,
) -> Result<AddReply> {
    let request = pb::MemberAddRequest {
        peer_ur_ls: peer_urls,
        is_learner,
    };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            ClusterClient::new(channel).member_add(request).await
        })
        .await?;
    Ok(AddReply {
        header: Header::new(reply.header, &metadata),
        member: reply.member.map(Member::from).unwrap_or_default(),
        members: members_of(reply.members),
    })
}

pub(crate) async fn remove_member(caller: &Caller, id: u64) -> Result<Members> {
    let request = pb::MemberRemoveRequest { id };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            ClusterClient::new(channel).member_remove(request).await
        })
        .await?;
    Ok(Members {
        header: Header::new(reply.header, &metadata),
        members: members_of(reply.members),
    })
}

pub(crate) async fn update_member(
    caller: &Caller,
    id: u64,
    peer_urls: Vec<String>,
) -> Result<Members> {
    let request = pb::MemberUpdateRequest {
        id,
        peer_ur_ls: peer_urls,
    };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            ClusterClient::new(channel).member_update(request).await
        })
        .await?;
    Ok(Members {
        header: Header::new(reply.header, &metadata),
        members: members_of(reply.members),
    })
}

pub(crate) async fn promote_member(caller: &Caller, id: u64) -> Result<Members> {
    let request = pb::MemberPromoteRequest { id };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            ClusterClient::new(channel).member_promote(request).await
        })
        .await?;
    Ok(Members {
        header: Header::new(reply.header, &metadata),
        members: members_of(reply.members),
    })
}
