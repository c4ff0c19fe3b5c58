//! What each method needs before its service sees the call: one exhaustive match, so that a new method does not compile
//! without it.
//!
//! This member's users may be older than a change that was acknowledged. What is refused is looked at once more when the
//! member has caught up. What is let in is checked again where it counts: a command where it is applied, a request to the
//! leader by the leader, a list in the state that it shows. What this member does alone is let in when it has caught up.

use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_replica::Need;
use http::HeaderMap;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::Context;
use crate::metrics::Method;
use crate::status::status;

/// What a call needs while authentication is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Nothing.
    Nothing,
    /// A user.
    User,
    /// The role `root`.
    Root,
    /// The role `root`, for what this member does alone.
    RootHere,
    /// What its service finds in the request, and checks itself.
    OfRequest,
}

/// The right that a method needs.
pub(super) fn right_of(method: Method) -> Right {
    use Method as M;
    match method {
        M::Range
        | M::RangeStream
        | M::Put
        | M::DeleteRange
        | M::Txn
        | M::Compact
        | M::Watch
        | M::LeaseGrant
        | M::LeaseRevoke
        | M::LeaseKeepAlive
        | M::LeaseTimeToLive
        | M::LeaseLeases
        | M::Lock
        | M::Unlock
        | M::Campaign
        | M::Proclaim
        | M::Leader
        | M::Observe
        | M::Resign
        | M::GraphWrite
        | M::GraphGetBlocks
        | M::GraphGetEdges
        | M::GraphNeighbors
        | M::GraphTraverse
        | M::GraphShortestPath
        | M::GraphListBlocks
        | M::GraphListEdges
        | M::GraphOrder
        | M::GraphComponents
        | M::GraphStats
        | M::GraphPageRank
        | M::GraphCommunities
        | M::GraphTriangles
        | M::GraphClustering
        | M::GraphKHop
        | M::GraphSimplePaths
        | M::GraphQuery
        | M::StoreGet
        | M::StoreRange
        | M::StoreHistory
        | M::StoreCommit
        | M::MsLeaseGrant
        | M::MsLeaseKeepAlive
        | M::MsLeaseTimeToLive
        | M::MsLeaseRevoke
        // To see alarms any user may, and to change them root.
        | M::Alarm
        // Whoever shows no wrong token may, as in etcd.
        | M::AuthStatus
        // A user may look at itself, and at its own roles.
        | M::UserGet
        | M::RoleGet
        | M::RoleListKinds => Right::OfRequest,
        // The list shows only the indexes of kinds that its caller may read.
        M::MemberList | M::Status | M::IndexList => Right::User,
        M::MemberAdd
        | M::MemberRemove
        | M::MemberUpdate
        | M::MemberPromote
        | M::MemberRepair
        | M::QuotaSet
        | M::QuotaList
        | M::QuotaRemove
        | M::IndexCreate
        | M::IndexDrop
        | M::MoveLeader
        | M::Downgrade
        | M::AuthEnable
        | M::AuthDisable
        | M::UserAdd
        | M::UserList
        | M::UserDelete
        | M::UserChangePassword
        | M::UserGrantRole
        | M::UserRevokeRole
        | M::RoleAdd
        | M::RoleList
        | M::RoleDelete
        | M::RoleGrantPermission
        | M::RoleRevokePermission
        | M::RoleGrantKinds
        | M::RoleRevokeKinds => Right::Root,
        M::Defragment | M::Hash | M::HashKv | M::Snapshot => Right::RootHere,
        M::Authenticate
        | M::HealthCheck
        | M::HealthWatch
        | M::ReflectionV1
        | M::ReflectionV1Alpha => Right::Nothing,
    }
}

impl Right {
    /// Whether the call goes to its service at once.
    pub(super) fn is_checked_later(self, context: &Context) -> bool {
        match self {
            Right::Nothing | Right::OfRequest => true,
            Right::User | Right::Root => !context.client.are_users_enabled(),
            // It may be enabled since.
            Right::RootHere => false,
        }
    }

    /// Refuses a call without the right.
    pub(super) async fn check(self, context: &Context, headers: HeaderMap) -> Result<(), Status> {
        if self == Right::RootHere {
            catch_up(context).await;
        }
        let caller = context
            .caller_of(&MetadataMap::from_headers(headers))
            .await?;
        let client = context.client.by(&caller);
        let checked = match self {
            Right::Nothing | Right::OfRequest => return Ok(()),
            Right::User => client.check_newest(&|_| Ok(())).await,
            Right::Root | Right::RootHere => client.check_newest(&|each| each(Need::Root)).await,
        };
        checked.map_err(status)
    }
}

/// Waits until this member has applied every change of users that was acknowledged before the call, but not for long: its
/// operator can help a member that is cut off, or far behind. Such a member shows what it has by the rights that it knows.
async fn catch_up(context: &Context) {
    const WAIT_MAX: Duration = Duration::from_secs(2);
    if context.has_leader() {
        let barrier = context.client.read_barrier(ReadLevel::Linearizable);
        // Whatever it comes to: the check is by what is known then.
        let _ = tokio::time::timeout(WAIT_MAX, barrier).await;
    }
}
