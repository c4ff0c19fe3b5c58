//! Requests to one member: its state, alarms, hashes, maintenance and snapshot.
//!
//! They go to the endpoint in use, and the reply is about that member only. For a certain member, use a
//! client with one endpoint.

mod snapshot;

use std::fmt;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::alarm_request::AlarmAction;
use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use bowline_types::Revision;

pub use snapshot::Snapshot;

pub(crate) use snapshot::snapshot;

use crate::caller::{Caller, Repeat};
use crate::reply::{signed, unsigned};
use crate::{Header, MemberId, Result};

/// The state of a member.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Status;
///
/// let status: Status = client.status().await?;
/// let is_leader = status.leader == Some(status.header.member_id);
/// println!("{}, leader: {is_leader}, {} bytes", status.version, status.db_size_bytes);
/// println!("{} entries behind", status.raft_index - status.raft_applied_index);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// The reply header.
    pub header: Header,
    /// The version of the API that it speaks.
    pub version: String,
    /// The bytes of its database.
    pub db_size_bytes: u64,
    /// How many of them are in use.
    pub db_size_in_use_bytes: u64,
    /// The leader it follows, if it knows one.
    pub leader: Option<MemberId>,
    /// The newest log entry that is committed.
    pub raft_index: u64,
    /// The newest log entry that is applied.
    pub raft_applied_index: u64,
    /// The term of the leader.
    pub raft_term: u64,
    /// Whether the member is a learner.
    pub is_learner: bool,
    /// Its problems, in the words of the server: alarms, or that it has no leader.
    pub errors: Vec<String>,
}

/// An alarm of a member.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Alarm, AlarmKind};
///
/// // After keys were deleted and the history was compacted: takes writes again.
/// for alarm in client.alarms().await? {
///     if let Alarm { kind: AlarmKind::NoSpace, member_id } = alarm {
///         println!("member {member_id} was full");
///         client.disarm_one(alarm).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The member.
    pub member_id: MemberId,
    /// The problem.
    pub kind: AlarmKind,
}

/// The kind of an alarm.
///
/// ```
/// use bowline_client::AlarmKind;
///
/// // The names of etcd.
/// assert_eq!(AlarmKind::NoSpace.to_string(), "NOSPACE");
/// assert_eq!(AlarmKind::Corrupt.to_string(), "CORRUPT");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// Its database is full.
    NoSpace,
    /// Its data differs from that of the others.
    Corrupt,
    /// A kind that this client does not know.
    Other(i32),
}

impl fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlarmKind::NoSpace => f.write_str("NOSPACE"),
            AlarmKind::Corrupt => f.write_str("CORRUPT"),
            AlarmKind::Other(number) => write!(f, "{number}"),
        }
    }
}

/// The hash of all keys of a member as of a revision: equal on all members.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Client, HashKv};
///
/// // Compares two members as of one revision.
/// let one: HashKv = client.hash_kv(Some(client.status().await?.header.revision)).await?;
/// let other = Client::connect(["10.0.0.2:2379"]).await?.hash_kv(one.hash_revision).await?;
/// // Members that have compacted differently hash different revisions.
/// if one.compact_revision == other.compact_revision {
///     assert_eq!(one.hash, other.hash);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HashKv {
    /// The reply header.
    pub header: Header,
    /// The hash.
    pub hash: u32,
    /// The revision up to which the member has compacted; `None` before the first compaction.
    pub compact_revision: Option<Revision>,
    /// The revision that was hashed; `None` from servers that do not send it (etcd before 3.6).
    pub hash_revision: Option<Revision>,
}

/// A revision that the wire sends as 0 or less where there is none.
fn revision_of(number: i64) -> Option<Revision> {
    (number > 0).then(|| Revision::new(unsigned(number)))
}

fn of_wire(alarms: &[pb::AlarmMember]) -> Vec<Alarm> {
    alarms
        .iter()
        .map(|alarm| Alarm {
            member_id: MemberId::new(alarm.member_id),
            kind: match alarm.alarm {
                1 => AlarmKind::NoSpace,
                2 => AlarmKind::Corrupt,
                other => AlarmKind::Other(other),
            },
        })
        .collect()
}

