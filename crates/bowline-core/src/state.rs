//! [`Core`]: the state of an open database, shared by its handles and its lease thread.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `engine` (internal locks) | commit groups, or a member's applier | all |
//! | `hub` (internal lock) | the publisher of a commit | watchers |
//! | `leases`, `kinds` | commits of grants, ends, registrations | all |
//! | `indexes` | commits that create, complete or drop one | all |
//! | `lease_signal` | grants and the close of the database | the lease thread |
//! | `graph_view` (internal locks) | commit groups, or a member's applier; the view's thread | graph queries |
//! | `view_signal` | commit groups, graph queries and the close of the database | the view's thread |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::Clock;
use bowline_storage::engine::{Engine, SnapshotPin};
use bowline_storage::sync::atomic::{AtomicBool, Ordering};
use bowline_storage::sync::{Condvar, Mutex, MutexGuard};
use bowline_storage::vfs::Vfs;

use crate::error::{Error, Result};
use crate::graph::csr::{self, Begun, GraphChanges, GraphView, Place};
use crate::index::Indexes;
use crate::kinds::Kinds;
use crate::lease::LeaseTable;
use crate::options::Limits;
use crate::trees;
use crate::watch::Hub;

/// The place of a database and its external resources.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub vfs: Arc<dyn Vfs>,
    pub clock: Arc<dyn Clock>,
    pub path: PathBuf,
    pub limits: Limits,
    pub watch_ring_bytes: u64,
    /// How much memory the graph view may take; 0 for none.
    pub graph_view_bytes: u64,
    /// Whether the graph view is saved: not in memory, and not by a member of a cluster, which opens at an older
    /// revision than it closed at.
    pub saves_graph_view: bool,
    /// False with `Durability::Memory`.
    pub has_files: bool,
}

/// The state of an open database.
#[derive(Debug)]
pub struct Core {
    pub engine: Engine,
    pub hub: Hub,
    pub leases: LeaseTable,
    pub kinds: Kinds,
    pub indexes: Indexes,
    pub graph_view: GraphView,
    pub limits: Limits,
    pub around: Surroundings,
    /// Held by a member's applier while entries are applied or the state is replaced.
    pub apply_order: Mutex<()>,
    is_closed: AtomicBool,
    lease_signal: Signal,
    view_signal: Signal,
    /// Held by the thread that builds the graph view.
    view_build: Mutex<()>,
    is_view_wanted: AtomicBool,
}

impl Core {
    /// Loads the leases and kinds of an open engine.
    pub fn new(engine: Engine, around: Surroundings) -> Result<Core> {
        Ok(Core {
            kinds: Kinds::load(&engine)?,
            indexes: Indexes::load(&engine)?,
            leases: LeaseTable::load(&engine, &*around.clock)?,
            hub: Hub::new(around.watch_ring_bytes),
            graph_view: GraphView::new(around.graph_view_bytes),
            limits: around.limits,
            engine,
            around,
            apply_order: Mutex::new(()),
            is_closed: AtomicBool::new(false),
            lease_signal: Signal::default(),
            view_signal: Signal::default(),
            view_build: Mutex::new(()),
            is_view_wanted: AtomicBool::new(false),
        })
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.around.clock
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub fn check_open(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Refuses later calls, and wakes waiting watchers and the lease thread.
    pub fn begin_close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.hub.close();
        self.lease_signal.notify();
        self.view_signal.notify();
    }

    /// Wakes the lease thread after a grant: the next deadline may be earlier.
    pub fn signal_lease(&self) {
        self.lease_signal.notify();
    }

    /// Wakes the thread of the graph view: to build it, if `is_wanted`, or to apply and fold its changes.
    pub fn signal_view(&self, is_wanted: bool) {
        if is_wanted {
            self.is_view_wanted.store(true, Ordering::Release);
        }
        self.view_signal.notify();
    }

    /// Hands over a group's changes of the graph. Called in the commit order, once they are visible.
    pub fn publish_graph(&self, changes: &mut GraphChanges) {
        if self.graph_view.publish(self.engine.visible(), changes) {
            self.signal_view(false);
        }
    }

    /// Where the graph view is saved, if it is.
    fn view_place(&self) -> Option<Place<'_>> {
        let is_saved = self.around.saves_graph_view && self.graph_view.is_allowed();
        is_saved.then(|| Place {
            vfs: &*self.around.vfs,
            directory: &self.around.path,
            database_id: self.engine.database_id(),
        })
    }

