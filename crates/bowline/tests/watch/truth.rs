//! The commits as their writers saw them: each revision with its changes.
//!
//! Writers note the outcome of each commit. Only the end of a lease gives no revision; leases end
//! one after the other, so the revisions that nobody else was told are theirs, in that order.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bowline::{ChangeKind, Changes, Entry, LeaseId, Range, Revision, Value};

/// One change as a writer asked for it: a value and a lease, or a deletion.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub key: Vec<u8>,
    pub put: Option<(Vec<u8>, Option<LeaseId>)>,
}

impl Wanted {
    pub fn put(key: &[u8], value: &[u8], lease: Option<LeaseId>) -> Wanted {
        Wanted {
            key: key.to_vec(),
            put: Some((value.to_vec(), lease)),
        }
    }

    pub fn delete(key: &[u8]) -> Wanted {
        Wanted {
            key: key.to_vec(),
            put: None,
        }
    }
}

/// What the writers note while they run.
#[derive(Debug, Default)]
pub struct Notes {
    told: BTreeMap<Revision, Vec<Wanted>>,
    /// The keys that each lease took with it, in the order in which leases ended.
    ended: Vec<Vec<Wanted>>,
}

impl Notes {
    /// A commit was acknowledged with this revision.
    pub fn told(&mut self, revision: Revision, changes: Vec<Wanted>) {
        let before = self.told.insert(revision, changes);
        assert!(before.is_none(), "revision {revision} was given out twice");
    }

    /// A lease with these keys is over.
    pub fn lease_ended(&mut self, keys: &BTreeSet<Vec<u8>>) {
        if !keys.is_empty() {
            self.ended
                .push(keys.iter().map(|key| Wanted::delete(key)).collect());
        }
    }

    /// The whole truth up to `newest`.
    pub fn resolve(&self, newest: Revision) -> Truth {
        let mut ended = self.ended.iter();
        let mut entries: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        let mut revisions = BTreeMap::new();
        for revision in (2..=newest.get()).map(Revision::new) {
            let wanted = self.told.get(&revision).or_else(|| ended.next());
            let wanted = wanted.unwrap_or_else(|| panic!("nobody was told revision {revision}"));
            let mut changes = BTreeMap::new();
            for change in wanted {
                let before = entries.get(&change.key).cloned();
                let after = change.put.as_ref().map(|(value, lease)| Entry {
                    key: Value::copy_from(&change.key),
                    value: Value::copy_from(value),
                    create_revision: before.as_ref().map_or(revision, |e| e.create_revision),
                    mod_revision: revision,
                    version: before.as_ref().map_or(1, |e| e.version + 1),
                    lease: *lease,
                });
                match &after {
                    Some(entry) => entries.insert(change.key.clone(), entry.clone()),
                    None => entries.remove(&change.key),
                };
                changes.insert(change.key.clone(), Expected { before, after });
            }
            revisions.insert(revision, changes);
        }
        assert!(
            ended.next().is_none() && self.told.keys().next_back() <= Some(&newest),
            "more was acknowledged than the newest revision, {newest}, says"
        );
        Truth { revisions }
    }
}

/// A key's entry before and after a revision that changed it.
#[derive(Debug)]
pub struct Expected {
    before: Option<Entry>,
    after: Option<Entry>,
}

/// Every change of every revision.
#[derive(Debug)]
pub struct Truth {
    revisions: BTreeMap<Revision, BTreeMap<Vec<u8>, Expected>>,
}

/// What a watcher was given for one revision, small enough to keep all of it.
#[derive(Debug)]
pub struct Seen {
    pub revision: Revision,
    changes: u64,
    previous: Previous,
}

#[derive(Debug)]
enum Previous {
    NotAsked,
    /// All of them.
    Digest(u64),
    /// History before the revision had been trimmed: some may be missing, none may be wrong.
    Partial(Vec<(Value, Option<Entry>)>),
}

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn fields(entry: &Entry) -> impl Hash + '_ {
    (
        &entry.key[..],
        &entry.value[..],
        (entry.create_revision, entry.mod_revision),
        (entry.version, entry.lease),
    )
}

