//! Bulk ingestion: sorted keys and values are written straight into tables, as one revision.
//!
//! A put is written to the log, to the memtable, to a table, and again by merges. Loading sorted data
//! needs none of that: [`Ingest`] writes tables while entries arrive, and commits them together
//! (`bowline_storage::engine::ingest`).
//!
//! # Algorithm
//!
//! Each entry carries etcd's metadata, which depends on the key's previous version. The ingested keys are
//! ascending, so they are merged with a scan of the existing keys. When the scan would pass over many keys
//! that are not ingested, it restarts at the next ingested key: an ingestion of few keys does not read the
//! whole range.
//!
//! The entries are written at the revision after the newest one. [`Ingest::commit`] runs alone in the
//! commit queue. If no other commit came in between, the tables have the right revision. Otherwise the
//! entries are copied into new tables with the right one, while other writers wait.
//!
//! # Invariants
//!
//! - All entries commit at one revision, in the one order of all commits, or none does.
//! - The metadata equals that of one transaction that puts all entries at that moment.
//! - A key that was attached to a lease is detached in the same revision.
//! - An ingestion reads nothing, so it never conflicts; a transaction that has read a key or range which
//!   the ingestion changes does.
//! - Memory does not depend on the number of entries, except for those that were attached to leases; their
//!   size is limited like a transaction.

use std::cmp::Ordering;
use std::ops::Bound;

use bowline_storage::EntryKind;
use bowline_storage::compaction::VersionMerge;
use bowline_storage::engine::{Ingestion, Scan, ScanDirection, SnapshotPin, StagedTables};
use bowline_types::Revision;

use crate::commit_queue::Committed;
use crate::db::Db;
use crate::handle::Handle;
use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::csr::GraphChanges;
use bowline_core::kv::record::{self, Meta};
use bowline_core::state::{Core, check_key, check_value};
use bowline_core::trees;
use bowline_core::write::writer::{detached, meta_of_put};

/// How many keys a scan passes over before it restarts at the next ingested key.
const PASSED_MAX: usize = 64;

/// A bulk ingestion of sorted keys and values; see [`Db::ingest`]. No entry is visible before
/// [`Ingest::commit`]. Dropping the ingestion discards its entries.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let mut ingest = db.ingest()?;
/// for number in 0..1_000 {
///     ingest.put(format!("user/{number:04}"), "...")?;
/// }
/// assert_eq!((ingest.entries(), db.get("user/0000")?), (1_000, None));
/// let committed = ingest.commit()?;
/// assert!(committed.changed && db.get("user/0000")?.is_some());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is ingested before `commit`"]
pub struct Ingest {
    handle: Handle,
    tables: Tables,
    last_key: Vec<u8>,
    /// Keeps the versions that the metadata is computed from.
    _pin: SnapshotPin,
    /// The error that ended the ingestion.
    failure: Option<Error>,
}

impl Db {
    /// Begins a bulk ingestion, for loading many entries at once. Entries in ascending key order are
    /// written straight into tables, without log and memtable, and become visible at one revision. Other
    /// reads and writes go on until [`Ingest::commit`].
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest()?;
    /// for number in 0..1000 {
    ///     ingest.put(format!("user/{number:04}"), b"...")?;
    /// }
    /// let committed = ingest.commit()?;
    /// assert_eq!(db.entry(b"user/0999")?.expect("a user").mod_revision, committed.revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn ingest(&self) -> Result<Ingest> {
        let handle = self.handle();
        handle.check_open()?;
        let core: &Core = handle;
        // The expected revision is the one after the pin.
        let pin = core.engine.pin_newest();
        let tables = Tables::new(core, Revision::new(pin.revision()));
        Ok(Ingest {
            handle: handle.clone(),
            tables,
            last_key: Vec::new(),
            _pin: pin,
            failure: None,
        })
    }
}

impl Ingest {
    /// Adds an entry. Its key must be greater than all keys before it.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest()?;
    /// ingest.put("b", "")?;
    /// assert!(matches!(ingest.put("a", ""), Err(bowline::Error::NotAscending { .. })));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotAscending` with both keys; `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`;
    /// `Closed`; `Storage` when the disk fails or is full. After an error the ingestion can only be dropped.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let result = self.add(key.as_ref(), value.as_ref());
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let core: &Core = &self.handle;
        check_key(key, &core.limits)?;
        check_value(value.len(), &core.limits)?;
        self.handle.check_open()?;
        if self.last_key.as_slice() >= key {
            return Err(Error::NotAscending {
                key: show_key(key),
                after: show_key(&self.last_key),
            });
        }
        self.tables.add(core, key, value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// The number of entries added.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest()?;
    /// ingest.put("a", "")?;
    /// assert_eq!(ingest.entries(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.tables.entries
    }

