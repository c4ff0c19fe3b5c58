//! Who is in the cluster, and changes of that.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::cluster_client::ClusterClient;

use crate::pool::Repeat;
use crate::{Client, Header, ReadLevel, Result};

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

fn members(members: Vec<pb::Member>) -> Vec<Member> {
    members.into_iter().map(Member::from).collect()
}

impl Client {
    /// Lists the members. [`ReadLevel::Eventual`] lists those that the member asked knows of.
    pub async fn members(&self, level: ReadLevel) -> Result<Members> {
        let request = pb::MemberListRequest {
            linearizable: level != ReadLevel::Eventual,
        };
        let (reply, metadata) =
            self.pool()
                .call(
                    Repeat::Always,
                    None,
                    request,
                    |channel, request| async move {
                        ClusterClient::new(channel).member_list(request).await
                    },
                )
                .await?;
        Ok(Members {
            header: Header::new(reply.header, &metadata),
            members: members(reply.members),
        })
    }

    /// Adds a member that votes. It counts for majorities at once, before it has caught up: in most
    /// cases [`add_learner`](Client::add_learner) and [`promote_member`](Client::promote_member) are
    /// the better way.
    pub async fn add_member<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        self.add(peer_urls.into_iter().map(Into::into).collect(), false)
            .await
    }

    /// Adds a member that learns and does not vote.
    pub async fn add_learner<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<AddReply> {
        self.add(peer_urls.into_iter().map(Into::into).collect(), true)
            .await
    }

    async fn add(&self, peer_ur_ls: Vec<String>, is_learner: bool) -> Result<AddReply> {
        let request = pb::MemberAddRequest {
            peer_ur_ls,
            is_learner,
        };
        let (reply, metadata) =
            self.pool()
                .call(
                    Repeat::Never,
                    None,
                    request,
                    |channel, request| async move {
                        ClusterClient::new(channel).member_add(request).await
                    },
                )
                .await?;
        Ok(AddReply {
            header: Header::new(reply.header, &metadata),
            member: reply.member.map(Member::from).unwrap_or_default(),
            members: members(reply.members),
        })
    }

    /// Removes a member.
    pub async fn remove_member(&self, id: u64) -> Result<Members> {
        let request = pb::MemberRemoveRequest { id };
        let (reply, metadata) = self
            .pool()
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move {
                    ClusterClient::new(channel).member_remove(request).await
                },
            )
            .await?;
        Ok(Members {
            header: Header::new(reply.header, &metadata),
            members: members(reply.members),
        })
    }

    /// Changes where other members reach a member.
    pub async fn update_member<U: Into<String>>(
        &self,
        id: u64,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Members> {
        let request = pb::MemberUpdateRequest {
            id,
            peer_ur_ls: peer_urls.into_iter().map(Into::into).collect(),
        };
        let (reply, metadata) = self
            .pool()
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move {
                    ClusterClient::new(channel).member_update(request).await
                },
            )
            .await?;
        Ok(Members {
            header: Header::new(reply.header, &metadata),
            members: members(reply.members),
        })
    }

    /// Lets a learner that has caught up vote.
    pub async fn promote_member(&self, id: u64) -> Result<Members> {
        let request = pb::MemberPromoteRequest { id };
        let (reply, metadata) = self
            .pool()
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move {
                    ClusterClient::new(channel).member_promote(request).await
                },
            )
            .await?;
        Ok(Members {
            header: Header::new(reply.header, &metadata),
            members: members(reply.members),
        })
    }
}
