//! The scrubber: reads every table within a configurable span, so that damage is found while other members have
//! the data, and not when it is needed.
//!
//! One table after the other, in the order of their names, with equal pauses. Only the table that is being read is
//! kept from removal.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::Core;
use crate::error::{Error, Result};

/// The shortest pause between two tables.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The pause where there are no tables.
const PAUSE_EMPTY: Duration = Duration::from_secs(1);

/// Runs until the node is closed.
pub(crate) async fn run(core: &Core) {
    let span = core.options.scrub_interval;
    if span.is_zero() {
        return std::future::pending().await;
    }
    let mut last = String::new();
    let mut pause = PAUSE_EMPTY.min(span);
    loop {
        tokio::time::sleep(pause).await;
        if core.repairs.is_wanted() {
            continue;
        }
        let replica = core.replica.clone();
        let after = last.clone();
        let read = crate::blocking::spawn(move || -> Result<Option<(String, usize)>> {
            let Some((frozen, _)) = replica.freeze_flushed()? else {
                return Ok(None);
            };
            let count = frozen.tables.len();
            let behind = frozen.tables.iter().filter(|table| table.name() > after);
            let next = behind.min_by_key(|table| table.name());
            let Some(table) = next.cloned() else {
                return Ok(Some((String::new(), count)));
            };
            drop(frozen);
            table.verify()?;
            Ok(Some((table.name(), count)))
        });
        let read = read.await.map_err(Error::stopped);
        match core.noting(read.and_then(|read| read)) {
            Ok(Some((name, count))) => {
                last = name;
                let share = span / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
                pause = share.max(PAUSE_MIN);
                core.counts.tables_scrubbed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(None) => pause = PAUSE_EMPTY.min(span),
            Err(error) => {
                tracing::error!(%error, "a table of this member is damaged");
                pause = PAUSE_EMPTY;
            }
        }
    }
}
