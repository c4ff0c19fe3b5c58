//! Interactive transactions: reads of one revision, own writes on top, one atomic commit.
//!
//! ```text
//!   first read ──▶ at the requested level; its revision becomes the transaction's
//!   other reads ─▶ at that revision, from any member that has it
//!   writes ──────▶ kept in the client, seen by the transaction's reads
//!   commit ──────▶ revision, read set, write set: one request, sent once
//! ```
//!
//! Optimistic: there are no locks and no state in the server. At the commit every member checks the read set
//! for changes since the transaction's revision.
//!
//! | isolation | checked at commit | allows |
//! |---|---|---|
//! | serializable | all reads: keys, absent keys, ranges, blocks, edges, neighbors | nothing |
//! | snapshot | all written keys, blocks and edges | write skew |
//!
//! A serializable execution is equivalent to a serial order, the commit order. Both levels also check
//! integrity: an edge's blocks exist, a deleted block has no other edges, a lease exists. A blind write under
//! serializable isolation never conflicts. A compare-and-swap checks only the revision of its key.
//!
//! Invariants: all reads of a transaction are of one revision. A commit is put on a connection at most once,
//! and never again when its outcome is unknown.

mod graph;
mod retry;
mod state;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use bowline_proto::v1 as pb;
use bowline_proto::v1::store_client::StoreClient;
use bowline_types::{Expected, Revision, Touched};
use bytes::Bytes;
use pb::commit_reply::Outcome;
use pb::conflict::What;
use tonic::transport::Channel;

use crate::caller::{Caller, Repeat};
use crate::graph::{EdgeKey, GraphClient, id_of};
use crate::v1::{self, collect, header, senseless};
use crate::{Entry, Error, Isolation, KeyRange, LeaseId, ReadLevel, Result};
use state::{Own, Read, State};

pub(crate) use retry::until_committed;

/// How a transaction is run.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Isolation, ReadLevel, TransactionOptions};
///
/// // Reads at any member, and lets others change what it only reads.
/// let options = TransactionOptions::default()
///     .isolation(Isolation::Snapshot)
///     .level(ReadLevel::Eventual);
/// let mut tx = client.begin_with(options);
/// let limit = tx.get("limit").await?.unwrap_or_default();
/// tx.put("copy", limit)?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// What must be unchanged at commit.
    pub isolation: Isolation,
    /// The freshness of the first read, which sets the revision of all reads. An old revision only makes
    /// conflicts likelier: the commit checks all newer changes.
    pub level: ReadLevel,
}

impl TransactionOptions {
    /// Sets the isolation.
    ///
    /// ```
    /// # use bowline_client::{Isolation, TransactionOptions};
    /// let options = TransactionOptions::default().isolation(Isolation::Snapshot);
    /// ```
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> TransactionOptions {
        self.isolation = isolation;
        self
    }

    /// Sets the level of the first read.
    ///
    /// ```
    /// # use bowline_client::{ReadLevel, TransactionOptions};
    /// let options = TransactionOptions::default().level(ReadLevel::Eventual);
    /// ```
    #[must_use]
    pub fn level(mut self, level: ReadLevel) -> TransactionOptions {
        self.level = level;
        self
    }
}

/// The result of a commit.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Committed, KeyRange};
///
/// let mut tx = client.begin();
/// tx.delete_range(KeyRange::prefix("tmp/")).await?;
/// let Committed { revision, deleted, changed, .. } = tx.commit().await?;
/// if changed && let Some(revision) = revision {
///     println!("{deleted} keys were deleted at revision {revision}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The revision of the commit; the newest revision if nothing changed. Without writes: the revision of the reads,
    /// `None` if there were none of them, either.
    pub revision: Option<Revision>,
    /// The number of existing keys that it deleted.
    pub deleted: u64,
    /// Whether it changed anything.
    pub changed: bool,
}

