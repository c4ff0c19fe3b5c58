//! [`OwnWatch`]: an internal watch, by which a service waits for changes of keys.
//!
//! It uses a shard and a queue as clients' watches do, so it costs no thread, and ends with them when the
//! server stops.

use std::future::poll_fn;
use std::sync::Arc;

use bowline::Revision;
use bowline_proto::mvccpb::Event;
use prost::Message;
use tonic::Status;

use super::Watches;
use super::index::Span;
use super::shard::Shard;
use super::state::{Key, StreamState, Wants};
use super::stream_queue::{StreamQueue, Taken};
use crate::status::Fault;

/// A watch of the server itself.
pub(crate) struct OwnWatch {
    shard: Arc<Shard>,
    queue: Arc<StreamQueue>,
    state: Arc<StreamState>,
    watches: Vec<Key>,
}

/// The watched kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Puts.
    Puts,
    /// Deletions.
    Deletions,
    /// Both.
    All,
}

/// Events of a watch.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The newest revision among the events.
    pub(crate) revision: Revision,
    /// The events in order.
    pub(crate) events: Vec<Event>,
}

impl OwnWatch {
    /// Watches keys, each with its `range_end`, from a revision on. An empty range never changes.
    pub(crate) fn start(
        watches: &Watches,
        keys: &[(&[u8], &[u8])],
        from: Revision,
        kinds: Kinds,
    ) -> OwnWatch {
        let (shard, queue) = watches.open(false, None);
        let state = shard.open(queue.clone());
        let wants = Wants {
            no_puts: kinds == Kinds::Deletions,
            no_deletions: kinds == Kinds::Puts,
            ..Wants::default()
        };
        let spans = keys.iter().filter_map(|(key, end)| Span::new(key, end));
        let watches = (0..).zip(spans).filter_map(|(id, span)| {
            // A failure comes as a message of the queue.
            shard.create(&state, id, span, from.get() as i64, wants)
        });
        OwnWatch {
            watches: watches.collect(),
            shard,
            queue,
            state,
        }
    }

    /// The next events. `None` when their history was trimmed meanwhile: the state has to be read again.
    pub(crate) async fn next(&mut self) -> Result<Option<Changes>, Status> {
        loop {
            let taken = poll_fn(|task| self.queue.poll(task)).await;
            let response = match taken {
                // Which of the watches receives it is no matter.
                Taken::Message(delivery, has_room) => {
                    if has_room {
                        self.shard.resume(&self.state);
                    }
                    delivery.message
                }
                Taken::End(status) => return Err(status.unwrap_or_else(|| Fault::Stopped.into())),
            };
            if response.canceled {
                return match response.compact_revision {
                    0 => Err(Fault::WatchCanceled.into()),
                    _ => Ok(None),
                };
            }
            if !response.events.is_empty() {
                let events = response.events.into_iter().map(Event::decode);
                return Ok(Some(Changes {
                    revision: response.header.map_or(Revision::ZERO, |header| {
                        Revision::new(header.revision as u64)
                    }),
                    events: events
                        .collect::<Result<_, _>>()
                        .map_err(|error| Status::internal(error.to_string()))?,
                }));
            }
        }
    }
}

impl Drop for OwnWatch {
    fn drop(&mut self) {
        self.shard.close(&self.state, self.watches.iter().copied());
    }
}
