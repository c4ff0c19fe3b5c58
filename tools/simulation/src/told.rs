//! What a watch tells, by whichever way it came: from a member's database, or from its server over the network.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bowline::{ChangeKind, Changes, Revision};
use bowline_client::{Batch, EventKind};
use bowline_testing::linear::Held;
use bowline_types::LeaseId;

use crate::clients::{number, register_of};
use crate::holders::PREFIX;

/// The changes of a revision.
pub(crate) struct Told {
    pub(crate) revision: Revision,
    changes: Vec<Change>,
}

/// A change of a key.
struct Change {
    is_deletion: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    create_revision: Revision,
    mod_revision: Revision,
    version: u64,
    lease: Option<LeaseId>,
}

macro_rules! change {
    ($change:expr, $is_deletion:expr) => {
        Change {
            is_deletion: $is_deletion,
            key: $change.entry.key.to_vec(),
            value: $change.entry.value.to_vec(),
            create_revision: $change.entry.create_revision,
            mod_revision: $change.entry.mod_revision,
            version: $change.entry.version,
            lease: $change.entry.lease,
        }
    };
}

impl From<&Changes> for Told {
    fn from(changes: &Changes) -> Told {
        let told = changes.changes.iter();
        let told = told.map(|change| change!(change, change.kind == ChangeKind::Delete));
        Told {
            revision: changes.revision,
            changes: told.collect(),
        }
    }
}

impl Told {
    /// The revisions of a batch, which may have several.
    pub(crate) fn all_of(batch: &Batch) -> impl Iterator<Item = Told> {
        let revisions = batch.events.chunk_by(|a, b| a.revision() == b.revision());
        revisions.map(|events| {
            let changes = events.iter();
            let changes = changes.map(|event| change!(event, event.kind == EventKind::Delete));
            Told {
                revision: events[0].revision(),
                changes: changes.collect(),
            }
        })
    }

    /// What it says of registers.
    pub(crate) fn registers(&self) -> impl Iterator<Item = ((usize, Revision), Held)> {
        self.changes.iter().filter_map(|change| {
            let register = register_of(&change.key)?;
            let held = match change.is_deletion {
                true => None,
                false => number(&change.value),
            };
            Some(((register, self.revision), held))
        })
    }

    /// The keys of leases that were deleted.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = &[u8]> {
        let deleted = self.changes.iter().filter(|change| change.is_deletion);
        let keys = deleted.map(|change| &change.key[..]);
        keys.filter(|key| key.starts_with(PREFIX))
    }

    /// What was put as the value of a key.
    pub(crate) fn put_to(&self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let puts = self.changes.iter().filter(|change| !change.is_deletion);
        let puts = puts.filter(move |change| change.key == key);
        puts.map(|change| &change.value[..])
    }

    /// Everything that it says.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let _ = write!(
                text,
                "{} {}={} of {}, {}, version {}, lease {:?}; ",
                if change.is_deletion { "Delete" } else { "Put" },
                change.key.escape_ascii(),
                change.value.escape_ascii(),
                change.create_revision,
                change.mod_revision,
                change.version,
                change.lease
            );
        }
        text
    }
}

/// What one who watches was told.
pub(crate) struct Seen {
    name: String,
    /// The revisions, in the order in which they were told.
    revisions: Vec<Revision>,
    /// When it was told that everything up to a revision has come: how many it had been told of by then.
    progress: Vec<(usize, Revision)>,
    /// Below this revision it was not told of what others were told: the history was compacted.
    from: Revision,
}

impl Seen {
    pub(crate) fn new(name: String) -> Seen {
        Seen {
            name,
            revisions: Vec::new(),
            progress: Vec::new(),
            from: Revision::FIRST,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The revision that it is told next, or a later one.
    pub(crate) fn next(&self) -> Revision {
        let next = self.revisions.last().map_or(self.from, |last| *last + 1);
        next.max(self.from)
    }

    /// What it was to be told next is compacted: it goes on where the history begins. That may be only if the history is
    /// compacted at all.
    pub(crate) fn is_behind(
        &mut self,
        oldest: Revision,
        are_compacting: bool,
    ) -> Result<(), String> {
        if !are_compacting {
            let name = &self.name;
            return Err(format!(
                "{name} has lost history that is kept, up to {oldest}"
            ));
        }
        self.from = oldest.max(self.from);
        Ok(())
    }

    /// It is told of a revision: of a later one than before.
    pub(crate) fn add(&mut self, revision: Revision) -> Result<(), String> {
        let last = self.revisions.last();
        if last.is_some_and(|last| *last >= revision) {
            let name = &self.name;
            return Err(format!(
                "{name} was told revision {revision} after {last:?}"
            ));
        }
        self.revisions.push(revision);
        Ok(())
    }

    /// It is told that everything up to a revision has come.
    pub(crate) fn has_all_up_to(&mut self, revision: Revision) {
        self.progress.push((self.revisions.len(), revision));
    }

    /// It was told all of these revisions, and no others; and when it was told that all up to one has come, all had.
    pub(crate) fn judge(&self, changes: &BTreeMap<Revision, String>) -> Result<(), String> {
        let name = &self.name;
        let mut all = changes.range(self.from..).map(|(revision, _)| revision);
        for told in { self.revisions.iter() }.filter(|told| **told >= self.from) {
            let next = all.next();
            if next != Some(told) {
                return Err(format!("{name} was told {told} instead of {next:?}"));
            }
        }
        match all.next() {
            None => self.judge_progress(changes),
            Some(missing) => Err(format!("{name} was never told {missing}")),
        }
    }

    fn judge_progress(&self, changes: &BTreeMap<Revision, String>) -> Result<(), String> {
        for &(count, revision) in { self.progress.iter() }.filter(|(_, up_to)| *up_to >= self.from)
        {
            let last = count.checked_sub(1).map(|at| self.revisions[at]);
            let newest = changes.range(self.from..=revision).next_back();
            let newest = newest.map(|(newest, _)| *newest);
            if newest > last || last.is_some_and(|last| revision < last) {
                return Err(format!(
                    "{} was told that all up to {revision} has come, after {last:?}, and the newest is {newest:?}",
                    self.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch that was refused when it began, as what it asked for was trimmed, went on behind the gap also where nobody
    /// compacts.
    #[test]
    fn a_watch_is_behind_only_where_the_history_is_compacted() {
        let mut seen = Seen::new("a watch".to_owned());
        let oldest = Revision::new(7);
        let lost = seen.is_behind(oldest, false).expect_err("nobody compacts");
        assert!(lost.contains("has lost history that is kept"), "{lost}");
        assert_eq!(seen.next(), Revision::FIRST, "it is told the rest, too");
        seen.is_behind(oldest, true).expect("it is compacted");
        assert_eq!(seen.next(), oldest);
    }
}