impl Seen {
    /// Judges what can be judged at once, and keeps the rest for later. `floor` is the oldest
    /// readable revision, asked after the changes were taken.
    pub fn new(changes: &Changes, range: &Range, with_previous: bool, floor: Revision) -> Seen {
        let revision = changes.revision;
        assert!(!changes.changes.is_empty(), "revision {revision} is empty");
        for pair in changes.changes.windows(2) {
            assert!(
                pair[0].entry.key < pair[1].entry.key,
                "revision {revision} is not in the order of its keys: {changes:?}"
            );
        }
        for change in &changes.changes {
            assert!(range.contains(&change.entry.key), "{range:?}: {change:?}");
            assert!(with_previous || change.previous.is_none(), "{change:?}");
        }
        let all = &changes.changes;
        let digests: Vec<_> = all
            .iter()
            .map(|change| digest((change.kind == ChangeKind::Put, fields(&change.entry))))
            .collect();
        let previous = if !with_previous {
            Previous::NotAsked
        } else if floor < revision {
            let previous = all.iter().map(|change| change.previous.as_ref());
            Previous::Digest(digest_of_previous(previous))
        } else {
            let some = all
                .iter()
                .map(|change| (change.entry.key.clone(), change.previous.clone()));
            Previous::Partial(some.collect())
        };
        Seen {
            revision,
            changes: digest(digests),
            previous,
        }
    }
}

fn digest_of_previous<'a>(previous: impl Iterator<Item = Option<&'a Entry>>) -> u64 {
    let digests: Vec<_> = previous
        .map(|entry| entry.map_or(0, |entry| digest(fields(entry))))
        .collect();
    digest(digests)
}

impl Truth {
    /// Whether a watcher of `range` saw all of `from..to`: each change once, each revision whole.
    /// Gives how many changes that were.
    pub fn judge(
        &self,
        range: &Range,
        from: Revision,
        to: Revision,
        seen: &[Seen],
    ) -> Result<u64, String> {
        let mut seen = seen.iter();
        let mut count = 0;
        for (revision, all) in self.revisions.range(from..to.max(from)) {
            let inside: Vec<_> = all.iter().filter(|(key, _)| range.contains(key)).collect();
            if inside.is_empty() {
                continue;
            }
            let wrong = |what: &str| Err(format!("{what}; revision {revision} is {inside:?}"));
            let Some(found) = seen.next() else {
                return wrong("nothing more was seen");
            };
            if found.revision != *revision {
                return wrong(&format!("{} was seen instead", found.revision));
            }
            let digests: Vec<_> = inside
                .iter()
                .map(|(key, expected)| {
                    let deletion = Entry {
                        key: Value::copy_from(key),
                        value: Value::default(),
                        create_revision: Revision::ZERO,
                        mod_revision: *revision,
                        version: 0,
                        lease: None,
                    };
                    let entry = expected.after.as_ref().unwrap_or(&deletion);
                    digest((expected.after.is_some(), fields(entry)))
                })
                .collect();
            if found.changes != digest(digests) {
                return wrong("something else was seen");
            }
            match &found.previous {
                Previous::NotAsked => {}
                Previous::Digest(previous) => {
                    let expected = inside.iter().map(|(_, expected)| expected.before.as_ref());
                    if *previous != digest_of_previous(expected) {
                        return wrong("other previous entries were seen");
                    }
                }
                Previous::Partial(some) => {
                    for (key, previous) in some {
                        if previous.is_some() && *previous != all[&key[..]].before {
                            return wrong(&format!("a false previous entry: {previous:?}"));
                        }
                    }
                }
            }
            count += inside.len() as u64;
        }
        match seen.next() {
            Some(more) => Err(format!("{} was seen beyond all there is", more.revision)),
            None => Ok(count),
        }
    }

    /// How many changes there were in all.
    pub fn changes(&self) -> usize {
        self.revisions.values().map(BTreeMap::len).sum()
    }

    /// The most changes that one revision has.
    pub fn widest(&self) -> usize {
        self.revisions
            .values()
            .map(BTreeMap::len)
            .max()
            .unwrap_or(0)
    }
}
