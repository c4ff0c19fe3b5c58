//! The quota, as in etcd: a request that takes space is refused before it is proposed if the database would exceed the
//! quota with it.
//!
//! The size of the database does not include requests that are not applied yet, so their bytes are reserved until
//! they are. A comparison at intervals would be too late: within a quarter of a second clients can write more than the
//! quota.
//!
//! Requests through other members count once they are applied here. So the quota is exceeded by at most what the other
//! members have proposed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The space that requests of this member's clients are about to take.
#[derive(Debug, Default)]
pub(crate) struct Space {
    reserved_bytes: AtomicU64,
    refused: Notify,
}

/// Bytes of a request that is under way.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    space: &'a Space,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let Reserved { space, bytes } = self;
        space.reserved_bytes.fetch_sub(*bytes, Ordering::Relaxed);
    }
}

impl Space {
    /// Waits until a request was refused for the quota.
    pub(super) async fn refused(&self) {
        self.refused.notified().await;
    }

    /// Reserves `bytes` of what a database of `data_bytes` leaves of the quota; `None`, which the maintenance
    /// task hears of, where that is less. A quota of 0 is no limit.
    pub(super) fn reserve(
        &self,
        bytes: u64,
        quota: u64,
        data_bytes: impl Fn() -> u64,
    ) -> Option<Reserved<'_>> {
        let before = self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        let reserved = Reserved { space: self, bytes };
        let fits = || before.saturating_add(bytes).saturating_add(data_bytes()) <= quota;
        if quota == 0 || fits() {
            return Some(reserved);
        }
        self.refused.notify_one();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quota was looked at four times a second: ten puts of 500 kB passed one of 4 MB.
    #[test]
    fn requests_under_way_count_toward_the_quota() {
        let space = Space::default();
        let first = space.reserve(60, 100, || 0).expect("room");
        assert!(space.reserve(41, 100, || 0).is_none());
        assert!(space.reserve(40, 100, || 1).is_none());
        let second = space
            .reserve(40, 100, || 0)
            .expect("room: refusals reserve nothing");
        drop(first);
        assert!(
            space.reserve(1, 100, || 60).is_none(),
            "it is in the database now"
        );
        drop(second);
        assert!(space.reserve(40, 100, || 60).is_some());
        assert!(
            space.reserve(u64::MAX, 0, || u64::MAX).is_some(),
            "no limit"
        );
    }
}
