//! The events that one watcher of every key received, and the checks of their order and completeness.
//!
//! The events are applied to a state: revisions ascend, a key changes once per revision, and an event agrees with the
//! state before it, also in its previous entry. A progress notification says that everything up to a revision was
//! delivered: it is never older than what was delivered before, and no event of that or an older revision follows.
//!
//! Completeness is checked at the end: the state must be that of the members, every acknowledged change must have been
//! delivered, and all watchers must have received the same.

use std::collections::BTreeMap;

use bowline::Revision;
use bowline_client::{Entry, Event, EventKind};

/// What a key was made by each revision that changed it: its new value, or nothing.
pub(crate) type History = BTreeMap<Vec<u8>, BTreeMap<u64, Option<Vec<u8>>>>;

/// The state that follows from the events of a watcher.
#[derive(Default)]
pub(crate) struct Observed {
    pub(crate) name: String,
    /// Of the newest event.
    revision: u64,
    /// The revision of the newest progress notification.
    promised: u64,
    pub(crate) keys: BTreeMap<Vec<u8>, Entry>,
    pub(crate) history: History,
    pub(crate) events: u64,
    pub(crate) progress: u64,
    pub(crate) opened: u64,
}

impl Observed {
    pub(crate) fn new(name: String, revision: u64) -> Observed {
        Observed {
            name,
            revision,
            ..Observed::default()
        }
    }

    /// All up to it has come.
    pub(crate) fn seen(&self) -> u64 {
        self.revision.max(self.promised)
    }

    /// The events of one message.
    pub(crate) fn take(&mut self, events: Vec<Event>) {
        let mut at = 0;
        for event in events {
            let (name, revision) = (&self.name, event.revision().get());
            if revision != at {
                // A message has all of a revision.
                let (told, promised) = (self.revision, self.promised);
                assert!(
                    revision > told,
                    "{name} is told of revision {revision} after {told}"
                );
                assert!(
                    revision > promised,
                    "{name} is told of revision {revision}, and was told before that all up to {promised} had come"
                );
                (at, self.revision) = (revision, revision);
            }
            let key = event.entry.key.to_vec();
            let shown = String::from_utf8_lossy(&key).into_owned();
            let before = self.keys.get(&key);
            assert_eq!(
                event.previous.as_ref(),
                before,
                "{name}: what was before {shown} at {revision}"
            );
            let now = match event.kind {
                EventKind::Put => {
                    let version = before.map_or(0, |entry| entry.version) + 1;
                    let created = before.map_or(revision, |entry| entry.create_revision.get());
                    let is = (event.entry.version, event.entry.create_revision);
                    assert_eq!(
                        is,
                        (version, Revision::new(created)),
                        "{name}: {shown} at {revision}"
                    );
                    let value = event.entry.value.to_vec();
                    self.keys.insert(key.clone(), event.entry);
                    Some(value)
                }
                EventKind::Delete => {
                    assert!(
                        before.is_some(),
                        "{name}: {shown} goes at {revision}, and was not there"
                    );
                    self.keys.remove(&key);
                    None
                }
            };
            let twice = self.history.entry(key).or_default().insert(revision, now);
            assert!(twice.is_none(), "{name}: {shown} twice at {revision}");
            self.events += 1;
        }
    }

    /// It is told that everything up to a revision has come.
    pub(crate) fn progress(&mut self, revision: u64) {
        let (name, seen) = (&self.name, self.seen());
        assert!(
            revision >= seen,
            "{name} is told that all up to {revision} has come, after {seen}: progress goes back"
        );
        self.promised = revision;
        self.progress += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_proto::mvccpb;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn kv(key: &str, revision: i64, version: i64, created: i64) -> mvccpb::KeyValue {
        mvccpb::KeyValue {
            key: key.to_owned().into(),
            value: format!("{revision}").into(),
            mod_revision: revision,
            create_revision: created,
            version,
            ..mvccpb::KeyValue::default()
        }
    }

    fn put(kv: mvccpb::KeyValue, previous: Option<mvccpb::KeyValue>) -> Event {
        Event::from(mvccpb::Event {
            kv: Some(kv),
            prev_kv: previous,
            ..mvccpb::Event::default()
        })
    }

    fn told() -> Observed {
        let mut told = Observed::new("w".to_owned(), 1);
        told.take(vec![
            put(kv("a", 2, 1, 2), None),
            put(kv("b", 2, 1, 2), None),
        ]);
        told.progress(4);
        told
    }

    fn refused(change: impl FnOnce(&mut Observed)) -> String {
        let mut told = told();
        let panic = catch_unwind(AssertUnwindSafe(|| change(&mut told)));
        *panic.expect_err("it is refused").downcast().expect("text")
    }

    #[test]
    fn what_is_right_is_taken() {
        let mut told = told();
        assert_eq!((told.seen(), told.events, told.progress), (4, 2, 1));
        // 5 and 6 changed no key.
        told.take(vec![put(kv("a", 7, 2, 2), Some(kv("a", 2, 1, 2)))]);
        told.progress(7);
        assert_eq!(told.seen(), 7);
        assert_eq!(told.history[&b"a"[..]].len(), 2);
    }

    /// Planted: each way in which a watch can lie is refused, and for what it is.
    #[test]
    fn what_is_wrong_is_refused() {
        type Lie = fn(&mut Observed);
        let lies: [(&str, Lie); 7] = [
            ("progress goes back", |told| told.progress(3)),
            ("progress goes back", |told| {
                told.take(vec![put(kv("c", 9, 1, 9), None)]);
                told.progress(8);
            }),
            ("all up to 4 had come", |told| {
                told.take(vec![put(kv("c", 3, 1, 3), None)]);
            }),
            ("after 2", |told| {
                told.take(vec![put(kv("c", 2, 1, 2), None)]);
            }),
            ("twice at 5", |told| {
                let first = kv("a", 5, 2, 2);
                let once = put(first.clone(), Some(kv("a", 2, 1, 2)));
                let again = put(kv("a", 5, 3, 2), Some(first));
                told.take(vec![once, again]);
            }),
            ("what was before a at 6", |told| {
                told.take(vec![put(kv("a", 6, 3, 2), Some(kv("a", 5, 2, 2)))]);
            }),
            ("a at 6", |told| {
                told.take(vec![put(kv("a", 6, 3, 2), Some(kv("a", 2, 1, 2)))]);
            }),
        ];
        for (why, lie) in lies {
            let found = refused(lie);
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}
