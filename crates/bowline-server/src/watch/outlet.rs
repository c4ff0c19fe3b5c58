//! What waits for a client: a bounded queue in order.
//!
//! The producers are the threads of a shard; the consumer is the connection, which polls. Events are
//! refused when the queue is full; the few other messages are not.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bowline_proto::etcdserverpb::WatchResponse;
use parking_lot::Mutex;
use tonic::Status;

/// Events of one watch are joined into messages of up to this size while they wait.
const JOINED_MAX_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Outlet {
    queue: Mutex<Queue>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    /// Of the connection, when it waits for a message.
    waker: Option<Waker>,
    /// Whether a producer is about to wake it.
    is_waking: bool,
    /// Whether somebody wants to be told that there is room.
    wants_room: bool,
    /// How the stream ends, after what is in the queue.
    end: Option<Status>,
    has_ended: bool,
}

#[derive(Debug)]
struct Message {
    response: WatchResponse,
    bytes: usize,
    /// Whether more events of the same watch may be added.
    is_open: bool,
}

/// What became of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// It is in the queue.
    Taken,
    /// It is in the queue, and the connection waits: [`Outlet::wake`] it when all is in.
    TakenFirst,
    /// There is no room.
    Full,
}

/// What the connection gets.
#[derive(Debug)]
pub(super) enum Taken {
    /// A message; and whether somebody waits for the room it leaves.
    Message(WatchResponse, bool),
    /// The end.
    End(Option<Status>),
}

impl Outlet {
    pub(super) fn new(bytes_max: usize) -> Outlet {
        Outlet {
            queue: Mutex::new(Queue::default()),
            bytes_max,
        }
    }

    /// Puts events into the queue if there is room. A single message always finds room in an empty
    /// queue.
    pub(super) fn offer(&self, response: &mut WatchResponse, bytes: usize) -> Offer {
        let mut queue = self.queue.lock();
        if queue.has_ended || queue.end.is_some() {
            // Nobody will read it.
            return Offer::Taken;
        }
        if queue.bytes + bytes > self.bytes_max && !queue.messages.is_empty() {
            queue.wants_room = true;
            return Offer::Full;
        }
        queue.bytes += bytes;
        let is_open = !response.fragment;
        let response = std::mem::take(response);
        match queue.messages.back_mut() {
            Some(last)
                if last.is_open
                    && is_open
                    && last.response.watch_id == response.watch_id
                    && last.bytes + bytes <= JOINED_MAX_BYTES =>
            {
                last.response.header = response.header;
                last.response.events.extend(response.events);
                last.bytes += bytes;
            }
            _ => queue.messages.push_back(Message {
                response,
                bytes,
                is_open,
            }),
        }
        if queue.waker.is_some() && !queue.is_waking {
            queue.is_waking = true;
            Offer::TakenFirst
        } else {
            Offer::Taken
        }
    }

    /// Puts a message into the queue whether there is room or not: what is not about events, and the
    /// rest of a revision that comes in fragments.
    pub(super) fn push(&self, response: WatchResponse) {
        const BYTES: usize = 64;
        let mut queue = self.queue.lock();
        queue.bytes += BYTES;
        queue.messages.push_back(Message {
            response,
            bytes: BYTES,
            is_open: false,
        });
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream after what is in the queue.
    pub(super) fn end(&self, status: Status) {
        let mut queue = self.queue.lock();
        queue.end.get_or_insert(status);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the connection.
    pub(super) fn wake(&self) {
        let waker = {
            let mut queue = self.queue.lock();
            queue.is_waking = false;
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether so much waits that no more requests are to be taken.
    pub(super) fn is_full(&self) -> bool {
        self.queue.lock().bytes > self.bytes_max
    }

    /// The next message. After the end there is nothing.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Taken> {
        let mut queue = self.queue.lock();
        if let Some(message) = queue.messages.pop_front() {
            queue.bytes -= message.bytes;
            let has_room = queue.wants_room && queue.bytes <= self.bytes_max / 2;
            if has_room {
                queue.wants_room = false;
            }
            return Poll::Ready(Taken::Message(message.response, has_room));
        }
        if queue.has_ended || queue.end.is_some() {
            queue.has_ended = true;
            return Poll::Ready(Taken::End(queue.end.take()));
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_proto::mvccpb::Event;

    fn message(watch_id: i64) -> WatchResponse {
        WatchResponse {
            watch_id,
            events: vec![Event::default()],
            ..WatchResponse::default()
        }
    }

    fn take(outlet: &Outlet) -> Option<(WatchResponse, bool)> {
        let mut context = Context::from_waker(Waker::noop());
        match outlet.poll(&mut context) {
            Poll::Ready(Taken::Message(response, has_room)) => Some((response, has_room)),
            _ => None,
        }
    }

    #[test]
    fn a_full_queue_refuses_and_tells_when_there_is_room() {
        let outlet = Outlet::new(100);
        // One message finds room whatever its size.
        assert_eq!(outlet.offer(&mut message(1), 150), Offer::Taken);
        let mut refused = message(2);
        assert_eq!(outlet.offer(&mut refused, 10), Offer::Full);
        assert_eq!(refused.watch_id, 2, "it was not taken");
        assert!(outlet.is_full());
        assert!(take(&outlet).unwrap().1, "room for those who want it");
        assert_eq!(outlet.offer(&mut message(2), 10), Offer::Taken);
        assert!(!take(&outlet).unwrap().1, "nobody wants it");
    }

    #[test]
    fn events_of_one_watch_are_joined_while_they_wait() {
        let outlet = Outlet::new(1 << 20);
        for (watch, bytes) in [(1, 10), (1, 10), (2, 10), (1, 10), (1, JOINED_MAX_BYTES)] {
            outlet.offer(&mut message(watch), bytes);
        }
        let mut counts = Vec::new();
        while let Some((response, _)) = take(&outlet) {
            counts.push((response.watch_id, response.events.len()));
        }
        assert_eq!(counts, [(1, 2), (2, 1), (1, 1), (1, 1)]);
    }

    #[test]
    fn the_end_comes_after_what_waits() {
        let outlet = Outlet::new(100);
        outlet.push(message(1));
        outlet.end(Status::unavailable("gone"));
        assert_eq!(outlet.offer(&mut message(2), 10), Offer::Taken);
        assert_eq!(take(&outlet).unwrap().0.watch_id, 1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Taken::End(Some(status))) = outlet.poll(&mut context) else {
            panic!()
        };
        assert_eq!(status.message(), "gone");
        assert!(matches!(
            outlet.poll(&mut context),
            Poll::Ready(Taken::End(None))
        ));
    }
}
