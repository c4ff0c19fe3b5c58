//! Keep-alive, revocation and expiry of leases in the library.
//!
//! Invariant: grants, recorded deadlines and ends of the same lease are serialized, and each changes the lease's
//! record and its entry in the table of deadlines together.

use std::time::Duration;

use bowline_types::Revision;

use crate::commit_queue::Request;
use crate::draft::{Draft, Drafting};
use crate::handle::{Shared, retry_conflicts};
use bowline_core::error::{Error, Result};
use bowline_core::lease::{Grant, KeptAlive, LeaseId};
use bowline_core::options::Isolation;
use bowline_core::write;

/// The record of a lease, as it is written.
pub(crate) fn record(id: LeaseId, grant: Grant, exists: bool) -> Request {
    let (guard, record) = write::lease::grant(id, grant, exists);
    let mut request = Request::of(record);
    request.guards.push(guard);
    request
}

/// Restarts the time to live of a lease; returns it.
pub(crate) fn keep_alive(shared: &Shared, id: LeaseId) -> Result<Duration> {
    let not_found = Error::LeaseNotFound { id };
    // Both are read before a record is written: the time to live counts from the call.
    let try_once = || {
        let (now, wall_ms) = (shared.clock().monotonic(), shared.clock().wall_ms());
        (now, shared.leases.keep_alive(id, now, wall_ms))
    };
    match try_once() {
        (_, None) => return Err(not_found),
        (_, Some((ttl, KeptAlive::Restarted))) => return Ok(ttl),
        (_, Some((_, KeptAlive::Unrecorded(_)))) => {}
    }
    let _changing = shared.leases.begin_change(id);
    match try_once() {
        (_, None) => Err(not_found),
        // Another keep-alive has recorded a later deadline meanwhile.
        (_, Some((ttl, KeptAlive::Restarted))) => Ok(ttl),
        (now, Some((ttl, KeptAlive::Unrecorded(grant)))) => {
            shared.commit(record(id, grant, true))?;
            match shared.leases.restart(id, grant, now) {
                true => Ok(ttl),
                false => Err(not_found),
            }
        }
    }
}

/// Ends a lease and deletes its keys; returns the number of keys.
pub(crate) fn revoke(shared: &Shared, id: LeaseId) -> Result<u64> {
    let _changing = shared.leases.begin_change(id);
    if !shared.leases.contains(id) {
        return Err(Error::LeaseNotFound { id });
    }
    let deleted = end(shared, id)?;
    shared.leases.remove(id);
    Ok(deleted)
}

/// Ends the leases whose time is over; returns their number.
pub(crate) fn expire(shared: &Shared) -> Result<u64> {
    shared.check_open()?;
    let expired = shared.leases.take_expired(shared.clock().monotonic());
    let (mut count, mut failed) = (0, None);
    for (id, _) in expired {
        let _changing = shared.leases.begin_change(id);
        if !shared.leases.is_expiring(id) {
            // The lease was revoked meanwhile, and perhaps granted again.
            continue;
        }
        match end(shared, id) {
            Ok(_) | Err(Error::LeaseNotFound { .. }) => {
                shared.leases.remove(id);
                count += 1;
            }
            // The others do not wait for it.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(count),
    }
}

/// Deletes a lease's record and its keys; returns the number of keys. It is one transaction, unless the keys are too
/// many for one: then all but the last ones are deleted before, in transactions of their own.
pub(crate) fn end(shared: &Shared, id: LeaseId) -> Result<u64> {
    let mut before = 0;
    // The commit has a limit of its own, which counts more than the keys.
    let mut count_max = 1 << 20;
    loop {
        let too_large = match delete(shared, |target| write::lease::end(target, id)) {
            Err(error @ Error::TransactionTooLarge { .. }) => error,
            ended => return ended.map(|deleted| before + deleted),
        };
        let is_full = |error: &Error| matches!(error, Error::TransactionTooLarge { .. });
        let some =
            |target: &mut Drafting<'_>| write::lease::delete_keys(target, id, count_max, is_full);
        match delete(shared, some) {
            Ok(0) => return Err(too_large),
            Ok(deleted) => before += deleted,
            Err(Error::TransactionTooLarge { .. }) if count_max > 1 => count_max /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Commits the deletions that `draft` records; returns what it returns.
fn delete(shared: &Shared, draft: impl Fn(&mut Drafting<'_>) -> Result<u64>) -> Result<u64> {
    let record = draft;
    retry_conflicts(&shared.turns, || {
        let pin = shared.engine.pin_newest();
        let mut draft = Draft::default();
        let mut drafting = Drafting {
            shared,
            at: Revision::new(pin.revision()),
            draft: &mut draft,
        };
        let deleted = record(&mut drafting)?;
        let request = draft.into_request(
            shared,
            Revision::new(pin.revision()),
            Isolation::Serializable,
        );
        shared.commit(request)?;
        Ok(deleted)
    })
}

/// The lease thread: ends leases when their time is over, until the database is closed.
pub(crate) fn run(shared: &Shared) {
    const IDLE: Duration = Duration::from_secs(60);
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(1);
    let mut pause = Duration::ZERO;
    loop {
        shared.wait_for_leases(IDLE, pause);
        if shared.is_closed() {
            return;
        }
        pause = match expire(shared) {
            Ok(0) => Duration::ZERO,
            Ok(_) => PAUSE,
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::error!(%error, "leases could not be expired; it is tried again");
                RETRY_AFTER
            }
        };
    }
}
