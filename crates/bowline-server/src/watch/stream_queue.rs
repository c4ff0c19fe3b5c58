//! The queue of a stream: bounded, in order, between the threads of a shard and the connection that polls it.
//!
//! Events are refused when the queue is full; the few other messages are not.
//!
//! Watches of the stream that receive the same events share a message, which is in the queue once.
//!
//! While a client is slower than its events, new events are joined to the waiting message of the same watches: as long
//! as these receive the same, there is at most one message of them between two messages without events. The events
//! of one watch stay in order, and no event passes a message without events. Between watches there is no order to
//! keep.
//!
//! The bytes of an event that several watches of the stream receive are counted with the first of them.
//! Messages leave in the order of arrival, so the others follow soon after the first: at most about twice the
//! counted bytes are alive.
//!
//! The [`Budget`] over all queues is a second bound. An empty queue accepts one message whatever the budget,
//! so that every client makes progress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline::Revision;
use bytes::Bytes;
use parking_lot::Mutex;
use tonic::Status;

use super::budget::Budget;
use super::message::{Delivery, WatchMessage};

/// Waiting events of one watch are joined into messages of up to this size.
const JOINED_MAX_BYTES: usize = 64 << 10;
/// The approximate memory of a message besides its events.
const MESSAGE_BYTES: usize = 192;
/// The approximate memory of a reference to an event.
const EVENT_BYTES: usize = 48;
/// The memory of a further watch that receives a message.
const ID_BYTES: usize = 8;

/// The capacity that an empty queue keeps.
const KEPT_MESSAGES: usize = 1024;

/// The queue of a stream.
#[derive(Debug)]
pub(super) struct StreamQueue {
    queue: Mutex<Queue>,
    bytes_max: usize,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// The number of messages that have left: the position of the first waiting one.
    gone: u64,
    /// Events are not joined to messages before this position.
    barrier: u64,
    bytes: usize,
    /// The events already counted, of the newest shared revision.
    counted: Counted,
    /// The connection's waker, when it waits for a message.
    waker: Option<Waker>,
    /// Whether a producer is about to wake the connection.
    is_waking: bool,
    /// Whether a watch waits for room.
    wants_room: bool,
    /// How the stream ends after the queued messages.
    end: Option<Status>,
    has_ended: bool,
}

#[derive(Debug)]
struct Message {
    delivery: Delivery,
    /// The counted bytes that leave with it.
    bytes: usize,
    /// The size of its events on the wire.
    events_bytes: usize,
}

impl Message {
    /// Whether it goes to the same watches.
    fn is_for_those_of(&self, other: &Delivery) -> bool {
        self.delivery.message.watch_id == other.message.watch_id && self.delivery.also == other.also
    }
}

/// The counted events of a revision: one bit each.
#[derive(Debug, Default)]
struct Counted {
    revision: Revision,
    bits: Vec<u64>,
}

/// The position of a watch's last message. The watch keeps it, and passes it with its next events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place(Option<u64>);

/// Which messages keep the bytes of events alive.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sharing<'a> {
    /// This message alone.
    Own,
    /// The messages of all watches of the revision. Events are identified by their numbers, in the order of
    /// the message.
    Shared(Revision, &'a [u32]),
}

/// The result of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// The message is in the queue.
    Taken,
    /// It is in the queue, and the connection waits: call [`StreamQueue::wake`] after the last offer.
    TakenFirst,
    /// There is no room.
    Full,
}

/// A result of polling the queue.
#[derive(Debug)]
pub(super) enum Taken {
    /// A message, and whether a watch waits for the room that it leaves.
    Message(Delivery, bool),
    /// The end of the stream.
    End(Option<Status>),
}

impl Counted {
    fn has(&self, revision: Revision, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, number % 64);
        self.revision == revision && self.bits.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }

    fn add(&mut self, revision: Revision, number: u32) {
        if self.revision != revision {
            self.revision = revision;
            self.bits.clear();
        }
        let (word, bit) = (number as usize / 64, number % 64);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << bit;
    }
}

