//! Quotas of prefixes: the calls of the service `bowline.v1.Quotas`.

use bowline_proto::v1 as pb;
use bowline_proto::v1::quotas_client::QuotasClient;
use bowline_types::{Quota, QuotaLimits, QuotaUse};
use bytes::Bytes;

use crate::Result;
use crate::caller::{Caller, Repeat};
use crate::v1::senseless;

/// See [`Client::set_quota`](crate::Client::set_quota).
pub(crate) async fn set(caller: &Caller, prefix: Bytes, limits: QuotaLimits) -> Result<()> {
    let request = pb::QuotaSetRequest {
        prefix,
        limits: Some(pb::QuotaLimits {
            keys: limits.keys,
            bytes: limits.bytes,
        }),
    };
    let send = |channel, request| async move { QuotasClient::new(channel).set(request).await };
    // Sent again, it could replace what another client has set meanwhile.
    let set = caller.call(Repeat::Never, None, request, send).await;
    set.map(drop)
}

/// See [`Client::quotas`](crate::Client::quotas).
pub(crate) async fn list(caller: &Caller) -> Result<Vec<Quota>> {
    let request = pb::QuotaListRequest {};
    let send = |channel, request| async move { QuotasClient::new(channel).list(request).await };
    let (reply, _) = caller.call(Repeat::Always, None, request, send).await?;
    let quota = |quota: pb::Quota| {
        let limits = quota
            .limits
            .ok_or_else(|| senseless("a quota without limits"))?;
        Ok(Quota {
            prefix: quota.prefix.into(),
            limits: QuotaLimits {
                keys: limits.keys,
                bytes: limits.bytes,
            },
            used: QuotaUse {
                keys: quota.used_keys,
                bytes: quota.used_bytes,
            },
        })
    };
    reply.quotas.into_iter().map(quota).collect()
}

/// See [`Client::remove_quota`](crate::Client::remove_quota).
pub(crate) async fn remove(caller: &Caller, prefix: Bytes) -> Result<()> {
    let request = pb::QuotaRemoveRequest { prefix };
    let send = |channel, request| async move { QuotasClient::new(channel).remove(request).await };
    let removed = caller.call(Repeat::Never, None, request, send).await;
    removed.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::silent::silent_server;
    use crate::{Client, Error};

    /// It was sent again, over a newer quota of somebody else, and reported as not set although it may have been.
    #[tokio::test]
    async fn a_quota_whose_answer_is_lost_is_of_unknown_outcome_and_sent_once() {
        let (address, taken) = silent_server(b"PREFIXQ").await;
        let builder = Client::builder().endpoints([address.clone(), address]);
        let client = builder.connect_lazy().unwrap();
        let limits = QuotaLimits {
            keys: Some(1),
            bytes: None,
        };
        let set = client.set_quota("PREFIXQ", limits).await;
        assert!(matches!(set, Err(Error::UnknownOutcome { .. })), "{set:?}");
        assert_eq!(taken.load(Ordering::Relaxed), 1);
        let removed = client.remove_quota("PREFIXQ").await;
        assert!(
            matches!(removed, Err(Error::UnknownOutcome { .. })),
            "{removed:?}"
        );
        assert_eq!(taken.load(Ordering::Relaxed), 2);
    }
}
