//! Transactions of etcd's API: conditions, and operations for both outcomes, at one revision.

use std::future::IntoFuture;
use std::sync::Arc;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::request_op::Request as Op;
use bowline_proto::etcdserverpb::response_op::Response as Answer;
use bowline_types::Revision;
use bytes::Bytes;
use tonic::metadata::MetadataMap;

use super::get::Read;
use super::{DeleteReply, PutReply, RangeReply};
use crate::caller::{Caller, Repeat};
use crate::reply::signed;
use crate::{BoxFuture, Header, KeyRange, LeaseId, Result};

/// A condition of a transaction. An absent key has no revisions and no lease, version 0, and compares with no value.
///
/// ```
/// use bowline_client::{Compare, Expected, Revision};
///
/// let absent = Compare::mod_revision("leader").equals(Expected::Absent);
/// let unchanged = Compare::mod_revision("leader").equals(Revision::new(7));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a condition does nothing outside of a transaction"]
pub struct Compare {
    compare: pb::Compare,
}

/// What a condition looks at, before it is said with what it is compared.
///
/// ```
/// # use bowline_client::Compare;
/// let is_ours = Compare::value("lock").equals("me");
/// let was_rewritten = Compare::version("lock").is_above(1);
/// let is_young = Compare::version("lock").is_below(10);
/// let is_anothers = Compare::value("lock").differs_from("me");
/// ```
#[derive(Debug, Clone)]
#[must_use = "say with what it is compared"]
pub struct Comparison<T> {
    key: Bytes,
    range_end: Bytes,
    target: CompareTarget,
    union: fn(T) -> TargetUnion,
}

impl<T> Comparison<T> {
    fn new(range: KeyRange, target: CompareTarget, union: fn(T) -> TargetUnion) -> Self {
        let (key, range_end) = range.into_parts();
        Comparison {
            key,
            range_end,
            target,
            union,
        }
    }

    fn compare(self, result: CompareResult, operand: T) -> Compare {
        Compare {
            compare: pb::Compare {
                result: result.into(),
                target: self.target.into(),
                key: self.key,
                range_end: self.range_end,
                target_union: Some((self.union)(operand)),
            },
        }
    }
}

/// The comparisons of one type. For each by itself, so that a number can be written as it is.
macro_rules! comparisons {
    ($type:ty, $operand:ty) => {
        impl Comparison<$type> {
            /// It is this.
            ///
            /// ```
            /// # use bowline_client::Compare;
            /// let is_ours = Compare::value("lock").equals("me");
            /// ```
            pub fn equals(self, operand: $operand) -> Compare {
                self.compare(CompareResult::Equal, operand.into())
            }

            /// It is not this.
            ///
            /// ```
            /// # use bowline_client::Compare;
            /// let is_anothers = Compare::value("lock").differs_from("me");
            /// ```
            pub fn differs_from(self, operand: $operand) -> Compare {
                self.compare(CompareResult::NotEqual, operand.into())
            }

            /// It is greater than this.
            ///
            /// ```
            /// # use bowline_client::Compare;
            /// let was_rewritten = Compare::version("lock").is_above(1);
            /// ```
            pub fn is_above(self, operand: $operand) -> Compare {
                self.compare(CompareResult::Greater, operand.into())
            }

            /// It is less than this.
            ///
            /// ```
            /// # use bowline_client::Compare;
            /// let is_young = Compare::version("lock").is_below(10);
            /// ```
            pub fn is_below(self, operand: $operand) -> Compare {
                self.compare(CompareResult::Less, operand.into())
            }
        }
    };
}

comparisons!(Bytes, impl Into<Bytes>);
comparisons!(u64, u64);
comparisons!(Option<Revision>, impl Into<Option<Revision>>);
comparisons!(Option<LeaseId>, impl Into<Option<LeaseId>>);

/// The revision as the wire compares it: 0 is an absent key.
fn number_of(revision: Option<Revision>) -> i64 {
    revision.map_or(0, |revision| signed(revision.get()))
}