impl Queue {
    /// The bytes that a message's events add to the queue.
    fn cost(&self, response: &WatchMessage, sharing: Sharing<'_>) -> usize {
        let events = response.events.iter();
        let bytes: usize = match sharing {
            Sharing::Own => events.map(Bytes::len).sum(),
            Sharing::Shared(revision, numbers) => events
                .zip(numbers)
                .filter(|(_, number)| !self.counted.has(revision, **number))
                .map(|(event, _)| event.len())
                .sum(),
        };
        bytes + response.events.len() * EVENT_BYTES
    }

    /// The waiting message at a position, if events may be joined to it.
    fn open_at(&mut self, place: Place) -> Option<&mut Message> {
        let at = place.0.filter(|at| *at >= self.barrier)?;
        let at = usize::try_from(at.checked_sub(self.gone)?).ok()?;
        self.messages.get_mut(at)
    }

    fn push(&mut self, message: Message) -> Place {
        self.bytes += message.bytes;
        self.messages.push_back(message);
        Place(Some(self.gone + self.messages.len() as u64 - 1))
    }

    /// Closes the queued messages: no events are joined to them from now on.
    fn close(&mut self) {
        self.barrier = self.gone + self.messages.len() as u64;
    }
}

impl StreamQueue {
    pub(super) fn new(bytes_max: usize, budget: Arc<Budget>) -> StreamQueue {
        StreamQueue {
            queue: Mutex::new(Queue::default()),
            bytes_max,
            budget,
        }
    }

    /// The present bound.
    fn cap(&self) -> usize {
        self.bytes_max.min(self.budget.share())
    }

    /// The bytes of events for which there is room. Without any, the caller is woken for room as after a
    /// refusal.
    pub(super) fn room(&self) -> usize {
        let mut queue = self.queue.lock();
        if queue.messages.is_empty() {
            return self.cap().max(1);
        }
        let room = self.cap().saturating_sub(queue.bytes);
        queue.wants_room |= room == 0;
        room
    }

    /// Puts events into the queue if there is room, joined to the last message of the same watches if that still waits.
    /// An empty queue accepts any single message. A refused message is left unchanged.
    pub(super) fn offer(
        &self,
        delivery: &mut Delivery,
        sharing: Sharing<'_>,
        last: &mut Place,
    ) -> Offer {
        let mut queue = self.queue.lock();
        if queue.has_ended || queue.end.is_some() {
            // The stream has ended.
            return Offer::Taken;
        }
        let cost = queue.cost(&delivery.message, sharing);
        if queue.bytes + cost > self.cap() && !queue.messages.is_empty() {
            queue.wants_room = true;
            return Offer::Full;
        }
        if let Sharing::Shared(revision, numbers) = sharing {
            for number in numbers {
                queue.counted.add(revision, *number);
            }
        }
        let mut delivery = std::mem::take(delivery);
        let events_count = delivery.message.events.len();
        let events_bytes: usize = delivery.message.events.iter().map(Bytes::len).sum();
        let is_fragment = delivery.message.fragment;
        let room = JOINED_MAX_BYTES.saturating_sub(events_bytes);
        match queue.open_at(*last) {
            Some(open)
                if !is_fragment && open.events_bytes <= room && open.is_for_those_of(&delivery) =>
            {
                open.delivery.message.header = delivery.message.header;
                let events = &mut delivery.message.events;
                open.delivery.message.events.append(events);
                open.events_bytes += events_bytes;
                open.bytes += cost;
                queue.bytes += cost;
                self.budget.take(events_count * EVENT_BYTES);
            }
            _ => {
                let held_bytes = held_bytes(&delivery);
                *last = queue.push(Message {
                    bytes: cost + MESSAGE_BYTES + delivery.also.len() * ID_BYTES,
                    delivery,
                    events_bytes,
                });
                self.budget.take(held_bytes);
                if is_fragment {
                    queue.close();
                }
            }
        }
        if queue.waker.is_some() && !queue.is_waking {
            queue.is_waking = true;
            Offer::TakenFirst
        } else {
            Offer::Taken
        }
    }

