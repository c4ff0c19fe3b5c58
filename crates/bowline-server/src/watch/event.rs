//! Changes of the database as events of the wire.

use bowline::{Change, ChangeKind, Changes, Entry};
use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::event::EventType;
use bowline_proto::mvccpb::{Event, KeyValue};

use crate::convert::key_value;

/// About how much memory an event takes besides its key and value.
const EVENT_BYTES: usize = 64;

/// The event of a change. Its clones share key and value.
pub(super) fn event_of(change: &Change) -> Event {
    let kind = match change.kind {
        ChangeKind::Put => EventType::Put,
        ChangeKind::Delete => EventType::Delete,
    };
    let kv = match change.kind {
        ChangeKind::Put => key_value(change.entry.clone()),
        ChangeKind::Delete => KeyValue {
            key: change.entry.key.clone().into(),
            mod_revision: change.entry.mod_revision as i64,
            ..KeyValue::default()
        },
    };
    Event {
        r#type: kind.into(),
        kv: Some(kv),
        prev_kv: change.previous.clone().map(key_value),
    }
}

/// The same event, with what was there before.
pub(super) fn with_previous(event: &Event, previous: Option<Entry>) -> Event {
    Event {
        prev_kv: previous.map(key_value),
        ..event.clone()
    }
}

/// About how many bytes an event takes.
pub(super) fn size_of(event: &Event) -> usize {
    let of = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.key.len() + kv.value.len());
    of(&event.kv) + of(&event.prev_kv) + EVENT_BYTES
}

/// About how many bytes the changes of a revision take.
pub(super) fn bytes_of(changes: &Changes) -> usize {
    let entry = |entry: &Entry| entry.key.len() + entry.value.len();
    let of = |change: &Change| entry(&change.entry) + change.previous.as_ref().map_or(0, entry);
    changes.changes.iter().map(of).sum()
}

/// A message to a watch.
pub(super) fn response(watch_id: i64, revision: u64, events: Vec<Event>) -> pb::WatchResponse {
    pb::WatchResponse {
        header: Some(pb::ResponseHeader {
            revision: revision as i64,
            ..pb::ResponseHeader::default()
        }),
        watch_id,
        events,
        ..pb::WatchResponse::default()
    }
}
