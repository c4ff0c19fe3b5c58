//! [`Db`]: the handle that writes to a database.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_storage::Value;

use crate::builder::DbBuilder;
use crate::commit_queue::Request;
use crate::expiry;
use crate::handle::{Handle, retry_conflicts};
use crate::reader::DbReader;
use crate::snapshot::Snapshot;
use crate::ticket::Ticket;
use crate::transaction::Transaction;
use bowline_core::error::{Error, Result};
use bowline_core::kv::Range;
use bowline_core::lease::{self, Grant, LeaseId};
use bowline_core::options::Isolation;
use bowline_core::state::{check_key, check_pair};
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation};
use bowline_core::write::validate::Guard;
use bowline_types::{Expected, Revision};

/// An open database. A clone is another handle of the same database. The database is closed when its
/// last handle, snapshot, transaction and watcher are dropped.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// use bowline::Db;
/// let db = Db::open(&path)?;
/// let revision = db.put(b"k", b"v")?;
/// assert_eq!(db.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// assert_eq!(db.put(b"k", b"w")?, revision + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Db {
    reader: DbReader,
}

impl Deref for Db {
    type Target = DbReader;

    #[inline]
    fn deref(&self) -> &DbReader {
        &self.reader
    }
}

impl DbBuilder {
    /// Opens the database in `path`, creating it when there is none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{Db, StorageError};
    ///
    /// let db = Db::builder().open(&path)?;
    /// // One process, and one handle and its clones, at a time.
    /// let again = Db::builder().open(&path);
    /// assert!(matches!(again, Err(bowline::Error::Storage(StorageError::Locked { .. }))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Storage`](crate::Error::Storage) with `Locked` when another handle or process has the
    /// database open; `NotADatabase`, `NewerFormat`, `Corrupt` or `MissingFile` when the files cannot be
    /// opened; `Io` and `NoSpace` from the system.
    pub fn open(self, path: impl Into<PathBuf>) -> Result<Db> {
        Ok(Db::new(self.open_handle(path.into())?))
    }
}

