//! How frequent each kind of blocks and edges is, from the first records of a tree: what plans of queries rest on.

use bowline_core::graph::KindId;

/// So many records at the start of a tree tell how frequent each kind is.
pub(super) const SAMPLE: u64 = 512;

/// How frequent each kind is among the first records of a tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Ascending by kind.
    counts: Vec<(KindId, u64)>,
    pub(super) looked_at: u64,
    /// About how many records there are.
    pub(super) all: u64,
}

impl Sample {
    /// Counts a record of these kinds.
    pub(super) fn note(&mut self, kinds: impl IntoIterator<Item = KindId>) {
        for kind in kinds {
            match self.counts.binary_search_by_key(&kind, |(held, _)| *held) {
                Ok(at) => self.counts[at].1 += 1,
                Err(at) => self.counts.insert(at, (kind, 1)),
            }
        }
        self.looked_at += 1;
    }

    /// About how many records are of a kind. One that was not met is rare, and is not absent.
    pub(super) fn count(&self, kind: KindId) -> u64 {
        let found = self.counts.binary_search_by_key(&kind, |(held, _)| *held);
        let met = found.map_or(0, |at| self.counts[at].1);
        if self.all <= self.looked_at {
            return met;
        }
        let of_all =
            u128::from(met.max(1)) * u128::from(self.all) / u128::from(self.looked_at.max(1));
        u64::try_from(of_all).unwrap_or(u64::MAX)
    }
}