impl Compare {
    /// The value of a key, or of every key of a range.
    ///
    /// ```
    /// # use bowline_client::Compare;
    /// let is_ours = Compare::value("lock").equals("me");
    /// ```
    pub fn value(range: impl Into<KeyRange>) -> Comparison<Bytes> {
        Comparison::new(range.into(), CompareTarget::Value, TargetUnion::Value)
    }

    /// The number of puts since its creation.
    ///
    /// ```
    /// # use bowline_client::Compare;
    /// let is_absent = Compare::version("lock").equals(0);
    /// let was_changed = Compare::version("lock").is_above(1);
    /// ```
    pub fn version(range: impl Into<KeyRange>) -> Comparison<u64> {
        Comparison::new(range.into(), CompareTarget::Version, |number| {
            TargetUnion::Version(signed(number))
        })
    }

    /// The create revision; `None` if the key is absent, which is below every revision.
    ///
    /// ```
    /// # use bowline_client::{Compare, Revision};
    /// let is_absent = Compare::create_revision("lock").equals(None);
    /// let is_the_same_lock = Compare::create_revision("lock").equals(Revision::new(7));
    /// ```
    pub fn create_revision(range: impl Into<KeyRange>) -> Comparison<Option<Revision>> {
        Comparison::new(range.into(), CompareTarget::Create, |revision| {
            TargetUnion::CreateRevision(number_of(revision))
        })
    }

    /// The modification revision; `None`, or [`Expected::Absent`](crate::Expected), if the key is absent, which is
    /// below every revision.
    ///
    /// ```
    /// # use bowline_client::{Compare, Expected, Revision};
    /// let is_absent = Compare::mod_revision("config").equals(Expected::Absent);
    /// let is_unchanged = Compare::mod_revision("config").equals(Revision::new(7));
    /// let was_changed = Compare::mod_revision("config").is_above(Revision::new(7));
    /// ```
    pub fn mod_revision(range: impl Into<KeyRange>) -> Comparison<Option<Revision>> {
        Comparison::new(range.into(), CompareTarget::Mod, |revision| {
            TargetUnion::ModRevision(number_of(revision))
        })
    }

    /// The lease that the key is attached to. `None` comes between the ids below 0 and those above.
    ///
    /// ```
    /// # use bowline_client::Compare;
    /// # use bowline_client::LeaseId;
    /// # let lease = LeaseId::new(7).expect("not 0");
    /// let has_no_lease = Compare::lease("lock").equals(None);
    /// let has_ours = Compare::lease("lock").equals(lease);
    /// ```
    pub fn lease(range: impl Into<KeyRange>) -> Comparison<Option<LeaseId>> {
        Comparison::new(range.into(), CompareTarget::Lease, |lease| {
            TargetUnion::Lease(LeaseId::number_of(lease))
        })
    }
}

/// One thing that a transaction does.
///
/// ```
/// use bowline_client::{KeyRange, Operation};
///
/// // Takes the job and clears its notes; the replies have what was there before.
/// let take = Operation::put("jobs/7/owner", "me").previous();
/// let clear = Operation::delete(KeyRange::prefix("jobs/7/notes/")).previous();
/// let read = Operation::get("jobs/7");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an operation does nothing outside of a transaction"]
pub struct Operation {
    request: Op,
}

impl Operation {
    /// Reads a key or a range.
    ///
    /// ```
    /// # use bowline_client::{KeyRange, Operation};
    /// let read = Operation::get(KeyRange::prefix("svc/"));
    /// ```
    pub fn get(range: impl Into<KeyRange>) -> Operation {
        Op::RequestRange(Read::new(range.into()).request).into()
    }

    /// Writes a key.
    ///
    /// ```
    /// # use bowline_client::Operation;
    /// let write = Operation::put("lock", "me").previous();
    /// ```
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Operation {
        Operation::put_of(key.into(), value.into(), None)
    }

