//! Retention: which versions of a key must be kept, because a reader may still ask for them.
//!
//! A reader reads at a pinned snapshot, or at any revision from the history floor on. For a key's
//! versions, newest first:
//!
//! ```text
//!  revision   9    7    6    4    2        floor = 6, snapshots = {3}
//!            keep keep keep drop keep
//!             |    |    |    |    '- the newest not above snapshot 3
//!             |    |    |    '- no reader sees it: floor readers see 6, snapshot 3 sees 2
//!             |    |    '- the newest not above the floor
//!             '----'- above the floor
//! ```
//!
//! A tombstone that is the newest version below the floor *and* older than every snapshot means "absent".
//! So does a missing entry. So the tombstone is dropped where no older version of the key exists below.
//! A tombstone *at* the floor is kept, for a watch that starts there.
//!
//! Conflict detection asks whether a key has changed since some revision. It needs the tombstones from
//! that revision on, regardless of readers: with [`Retention::tombstones`] they stay. Then the newest
//! version of a key is never dropped, so the change can always be detected.

use std::collections::BTreeMap;

use crate::{EntryKind, Revision, TreeId};

/// Which versions must be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Every revision from here on may be read.
    pub floor: Revision,
    /// Pinned snapshots, ascending.
    pub snapshots: Vec<Revision>,
    /// Every tombstone from here on is kept if it is the newest version of its key, even if no reader needs
    /// it.
    pub tombstones: Option<Revision>,
    /// Trees of which one more snapshot is kept, at this revision.
    pub held: BTreeMap<TreeId, Revision>,
}

impl Retention {
    /// What must be kept of one tree.
    #[must_use]
    pub fn of(&self, tree: TreeId) -> Retention {
        let mut own = self.clone();
        if let Some(revision) = own.held.remove(&tree)
            && let Err(place) = own.snapshots.binary_search(&revision)
        {
            own.snapshots.insert(place, revision);
        }
        own.held.clear();
        own
    }

    fn oldest_reader(&self) -> Revision {
        self.snapshots
            .first()
            .copied()
            .unwrap_or(Revision::MAX)
            .min(self.floor)
    }

    /// Whether a reader exists that sees a version with revision `version` although the next
    /// newer version of its key has revision `newer`.
    fn is_visible(&self, version: Revision, newer: Revision) -> bool {
        // Readers at r with version <= r < newer.
        if newer > self.floor {
            return true;
        }
        let at = self
            .snapshots
            .partition_point(|snapshot| *snapshot < version);
        self.snapshots
            .get(at)
            .is_some_and(|snapshot| *snapshot < newer)
    }
}

/// Decides version by version, in key order, newest first.
#[derive(Debug)]
pub(crate) struct KeyFilter<'a> {
    retention: &'a Retention,
    newer: Option<Revision>,
}

