//! Reference-counted handles of an open database. Dropping the last handle closes the database.
//!
//! ```text
//! Db, DbReader, Snapshot, Transaction, Watcher, ──► Handle ──► Open ──► Shared ◄── lease thread,
//! Ticket                                           (counted)   │         core, commit queue    view thread, commit thread
//!                                                              └─ closes and joins when dropped
//! ```
//!
//! Invariant: no thread holds a handle, so none keeps a database open. It may be closed on one of them all the same, by a waker
//! that drops the last handle.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bowline_query::PlanCache;
use bowline_storage::engine::SnapshotPin;
use bowline_storage::sync::thread::{self, JoinHandle};
use bowline_storage::sync::{Instant, Mutex};

use crate::commit_queue::{CommitQueue, Committed, Request};
use crate::turns::Turns;
use bowline_core::error::{Error, Result};
use bowline_core::graph::KindId;
use bowline_core::graph::csr::Begun;
use bowline_core::state::Core;
use bowline_core::write;

/// The state of a database and its commit queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) queue: CommitQueue,
    /// Those of transactions that have lost.
    pub(crate) turns: Turns,
    /// Plans of queries.
    pub(crate) plans: Arc<PlanCache>,
}

/// How many plans of queries are held, and about how many bytes of them.
const PLANS_MAX: usize = 256;
const PLANS_MAX_BYTES: u64 = 4 << 20;

impl Deref for Shared {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Shared {
    /// Commits a request through the commit queue.
    #[inline]
    pub(crate) fn commit(&self, request: Request) -> Result<Committed> {
        self.check_open()?;
        self.turns.pass(&request);
        // It may be closed after the checks above.
        open_or_closed(self.queue.commit(&self.core, request))
    }

    /// Begins the graph view in the commit order: of the commit queue, or of a member's applier.
    pub(crate) fn begin_view(&self) -> (SnapshotPin, Begun) {
        self.queue.lead_alone(&self.core, || {
            let _order = self.apply_order.lock();
            let pin = self.engine.pin_newest();
            let begun = self.graph_view.begin(pin.revision());
            (pin, begun)
        })
    }

    /// The number of a kind. Registers a new kind.
    pub(crate) fn kind_id(&self, name: &str) -> Result<KindId> {
        let kinds = &self.kinds;
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        let _registering = kinds.registering.lock();
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        let (id, record) = write::graph::register_kind(kinds, 0, name)?;
        self.commit(Request::of(record))?;
        kinds.insert(id, name);
        Ok(id)
    }
}

/// What an engine that is closed says, in the words of the database.
pub(crate) fn open_or_closed(outcome: Result<Committed>) -> Result<Committed> {
    match outcome {
        Err(Error::Storage(bowline_storage::Error::Closed)) => Err(Error::Closed),
        outcome => outcome,
    }
}

/// Runs `attempt` until it does not conflict. After two conflicts it takes its turn; where it has to do without, it pauses for a
/// random time, which grows.
pub(crate) fn retry_conflicts<T>(
    turns: &Turns,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
    const PAUSE_MAX_US: u64 = 10_000;
    let start = Instant::now();
    let mut attempts = 0u32;
    let mut turn = None;
    loop {
        attempts += 1;
        let what = match attempt() {
            Err(Error::Conflict { what, .. }) => what,
            other => return other,
        };
        let elapsed = start.elapsed();
        if elapsed > GIVE_UP_AFTER {
            return Err(Error::TooManyConflicts { attempts, elapsed });
        }
        turn = turns.after_loss(turn, attempts, &what);
        if turn.is_none() && attempts > 3 {
            let most = (1 << attempts.min(20)).min(PAUSE_MAX_US);
            thread::sleep(Duration::from_micros(fastrand::u64(0..most)));
        }
    }
}

/// An open database; closed when dropped.
#[derive(Debug)]
struct Open {
    shared: Arc<Shared>,
    lease_thread: Mutex<Option<JoinHandle<()>>>,
    view_thread: Mutex<LazyThread>,
    commit_thread: Mutex<LazyThread>,
    /// Builds and clears the indexes that a crash has left unfinished.
    index_thread: Mutex<Option<JoinHandle<()>>>,
}

/// A thread that is started when it is needed for the first time: the one that builds and keeps the graph view, and the
/// one that leads commits for which nobody waits.
#[derive(Debug, Default)]
enum LazyThread {
    /// None may be started: threads are not wanted, the work is another's, or the database is closed.
    #[default]
    None,
    Allowed,
    Running(JoinHandle<()>),
}

impl LazyThread {
    fn running(self) -> Option<JoinHandle<()>> {
        match self {
            LazyThread::Running(running) => Some(running),
            LazyThread::None | LazyThread::Allowed => None,
        }
    }
}

/// Waits for the end of a thread, unless it is the calling one: each may lead a group and wake who waits for a ticket, and that is
/// somebody else's code, which may drop the last handle.
fn join(running: Option<JoinHandle<()>>, name: &str) {
    let other = running.filter(|running| running.thread().id() != thread::current().id());
    if other.is_some_and(|other| other.join().is_err()) {
        tracing::error!("{name} panicked");
    }
}

/// Keeps a database open.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    open: Arc<Open>,
}