/// See [`Client::trim_history`](crate::Client::trim_history).
pub(crate) async fn trim_history(
    caller: &Caller,
    revision: Revision,
    physical: bool,
) -> Result<Header> {
    let request = pb::CompactionRequest {
        revision: signed(revision.get()),
        physical,
    };
    let (reply, metadata) = caller
        .call(
            Repeat::Never,
            None,
            request,
            |channel, request| async move { KvClient::new(channel).compact(request).await },
        )
        .await?;
    Ok(Header::new(reply.header, &metadata))
}

/// See [`Client::status`](crate::Client::status).
pub(crate) async fn status(caller: &Caller) -> Result<Status> {
    let request = pb::StatusRequest {};
    let (reply, metadata) = caller
        .call(
            Repeat::Always,
            None,
            request,
            |channel, request| async move { MaintenanceClient::new(channel).status(request).await },
        )
        .await?;
    Ok(Status {
        header: Header::new(reply.header, &metadata),
        version: reply.version,
        db_size_bytes: unsigned(reply.db_size),
        db_size_in_use_bytes: unsigned(reply.db_size_in_use),
        // 0 is none.
        leader: (reply.leader != 0).then(|| MemberId::new(reply.leader)),
        raft_index: reply.raft_index,
        raft_applied_index: reply.raft_applied_index,
        raft_term: reply.raft_term,
        is_learner: reply.is_learner,
        errors: reply.errors,
    })
}

/// See [`Client::alarms`](crate::Client::alarms).
pub(crate) async fn alarms(caller: &Caller) -> Result<Vec<Alarm>> {
    request_alarms(
        caller,
        pb::AlarmRequest {
            action: AlarmAction::Get.into(),
            ..pb::AlarmRequest::default()
        },
    )
    .await
}

/// See [`Client::disarm`](crate::Client::disarm).
pub(crate) async fn disarm(caller: &Caller) -> Result<Vec<Alarm>> {
    let mut disarmed = Vec::new();
    // Servers disarm one alarm of one member, and ignore a request that names none.
    for alarm in alarms(caller).await? {
        disarmed.extend(disarm_one(caller, alarm).await?);
    }
    Ok(disarmed)
}

/// See [`Client::disarm_one`](crate::Client::disarm_one).
pub(crate) async fn disarm_one(caller: &Caller, alarm: Alarm) -> Result<Vec<Alarm>> {
    request_alarms(
        caller,
        pb::AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: alarm.member_id.get(),
            alarm: match alarm.kind {
                AlarmKind::NoSpace => 1,
                AlarmKind::Corrupt => 2,
                AlarmKind::Other(number) => number,
            },
        },
    )
    .await
}

async fn request_alarms(caller: &Caller, request: pb::AlarmRequest) -> Result<Vec<Alarm>> {
    // Taking back what is taken back changes nothing.
    let (reply, _) = caller
        .call(
            Repeat::Always,
            None,
            request,
            |channel, request| async move { MaintenanceClient::new(channel).alarm(request).await },
        )
        .await?;
    Ok(of_wire(&reply.alarms))
}

/// See [`Client::defragment`](crate::Client::defragment).
pub(crate) async fn defragment(caller: &Caller) -> Result<Header> {
    let request = pb::DefragmentRequest {};
    let (reply, metadata) =
        caller
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move {
                    MaintenanceClient::new(channel).defragment(request).await
                },
            )
            .await?;
    Ok(Header::new(reply.header, &metadata))
}

/// See [`Client::hash_kv`](crate::Client::hash_kv).
pub(crate) async fn hash_kv(caller: &Caller, revision: Option<Revision>) -> Result<HashKv> {
    let request = pb::HashKvRequest {
        // 0 is the newest.
        revision: revision.map_or(0, |revision| signed(revision.get())),
    };
    let (reply, metadata) =
            caller
                .call(
                    Repeat::Always,
                    None,
                    request,
                    |channel, request| async move {
                        MaintenanceClient::new(channel).hash_kv(request).await
                    },
                )
                .await?;
    Ok(HashKv {
        header: Header::new(reply.header, &metadata),
        hash: reply.hash,
        compact_revision: revision_of(reply.compact_revision),
        hash_revision: revision_of(reply.hash_revision),
    })
}

/// See [`Client::move_leader`](crate::Client::move_leader).
pub(crate) async fn move_leader(caller: &Caller, target: MemberId) -> Result<Header> {
    let request = pb::MoveLeaderRequest {
        target_id: target.get(),
    };
    let (reply, metadata) =
        caller
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move {
                    MaintenanceClient::new(channel).move_leader(request).await
                },
            )
            .await?;
    Ok(Header::new(reply.header, &metadata))
}
