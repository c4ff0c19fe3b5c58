//! Reads of one key or many.

use std::future::IntoFuture;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use bowline_proto::etcdserverpb::{RangeRequest, RangeResponse};
use bowline_types::Revision;
use tonic::metadata::MetadataMap;

use crate::caller::{Caller, Repeat};
use crate::reply::{READ_LEVEL, signed, unsigned};
use crate::{BoxFuture, Entry, Header, KeyRange, ReadLevel, Result};

/// A read. [`Client::get`](crate::Client::get) and [`Client::range`](crate::Client::range) give one;
/// `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{ReadLevel, Revision, SortBy};
///
/// // The ten jobs that were changed last, without their values, from any member.
/// let newest = client
///     .get("jobs/")
///     .prefix()
///     .descending(SortBy::ModRevision)
///     .limit(10)
///     .keys_only()
///     .level(ReadLevel::Eventual)
///     .await?;
///
/// // The same keys as they were when the newest of them was written, page by page.
/// let then = newest.entry().map_or(Revision::FIRST, |entry| entry.mod_revision);
/// let page = client.get("jobs/").prefix().revision(then).limit(100).await?;
/// println!("{} of {} jobs", page.entries.len(), page.count);
///
/// // Jobs that were made and changed within some revisions.
/// let young = client.get("jobs/").prefix().created(then..).modified(..newest.header.revision).await?;
/// println!("{} young jobs", young.entries.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Get {
    caller: Arc<Caller>,
    read: Read,
    level: ReadLevel,
}

/// What a read asks for, without where it goes; also an operation of a transaction.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) request: RangeRequest,
}

/// The least and the greatest revision of a range, as the wire has them: 0 is no bound.
fn bounds(revisions: impl RangeBounds<Revision>) -> (i64, i64) {
    /// No entry has revisions between these.
    const NONE: (i64, i64) = (i64::MAX, 1);
    let least = match revisions.start_bound() {
        Bound::Unbounded => 0,
        Bound::Included(revision) => signed(revision.get()),
        Bound::Excluded(revision) => signed(revision.saturating_add(1).get()),
    };
    let most = match revisions.end_bound() {
        Bound::Unbounded => return (least, 0),
        Bound::Included(revision) => signed(revision.get()),
        Bound::Excluded(revision) => signed(revision.saturating_sub(1).get()),
    };
    if most == 0 { NONE } else { (least, most) }
}

/// What entries are sorted by.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::SortBy;
///
/// // The key that was written most often.
/// let busiest = client.get("svc/").prefix().descending(SortBy::Version).limit(1).await?;
/// println!("{:?}", busiest.entry());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortBy {
    /// The key.
    Key,
    /// The number of puts since its creation.
    Version,
    /// The create revision.
    CreateRevision,
    /// The modification revision.
    ModRevision,
    /// The value.
    Value,
}

impl Read {
    pub(crate) fn new(range: KeyRange) -> Read {
        let (key, range_end) = range.into_parts();
        let request = RangeRequest {
            key,
            range_end,
            ..RangeRequest::default()
        };
        Read { request }
    }
}

impl Get {
    pub(crate) fn new(caller: Arc<Caller>, range: KeyRange) -> Get {
        Get {
            caller,
            read: Read::new(range),
            level: ReadLevel::default(),
        }
    }