impl Db {
    /// Opens the database in `path` with default settings, creating it when there is none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::open(&path)?;
    /// db.put("k", "v")?;
    /// drop(db);
    /// assert!(bowline::Db::open(&path)?.get("k")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`DbBuilder::open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Db> {
        Db::builder().open(path)
    }

    /// The settings for opening a database, with their defaults.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().cache_bytes(256 << 20).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn builder() -> DbBuilder {
        DbBuilder::new()
    }

    /// Opens a new database without files. Its data is lost when it is closed.
    ///
    /// ```
    /// let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Storage` when a background thread cannot be started.
    pub fn in_memory() -> Result<Db> {
        Db::builder()
            .durability(crate::Durability::Memory)
            .open("memory")
    }

    pub(crate) fn new(handle: Handle) -> Db {
        Db {
            reader: DbReader::new(handle),
        }
    }

    // --- writing ---

    /// Sets a key. Never conflicts. Returns the revision of the commit, once it is durable.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let first = db.put("k", "v")?;
    /// let second = db.put("k", "w")?;
    /// assert!(second > first);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`; `Storage` when the disk
    /// fails or is full.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), None)?;
        Ok(self.handle().commit(Request::of(write))?.revision)
    }

    /// Sets a key, as [`Db::put`] does, and does not wait until that is durable: the [`Ticket`] does. It has its place in
    /// the order of commits when this returns. Waits, too, when a thousand commits are under way already.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let first = db.put_later("k", "1")?;
    /// let second = db.put_later("k", "2")?;
    /// assert!(first.wait()?.revision < second.wait()?.revision);
    /// assert_eq!(db.get("k")?.as_deref(), Some(&b"2"[..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`; `Closed`. All others come from the ticket.
    pub fn put_later(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Ticket> {
        let write = self.put_write(key.as_ref(), value.as_ref(), None)?;
        Ticket::of(self.handle(), Request::of(write))
    }

    /// Commits a transaction, as [`Transaction::commit`] does, and does not wait until that is durable: the [`Ticket`]
    /// does. The transaction has its place in the order of commits when this returns, and is decided against all before
    /// it. Nobody sees it before it is durable: a transaction that begins meanwhile reads the state without it, and
    /// conflicts with it where it would with any other. Waits, too, when a thousand commits are under way already.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tickets = Vec::new();
    /// for number in 0..10 {
    ///     let mut tx = db.begin();
    ///     tx.put(format!("job/{number}"), "new")?;
    ///     tickets.push(db.commit_later(tx)?);
    /// }
    /// // One flush, or a few, for all of them.
    /// for ticket in tickets {
    ///     ticket.wait()?;
    /// }
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TransactionTooLarge`; `Closed`; `Storage` when what is written over cannot be read. All others come from the
    /// ticket.
    pub fn commit_later(&self, transaction: Transaction) -> Result<Ticket> {
        transaction.commit_later()
    }

    /// Sets a key and attaches it to a lease: the key is deleted when the lease expires or is revoked.
    /// Returns the revision.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
    /// db.put_with_lease("svc/api", "10.0.0.7", lease)?;
    /// assert_eq!(db.lease_keys(lease)?.count(), 1);
    /// assert_eq!(db.revoke_lease(lease)?, 1);
    /// assert_eq!(db.get("svc/api")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::put`], and `LeaseNotFound`.
    pub fn put_with_lease(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), Some(lease))?;
        Ok(self.handle().commit(Request::of(write))?.revision)
    }

    /// Deletes a key. Never conflicts. Returns the revision, or `None` when the key was absent and nothing
    /// changed.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let put = db.put("k", "v")?;
    /// assert_eq!(db.delete("k")?, Some(put + 1));
    /// assert_eq!(db.delete("k")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`; `Storage` when the disk fails.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Option<Revision>> {
        check_key(key.as_ref(), &self.handle().limits)?;
        let write = Mutation::new(trees::KV, key.as_ref(), Action::Delete);
        let committed = self.handle().commit(Request::of(write))?;
        Ok(committed.changed.then_some(committed.revision))
    }

    /// Deletes every key of a range in one transaction; returns the number of deleted keys. Retries when
    /// another commit changes the range meanwhile.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("a1", "x")?;
    /// db.put("a2", "y")?;
    /// assert_eq!(db.delete_range(bowline::Range::prefix("a"))?, 2);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRange`, `TransactionTooLarge`; `TooManyConflicts` after ten seconds of conflicts; `Storage`.
    pub fn delete_range(&self, range: impl Into<Range>) -> Result<u64> {
        let range = range.into().validate()?;
        self.transact(|tx| tx.delete_range(range.clone()))
    }

    /// Sets a key if it is as expected. Returns the revision.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// use bowline::{Error, Expected};
    ///
    /// let created = db.compare_and_swap("leader", Expected::Absent, "a")?;
    /// db.compare_and_swap("leader", Expected::Revision(created), "b")?;
    /// let refused = db.compare_and_swap("leader", Expected::Revision(created), "c");
    /// assert!(matches!(refused, Err(Error::CompareFailed { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `CompareFailed` with the actual revision when the key is not as expected; the errors of [`Db::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Expected,
        value: impl AsRef<[u8]>,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), None)?;
        let mut request = Request::of(write);
        request.guards.push(Guard::Revision {
            key: key.as_ref().to_vec(),
            expected: expected.mod_revision(),
        });
        Ok(self.handle().commit(request)?.revision)
    }

    /// Begins a transaction with serializable isolation.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// drop(tx);   // without a commit nothing is written
    /// assert_eq!(db.get("k")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn begin(&self) -> Transaction {
        self.begin_with(Isolation::Serializable)
    }

    /// Begins a transaction with the given isolation.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin_with(bowline::Isolation::Snapshot);
    /// tx.put("k", "v")?;
    /// assert!(tx.commit()?.changed);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::new(Snapshot::newest(self.handle()), isolation)
    }

    /// Runs `body` in a serializable transaction, commits, and returns the result of `body`. On a conflict
    /// it runs `body` again, so `body` must have no other side effects. After two conflicts it takes its turn: others that
    /// commit a change of the key that the conflict named wait until it is done, each for up to 20 ms. When
    /// `body` returns an error, the transaction is rolled back and the error returned.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let count = db.transact(|tx| {
    ///     let old = tx.get(b"counter")?.map_or(0, |v| v[0]);
    ///     tx.put(b"counter", [old + 1])?;
    ///     Ok(old + 1)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of `body`; `TooManyConflicts` after ten seconds of conflicts; the other errors of
    /// [`Transaction::commit`].
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Isolation::Serializable, body)
    }

    /// [`Db::transact`] with the given isolation.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.transact_with(bowline::Isolation::Snapshot, |tx| tx.put("k", "v"))?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::transact`].
    pub fn transact_with<T>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        retry_conflicts(&self.handle().turns, || {
            let mut tx = self.begin_with(isolation);
            body(&mut tx).and_then(|value| tx.commit().map(|_| value))
        })
    }

    fn put_write(&self, key: &[u8], value: &[u8], lease: Option<LeaseId>) -> Result<Mutation> {
        let limits = &self.handle().limits;
        check_key(key, limits)?;
        check_pair(key, value.len(), limits)?;
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        Ok(Mutation::new(trees::KV, key, action))
    }

    /// Sets a record of the system tree without a new revision: for `bowline-replica`.
    #[doc(hidden)]
    pub fn put_system_record(&self, key: &[u8], value: Vec<u8>) -> Result<()> {
        let write = Mutation::new(trees::SYSTEM, key, Action::PutRaw { value });
        self.handle().commit(Request::of(write))?;
        Ok(())
    }

    // --- leases ---

    /// Grants a lease; returns its id. Its keys are deleted when `ttl` has passed since the grant and the
    /// last keep-alive.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = db.grant_lease(Duration::from_secs(10))?;
    /// assert_eq!(db.keep_alive(lease)?, Duration::from_secs(10));
    /// assert!(db.lease(lease).is_some() && db.leases().len() == 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidTtl`; `Storage` when the disk fails or is full.
    pub fn grant_lease(&self, ttl: Duration) -> Result<LeaseId> {
        loop {
            let Some(id) = LeaseId::new(fastrand::i64(1..)) else {
                continue;
            };
            match self.grant_lease_with_id(id, ttl) {
                Err(Error::LeaseExists { .. }) => {}
                other => return other.map(|()| id),
            }
        }
    }

    /// Grants a lease with the given id.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = bowline::LeaseId::new(7).expect("not 0");
    /// db.grant_lease_with_id(lease, std::time::Duration::from_secs(10))?;
    /// db.put_with_lease("svc/api", "10.0.0.7", lease)?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LeaseExists`, `InvalidTtl`, `Storage`.
    pub fn grant_lease_with_id(&self, id: LeaseId, ttl: Duration) -> Result<()> {
        lease::check_ttl(ttl)?;
        let shared = self.handle();
        let changing = shared.leases.begin_change(id);
        let (now, wall_ms) = (shared.clock().monotonic(), shared.clock().wall_ms());
        let grant = Grant::starting_at(wall_ms, ttl);
        shared.commit(expiry::record(id, grant, false))?;
        shared.leases.insert(id, grant, now);
        drop(changing);
        shared.signal_lease();
        Ok(())
    }

    /// Restarts the lease's time to live; returns that time, which counts from the call.
    ///
    /// Writes to disk at most once per time to live, or once in ten seconds if that is longer: a deadline for the
    /// case that the database is closed. After a crash a lease may therefore live longer by as much.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let ttl = std::time::Duration::from_secs(10);
    /// let lease = db.grant_lease(ttl)?;
    /// assert_eq!(db.keep_alive(lease)?, ttl);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound` when the lease has expired, was revoked or was never granted; `Storage` when the disk fails
    /// or is full, and then the lease is not kept alive; `Closed`.
    pub fn keep_alive(&self, id: LeaseId) -> Result<Duration> {
        self.handle().check_open()?;
        expiry::keep_alive(self.handle(), id)
    }

    /// Ends a lease: deletes the lease and its keys in one transaction. Returns the number of deleted keys.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
    /// db.put_with_lease("k", "v", lease)?;
    /// assert_eq!(db.revoke_lease(lease)?, 1);
    /// assert_eq!(db.get("k")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound`, `Closed`, `TooManyConflicts`, `Storage`.
    pub fn revoke_lease(&self, id: LeaseId) -> Result<u64> {
        self.handle().check_open()?;
        expiry::revoke(self.handle(), id)
    }

    /// Ends the leases whose time to live is over; returns their number. A background thread calls this,
    /// but not with [`Background::Manual`](crate::Background::Manual).
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.grant_lease(std::time::Duration::from_secs(60))?;
    /// assert_eq!(db.expire_leases()?, 0);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`, `TooManyConflicts`, `Storage`.
    pub fn expire_leases(&self) -> Result<u64> {
        expiry::expire(self.handle())
    }

    // --- maintenance ---

    /// Makes everything committed so far durable. Needed only with
    /// [`Durability::Batched`](crate::Durability::Batched).
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// db.sync()?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `Storage` when the disk fails.
    pub fn sync(&self) -> Result<()> {
        self.handle().check_open()?;
        Ok(self.handle().engine.sync()?)
    }

    /// Trims the history below `revision`: only existing snapshots can still read those revisions, and
    /// compaction reclaims their space.
    ///
    /// ```
    /// # use bowline::{Db, Durability, History};
    /// # let db = Db::builder().durability(Durability::Memory).history(History::All).open("memory")?;
    /// db.put("k", "v")?;
    /// db.trim_history(db.revision())?;
    /// assert_eq!(db.oldest_revision(), db.revision());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the readable bounds; `Closed`; `Storage`.
    pub fn trim_history(&self, revision: Revision) -> Result<()> {
        self.handle().check_open()?;
        let result = self.handle().engine.compact_history(revision.get())?;
        result.map_err(|error| crate::watcher::pin_error(revision, error))
    }

    /// Copies the database at its newest revision to a new directory, while writes go on. The copy is an
    /// independent database. Returns its revision.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let (path, copy) = (directory.path().join("data"), directory.path().join("copy"));
    /// # let db = bowline::Db::open(&path)?;
    /// db.put("k", "v")?;
    /// let revision = db.checkpoint(&copy)?;
    /// assert_eq!(bowline::Db::open(&copy)?.revision(), revision);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Storage` when the directory is not empty or cannot be written; `NotSupported` for a database
    /// without files; `Closed`.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Revision> {
        self.handle().check_open()?;
        if !self.handle().around.has_files {
            return Err(Error::NotSupported {
                what: "a checkpoint of a database in memory",
                why: "it has no files to copy; copy its contents into a database that has",
            });
        }
        Ok(Revision::new(self.handle().checkpoint(path.as_ref())?))
    }
}
