//! Membership of the cluster: the list of members, and changes of it.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::cluster_client::ClusterClient;
use bowline_proto::v1::MemberRepairRequest;
use bowline_proto::v1::members_client::MembersClient;

use crate::caller::{Caller, Repeat};
use crate::v1::senseless;
use crate::{Header, MemberId, ReadLevel, Result};

/// A member of a cluster.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Member, ReadLevel};
///
/// let voters = |member: &Member| !member.is_learner;
/// let members = client.members(ReadLevel::Linearizable).await?.members;
/// for member in members.into_iter().filter(voters) {
///     println!("{} {} at {}", member.id, member.name, member.client_urls.join(", "));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty until it has started.
    pub name: String,
    /// Its addresses for other members.
    pub peer_urls: Vec<String>,
    /// Its addresses for clients; empty until it has started.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner, without a vote.
    pub is_learner: bool,
}

/// All members.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Members, ReadLevel};
///
/// let known: Members = client.members(ReadLevel::Eventual).await?;
/// println!("member {} knows {} members", known.header.member_id, known.members.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Members {
    /// The reply header.
    pub header: Header,
    /// The members.
    pub members: Vec<Member>,
}

/// The result of adding a member.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::AddReply;
///
/// let added: AddReply = client.add_learner(["http://10.0.0.4:2380"]).await?;
/// println!("start member {}, the last of {}", added.member.id, added.members.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AddReply {
    /// The reply header.
    pub header: Header,
    /// The new member.
    pub member: Member,
    /// All members, the new one among them.
    pub members: Vec<Member>,
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Member {
        Member {
            id: MemberId::new(member.id),
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

/// See [`Client::members`](crate::Client::members).
pub(crate) async fn list(caller: &Caller, level: ReadLevel) -> Result<Members> {
    let request = pb::MemberListRequest {
        linearizable: level != ReadLevel::Eventual,
    };
    let (reply, metadata) =
            caller
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

/// Adds a member that votes, or one that learns.
pub(crate) async fn add(
    caller: &Caller,
    peer_ur_ls: Vec<String>,
    is_learner: bool,
) -> Result<AddReply> {
    let request = pb::MemberAddRequest {
        peer_ur_ls,
        is_learner,
    };
    let (reply, metadata) = caller
        .call(
            Repeat::Never,
            None,
            request,
            |channel, request| async move { ClusterClient::new(channel).member_add(request).await },
        )
        .await?;
    // The member was added, whatever the reply leaves out.
    let nameless = || senseless("it does not say which member was added").of_change();
    Ok(AddReply {
        header: Header::new(reply.header, &metadata),
        member: reply.member.map(Member::from).ok_or_else(nameless)?,
        members: members(reply.members),
    })
}

/// See [`Client::remove_member`](crate::Client::remove_member).
pub(crate) async fn remove(caller: &Caller, id: MemberId) -> Result<Members> {
    let request = pb::MemberRemoveRequest { id: id.get() };
    let (reply, metadata) =
        caller
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

/// See [`Client::update_member`](crate::Client::update_member).
pub(crate) async fn update(
    caller: &Caller,
    id: MemberId,
    peer_ur_ls: Vec<String>,
) -> Result<Members> {
    let request = pb::MemberUpdateRequest {
        id: id.get(),
        peer_ur_ls,
    };
    let (reply, metadata) =
        caller
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

/// See [`Client::repair_member`](crate::Client::repair_member).
pub(crate) async fn repair(caller: &Caller, id: MemberId) -> Result<()> {
    let request = MemberRepairRequest { id: id.get() };
    let send = |channel, request| async move { MembersClient::new(channel).repair(request).await };
    // Twice is the same as once. But where the first answer is lost, the last error would not tell that it may be done.
    let repaired = caller.call(Repeat::Never, None, request, send).await;
    repaired.map(drop)
}

/// See [`Client::promote_member`](crate::Client::promote_member).
pub(crate) async fn promote(caller: &Caller, id: MemberId) -> Result<Members> {
    let request = pb::MemberPromoteRequest { id: id.get() };
    let (reply, metadata) =
        caller
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::silent::silent_server;
    use crate::{Client, Error};

    /// It was reported as not begun, although the last member that was asked may have begun it.
    #[tokio::test]
    async fn a_repair_whose_answers_are_lost_is_of_unknown_outcome() {
        let id = MemberId::new(0x5152_5354_5556_5758);
        // The id, as the message has it.
        let (address, taken) = silent_server(b"\xd8\xae\xd9\xaa\xc5\xea\x94\xa9\x51").await;
        let client = Client::builder().endpoints([address]);
        let client = client.connect_lazy().unwrap();
        let repaired = client.repair_member(id).await;
        assert!(
            matches!(repaired, Err(Error::UnknownOutcome { .. })),
            "{repaired:?}"
        );
        assert_eq!(taken.load(Ordering::Relaxed), 1, "it is sent once");
    }
}