impl Deref for Handle {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.open.shared
    }
}

impl Handle {
    pub(crate) fn new(core: Core) -> Handle {
        let queue = CommitQueue::new(!core.leases.is_empty());
        let open = Open {
            shared: Arc::new(Shared {
                core,
                queue,
                turns: Turns::default(),
                plans: Arc::new(PlanCache::new(PLANS_MAX, PLANS_MAX_BYTES)),
            }),
            lease_thread: Mutex::new(None),
            view_thread: Mutex::default(),
            commit_thread: Mutex::default(),
            index_thread: Mutex::default(),
        };
        Handle {
            open: Arc::new(open),
        }
    }

    /// Starts the lease thread.
    pub(crate) fn start_lease_thread(&self, run: fn(&Shared)) -> Result<()> {
        *self.open.lease_thread.lock() = Some(self.start_thread("bowline-lease", run)?);
        Ok(())
    }

    /// Starts the thread that goes on with unfinished indexes.
    pub(crate) fn start_index_thread(&self, run: fn(&Shared)) -> Result<()> {
        *self.open.index_thread.lock() = Some(self.start_thread("bowline-index", run)?);
        Ok(())
    }

    fn start_thread(&self, name: &str, run: fn(&Shared)) -> Result<JoinHandle<()>> {
        let shared = self.open.shared.clone();
        let named = thread::Builder::new().name(name.to_owned());
        let spawned = named.spawn(move || run(&shared));
        let path = &self.around.path;
        let failed = |error| bowline_storage::Error::io("start a thread for", path, error);
        Ok(spawned.map_err(failed)?)
    }

    /// Allows a thread for the graph view.
    pub(crate) fn allow_view_thread(&self) {
        *self.open.view_thread.lock() = LazyThread::Allowed;
    }

    /// Has the graph view built in the background, if there is a thread to do it.
    #[cold]
    pub(crate) fn want_view(&self) {
        self.start_view_thread();
        self.signal_view(true);
    }

    /// Has the changes of the graph view folded: by its thread, or by the caller where there is none.
    #[cold]
    pub(crate) fn fold_view(&self) {
        match self.start_view_thread() {
            true => self.signal_view(false),
            false => self.graph_view.try_maintain(),
        }
    }

    /// Has the graph view saved, if that is due: by its thread, or by the caller where there is none.
    pub(crate) fn save_view(&self) {
        match self.start_view_thread() {
            true => self.signal_view(false),
            false => self.save_view_if_due(),
        }
    }

    /// Starts the thread of the graph view, if it may run and does not. Returns whether it runs.
    fn start_view_thread(&self) -> bool {
        let mut thread = self.open.view_thread.lock();
        if matches!(*thread, LazyThread::Allowed) {
            let shared = self.open.shared.clone();
            let named = thread::Builder::new().name("bowline-graph".to_owned());
            match named.spawn(move || shared.keep_view(|_| shared.begin_view())) {
                Ok(running) => *thread = LazyThread::Running(running),
                Err(error) => tracing::warn!(%error, "no thread for the graph view"),
            }
        }
        matches!(*thread, LazyThread::Running(_))
    }

    /// Allows a thread for commits for which nobody waits.
    pub(crate) fn allow_commit_thread(&self) {
        *self.open.commit_thread.lock() = LazyThread::Allowed;
    }

    /// Has the commit thread lead, if nobody does. Returns whether there is such a thread.
    pub(crate) fn commit_thread(&self) -> bool {
        let mut thread = self.open.commit_thread.lock();
        if matches!(*thread, LazyThread::Allowed) {
            let shared = self.open.shared.clone();
            let named = thread::Builder::new().name("bowline-commit".to_owned());
            match named.spawn(move || shared.queue.run_commit_thread(&shared.core)) {
                Ok(running) => *thread = LazyThread::Running(running),
                Err(error) => tracing::warn!(%error, "no thread for commits nobody waits for"),
            }
        }
        let runs = matches!(*thread, LazyThread::Running(_));
        drop(thread);
        if runs {
            self.queue.want_commit_thread();
        }
        runs
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.open.close()
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        self.shared.begin_close();
        let running = self.lease_thread.lock().take();
        join(running, "the lease thread");
        let running = self.index_thread.lock().take();
        join(running, "the thread of the indexes");
        let thread = std::mem::take(&mut *self.view_thread.lock());
        join(thread.running(), "the thread of the graph view");
        // What was ordered before is committed, also what stands behind a group that is being flushed.
        self.shared.queue.end_commit_thread();
        let thread = std::mem::take(&mut *self.commit_thread.lock());
        join(thread.running(), "the commit thread");
        self.shared.queue.lead_all(&self.shared.core);
        self.shared.save_view();
        Ok(self.shared.engine.close()?)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed; the next open recovers it");
        }
    }
}
