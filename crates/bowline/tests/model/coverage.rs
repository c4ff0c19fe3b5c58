//! What the cases did, so that a step that never happens is noticed.

use std::collections::BTreeMap;
use std::fmt;

/// Everything that the cases of a test are to meet.
const EXPECTED: [&str; 67] = [
    "put",
    "put with a lease",
    "delete",
    "delete of what is absent",
    "delete range",
    "swap",
    "swap refused",
    "update",
    "update of a key with a lease",
    "update of nothing",
    "update that deletes",
    "update refused",
    "ingestion",
    "ingestion beside a commit",
    "ingestion beside a merge",
    "ingestion refused",
    "graph changed",
    "block deleted with its edges",
    "lease granted",
    "lease kept alive",
    "lease revoked",
    "lease not yet due",
    "lease expired",
    "keys gone with a lease",
    "flush",
    "merge",
    "history compacted",
    "compaction of history refused",
    "graph view built",
    "reopened",
    "reopened after a kill",
    "checkpoint opened",
    "leveled",
    "tiered",
    "lazy leveling",
    "everything compared",
    "point reads",
    "range forward",
    "range backward",
    "range from both ends",
    "range stopped at its limit",
    "range with a merge inside",
    "range of a held snapshot",
    "the past read",
    "the past refused: compacted",
    "the past refused: in the future",
    "history of a key",
    "neighbors out",
    "neighbors in",
    "neighbors both",
    "snapshot held",
    "held snapshot read",
    "watch from now",
    "watch from the past",
    "watch from the future",
    "watch refused",
    "watch told",
    "watch resumed",
    "transaction serializable",
    "transaction snapshot",
    "transaction committed",
    "transaction rolled back",
    "transaction in conflict",
    "transaction with a failed comparison",
    "transaction deletes a range",
    "transaction sees its own writes",
    "transaction after a merge",
];

/// Counts by name.
#[derive(Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn did(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Coverage) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = EXPECTED.iter().filter(|what| !self.0.contains_key(**what));
        missing.copied().collect()
    }

    /// What happened and is not expected: a name that was changed in one place only.
    pub fn unexpected(&self) -> Vec<&'static str> {
        let known = |what: &&&'static str| !EXPECTED.contains(*what);
        self.0.keys().filter(known).copied().collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self
            .0
            .iter()
            .map(|(what, n)| format!("{what} {n}"))
            .collect();
        write!(f, "{}", counts.join(", "))
    }
}
