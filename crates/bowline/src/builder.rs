//! [`DbBuilder`]: the settings of a database, and the construction of its engine, state and handle.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_storage::engine::{Engine, EngineOptions, History, Replicated, SyncPolicy};
use bowline_storage::log::Log;
use bowline_storage::table::TableOptions;
use bowline_storage::vfs::{MemoryVfs, OsVfs, UninterruptedVfs, Vfs};
use bowline_storage::{Clock, SystemClock};

use crate::commit_queue::MEMBERS_MAX_BYTES;
use crate::expiry;
use crate::handle::Handle;
use crate::index_build;
use crate::reader::DbReader;
use bowline_core::error::Result;
use bowline_core::kv::Metadata;
use bowline_core::options::{
    Background, BlobOptions, CompactionOptions, Compression, Durability, Limits,
};
use bowline_core::state::{Core, Surroundings};
use bowline_core::trees;

/// The settings of a database to be opened. Made by [`Db::builder`](crate::Db::builder).
///
/// ```
/// use bowline::{Db, Durability, History};
/// # let directory = tempfile::tempdir()?;
/// let db = Db::builder()
///     .durability(Durability::Batched { every: std::time::Duration::from_millis(10) })
///     .history(History::Revisions(1_000))
///     .memtable_bytes(32 << 20)
///     .cache_bytes(256 << 20)
///     .open(directory.path().join("data"))?;
/// db.put(b"k", b"v")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DbBuilder {
    durability: Durability,
    pub(crate) limits: Limits,
    pub(crate) watch_ring_bytes: u64,
    pub(crate) graph_view_bytes: u64,
    /// Whether the directory is another's. Its saved view may be newer than what this opening reads.
    pub(crate) is_read_only: bool,
    pub(crate) vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    engine: EngineOptions,
}

impl DbBuilder {
    pub(crate) fn new() -> DbBuilder {
        let mut engine = EngineOptions::new(trees::COUNT);
        engine.merge_operators.insert(trees::KV, Arc::new(Metadata));
        // The size of a single transaction is checked before it joins a commit group.
        engine.group_bytes_max = Limits::TRANSACTION_SIZE_BYTES + MEMBERS_MAX_BYTES;
        for (tree, options) in engine.trees.iter_mut().enumerate() {
            *options = TableOptions {
                compression: Compression::Lz4,
                ..TableOptions::default()
            };
            if tree == usize::from(trees::EDGE_OUT.0) || tree == usize::from(trees::EDGE_IN.0) {
                // Edges are mostly read by range, rarely by key.
                options.filter_bits_per_key = 8;
            }
        }
        DbBuilder {
            durability: Durability::default(),
            limits: Limits::default(),
            watch_ring_bytes: 16 << 20,
            graph_view_bytes: 256 << 20,
            is_read_only: false,
            vfs: Arc::new(OsVfs),
            clock: Arc::new(SystemClock::new()),
            engine,
        }
    }

    /// When a commit is acknowledged. Default: [`Durability::Sync`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{Db, Durability};
    /// use std::time::Duration;
    ///
    /// let every = Duration::from_millis(10);
    /// let db = Db::builder().durability(Durability::Batched { every }).open(&path)?;
    /// db.put("k", "v")?;   // acknowledged before its flush
    /// db.sync()?;          // from here on it survives a power loss
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> DbBuilder {
        self.durability = durability;
        self
    }

