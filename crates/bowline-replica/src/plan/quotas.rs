//! Quotas: changes of them, and the charge of a command.
//!
//! A command is charged once, when all of its writes are known: its net effect on each quota is the difference between the
//! last write of each key and what was there before the command. So a transaction that deletes as much as it puts is not
//! refused, and none is refused for how it is written. The counters go into the same batch.
//!
//! Invariants:
//!
//! - A command that takes no more of a limited resource than before is never refused for it, however far over its quota
//!   a prefix is.
//! - A command is refused as a whole.

use std::collections::BTreeMap;

use bowline_storage::EntryKind;
use bowline_storage::engine::{BatchReader, Engine};

use super::{Effect, Planner, Stop};
use crate::command::{Command, Outcome, Refusal};
use crate::quota::{Limited, QuotaChange, QuotaRefusal};
use crate::work;
use bowline_core::error::{Error, Result};
use bowline_core::kv::record;
use bowline_core::quota::{self, PREFIX_BYTES_MAX, QUOTAS_MAX, Quotas, UseChange};
use bowline_core::trees;
use bowline_types::{QuotaLimits, QuotaUse, Revision};

/// The effect on the quotas.
#[derive(Debug, PartialEq)]
pub(crate) enum QuotaEffect {
    /// A quota was set or, with `None`, removed.
    Changed(Vec<u8>, Option<(QuotaLimits, QuotaUse)>),
    /// The counters of quotas, by their places.
    Used(Vec<(usize, QuotaUse)>),
}

impl Planner<'_> {
    /// Executes the command, within the bounds of its writes.
    pub(super) fn outcome(&mut self, command: &Command) -> Result<Outcome, Stop> {
        let outcome = self.command(command)?;
        self.write_entries(command)?;
        self.note_author(command);
        self.check_size()?;
        self.charge_quotas()?;
        Ok(outcome)
    }

    pub(super) fn change_quota(&mut self, change: &QuotaChange) -> Result<Outcome, Stop> {
        let refuse = |refusal: QuotaRefusal| Err(Stop::Refused(refusal.into()));
        let (quotas, prefix) = (&self.known.quotas, change.prefix());
        let known = quotas.of(prefix).map(quota::Counted::used);
        let key = trees::quota_key(prefix);
        let changed = match change {
            QuotaChange::Remove { .. } if known.is_none() => {
                let prefix = prefix.to_vec();
                return refuse(QuotaRefusal::NotFound { prefix });
            }
            QuotaChange::Remove { .. } => {
                self.writer.delete_record(trees::SYSTEM, &key);
                None
            }
            QuotaChange::Set { limits, .. } if limits.is_empty() => {
                return refuse(QuotaRefusal::Unlimited);
            }
            QuotaChange::Set { .. } if prefix.len() > PREFIX_BYTES_MAX => {
                return refuse(QuotaRefusal::PrefixTooLong);
            }
            QuotaChange::Set { .. } if known.is_none() && quotas.len() >= QUOTAS_MAX => {
                return refuse(QuotaRefusal::TooMany);
            }
            QuotaChange::Set { limits, .. } => {
                let used = match known {
                    Some(used) => used,
                    None => quota::count(self.engine, prefix, Revision::MAX)?,
                };
                let record = quota::encode(*limits, used);
                self.writer.put_record(trees::SYSTEM, &key, &record);
                Some((*limits, used))
            }
        };
        let changed = QuotaEffect::Changed(prefix.to_vec(), changed);
        self.effects.push(Effect::Quota(changed));
        Ok(Outcome::Done)
    }

    /// Charges the quotas for the writes of the command, or refuses it.
    fn charge_quotas(&mut self) -> Result<(), Stop> {
        if self.known.quotas.is_empty() || !self.writer.journal.is_numbered {
            return Ok(());
        }
        let quotas = &*self.known.quotas;
        let changes = changes(self.engine, quotas, self.writer.batch(), self.last + 1)?;
        let mut charged = Vec::new();
        for (place, change) in changes {
            let Some(quota) = quotas.at(place).filter(|_| change != UseChange::default()) else {
                continue;
            };
            let (limits, used) = (quota.limits(), quota.used());
            let after = change.after(used);
            for (limited, limit, used, asked) in [
                (Limited::Keys, limits.keys, used.keys, after.keys),
                (Limited::Bytes, limits.bytes, used.bytes, after.bytes),
            ] {
                if let Some(limit) = limit
                    && asked > limit
                    && asked > used
                {
                    let prefix = quota.prefix().to_vec();
                    let exceeded = QuotaRefusal::Exceeded {
                        prefix,
                        limited,
                        limit,
                        used,
                        asked,
                    };
                    return Err(Refusal::from(exceeded).into());
                }
            }
            let record = quota::encode(limits, after);
            let key = trees::quota_key(quota.prefix());
            self.writer.put_record(trees::SYSTEM, &key, &record);
            charged.push((place, after));
        }
        if !charged.is_empty() {
            let effect = Effect::Quota(QuotaEffect::Used(charged));
            self.effects.push(effect);
        }
        Ok(())
    }
}

/// The net changes by a batch, by the places of the quotas.
fn changes(
    engine: &Engine,
    quotas: &Quotas,
    batch: &[u8],
    revision: Revision,
) -> Result<BTreeMap<usize, UseChange>> {
    let damaged = |what: &str| Error::Storage(bowline_storage::Error::Internal(what.to_owned()));
    let mut reader = BatchReader::new(batch).ok_or_else(|| damaged("the batch is none"))?;
    // The last write of each key: the length of its value, or nothing.
    let mut last: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
    while let Some(write) = reader.next_operation().map_err(damaged)? {
        if write.tree != trees::KV {
            continue;
        }
        let mut counts = false;
        quotas.for_each_of(write.key, |_| counts = true);
        if !counts {
            continue;
        }
        let value = match write.kind {
            EntryKind::Delete => None,
            EntryKind::Put => {
                let decoded = record::decode(write.value, revision);
                let (_, start) = decoded.ok_or_else(|| record::invalid(write.key))?;
                Some(write.value.len().saturating_sub(start) as u64)
            }
        };
        last.insert(write.key, value);
    }
    let mut changes: BTreeMap<usize, UseChange> = BTreeMap::new();
    for (key, after) in last {
        let before = work::present_value_bytes(engine, key)?;
        quotas.for_each_of(key, |place| {
            changes
                .entry(place)
                .or_default()
                .add(key.len(), before, after);
        });
    }
    Ok(changes)
}
