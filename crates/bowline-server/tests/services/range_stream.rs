//! Ranges in parts.

use bowline_proto::etcdserverpb as pb;
use tonic::Code;

use crate::support::{put, range, start};

fn all() -> pb::RangeRequest {
    pb::RangeRequest {
        range_end: "\0".into(),
        ..range("\0")
    }
}

#[tokio::test]
async fn parts_are_the_range_of_the_moment_it_began() {
    const KEYS: usize = 3_000;
    let running = start(&[("max-request-bytes", "100000")]).await;
    let mut kv = running.kv().await;
    for first in (0..KEYS).step_by(100) {
        let puts = (first..first + 100).map(|number| pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(put(
                &format!("k{number:05}"),
                &"v".repeat(700),
            ))),
        });
        let txn = pb::TxnRequest {
            success: puts.collect(),
            ..pb::TxnRequest::default()
        };
        kv.txn(txn).await.unwrap();
    }
    let whole = kv.range(all()).await.unwrap().into_inner();
    let mut parts = kv.range_stream(all()).await.unwrap().into_inner();
    let first = parts.message().await.unwrap().unwrap();
    let mut found = first.range_response.unwrap();
    assert_eq!((found.kvs.len(), found.header, found.count), (10, None, 0));
    // What is written now is not in it, whenever the rest is taken.
    kv.put(put("k00000a", "late")).await.unwrap();
    kv.put(put("z", "late")).await.unwrap();
    let mut count = 1;
    while let Some(part) = parts.message().await.unwrap() {
        assert!(found.header.is_none(), "only the last part has a header");
        let part = part.range_response.unwrap();
        assert!(part.kvs.len() <= 200, "a part is bounded by its bytes");
        found.kvs.extend(part.kvs);
        (found.header, found.count, found.more) = (part.header, part.count, part.more);
        count += 1;
    }
    assert!(count > 10, "{count}");
    assert_eq!(found, whole);
    // With a limit, of a revision, keys alone.
    let asked = pb::RangeRequest {
        limit: 25,
        revision: whole.header.as_ref().unwrap().revision - 1,
        keys_only: true,
        ..all()
    };
    let whole = kv.range(asked.clone()).await.unwrap().into_inner();
    let mut parts = kv.range_stream(asked).await.unwrap().into_inner();
    let (mut kvs, mut last) = (Vec::new(), pb::RangeResponse::default());
    while let Some(part) = parts.message().await.unwrap() {
        last = part.range_response.unwrap();
        kvs.append(&mut last.kvs);
    }
    assert_eq!(pb::RangeResponse { kvs, ..last }, whole);
    assert!(whole.more && whole.count == KEYS as i64 - 100);
    running.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_told_in_parts_is_refused() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    kv.put(put("a", "1")).await.unwrap();
    let mut refused = async |asked: pb::RangeRequest| {
        let status = kv.range_stream(asked).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let sorted = pb::RangeRequest {
        sort_order: pb::range_request::SortOrder::Descend.into(),
        ..all()
    };
    let text = "RangeStream does not support custom sort orders";
    assert_eq!(
        refused(sorted).await,
        (Code::Unimplemented, text.to_owned())
    );
    let filtered = pb::RangeRequest {
        max_mod_revision: 1,
        ..all()
    };
    let text = "RangeStream does not support revision filters";
    assert_eq!(
        refused(filtered).await,
        (Code::Unimplemented, text.to_owned())
    );
    let future = pb::RangeRequest {
        revision: 9,
        ..all()
    };
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_eq!(refused(future).await, (Code::OutOfRange, text.to_owned()));
    assert_eq!(refused(range("")).await.0, Code::InvalidArgument);
    // Nothing is one part, and so is a number.
    for (asked, count) in [
        (range("b"), 0),
        (
            pb::RangeRequest {
                range_end: "a".into(),
                ..range("b")
            },
            0,
        ),
        (
            pb::RangeRequest {
                count_only: true,
                ..all()
            },
            1,
        ),
    ] {
        let mut parts = kv.range_stream(asked).await.unwrap().into_inner();
        let only = parts
            .message()
            .await
            .unwrap()
            .unwrap()
            .range_response
            .unwrap();
        assert_eq!(
            (only.count, only.kvs.len(), only.header.unwrap().revision),
            (count, 0, 2)
        );
        assert!(parts.message().await.unwrap().is_none());
    }
    running.server.shutdown().await.unwrap();
}