    /// Puts a message into the queue without a check for room: messages without events, and the further
    /// fragments of a revision. Nothing is put behind the end of the stream, whose events are missing.
    pub(super) fn push(&self, message: WatchMessage) {
        let mut queue = self.queue.lock();
        if queue.has_ended || queue.end.is_some() {
            return;
        }
        let events_bytes = message.events.iter().map(Bytes::len).sum();
        let bytes = MESSAGE_BYTES + queue.cost(&message, Sharing::Own);
        let delivery = Delivery {
            message,
            also: Vec::new(),
        };
        self.budget.take(held_bytes(&delivery));
        queue.push(Message {
            bytes,
            delivery,
            events_bytes,
        });
        queue.close();
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream after the queued messages.
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

    /// Whether so much waits that the stream should take no more requests.
    pub(super) fn is_full(&self) -> bool {
        self.queue.lock().bytes > self.cap()
    }

    /// The next message. After the end there are none.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Taken> {
        let mut queue = self.queue.lock();
        if let Some(message) = queue.messages.pop_front() {
            queue.gone += 1;
            queue.bytes -= message.bytes;
            self.budget.give_back(held_bytes(&message.delivery));
            let has_room = queue.wants_room && queue.bytes <= self.cap() / 2;
            if has_room {
                queue.wants_room = false;
            }
            if queue.messages.is_empty() && queue.messages.capacity() > KEPT_MESSAGES {
                queue.messages.shrink_to(KEPT_MESSAGES);
            }
            return Poll::Ready(Taken::Message(message.delivery, has_room));
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

/// A message's memory besides the bytes of its events, which are counted separately.
fn held_bytes(delivery: &Delivery) -> usize {
    let events_count = delivery.message.events.len();
    MESSAGE_BYTES + events_count * EVENT_BYTES + delivery.also.len() * ID_BYTES
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        let messages = self.queue.get_mut().messages.iter();
        let held = messages.map(|message| held_bytes(&message.delivery));
        self.budget.give_back(held.sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    /// A queue with the whole budget to itself.
    fn stream_queue(bytes_max: usize) -> StreamQueue {
        StreamQueue::new(
            bytes_max,
            Budget::new(usize::MAX, Memory::new(usize::MAX, usize::MAX)),
        )
    }

    fn message(watch_id: i64, bytes: usize) -> WatchMessage {
        WatchMessage {
            watch_id,
            events: vec![Bytes::from(vec![watch_id as u8; bytes])],
            ..WatchMessage::default()
        }
    }

    fn offer(stream_queue: &StreamQueue, message: &mut WatchMessage, last: &mut Place) -> Offer {
        offer_to(stream_queue, message, &[], last)
    }

    fn offer_to(
        stream_queue: &StreamQueue,
        message: &mut WatchMessage,
        also: &[i64],
        last: &mut Place,
    ) -> Offer {
        let mut delivery = Delivery {
            message: std::mem::take(message),
            also: also.to_vec(),
        };
        let offer = stream_queue.offer(&mut delivery, Sharing::Own, last);
        *message = delivery.message;
        offer
    }

    fn take(stream_queue: &StreamQueue) -> Option<(WatchMessage, bool)> {
        let mut context = Context::from_waker(Waker::noop());
        match stream_queue.poll(&mut context) {
            Poll::Ready(Taken::Message(delivery, has_room)) => Some((delivery.message, has_room)),
            _ => None,
        }
    }

    fn counts(stream_queue: &StreamQueue) -> Vec<(i64, usize)> {
        std::iter::from_fn(|| take(stream_queue))
            .map(|(response, _)| (response.watch_id, response.events.len()))
            .collect()
    }

    #[test]
    fn a_full_queue_refuses_and_tells_when_there_is_room() {
        let stream_queue = stream_queue(1000);
        let mut last = Place::default();
        // An empty queue accepts a message of any size.
        assert_eq!(
            offer(&stream_queue, &mut message(1, 1500), &mut last),
            Offer::Taken
        );
        let mut refused = message(2, 10);
        assert_eq!(
            offer(&stream_queue, &mut refused, &mut Place::default()),
            Offer::Full
        );
        assert_eq!(refused, message(2, 10), "it was not taken");
        assert_eq!(
            offer(&stream_queue, &mut message(1, 10), &mut last),
            Offer::Full
        );
        assert!(stream_queue.is_full());
        assert!(take(&stream_queue).unwrap().1, "room for those who want it");
        assert_eq!(
            offer(&stream_queue, &mut message(2, 10), &mut Place::default()),
            Offer::Taken
        );
        assert!(!take(&stream_queue).unwrap().1, "nobody wants it");
        assert!(!stream_queue.is_full());
        assert_eq!(stream_queue.queue.lock().bytes, 0, "what came has gone");
    }

    /// A stream that was ended dropped further events, and still sent the progress behind them and the later parts of a
    /// revision: a client that resumed from there missed the events. Found by review.
    #[test]
    fn nothing_is_sent_behind_the_end() {
        let stream_queue = stream_queue(1000);
        let mut last = Place::default();
        offer(&stream_queue, &mut message(5, 1), &mut last);
        stream_queue.end(Status::unavailable("the server stops"));
        assert_eq!(
            offer(&stream_queue, &mut message(6, 1), &mut last),
            Offer::Taken
        );
        stream_queue.push(message(6, 1));
        stream_queue.push(WatchMessage {
            watch_id: -1,
            ..WatchMessage::default()
        });
        assert_eq!(counts(&stream_queue), [(5, 1)]);
    }

    #[test]
    fn events_of_each_watch_are_joined_while_they_wait() {
        let stream_queue = stream_queue(1 << 20);
        let mut last = [Place::default(); 3];
        for (watch, bytes) in [
            (1, 10),
            (1, 10),
            (2, 10),
            (1, 10),
            (1, JOINED_MAX_BYTES),
            (1, 0),
        ] {
            offer(
                &stream_queue,
                &mut message(watch, bytes),
                &mut last[watch as usize],
            );
        }
        assert_eq!(counts(&stream_queue), [(1, 3), (2, 1), (1, 2)]);
        // Nothing is joined to a message that has left.
        offer(&stream_queue, &mut message(1, 10), &mut last[1]);
        assert_eq!(counts(&stream_queue), [(1, 1)]);
        assert_eq!(stream_queue.queue.lock().bytes, 0);
    }

    /// After a progress notification no older event may follow.
    #[test]
    fn nothing_is_added_before_a_message_that_is_not_about_events() {
        let stream_queue = stream_queue(1 << 20);
        let mut last = [Place::default(); 3];
        offer(&stream_queue, &mut message(1, 10), &mut last[1]);
        stream_queue.push(WatchMessage {
            watch_id: -1,
            ..WatchMessage::default()
        });
        offer(&stream_queue, &mut message(1, 10), &mut last[1]);
        offer(&stream_queue, &mut message(1, 10), &mut last[1]);
        // Nor between the fragments of a revision, nor after them.
        let fragment = || WatchMessage {
            fragment: true,
            ..message(1, 10)
        };
        offer(&stream_queue, &mut fragment(), &mut last[1]);
        stream_queue.push(message(1, 10));
        offer(&stream_queue, &mut message(1, 10), &mut last[1]);
        assert_eq!(
            counts(&stream_queue),
            [(1, 1), (-1, 0), (1, 2), (1, 1), (1, 1), (1, 1)]
        );
    }

    #[test]
    fn an_event_that_is_shared_is_counted_once() {
        let stream_queue = stream_queue(1 << 20);
        let bytes = || stream_queue.queue.lock().bytes;
        let mut last = [Place::default(); 4];
        let mut share = |watch: usize, revision, numbers: &[u32]| {
            let before = bytes();
            let mut delivery = Delivery {
                message: WatchMessage {
                    events: vec![Bytes::from_static(&[0; 1000]); numbers.len()],
                    ..message(watch as i64, 0)
                },
                also: Vec::new(),
            };
            stream_queue.offer(
                &mut delivery,
                Sharing::Shared(revision, numbers),
                &mut last[watch],
            );
            (bytes() - before) / 1000
        };
        assert_eq!(share(1, Revision::new(7), &[0, 70]), 2);
        assert_eq!(share(2, Revision::new(7), &[0]), 0);
        assert_eq!(share(3, Revision::new(7), &[0, 1]), 1);
        assert_eq!(share(1, Revision::new(8), &[0]), 1, "of another revision");
        assert_eq!(share(2, Revision::new(8), &[0, 1]), 1);
        assert_eq!(counts(&stream_queue), [(1, 3), (2, 3), (3, 2)]);
        assert_eq!(stream_queue.queue.lock().bytes, 0);
    }

    #[test]
    fn events_are_joined_to_what_the_same_watches_receive_and_to_nothing_else() {
        let stream_queue = stream_queue(1 << 20);
        let (mut of_two, mut of_one) = (Place::default(), Place::default());
        let offer = |also: &[i64], last: &mut Place| {
            assert_eq!(
                offer_to(&stream_queue, &mut message(1, 10), also, last),
                Offer::Taken
            );
        };
        offer(&[2], &mut of_two);
        offer(&[2], &mut of_two);
        // Its last message is one of both: what it receives alone is not for the other.
        of_one.clone_from(&of_two);
        offer(&[], &mut of_one);
        offer(&[], &mut of_one);
        // A third has come since.
        offer(&[2, 3], &mut of_one);
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        while let Poll::Ready(Taken::Message(delivery, _)) = stream_queue.poll(&mut context) {
            taken.push((delivery.also, delivery.message.events.len()));
        }
        assert_eq!(taken, [(vec![2], 2), (vec![], 2), (vec![2, 3], 1)]);
        assert_eq!(stream_queue.queue.lock().bytes, 0);
    }

    /// A hundred clients that do not read; each queue alone may hold 1,000 bytes.
    #[test]
    fn all_queues_together_have_a_bound_and_each_takes_one_message_all_the_same() {
        const BOUND: usize = 16_000;
        let budget = Budget::new(BOUND, Memory::new(1 << 30, 1 << 30));
        let stream_queues: Vec<StreamQueue> = (0..100)
            .map(|_| StreamQueue::new(1000, budget.clone()))
            .collect();
        let event = |bytes| WatchMessage {
            events: vec![budget.count(vec![7; bytes])],
            ..WatchMessage::default()
        };
        let fill = |stream_queue: &StreamQueue| {
            let mut last = Place::default();
            let offers = (0..100).map(|_| offer(stream_queue, &mut event(10), &mut last));
            offers.take_while(|offer| *offer != Offer::Full).count()
        };
        let taken: Vec<usize> = stream_queues.iter().map(fill).collect();
        assert!(taken.iter().all(|taken| *taken > 0), "{taken:?}");
        assert!(taken[0] > 4 * taken[50], "{taken:?}");
        let beyond = 100 * (MESSAGE_BYTES + EVENT_BYTES + 100);
        assert!(budget.used() < BOUND + beyond, "{} bytes", budget.used());
        // A refused watch is woken for room, which grows as clients read.
        assert_eq!(stream_queues[99].room(), 0);
        assert!(std::iter::from_fn(|| take(&stream_queues[99])).any(|(_, has_room)| has_room));
        assert!(stream_queues[99].room() > 0);
        drop(stream_queues);
        assert_eq!(budget.used(), 0, "what has gone does not count");
    }

    #[test]
    fn the_end_comes_after_what_waits() {
        let stream_queue = stream_queue(100);
        stream_queue.push(message(1, 10));
        stream_queue.end(Status::unavailable("gone"));
        let mut last = Place::default();
        assert_eq!(
            offer(&stream_queue, &mut message(2, 10), &mut last),
            Offer::Taken
        );
        assert_eq!(take(&stream_queue).unwrap().0.watch_id, 1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Taken::End(Some(status))) = stream_queue.poll(&mut context) else {
            panic!()
        };
        assert_eq!(status.message(), "gone");
        assert!(matches!(
            stream_queue.poll(&mut context),
            Poll::Ready(Taken::End(None))
        ));
    }
}
