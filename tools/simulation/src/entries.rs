//! Which entries members have applied: of an index all of them the same.

use std::collections::BTreeMap;

use crate::trace::name;

/// The leader that proposed an entry: its term and its id. A term may have several, one after the other.
pub(crate) type Proposer = (u64, u64);

/// The entries that members have applied.
#[derive(Default)]
pub(crate) struct Entries {
    /// Behind its index: the member that was seen first with it, and its proposer as that one says.
    applied: BTreeMap<u64, (usize, Proposer)>,
}

impl Entries {
    /// One past the index of the newest that was seen.
    pub(crate) fn newest(&self) -> u64 {
        self.applied.last_key_value().map_or(0, |(next, _)| *next)
    }

    /// Notes the last entry that a member has applied, and gives what is wrong with it.
    pub(crate) fn note(
        &mut self,
        next: u64,
        member: usize,
        proposer: Proposer,
    ) -> Result<(), String> {
        let (first, known) = *self.applied.entry(next).or_insert((member, proposer));
        if known == proposer {
            return Ok(());
        }
        let (a, b) = (name(first), name(member));
        let of = |(term, id): Proposer| format!("{id:016x} in term {term}");
        Err(format!(
            "{a} and {b} have applied other entries at {next}, of the leaders {} and {}",
            of(known),
            of(proposer)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the terms of entries were compared. A term has several leaders when a candidate with a greater id supersedes the
    /// first, and an entry of the one passed for the entry of the other.
    #[test]
    fn two_leaders_of_one_term_are_two_entries() {
        let mut entries = Entries::default();
        entries.note(9, 0, (3, 5)).expect("it is the first");
        entries.note(10, 0, (3, 5)).expect("it is the first");
        entries.note(10, 1, (3, 5)).expect("it is the same");
        let differs = entries.note(10, 2, (3, 9)).expect_err("another leader");
        assert!(differs.contains("applied other entries at 10"), "{differs}");
        entries.note(10, 2, (4, 5)).expect_err("another term");
        entries.note(11, 2, (3, 9)).expect("it is the first");
        assert_eq!(entries.newest(), 11);
    }
}
