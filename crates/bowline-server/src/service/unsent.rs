//! The keys that a reply counts and does not send: who is charged for scanned bytes is charged for them, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_proto::etcdserverpb as pb;
use pb::response_op::Response as Of;
use tonic::Response;

/// A reply that may count keys without sending them.
pub(crate) trait Counting {
    /// The number of keys that are only counted.
    fn unsent_keys(&self) -> u64 {
        0
    }
}

impl Counting for pb::PutResponse {}

impl Counting for pb::DeleteRangeResponse {}

impl Counting for pb::RangeResponse {
    fn unsent_keys(&self) -> u64 {
        let count = u64::try_from(self.count).unwrap_or_default();
        count.saturating_sub(self.kvs.len() as u64)
    }
}

impl Counting for pb::TxnResponse {
    fn unsent_keys(&self) -> u64 {
        let of_each = self.responses.iter().map(|reply| match &reply.response {
            Some(Of::ResponseRange(range)) => range.unsent_keys(),
            Some(Of::ResponseTxn(txn)) => txn.unsent_keys(),
            Some(Of::ResponsePut(_) | Of::ResponseDeleteRange(_)) | None => 0,
        });
        of_each.fold(0, u64::saturating_add)
    }
}

/// The number of such keys, which a service leaves in the extensions of its response. That of a stream grows while the
/// stream is made.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnsentKeys(Arc<AtomicU64>);

impl UnsentKeys {
    pub(super) fn of(keys: u64) -> UnsentKeys {
        UnsentKeys(Arc::new(AtomicU64::new(keys)))
    }

    pub(super) fn add(&self, keys: u64) {
        self.0.fetch_add(keys, Ordering::Relaxed);
    }

    /// Leaves it in a response for the transport.
    pub(super) fn leave_in<M>(self, response: &mut Response<M>) {
        response.extensions_mut().insert(self);
    }

    /// What the service has left in a response.
    pub(crate) fn taken_from<B>(response: &mut http::Response<B>) -> Option<UnsentKeys> {
        response.extensions_mut().remove()
    }

    /// Takes the keys that were counted since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_a_transaction_count_at_every_depth() {
        let range = pb::RangeResponse {
            kvs: vec![bowline_proto::mvccpb::KeyValue::default()],
            count: 10,
            ..pb::RangeResponse::default()
        };
        assert_eq!(range.unsent_keys(), 9);
        let of = |response| pb::ResponseOp {
            response: Some(response),
        };
        let txn = |responses| pb::TxnResponse {
            responses,
            ..pb::TxnResponse::default()
        };
        let inner = txn(vec![of(Of::ResponseRange(range.clone()))]);
        let outer = txn(vec![
            of(Of::ResponseTxn(inner)),
            of(Of::ResponsePut(pb::PutResponse::default())),
            of(Of::ResponseRange(range)),
        ]);
        assert_eq!(outer.unsent_keys(), 18);
    }
}
