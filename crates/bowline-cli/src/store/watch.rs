//! Changes as they are made, in a directory or in a cluster.

use std::time::Duration;

use bowline::{Change, ChangeKind, Revision};
use bowline_client::{Error, EventKind};

use crate::exit::Failure;
use crate::interrupt;
use crate::remote::{Remote, entry};

/// A watch that has begun.
pub(crate) enum Watcher<'a> {
    Local(bowline::Watcher),
    Remote(&'a Remote, bowline_client::Watcher),
}

impl Watcher<'_> {
    /// The next changes, with their revisions as `mod_revision`; `None` if there are none in time, or the user
    /// interrupts a session.
    pub(crate) fn next(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Vec<Change>>, Failure> {
        /// How long a wait without a timeout lasts before it begins anew.
        const FOREVER: Duration = Duration::from_secs(3600);
        let mut left = timeout.unwrap_or(FOREVER);
        loop {
            let wait = interrupt::wait_max(left);
            if let Some(changes) = self.wait(wait)? {
                return Ok(Some(changes));
            }
            left -= wait;
            if interrupt::is_pressed() || (left.is_zero() && timeout.is_some()) {
                return Ok(None);
            }
            if left.is_zero() {
                left = FOREVER;
            }
        }
    }

    fn wait(&mut self, wait: Duration) -> Result<Option<Vec<Change>>, Failure> {
        match self {
            Watcher::Local(watcher) => {
                let found = watcher.recv_timeout(wait)?;
                Ok(found.map(|found| found.changes))
            }
            Watcher::Remote(remote, watcher) => {
                let next = async { tokio::time::timeout(wait, watcher.next()).await };
                let Ok(next) = remote.runtime.block_on(next) else {
                    return Ok(None);
                };
                let batch = next?.ok_or(Error::Stopped)?;
                let changes = batch.events.into_iter().map(|event| {
                    let kind = match event.kind {
                        EventKind::Put => ChangeKind::Put,
                        EventKind::Delete => ChangeKind::Delete,
                    };
                    Change::new(kind, entry(event.entry))
                });
                Ok(Some(changes.collect()))
            }
        }
    }

    /// The first revision whose changes have not been given: where a later watch would go on.
    pub(crate) fn next_revision(&self) -> Revision {
        match self {
            Watcher::Local(watcher) => watcher.next_revision(),
            Watcher::Remote(_, watcher) => watcher.next_revision(),
        }
    }
}
