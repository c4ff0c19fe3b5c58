//! Changes of the database as wire events.

use bowline::{Change, ChangeKind, Changes, Entry};
use bowline_proto::mvccpb::event::EventType;
use bowline_proto::mvccpb::{Event, KeyValue};

use crate::convert::key_value;

/// The event of a change.
pub(super) fn event_of(change: &Change) -> Event {
    let kind = match change.kind {
        ChangeKind::Put => EventType::Put,
        ChangeKind::Delete => EventType::Delete,
    };
    let kv = match change.kind {
        ChangeKind::Put => key_value(change.entry.clone()),
        ChangeKind::Delete => KeyValue {
            key: change.entry.key.clone().into(),
            mod_revision: change.entry.mod_revision.get() as i64,
            ..KeyValue::default()
        },
    };
    Event {
        r#type: kind.into(),
        kv: Some(kv),
        prev_kv: change.previous.clone().map(key_value),
    }
}

/// The same event with the previous entry.
pub(super) fn with_previous(event: &Event, previous: Option<Entry>) -> Event {
    Event {
        prev_kv: previous.map(key_value),
        ..event.clone()
    }
}

/// The approximate size of a revision's changes in bytes.
pub(super) fn bytes_of(changes: &Changes) -> usize {
    let entry = |entry: &Entry| entry.key.len() + entry.value.len();
    let of = |change: &Change| entry(&change.entry) + change.previous.as_ref().map_or(0, entry);
    changes.changes.iter().map(of).sum()
}
