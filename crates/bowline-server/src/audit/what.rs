//! What is written of each method: two matches without a wildcard, so that a new method does not compile without its part.
//!
//! What a line may have of a request is named here, field by field: keys, ranges, kinds, ids, names of users and roles, and of
//! attributes of indexes. Values, attributes of blocks and edges, and passwords are not.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1;
use bowline_proto::v3electionpb as election;
use bowline_proto::v3lockpb as lock;
use prost::{DecodeError, Message};

use super::details::Details;
use super::options::Class;
use crate::metrics::Method;

/// The class of a method. A transaction or a query that only reads is found out by its request: see [`other_class_of`].
pub(crate) fn class_of(method: Method) -> Class {
    use Method as M;
    match method {
        M::Range
        | M::RangeStream
        | M::Leader
        | M::Observe
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
        | M::StoreGet
        | M::StoreRange
        | M::StoreHistory => Class::Read,
        M::Put
        | M::DeleteRange
        | M::Txn
        | M::Lock
        | M::Unlock
        | M::Campaign
        | M::Proclaim
        | M::Resign
        | M::GraphWrite
        // One that is to read only is found out by its request.
        | M::GraphQuery
        | M::StoreCommit => Class::Write,
        M::Watch => Class::Watch,
        M::LeaseGrant
        | M::LeaseRevoke
        | M::LeaseKeepAlive
        | M::LeaseTimeToLive
        | M::LeaseLeases
        | M::MsLeaseGrant
        | M::MsLeaseKeepAlive
        | M::MsLeaseTimeToLive
        | M::MsLeaseRevoke => Class::Lease,
        M::Authenticate => Class::Login,
        M::Compact
        | M::MemberAdd
        | M::MemberRemove
        | M::MemberUpdate
        | M::MemberList
        | M::MemberPromote
        | M::MemberRepair
        | M::Alarm
        | M::Status
        | M::Defragment
        | M::Hash
        | M::HashKv
        | M::Snapshot
        | M::MoveLeader
        | M::Downgrade
        | M::AuthEnable
        | M::AuthDisable
        | M::AuthStatus
        | M::UserAdd
        | M::UserGet
        | M::UserList
        | M::UserDelete
        | M::UserChangePassword
        | M::UserGrantRole
        | M::UserRevokeRole
        | M::RoleAdd
        | M::RoleGet
        | M::RoleList
        | M::RoleDelete
        | M::RoleGrantPermission
        | M::RoleRevokePermission
        | M::RoleGrantKinds
        | M::RoleRevokeKinds
        | M::RoleListKinds
        | M::QuotaSet
        | M::QuotaList
        | M::QuotaRemove
        | M::IndexCreate
        | M::IndexList
        | M::IndexDrop => Class::Admin,
        M::HealthCheck | M::HealthWatch | M::ReflectionV1 | M::ReflectionV1Alpha => Class::Health,
    }
}

/// Another class that calls of a method can have, which their requests show.
pub(crate) fn other_class_of(method: Method) -> Option<Class> {
    match method {
        Method::Txn | Method::GraphQuery => Some(Class::Read),
        _ => None,
    }
}

/// A request that tells what it is about.
pub(crate) trait Told {
    /// Tells it.
    fn tell(&self, out: &mut Details);
}

