//! A map with history: for each key, the list of its changes.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use bowline_types::Revision;

/// A map with history. A key's changes are in ascending order of revision, at most one each.
#[derive(Clone, Debug)]
pub(super) struct Versions<K, V> {
    changes: BTreeMap<K, Vec<(Revision, Option<V>)>>,
}

impl<K: Ord + Clone, V: Clone> Versions<K, V> {
    pub(super) fn new() -> Versions<K, V> {
        Versions {
            changes: BTreeMap::new(),
        }
    }

    /// Sets (or with `None` removes) the value of `key` at `revision`, which is the newest. Removing an
    /// absent key is no change.
    pub(super) fn set(&mut self, key: &K, revision: Revision, value: Option<V>) {
        self.undo(key, revision);
        if value.is_some() || self.get(key, revision).is_some() {
            self.changes
                .entry(key.clone())
                .or_default()
                .push((revision, value));
        }
    }

    /// Undoes the change of `key` at `revision`, which is the newest.
    pub(super) fn undo(&mut self, key: &K, revision: Revision) {
        if let Some(changes) = self.changes.get_mut(key) {
            changes.retain(|(at, _)| *at != revision);
            if changes.is_empty() {
                self.changes.remove(key);
            }
        }
    }

    pub(super) fn changed_at(&self, key: &K, revision: Revision) -> bool {
        self.history(key).iter().any(|(at, _)| *at == revision)
    }

    pub(super) fn get(&self, key: &K, revision: Revision) -> Option<&V> {
        let changes = self.changes.get(key)?;
        changes
            .iter()
            .rev()
            .find(|(at, _)| *at <= revision)?
            .1
            .as_ref()
    }

    pub(super) fn history(&self, key: &K) -> &[(Revision, Option<V>)] {
        self.changes.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn range(
        &self,
        range: impl RangeBounds<K>,
        revision: Revision,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.changes
            .range(range)
            .filter_map(move |(key, _)| Some((key, self.get(key, revision)?)))
    }
}