    /// Extends the key to all keys with this prefix.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let services = client.get("svc/").prefix().await?;
    /// println!("{} services", services.entries.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self) -> Get {
        let range = KeyRange::prefix(std::mem::take(&mut self.read.request.key));
        (self.read.request.key, self.read.request.range_end) = range.into_parts();
        self
    }

    /// At most this many entries. [`RangeReply::more`] says whether there are others. 0 is no limit, as in etcd.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let page = client.get("svc/").prefix().limit(100).await?;
    /// println!("{}", if page.more { "there are more" } else { "that is all" });
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, limit: u64) -> Get {
        self.read.request.limit = signed(limit);
        self
    }

    /// Reads at this revision. Default: the newest.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let now = client.get("greeting").await?;
    /// let before = client.get("greeting").revision(now.header.revision.saturating_sub(1)).await?;
    /// println!("{:?}", before.value());
    /// # Ok(())
    /// # }
    /// ```
    pub fn revision(mut self, revision: Revision) -> Get {
        self.read.request.revision = signed(revision.get());
        self
    }

    /// Smallest first.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::SortBy;
    /// let oldest = client.get("jobs/").prefix().ascending(SortBy::CreateRevision).limit(1).await?;
    /// println!("{:?}", oldest.entry());
    /// # Ok(())
    /// # }
    /// ```
    pub fn ascending(self, by: SortBy) -> Get {
        self.sorted(by, SortOrder::Ascend)
    }

    /// Largest first.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::SortBy;
    /// let newest = client.get("jobs/").prefix().descending(SortBy::ModRevision).limit(1).await?;
    /// println!("{:?}", newest.entry());
    /// # Ok(())
    /// # }
    /// ```
    pub fn descending(self, by: SortBy) -> Get {
        self.sorted(by, SortOrder::Descend)
    }

    fn sorted(mut self, by: SortBy, order: SortOrder) -> Get {
        let target = match by {
            SortBy::Key => SortTarget::Key,
            SortBy::Version => SortTarget::Version,
            SortBy::CreateRevision => SortTarget::Create,
            SortBy::ModRevision => SortTarget::Mod,
            SortBy::Value => SortTarget::Value,
        };
        self.read.request.sort_target = target.into();
        self.read.request.sort_order = order.into();
        self
    }

    /// Without values.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for entry in client.get("svc/").prefix().keys_only().await?.entries {
    ///     println!("{:?}", entry.key);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys_only(mut self) -> Get {
        self.read.request.keys_only = true;
        self
    }

    /// Without entries: only [`RangeReply::count`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// println!("{} keys", client.get("svc/").prefix().count_only().await?.count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn count_only(mut self) -> Get {
        self.read.request.count_only = true;
        self
    }

    /// Only entries last changed at these revisions.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Revision;
    ///
    /// let since = Revision::new(1_000);
    /// println!("{} new ones", client.get("svc/").prefix().modified(since..).await?.count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn modified(mut self, revisions: impl RangeBounds<Revision>) -> Get {
        let (least, most) = bounds(revisions);
        self.read.request.min_mod_revision = least;
        self.read.request.max_mod_revision = most;
        self
    }

    /// Only entries made at these revisions.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Revision;
    ///
    /// let old = client.get("svc/").prefix().created(..Revision::new(1_000)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn created(mut self, revisions: impl RangeBounds<Revision>) -> Get {
        let (least, most) = bounds(revisions);
        self.read.request.min_create_revision = least;
        self.read.request.max_create_revision = most;
        self
    }

    /// The required freshness. Default: [`ReadLevel::Linearizable`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::ReadLevel;
    /// let read = client.get("greeting").level(ReadLevel::Lease).await?;
    /// println!("{:?}", read.value());
    /// # Ok(())
    /// # }
    /// ```
    pub fn level(mut self, level: ReadLevel) -> Get {
        self.level = level;
        self
    }

    /// [`ReadLevel::Eventual`] by its name in etcd.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let read = client.get("greeting").serializable().await?;
    /// println!("{:?}", read.value());
    /// # Ok(())
    /// # }
    /// ```
    pub fn serializable(self) -> Get {
        self.level(ReadLevel::Eventual)
    }

    async fn send(self) -> Result<RangeReply> {
        let mut request = self.read.request;
        request.serializable = self.level == ReadLevel::Eventual;
        let metadata =
            (self.level == ReadLevel::Lease).then_some((READ_LEVEL, ReadLevel::Lease.name()));
        let caller = &*self.caller;
        let send = |channel, request| async move {
            KvClient::new(channel)
                .max_decoding_message_size(caller.settings().reply_bytes_max)
                .range(request)
                .await
        };
        let (reply, metadata) = caller.call(Repeat::Always, metadata, request, send).await?;
        Ok(RangeReply::new(reply, &metadata))
    }
}

impl IntoFuture for Get {
    type Output = Result<RangeReply>;
    type IntoFuture = BoxFuture<RangeReply>;

    fn into_future(self) -> BoxFuture<RangeReply> {
        Box::pin(self.send())
    }
}

/// The result of a read.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::RangeReply;
///
/// let page: RangeReply = client.get("svc/").prefix().limit(100).await?;
/// for entry in &page.entries {
///     println!("{:?} = {:?}", entry.key, entry.value);
/// }
/// if page.more {
///     println!("{} keys in all, as of revision {}", page.count, page.header.revision);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeReply {
    /// The reply header.
    pub header: Header,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether the limit left entries out.
    pub more: bool,
    /// How many keys there are, whatever the limit.
    pub count: u64,
}

impl RangeReply {
    pub(crate) fn new(reply: RangeResponse, metadata: &MetadataMap) -> RangeReply {
        RangeReply {
            header: Header::new(reply.header, metadata),
            entries: reply.kvs.into_iter().map(Entry::from).collect(),
            more: reply.more,
            count: unsigned(reply.count),
        }
    }

    /// The first entry, for a read of one key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// if let Some(entry) = client.get("greeting").await?.entry() {
    ///     println!("version {}", entry.version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.first()
    }

    /// The value of the first entry, for a read of one key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let reply = client.get("greeting").await?;
    /// assert_eq!(reply.value(), Some(&b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.entry().map(|entry| &entry.value[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bound_is_zero_and_an_empty_range_is_not_every_revision() {
        let at = Revision::new;
        assert_eq!(bounds(..), (0, 0));
        assert_eq!(bounds(at(3)..), (3, 0));
        assert_eq!(bounds(..at(3)), (0, 2));
        assert_eq!(bounds(at(3)..=at(9)), (3, 9));
        for empty in [bounds(..at(1)), bounds(at(0)..=at(0)), bounds(..at(0))] {
            assert!(empty.0 > empty.1 && empty.1 > 0, "{empty:?}");
        }
    }
}