    /// Saves the graph view, once nobody commits any more and before the engine is closed. A failure costs a build
    /// after the next opening, and nothing else.
    pub fn save_view(&self) {
        let Some(place) = self.view_place() else {
            return;
        };
        if let Err(error) = self.graph_view.save_and_forget(&self.engine, &place) {
            tracing::warn!(%error, "the graph view is not saved: it is built when it is wanted");
        }
    }

    /// Saves the graph view, if that is due: a process that is killed then need not build it again. For its thread, or
    /// for the only user of a database without threads.
    pub fn save_view_if_due(&self) {
        let due = self.view_place();
        let Some(place) = due.filter(|_| self.graph_view.is_save_due()) else {
            return;
        };
        let pin = self.engine.pin_newest();
        if let Err(error) = self.graph_view.save(&self.engine, &place, &pin) {
            tracing::warn!(%error, "the graph view is not saved yet");
        }
    }

    /// Compacts the trees into one run each. The graph view is saved before, if edges have changed since, so that they
    /// keep no history for the file of before.
    pub fn compact(&self) -> Result<()> {
        if let Some(place) = self.view_place().filter(|_| self.graph_view.is_unsaved()) {
            let pin = self.engine.pin_newest();
            self.graph_view.maintain();
            if let Err(error) = self.graph_view.save(&self.engine, &place, &pin) {
                tracing::warn!(%error, "the graph view is not saved yet");
            }
        }
        self.give_up_saved_view(false);
        Ok(self.engine.compact_tables()?)
    }

    /// Without a view: removes a saved one that is of no use, and releases the history that it needs, which would grow
    /// without bound. With `only_if_over` only that of a graph that has outgrown the budget, which is quick to check.
    fn give_up_saved_view(&self, only_if_over: bool) {
        // A thread that loads it needs that history. It is checked again later.
        if let Some(building) = self.view_build.try_lock() {
            self.give_up_saved_view_locked(only_if_over, &building);
        }
    }

    fn give_up_saved_view_locked(&self, only_if_over: bool, _building: &MutexGuard<'_, ()>) {
        let Some(place) = self.view_place() else {
            return;
        };
        if self.engine.held_revision(trees::EDGE_OUT).is_none() || self.graph_view.is_ready() {
            return;
        }
        let is_over = self.graph_view.is_over_budget();
        if only_if_over && !is_over {
            return;
        }
        let given_up = self.graph_view.unless_ready(|| {
            let (now, is_cancelled) = (self.engine.visible(), || self.is_closed());
            let found = || (self.graph_view).is_of_use(&self.engine, &place, now, &is_cancelled);
            match is_over || !found()? {
                true => self.remove_saved_view(),
                false => Ok(()),
            }
        });
        if let Err(error) = given_up {
            tracing::warn!(%error, "the saved graph view stays, with the history that it needs");
        }
    }

    /// Copies the database to a directory, with its saved graph view. Returns the revision of the copy.
    pub fn checkpoint(&self, target: &Path) -> Result<u64> {
        let revision = self.engine.checkpoint(target)?;
        if let Some(place) = self.view_place()
            && let Err(error) = csr::copy(&place, target, revision)
        {
            tracing::warn!(%error, "the checkpoint has no graph view: it is built when it is wanted");
        }
        Ok(revision)
    }

    /// Removes a saved graph view, and releases the history that it needs. For a database without a view.
    pub fn remove_saved_view(&self) -> Result<()> {
        csr::remove(&Place {
            vfs: &*self.around.vfs,
            directory: &self.around.path,
            database_id: self.engine.database_id(),
        })?;
        if self.engine.held_revision(trees::EDGE_OUT).is_some() {
            self.engine.hold_tree(trees::EDGE_OUT, None)?;
        }
        Ok(())
    }

    /// Loads or builds the graph view, if there is none, and returns whether it is ready. `begin` begins it in
    /// the commit order.
    pub fn build_view(&self, begin: impl FnOnce(&Core) -> (SnapshotPin, Begun)) -> Result<bool> {
        self.bring_view(begin, true)
    }

