//! The scrubber: reads every file of a member within a configurable span, so that damage is found while other members have
//! the data, and not when it is needed.
//!
//! One table after the other, in the order of their names, with equal pauses. After the last table come the manifest, the file
//! `MEMBER` and the log. Only the table that is being read is kept from removal.
//!
//! | damage in | what is done |
//! |---|---|
//! | a table | the tables are replaced by the leader's ([`repair`](super::repair)) |
//! | the manifest, `BOWLINE`, `MEMBER` | written anew at once: what they say is in memory |
//! | the log | told: at its next start the member gets it back from the others, and votes only then ([`owed`](super::owed)) |
//!
//! The log and `MEMBER` are read beside their writers, a part at a time.

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
                if name.is_empty() {
                    read_the_rest(core).await;
                }
                last = name;
                let share = span / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
                pause = share.max(PAUSE_MIN);
                core.counts.tables_scrubbed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(None) => {
                read_the_rest(core).await;
                pause = PAUSE_EMPTY.min(span);
            }
            Err(error) => {
                tracing::error!(%error, "a table of this member is damaged");
                pause = PAUSE_EMPTY;
            }
        }
    }
}

/// Reads what is not in tables.
async fn read_the_rest(core: &Core) {
    let (replica, member) = (core.replica.clone(), core.log.member().clone());
    let mending = crate::blocking::spawn(move || -> [Result<Option<Error>>; 2] {
        let manifest = replica.mend_manifest().map_err(Error::from);
        let member = member.mend().map_err(Error::from);
        [
            manifest.map(|damage| damage.map(Error::from)),
            member.map(|damage| damage.map(Error::from)),
        ]
    });
    for mended in mending.await.into_iter().flatten() {
        match mended {
            Ok(None) => {}
            Ok(Some(damage)) => {
                core.counts.damage_found.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%damage, "a file of this member was damaged; it is written anew");
            }
            Err(error) => tracing::warn!(%error, "a file of this member cannot be read back"),
        }
    }
    let mut from = 0;
    loop {
        let log = core.log.clone();
        let read = crate::blocking::spawn(move || log.verify(from)).await;
        match read {
            Ok(Ok(Some(next))) => from = next,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(error)) => {
                core.counts.damage_found.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    %error,
                    "the log of this member is damaged: restart it while the others are there, and it gets the log \
                     back from them"
                );
                return;
            }
        }
        tokio::time::sleep(PAUSE_MIN).await;
    }
}
