//! The front of a real server, and a client that sends any frames.

mod blocks;
mod bounds;
mod client;
mod flush;
mod frames;
mod limits;
mod same;
mod watches;

use bowline_proto::etcdserverpb as pb;

const RANGE: &str = "/etcdserverpb.KV/Range";
const PUT: &str = "/etcdserverpb.KV/Put";
const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// A stream that is not served here.
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..pb::PutRequest::default()
    }
}

fn range(key: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    }
}

fn watch(key: &str) -> pb::WatchRequest {
    let create = pb::WatchCreateRequest {
        key: key.to_owned().into(),
        ..pb::WatchCreateRequest::default()
    };
    pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    }
}

fn txn(success: Vec<pb::request_op::Request>) -> pb::TxnRequest {
    let op = |request| pb::RequestOp {
        request: Some(request),
    };
    pb::TxnRequest {
        success: success.into_iter().map(op).collect(),
        ..pb::TxnRequest::default()
    }
}
