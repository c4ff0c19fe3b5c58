//! [`Subscription`]: the state of one watch, and its transitions by messages of the server. No input or
//! output.

use bowline_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use bowline_proto::mvccpb;
use bowline_types::Revision;

use super::{Batch, Event};
use crate::Error;
use crate::reply::unsigned;

/// One watch.
#[derive(Debug)]
pub(super) struct Subscription {
    request: WatchCreateRequest,
    /// The first revision that is not delivered; 0 until a server said where "now" is.
    next: i64,
    /// Events below were delivered before this creation.
    floor: i64,
    /// The beginning of a message that comes in several parts.
    parts: Vec<mvccpb::Event>,
    /// Whether progress was asked for by hand.
    pub(super) wants_progress: bool,
}

/// Where a subscription was before a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    next: i64,
    wants_progress: bool,
}

/// What to do after a message.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// The watch has begun.
    Begun,
    /// Give this to the watcher.
    Deliver {
        /// This.
        batch: Batch,
        /// For [`Subscription::rewind`], if it cannot be given.
        before: Place,
    },
    /// Create the watch again at another endpoint: this one gave it up for a reason of its own.
    Leave(Error),
    /// Give this to the watcher, and end.
    End(Error),
}

impl Subscription {
    pub(super) fn new(request: WatchCreateRequest) -> Subscription {
        Subscription {
            next: request.start_revision,
            floor: 0,
            parts: Vec::new(),
            wants_progress: false,
            request,
        }
    }

    /// The first revision that is not delivered; 0 if it is not known where the watch begins.
    pub(super) fn next_revision(&self) -> Revision {
        Revision::new(unsigned(self.next))
    }

    /// The message that creates the watch, where it was.
    pub(super) fn create(&mut self, watch_id: i64) -> WatchCreateRequest {
        self.parts.clear();
        self.floor = self.next;
        WatchCreateRequest {
            start_revision: self.next,
            watch_id,
            ..self.request.clone()
        }
    }

    /// Takes back what was to be delivered: the watch is to be created again from there.
    pub(super) fn rewind(&mut self, before: Place) {
        self.next = before.next;
        self.wants_progress = before.wants_progress;
    }

    fn place(&self) -> Place {
        Place {
            next: self.next,
            wants_progress: self.wants_progress,
        }
    }

    /// A message for this watch.
    pub(super) fn receive(&mut self, message: WatchResponse) -> Step {
        let revision = message.header.map_or(0, |header| header.revision);
        if message.canceled {
            return self.canceled(message);
        }
        if message.created {
            if self.next == 0 {
                // "Now" is what the server says it is. If the stream breaks before the first change,
                // the changes from here on are still due.
                self.next = revision.saturating_add(1);
                self.floor = self.next;
            }
            return Step::Begun;
        }
        if message.events.is_empty() && !message.fragment && self.parts.is_empty() {
            return self.progress(revision);
        }
        self.parts.extend(message.events);
        if message.fragment {
            return Step::Nothing;
        }
        self.deliver()
    }

    fn deliver(&mut self) -> Step {
        let before = self.place();
        let mut events: Vec<Event> = Vec::with_capacity(self.parts.len());
        for event in self.parts.drain(..) {
            let event = Event::from(event);
            let revision = i64::try_from(event.revision().get()).unwrap_or(i64::MAX);
            if revision < self.floor {
                // From before the watch was created again.
                continue;
            }
            // The last revision may go on; what is below it is out of order.
            if revision < self.next.saturating_sub(1) {
                let message = format!(
                    "a change of revision {revision} came after those of revision {}",
                    self.next - 1
                );
                return Step::End(Error::InvalidReply { message });
            }
            self.next = revision.saturating_add(1);
            events.push(event);
        }
        match events.last() {
            Some(last) => Step::Deliver {
                batch: Batch {
                    revision: last.revision(),
                    events,
                },
                before,
            },
            None => Step::Nothing,
        }
    }

    /// Every event up to `revision` has been sent.
    fn progress(&mut self, revision: i64) -> Step {
        if revision < self.next.saturating_sub(1) {
            // A member behind the one before it, or a watch from the future.
            return Step::Nothing;
        }
        self.next = self.next.max(revision.saturating_add(1));
        self.tell_progress(revision)
    }

    /// Every event up to `revision` has been sent for all watches of the stream. Not taken as the place to
    /// resume from: servers have sent it ahead of events.
    pub(super) fn stream_progress(&mut self, revision: i64) -> Step {
        if self.wants_progress && revision >= self.next.saturating_sub(1) {
            return self.tell_progress(revision);
        }
        Step::Nothing
    }

    fn tell_progress(&mut self, revision: i64) -> Step {
        if !(self.request.progress_notify || self.wants_progress) {
            return Step::Nothing;
        }
        let before = self.place();
        self.wants_progress = false;
        Step::Deliver {
            batch: Batch {
                revision: Revision::new(unsigned(revision)),
                events: Vec::new(),
            },
            before,
        }
    }

