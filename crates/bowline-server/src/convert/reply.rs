//! Results of operations as replies. The services fill in the headers.

use bowline::LeaseId;
use bowline::{Entry, Revision};
use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::KeyValue;
use bowline_replica::{OpReply, RangeReply, TxnReply};
use pb::response_op::Response;

/// A key.
pub(crate) fn key_value(entry: Entry) -> KeyValue {
    KeyValue {
        key: entry.key.into(),
        create_revision: entry.create_revision.get() as i64,
        mod_revision: entry.mod_revision.get() as i64,
        version: entry.version as i64,
        value: entry.value.into(),
        lease: LeaseId::number_of(entry.lease),
    }
}

/// The result of a read.
pub(crate) fn range_reply(reply: RangeReply) -> pb::RangeResponse {
    pb::RangeResponse {
        header: None,
        kvs: reply.entries.into_iter().map(key_value).collect(),
        more: reply.more,
        count: reply.count as i64,
    }
}

/// The result of a put: the previous entry.
pub(crate) fn put_reply(previous: Option<Entry>) -> pb::PutResponse {
    pb::PutResponse {
        header: None,
        prev_kv: previous.map(key_value),
    }
}

/// The result of a deletion.
pub(crate) fn delete_reply(deleted: u64, previous: Vec<Entry>) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: None,
        deleted: deleted as i64,
        prev_kvs: previous.into_iter().map(key_value).collect(),
    }
}

/// The result of a transaction, after which the newest revision is `revision`.
///
/// A nested reply's header has only a revision: the newest one after its operation. That is the revision
/// before the transaction until an operation changes something. A nested transaction's reply has no header.
pub(crate) fn txn_reply(reply: TxnReply, revision: Revision) -> pb::TxnResponse {
    let before = revision - u64::from(changes(&reply));
    let mut newest = before;
    pb::TxnResponse {
        header: header(revision),
        ..txn_reply_within(reply, &mut newest, revision)
    }
}

fn header(revision: Revision) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader {
        revision: revision.get() as i64,
        ..pb::ResponseHeader::default()
    })
}

/// Whether an operation changed something.
fn changes(reply: &TxnReply) -> bool {
    reply.replies.iter().any(|op| match op {
        OpReply::Range(_) => false,
        OpReply::Put(_) => true,
        OpReply::DeleteRange { deleted, .. } => *deleted > 0,
        OpReply::Txn(inner) => changes(inner),
    })
}

fn txn_reply_within(reply: TxnReply, newest: &mut Revision, after: Revision) -> pb::TxnResponse {
    let op = |reply: OpReply| {
        let response = match reply {
            OpReply::Range(reply) => Response::ResponseRange(pb::RangeResponse {
                header: header(*newest),
                ..range_reply(reply)
            }),
            OpReply::Put(previous) => {
                *newest = after;
                Response::ResponsePut(pb::PutResponse {
                    header: header(after),
                    ..put_reply(previous)
                })
            }
            OpReply::DeleteRange { deleted, previous } => {
                if deleted > 0 {
                    *newest = after;
                }
                Response::ResponseDeleteRange(pb::DeleteRangeResponse {
                    header: header(*newest),
                    ..delete_reply(deleted, previous)
                })
            }
            OpReply::Txn(reply) => Response::ResponseTxn(txn_reply_within(reply, newest, after)),
        };
        pb::ResponseOp {
            response: Some(response),
        }
    };
    pb::TxnResponse {
        header: Some(pb::ResponseHeader::default()),
        succeeded: reply.succeeded,
        responses: reply.replies.into_iter().map(op).collect(),
    }
}