/// A transaction. [`Client::begin`](crate::Client::begin) gives one. Nothing is written before
/// [`Transaction::commit`]; dropping it discards its writes.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Expected, KeyRange};
///
/// let mut tx = client.begin();
/// let balance = tx.get("account/a").await?.unwrap_or_default();
/// let accounts = tx.range(KeyRange::prefix("account/")).await?;
/// tx.put("copy/a", balance)?;
/// tx.delete("account/b").await?;
/// tx.delete_range(KeyRange::prefix("tmp/")).await?;
/// tx.expect("lock", Expected::Absent)?;
/// let committed = tx.commit().await?;   // or `tx.rollback()`
/// println!("{} accounts, revision {:?}", accounts.len(), committed.revision);
/// # Ok(())
/// # }
/// ```
///
/// Keys, blocks and edges change together:
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{Block, BlockId, Direction, Edge};
///
/// // Puts another library in the place of an old one, for every package that uses it.
/// let (old, new) = (BlockId::from_name("lib-1"), BlockId::from_name("lib-2"));
/// let mut tx = client.begin();
/// let attributes = tx.block(old).await?.map(|block| block.attributes).unwrap_or_default();
/// tx.put_block(Block { attributes, ..Block::new(new, "package") });
/// for user in tx.neighbors(old, Direction::In, ["depends_on"]).await? {
///     if let Some(edge) = tx.edge(user.id, "depends_on", old).await? {
///         tx.delete_edge(user.id, "depends_on", old).await?;
///         tx.put_edge(Edge { target: new, ..edge });
///     }
/// }
/// tx.delete_block(old).await?;
/// tx.put("replaced/lib-1", "lib-2")?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "its writes are lost unless it is committed"]
pub struct Transaction {
    caller: Arc<Caller>,
    options: TransactionOptions,
    /// The revision of all its reads; `None` before the first was answered.
    read_revision: Option<Revision>,
    state: State,
}

impl Transaction {
    pub(crate) fn new(caller: Arc<Caller>, options: TransactionOptions) -> Transaction {
        Transaction {
            caller,
            options,
            read_revision: None,
            state: State::default(),
        }
    }

