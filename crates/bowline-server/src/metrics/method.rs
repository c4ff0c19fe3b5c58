//! The served methods.

/// Defines the enum, its paths, and the look-up by path.
macro_rules! methods {
    ($($name:ident = $service:literal / $method:literal,)*) => {
        /// A method of a service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Method {
            $($name,)*
        }

        impl Method {
            /// All methods.
            pub(crate) const ALL: &[Method] = &[$(Method::$name,)*];

            /// The method of a path.
            pub(crate) fn of_path(path: &str) -> Option<Method> {
                match path {
                    $(concat!("/", $service, "/", $method) => Some(Method::$name),)*
                    _ => None,
                }
            }

            /// Service and method.
            pub(crate) fn names(self) -> (&'static str, &'static str) {
                match self {
                    $(Method::$name => ($service, $method),)*
                }
            }
        }
    };
}

methods! {
    Range = "etcdserverpb.KV" / "Range",
    RangeStream = "etcdserverpb.KV" / "RangeStream",
    Put = "etcdserverpb.KV" / "Put",
    DeleteRange = "etcdserverpb.KV" / "DeleteRange",
    Txn = "etcdserverpb.KV" / "Txn",
    Compact = "etcdserverpb.KV" / "Compact",
    Watch = "etcdserverpb.Watch" / "Watch",
    LeaseGrant = "etcdserverpb.Lease" / "LeaseGrant",
    LeaseRevoke = "etcdserverpb.Lease" / "LeaseRevoke",
    LeaseKeepAlive = "etcdserverpb.Lease" / "LeaseKeepAlive",
    LeaseTimeToLive = "etcdserverpb.Lease" / "LeaseTimeToLive",
    LeaseLeases = "etcdserverpb.Lease" / "LeaseLeases",
    MemberAdd = "etcdserverpb.Cluster" / "MemberAdd",
    MemberRemove = "etcdserverpb.Cluster" / "MemberRemove",
    MemberUpdate = "etcdserverpb.Cluster" / "MemberUpdate",
    MemberList = "etcdserverpb.Cluster" / "MemberList",
    MemberPromote = "etcdserverpb.Cluster" / "MemberPromote",
    Alarm = "etcdserverpb.Maintenance" / "Alarm",
    Status = "etcdserverpb.Maintenance" / "Status",
    Defragment = "etcdserverpb.Maintenance" / "Defragment",
    Hash = "etcdserverpb.Maintenance" / "Hash",
    HashKv = "etcdserverpb.Maintenance" / "HashKV",
    Snapshot = "etcdserverpb.Maintenance" / "Snapshot",
    MoveLeader = "etcdserverpb.Maintenance" / "MoveLeader",
    Downgrade = "etcdserverpb.Maintenance" / "Downgrade",
    Lock = "v3lockpb.Lock" / "Lock",
    Unlock = "v3lockpb.Lock" / "Unlock",
    Campaign = "v3electionpb.Election" / "Campaign",
    Proclaim = "v3electionpb.Election" / "Proclaim",
    Leader = "v3electionpb.Election" / "Leader",
    Observe = "v3electionpb.Election" / "Observe",
    Resign = "v3electionpb.Election" / "Resign",
    AuthEnable = "etcdserverpb.Auth" / "AuthEnable",
    AuthDisable = "etcdserverpb.Auth" / "AuthDisable",
    AuthStatus = "etcdserverpb.Auth" / "AuthStatus",
    Authenticate = "etcdserverpb.Auth" / "Authenticate",
    UserAdd = "etcdserverpb.Auth" / "UserAdd",
    UserGet = "etcdserverpb.Auth" / "UserGet",
    UserList = "etcdserverpb.Auth" / "UserList",
    UserDelete = "etcdserverpb.Auth" / "UserDelete",
    UserChangePassword = "etcdserverpb.Auth" / "UserChangePassword",
    UserGrantRole = "etcdserverpb.Auth" / "UserGrantRole",
    UserRevokeRole = "etcdserverpb.Auth" / "UserRevokeRole",
    RoleAdd = "etcdserverpb.Auth" / "RoleAdd",
    RoleGet = "etcdserverpb.Auth" / "RoleGet",
    RoleList = "etcdserverpb.Auth" / "RoleList",
    RoleDelete = "etcdserverpb.Auth" / "RoleDelete",
    RoleGrantPermission = "etcdserverpb.Auth" / "RoleGrantPermission",
    RoleRevokePermission = "etcdserverpb.Auth" / "RoleRevokePermission",
    HealthCheck = "grpc.health.v1.Health" / "Check",
    HealthWatch = "grpc.health.v1.Health" / "Watch",
    ReflectionV1 = "grpc.reflection.v1.ServerReflection" / "ServerReflectionInfo",
    ReflectionV1Alpha = "grpc.reflection.v1alpha.ServerReflection" / "ServerReflectionInfo",

    GraphWrite = "bowline.v1.Graph" / "Write",
    GraphGetBlocks = "bowline.v1.Graph" / "GetBlocks",
    GraphGetEdges = "bowline.v1.Graph" / "GetEdges",
    GraphNeighbors = "bowline.v1.Graph" / "Neighbors",
    GraphTraverse = "bowline.v1.Graph" / "Traverse",
    GraphShortestPath = "bowline.v1.Graph" / "ShortestPath",
    GraphListBlocks = "bowline.v1.Graph" / "ListBlocks",
    GraphListEdges = "bowline.v1.Graph" / "ListEdges",
    GraphOrder = "bowline.v1.Graph" / "Order",
    GraphComponents = "bowline.v1.Graph" / "Components",
    GraphStats = "bowline.v1.Graph" / "Stats",
    GraphPageRank = "bowline.v1.Graph" / "PageRank",
    GraphCommunities = "bowline.v1.Graph" / "Communities",
    GraphTriangles = "bowline.v1.Graph" / "Triangles",
    GraphClustering = "bowline.v1.Graph" / "Clustering",
    GraphKHop = "bowline.v1.Graph" / "KHop",
    GraphSimplePaths = "bowline.v1.Graph" / "SimplePaths",
    GraphQuery = "bowline.v1.Graph" / "Query",
    StoreGet = "bowline.v1.Store" / "Get",
    StoreRange = "bowline.v1.Store" / "Range",
    StoreHistory = "bowline.v1.Store" / "History",
    StoreCommit = "bowline.v1.Store" / "Commit",
    MsLeaseGrant = "bowline.v1.Lease" / "Grant",
    MsLeaseKeepAlive = "bowline.v1.Lease" / "KeepAlive",
    MsLeaseTimeToLive = "bowline.v1.Lease" / "TimeToLive",
    MsLeaseRevoke = "bowline.v1.Lease" / "Revoke",
    MemberRepair = "bowline.v1.Members" / "Repair",
    RoleGrantKinds = "bowline.v1.Roles" / "GrantKinds",
    RoleRevokeKinds = "bowline.v1.Roles" / "RevokeKinds",
    RoleListKinds = "bowline.v1.Roles" / "ListKinds",
    QuotaSet = "bowline.v1.Quotas" / "Set",
    QuotaList = "bowline.v1.Quotas" / "List",
    QuotaRemove = "bowline.v1.Quotas" / "Remove",
    IndexCreate = "bowline.v1.Indexes" / "Create",
    IndexList = "bowline.v1.Indexes" / "List",
    IndexDrop = "bowline.v1.Indexes" / "Drop",
}

