//! Snapshots and watches that stay open while the database changes.

use std::collections::BTreeMap;
use std::ops::Bound;

use bowline::{ChangeKind, Error, Range, Revision, Snapshot, Watcher};
use bowline_testing::model::Entry;

use crate::case::Case;
use crate::support::plain_entry;

/// The changes of one revision: keys with what was put, or nothing for a delete.
type KeyChanges = Vec<(Vec<u8>, Option<Entry>)>;

/// A snapshot that must always show the same.
pub struct HeldSnapshot {
    pub snapshot: Snapshot,
}

/// A watch, and what it has not been told yet.
pub struct Watch {
    watcher: Watcher,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    with_previous: bool,
    /// The first revision it has not been told.
    next: Revision,
    /// The oldest revision when it started; from there on it holds history itself.
    oldest_at_start: Revision,
}

impl Watch {
    /// Starts a watch, or checks that it was refused rightly.
    pub fn start(
        case: &Case,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        from: Option<Revision>,
        with_previous: bool,
    ) -> Option<Watch> {
        let oldest = case.db.oldest_revision();
        let mut builder = case.db.watch(Range::from(bounds.clone()));
        if let Some(from) = from {
            builder = builder.from(from);
        }
        if with_previous {
            builder = builder.with_previous();
        }
        match builder.start() {
            Ok(watcher) => {
                let next = from.unwrap_or(case.model.revision() + 1);
                case.did(match from {
                    None => "watch from now",
                    Some(from) if from > case.model.revision() => "watch from the future",
                    Some(_) => "watch from the past",
                });
                assert!(
                    next >= oldest,
                    "a watch from {next} started, the oldest is {oldest}"
                );
                Some(Watch {
                    watcher,
                    bounds,
                    with_previous,
                    next,
                    oldest_at_start: oldest,
                })
            }
            Err(error) => {
                case.did("watch refused");
                case.check_refusal(&error, from.expect("now is never refused"), oldest);
                None
            }
        }
    }

    pub fn next(&self) -> Revision {
        self.next
    }

    /// Gives the watcher up and starts another where it was.
    pub fn resume(self, case: &Case) -> Option<Watch> {
        let next = self.watcher.next_revision();
        assert_eq!(next, self.next, "it has been told everything");
        drop(self.watcher);
        let watch = Watch::start(case, self.bounds, Some(next), self.with_previous)?;
        case.did("watch resumed");
        Some(watch)
    }

    /// Takes all there is, and compares it. `false` when it was rightly told that history is gone.
    pub fn catch_up(&mut self, case: &Case) -> bool {
        let Case { model, db, .. } = case;
        let mut expected: BTreeMap<Revision, KeyChanges> = BTreeMap::new();
        for key in keys_in(&self.bounds) {
            for (revision, entry) in model.history(&key) {
                if *revision >= self.next {
                    expected
                        .entry(*revision)
                        .or_default()
                        .push((key.clone(), entry.clone()));
                }
            }
        }
        for (revision, wanted) in expected {
            let changes = match self.watcher.try_recv() {
                Ok(Some(changes)) => changes,
                Ok(None) => panic!("the changes of {revision} are missing"),
                Err(Error::Compacted {
                    requested, oldest, ..
                }) => {
                    assert!(requested <= revision);
                    assert!(
                        requested < case.compacted,
                        "only `compact` takes from a watch"
                    );
                    assert_eq!(oldest, db.oldest_revision());
                    return false;
                }
                Err(error) => panic!("{error}"),
            };
            case.did("watch told");
            assert_eq!(changes.revision, revision);
            let found = changes.changes.iter().map(|change| {
                let entry = (change.kind == ChangeKind::Put).then(|| plain_entry(&change.entry));
                assert_eq!(change.entry.mod_revision, revision);
                (change.entry.key.to_vec(), entry)
            });
            let found: Vec<_> = found.collect();
            assert_eq!(found, wanted, "changes of {revision}");
            for change in &changes.changes {
                let before = model.get(&change.entry.key, revision - 1);
                match &change.previous {
                    Some(previous) => assert_eq!(Some(&plain_entry(previous)), before),
                    None => assert!(
                        !self.with_previous
                            || before.is_none()
                            || revision - 1 < self.oldest_at_start.max(case.compacted),
                        "no previous entry of {change:?}"
                    ),
                }
            }
            self.next = revision + 1;
        }
        match self.watcher.try_recv() {
            Ok(None) => {}
            Err(Error::Compacted {
                requested, oldest, ..
            }) => {
                assert!(
                    requested < case.compacted,
                    "only `compact` takes from a watch"
                );
                // What it had not looked at held nothing for it, but it cannot know that.
                assert_eq!(oldest, db.oldest_revision());
                return false;
            }
            other => panic!("{other:?} after all changes"),
        }
        self.next = self.next.max(model.revision() + 1);
        true
    }
}

/// All keys there are, within the bounds.
fn keys_in(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<Vec<u8>> {
    use std::ops::RangeBounds;
    let keys = (0..40).map(|number| format!("k{number:02}").into_bytes());
    keys.filter(|key| bounds.contains(key)).collect()
}
