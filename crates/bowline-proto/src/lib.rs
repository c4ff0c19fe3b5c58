//! The wire of Bowline, generated from the files in `proto`: messages and services, no behaviour.
//!
//! [`etcdserverpb`], [`mvccpb`], [`authpb`], [`v3lockpb`] and [`v3electionpb`] are etcd's packages: the
//! same names and field numbers, so that its clients and tools can be used unchanged. [`v1`] is what Bowline
//! serves besides: the graph, transactions, history, and leases in milliseconds.
//! [`peer`] is between members only. Keys and values are [`bytes::Bytes`].
//!
//! ```
//! use bowline_proto::etcdserverpb::PutRequest;
//! use prost::Message;
//!
//! let put = PutRequest { key: "k".into(), value: "v".into(), ..PutRequest::default() };
//! assert_eq!(put.encode_to_vec(), b"\x0a\x01k\x12\x01v");
//! ```
//!
//! [`bytes::Bytes`]: https://docs.rs/bytes

pub mod attributes;
pub mod kinds;
pub mod problem;
pub mod update;

/// Makes a module of a generated package.
macro_rules! package {
    ($(#[$meta:meta])* $name:ident, $file:tt) => {
        $(#[$meta])*
        #[allow(missing_docs, reason = "the files in `proto` say what needs saying")]
        #[allow(clippy::all, rustdoc::all, unused_qualifications, reason = "generated")]
        pub mod $name {
            tonic::include_proto!($file);
        }
    };
}

package!(
    /// What etcd keeps for a key, and the events of watches.
    mvccpb,
    "mvccpb"
);
package!(
    /// Users, roles and permissions of etcd.
    authpb,
    "authpb"
);
package!(
    /// The services of etcd v3.
    etcdserverpb,
    "etcdserverpb"
);
package!(
    /// The service of etcd's locks.
    v3lockpb,
    "v3lockpb"
);
package!(
    /// The service of etcd's elections.
    v3electionpb,
    "v3electionpb"
);
package!(
    /// The services that etcd has no words for: graph, store, lease, members, quotas, indexes.
    v1,
    "bowline.v1"
);
package!(
    /// What the members of a cluster say to each other.
    peer,
    "bowline.peer.v1"
);

/// The descriptors of all packages but [`peer`], encoded, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
    use super::etcdserverpb::kv_server::SERVICE_NAME;
    use super::etcdserverpb::{
        Compare, LeaseTimeToLiveResponse, RangeRequest, ResponseHeader, StatusResponse,
        WatchResponse,
    };
    use super::mvccpb::event::EventType;
    use super::mvccpb::{Event, KeyValue};
    use super::v3electionpb::{
        CampaignRequest, CampaignResponse, LeaderKey, LeaderResponse, ProclaimRequest,
        ResignRequest,
    };
    use super::v3lockpb::{LockRequest, LockResponse, UnlockRequest};

    /// The bytes of a message, as a client of etcd writes them, both ways.
    fn assert_wire<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, wire: &[u8]) {
        assert_eq!(message.encode_to_vec(), wire);
        assert_eq!(M::decode(wire).unwrap(), *message);
    }

    #[test]
    fn field_numbers_are_those_of_etcd() {
        assert_wire(
            &ResponseHeader {
                cluster_id: 1,
                member_id: 2,
                revision: 3,
                raft_term: 4,
            },
            b"\x08\x01\x10\x02\x18\x03\x20\x04",
        );
        assert_wire(
            &RangeRequest {
                key: "a".into(),
                range_end: "b".into(),
                limit: 5,
                max_create_revision: 9,
                ..RangeRequest::default()
            },
            b"\x0a\x01a\x12\x01b\x18\x05\x68\x09",
        );
        // A `range_end` of its own, far behind the rest: field 64 takes two bytes.
        assert_wire(
            &Compare {
                result: CompareResult::NotEqual.into(),
                target: CompareTarget::Lease.into(),
                key: "k".into(),
                range_end: "l".into(),
                target_union: Some(TargetUnion::Lease(7)),
            },
            b"\x08\x03\x10\x04\x1a\x01k\x40\x07\x82\x04\x01l",
        );
        // Events are field 11.
        let deleted = Event {
            r#type: EventType::Delete.into(),
            kv: Some(KeyValue {
                key: "k".into(),
                mod_revision: 6,
                ..KeyValue::default()
            }),
            prev_kv: None,
        };
        assert_wire(
            &WatchResponse {
                watch_id: 1,
                events: vec![deleted],
                ..WatchResponse::default()
            },
            b"\x10\x01\x5a\x09\x08\x01\x12\x05\x0a\x01k\x18\x06",
        );
        assert_wire(
            &LeaseTimeToLiveResponse {
                id: 1,
                ttl: -1,
                ..LeaseTimeToLiveResponse::default()
            },
            b"\x10\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        );
        assert_wire(
            &StatusResponse {
                version: "3.6.0".into(),
                is_learner: true,
                db_size_quota: 2,
                ..StatusResponse::default()
            },
            b"\x12\x053.6.0\x50\x01\x60\x02",
        );
    }

    #[test]
    fn field_numbers_of_locks_and_elections_are_those_of_etcd() {
        assert_wire(
            &LockRequest {
                name: "n".into(),
                lease: 7,
            },
            b"\x0a\x01n\x10\x07",
        );
        let key = "n/7";
        let header = Some(ResponseHeader {
            revision: 3,
            ..ResponseHeader::default()
        });
        assert_wire(
            &LockResponse {
                header,
                key: key.into(),
            },
            b"\x0a\x02\x18\x03\x12\x03n/7",
        );
        assert_wire(&UnlockRequest { key: key.into() }, b"\x0a\x03n/7");
        assert_wire(
            &CampaignRequest {
                name: "n".into(),
                lease: 7,
                value: "v".into(),
            },
            b"\x0a\x01n\x10\x07\x1a\x01v",
        );
        let leader = LeaderKey {
            name: "n".into(),
            key: key.into(),
            rev: 3,
            lease: 7,
        };
        let wire = b"\x0a\x01n\x12\x03n/7\x18\x03\x20\x07";
        assert_wire(&leader, wire);
        let nested = [&b"\x0a\x0c"[..], wire].concat();
        assert_wire(
            &ProclaimRequest {
                leader: Some(leader.clone()),
                value: "v".into(),
            },
            &[&nested[..], b"\x12\x01v"].concat(),
        );
        assert_wire(
            &ResignRequest {
                leader: Some(leader.clone()),
            },
            &nested,
        );
        assert_wire(
            &CampaignResponse {
                header,
                leader: Some(leader),
            },
            &[&b"\x0a\x02\x18\x03\x12\x0c"[..], wire].concat(),
        );
        let kv = Some(KeyValue {
            key: "k".into(),
            ..KeyValue::default()
        });
        assert_wire(
            &LeaderResponse { header, kv },
            b"\x0a\x02\x18\x03\x12\x03\x0a\x01k",
        );
    }

    #[test]
    fn services_have_the_names_of_etcd() {
        assert_eq!(SERVICE_NAME, "etcdserverpb.KV");
        assert_eq!(super::v3lockpb::lock_server::SERVICE_NAME, "v3lockpb.Lock");
        let election = super::v3electionpb::election_server::SERVICE_NAME;
        assert_eq!(election, "v3electionpb.Election");
    }

    #[test]
    fn the_descriptors_keep_to_what_clients_may_call() {
        let has = |name: &str| {
            let name = name.as_bytes();
            super::DESCRIPTORS.windows(name.len()).any(|at| at == name)
        };
        assert!(has("v3electionpb") && has("bowline/v1/graph.proto"));
        assert!(!has("bowline/peer/v1/peer.proto"));
    }

    #[test]
    fn malformed_messages_are_errors() {
        // A length beyond the message; a field with the wrong type; a group that never ends.
        for wire in [&b"\x0a\x7fk"[..], b"\x18\x05\x0d", b"\x0b"] {
            assert!(RangeRequest::decode(wire).is_err(), "{wire:?}");
        }
    }
}
