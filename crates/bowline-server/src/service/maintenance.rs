//! `etcdserverpb.Maintenance`: status, alarms, snapshots, hashes, defragmentation.

use std::sync::Arc;

use bowline::Revision;
use bowline_cluster::{Error, LocalClient, ReadLevel, blocking};
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{AlarmKind, Command, Need, Refusal};
use pb::alarm_request::AlarmAction;
use pb::downgrade_request::DowngradeAction;
use pb::maintenance_server::Maintenance;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::reading::turn_within;
use super::{MAINTENANCE_WAIT_MAX, check, check_leader, snapshot};
use crate::context::Context;
use crate::status::{Fault, status};
use crate::version::{CLUSTER_VERSION, CLUSTER_VERSION_SHORT, VERSION};

/// The maintenance service.
#[derive(Debug, Clone)]
pub(crate) struct MaintenanceService {
    context: Arc<Context>,
}

impl MaintenanceService {
    pub(crate) fn new(context: Arc<Context>) -> MaintenanceService {
        MaintenanceService { context }
    }

    /// Computes a hash, in turn and on a blocking thread: it reads the whole database.
    async fn in_turn<T: Send + 'static>(
        &self,
        hash: impl FnOnce(&LocalClient) -> bowline_cluster::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let client = self.context.client.clone();
        let turn = turn_within(&self.context.maintenance, MAINTENANCE_WAIT_MAX).await?;
        // The hash goes on when the client goes away, so it keeps the turn.
        let hashed = blocking::spawn(move || {
            let _turn = turn;
            hash(&client)
        })
        .await;
        let hashed = hashed.map_err(|error| Fault::Internal(error.to_string()))?;
        hashed.map_err(status)
    }

    /// Waits until this member has heard of each alarm that was raised or ended before. One whose data differs, or is being
    /// replaced, goes by what it knows: otherwise it could not tell its own alarm.
    async fn hear_of_alarms(&self) -> Result<(), Status> {
        let barrier = self.context.client.read_barrier(ReadLevel::Linearizable);
        match barrier.await {
            Ok(_) | Err(Error::Repairing | Error::Refused(Refusal::Corrupt)) => Ok(()),
            Err(error) => Err(status(error)),
        }
    }

    fn alarms(&self, wanted: Wanted) -> Vec<pb::AlarmMember> {
        let alarms = self.context.client.alarms().into_iter();
        alarms
            .filter(|(_, kind)| match wanted {
                Wanted::Any => true,
                Wanted::Only(wanted) => *kind == wanted,
                Wanted::Unknown => false,
            })
            .map(|(member, kind)| alarm(member, kind))
            .collect()
    }
}

fn alarm(member_id: u64, kind: AlarmKind) -> pb::AlarmMember {
    let alarm = match kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    };
    pb::AlarmMember {
        member_id,
        alarm: alarm.into(),
    }
}

/// The requested alarms.
#[derive(Clone, Copy)]
enum Wanted {
    Any,
    Only(AlarmKind),
    /// An unknown kind, which no member raises.
    Unknown,
}

