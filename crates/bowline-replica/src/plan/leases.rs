//! Leases: grants, remaining times, and the end, with the keys.
//!
//! The end of a lease deletes its keys and records at one revision. It is refused if the lease has more keys than one
//! command may delete, without reading all of them; the leader then first proposes commands that delete a part of the
//! keys each.

use std::time::Duration;

use bowline_storage::{EntryKind, Index};

use super::{Effect, LeaseEffect, Planner, Stop, lease_of};
use crate::command::{Outcome, Refusal};
use crate::overlay::Write;
use bowline_core::error::{Error, Result, show_key};
use bowline_core::lease::{self, Grant, LeaseId, Origin};
use bowline_core::trees;
use bowline_core::write;
use bowline_core::write::lookup::Lookup;
use bowline_core::write::target::Target;
use bowline_core::write::validate::Guard;

impl Planner<'_> {
    pub(super) fn grant(&mut self, id: i64, ttl: Duration) -> Result<Outcome, Stop> {
        self.check_space()?;
        // Clients of etcd's API may choose negative ids.
        let id = lease_of(id)?;
        if lease::check_ttl(ttl).is_err() {
            return Err(Refusal::LeaseNotFound { id: id.get() }.into());
        }
        let index = self.place.index;
        let origin = Origin::Entry(index);
        let grant = Grant { ttl, origin };
        let (guard, record) = write::lease::grant(id, grant, false);
        self.require(guard)?;
        self.writer.write_record(&record)?;
        let granted = LeaseEffect::Granted(grant);
        self.effects.push(Effect::Lease(id, granted));
        Ok(Outcome::Done)
    }

    /// The entry that granted a lease; `None` when there is no such lease.
    pub(super) fn grant_index(&self, id: LeaseId) -> Result<Option<Index>> {
        let key = trees::lease_key(id);
        let decode = |bytes: &[u8]| {
            let grant = lease::decode_grant(bytes).ok_or_else(|| Error::InvalidRecord {
                what: "lease",
                key: show_key(&key),
                reason: "its TTL is damaged",
            });
            grant.map(|grant| Some(grant.index()))
        };
        match self.writer.journal.get(trees::SYSTEM, &key) {
            Some(Write::Put { bytes, .. }) => decode(bytes),
            Some(Write::Delete) => Ok(None),
            None => self.engine.read_since(trees::SYSTEM, &key, 0, |found| {
                let put = found.filter(|found| found.kind == EntryKind::Put);
                put.map_or(Ok(None), |found| decode(found.bytes()))
            })?,
        }
    }

    /// Records the remaining time of an existing lease, or clears the record.
    pub(super) fn tell(&mut self, id: LeaseId, left: Option<Duration>) -> Result<()> {
        let key = trees::lease_remaining_key(id);
        match left {
            Some(left) => {
                let record = lease::encode_ttl(left);
                self.writer.put_record(trees::SYSTEM, &key, &record);
            }
            None if self.lookup().exists(trees::SYSTEM, &key)? => {
                self.writer.delete_record(trees::SYSTEM, &key);
            }
            None => return Ok(()),
        }
        self.effects
            .push(Effect::Lease(id, LeaseEffect::Recorded(left)));
        Ok(())
    }

    /// The lease that the leader of a term found expired.
    pub(super) fn expired_lease(
        &self,
        id: i64,
        term: u64,
        granted: Option<Index>,
    ) -> Result<LeaseId, Stop> {
        let lease = lease_of(id)?;
        let is_it = |index| self.grant_index(lease).map(|found| found == Some(index));
        if term != self.place.term || !granted.map_or(Ok(true), is_it)? {
            return Err(Refusal::LeaseNotFound { id }.into());
        }
        Ok(lease)
    }

    /// Deletes as many keys of a lease as a command may.
    pub(super) fn delete_keys_of_lease(&mut self, id: LeaseId) -> Result<Outcome, Stop> {
        self.require(Guard::Lease { id, exists: true })?;
        self.writer.journal.is_last = true;
        let is_full = |stop: &Stop| matches!(stop, Stop::Refused(Refusal::TooManyWrites { .. }));
        let deleted = write::lease::delete_keys(self, id, usize::MAX, is_full)?;
        Ok(Outcome::LeaseKeysDeleted { deleted })
    }

    pub(super) fn end_lease(&mut self, id: LeaseId) -> Result<Outcome, Stop> {
        // None of its writes is of a key that it reads later.
        self.writer.journal.is_last = true;
        let deleted = write::lease::end(self, id)?;
        self.effects.push(Effect::Lease(id, LeaseEffect::Ended));
        Ok(Outcome::LeaseEnded { deleted })
    }
}