    /// The revision of all its reads; `None` before the first was answered.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// assert_eq!(tx.read_revision(), None);
    /// tx.get("greeting").await?;
    /// println!("all reads are of revision {:?}", tx.read_revision());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_revision(&self) -> Option<Revision> {
        self.read_revision
    }

    /// Reads at the transaction's revision, which the first read determines.
    async fn read<T, F>(&mut self, read: impl Fn(pb::Read) -> F) -> Result<T>
    where
        F: Future<Output = Result<(T, Revision)>>,
    {
        let at = |level, revision| pb::Read {
            level: v1::wire_level(level).into(),
            revision,
        };
        let Some(revision) = self.read_revision else {
            let (found, revision) = read(at(self.options.level, 0)).await?;
            if revision == 0 {
                return Err(senseless("it was read at no revision"));
            }
            self.read_revision = Some(revision);
            return Ok(found);
        };
        // A revision is immutable: any member that has it may serve it, others refuse.
        let found = match read(at(ReadLevel::Eventual, revision.get())).await {
            Err(Error::FutureRevision) => read(at(ReadLevel::Linearizable, revision.get())).await,
            found => found,
        };
        Ok(found?.0)
    }

    fn service(caller: &Caller, channel: Channel) -> StoreClient<Channel> {
        StoreClient::new(channel).max_decoding_message_size(caller.settings().reply_bytes_max)
    }

    fn graph(&self) -> GraphClient {
        GraphClient::new(Arc::clone(&self.caller))
    }

    // --- keys and values ---

    /// The value of a key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// match tx.get("greeting").await? {
    ///     Some(greeting) => tx.put("copy", greeting)?,
    ///     None => println!("there is no greeting"),
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Compacted` when the snapshot is no longer readable; those of [any
    /// read](crate::Error#errors-of-any-read).
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>> {
        let key = key.into();
        match self.state.own(&key) {
            Some(Own::Put { value, .. }) => return Ok(Some(value)),
            Some(Own::Deleted) => return Ok(None),
            None => {}
        }
        Ok(self.stored(key).await?.map(|entry| entry.value))
    }

    /// The value of a key with its metadata. A key written by this transaction has the new value, but the
    /// revisions and version from before the write, or 0 for a new key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// if let Some(entry) = tx.entry("greeting").await? {
    ///     println!("version {} of revision {}", entry.version, entry.mod_revision);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn entry(&mut self, key: impl Into<Bytes>) -> Result<Option<Entry>> {
        let key = key.into();
        let own = self.state.own(&key);
        if let Some(Own::Deleted) = own {
            return Ok(None);
        }
        let before = self.stored(key.clone()).await?;
        Ok(match own {
            Some(Own::Put { value, lease }) => Some(state::own_entry(key, value, lease, before)),
            _ => before,
        })
    }

    /// A key as it is stored, which counts as read.
    async fn stored(&mut self, key: Bytes) -> Result<Option<Entry>> {
        self.state.reads.insert(Read::Key(key.clone()));
        let (caller, key) = (Arc::clone(&self.caller), &key);
        let caller = &*caller;
        let found = self.read(|read| {
            let request = pb::GetRequest {
                read: Some(read),
                keys: vec![key.clone()],
            };
            async move {
                let reply = v1::ask(caller, request, |channel, request| async move {
                    Transaction::service(caller, channel).get(request).await
                })
                .await?;
                let (_, revision) = header(reply.header)?;
                Ok((reply.entries, revision))
            }
        });
        Ok(found.await?.into_iter().next().map(Entry::from))
    }

    /// The entries of a range in key order, with the transaction's writes. The whole range counts as read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// let jobs = tx.range("jobs/".."jobs0").await?;
    /// // A job that is added meanwhile is a conflict.
    /// tx.put("jobs-count", jobs.len().to_string())?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn range(&mut self, range: impl Into<KeyRange>) -> Result<Vec<Entry>> {
        self.entries(range.into(), false).await
    }

    async fn entries(&mut self, range: KeyRange, keys_only: bool) -> Result<Vec<Entry>> {
        let (key, range_end) = range.clone().into_parts();
        let read = Read::Range(key.clone(), range_end.clone());
        self.state.reads.insert(read);
        let caller = Arc::clone(&self.caller);
        let caller = &*caller;
        let wire = &pb::KeyRange { key, range_end };
        let found = self.read(|read| {
            let request = pb::RangeRequest {
                read: Some(read),
                range: Some(wire.clone()),
                keys_only,
                ..pb::RangeRequest::default()
            };
            async move {
                let is_last = |part: &pb::RangeReply| part.is_last;
                let parts = collect(caller, request, is_last, |channel, request| async move {
                    Transaction::service(caller, channel).range(request).await
                })
                .await?;
                let first = parts.first().ok_or_else(v1::cut_off)?;
                let (_, revision) = header(first.header)?;
                let entries = parts.into_iter().flat_map(|part| part.entries);
                Ok((entries.map(Entry::from).collect::<Vec<_>>(), revision))
            }
        });
        let stored = found.await?;
        Ok(self.state.merged(&range, stored))
    }

    /// Sets a key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// tx.put("a", "1")?;
    /// tx.put("b", "2")?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<()> {
        self.put_own(key.into(), value.into(), None)
    }

    /// Sets a key and attaches it to a lease. The commit checks that the lease exists.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// client
    ///     .transact(async |tx| {
    ///         tx.put_with_lease("workers/7", "up", lease.id)?;
    ///         tx.put_with_lease("workers/7/address", "10.0.0.7", lease.id)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`.
    pub fn put_with_lease(
        &mut self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: LeaseId,
    ) -> Result<()> {
        self.put_own(key.into(), value.into(), Some(lease))
    }

    fn put_own(&mut self, key: Bytes, value: Bytes, lease: Option<LeaseId>) -> Result<()> {
        let key = checked(key)?;
        self.state.keys.insert(key, Own::Put { value, lease });
        Ok(())
    }

    /// Deletes a key; returns whether it was present. Counts as a read of the key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// if tx.delete("jobs/7").await? {
    ///     tx.put("done/7", "")?;
    /// }
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, and the errors of [`Transaction::get`].
    pub async fn delete(&mut self, key: impl Into<Bytes>) -> Result<bool> {
        let key = checked(key)?;
        let is_present = self.get(key.clone()).await?.is_some();
        self.state.keys.insert(key, Own::Deleted);
        Ok(is_present)
    }

    /// Deletes every key of a range; returns their number. The whole range counts as read.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    ///
    /// let mut tx = client.begin();
    /// let deleted = tx.delete_range(KeyRange::prefix("tmp/")).await?;
    /// tx.put("cleaned", deleted.to_string())?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub async fn delete_range(&mut self, range: impl Into<KeyRange>) -> Result<u64> {
        let range = range.into();
        let found = self.entries(range.clone(), true).await?;
        self.state.delete_range(range);
        Ok(found.len() as u64)
    }

    /// Sets a key if, at commit, it is as expected. Does not count as a read. When it is not, the whole
    /// transaction fails with [`Error::CompareFailed`].
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::{Error, Expected};
    ///
    /// let mut tx = client.begin();
    /// tx.compare_and_swap("leader", Expected::Absent, "me")?;
    /// tx.put("leader/address", "10.0.0.7")?;
    /// match tx.commit().await {
    ///     Err(Error::CompareFailed { actual, .. }) => println!("somebody leads since {actual:?}"),
    ///     committed => println!("leads since revision {:?}", committed?.revision),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`.
    pub fn compare_and_swap(
        &mut self,
        key: impl Into<Bytes>,
        expected: Expected,
        value: impl Into<Bytes>,
    ) -> Result<()> {
        let key = checked(key)?;
        self.put(key.clone(), value)?;
        self.expect(key, expected)
    }

    /// Makes the commit depend on a key that is not written. For fencing:
    /// `expect(lock_key, Expected::Revision(revision_of_my_lock))`.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Expected;
    ///
    /// let lock = client.put("lock", "me").await?.header.revision;
    /// let mut tx = client.begin();
    /// tx.expect("lock", Expected::Revision(lock))?;
    /// tx.put("state", "written under the lock")?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`.
    pub fn expect(&mut self, key: impl Into<Bytes>, expected: Expected) -> Result<()> {
        let key = checked(key)?;
        self.state.expectations.push(pb::Expectation {
            key,
            mod_revision: expected.mod_revision().get(),
        });
        Ok(())
    }

    // --- the end ---

    /// Commits all writes at one new revision, or none on an error. A transaction without writes sends
    /// nothing: all its reads were of one revision.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Error;
    ///
    /// let mut tx = client.begin();
    /// let count = tx.get("count").await?.map_or(0, |count| count.len());
    /// tx.put("count", "i".repeat(count + 1))?;
    /// match tx.commit().await {
    ///     Err(Error::Conflict { what, .. }) => println!("run it again: somebody changed {what}"),
    ///     committed => println!("revision {:?}", committed?.revision),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Conflict` when something it read (or, under snapshot isolation, wrote) was changed meanwhile;
    /// `CompareFailed`, `NotFound` (a block of an edge), `LeaseNotFound` when what it relies on does not
    /// hold; `Compacted` when its revision was trimmed; `UnknownOutcome` when no answer came: read it back.
    pub async fn commit(self) -> Result<Committed> {
        let isolation = match self.options.isolation {
            Isolation::Serializable => pb::Isolation::Serializable,
            Isolation::Snapshot => pb::Isolation::Snapshot,
        };
        let read_revision = self.read_revision;
        let request = self.state.into_request(read_revision, isolation);
        if request.writes.is_empty() && request.expectations.is_empty() {
            return Ok(Committed {
                revision: read_revision,
                deleted: 0,
                changed: false,
            });
        }
        let caller = &*self.caller;
        let send = |channel, request| async move {
            Transaction::service(caller, channel).commit(request).await
        };
        let sent = caller.call(Repeat::Never, None, request, send).await;
        let (reply, _) = sent.map_err(v1::typed)?;
        committed(reply, read_revision)
    }

    /// Discards the transaction. Dropping it does the same.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// tx.put("greeting", "hello")?;
    /// tx.rollback();
    /// # Ok(())
    /// # }
    /// ```
    pub fn rollback(self) {}
}