/// Tells what a request of a method is about. Of a stream of requests, it is called with each.
pub(crate) fn describe(
    method: Method,
    message: &[u8],
    out: &mut Details,
) -> Result<(), DecodeError> {
    use Method as M;
    match method {
        M::Range | M::RangeStream => told::<pb::RangeRequest>(message, out),
        M::Put => told::<pb::PutRequest>(message, out),
        M::DeleteRange => told::<pb::DeleteRangeRequest>(message, out),
        M::Txn => told::<pb::TxnRequest>(message, out),
        M::Compact => told::<pb::CompactionRequest>(message, out),
        M::LeaseGrant => told::<pb::LeaseGrantRequest>(message, out),
        M::LeaseRevoke => told::<pb::LeaseRevokeRequest>(message, out),
        M::LeaseKeepAlive => told::<pb::LeaseKeepAliveRequest>(message, out),
        M::LeaseTimeToLive => told::<pb::LeaseTimeToLiveRequest>(message, out),
        M::MsLeaseGrant => told::<v1::LeaseGrantRequest>(message, out),
        M::MsLeaseKeepAlive => told::<v1::LeaseKeepAliveRequest>(message, out),
        M::MsLeaseTimeToLive => told::<v1::LeaseTimeToLiveRequest>(message, out),
        M::MsLeaseRevoke => told::<v1::LeaseRevokeRequest>(message, out),
        M::MemberAdd => told::<pb::MemberAddRequest>(message, out),
        M::MemberRemove => told::<pb::MemberRemoveRequest>(message, out),
        M::MemberUpdate => told::<pb::MemberUpdateRequest>(message, out),
        M::MemberPromote => told::<pb::MemberPromoteRequest>(message, out),
        M::MemberRepair => told::<v1::MemberRepairRequest>(message, out),
        M::Alarm => told::<pb::AlarmRequest>(message, out),
        M::HashKv => told::<pb::HashKvRequest>(message, out),
        M::MoveLeader => told::<pb::MoveLeaderRequest>(message, out),
        M::Downgrade => told::<pb::DowngradeRequest>(message, out),
        M::Lock => told::<lock::LockRequest>(message, out),
        M::Unlock => told::<lock::UnlockRequest>(message, out),
        M::Campaign => told::<election::CampaignRequest>(message, out),
        M::Proclaim => told::<election::ProclaimRequest>(message, out),
        M::Leader | M::Observe => told::<election::LeaderRequest>(message, out),
        M::Resign => told::<election::ResignRequest>(message, out),
        M::Authenticate => told::<pb::AuthenticateRequest>(message, out),
        M::UserAdd => told::<pb::AuthUserAddRequest>(message, out),
        M::UserGet => told::<pb::AuthUserGetRequest>(message, out),
        M::UserDelete => told::<pb::AuthUserDeleteRequest>(message, out),
        M::UserChangePassword => told::<pb::AuthUserChangePasswordRequest>(message, out),
        M::UserGrantRole => told::<pb::AuthUserGrantRoleRequest>(message, out),
        M::UserRevokeRole => told::<pb::AuthUserRevokeRoleRequest>(message, out),
        M::RoleAdd => told::<pb::AuthRoleAddRequest>(message, out),
        M::RoleGet => told::<pb::AuthRoleGetRequest>(message, out),
        M::RoleDelete => told::<pb::AuthRoleDeleteRequest>(message, out),
        M::RoleGrantPermission => told::<pb::AuthRoleGrantPermissionRequest>(message, out),
        M::RoleRevokePermission => told::<pb::AuthRoleRevokePermissionRequest>(message, out),
        M::RoleGrantKinds => told::<v1::GrantKindsRequest>(message, out),
        M::RoleRevokeKinds => told::<v1::RevokeKindsRequest>(message, out),
        M::RoleListKinds => told::<v1::ListKindsRequest>(message, out),
        M::QuotaSet => told::<v1::QuotaSetRequest>(message, out),
        M::QuotaRemove => told::<v1::QuotaRemoveRequest>(message, out),
        M::IndexCreate => told::<v1::IndexCreateRequest>(message, out),
        M::IndexDrop => told::<v1::IndexDropRequest>(message, out),
        M::GraphWrite => told::<v1::WriteRequest>(message, out),
        M::GraphGetBlocks => told::<v1::GetBlocksRequest>(message, out),
        M::GraphGetEdges => told::<v1::GetEdgesRequest>(message, out),
        M::GraphNeighbors => told::<v1::NeighborsRequest>(message, out),
        M::GraphTraverse => told::<v1::TraverseRequest>(message, out),
        M::GraphShortestPath => told::<v1::ShortestPathRequest>(message, out),
        M::GraphListBlocks => told::<v1::ListBlocksRequest>(message, out),
        M::GraphListEdges => told::<v1::ListEdgesRequest>(message, out),
        M::GraphOrder => told::<v1::OrderRequest>(message, out),
        M::GraphComponents => told::<v1::ComponentsRequest>(message, out),
        M::GraphStats => told::<v1::StatsRequest>(message, out),
        M::GraphPageRank => told::<v1::PageRankRequest>(message, out),
        M::GraphCommunities => told::<v1::CommunitiesRequest>(message, out),
        M::GraphTriangles => told::<v1::TrianglesRequest>(message, out),
        M::GraphClustering => told::<v1::ClusteringRequest>(message, out),
        M::GraphKHop => told::<v1::KHopRequest>(message, out),
        M::GraphSimplePaths => told::<v1::SimplePathsRequest>(message, out),
        M::GraphQuery => told::<v1::QueryRequest>(message, out),
        M::StoreGet => told::<v1::GetRequest>(message, out),
        M::StoreRange => told::<v1::RangeRequest>(message, out),
        M::StoreHistory => told::<v1::HistoryRequest>(message, out),
        M::StoreCommit => told::<v1::CommitRequest>(message, out),
        // Each watch has lines of its own: see `super::watches`.
        M::Watch
        // These ask for nothing in particular.
        | M::LeaseLeases
        | M::MemberList
        | M::Status
        | M::Defragment
        | M::Hash
        | M::Snapshot
        | M::AuthEnable
        | M::AuthDisable
        | M::AuthStatus
        | M::UserList
        | M::RoleList
        | M::QuotaList
        | M::IndexList
        | M::HealthCheck
        | M::HealthWatch
        | M::ReflectionV1
        | M::ReflectionV1Alpha => Ok(()),
    }
}