    fn canceled(&mut self, message: WatchResponse) -> Step {
        if message.compact_revision != 0 {
            return Step::End(Error::Compacted {
                compact_revision: Some(Revision::new(unsigned(message.compact_revision))),
            });
        }
        let reason = message.cancel_reason;
        match Error::of_text(tonic::Code::Cancelled, &reason) {
            error if error.is_of_endpoint() => Step::Leave(error),
            Error::Other { .. } => Step::End(Error::WatchCanceled { reason }),
            error => Step::End(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_proto::etcdserverpb::ResponseHeader;

    use super::*;

    fn header(revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            revision,
            ..ResponseHeader::default()
        })
    }

    fn created(revision: i64) -> WatchResponse {
        WatchResponse {
            header: header(revision),
            created: true,
            ..WatchResponse::default()
        }
    }

    fn events(revisions: &[i64]) -> WatchResponse {
        let event = |revision: &i64| mvccpb::Event {
            kv: Some(mvccpb::KeyValue {
                key: "k".into(),
                mod_revision: *revision,
                ..mvccpb::KeyValue::default()
            }),
            ..mvccpb::Event::default()
        };
        WatchResponse {
            header: header(*revisions.last().unwrap()),
            events: revisions.iter().map(event).collect(),
            ..WatchResponse::default()
        }
    }

    fn part(revisions: &[i64]) -> WatchResponse {
        WatchResponse {
            fragment: true,
            ..events(revisions)
        }
    }

    fn progress(revision: i64) -> WatchResponse {
        WatchResponse {
            header: header(revision),
            ..WatchResponse::default()
        }
    }

    /// The revisions that a step delivers.
    fn delivered(step: &Step) -> Vec<u64> {
        match step {
            Step::Deliver { batch, .. } => {
                let events = batch.events.iter();
                events.map(|event| event.revision().get()).collect()
            }
            Step::Nothing => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    fn subscription(start_revision: i64) -> Subscription {
        let mut subscription = Subscription::new(WatchCreateRequest {
            start_revision,
            ..WatchCreateRequest::default()
        });
        subscription.create(1);
        subscription
    }

    #[test]
    fn now_is_remembered_before_the_first_change() {
        let mut watch = subscription(0);
        assert!(matches!(watch.receive(created(7)), Step::Begun));
        // Broken before any change: what happened meanwhile is due.
        assert_eq!(watch.create(2).start_revision, 8);
        assert!(matches!(watch.receive(created(20)), Step::Begun));
        assert_eq!(delivered(&watch.receive(events(&[8, 9]))), [8, 9]);
    }

    #[test]
    fn a_watch_resumes_after_the_last_delivered_and_drops_what_comes_again() {
        let mut watch = subscription(3);
        assert_eq!(delivered(&watch.receive(events(&[3, 3, 5]))), [3, 3, 5]);
        assert_eq!(watch.create(2).start_revision, 6);
        assert_eq!(delivered(&watch.receive(events(&[4, 5, 5, 6]))), [6]);
        assert_eq!(delivered(&watch.receive(events(&[2]))), []);
        assert_eq!(watch.next_revision(), 7);
    }

    #[test]
    fn parts_are_delivered_together_or_not_at_all() {
        let mut watch = subscription(3);
        assert_eq!(delivered(&watch.receive(part(&[3, 3]))), []);
        // Broken in the middle: the whole revision comes again.
        assert_eq!(watch.create(2).start_revision, 3);
        assert_eq!(delivered(&watch.receive(part(&[3, 3]))), []);
        assert_eq!(delivered(&watch.receive(part(&[3]))), []);
        assert_eq!(delivered(&watch.receive(events(&[3]))), [3, 3, 3, 3]);
    }

    #[test]
    fn what_found_no_room_comes_again() {
        let mut watch = subscription(3);
        watch.receive(events(&[3]));
        let Step::Deliver { before, .. } = watch.receive(events(&[4, 6])) else {
            panic!()
        };
        watch.rewind(before);
        assert_eq!(watch.create(2).start_revision, 4);
        assert_eq!(delivered(&watch.receive(events(&[4, 6]))), [4, 6]);
    }

    #[test]
    fn changes_out_of_order_are_an_error() {
        let mut watch = subscription(3);
        watch.receive(events(&[3, 4, 9]));
        assert_eq!(delivered(&watch.receive(events(&[9]))), [9]);
        let step = watch.receive(events(&[8]));
        assert!(
            matches!(step, Step::End(Error::InvalidReply { .. })),
            "{step:?}"
        );
    }

    #[test]
    fn progress_moves_the_place_to_resume_from_and_is_told_only_if_asked_for() {
        let mut watch = subscription(3);
        assert!(matches!(watch.receive(progress(50)), Step::Nothing));
        assert_eq!(watch.next_revision(), 51);
        // A member that is behind.
        assert!(matches!(watch.receive(progress(40)), Step::Nothing));
        assert_eq!(watch.next_revision(), 51);

        watch.wants_progress = true;
        let step = watch.stream_progress(60);
        assert!(
            matches!(step, Step::Deliver { batch, .. } if batch.revision == 60 && batch.is_progress())
        );
        assert_eq!(watch.next_revision(), 51);
        assert!(matches!(watch.stream_progress(61), Step::Nothing));
    }

    #[test]
    fn reasons_to_cancel_are_told_apart() {
        let cancel = |reason: &str, compact_revision| WatchResponse {
            canceled: true,
            cancel_reason: reason.to_owned(),
            compact_revision,
            ..WatchResponse::default()
        };
        let step = subscription(3).receive(cancel("", 9));
        let compacted = Error::Compacted {
            compact_revision: Some(Revision::new(9)),
        };
        assert!(matches!(step, Step::End(error) if error.to_string() == compacted.to_string()));
        let step = subscription(3).receive(cancel("etcdserver: permission denied", 0));
        assert!(matches!(step, Step::End(Error::PermissionDenied)));
        let step = subscription(3).receive(cancel("etcdserver: no leader", 0));
        assert!(matches!(step, Step::Leave(Error::NoLeader)));
        let step = subscription(3).receive(cancel("because", 0));
        assert!(matches!(step, Step::End(Error::WatchCanceled { reason }) if reason == "because"));
    }
}
