//! The handle of a database that this process writes.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_storage::{Revision, Value};

use crate::builder::DbBuilder;
use crate::commit_queue::Request;
use crate::expiry;
use crate::handle::{Handle, retry_conflicts};
use crate::reader::DbReader;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use bowline_core::error::{Error, Result};
use bowline_core::kv::Range;
use bowline_core::lease::{self, Grant, LeaseId};
use bowline_core::options::Isolation;
use bowline_core::state::{check_key, check_value};
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation};
use bowline_core::write::validate::Guard;
use bowline_types::Expected;

/// An open database. Cloning gives another handle of the same one; the last handle to go (and the
/// last snapshot, transaction or watcher) closes it.
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

impl Db {
    /// Opens the database in `path` with default settings, creating it when there is none.
    ///
    /// # Errors
    /// See [`DbBuilder::open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Db> {
        Db::builder().open(path)
    }

    /// Settings for a database to be opened.
    #[must_use]
    pub fn builder() -> DbBuilder {
        DbBuilder::new()
    }

    /// A database without files, gone with its last handle.
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

    /// Sets a key. Never conflicts. Returns the revision, once it is durable.
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`; `Storage` when the disk
    /// fails or is full.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Revision> {
        self.put_with_lease(key, value, 0)
    }

    /// Sets a key that goes when the lease expires or is revoked. Lease 0 is none.
    ///
    /// # Errors
    /// As [`Db::put`], and `LeaseNotFound`.
    pub fn put_with_lease(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), lease)?;
        Ok(self.handle().commit(Request::of(write))?.revision)
    }

    /// Deletes a key. `None` when it was absent: then nothing changed. Never conflicts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Option<Revision>> {
        check_key(key.as_ref(), &self.handle().limits)?;
        let write = Mutation::new(trees::KV, key.as_ref(), Action::Delete);
        let committed = self.handle().commit(Request::of(write))?;
        Ok(committed.changed.then_some(committed.revision))
    }

    /// Deletes every key of a range in one transaction; returns how many there were. Tries again
    /// when the range changes meanwhile.
    pub fn delete_range(&self, range: impl Into<Range>) -> Result<u64> {
        let range = range.into().validate()?;
        self.transact(|tx| tx.delete_range(range.clone()))
    }

    /// Sets a key if it is as expected; checks nothing else.
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
    /// `CompareFailed` with the actual revision when the key is not as expected; those of [`Db::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Expected,
        value: impl AsRef<[u8]>,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), 0)?;
        let mut request = Request::of(write);
        request.guards.push(Guard::Revision {
            key: key.as_ref().to_vec(),
            expected: expected.mod_revision(),
        });
        Ok(self.handle().commit(request)?.revision)
    }

    /// Begins a transaction with serializable isolation.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(Isolation::Serializable)
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::new(Snapshot::newest(self.handle()), isolation)
    }

    /// Runs `body` in a transaction and commits it; runs it again when it conflicts with another,
    /// after a short random pause. `body` must therefore have no other lasting effect. When it
    /// returns an error the transaction is rolled back and the error returned.
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
    /// `TooManyConflicts` after ten seconds of conflicts.
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Isolation::Serializable, body)
    }

    /// [`Db::transact`] with another isolation.
    pub fn transact_with<T>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        retry_conflicts(|| {
            let mut tx = self.begin_with(isolation);
            body(&mut tx).and_then(|value| tx.commit().map(|_| value))
        })
    }

    fn put_write(&self, key: &[u8], value: &[u8], lease: LeaseId) -> Result<Mutation> {
        let limits = &self.handle().limits;
        check_key(key, limits)?;
        check_value(value.len(), limits)?;
        let (size, limit) = (
            (key.len() + value.len()) as u64,
            limits.transaction_size_max_bytes,
        );
        if size > limit {
            return Err(Error::TransactionTooLarge { size, limit });
        }
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        Ok(Mutation::new(trees::KV, key, action))
    }

    /// Sets a record of the system tree, which takes no revision: for `bowline-replica`.
    #[doc(hidden)]
    pub fn put_system_record(&self, key: &[u8], value: Vec<u8>) -> Result<()> {
        let write = Mutation::new(trees::SYSTEM, key, Action::PutRaw { value });
        self.handle().commit(Request::of(write))?;
        Ok(())
    }

    // --- leases ---

    /// Grants a lease: keys put with it go `ttl` after its last keep-alive.
    ///
    /// # Errors
    /// `InvalidTtl`.
    pub fn grant_lease(&self, ttl: Duration) -> Result<LeaseId> {
        loop {
            let id = fastrand::i64(1..);
            match self.grant_lease_with_id(id, ttl) {
                Err(Error::LeaseExists { .. }) => {}
                other => return other.map(|()| id),
            }
        }
    }

    /// Grants a lease with an id of your choice, above 0.
    ///
    /// # Errors
    /// `LeaseExists`, `InvalidTtl`; `LeaseNotFound` for an id that cannot be one.
    pub fn grant_lease_with_id(&self, id: LeaseId, ttl: Duration) -> Result<()> {
        lease::check_ttl(ttl)?;
        if id <= 0 {
            return Err(Error::LeaseNotFound { id });
        }
        let grant = Grant { ttl, index: 0 };
        let action = Action::PutRaw {
            value: lease::encode_grant(grant),
        };
        let write = Mutation::new(trees::SYSTEM, &trees::lease_key(id), action);
        let mut request = Request::of(write);
        request.guards.push(Guard::Lease { id, exists: false });
        let shared = self.handle();
        let changing = shared.leases.begin_change(id);
        shared.commit(request)?;
        let now = shared.clock().monotonic();
        shared.leases.insert(id, grant, now);
        drop(changing);
        shared.signal_lease();
        Ok(())
    }

    /// Begins the lease's time to live anew; returns it.
    ///
    /// # Errors
    /// `LeaseNotFound` when it has expired, was revoked, or never was.
    pub fn keep_alive(&self, id: LeaseId) -> Result<Duration> {
        self.handle().check_open()?;
        let core = self.handle();
        let found = core.leases.keep_alive(id, core.clock().monotonic());
        found.ok_or(Error::LeaseNotFound { id })
    }

    /// Ends a lease now: deletes its keys and itself in one transaction. Returns how many keys.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub fn revoke_lease(&self, id: LeaseId) -> Result<u64> {
        self.handle().check_open()?;
        expiry::revoke(self.handle(), id)
    }

    /// Expires the leases whose time is over; returns how many. The background thread does this
    /// by itself; with [`Background::Manual`](crate::Background::Manual) nobody else does.
    pub fn expire_leases(&self) -> Result<u64> {
        expiry::expire(self.handle())
    }

    // --- upkeep ---

    /// Flushes everything committed so far to the disk. Needed only with
    /// [`Durability::Batched`](crate::Durability::Batched).
    pub fn sync(&self) -> Result<()> {
        self.handle().check_open()?;
        Ok(self.handle().engine.sync()?)
    }

    /// Gives up every revision below `revision`: they can no longer be read, except by snapshots
    /// that exist, and their space is reclaimed by compaction.
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the bounds.
    pub fn trim_history(&self, revision: Revision) -> Result<()> {
        self.handle().check_open()?;
        let result = self.handle().engine.compact_history(revision)?;
        result.map_err(|error| crate::watcher::pin_error(revision, error))
    }

    /// Copies the database as of now to a new directory, while writes go on. The copy is a
    /// database of its own. Returns its revision.
    ///
    /// # Errors
    /// `Storage` when the directory exists and is not empty, or cannot be written;
    /// `NotSupported` for a database without files.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Revision> {
        self.handle().check_open()?;
        if !self.handle().around.has_files {
            return Err(Error::NotSupported {
                what: "a checkpoint of a database in memory",
                why: "it has no files to copy; copy its contents into a database that has",
            });
        }
        Ok(self.handle().engine.checkpoint(path.as_ref())?)
    }
}