impl Wanted {
    fn of(number: i32) -> Wanted {
        match pb::AlarmType::try_from(number) {
            Ok(pb::AlarmType::None) => Wanted::Any,
            Ok(pb::AlarmType::Nospace) => Wanted::Only(AlarmKind::NoSpace),
            Ok(pb::AlarmType::Corrupt) => Wanted::Only(AlarmKind::Corrupt),
            Err(_) => Wanted::Unknown,
        }
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        check(&self.context, request.metadata())?;
        self.hear_of_alarms().await?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = self.context.client.by(&caller);
        client.check_user().map_err(status)?;
        let request = request.into_inner();
        let wanted = Wanted::of(request.alarm);
        let action = AlarmAction::try_from(request.action)
            .map_err(|_| Fault::Invalid("etcdserver: unknown action on alarms"))?;
        let is_raised = match action {
            AlarmAction::Get => {
                return Ok(Response::new(pb::AlarmResponse {
                    header: self.context.header_now(),
                    alarms: self.alarms(wanted),
                }));
            }
            AlarmAction::Activate => true,
            AlarmAction::Deactivate => false,
        };
        client
            .check_newest(&|each| each(Need::Root))
            .await
            .map_err(status)?;
        let mut changed = Vec::new();
        if let Wanted::Only(kind) = wanted {
            let member = request.member_id;
            let was_raised = self.context.client.alarms().contains(&(member, kind));
            // Also where it changes nothing: another member may have changed the alarm in between.
            let command = Command::Alarm {
                member,
                kind,
                is_raised,
            };
            let applied = client.execute(command).await;
            applied.map_err(status)?.reply.result.map_err(status)?;
            // An alarm that was raised before is included.
            if was_raised || is_raised {
                changed.push(alarm(member, kind));
            }
        }
        Ok(Response::new(pb::AlarmResponse {
            header: self.context.header_now(),
            alarms: changed,
        }))
    }

    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        check_leader(&self.context, request.metadata())?;
        let now = self.context.client.status();
        let mut errors = Vec::new();
        if now.leader.is_none() {
            errors.push("etcdserver: no leader".to_owned());
        }
        if now.lacks_entries {
            errors.push("this member lacks entries that it had acknowledged: it gives no vote until it has them again".to_owned());
        }
        for (member, kind) in self.context.client.alarms() {
            let kind = match kind {
                AlarmKind::NoSpace => "NOSPACE",
                AlarmKind::Corrupt => "CORRUPT",
            };
            // Protobuf's text format, which omits a number of 0.
            let member = match member {
                0 => String::new(),
                member => format!("memberID:{member} "),
            };
            errors.push(format!("{member}alarm:{kind}"));
        }
        Ok(Response::new(pb::StatusResponse {
            header: self.context.header(now.revision, now.term),
            version: VERSION.to_owned(),
            db_size: now.size_bytes as i64,
            leader: now.leader.unwrap_or(0),
            raft_index: now.raft_index,
            raft_term: now.term,
            raft_applied_index: now.applied_index,
            errors,
            db_size_in_use: now.size_in_use_bytes as i64,
            is_learner: now.is_learner,
            storage_version: CLUSTER_VERSION.to_owned(),
            db_size_quota: self.context.settings.quota_bytes as i64,
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        check(&self.context, request.metadata())?;
        let db = self.context.client.db().clone();
        let turn = turn_within(&self.context.maintenance, MAINTENANCE_WAIT_MAX).await?;
        // Reads and writes go on meanwhile, so the call does not wait for it.
        blocking::spawn(move || {
            let _turn = turn;
            if let Err(error) = db.compact() {
                tracing::warn!(%error, "merging the tables failed");
            }
        });
        // As in etcd, neither this reply nor that of `MoveLeader` has a header.
        Ok(Response::new(pb::DefragmentResponse::default()))
    }

    async fn hash(
        &self,
        request: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        check(&self.context, request.metadata())?;
        let (_, hashes) = self.in_turn(LocalClient::tree_hashes).await?;
        Ok(Response::new(pb::HashResponse {
            header: self.context.header_now(),
            // Of every tree, as in etcd. Clients take 0 for a missing hash.
            hash: (hashes.combined() as u32).max(1),
        }))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        check(&self.context, request.metadata())?;
        // 0 is the newest; so is what is less, as in etcd.
        let asked = match request.into_inner().revision {
            ..=0 => None,
            revision => Some(Revision::new(revision.unsigned_abs())),
        };
        let hashed = self.in_turn(move |client| client.hash_kv(asked));
        let (hash, at, compacted) = hashed.await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.context.header_now(),
            hash,
            // etcd's number when there was no compaction.
            compact_revision: if compacted == 0 {
                -1
            } else {
                compacted.get() as i64
            },
            hash_revision: at.get() as i64,
        }))
    }

    type SnapshotStream = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        check_leader(&self.context, request.metadata())?;
        let turn = turn_within(&self.context.snapshots, MAINTENANCE_WAIT_MAX).await?;
        Ok(Response::new(snapshot::stream(&self.context, turn)?))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        check(&self.context, request.metadata())?;
        let now = self.context.client.status();
        if now.leader != Some(now.member_id) {
            return Err(Fault::NotLeader.into());
        }
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = self.context.client.by(&caller);
        let moved = client.move_leader(request.into_inner().target_id);
        moved.await.map_err(status)?;
        Ok(Response::new(pb::MoveLeaderResponse::default()))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        check(&self.context, request.metadata())?;
        let request = request.into_inner();
        if request.action == i32::from(DowngradeAction::Cancel) {
            // No downgrade is under way, so there is nothing to cancel.
            return Ok(Response::new(pb::DowngradeResponse {
                header: self.context.header_now(),
                version: CLUSTER_VERSION_SHORT.to_owned(),
            }));
        }
        Err(refuse_downgrade(request.action, &request.version).into())
    }
}

/// The storage has no older format that etcd's versions would name, so no downgrade is possible. The replies
/// are etcd's for an impossible version.
fn refuse_downgrade(action: i32, version: &str) -> Fault {
    match DowngradeAction::try_from(action) {
        Ok(DowngradeAction::Validate | DowngradeAction::Enable) if is_version(version) => {
            Fault::DowngradeVersionInvalid
        }
        Ok(DowngradeAction::Validate | DowngradeAction::Enable) => Fault::DowngradeVersionMalformed,
        Ok(DowngradeAction::Cancel) | Err(_) => Fault::UnknownMethod,
    }
}

/// Whether a text is a version, with or without a patch level.
fn is_version(text: &str) -> bool {
    let number = |part: &str| part.parse::<u32>().is_ok();
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    (2..=3).contains(&parts.len()) && parts.into_iter().all(number)
}

#[cfg(test)]
mod tests {
    use std::task::{Context as Task, Poll, Waker};

    use super::*;
    use crate::test_server::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_defragmentation_takes_its_turn() {
        let server = TestServer::start().await;
        let service = MaintenanceService::new(server.context().clone());
        let turns = server.context().maintenance.clone();
        let turn = turns.clone().acquire_owned().await.unwrap();
        let mut waiting = service.defragment(Request::new(pb::DefragmentRequest {}));
        // All that it does before it waits for the turn it does at once.
        let polled = waiting.as_mut().poll(&mut Task::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "it has its turn");
        drop(turn);
        waiting.await.unwrap();
        // It keeps the turn until it has ended.
        let _turn = turns.acquire_owned().await.unwrap();
    }

    #[test]
    fn no_version_can_be_gone_back_to() {
        let (validate, enable) = (DowngradeAction::Validate, DowngradeAction::Enable);
        for action in [validate as i32, enable as i32] {
            for version in ["3.5", "3.5.0", "3.6.0", "3.5.1-rc.1+x"] {
                let fault = refuse_downgrade(action, version);
                assert_eq!(fault, Fault::DowngradeVersionInvalid, "{version}");
            }
            for version in ["", "3", "three", "3.5.", "3.5.0.1", "v3.5"] {
                let fault = refuse_downgrade(action, version);
                assert_eq!(fault, Fault::DowngradeVersionMalformed, "{version}");
            }
        }
        assert_eq!(refuse_downgrade(9, "3.5"), Fault::UnknownMethod);
    }
}
