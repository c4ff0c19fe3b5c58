//! The history of a key.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_proto::v1::store_client::StoreClient;
use bowline_types::Revision;
use bytes::Bytes;

use crate::caller::Caller;
use crate::v1::{awaits, collect, cut_off, header, read_settings};
use crate::{Entry, Header, ReadLevel, Result};

/// A read of a key's history. [`Client::history`](crate::Client::history) gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision};
///
/// // What the key was at revision 100, and at most nine changes before it.
/// let past = client
///     .history("config")
///     .limit(10)
///     .revision(Revision::new(100))
///     .level(ReadLevel::Eventual)
///     .await?;
/// for version in past.versions {
///     println!("{}: {:?}", version.revision, version.entry);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct History {
    caller: Arc<Caller>,
    request: pb::HistoryRequest,
}

read_settings!(History);
awaits!(History, HistoryReply);

impl History {
    pub(crate) fn new(caller: Arc<Caller>, key: Bytes) -> History {
        let request = pb::HistoryRequest {
            key,
            ..pb::HistoryRequest::default()
        };
        History { caller, request }
    }

    /// At most this many versions, the newest. 0 is no limit, as in etcd.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let newest = client.history("greeting").limit(10).await?;
    /// println!("{} versions", newest.versions.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, limit: u64) -> History {
        self.request.limit = limit;
        self
    }

    /// Also who has made each change, and when: see [`Version::author`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for version in client.history("config").authors().await?.versions {
    ///     println!("{}: {:?}", version.revision, version.author);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn authors(mut self) -> History {
        self.request.authors = true;
        self
    }

    async fn send(self) -> Result<HistoryReply> {
        let caller = &*self.caller;
        let is_last = |part: &pb::HistoryReply| part.is_last;
        let parts = collect(
            caller,
            self.request,
            is_last,
            |channel, request| async move {
                StoreClient::new(channel)
                    .max_decoding_message_size(caller.settings().reply_bytes_max)
                    .history(request)
                    .await
            },
        )
        .await?;
        let (header, revision) = header(parts.first().ok_or_else(cut_off)?.header)?;
        let versions = parts.into_iter().flat_map(|part| part.versions);
        let version = |version: pb::Version| Version {
            revision: Revision::new(version.revision),
            entry: version.entry.map(Entry::from),
            author: version.author.map(|author| Author {
                user: Some(author.user).filter(|user| !user.is_empty()),
                at_ms: author.at_ms,
            }),
        };
        Ok(HistoryReply {
            header,
            revision,
            versions: versions.map(version).collect(),
        })
    }
}

/// The history of a key.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::HistoryReply;
///
/// let past: HistoryReply = client.history("config").await?;
/// println!("{} changes up to revision {}", past.versions.len(), past.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryReply {
    /// The reply header.
    pub header: Header,
    /// The revision that was read: later changes are not included.
    pub revision: Revision,
    /// Newest first. The oldest is the version at the oldest readable revision.
    pub versions: Vec<Version>,
}

/// One change of a key.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Version;
///
/// fn show(version: &Version) -> String {
///     match &version.entry {
///         Some(entry) => format!("{}: {:?}", version.revision, entry.value),
///         None => format!("{}: deleted", version.revision),
///     }
/// }
///
/// for version in client.history("config").await?.versions {
///     println!("{}", show(&version));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// The revision of the change.
    pub revision: Revision,
    /// The entry after the change; `None` for a deletion.
    pub entry: Option<Entry>,
    /// Who has made it, if [`History::authors`] has asked and it is known: only while authentication was enabled, and as long as
    /// the history of the revision is kept.
    pub author: Option<Author>,
}

/// Who has made a change.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Author;
///
/// fn show(author: &Author) -> String {
///     format!("{} at {} ms", author.user.as_deref().unwrap_or("another user"), author.at_ms)
/// }
///
/// for version in client.history("config").authors().await?.versions {
///     println!("{:?}", version.author.as_ref().map(show));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Author {
    /// The name of the user; `None` where the caller may not see it: names of others need the role `root`.
    pub user: Option<String>,
    /// When: milliseconds since the Unix epoch, by the clock of the member that the user called.
    pub at_ms: u64,
}