/// How many messages a call has on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// One request, one reply.
    Unary,
    /// One request, a stream of replies.
    ServerStream,
    /// A stream on both sides.
    BidiStream,
}

impl CallKind {
    /// Its name in the labels of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallKind::Unary => "unary",
            CallKind::ServerStream => "server_stream",
            CallKind::BidiStream => "bidi_stream",
        }
    }
}

impl Method {
    /// Whether its request is a stream.
    pub(crate) fn takes_stream(self) -> bool {
        self.kind() == CallKind::BidiStream
    }

    /// How many messages there are on each side.
    pub(crate) fn kind(self) -> CallKind {
        use Method as M;
        match self {
            M::Watch | M::LeaseKeepAlive | M::ReflectionV1 | M::ReflectionV1Alpha => {
                CallKind::BidiStream
            }
            M::RangeStream
            | M::Snapshot
            | M::Observe
            | M::HealthWatch
            | M::GraphNeighbors
            | M::GraphTraverse
            | M::GraphListBlocks
            | M::GraphListEdges
            | M::GraphOrder
            | M::GraphComponents
            | M::GraphPageRank
            | M::GraphCommunities
            | M::GraphTriangles
            | M::GraphClustering
            | M::GraphKHop
            | M::GraphSimplePaths
            | M::GraphQuery
            | M::StoreRange
            | M::StoreHistory => CallKind::ServerStream,
            _ => CallKind::Unary,
        }
    }