    /// How much history stays readable. Default: [`History::None`], which keeps only the versions that
    /// existing snapshots and watches need.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{Db, History};
    ///
    /// let db = Db::builder().history(History::Revisions(100)).open(&path)?;
    /// let old = db.put("k", "old")?;
    /// db.put("k", "new")?;
    /// assert_eq!(db.snapshot_at(old)?.get("k")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn history(mut self, history: History) -> DbBuilder {
        self.engine.history = history;
        self
    }

    /// Whether a missing or empty directory, or one in which the creation of a database was
    /// interrupted, becomes a new database. Default: yes.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::Db;
    ///
    /// // A wrong path is an error, not an empty database.
    /// assert!(Db::builder().create(false).open(&path).is_err());
    /// assert!(Db::open(&path).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn create(mut self, create: bool) -> DbBuilder {
        self.engine.create = create;
        self
    }

    /// The largest keys, values and transactions. A setting above the limit of the file format
    /// ([`Limits::KEY_SIZE_BYTES`] and so on) is reduced to it.
    ///
    /// ```
    /// use bowline::{Db, Durability, Error, Limits};
    ///
    /// let limits = Limits { value_size_max_bytes: 1_000, ..Limits::default() };
    /// let db = Db::builder().limits(limits).durability(Durability::Memory).open("memory")?;
    /// assert!(matches!(db.put("k", [0; 1_001]), Err(Error::ValueTooLarge { .. })));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> DbBuilder {
        self.limits = limits.bounded();
        self
    }

    /// The size of one memtable, in bytes. Default: 64 MiB. While writes are faster than the disk, up
    /// to five exist.
    ///
    /// ```
    /// use bowline::{Db, Durability};
    ///
    /// let db = Db::builder().memtable_bytes(256 << 20).durability(Durability::Memory).open("memory")?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> DbBuilder {
        self.engine.memtable_bytes = bytes;
        self
    }

    /// The size of the cache of pages and of values of up to 4 KiB, in bytes. Default: 64 MiB.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().cache_bytes(1 << 30).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> DbBuilder {
        self.engine.cache_bytes = bytes;
        self
    }

    /// The largest log segment, in bytes. Default: 64 MiB.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().log_segment_bytes(16 << 20).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn log_segment_bytes(mut self, bytes: u64) -> DbBuilder {
        self.engine.log.segment_bytes = bytes;
        self.engine.log.first_segment_bytes = self.engine.log.first_segment_bytes.min(bytes);
        self
    }

    /// The size of table pages before compression, in bytes. Default: 8 KiB.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// // Small pages for reads of single keys from a fast disk.
    /// let db = bowline::Db::builder().page_bytes(4 << 10).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn page_bytes(mut self, bytes: usize) -> DbBuilder {
        for tree in &mut self.engine.trees {
            tree.page_bytes = bytes;
        }
        self
    }

    /// The compaction strategy and its settings.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{CompactionOptions, Db};
    ///
    /// let options = CompactionOptions { threads: 1, ..CompactionOptions::default() };
    /// let db = Db::builder().compaction(options).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn compaction(mut self, options: CompactionOptions) -> DbBuilder {
        self.engine.compaction = options;
        self
    }

    /// Which values are stored in blob files, where merges do not copy them. Default: values of 1 KiB
    /// and more.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{BlobOptions, Db};
    ///
    /// // Small databases of large values: everything stays in the tables.
    /// let options = BlobOptions { threshold_bytes: None, ..BlobOptions::default() };
    /// let db = Db::builder().blobs(options).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn blobs(mut self, options: BlobOptions) -> DbBuilder {
        self.engine.blobs = options;
        self
    }

    /// How many revisions a watch may lag behind. A watch that lags further no longer retains history
    /// and fails with [`Error::Compacted`](crate::Error::Compacted). Default: 1,000,000.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().watch_lag_max(10_000).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn watch_lag_max(mut self, revisions: u64) -> DbBuilder {
        self.engine.watch_lag_max = revisions;
        self
    }

    /// The memory for the newest changes, in bytes. Default: 16 MiB. A watch that lags further behind
    /// reads from the tables.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().watch_ring_bytes(64 << 20).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn watch_ring_bytes(mut self, bytes: u64) -> DbBuilder {
        self.watch_ring_bytes = bytes;
        self
    }

    /// The memory for the graph view, in bytes. Default: 256 MiB; 0 for none. The view holds the edges of the
    /// whole graph, about 10 bytes an edge and 30 a block, and makes traversals many times faster. It is built
    /// in the background once queries have read some thousand blocks, or by [`DbReader::build_graph_view`](crate::DbReader::build_graph_view). Where the
    /// graph does not fit, queries read the tables. A quarter as much is for the kinds and attributes of blocks that queries in
    /// Cypher have read.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let db = bowline::Db::builder().graph_view_bytes(1 << 30).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn graph_view_bytes(mut self, bytes: u64) -> DbBuilder {
        self.graph_view_bytes = bytes;
        self
    }

    /// Where flushes, compaction and lease expiry run. Default: on background threads. With
    /// [`Background::Manual`], flushes and compaction run on the writing thread, and leases expire only
    /// in [`Db::expire_leases`](crate::Db::expire_leases); this is deterministic, for tests and simulation.
    ///
    /// ```
    /// use bowline::{Background, Db, Durability};
    ///
    /// let db = Db::builder().background(Background::Manual).durability(Durability::Memory).open("memory")?;
    /// db.grant_lease(std::time::Duration::from_secs(60))?;
    /// assert_eq!(db.expire_leases()?, 0, "nobody else ends leases");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn background(mut self, background: Background) -> DbBuilder {
        self.engine.log.background = background;
        self
    }

    /// The file system. Default: the operating system's.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// use bowline::{Db, vfs::OsVfs};
    ///
    /// let db = Db::builder().vfs(std::sync::Arc::new(OsVfs)).open(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> DbBuilder {
        self.vfs = vfs;
        self
    }

    /// The clock. Default: the operating system's.
    ///
    /// ```
    /// use bowline::{Db, Durability, SystemClock};
    ///
    /// let clock = std::sync::Arc::new(SystemClock::new());
    /// let db = Db::builder().clock(clock).durability(Durability::Memory).open("memory")?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> DbBuilder {
        self.clock = clock;
        self
    }

    /// Opens the database of a cluster member, which owns the log: for `bowline-replica`.
    #[doc(hidden)]
    pub fn open_replicated(
        mut self,
        path: PathBuf,
        replicated: Replicated<'_>,
    ) -> Result<(DbReader, Log)> {
        self.engine.sync = SyncPolicy::Always;
        let background = self.engine.log.background;
        let (vfs, clock) = (self.vfs.clone(), self.clock.clone());
        let (options, mut around) = self.split(path, true);
        around.saves_graph_view = false;
        let (engine, log) =
            Engine::open_replicated(vfs, clock, around.path.clone(), options, replicated)?;
        let core = Core::new(engine, around)?;
        // A member's state may be replaced by one of the same revision and another history. So a view that was saved
        // before the directory became a member's must not be found by a later opening.
        core.remove_saved_view()?;
        let handle = Handle::new(core);
        if background == Background::Threads {
            handle.allow_view_thread();
        }
        Ok((DbReader::new(handle), log))
    }

    fn split(self, path: PathBuf, has_files: bool) -> (EngineOptions, Surroundings) {
        let around = Surroundings {
            // The engine wraps its own.
            vfs: Arc::new(UninterruptedVfs::new(self.vfs)),
            clock: self.clock,
            path,
            limits: self.limits,
            watch_ring_bytes: self.watch_ring_bytes,
            graph_view_bytes: self.graph_view_bytes,
            saves_graph_view: has_files && !self.is_read_only,
            has_files,
        };
        (self.engine, around)
    }

    /// Opens the database of a handle.
    pub(crate) fn open_handle(mut self, path: PathBuf) -> Result<Handle> {
        self.engine.sync = match self.durability {
            Durability::Sync => SyncPolicy::Always,
            Durability::Batched { every } => SyncPolicy::Every(every),
            Durability::Memory => {
                self.vfs = Arc::new(MemoryVfs::default());
                SyncPolicy::Never
            }
        };
        let background = self.engine.log.background;
        let has_files = self.engine.sync != SyncPolicy::Never;
        let (vfs, clock) = (self.vfs.clone(), self.clock.clone());
        let (options, around) = self.split(path, has_files);
        let engine = Engine::open(vfs, clock, around.path.clone(), options)?;
        let core = Core::new(engine, around)?;
        let (now, wall_ms) = (core.clock().monotonic(), core.clock().wall_ms());
        core.leases.resume(now, wall_ms);
        if has_files && !core.graph_view.is_allowed() {
            core.remove_saved_view()?;
        }
        let handle = Handle::new(core);
        if background == Background::Threads {
            // Leases that expired while the database was closed end before anybody reads their keys. What fails here
            // the lease thread tries again.
            if let Err(error) = expiry::expire(&handle) {
                tracing::error!(%error, "leases could not be expired; it is tried again");
            }
            handle.start_lease_thread(expiry::run)?;
            handle.allow_view_thread();
            handle.allow_commit_thread();
            if index_build::are_unfinished(&handle) {
                handle.start_index_thread(index_build::run)?;
            }
        }
        Ok(handle)
    }
}
