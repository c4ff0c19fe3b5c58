//! The retry of transactions: the body runs again after a conflict, with a random pause that grows with each attempt.

use std::time::Duration;

use tokio::time::Instant;

use super::Transaction;
use crate::{Error, Result};

/// After this time, a further conflict is the result.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest pause between two attempts.
const PAUSE_MAX_US: u64 = 100_000;

/// Runs transactions until one commits, fails with another error than a conflict, or the retry timeout has passed.
pub(crate) async fn until_committed<T>(
    begin: impl Fn() -> Transaction,
    mut body: impl AsyncFnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    let mut attempts = 0_u32;
    loop {
        let mut tx = begin();
        attempts += 1;
        let result = match body(&mut tx).await {
            Ok(value) => tx.commit().await.map(|_| value),
            Err(error) => Err(error),
        };
        match result {
            // If the revision was compacted meanwhile, another transaction has committed after it.
            Err(Error::Conflict { .. } | Error::Compacted { .. }) => {}
            other => return other,
        }
        let elapsed = start.elapsed();
        if elapsed > RETRY_TIMEOUT {
            return Err(Error::TooManyConflicts { attempts, elapsed });
        }
        // The winner is ahead by about a round trip; a transaction that loses again pauses longer.
        let most_us = (500 << attempts.min(20)).min(PAUSE_MAX_US);
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most_us))).await;
    }
}
