//! The table of paths: etcd's paths, their methods, and the descriptors of requests and replies.
//!
//! A row names its method. Descriptors are looked up by that name; a method without descriptors is answered
//! as unimplemented.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

const KV: &str = "etcdserverpb.KV";
const WATCH: &str = "etcdserverpb.Watch";
const LEASE: &str = "etcdserverpb.Lease";
const CLUSTER: &str = "etcdserverpb.Cluster";
const MAINTENANCE: &str = "etcdserverpb.Maintenance";
const AUTH: &str = "etcdserverpb.Auth";
const LOCK: &str = "v3lockpb.Lock";
const ELECTION: &str = "v3electionpb.Election";

/// Path, service, method.
const ROWS: &[(&str, &str, &str)] = &[
    ("/v3/kv/range", KV, "Range"),
    ("/v3/kv/put", KV, "Put"),
    ("/v3/kv/deleterange", KV, "DeleteRange"),
    ("/v3/kv/txn", KV, "Txn"),
    ("/v3/kv/compaction", KV, "Compact"),
    ("/v3/watch", WATCH, "Watch"),
    ("/v3/lease/grant", LEASE, "LeaseGrant"),
    ("/v3/lease/revoke", LEASE, "LeaseRevoke"),
    ("/v3/kv/lease/revoke", LEASE, "LeaseRevoke"),
    ("/v3/lease/keepalive", LEASE, "LeaseKeepAlive"),
    ("/v3/lease/timetolive", LEASE, "LeaseTimeToLive"),
    ("/v3/kv/lease/timetolive", LEASE, "LeaseTimeToLive"),
    ("/v3/lease/leases", LEASE, "LeaseLeases"),
    ("/v3/kv/lease/leases", LEASE, "LeaseLeases"),
    ("/v3/cluster/member/add", CLUSTER, "MemberAdd"),
    ("/v3/cluster/member/remove", CLUSTER, "MemberRemove"),
    ("/v3/cluster/member/update", CLUSTER, "MemberUpdate"),
    ("/v3/cluster/member/list", CLUSTER, "MemberList"),
    ("/v3/cluster/member/promote", CLUSTER, "MemberPromote"),
    ("/v3/maintenance/alarm", MAINTENANCE, "Alarm"),
    ("/v3/maintenance/status", MAINTENANCE, "Status"),
    ("/v3/maintenance/defragment", MAINTENANCE, "Defragment"),
    ("/v3/maintenance/hash", MAINTENANCE, "Hash"),
    ("/v3/maintenance/hashkv", MAINTENANCE, "HashKV"),
    ("/v3/maintenance/snapshot", MAINTENANCE, "Snapshot"),
    (
        "/v3/maintenance/transfer-leadership",
        MAINTENANCE,
        "MoveLeader",
    ),
    ("/v3/maintenance/downgrade", MAINTENANCE, "Downgrade"),
    ("/v3/lock/lock", LOCK, "Lock"),
    ("/v3/lock/unlock", LOCK, "Unlock"),
    ("/v3/election/campaign", ELECTION, "Campaign"),
    ("/v3/election/proclaim", ELECTION, "Proclaim"),
    ("/v3/election/leader", ELECTION, "Leader"),
    ("/v3/election/observe", ELECTION, "Observe"),
    ("/v3/election/resign", ELECTION, "Resign"),
    ("/v3/auth/enable", AUTH, "AuthEnable"),
    ("/v3/auth/disable", AUTH, "AuthDisable"),
    ("/v3/auth/status", AUTH, "AuthStatus"),
    ("/v3/auth/authenticate", AUTH, "Authenticate"),
    ("/v3/auth/user/add", AUTH, "UserAdd"),
    ("/v3/auth/user/get", AUTH, "UserGet"),
    ("/v3/auth/user/list", AUTH, "UserList"),
    ("/v3/auth/user/delete", AUTH, "UserDelete"),
    ("/v3/auth/user/changepw", AUTH, "UserChangePassword"),
    ("/v3/auth/user/grant", AUTH, "UserGrantRole"),
    ("/v3/auth/user/revoke", AUTH, "UserRevokeRole"),
    ("/v3/auth/role/add", AUTH, "RoleAdd"),
    ("/v3/auth/role/get", AUTH, "RoleGet"),
    ("/v3/auth/role/list", AUTH, "RoleList"),
    ("/v3/auth/role/delete", AUTH, "RoleDelete"),
    ("/v3/auth/role/grant", AUTH, "RoleGrantPermission"),
    ("/v3/auth/role/revoke", AUTH, "RoleRevokePermission"),
];

/// A row with its descriptors.
#[derive(Debug)]
pub(super) struct Route {
    /// The path of the method in gRPC.
    pub(super) method_path: String,
    /// `None` when there are no descriptors for the method.
    pub(super) messages: Option<Messages>,
}

/// The request and reply of a method.
#[derive(Debug, Clone)]
pub(super) struct Messages {
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    /// The requests are a stream.
    pub(super) takes_stream: bool,
    /// The replies are a stream.
    pub(super) gives_stream: bool,
    /// Whether the stream of requests stays open after the body: the service would end with its input, but a
    /// client that has sent its watch requests still wants the events.
    pub(super) outlives_input: bool,
}

/// The row of a path.
pub(super) fn route(path: &str) -> Option<&'static Route> {
    ROUTES.get(path)
}

/// The row with this index, for fuzzers: indexes stay stable while rows are added at the end.
#[cfg(any(test, fuzzing))]
pub(super) fn row(number: usize) -> Option<(&'static str, &'static Messages)> {
    let path = ROWS.get(number)?.0;
    Some((path, route(path)?.messages.as_ref()?))
}

static ROUTES: LazyLock<HashMap<&'static str, Route>> = LazyLock::new(|| {
    // The descriptors are compiled in, and tests look up every row.
    let pool = DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap_or_default();
    let row = |&(path, service, method): &(&'static str, &str, &str)| {
        let descriptor = pool
            .get_service_by_name(service)
            .and_then(|found| found.methods().find(|found| found.name() == method));
        let route = Route {
            method_path: format!("/{service}/{method}"),
            messages: descriptor.map(|method| Messages::of(&method, service == WATCH)),
        };
        (path, route)
    };
    ROWS.iter().map(row).collect()
});

impl Messages {
    fn of(method: &MethodDescriptor, outlives_input: bool) -> Messages {
        Messages {
            input: method.input(),
            output: method.output(),
            takes_stream: method.is_client_streaming(),
            gives_stream: method.is_server_streaming(),
            outlives_input,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_service_that_there_is_names_one_of_its_methods() {
        let pool = DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap();
        for (path, service, method) in ROWS {
            let known = pool.get_service_by_name(service).is_some();
            let route = route(path).unwrap();
            assert_eq!(
                route.messages.is_some(),
                known,
                "{path}: {service}/{method}"
            );
        }
        assert_eq!(ROUTES.len(), ROWS.len(), "a path stands twice");
    }

    /// Each method of a service has a path, or a reason here why not.
    #[test]
    fn every_method_of_the_services_has_a_path() {
        let pool = DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap();
        for service in [KV, WATCH, LEASE, CLUSTER, MAINTENANCE, AUTH, LOCK, ELECTION] {
            let Some(service) = pool.get_service_by_name(service) else {
                continue;
            };
            for method in service.methods() {
                // RangeStream is from etcd 3.7, which gives it no path.
                let has = ROWS
                    .iter()
                    .any(|row| (row.1, row.2) == (service.full_name(), method.name()));
                assert!(
                    has || method.name() == "RangeStream",
                    "{}",
                    method.full_name()
                );
            }
        }
    }
}