    /// Whether rates limit it. Health is asked for by machines that restart a server which does not answer.
    pub(crate) fn is_limited(self) -> bool {
        use Method as M;
        !matches!(
            self,
            M::HealthCheck | M::HealthWatch | M::ReflectionV1 | M::ReflectionV1Alpha
        )
    }

    /// Whether it may change what is stored, or the cluster.
    pub(crate) fn changes(self) -> bool {
        use Method as M;
        match self {
            M::Put
            | M::DeleteRange
            | M::Txn
            | M::Compact
            | M::LeaseGrant
            | M::LeaseRevoke
            | M::MemberAdd
            | M::MemberRemove
            | M::MemberUpdate
            | M::MemberPromote
            | M::Alarm
            | M::Defragment
            | M::MoveLeader
            | M::Downgrade
            | M::Lock
            | M::Unlock
            | M::Campaign
            | M::Proclaim
            | M::Resign
            | M::AuthEnable
            | M::AuthDisable
            | M::UserAdd
            | M::UserDelete
            | M::UserChangePassword
            | M::UserGrantRole
            | M::UserRevokeRole
            | M::RoleAdd
            | M::RoleDelete
            | M::RoleGrantPermission
            | M::RoleRevokePermission
            | M::RoleGrantKinds
            | M::RoleRevokeKinds
            | M::GraphWrite
            // It may write.
            | M::GraphQuery
            | M::StoreCommit
            | M::MsLeaseGrant
            | M::MsLeaseRevoke
            | M::MemberRepair
            | M::QuotaSet
            | M::QuotaRemove
            | M::IndexCreate
            | M::IndexDrop => true,
            M::Range
            | M::RangeStream
            | M::Watch
            | M::LeaseKeepAlive
            | M::LeaseTimeToLive
            | M::LeaseLeases
            | M::MemberList
            | M::Status
            | M::Hash
            | M::HashKv
            | M::Snapshot
            | M::Leader
            | M::Observe
            | M::AuthStatus
            | M::Authenticate
            | M::UserGet
            | M::UserList
            | M::RoleGet
            | M::RoleList
            | M::RoleListKinds
            | M::HealthCheck
            | M::HealthWatch
            | M::ReflectionV1
            | M::ReflectionV1Alpha
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
            | M::StoreHistory
            | M::MsLeaseKeepAlive
            | M::MsLeaseTimeToLive
            | M::QuotaList
            | M::IndexList => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics count the calls of a stream at its end. One that was taken for a unary call would count at its beginning.
    #[test]
    fn the_kind_of_every_method_is_that_of_its_service() {
        use prost_reflect::DescriptorPool;
        use tonic_reflection::pb;
        let mut pool = DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap();
        for more in [
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            pb::v1::FILE_DESCRIPTOR_SET,
            pb::v1alpha::FILE_DESCRIPTOR_SET,
        ] {
            pool.decode_file_descriptor_set(more).unwrap();
        }
        for method in Method::ALL {
            let (service, name) = method.names();
            let service = pool.get_service_by_name(service).unwrap();
            let found = service.methods().find(|found| found.name() == name);
            let found = found.unwrap();
            let kind = match (found.is_client_streaming(), found.is_server_streaming()) {
                (false, false) => CallKind::Unary,
                (false, true) => CallKind::ServerStream,
                (true, true) => CallKind::BidiStream,
                (true, false) => panic!("{method:?}"),
            };
            assert_eq!(method.kind(), kind, "{method:?}");
        }
    }

    #[test]
    fn every_method_is_found_by_its_path() {
        for method in Method::ALL {
            let (service, name) = method.names();
            assert_eq!(
                Method::of_path(&format!("/{service}/{name}")),
                Some(*method)
            );
        }
        for path in [
            "",
            "/",
            "/etcdserverpb.KV/range",
            "/etcdserverpb.Auth/UserRename",
        ] {
            assert_eq!(Method::of_path(path), None, "{path}");
        }
    }
}
