//! The engine of a cluster member: its owner keeps the log, which is also the Raft log.
//!
//! The log has the *proposed* entries, the engine the *agreed* ones. The owner applies an entry through
//! [`CommitGroup::apply_at`](super::CommitGroup::apply_at) when it is agreed on, some time after it was
//! written to the log. An opening replays nothing by itself, since only the owner learns what was agreed
//! on. Each memtable records the index of its last entry, so that a flush knows up to which index the
//! tables contain the log.
//!
//! A member that is behind the start of the log receives the tables themselves: [`Engine::freeze`] on one
//! side, [`Engine::install`] on the other. Tables are immutable, and all members of a cluster share the
//! database id, so tables are taken over unchanged. Each member numbers its own tables from its own base.
//!
//! | file | contents |
//! |---|---|
//! | `frozen` | the tables of one moment, for another member |
//! | `arriving` | verifies the files of such a state as they arrive |
//! | `install` | replaces the whole state by such a state |
//! | `restore` | makes a new database of such a state |
//!
//! Invariant: tables never run ahead of the log. A memtable is flushed only when the log is durable up to
//! its last entry. (A member may apply what a majority has before it has written it to its own log.)

mod arriving;
mod frozen;
mod install;
mod restore;

use std::path::PathBuf;
use std::sync::Arc;

pub use arriving::ArrivingFiles;
pub use frozen::{FrozenTable, FrozenTables};
pub use install::Installed;
pub use restore::{FrozenContents, Restore, RestoreOptions, frozen_contents};

use super::options::EngineOptions;
use super::{Engine, open};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::version::Layout;
use crate::vfs::{UninterruptedVfs, Vfs};
use crate::{Clock, Index, Revision};

/// How the engine of a member is opened.
pub struct Replicated<'a> {
    /// The id of the database if it must be created: the same for all members.
    pub database_id: u128,
    /// The id of the first file that this opening makes. The upper half is the member's. The lower half is to be drawn at
    /// random for each opening: the directory may be an older one than the member has had, and others may have files that
    /// it has made since.
    pub first_file_id: u64,
    /// Called once when the directory is locked, before any other file is created in it. The argument says
    /// whether it has a database. No other process opens or creates one from then on.
    pub locked: &'a mut dyn FnMut(bool) -> Result<()>,
    /// Called when the log is damaged, or gone. With `true` the owner has noted, durably, that entries which it
    /// acknowledged may be missing: the files are set aside, and the log begins anew behind the tables. With `false` the
    /// opening fails.
    pub damaged: &'a mut dyn FnMut(&Error) -> Result<bool>,
    /// Receives every entry of the log behind the flushed ones, in order.
    pub visit: &'a mut dyn FnMut(Index, &[u8]) -> Result<()>,
}

impl std::fmt::Debug for Replicated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicated")
            .field("database_id", &self.database_id)
            .field("first_file_id", &self.first_file_id)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens or creates the database in `path` for a member of a cluster. The caller keeps the returned
    /// log.
    pub fn open_replicated(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: impl Into<PathBuf>,
        options: EngineOptions,
        replicated: Replicated<'_>,
    ) -> Result<(Engine, Log)> {
        let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(vfs));
        let layout = Layout::new(path);
        let (core, log) = open::open(vfs, clock, layout, options, Some(replicated))?;
        let log = log.ok_or_else(|| Error::Internal("a replica without a log".to_owned()))?;
        Ok((Engine::start(core)?, log))
    }

    /// The last entry of the log that the tables contain.
    #[must_use]
    pub fn flushed_index(&self) -> Index {
        self.core.view.load().version.flushed_index
    }

    /// Keeps every tombstone from `from` on, until [`Engine::hold_tombstones_later`] takes effect. Before
    /// the first call all tombstones are kept.
    pub fn hold_tombstones(&self, from: Revision) {
        self.core.pins.hold_tombstones(from);
    }

    /// Keeps only tombstones from `from` on, as soon as the tables contain the log entry `index`. Until
    /// then, earlier entries may be applied again, and they need the tombstones that they needed before.
    pub fn hold_tombstones_later(&self, index: Index, from: Revision) {
        self.core.pins.hold_tombstones_later(index, from);
    }
}