/// What a commit at this read revision has come to.
fn committed(reply: pb::CommitReply, read_revision: Option<Revision>) -> Result<Committed> {
    // Something may have been written, whatever the answer means.
    let (header, _) = header(reply.header).map_err(Error::of_change)?;
    match reply.outcome {
        Some(Outcome::Committed(done)) => Ok(Committed {
            revision: Some(header.revision),
            deleted: done.deleted,
            changed: done.changed,
        }),
        Some(Outcome::Conflict(conflict)) => {
            let unread = || senseless("it conflicts with reads that were not made").of_change();
            Err(Error::Conflict {
                what: touched(conflict.what)?,
                revision: Revision::new(conflict.revision),
                snapshot: read_revision.ok_or_else(unread)?,
            })
        }
        Some(Outcome::Mismatch(mismatch)) => Err(Error::CompareFailed {
            key: mismatch.key,
            expected: Expected::of_mod_revision(Revision::new(mismatch.expected)),
            actual: Expected::of_mod_revision(Revision::new(mismatch.actual)).revision(),
        }),
        None => Err(senseless("it does not say what became of the commit").of_change()),
    }
}

fn checked(key: impl Into<Bytes>) -> Result<Bytes> {
    let key = key.into();
    match key.is_empty() {
        true => Err(Error::EmptyKey),
        false => Ok(key),
    }
}

/// What was changed, when a transaction conflicts.
fn touched(what: Option<What>) -> Result<Touched> {
    Ok(match what {
        Some(What::Key(key)) => Touched::Key(key),
        Some(What::Block(id)) => Touched::Block(id_of(&id)?),
        Some(What::Edge(edge)) => Touched::Edge(EdgeKey {
            source: id_of(&edge.source)?,
            kind: edge.kind,
            target: id_of(&edge.target)?,
        }),
        None => return Err(senseless("it does not say what has conflicted")),
    })
}
