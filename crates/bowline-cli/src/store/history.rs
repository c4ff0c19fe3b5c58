//! The history of a key in a cluster.
//!
//! A Bowline server returns it in one reply. etcd has no such call; there it is read by a watch from the oldest readable
//! revision on, which delivers every change, and by a read at that revision, which returns the version before the first
//! change.
//!
//! The watch ends with the last change of the key. For an existing key, its modification revision is known. For an absent
//! key the revision of the deletion is unknown, so everything up to the newest revision is watched. Progress notifications
//! would be cheaper, but servers have sent them ahead of events.

use std::cmp::Reverse;
use std::time::Duration;

use bowline::{Revision, Version};
use bowline_client::{Client, Error, EventKind, KeyRange};

use crate::exit::Failure;
use crate::remote::{Remote, entry};

/// How long a server may be silent while it has not given all of the past.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A change of a key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) version: Version,
    /// Who has made it, unless the name is hidden, and when: milliseconds since the Unix epoch.
    pub(crate) who: Option<(Option<String>, u64)>,
}

impl Remote {
    /// The changes of a key, the newest first; at most `limit` from a server that can bound them.
    pub(super) fn history(
        &self,
        key: &[u8],
        limit: Option<u64>,
        who: bool,
    ) -> Result<Vec<Change>, Failure> {
        let client = &self.client;
        let mut changes: Vec<Change> = self.wait(async {
            let request = client.history(key.to_vec()).level(self.level);
            let request = match who {
                true => request.authors(),
                false => request,
            };
            match set!(request, limit(limit)).await {
                Ok(reply) => {
                    let versions = reply.versions.into_iter();
                    Ok(versions
                        .map(|one| Change {
                            version: version(one.revision, one.entry),
                            who: one.author.map(|author| (author.user, author.at_ms)),
                        })
                        .collect())
                }
                Err(Error::Unimplemented { .. }) => {
                    let versions = watched(client, key).await?.into_iter();
                    let change = |version| Change { version, who: None };
                    Ok(versions.map(change).collect())
                }
                Err(error) => Err(error),
            }
        })?;
        changes.sort_by_key(|change| Reverse(change.version.revision));
        Ok(changes)
    }
}

fn version(revision: Revision, found: Option<bowline_client::Entry>) -> Version {
    Version {
        revision,
        entry: found.map(entry),
    }
}

/// Every version that etcd still has.
async fn watched(client: &Client, key: &[u8]) -> bowline_client::Result<Vec<Version>> {
    let found = client.get(key.to_vec()).await?;
    let (range, last) = match found.entry() {
        Some(entry) => (KeyRange::key(key.to_vec()), entry.mod_revision),
        None => (KeyRange::all(), found.header.revision),
    };
    let mut versions = Vec::new();
    // The first revision of all is that of an empty database.
    let mut from = Revision::FIRST + 1;
    while from <= last {
        match watched_between(client, &range, key, from, last).await {
            Ok(found) => {
                versions.extend(found);
                break;
            }
            Err(Error::Compacted {
                compact_revision: Some(oldest),
            }) if oldest > from => {
                let before = client.get(key.to_vec()).revision(oldest).await?;
                let before = before.entries.into_iter().next();
                let before = before.filter(|entry| entry.mod_revision <= oldest);
                versions = before
                    .map(|entry| version(entry.mod_revision, Some(entry)))
                    .into_iter()
                    .collect();
                // What this revision has changed is seen by that read.
                from = oldest + 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(versions)
}

async fn watched_between(
    client: &Client,
    range: &KeyRange,
    key: &[u8],
    from: Revision,
    last: Revision,
) -> bowline_client::Result<Vec<Version>> {
    let mut watcher = client.watch(range.clone()).from(from).await?;
    let mut versions = Vec::new();
    while watcher.next_revision() <= last {
        let next = tokio::time::timeout(SILENCE_MAX, watcher.next()).await;
        let Some(batch) = next.map_err(|_| Error::TimedOut)?? else {
            break;
        };
        for event in batch.events {
            if event.entry.key == key && event.revision() <= last {
                let is_put = event.kind == EventKind::Put;
                versions.push(version(event.revision(), is_put.then_some(event.entry)));
            }
        }
    }
    Ok(versions)
}