fn told<M: Message + Default + Told>(message: &[u8], out: &mut Details) -> Result<(), DecodeError> {
    M::decode(message)?.tell(out);
    Ok(())
}

macro_rules! tell {
    ($($message:ty: |$request:ident, $out:ident| $tell:block)*) => {$(
        impl Told for $message {
            fn tell(&self, $out: &mut Details) {
                let $request = self;
                $tell
            }
        }
    )*};
}

/// A revision that is asked for.
fn at(revision: i64, out: &mut Details) {
    if revision != 0 {
        out.number("at", revision);
    }
}

/// The read of a request of `bowline.v1`.
fn read(read: Option<&v1::Read>, out: &mut Details) {
    let revision = read.map_or(0, |read| read.revision);
    if revision != 0 {
        out.number("at", revision);
    }
}

/// A query of the graph: its starts, and the kinds that it follows.
fn query<'a>(
    of: Option<&v1::Read>,
    starts: impl IntoIterator<Item = &'a bytes::Bytes>,
    kinds: &[String],
    out: &mut Details,
) {
    read(of, out);
    for id in starts {
        out.block("read", id);
    }
    out.kinds("read", kinds);
}

tell! {
    pb::RangeRequest: |request, out| {
        out.key("read", &request.key, &request.range_end);
        at(request.revision, out);
    }
    pb::PutRequest: |request, out| {
        out.key("put", &request.key, b"");
        if request.lease != 0 {
            out.lease("attach", request.lease);
        }
    }
    pb::DeleteRangeRequest: |request, out| {
        out.key("delete", &request.key, &request.range_end);
    }
    pb::TxnRequest: |request, out| {
        let is_read = |op: &pb::RequestOp| {
            matches!(op.request, Some(pb::request_op::Request::RequestRange(_)))
        };
        if request.success.iter().chain(&request.failure).all(is_read) {
            out.class = Some(Class::Read);
        }
        operations(request, out);
    }
    pb::CompactionRequest: |request, out| { at(request.revision, out); }
    // Neither the text nor the parameters: there are values in both.
    v1::QueryRequest: |request, out| {
        let asks_for_old = request.read.is_some_and(|read| read.revision != 0);
        if request.read_only || asks_for_old {
            out.class = Some(Class::Read);
        }
        query(request.read.as_ref(), [], &[], out);
    }
    pb::LeaseGrantRequest: |request, out| {
        out.lease("grant", request.id);
        out.number("ttl_s", request.ttl);
    }
    pb::LeaseRevokeRequest: |request, out| { out.lease("revoke", request.id); }
    pb::LeaseKeepAliveRequest: |request, out| { out.lease("keep", request.id); }
    pb::LeaseTimeToLiveRequest: |request, out| { out.lease("read", request.id); }
    v1::LeaseGrantRequest: |request, out| {
        out.lease("grant", request.id);
        out.number("ttl_ms", request.ttl_ms);
    }
    v1::LeaseRevokeRequest: |request, out| { out.lease("revoke", request.id); }
    v1::LeaseKeepAliveRequest: |request, out| { out.lease("keep", request.id); }
    v1::LeaseTimeToLiveRequest: |request, out| { out.lease("read", request.id); }
    pb::MemberAddRequest: |request, out| {
        out.text("peer_urls", &request.peer_ur_ls.join(","));
        out.number("is_learner", request.is_learner);
    }
    pb::MemberRemoveRequest: |request, out| { member(request.id, out); }
    pb::MemberUpdateRequest: |request, out| {
        member(request.id, out);
        out.text("peer_urls", &request.peer_ur_ls.join(","));
    }
    pb::MemberPromoteRequest: |request, out| { member(request.id, out); }
    v1::MemberRepairRequest: |request, out| { member(request.id, out); }
    v1::QuotaSetRequest: |request, out| {
        out.key("quota", &request.prefix, b"");
        if let Some(limits) = &request.limits {
            for (name, limit) in [("keys_max", limits.keys), ("bytes_max", limits.bytes)] {
                if let Some(limit) = limit {
                    out.number(name, limit);
                }
            }
        }
    }
    v1::QuotaRemoveRequest: |request, out| { out.key("quota", &request.prefix, b""); }
    v1::IndexCreateRequest: |request, out| {
        index(&request.kind, &request.attributes, out);
        out.number("is_unique", request.unique);
    }
    v1::IndexDropRequest: |request, out| { index(&request.kind, &request.attributes, out); }
    pb::AlarmRequest: |request, out| {
        out.text("action", request.action().as_str_name());
        out.text("alarm", request.alarm().as_str_name());
    }
    pb::HashKvRequest: |request, out| { at(request.revision, out); }
    pb::MoveLeaderRequest: |request, out| { member(request.target_id, out); }
    pb::DowngradeRequest: |request, out| {
        out.text("action", request.action().as_str_name());
        out.text("version", &request.version);
    }
    lock::LockRequest: |request, out| {
        out.key("lock", &request.name, b"");
        if request.lease != 0 {
            out.lease("attach", request.lease);
        }
    }
    lock::UnlockRequest: |request, out| { out.key("unlock", &request.key, b""); }
    election::CampaignRequest: |request, out| {
        out.key("campaign", &request.name, b"");
        out.lease("attach", request.lease);
    }
    election::ProclaimRequest: |request, out| {
        let key = request.leader.as_ref().map_or(&[][..], |leader| &leader.key);
        out.key("proclaim", key, b"");
    }
    election::LeaderRequest: |request, out| { out.key("read", &request.name, b""); }
    election::ResignRequest: |request, out| {
        let key = request.leader.as_ref().map_or(&[][..], |leader| &leader.key);
        out.key("resign", key, b"");
    }
    pb::AuthenticateRequest: |request, out| { out.text("name", &request.name); }
    pb::AuthUserAddRequest: |request, out| { out.text("name", &request.name); }
    pb::AuthUserGetRequest: |request, out| { out.text("name", &request.name); }
    pb::AuthUserDeleteRequest: |request, out| { out.text("name", &request.name); }
    pb::AuthUserChangePasswordRequest: |request, out| { out.text("name", &request.name); }
    pb::AuthUserGrantRoleRequest: |request, out| {
        out.text("name", &request.user);
        out.text("role", &request.role);
    }
    pb::AuthUserRevokeRoleRequest: |request, out| {
        out.text("name", &request.name);
        out.text("role", &request.role);
    }
    pb::AuthRoleAddRequest: |request, out| { out.text("role", &request.name); }
    pb::AuthRoleGetRequest: |request, out| { out.text("role", &request.role); }
    pb::AuthRoleDeleteRequest: |request, out| { out.text("role", &request.role); }
    pb::AuthRoleGrantPermissionRequest: |request, out| {
        out.text("role", &request.name);
        if let Some(permission) = &request.perm {
            out.text("permission", permission.perm_type().as_str_name());
            out.key("grant", &permission.key, &permission.range_end);
        }
    }
    pb::AuthRoleRevokePermissionRequest: |request, out| {
        out.text("role", &request.role);
        out.key("revoke", &request.key, &request.range_end);
    }
    v1::GrantKindsRequest: |request, out| {
        out.text("role", &request.role);
        if let Some(permission) = &request.permission {
            out.text("permission", permission.access().as_str_name());
            out.kinds("grant", [&permission.prefix]);
        }
    }
    v1::RevokeKindsRequest: |request, out| {
        out.text("role", &request.role);
        out.kinds("revoke", [&request.prefix]);
    }
    v1::ListKindsRequest: |request, out| { out.text("role", &request.role); }
    v1::WriteRequest: |request, out| {
        for write in &request.writes {
            graph_write(write, out);
        }
    }
    v1::GetBlocksRequest: |request, out| {
        query(request.read.as_ref(), &request.ids, &[], out);
    }
    v1::GetEdgesRequest: |request, out| {
        read(request.read.as_ref(), out);
        for key in &request.keys {
            edge("read", key, out);
        }
    }
    v1::NeighborsRequest: |request, out| {
        query(request.read.as_ref(), [&request.id], &request.kinds, out);
    }
    v1::TraverseRequest: |request, out| {
        query(request.read.as_ref(), &request.starts, &request.kinds, out);
    }
    v1::ShortestPathRequest: |request, out| {
        query(request.read.as_ref(), [&request.from, &request.to], &request.kinds, out);
    }
    v1::ListBlocksRequest: |request, out| { query(request.read.as_ref(), [], &[], out); }
    v1::ListEdgesRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::OrderRequest: |request, out| { query(request.read.as_ref(), [], &request.kinds, out); }
    v1::ComponentsRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::StatsRequest: |request, out| { query(request.read.as_ref(), [], &request.kinds, out); }
    v1::PageRankRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::CommunitiesRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::TrianglesRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::ClusteringRequest: |request, out| {
        query(request.read.as_ref(), [], &request.kinds, out);
    }
    v1::KHopRequest: |request, out| {
        query(request.read.as_ref(), [&request.id], &request.kinds, out);
    }
    v1::SimplePathsRequest: |request, out| {
        query(request.read.as_ref(), [&request.from, &request.to], &request.kinds, out);
    }
    v1::GetRequest: |request, out| {
        read(request.read.as_ref(), out);
        for key in &request.keys {
            out.key("read", key, b"");
        }
    }
    v1::RangeRequest: |request, out| {
        read(request.read.as_ref(), out);
        if let Some(range) = &request.range {
            out.key("read", &range.key, &range.range_end);
        }
    }
    v1::HistoryRequest: |request, out| {
        read(request.read.as_ref(), out);
        out.key("history", &request.key, b"");
    }
    v1::CommitRequest: |request, out| { commit(request, out); }
}