    /// Commits all entries at one revision. Returns when they are durable, under every durability setting.
    /// Without entries nothing changes.
    ///
    /// Other writers wait while the memtables are flushed. If another commit came since the ingestion
    /// began, they also wait while the tables are written again with the right revision.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ingest = db.ingest()?;
    /// ingest.put("a", "1")?;
    /// ingest.commit()?;
    /// assert_eq!(db.get("a")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a [`Ingest::put`] that failed; `Closed`; `Storage` when the disk fails or is full. No
    /// entry is committed then.
    pub fn commit(self) -> Result<Committed> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        self.handle.check_open()?;
        let core: &Core = &self.handle;
        let mut tables = self.tables;
        if tables.entries == 0 {
            return Ok(Committed {
                revision: Revision::new(core.engine.visible()),
                deleted: 0,
                changed: false,
            });
        }
        tables.finish()?;
        let committed = self.handle.queue.lead_alone(core, || {
            let ingestion = core.engine.begin_ingest()?;
            let tables = tables.at_revision_of(core, &ingestion)?;
            let revision = ingestion.publish(vec![tables.keys, tables.attachments])?;
            // The changes may exceed the watch ring: watchers read them from the tables.
            core.hub.wake();
            core.publish_graph(&mut GraphChanges::default());
            Ok(Committed {
                revision: Revision::new(revision),
                deleted: 0,
                changed: true,
            })
        });
        if committed.is_ok()
            && let Err(error) = core.engine.run_background_if_manual()
        {
            // The ingestion is committed; the next commit group reports the failure.
            tracing::error!(%error, "flush or compaction failed");
        }
        match committed {
            Err(Error::Storage(bowline_storage::Error::Closed)) => Err(Error::Closed),
            committed => committed,
        }
    }
}

/// The tables of an ingestion at the revision after `before`.
#[derive(Debug)]
struct Tables {
    keys: StagedTables,
    /// Deletions of the keys' attachments to leases.
    attachments: StagedTables,
    existing: Existing,
    /// The keys of `attachments`, collected to be sorted.
    detached: Vec<Vec<u8>>,
    detached_bytes: u64,
    entries: u64,
    head: Vec<u8>,
}

impl Tables {
    fn new(core: &Core, before: Revision) -> Tables {
        let stage = |tree| core.engine.stage_tables(tree, before.get() + 1);
        Tables {
            keys: stage(trees::KV),
            attachments: stage(trees::SYSTEM),
            existing: Existing::at(before),
            detached: Vec::new(),
            detached_bytes: 0,
            entries: 0,
            head: Vec::new(),
        }
    }

    fn add(&mut self, core: &Core, key: &[u8], value: &[u8]) -> Result<()> {
        let before = self.existing.find(core, key)?;
        let meta = meta_of_put(Revision::new(self.keys.revision()), None, before);
        let lease = before.and_then(|before| before.lease);
        if let Some(attachment) = detached(key, lease, None) {
            let limit = core.limits.transaction_size_max_bytes;
            self.detached_bytes += attachment.len() as u64;
            if self.detached_bytes > limit {
                let size = self.detached_bytes;
                return Err(Error::TransactionTooLarge { size, limit });
            }
            self.detached.push(attachment);
        }
        record::encode_head(&meta, &mut self.head);
        self.keys.add(key, EntryKind::Put, &self.head, value)?;
        self.entries += 1;
        Ok(())
    }

    /// Writes the attachments and finishes both sets of tables.
    fn finish(&mut self) -> Result<()> {
        let mut detached = std::mem::take(&mut self.detached);
        detached.sort_unstable();
        for attachment in detached {
            let delete = EntryKind::Delete;
            self.attachments.add(&attachment, delete, &[], &[])?;
        }
        self.keys.finish()?;
        Ok(self.attachments.finish()?)
    }

    /// These tables if they have the group's revision, else new tables with the same entries.
    fn at_revision_of(self, core: &Core, ingestion: &Ingestion<'_>) -> Result<Tables> {
        if self.keys.revision() == ingestion.next_revision() {
            return Ok(self);
        }
        let mut again = Tables::new(core, Revision::new(ingestion.last_revision()));
        let mut entries: VersionMerge = self.keys.read()?;
        while let Some((key, revision, _, bytes)) = entries.current() {
            let (_, start) = record::decode(bytes, Revision::new(revision))
                .ok_or_else(|| record::invalid(key))?;
            again.add(core, key, &bytes[start..])?;
            entries.advance()?;
        }
        again.finish()?;
        Ok(again)
    }
}

/// Looks up the metadata of ascending keys at one revision.
#[derive(Debug)]
struct Existing {
    at: Revision,
    scan: Option<Scan>,
    /// Whether the scan is positioned at a key.
    is_at_key: bool,
}

impl Existing {
    fn at(at: Revision) -> Existing {
        Existing {
            at,
            scan: None,
            is_at_key: false,
        }
    }

    fn find(&mut self, core: &Core, key: &[u8]) -> Result<Option<Meta>> {
        let begin = || {
            let (lower, upper) = (Bound::Included(key.to_vec()), Bound::Unbounded);
            let direction = ScanDirection::Forward;
            core.engine
                .scan(trees::KV, lower, upper, self.at.get(), direction)
        };
        let scan = match &mut self.scan {
            Some(scan) => scan,
            None => {
                let scan = self.scan.insert(begin());
                self.is_at_key = scan.advance()?;
                scan
            }
        };
        let mut passed = 0;
        while self.is_at_key {
            match scan.key().cmp(key) {
                Ordering::Greater => return Ok(None),
                Ordering::Equal => {
                    let found = record::decode(scan.bytes(), Revision::new(scan.revision()));
                    let (head, _) = found.ok_or_else(|| record::invalid(key))?;
                    return head.complete(key, scan.sources()).map(Some);
                }
                Ordering::Less if passed < PASSED_MAX => passed += 1,
                Ordering::Less => {
                    passed = 0;
                    *scan = begin();
                }
            }
            self.is_at_key = scan.advance()?;
        }
        Ok(None)
    }
}