    /// Writes a key that goes with a lease.
    ///
    /// ```
    /// # use bowline_client::{LeaseId, Operation};
    /// # let lease = LeaseId::new(7).expect("not 0");
    /// let write = Operation::put_with_lease("lock", "me", lease);
    /// ```
    pub fn put_with_lease(
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: LeaseId,
    ) -> Operation {
        Operation::put_of(key.into(), value.into(), Some(lease))
    }

    fn put_of(key: Bytes, value: Bytes, lease: Option<LeaseId>) -> Operation {
        Op::RequestPut(pb::PutRequest {
            key,
            value,
            lease: LeaseId::number_of(lease),
            ..pb::PutRequest::default()
        })
        .into()
    }

    /// Deletes a key or a range.
    ///
    /// ```
    /// # use bowline_client::Operation;
    /// let delete = Operation::delete("lock");
    /// ```
    pub fn delete(range: impl Into<KeyRange>) -> Operation {
        let (key, range_end) = range.into().into_parts();
        Op::RequestDeleteRange(pb::DeleteRangeRequest {
            key,
            range_end,
            prev_kv: false,
        })
        .into()
    }

    /// A transaction within the transaction. Its conditions look at what was there before the outermost
    /// one began.
    ///
    /// ```
    /// # use bowline_client::{Compare, Operation};
    /// let is_free = Compare::version("lock").equals(0);
    /// let take_if_free = Operation::txn([is_free], [Operation::put("lock", "me")], []);
    /// ```
    pub fn txn(
        when: impl IntoIterator<Item = Compare>,
        then: impl IntoIterator<Item = Operation>,
        otherwise: impl IntoIterator<Item = Operation>,
    ) -> Operation {
        let mut request = pb::TxnRequest::default();
        request
            .compare
            .extend(when.into_iter().map(|one| one.compare));
        request
            .success
            .extend(then.into_iter().map(pb::RequestOp::from));
        request
            .failure
            .extend(otherwise.into_iter().map(pb::RequestOp::from));
        Op::RequestTxn(request).into()
    }

    /// Requests the previous entry of a put or a deletion.
    ///
    /// ```
    /// # use bowline_client::Operation;
    /// let replace = Operation::put("config", "new").previous();
    /// ```
    pub fn previous(mut self) -> Operation {
        match &mut self.request {
            Op::RequestPut(put) => put.prev_kv = true,
            Op::RequestDeleteRange(delete) => delete.prev_kv = true,
            Op::RequestRange(_) | Op::RequestTxn(_) => {}
        }
        self
    }
}

impl From<Op> for Operation {
    fn from(request: Op) -> Operation {
        Operation { request }
    }
}

impl From<Operation> for pb::RequestOp {
    fn from(operation: Operation) -> pb::RequestOp {
        pb::RequestOp {
            request: Some(operation.request),
        }
    }
}

/// A transaction. [`Client::txn`](crate::Client::txn) gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Compare, Operation, OperationReply};
///
/// // Takes the lock, or reports its holder.
/// let taken = client
///     .txn()
///     .when([Compare::version("lock").equals(0)])
///     .then([Operation::put("lock", "me")])
///     .otherwise([Operation::get("lock")])
///     .await?;
/// if !taken.succeeded
///     && let Some(OperationReply::Get(found)) = taken.replies.first()
/// {
///     println!("{:?} has it", found.value());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Txn {
    caller: Arc<Caller>,
    request: pb::TxnRequest,
}

impl Txn {
    pub(crate) fn new(caller: Arc<Caller>) -> Txn {
        Txn {
            caller,
            request: pb::TxnRequest::default(),
        }
    }

    /// Adds conditions, all of which must hold.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::{Compare, Operation};
    /// let moved = client
    ///     .txn()
    ///     .when([Compare::value("lock").equals("me")])
    ///     .then([Operation::put("lock", "you")])
    ///     .otherwise([Operation::get("lock")])
    ///     .await?;
    /// println!("{}", if moved.succeeded { "handed over" } else { "somebody else has it" });
    /// # Ok(())
    /// # }
    /// ```
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Txn {
        let compares = compares.into_iter().map(|one| one.compare);
        self.request.compare.extend(compares);
        self
    }

