//! What became of operations, as replies to clients. Headers are filled in by the services.

use bowline::replica::{OpReply, RangeReply, TxnReply};
use bowline::{Entry, Revision};
use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::KeyValue;
use pb::response_op::Response;

/// A key.
pub(crate) fn key_value(entry: Entry) -> KeyValue {
    KeyValue {
        key: entry.key.into(),
        create_revision: entry.create_revision as i64,
        mod_revision: entry.mod_revision as i64,
        version: entry.version as i64,
        value: entry.value.into(),
        lease: entry.lease,
    }
}

/// What a read found.
pub(crate) fn range_reply(reply: RangeReply) -> pb::RangeResponse {
    pb::RangeResponse {
        header: None,
        kvs: reply.entries.into_iter().map(key_value).collect(),
        more: reply.more,
        count: reply.count as i64,
    }
}

/// What was there before a put.
pub(crate) fn put_reply(previous: Option<Entry>) -> pb::PutResponse {
    pb::PutResponse {
        header: None,
        prev_kv: previous.map(key_value),
    }
}

/// What was deleted.
pub(crate) fn delete_reply(deleted: u64, previous: Vec<Entry>) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: None,
        deleted: deleted as i64,
        prev_kvs: previous.into_iter().map(key_value).collect(),
    }
}

/// What a transaction did, at a revision. Replies within have a header with nothing but it.
pub(crate) fn txn_reply(reply: TxnReply, revision: Revision) -> pb::TxnResponse {
    let header = || {
        Some(pb::ResponseHeader {
            revision: revision as i64,
            ..pb::ResponseHeader::default()
        })
    };
    let op = |reply: OpReply| {
        let response = match reply {
            OpReply::Range(reply) => Response::ResponseRange(pb::RangeResponse {
                header: header(),
                ..range_reply(reply)
            }),
            OpReply::Put(previous) => Response::ResponsePut(pb::PutResponse {
                header: header(),
                ..put_reply(previous)
            }),
            OpReply::DeleteRange { deleted, previous } => {
                Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                    header: header(),
                    ..delete_reply(deleted, previous)
                })
            }
            OpReply::Txn(reply) => Response::ResponseTxn(txn_reply(reply, revision)),
        };
        pb::ResponseOp {
            response: Some(response),
        }
    };
    pb::TxnResponse {
        header: header(),
        succeeded: reply.succeeded,
        responses: reply.replies.into_iter().map(op).collect(),
    }
}
