//! What is asked of one member: its state, alarms, hashes, and upkeep.
//!
//! These go to the endpoint in use, and its answer speaks for that member only. A client with one
//! endpoint asks a certain member.

use std::fmt;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::alarm_request::AlarmAction;
use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::maintenance_client::MaintenanceClient;

use crate::pool::Repeat;
use crate::reply::{signed, unsigned};
use crate::{Client, Header, Result};

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// What comes with every answer.
    pub header: Header,
    /// The version of the API that it speaks.
    pub version: String,
    /// The bytes of its database.
    pub db_size_bytes: u64,
    /// How many of them are in use.
    pub db_size_in_use_bytes: u64,
    /// The leader it follows; 0 for none.
    pub leader: u64,
    /// The newest log entry that is committed.
    pub raft_index: u64,
    /// The newest log entry that is applied.
    pub raft_applied_index: u64,
    /// The term of the leader.
    pub raft_term: u64,
    /// Whether it only learns.
    pub is_learner: bool,
    /// What is wrong with it.
    pub errors: Vec<String>,
}

/// Something that is wrong with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The member.
    pub member_id: u64,
    /// What is wrong.
    pub kind: AlarmKind,
}

/// What is wrong with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// Its database is full.
    NoSpace,
    /// Its data differs from that of the others.
    Corrupt,
    /// Something this client has no name for.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HashKv {
    /// What comes with every answer.
    pub header: Header,
    /// The hash.
    pub hash: u32,
    /// The revision up to which the member has compacted.
    pub compact_revision: u64,
    /// The revision that was hashed; 0 where the server does not say.
    pub hash_revision: u64,
}

fn alarms(alarms: &[pb::AlarmMember]) -> Vec<Alarm> {
    alarms
        .iter()
        .map(|alarm| Alarm {
            member_id: alarm.member_id,
            kind: match alarm.alarm {
                1 => AlarmKind::NoSpace,
                2 => AlarmKind::Corrupt,
                other => AlarmKind::Other(other),
            },
        })
        .collect()
}

impl Client {
    /// Gives up the history below a revision. With `physical`, returns once the space is free.
    pub async fn compact(&self, revision: u64, physical: bool) -> Result<Header> {
        let request = pb::CompactionRequest {
            revision: signed(revision),
            physical,
        };
        let (reply, metadata) = self
            .pool()
            .call(
                Repeat::Never,
                None,
                request,
                |channel, request| async move { KvClient::new(channel).compact(request).await },
            )
            .await?;
        Ok(Header::new(reply.header, &metadata))
    }

    /// Says how the member is.
    pub async fn status(&self) -> Result<Status> {
        let request = pb::StatusRequest {};
        let (reply, metadata) =
            self.pool()
                .call(
                    Repeat::Always,
                    None,
                    request,
                    |channel, request| async move {
                        MaintenanceClient::new(channel).status(request).await
                    },
                )
                .await?;
        Ok(Status {
            header: Header::new(reply.header, &metadata),
            version: reply.version,
            db_size_bytes: unsigned(reply.db_size),
            db_size_in_use_bytes: unsigned(reply.db_size_in_use),
            leader: reply.leader,
            raft_index: reply.raft_index,
            raft_applied_index: reply.raft_applied_index,
            raft_term: reply.raft_term,
            is_learner: reply.is_learner,
            errors: reply.errors,
        })
    }

    /// Lists what is wrong with members.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        self.alarm(pb::AlarmRequest {
            action: AlarmAction::Get.into(),
            ..pb::AlarmRequest::default()
        })
        .await
    }

    /// Takes back all alarms. Gives those that were taken back.
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        self.alarm(pb::AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            ..pb::AlarmRequest::default()
        })
        .await
    }

    /// Takes back one alarm.
    pub async fn disarm_one(&self, alarm: Alarm) -> Result<Vec<Alarm>> {
        self.alarm(pb::AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: alarm.member_id,
            alarm: match alarm.kind {
                AlarmKind::NoSpace => 1,
                AlarmKind::Corrupt => 2,
                AlarmKind::Other(number) => number,
            },
        })
        .await
    }

    async fn alarm(&self, request: pb::AlarmRequest) -> Result<Vec<Alarm>> {
        // Taking back what is taken back changes nothing.
        let (reply, _) =
            self.pool()
                .call(
                    Repeat::Always,
                    None,
                    request,
                    |channel, request| async move {
                        MaintenanceClient::new(channel).alarm(request).await
                    },
                )
                .await?;
        Ok(alarms(&reply.alarms))
    }

    /// Gives the space of deleted entries back to the disk. etcd's member serves nothing meanwhile.
    pub async fn defragment(&self) -> Result<Header> {
        let request = pb::DefragmentRequest {};
        let (reply, metadata) = self
            .pool()
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

    /// Hashes all keys of the member as of a revision; as of the newest for 0.
    pub async fn hash_kv(&self, revision: u64) -> Result<HashKv> {
        let request = pb::HashKvRequest {
            revision: signed(revision),
        };
        let (reply, metadata) =
            self.pool()
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
            compact_revision: unsigned(reply.compact_revision),
            hash_revision: unsigned(reply.hash_revision),
        })
    }

    /// Hands leadership to another member. Endpoints that are not the leader are passed over.
    pub async fn move_leader(&self, target: u64) -> Result<Header> {
        let request = pb::MoveLeaderRequest { target_id: target };
        let (reply, metadata) = self
            .pool()
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
}
