//! What a refusal for want of memory says of a change.

use bowline_proto::etcdserverpb as pb;
use tonic::Code;

use crate::support::{Running, put, range, start_with};

/// A server whose connections have 128 KiB, half of which are not counted.
async fn narrow() -> Running {
    start_with(&[], |config| config.max_connection_memory = 64 << 10).await
}

/// A request was charged only once its call had to wait, when the change that it asked for was under way: a
/// change that was made was refused with "resource exhausted", which says that it was not. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_refused_for_want_of_memory_is_not_made() {
    let running = narrow().await;
    let mut kv = running.kv().await;
    // Its request fits, but not twice: once as it came, and once as a command.
    let value = "v".repeat(80 << 10);
    for number in 0..10 {
        let key = format!("large/{number}");
        let refused = kv.put(put(&key, &value)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let found = kv.range(range(&key)).await.unwrap().into_inner();
        assert!(found.kvs.is_empty(), "what was refused was written");
    }
    kv.put(put("k", &"v".repeat(40 << 10))).await.unwrap();
}

/// A request that waits is charged as long as it does, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_charged_until_its_call_has_an_answer() {
    let running = narrow().await;
    let mut kv = running.kv().await;
    for number in 0..20 {
        kv.put(put(&number.to_string(), &"v".repeat(40 << 10)))
            .await
            .unwrap();
    }
    let txn = pb::TxnRequest {
        success: vec![pb::RequestOp {
            request: Some(pb::request_op::Request::RequestRange(range("1"))),
        }],
        ..pb::TxnRequest::default()
    };
    for _ in 0..20 {
        assert!(kv.txn(txn.clone()).await.unwrap().into_inner().succeeded);
    }
}