impl<'a> KeyFilter<'a> {
    /// A filter for one pass.
    #[must_use]
    pub fn new(retention: &'a Retention) -> KeyFilter<'a> {
        KeyFilter {
            retention,
            newer: None,
        }
    }

    /// The next versions belong to another key.
    pub fn next_key(&mut self) {
        self.newer = None;
    }

    /// Whether to keep the key's next version. `bottom`: nothing older of this key exists below
    /// the inputs.
    pub fn keep(&mut self, revision: Revision, kind: EntryKind, bottom: bool) -> bool {
        let newer = self.newer.replace(revision);
        let seen = newer.is_none_or(|newer| self.retention.is_visible(revision, newer));
        let says_nothing =
            kind == EntryKind::Delete && bottom && revision < self.retention.oldest_reader();
        let is_held = self
            .retention
            .tombstones
            .is_some_and(|from| revision >= from);
        seen && (!says_nothing || is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(retention: &Retention, versions: &[(Revision, EntryKind)], bottom: bool) -> Vec<u64> {
        let mut filter = KeyFilter::new(retention);
        let keep = versions
            .iter()
            .filter(|(revision, kind)| filter.keep(*revision, *kind, bottom));
        keep.map(|(revision, _)| *revision).collect()
    }

    const PUT: EntryKind = EntryKind::Put;
    const DELETE: EntryKind = EntryKind::Delete;

    #[test]
    fn a_tree_that_holds_a_revision_keeps_it_as_a_snapshot() {
        let retention = Retention {
            floor: 9,
            snapshots: vec![2, 7],
            held: BTreeMap::from([(TreeId(1), 4), (TreeId(2), 7)]),
            ..Retention::default()
        };
        let snapshots = |tree| retention.of(TreeId(tree)).snapshots;
        assert_eq!(snapshots(0), [2, 7]);
        assert_eq!(snapshots(1), [2, 4, 7]);
        assert_eq!(snapshots(2), [2, 7]);
    }

    #[test]
    fn the_drawing_above_is_true() {
        let retention = Retention {
            floor: 6,
            snapshots: vec![3],
            ..Retention::default()
        };
        let versions = [(9, PUT), (7, PUT), (6, PUT), (4, PUT), (2, PUT)];
        assert_eq!(kept(&retention, &versions, true), [9, 7, 6, 2]);
    }

    #[test]
    fn tombstones_go_only_at_the_bottom_and_below_every_reader() {
        let versions = [(5, DELETE), (3, PUT)];
        let at = |floor, snapshots: &[u64], bottom| {
            kept(
                &Retention {
                    floor,
                    snapshots: snapshots.to_vec(),
                    ..Retention::default()
                },
                &versions,
                bottom,
            )
        };
        assert_eq!(at(9, &[], true), [0u64; 0]);
        assert_eq!(at(9, &[], false), [5]);
        assert_eq!(at(5, &[], true), [5], "a watch may start at the floor");
        assert_eq!(at(9, &[4], true), [5, 3]);
        assert_eq!(
            at(9, &[2], true),
            [5],
            "a snapshot below both keeps the tombstone"
        );
        assert_eq!(at(4, &[], true), [5, 3]);
    }

    /// Against the definition: every reader gets the same answer before and after.
    #[test]
    fn no_reader_can_tell() {
        for seed in crate::seeds(7..8) {
            let mut rng = fastrand::Rng::with_seed(seed);
            for _ in 0..20_000 {
                let mut snapshots: Vec<u64> = (0..rng.usize(..4)).map(|_| rng.u64(1..12)).collect();
                snapshots.sort_unstable();
                let retention = Retention {
                    floor: rng.u64(0..12),
                    snapshots,
                    tombstones: rng.bool().then(|| rng.u64(0..12)),
                    ..Retention::default()
                };
                let mut versions = Vec::new();
                for revision in (1..12).rev() {
                    if rng.bool() {
                        versions.push((revision, if rng.bool() { PUT } else { DELETE }));
                    }
                }
                let bottom = rng.bool();
                let mut filter = KeyFilter::new(&retention);
                let after: Vec<_> = versions
                    .iter()
                    .filter(|(r, k)| filter.keep(*r, *k, bottom))
                    .copied()
                    .collect();
                let read = |versions: &[(u64, EntryKind)], at: u64| {
                    versions.iter().find(|(r, _)| *r <= at).copied()
                };
                let readers = (retention.floor..12).chain(retention.snapshots.iter().copied());
                for at in readers {
                    let (before, now) = (read(&versions, at), read(&after, at));
                    let same = before == now
                        || (bottom
                            && now.is_none()
                            && before.is_none_or(|(_, kind)| kind == DELETE));
                    assert!(same, "{retention:?} {versions:?} -> {after:?} at {at}");
                }
                // The change of the key is still detected.
                let newest = |versions: &[(u64, EntryKind)]| versions.first().map(|(r, _)| *r);
                if let Some(from) = retention.tombstones
                    && newest(&versions).is_some_and(|newest| newest >= from)
                {
                    let (before, now) = (newest(&versions), newest(&after));
                    assert_eq!(before, now, "{retention:?} {versions:?} -> {after:?}");
                }
            }
        }
    }
}
