//! The surface of etcd, line by line, where no other test has it: what is refused and how, what
//! counts as a revision, what an alarm stops, how long revisions are told in parts.
//!
//! The same is compared with the real etcd in `same_as_etcd`; here it holds where none is installed.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::KeyValue;
use pb::cluster_client::ClusterClient;
use pb::request_op::Request as Op;
use tonic::{Code, Response, Status};

use crate::support::{delete, put, range, start};
use crate::watches::{Watching, of};

fn refusal<T: std::fmt::Debug>(answer: Result<Response<T>, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn etcds(code: Code, text: &str) -> (Code, String) {
    (code, format!("etcdserver: {text}"))
}

fn txn(ops: impl IntoIterator<Item = Op>) -> pb::TxnRequest {
    let request = |op| pb::RequestOp { request: Some(op) };
    pb::TxnRequest {
        success: ops.into_iter().map(request).collect(),
        ..pb::TxnRequest::default()
    }
}

#[tokio::test]
async fn each_mistake_in_a_request_has_its_code_and_text() {
    use Code::{FailedPrecondition, InvalidArgument, NotFound, OutOfRange};
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let none = etcds(InvalidArgument, "key is not provided");
    assert_eq!(refusal(kv.put(put("", "v")).await), none);
    assert_eq!(refusal(kv.delete_range(delete("")).await), none);
    assert_eq!(
        refusal(kv.txn(txn([Op::RequestPut(put("", "v"))])).await),
        none
    );
    let keeps = |value: &str, lease| pb::PutRequest {
        ignore_value: true,
        ignore_lease: true,
        lease,
        ..put("k", value)
    };
    for (request, text) in [
        (keeps("", 0), "key not found"),
        (keeps("v", 0), "value is provided"),
        (keeps("", 7), "lease is provided"),
    ] {
        assert_eq!(refusal(kv.put(request).await), etcds(InvalidArgument, text));
    }
    let reads = |count| txn((0..count).map(|_| Op::RequestRange(range("k"))));
    let many = etcds(InvalidArgument, "too many operations in txn request");
    assert_eq!(refusal(kv.txn(reads(129)).await), many);
    assert_eq!(
        kv.txn(reads(128))
            .await
            .unwrap()
            .into_inner()
            .responses
            .len(),
        128
    );
    let twice = txn([Op::RequestPut(put("k", "1")), Op::RequestPut(put("k", "2"))]);
    let duplicate = etcds(InvalidArgument, "duplicate key given in txn request");
    assert_eq!(refusal(kv.txn(twice).await), duplicate);
    for (sort_order, sort_target) in [(3, 0), (0, 5), (-1, 0)] {
        let request = pb::RangeRequest {
            sort_order,
            sort_target,
            ..range("k")
        };
        let sort = etcds(InvalidArgument, "invalid sort option");
        assert_eq!(refusal(kv.range(request).await), sort);
    }
    let compact = |revision| pb::CompactionRequest {
        revision,
        physical: false,
    };
    let future = etcds(OutOfRange, "mvcc: required revision is a future revision");
    assert_eq!(refusal(kv.compact(compact(99)).await), future);
    let compacted = etcds(OutOfRange, "mvcc: required revision has been compacted");
    assert_eq!(refusal(kv.compact(compact(-1)).await), compacted);

    let mut maintenance = running.maintenance().await;
    let to = pb::MoveLeaderRequest { target_id: 77 };
    let transferee = etcds(FailedPrecondition, "bad leader transferee");
    assert_eq!(refusal(maintenance.move_leader(to).await), transferee);

    let mut cluster = ClusterClient::new(running.channel().await);
    let members = pb::MemberListRequest::default();
    let members = cluster.member_list(members).await.unwrap().into_inner();
    let own = members.members[0].clone();
    let add = |urls: &[String]| pb::MemberAddRequest {
        peer_ur_ls: urls.to_vec(),
        is_learner: true,
    };
    let exists = etcds(FailedPrecondition, "Peer URLs already exists");
    assert_eq!(
        refusal(cluster.member_add(add(&own.peer_ur_ls)).await),
        exists
    );
    let wrong = etcds(InvalidArgument, "given member URLs are invalid");
    for url in [
        "",
        "x",
        "http://127.0.0.1",
        "http://a b:1",
        "http://127.0.0.1:1/",
    ] {
        assert_eq!(
            refusal(cluster.member_add(add(&[url.to_owned()])).await),
            wrong
        );
    }
    let missing = etcds(NotFound, "member not found");
    let remove = |id| pb::MemberRemoveRequest { id };
    assert_eq!(refusal(cluster.member_remove(remove(77)).await), missing);
    let update = pb::MemberUpdateRequest {
        id: 77,
        peer_ur_ls: vec!["x".to_owned()],
    };
    assert_eq!(refusal(cluster.member_update(update).await), missing);
    let promote = |id| pb::MemberPromoteRequest { id };
    assert_eq!(refusal(cluster.member_promote(promote(77)).await), missing);
    let voter = etcds(FailedPrecondition, "can only promote a learner member");
    assert_eq!(
        refusal(cluster.member_promote(promote(own.id)).await),
        voter
    );
    let last = "re-configuration failed due to not enough started members";
    let last = etcds(Code::Unknown, last);
    assert_eq!(refusal(cluster.member_remove(remove(own.id)).await), last);
    // Nothing of it counted.
    let now = kv.range(range("k")).await.unwrap().into_inner();
    assert_eq!((now.header.unwrap().revision, now.count), (1, 0));
}

#[tokio::test]
async fn a_revision_is_a_transaction_that_changed_something() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut watching = Watching::open(&running).await;
    watching.create(of("m", "\0")).await;
    assert_eq!(watching.next().await.header.unwrap().revision, 1);
    let two = txn([Op::RequestPut(put("m", "1")), Op::RequestPut(put("a", "1"))]);
    let written = kv.txn(two).await.unwrap().into_inner();
    assert_eq!(written.header.unwrap().revision, 2);
    let nothing = kv.delete_range(delete("none")).await.unwrap().into_inner();
    assert_eq!(nothing.header.unwrap().revision, 2);
    let gone = kv.delete_range(delete("m")).await.unwrap().into_inner();
    assert_eq!(gone.header.unwrap().revision, 3);
    kv.put(put("m", "2")).await.unwrap();
    let again = kv.range(range("m")).await.unwrap().into_inner().kvs;
    let numbers = |kv: &KeyValue| (kv.create_revision, kv.mod_revision, kv.version);
    assert_eq!(numbers(&again[0]), (4, 4, 1));
    // An old revision is read in a header of now.
    let old = pb::RangeRequest {
        revision: 2,
        ..range("m")
    };
    let old = kv.range(old).await.unwrap().into_inner();
    assert_eq!(
        (old.header.unwrap().revision, numbers(&old.kvs[0])),
        (4, (2, 2, 1))
    );
    // The watch from "m" on is not told of "a", and of a deletion the key and its revision alone.
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(watching.next().await.events);
    }
    let keys: Vec<_> = told.iter().map(|event| event.kv.clone().unwrap()).collect();
    assert!(keys.iter().all(|kv| kv.key == "m"), "{keys:?}");
    let bare = KeyValue {
        key: "m".into(),
        mod_revision: 3,
        ..KeyValue::default()
    };
    assert_eq!((told[1].r#type, &keys[1]), (1, &bare));
}

#[tokio::test]
async fn while_the_data_of_members_differ_nothing_is_changed() {
    let running = start(&[]).await;
    let (mut kv, mut lease) = (running.kv().await, running.lease().await);
    let mut maintenance = running.maintenance().await;
    kv.put(put("k", "1")).await.unwrap();
    let grant = |id, ttl| pb::LeaseGrantRequest { ttl, id };
    lease.lease_grant(grant(5, 60)).await.unwrap();
    let about = |action: pb::alarm_request::AlarmAction| pb::AlarmRequest {
        action: action.into(),
        member_id: 7,
        alarm: pb::AlarmType::Corrupt.into(),
    };
    let (raise, end) = (
        pb::alarm_request::AlarmAction::Activate,
        pb::alarm_request::AlarmAction::Deactivate,
    );
    maintenance.alarm(about(raise)).await.unwrap();
    let corrupt = etcds(Code::DataLoss, "corrupt cluster");
    let compact = |revision| pb::CompactionRequest {
        revision,
        physical: false,
    };
    let leased = pb::PutRequest {
        lease: 99,
        ..put("k", "2")
    };
    let refusals = [
        refusal(kv.put(put("k", "2")).await),
        refusal(kv.put(leased).await),
        refusal(kv.delete_range(delete("none")).await),
        refusal(kv.txn(txn([Op::RequestPut(put("k", "2"))])).await),
        refusal(kv.compact(compact(2)).await),
        refusal(kv.compact(compact(-1)).await),
        refusal(lease.lease_grant(grant(6, 60)).await),
        refusal(lease.lease_grant(grant(6, i64::MAX)).await),
        refusal(lease.lease_revoke(pb::LeaseRevokeRequest { id: 5 }).await),
    ];
    for refused in refusals {
        assert_eq!(refused, corrupt);
    }
    // What is there can be looked at.
    let now = kv.range(range("k")).await.unwrap().into_inner();
    assert_eq!(
        (now.header.unwrap().revision, &now.kvs[0].value[..]),
        (2, &b"1"[..])
    );
    let read = txn([Op::RequestRange(range("k"))]);
    assert!(kv.txn(read).await.unwrap().into_inner().succeeded);
    let left = pb::LeaseTimeToLiveRequest { id: 5, keys: true };
    let left = lease.lease_time_to_live(left).await.unwrap().into_inner();
    assert_eq!(left.granted_ttl, 60);
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    assert_eq!(status.into_inner().errors, ["memberID:7 alarm:CORRUPT"]);
    // Beside it another counts when it ends, not before.
    let full = |action: pb::alarm_request::AlarmAction| pb::AlarmRequest {
        alarm: pb::AlarmType::Nospace.into(),
        ..about(action)
    };
    maintenance.alarm(full(raise)).await.unwrap();
    assert_eq!(refusal(kv.put(put("k", "2")).await), corrupt);
    maintenance.alarm(about(end)).await.unwrap();
    let no_space = etcds(Code::ResourceExhausted, "mvcc: database space exceeded");
    assert_eq!(refusal(kv.put(put("k", "2")).await), no_space);
    kv.delete_range(delete("none")).await.unwrap();
    maintenance.alarm(full(end)).await.unwrap();
    kv.put(put("k", "2")).await.unwrap();
}

/// A client that asks for parts has a limit of its own on messages; one that does not gets a revision
/// at once, however large it is.
#[tokio::test]
async fn a_revision_larger_than_a_message_is_told_in_parts_when_asked_for() {
    const PART_BYTES: usize = 1 << 21;
    const VALUES: usize = 4;
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let long = "v".repeat(900_000);
    let mut watching = Watching::open(&running).await;
    for fragment in [true, false] {
        watching
            .create(pb::WatchCreateRequest {
                prev_kv: true,
                fragment,
                filters: vec![0],
                ..of("k", "l")
            })
            .await;
        assert!(watching.next().await.created);
    }
    for number in 0..VALUES {
        kv.put(put(&format!("k{number}"), &long)).await.unwrap();
    }
    let all = pb::DeleteRangeRequest {
        range_end: "l".into(),
        ..delete("k")
    };
    let gone = kv.delete_range(all).await.unwrap().into_inner();
    let revision = gone.header.unwrap().revision;
    let mut told: [Vec<pb::WatchResponse>; 2] = [Vec::new(), Vec::new()];
    let whole = |messages: &[pb::WatchResponse]| {
        let events = messages.iter().map(|message| message.events.len());
        events.sum::<usize>() == VALUES
    };
    while !told.iter().all(|messages| whole(messages)) {
        let message = watching.next().await;
        told[message.watch_id as usize].push(message);
    }
    assert_eq!(told[1].len(), 1, "it did not ask for parts");
    assert!(!told[1][0].fragment);
    assert!(told[0].len() > 1, "one part");
    let last = told[0].len() - 1;
    for (place, part) in told[0].iter().enumerate() {
        assert_eq!(part.fragment, place < last, "part {place}");
        assert!(prost::Message::encoded_len(part) <= PART_BYTES);
        for event in &part.events {
            assert_eq!(event.kv.as_ref().unwrap().mod_revision, revision);
            assert_eq!(event.prev_kv.as_ref().unwrap().value.len(), long.len());
        }
    }
    let events = |messages: &[pb::WatchResponse]| {
        let events = messages.iter().flat_map(|message| message.events.clone());
        events.collect::<Vec<_>>()
    };
    assert_eq!(events(&told[0]), events(&told[1]));
}

#[tokio::test]
async fn the_shortest_lease_lives_longer_than_an_election_takes() {
    let timings = [("election-timeout", "2000"), ("heartbeat-interval", "200")];
    for (flags, shortest) in [(&timings[..0], 2), (&timings[..], 3)] {
        let running = start(flags).await;
        let mut lease = running.lease().await;
        for ttl in [i64::MIN, -1, 0, 1] {
            let grant = pb::LeaseGrantRequest { ttl, id: 0 };
            let granted = lease.lease_grant(grant).await.unwrap().into_inner();
            // One and a half election timeouts, in whole seconds, and 2 s at least.
            assert_eq!(granted.ttl, shortest, "{ttl}");
            assert_ne!(granted.id, 0);
        }
    }
}

/// A defragmentation goes on behind its answer, which has no header, nor has that of a leader that
/// keeps its place.
#[tokio::test]
async fn some_answers_have_no_header() {
    let running = start(&[]).await;
    let mut maintenance = running.maintenance().await;
    let asked = maintenance.defragment(pb::DefragmentRequest {});
    let answer = tokio::time::timeout(Duration::from_secs(10), asked).await;
    assert_eq!(answer.unwrap().unwrap().into_inner().header, None);
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    let target_id = status.into_inner().leader;
    let moved = maintenance.move_leader(pb::MoveLeaderRequest { target_id });
    assert_eq!(moved.await.unwrap().into_inner().header, None);
}

#[tokio::test]
async fn a_hash_is_that_of_its_revision_for_good() {
    let running = start(&[]).await;
    let (mut kv, mut maintenance) = (running.kv().await, running.maintenance().await);
    let mut hash = async |revision| {
        let hashed = maintenance.hash_kv(pb::HashKvRequest { revision }).await;
        hashed.unwrap().into_inner()
    };
    let empty = hash(0).await;
    // 0 is how clients know that there is none.
    assert_ne!(empty.hash, 0);
    assert_eq!((empty.hash_revision, empty.compact_revision), (1, -1));
    kv.put(put("k", "1")).await.unwrap();
    let first = hash(0).await;
    assert_ne!(first.hash, empty.hash);
    kv.put(put("k", "2")).await.unwrap();
    assert_eq!(hash(2).await.hash, first.hash);
    assert_ne!(hash(0).await.hash, first.hash);
}
