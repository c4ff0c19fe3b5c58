//! Reference-counted handles of an open database. Dropping the last handle closes the database.
//!
//! ```text
//! Db, DbReader, Snapshot, Transaction, Watcher ──► Handle ──► Open ──► Shared ◄── lease thread
//!                                                  (counted)   │         core, commit queue
//!                                                              └─ closes and joins when dropped
//! ```
//!
//! Invariant: the lease thread holds no handle, so it never keeps a database open.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::sync::thread::{self, JoinHandle};
use bowline_storage::sync::{Instant, Mutex};

use crate::commit_queue::{CommitQueue, Committed, Request};
use bowline_core::error::{Error, Result};
use bowline_core::graph::KindId;
use bowline_core::kinds;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation};

/// The state of a database and its commit queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) queue: CommitQueue,
}

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
        match self.queue.commit(&self.engine, &self.hub, request) {
            // Closed after the check above.
            Err(Error::Storage(bowline_storage::Error::Closed)) => Err(Error::Closed),
            result => result,
        }
    }

    /// The number of a kind. Registers a new kind.
    pub(crate) fn kind_id(&self, name: &str) -> Result<KindId> {
        let kinds = &self.kinds;
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        kinds::check_name(name)?;
        let _registering = kinds.registering.lock();
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        let id = kinds.next_id();
        let action = Action::PutRaw {
            value: name.as_bytes().to_vec(),
        };
        let write = Mutation::new(trees::SYSTEM, &trees::kind_key(id.0), action);
        self.commit(Request::of(write))?;
        kinds.insert(id, name);
        Ok(id)
    }
}

/// Runs `attempt` until it does not conflict, with growing random pauses.
pub(crate) fn retry_conflicts<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
    const PAUSE_MAX_US: u64 = 10_000;
    let start = Instant::now();
    let mut attempts = 0u32;
    loop {
        attempts += 1;
        match attempt() {
            Err(Error::Conflict { .. }) => {}
            other => return other,
        }
        let elapsed = start.elapsed();
        if elapsed > GIVE_UP_AFTER {
            return Err(Error::TooManyConflicts { attempts, elapsed });
        }
        if attempts > 3 {
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
            shared: Arc::new(Shared { core, queue }),
            lease_thread: Mutex::new(None),
        };
        Handle {
            open: Arc::new(open),
        }
    }

    /// Starts the lease thread.
    pub(crate) fn start_lease_thread(&self, run: fn(&Shared)) -> Result<()> {
        let shared = self.open.shared.clone();
        let named = thread::Builder::new().name("bowline-lease".to_owned());
        let spawned = named.spawn(move || run(&shared));
        let path = &self.around.path;
        let failed = |error| bowline_storage::Error::io("start a thread for", path, error);
        let thread = spawned.map_err(failed)?;
        *self.open.lease_thread.lock() = Some(thread);
        Ok(())
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.open.close()
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        self.shared.begin_close();
        let thread = self.lease_thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the lease thread panicked");
        }
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