    /// Adds operations for the case that all conditions hold.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::Operation;
    /// // Without a condition: two keys at one revision.
    /// client.txn().then([Operation::put("a", "1"), Operation::put("b", "2")]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn then(mut self, operations: impl IntoIterator<Item = Operation>) -> Txn {
        let operations = operations.into_iter().map(pb::RequestOp::from);
        self.request.success.extend(operations);
        self
    }

    /// Adds operations for the case that a condition does not hold.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::{Compare, Expected, Operation};
    /// let taken = client
    ///     .txn()
    ///     .when([Compare::mod_revision("lock").equals(Expected::Absent)])
    ///     .then([Operation::put("lock", "me")])
    ///     .otherwise([Operation::get("lock")])
    ///     .await?;
    /// println!("{:?}", taken.replies);
    /// # Ok(())
    /// # }
    /// ```
    pub fn otherwise(mut self, operations: impl IntoIterator<Item = Operation>) -> Txn {
        let operations = operations.into_iter().map(pb::RequestOp::from);
        self.request.failure.extend(operations);
        self
    }

    async fn send(self) -> Result<TxnReply> {
        let repeat = if changes_something(&self.request) {
            Repeat::Never
        } else {
            Repeat::Always
        };
        let caller = &*self.caller;
        let send = |channel, request| async move {
            KvClient::new(channel)
                .max_decoding_message_size(caller.settings().reply_bytes_max)
                .txn(request)
                .await
        };
        let (reply, metadata) = caller.call(repeat, None, self.request, send).await?;
        Ok(TxnReply::new(reply, &metadata))
    }
}

fn changes_something(request: &pb::TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.any(|operation| match &operation.request {
        Some(Op::RequestRange(_)) | None => false,
        Some(Op::RequestPut(_) | Op::RequestDeleteRange(_)) => true,
        Some(Op::RequestTxn(inner)) => changes_something(inner),
    })
}

impl IntoFuture for Txn {
    type Output = Result<TxnReply>;
    type IntoFuture = BoxFuture<TxnReply>;

    fn into_future(self) -> BoxFuture<TxnReply> {
        Box::pin(self.send())
    }
}

/// The result of a transaction.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Operation, TxnReply};
///
/// let reply: TxnReply = client.txn().then([Operation::put("a", "1"), Operation::delete("b")]).await?;
/// assert!(reply.succeeded, "it has no condition");
/// println!("{} operations at revision {}", reply.replies.len(), reply.header.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnReply {
    /// The reply header; its revision is the revision of the transaction, if it changed anything.
    pub header: Header,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// The results of the executed operations, in order.
    pub replies: Vec<OperationReply>,
}

/// The result of one operation of a transaction.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Operation, OperationReply};
///
/// let reads = client.txn().then([Operation::get("a"), Operation::get("b")]).await?;
/// for reply in reads.replies {
///     if let OperationReply::Get(found) = reply {
///         println!("{:?}", found.value());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationReply {
    /// Of a read.
    Get(RangeReply),
    /// Of a write.
    Put(PutReply),
    /// Of a deletion.
    Delete(DeleteReply),
    /// Of a transaction within.
    Txn(TxnReply),
}

impl TxnReply {
    fn new(reply: pb::TxnResponse, metadata: &MetadataMap) -> TxnReply {
        let header = Header::new(reply.header, metadata);
        TxnReply::under(header, reply.responses, reply.succeeded, metadata)
    }

