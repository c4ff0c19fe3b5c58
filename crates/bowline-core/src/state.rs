//! The state of an open database, which its handles and its lease thread share. It knows no handle.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `engine` | commit groups, or the members' applier; its own locks | everybody |
//! | `hub` | whoever publishes a commit; its own lock | watchers |
//! | `leases`, `kinds` | whoever commits a grant, an end, a registration | everybody |
//! | `lease_signal` | grants and the end of the database | the lease thread |

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::Clock;
use bowline_storage::engine::Engine;
use bowline_storage::sync::atomic::{AtomicBool, Ordering};
use bowline_storage::sync::{Condvar, Mutex};
use bowline_storage::vfs::Vfs;

use crate::error::{Error, Result};
use crate::kinds::Kinds;
use crate::lease::LeaseTable;
use crate::options::Limits;
use crate::watch::Hub;

/// Where a database lies and what it is given from outside.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub vfs: Arc<dyn Vfs>,
    pub clock: Arc<dyn Clock>,
    pub path: PathBuf,
    pub limits: Limits,
    pub watch_ring_bytes: u64,
    /// Not with `Durability::Memory`.
    pub has_files: bool,
}

/// The state of an open database.
#[derive(Debug)]
pub struct Core {
    pub engine: Engine,
    pub hub: Hub,
    pub leases: LeaseTable,
    pub kinds: Kinds,
    pub limits: Limits,
    pub around: Surroundings,
    is_closed: AtomicBool,
    lease_signal: Signal,
}

impl Core {
    /// Reads what is kept in memory besides the engine.
    pub fn new(engine: Engine, around: Surroundings) -> Result<Core> {
        Ok(Core {
            kinds: Kinds::load(&engine)?,
            leases: LeaseTable::load(&engine, &*around.clock)?,
            hub: Hub::new(around.watch_ring_bytes),
            limits: around.limits,
            engine,
            around,
            is_closed: AtomicBool::new(false),
            lease_signal: Signal::default(),
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

    /// Refuses later calls, and wakes whoever waits for changes or deadlines.
    pub fn begin_close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.hub.close();
        self.lease_signal.notify();
    }

    /// A lease was granted, so that the next deadline may be an earlier one.
    pub fn signal_lease(&self) {
        self.lease_signal.notify();
    }

    /// Waits until the next lease expires, one is granted or the database is closed, `idle` at most and
    /// `pause` at least.
    pub fn wait_for_leases(&self, idle: Duration, pause: Duration) {
        self.lease_signal.wait(|| {
            if self.is_closed() {
                return Duration::ZERO;
            }
            // Asked under the signal's lock: whoever grants a lease after this finds a waiter to wake.
            let next = self.leases.next_deadline(self.clock().monotonic());
            next.unwrap_or(idle).min(idle).max(pause)
        });
    }
}

/// Wakes a thread that waits.
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

    /// Waits for a notification, as long as `timeout` says once no notification can be missed.
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
