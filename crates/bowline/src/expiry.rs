//! Revocation and expiry of leases in the library.
//!
//! Invariant: grants and ends of the same lease are serialized, and each changes the lease's record and its
//! entry in the table of deadlines together.

use std::time::Duration;

use bowline_types::Revision;

use crate::draft::{Draft, Drafting};
use crate::handle::{Shared, retry_conflicts};
use bowline_core::error::{Error, Result};
use bowline_core::lease::LeaseId;
use bowline_core::options::Isolation;
use bowline_core::write;

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
    let mut count = 0;
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
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Deletes a lease's record and its keys in one transaction; returns the number of keys.
pub(crate) fn end(shared: &Shared, id: LeaseId) -> Result<u64> {
    retry_conflicts(|| {
        let pin = shared.engine.pin_newest();
        let mut draft = Draft::default();
        let mut drafting = Drafting {
            shared,
            at: Revision::new(pin.revision()),
            draft: &mut draft,
        };
        let deleted = write::lease::end(&mut drafting, id)?;
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
