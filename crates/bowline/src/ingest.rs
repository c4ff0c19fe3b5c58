//! Bulk ingestion: sorted keys and values go straight into tables, and become one revision.
//!
//! A put costs a place in the log, one in the memtable, a flush to a table and the merges after it.
//! Whoever loads a lot of sorted data needs none of that: [`Ingest`] writes tables as the entries
//! come and commits them as a whole (`bowline_storage::engine::ingest`).
//!
//! # Algorithm
//!
//! Each entry carries etcd's metadata, so what its key held before must be known. The keys come
//! ascending, and so does a scan of what is there: the two are merged. Where the scan would pass over
//! many keys that are not ingested, it is begun again at the wanted one, so an ingestion of few keys
//! does not read all that lie between.
//!
//! The entries are written at the revision that comes next while they are written. [`Ingest::commit`]
//! leads a round of the commit queue by itself. If nobody has committed in between, the tables are
//! what they must be. Else they are written once more, from themselves, while other writers wait.
//!
//! # Invariants
//!
//! - All of it commits at one revision, in the one order of all commits, or none of it does.
//! - Each entry's metadata says what it would if one transaction had put all of them at that moment.
//! - A key that an entry was attached to a lease by is detached in the same revision.
//! - An ingestion reads nothing, so it never conflicts; a transaction that has read a key or a range
//!   which it changes does.
//! - Memory does not depend on how many entries there are, but for the leases' keys among them, which
//!   are bounded as a transaction is.

use std::cmp::Ordering;
use std::ops::Bound;

use bowline_storage::compaction::VersionMerge;
use bowline_storage::engine::{Ingestion, Scan, ScanDirection, SnapshotPin, StagedTables};
use bowline_storage::{EntryKind, Revision};

use crate::commit_queue::Committed;
use crate::db::Db;
use crate::handle::Handle;
use bowline_core::error::{Error, Result, show_key};
use bowline_core::kv::record::{self, Meta};
use bowline_core::state::{Core, check_key, check_value};
use bowline_core::trees;
use bowline_core::write::writer::{detached, meta_of_put};

/// How many keys that are not ingested a scan passes over before it is begun again further on.
const PASSED_MAX: usize = 64;

/// Sorted keys and values on their way into the database; see [`Db::ingest`]. Nothing of it can be
/// seen before [`Ingest::commit`]; dropping it leaves nothing behind.
#[derive(Debug)]
#[must_use = "nothing is ingested before `commit`"]
pub struct Ingest {
    handle: Handle,
    tables: Tables,
    last_key: Vec<u8>,
    /// Keeps what the metadata is taken from.
    _pin: SnapshotPin,
    /// Why no more of it can be done.
    failure: Option<Error>,
}

impl Db {
    /// Begins a bulk ingestion: keys and values in ascending order of the keys are written straight
    /// into tables, past log and memtable, and become visible together, at one revision.
    ///
    /// For loading a lot at once. Reads and writes go on until [`Ingest::commit`].
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
        // First pinned, then guessed: what the pin shows is what the guess follows.
        let pin = core.engine.pin_newest();
        let tables = Tables::new(core, pin.revision());
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
    /// Adds an entry, whose key is above those before it.
    ///
    /// # Errors
    /// `NotAscending` with both keys; `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`; `Storage` when the
    /// disk fails or is full. After any of them the ingestion can only be dropped.
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

    /// How many entries it has.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.tables.entries
    }

    /// Commits all entries at one revision; returns once that is durable, whatever the setting of the
    /// durability. Without entries nothing changes.
    ///
    /// Other writers wait while the memtables are flushed and, when one of them has committed since
    /// the ingestion began, while its tables are written again with the revision that is now due.
    ///
    /// # Errors
    /// The error of a [`Ingest::put`] that failed; `Storage` when the disk fails or is full. Nothing
    /// of it is there then.
    pub fn commit(self) -> Result<Committed> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        self.handle.check_open()?;
        let core: &Core = &self.handle;
        let mut tables = self.tables;
        if tables.entries == 0 {
            return Ok(Committed {
                revision: core.engine.visible(),
                deleted: 0,
                changed: false,
            });
        }
        tables.finish()?;
        let committed = self.handle.queue.lead_alone(|| {
            let round = core.engine.begin_ingest()?;
            let tables = tables.for_round(core, &round)?;
            let revision = round.publish(vec![tables.keys, tables.attachments])?;
            // Not in the ring: there may be more than fits. Who watches reads it from the tables.
            core.hub.wake();
            Ok(Committed {
                revision,
                deleted: 0,
                changed: true,
            })
        });
        if committed.is_ok()
            && let Err(error) = core.engine.run_background_if_manual()
        {
            // It is committed; the next round meets the failure itself.
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
    /// Deletions of what attached these keys to leases.
    attachments: StagedTables,
    existing: Existing,
    /// The keys of `attachments`, until they are complete and can be sorted.
    detached: Vec<Vec<u8>>,
    detached_bytes: u64,
    entries: u64,
    head: Vec<u8>,
}

impl Tables {
    fn new(core: &Core, before: Revision) -> Tables {
        let stage = |tree| core.engine.stage_tables(tree, before + 1);
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
        let meta = meta_of_put(self.keys.revision(), 0, before);
        let lease = before.map_or(0, |before| before.lease);
        if let Some(attachment) = detached(key, lease, 0) {
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

    /// Writes what is missing.
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

    /// These tables when they are right for the round, or others that are, with the same entries.
    fn for_round(self, core: &Core, round: &Ingestion<'_>) -> Result<Tables> {
        if self.keys.revision() == round.next_revision() {
            return Ok(self);
        }
        let mut again = Tables::new(core, round.last_revision());
        let mut entries: VersionMerge = self.keys.read()?;
        while let Some((key, revision, _, bytes)) = entries.current() {
            let (_, start) = record::decode(bytes, revision).ok_or_else(|| record::invalid(key))?;
            again.add(core, key, &bytes[start..])?;
            entries.advance()?;
        }
        again.finish()?;
        Ok(again)
    }
}

/// What keys that are asked for in ascending order hold at a revision.
#[derive(Debug)]
struct Existing {
    at: Revision,
    scan: Option<Scan>,
    /// Whether the scan stands at a key.
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
                .scan(trees::KV, lower, upper, self.at, direction)
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
                    let found = record::decode(scan.bytes(), scan.revision());
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