    /// Loads the graph view, or builds it if it `may_build`.
    fn bring_view(
        &self,
        begin: impl FnOnce(&Core) -> (SnapshotPin, Begun),
        may_build: bool,
    ) -> Result<bool> {
        // One build at a time: to begin another would throw away the one that is under way.
        let building = self.view_build.lock();
        if self.graph_view.is_ready() {
            self.graph_view.count_rows_anew();
            self.graph_view.maintain();
            return Ok(true);
        }
        if !self.graph_view.is_allowed() {
            return Ok(false);
        }
        let visible = self.engine.visible();
        let is_saved = |place: &Place<'_>| self.graph_view.is_saved(&self.engine, place, visible);
        let saved = self.view_place().filter(is_saved);
        if saved.is_none() && !may_build {
            return Ok(false);
        }
        let (_pin, begun) = begin(self);
        let is_cancelled = || self.is_closed();
        if let Some(place) = saved {
            match (self.graph_view).load(&self.engine, &place, &begun, &is_cancelled) {
                Ok(true) => {
                    self.graph_view.maintain();
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the saved graph view cannot be used"),
            }
        }
        if !may_build {
            self.graph_view.forget();
            return Ok(false);
        }
        let is_ready = self.graph_view.build(&self.engine, &begun, &is_cancelled)?;
        if is_ready {
            self.graph_view.maintain();
        }
        self.give_up_saved_view_locked(true, &building);
        Ok(is_ready)
    }

    /// The body of the graph view's thread: builds it when it is wanted, applies and folds its changes.
    pub fn keep_view(&self, begin: impl Fn(&Core) -> (SnapshotPin, Begun)) {
        /// A state that few changes were applied to answers just as well.
        const PAUSE_MAX: Duration = Duration::from_secs(60);
        /// Until a view is saved that a commit was just in the way of.
        const PAUSE_BEFORE_SAVE: Duration = Duration::from_millis(100);
        while !self.is_closed() {
            if self.is_view_wanted.swap(false, Ordering::AcqRel)
                && let Err(error) = self.bring_view(&begin, self.graph_view.is_worth_a_build())
            {
                tracing::error!(%error, "the graph view cannot be built: queries read the trees");
            }
            self.graph_view.maintain();
            self.give_up_saved_view(true);
            self.save_view_if_due();
            self.view_signal.wait(|| {
                if self.is_closed() || self.is_view_wanted.load(Ordering::Acquire) {
                    return Duration::ZERO;
                }
                let is_save_due = self.graph_view.is_save_due() && self.view_place().is_some();
                if is_save_due {
                    PAUSE_BEFORE_SAVE
                } else {
                    PAUSE_MAX
                }
            });
        }
    }

    /// Waits until the next lease expires, one is granted or the database is closed, `idle` at most and
    /// `pause` at least.
    pub fn wait_for_leases(&self, idle: Duration, pause: Duration) {
        self.lease_signal.wait(|| {
            if self.is_closed() {
                return Duration::ZERO;
            }
            // Read under the signal's lock: a later grant finds the waiter and wakes it.
            let next = self.leases.next_deadline(self.clock().monotonic());
            next.unwrap_or(idle).min(idle).max(pause)
        });
    }
}

/// A signal that wakes a waiting thread.
#[derive(Debug, Default)]
struct Signal {
    lock: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    fn notify(&self) {
        let _lock = self.lock.lock();
        self.condition.notify_all();
    }

    /// Waits for a notification. Computes `timeout` under the lock, so no notification is missed.
    fn wait(&self, timeout: impl FnOnce() -> Duration) {
        let mut lock = self.lock.lock();
        let timeout = timeout();
        if !timeout.is_zero() {
            self.condition.wait_for(&mut lock, timeout);
        }
    }
}

pub fn check_key(key: &[u8], limits: &Limits) -> Result<()> {
    if key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let (size, limit) = (key.len() as u64, limits.key_size_max_bytes);
    if size > limit {
        return Err(Error::KeyTooLarge { size, limit });
    }
    Ok(())
}

pub fn check_value(len: usize, limits: &Limits) -> Result<()> {
    let (size, limit) = (len as u64, limits.value_size_max_bytes);
    if size > limit {
        Err(Error::ValueTooLarge { size, limit })
    } else {
        Ok(())
    }
}

/// Refuses a value that is too long, by itself or beside its key.
pub fn check_pair(key: &[u8], value_len: usize, limits: &Limits) -> Result<()> {
    check_value(value_len, limits)?;
    let size = (key.len() + value_len) as u64;
    let limit = limits.transaction_size_max_bytes;
    match size > limit {
        true => Err(Error::TransactionTooLarge { size, limit }),
        false => Ok(()),
    }
}