fn index(kind: &String, attributes: &[String], out: &mut Details) {
    out.kinds("index", [kind]);
    out.text("attributes", &attributes.join(", "));
}

fn member(id: u64, out: &mut Details) {
    out.text("member", &format!("{id:x}"));
}

/// The comparisons and operations of a transaction, of both branches.
fn operations(txn: &pb::TxnRequest, out: &mut Details) {
    use pb::request_op::Request as R;
    for compare in &txn.compare {
        out.key("compare", &compare.key, &compare.range_end);
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match &op.request {
            Some(R::RequestRange(range)) => range.tell(out),
            Some(R::RequestPut(put)) => put.tell(out),
            Some(R::RequestDeleteRange(delete)) => delete.tell(out),
            Some(R::RequestTxn(inner)) => operations(inner, out),
            None => {}
        }
    }
}

fn edge(op: &str, key: &v1::EdgeKey, out: &mut Details) {
    out.edge(op, &key.source, &key.kind, &key.target);
}

fn put_block(block: &v1::Block, out: &mut Details) {
    out.block("put", &block.id);
    out.kinds(
        "put",
        [&block.kind].into_iter().filter(|kind| !kind.is_empty()),
    );
    out.kinds("put", &block.kinds);
}

fn graph_write(write: &v1::GraphWrite, out: &mut Details) {
    use v1::graph_write::Write as W;
    match &write.write {
        Some(W::PutBlock(block) | W::PutTypedBlock(block) | W::PutBlockOfKinds(block)) => {
            put_block(block, out);
        }
        Some(W::DeleteBlock(id)) => out.block("delete", id),
        Some(W::PutEdge(put) | W::PutTypedEdge(put)) => {
            if let Some(key) = &put.key {
                edge("put", key, out);
            }
        }
        Some(W::DeleteEdge(key)) => edge("delete", key, out),
        None => {}
    }
}

/// A transaction of the client library.
fn commit(request: &v1::CommitRequest, out: &mut Details) {
    use v1::transaction_read::Read as R;
    use v1::transaction_write::Write as W;
    for one in &request.writes {
        match &one.write {
            Some(W::Put(put)) => {
                out.key("put", &put.key, b"");
                if put.lease != 0 {
                    out.lease("attach", put.lease);
                }
            }
            Some(W::Delete(key)) => out.key("delete", key, b""),
            Some(W::DeleteRange(range)) => out.key("delete", &range.key, &range.range_end),
            Some(W::Graph(write)) => graph_write(write, out),
            Some(W::Update(update)) => out.key("update", &update.key, b""),
            None => {}
        }
    }
    for expected in &request.expectations {
        out.key("compare", &expected.key, b"");
    }
    for one in &request.reads {
        match &one.read {
            Some(R::Key(key)) => out.key("read", key, b""),
            Some(R::Range(range)) => out.key("read", &range.key, &range.range_end),
            Some(R::Block(id)) => out.block("read", id),
            Some(R::Edge(key)) => edge("read", key, out),
            Some(R::EdgesOut(id) | R::EdgesIn(id)) => out.block("read_edges", id),
            None => {}
        }
    }
}