    /// The reply of a transaction with this header. Each of its operations was executed by the same member.
    fn under(
        header: Header,
        responses: Vec<pb::ResponseOp>,
        succeeded: bool,
        metadata: &MetadataMap,
    ) -> TxnReply {
        let of_operation = |own: &mut Header| *own = header.of_operation(own);
        let replies = responses.into_iter().filter_map(|operation| {
            Some(match operation.response? {
                Answer::ResponseRange(reply) => {
                    let mut found = RangeReply::new(reply, metadata);
                    of_operation(&mut found.header);
                    OperationReply::Get(found)
                }
                Answer::ResponsePut(reply) => {
                    let mut put = PutReply::new(reply, metadata);
                    of_operation(&mut put.header);
                    OperationReply::Put(put)
                }
                Answer::ResponseDeleteRange(reply) => {
                    let mut deleted = DeleteReply::new(reply, metadata);
                    of_operation(&mut deleted.header);
                    OperationReply::Delete(deleted)
                }
                Answer::ResponseTxn(reply) => {
                    let mut own = Header::new(reply.header, metadata);
                    of_operation(&mut own);
                    let nested = TxnReply::under(own, reply.responses, reply.succeeded, metadata);
                    OperationReply::Txn(nested)
                }
            })
        });
        TxnReply {
            header,
            succeeded,
            replies: replies.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_types::Expected;

    use super::*;

    /// etcd sends only the revision in the headers of operations, and with it a member and a cluster of id 0.
    #[test]
    fn the_replies_of_operations_name_the_member_that_answered() {
        let answer = |response| pb::ResponseOp {
            response: Some(response),
        };
        let of_part = |revision| pb::ResponseHeader {
            revision,
            ..pb::ResponseHeader::default()
        };
        let nested = pb::TxnResponse {
            responses: vec![answer(Answer::ResponsePut(pb::PutResponse::default()))],
            ..pb::TxnResponse::default()
        };
        let read = pb::RangeResponse {
            header: Some(of_part(6)),
            ..pb::RangeResponse::default()
        };
        let reply = pb::TxnResponse {
            header: Some(pb::ResponseHeader {
                cluster_id: 3,
                member_id: 4,
                ..of_part(7)
            }),
            succeeded: true,
            responses: vec![
                answer(Answer::ResponseRange(read)),
                answer(Answer::ResponseTxn(nested)),
            ],
        };
        let reply = TxnReply::new(reply, &MetadataMap::new());
        let [OperationReply::Get(read), OperationReply::Txn(nested)] = &reply.replies[..] else {
            panic!("{reply:?}");
        };
        let [OperationReply::Put(put)] = &nested.replies[..] else {
            panic!("{nested:?}");
        };
        let ids = |header: &Header| (header.cluster_id, header.member_id.get());
        for header in [&reply.header, &read.header, &nested.header, &put.header] {
            assert_eq!(ids(header), (3, 4));
        }
        assert_eq!(read.header.revision, 6);
        assert_eq!(put.header.revision, 7);
    }

    #[test]
    fn a_revision_or_the_absence_of_a_key_is_compared() {
        let revision = Revision::new(7);
        let of = |compare: Compare| compare.compare.target_union;
        let compare = || Compare::mod_revision("k");
        assert_eq!(
            of(compare().equals(revision)),
            Some(TargetUnion::ModRevision(7))
        );
        assert_eq!(
            of(compare().equals(Some(revision))),
            Some(TargetUnion::ModRevision(7))
        );
        for absent in [compare().equals(None), compare().equals(Expected::Absent)] {
            assert_eq!(of(absent), Some(TargetUnion::ModRevision(0)));
        }
    }

    #[test]
    fn a_transaction_that_only_reads_may_be_sent_twice() {
        let read = || Operation::get("k");
        let nested = |inner: Operation| Operation::txn([], [inner], []);
        let of = |operation: Operation| pb::TxnRequest {
            failure: vec![operation.into()],
            ..pb::TxnRequest::default()
        };
        assert!(!changes_something(&of(read())));
        assert!(!changes_something(&of(nested(read()))));
        assert!(changes_something(&of(nested(Operation::put("k", "v")))));
        assert!(changes_something(&of(Operation::delete("k"))));
    }
}
