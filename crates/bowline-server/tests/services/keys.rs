//! Reads, writes and transactions.

use bowline_proto::etcdserverpb as pb;
use pb::compare::TargetUnion;
use pb::request_op::Request as Op;
use tonic::{Code, Request};

use crate::support::{delete, put, range, start};

#[tokio::test]
async fn a_key_is_put_read_and_deleted_with_headers() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let first = kv.put(put("k", "1")).await.unwrap();
    assert!(first.metadata().get("bowline-applied").is_some());
    let header = first.into_inner().header.unwrap();
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    assert_eq!(header.revision, 2);
    let again = pb::PutRequest {
        prev_kv: true,
        ..put("k", "2")
    };
    let again = kv.put(again).await.unwrap().into_inner();
    assert_eq!(&again.prev_kv.unwrap().value[..], b"1");
    let read = kv.range(range("k")).await.unwrap();
    assert_eq!(read.metadata().get("bowline-read").unwrap(), "linearizable");
    let read = read.into_inner();
    let found = &read.kvs[0];
    assert_eq!((&found.value[..], found.version), (&b"2"[..], 2));
    assert_eq!((found.create_revision, found.mod_revision), (2, 3));
    // A read of the past says how new the present is.
    let old = pb::RangeRequest {
        revision: 2,
        ..range("k")
    };
    let old = kv.range(old).await.unwrap().into_inner();
    assert_eq!(&old.kvs[0].value[..], b"1");
    assert_eq!(old.header.unwrap().revision, 3);
    let gone = kv.delete_range(delete("k")).await.unwrap().into_inner();
    assert_eq!((gone.deleted, gone.header.unwrap().revision), (1, 4));
    let gone = kv.delete_range(delete("k")).await.unwrap().into_inner();
    assert_eq!((gone.deleted, gone.header.unwrap().revision), (0, 4));
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_level_of_a_read_is_the_one_asked_for() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut lease = Request::new(range("k"));
    lease
        .metadata_mut()
        .insert("bowline-read", "lease".parse().unwrap());
    let read = kv.range(lease).await.unwrap();
    assert_eq!(read.metadata().get("bowline-read").unwrap(), "lease");
    let any = pb::RangeRequest {
        serializable: true,
        ..range("k")
    };
    let read = kv.range(any).await.unwrap();
    assert_eq!(read.metadata().get("bowline-read").unwrap(), "eventual");
    let mut unknown = Request::new(range("k"));
    unknown
        .metadata_mut()
        .insert("bowline-read", "fast".parse().unwrap());
    let refused = kv.range(unknown).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_code_and_text() {
    let running = start(&[("max-request-bytes", "10000")]).await;
    let mut kv = running.kv().await;
    kv.put(put("k", "1")).await.unwrap();
    let refused = |status: tonic::Status| (status.code(), status.message().to_owned());
    let of = |code, text: &str| (code, format!("etcdserver: {text}"));
    let status = kv.range(range("")).await.unwrap_err();
    assert_eq!(
        refused(status),
        of(Code::InvalidArgument, "key is not provided")
    );
    let future = pb::RangeRequest {
        revision: 99,
        ..range("k")
    };
    let status = kv.range(future).await.unwrap_err();
    let text = "mvcc: required revision is a future revision";
    assert_eq!(refused(status), of(Code::OutOfRange, text));
    let status = kv.put(put("k", &"v".repeat(10_001))).await.unwrap_err();
    assert_eq!(
        refused(status),
        of(Code::InvalidArgument, "request is too large")
    );
    let leased = pb::PutRequest {
        lease: 77,
        ..put("k", "v")
    };
    let status = kv.put(leased).await.unwrap_err();
    assert_eq!(
        refused(status),
        of(Code::NotFound, "requested lease not found")
    );
    kv.put(put("k", "2")).await.unwrap();
    let compact = |revision| pb::CompactionRequest {
        revision,
        physical: true,
    };
    kv.compact(compact(3)).await.unwrap();
    let old = pb::RangeRequest {
        revision: 2,
        ..range("k")
    };
    let status = kv.range(old).await.unwrap_err();
    let text = "mvcc: required revision has been compacted";
    assert_eq!(refused(status), of(Code::OutOfRange, text));
    let status = kv.compact(compact(2)).await.unwrap_err();
    assert_eq!(refused(status), of(Code::OutOfRange, text));
}

#[tokio::test]
async fn a_transaction_takes_one_branch_at_one_revision() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let is = |value: &'static str| pb::Compare {
        key: "a".into(),
        target: 3,
        target_union: Some(TargetUnion::Value(value.into())),
        ..pb::Compare::default()
    };
    let op = |op| pb::RequestOp { request: Some(op) };
    let txn = |value| pb::TxnRequest {
        compare: vec![is(value)],
        success: vec![
            op(Op::RequestPut(put("b", "1"))),
            op(Op::RequestPut(put("c", "1"))),
            op(Op::RequestRange(range("b"))),
        ],
        failure: vec![op(Op::RequestRange(range("a")))],
    };
    let taken = kv.txn(txn("1")).await.unwrap().into_inner();
    assert!(taken.succeeded && taken.responses.len() == 3);
    assert_eq!(taken.header.unwrap().revision, 3);
    let taken = kv.txn(txn("2")).await.unwrap().into_inner();
    assert!(!taken.succeeded && taken.responses.len() == 1);
    assert_eq!(taken.header.unwrap().revision, 3);
    // Without writes it is a read.
    let reads = pb::TxnRequest {
        success: vec![op(Op::RequestRange(range("a")))],
        ..pb::TxnRequest::default()
    };
    let read = kv.txn(reads).await.unwrap();
    assert_eq!(read.metadata().get("bowline-read").unwrap(), "linearizable");
    let twice = pb::TxnRequest {
        success: vec![
            op(Op::RequestPut(put("b", "1"))),
            op(Op::RequestDeleteRange(delete("b"))),
        ],
        ..pb::TxnRequest::default()
    };
    let refused = kv.txn(twice).await.unwrap_err();
    assert_eq!(
        refused.message(),
        "etcdserver: duplicate key given in txn request"
    );
}
