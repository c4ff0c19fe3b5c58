//! The record of a lease, and its end: the deletion of its keys and records.
//!
//! A lease is a record in the system tree; each of its keys has an attachment record there, written by the
//! put that names the lease ([`super::writer`]). In a cluster the leader may also record the remaining time
//! of a lease.
//!
//! Invariant: a lease, its keys, their attachments and its records are deleted in one transaction. If that would be too
//! large, earlier transactions delete some of the keys.

use super::mutation::{Action, Mutation};
use super::target::Target;
use super::validate::Guard;
use crate::lease::{self, Grant, LeaseId};
use crate::trees;

/// The record of a lease, and what it requires: that there is no such lease, or, with `exists`, that there is one, whose
/// deadline it changes.
pub fn grant(id: LeaseId, grant: Grant, exists: bool) -> (Guard, Mutation) {
    let value = lease::encode_grant(grant);
    let action = Action::PutRaw { value };
    let record = Mutation::new(trees::SYSTEM, &trees::lease_key(id), action);
    (Guard::Lease { id, exists }, record)
}

/// Ends a lease and deletes its keys; returns how many.
pub fn end<T: Target>(target: &mut T, id: LeaseId) -> Result<u64, T::Error> {
    target.require(Guard::Lease { id, exists: true })?;
    let prefix = trees::attachment_prefix(id);
    let attachments = target.keys(trees::SYSTEM, &prefix)?;
    for attachment in &attachments {
        target.delete_attached(&attachment[prefix.len()..], id)?;
    }
    target.delete_record(trees::SYSTEM, &trees::lease_key(id))?;
    let remaining = trees::lease_remaining_key(id);
    if target.exists(trees::SYSTEM, &remaining)? {
        target.delete_record(trees::SYSTEM, &remaining)?;
    }
    Ok(attachments.len() as u64)
}

/// Deletes up to `count_max` keys of a lease, which stays, until one is refused as `is_full` says, and returns how many.
/// The others are not read.
pub fn delete_keys<T: Target>(
    target: &mut T,
    id: LeaseId,
    count_max: usize,
    is_full: impl Fn(&T::Error) -> bool,
) -> Result<u64, T::Error> {
    let prefix = trees::attachment_prefix(id);
    let mut deleted = 0;
    for attachment in target.first_keys(trees::SYSTEM, &prefix, count_max)? {
        match target.delete_attached(&attachment[prefix.len()..], id) {
            Ok(()) => deleted += 1,
            Err(error) if is_full(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}
