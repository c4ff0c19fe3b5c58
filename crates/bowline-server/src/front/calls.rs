//! The calls under way of one connection, without an allocation per call.
//!
//! A call is polled by the task of its connection, at once and again when it is woken. Its future lives in a
//! *slot*, which has a pinned place for it and a waker, and is used again for the next call. A waker notes the
//! slot's number and wakes the task; all calls that were woken since the last turn are polled together, so
//! that their replies leave together.
//!
//! Invariants:
//!
//! - A slot has a call from [`Calls::start`] until that call has an answer or is dropped; its number belongs to
//!   no other call in between.
//! - A wake-up that arrives too late polls another call once more than needed, which is allowed.
//! - The task is woken when the list of the woken slots becomes non-empty, and takes all of it in its turn.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use parking_lot::Mutex;

/// So many slots are kept while there are no calls in them.
const KEPT: usize = 8;

/// What has happened since the task's last turn.
#[derive(Debug, Default)]
struct Woken {
    slots: Vec<u32>,
    /// Whether the relay was woken.
    has_relay: bool,
    task: Option<Waker>,
}

/// The wake-ups of a connection's parts.
#[derive(Debug, Default)]
pub(super) struct Wakes(Mutex<Woken>);

impl Wakes {
    /// Takes the woken slots, in exchange for an empty list, and whether the relay was woken. Later wake-ups
    /// wake this task.
    pub(super) fn take(&self, task: &Context<'_>, slots: &mut Vec<u32>) -> bool {
        let mut woken = self.0.lock();
        match &mut woken.task {
            Some(waker) => waker.clone_from(task.waker()),
            none => *none = Some(task.waker().clone()),
        }
        mem::swap(&mut woken.slots, slots);
        mem::take(&mut woken.has_relay)
    }

    fn wake(&self, note: impl FnOnce(&mut Woken)) {
        let mut woken = self.0.lock();
        let is_first = woken.slots.is_empty() && !woken.has_relay;
        note(&mut woken);
        if is_first && let Some(task) = &woken.task {
            let task = task.clone();
            drop(woken);
            task.wake();
        }
    }
}

/// The waker of a slot.
#[derive(Debug)]
struct SlotWake {
    number: u32,
    is_woken: AtomicBool,
    wakes: Arc<Wakes>,
}

impl SlotWake {
    /// What it belongs to is about to be polled. This is an exchange, and not a store: a wake-up that finds the flag
    /// set relies on a poll that sees what it was for.
    fn reset(&self) {
        self.is_woken.swap(false, Ordering::AcqRel);
    }
}

impl Wake for SlotWake {
    fn wake(self: Arc<SlotWake>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<SlotWake>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.wakes.wake(|woken| woken.slots.push(self.number));
        }
    }
}

/// Marks the number of a stream among those of slots.
const STREAM: u32 = 1 << 31;

/// The waker of a stream whose reply is made while it is sent.
#[derive(Debug)]
pub(super) struct StreamWaker {
    wake: Arc<SlotWake>,
    waker: Waker,
}

impl StreamWaker {
    pub(super) fn new(wakes: &Arc<Wakes>, id: u32) -> StreamWaker {
        let wake = Arc::new(SlotWake {
            number: id | STREAM,
            is_woken: AtomicBool::new(false),
            wakes: wakes.clone(),
        });
        StreamWaker {
            waker: Waker::from(wake.clone()),
            wake,
        }
    }

    /// The stream of a number that was woken.
    pub(super) fn stream_of(number: u32) -> Option<u32> {
        (number & STREAM != 0).then_some(number & !STREAM)
    }

    /// Its stream is about to be polled.
    pub(super) fn reset(&self) {
        self.wake.reset();
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// The waker of the relay.
#[derive(Debug)]
struct RelayWake(Arc<Wakes>);

impl Wake for RelayWake {
    fn wake(self: Arc<RelayWake>) {
        self.0.wake(|woken| woken.has_relay = true);
    }
}

/// The waker of the relay of a connection.
pub(super) fn relay_waker(wakes: &Arc<Wakes>) -> Waker {
    Waker::from(Arc::new(RelayWake(wakes.clone())))
}

/// A place for a call.
struct Slot<F> {
    /// `None` while this place is not kept.
    future: Option<Pin<Box<Option<F>>>>,
    is_used: bool,
    /// What the caller knows the call by.
    tag: u32,
    wake: Arc<SlotWake>,
    waker: Waker,
}

/// The calls under way.
pub(super) struct Calls<F> {
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
    wakes: Arc<Wakes>,
}

impl<F: Future> Calls<F> {
    pub(super) fn new(wakes: Arc<Wakes>) -> Calls<F> {
        Calls {
            slots: Vec::new(),
            free: Vec::new(),
            wakes,
        }
    }

    /// Takes a call, which the caller knows by a tag, and returns its slot.
    pub(super) fn start(&mut self, tag: u32, call: F) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| self.add());
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_used = true;
            slot.tag = tag;
            match &mut slot.future {
                Some(place) => place.as_mut().set(Some(call)),
                none => *none = Some(Box::pin(Some(call))),
            }
        }
        number
    }

    fn add(&mut self) -> u32 {
        // There are fewer than 2³¹ streams.
        let number = self.slots.len() as u32;
        let wake = Arc::new(SlotWake {
            number,
            is_woken: AtomicBool::new(false),
            wakes: self.wakes.clone(),
        });
        self.slots.push(Slot {
            future: None,
            is_used: false,
            tag: 0,
            waker: Waker::from(wake.clone()),
            wake,
        });
        number
    }

    /// Polls the call of a slot; a slot without one is pending. An answer comes with the call's tag, and the slot
    /// is free.
    pub(super) fn poll(&mut self, number: u32) -> Poll<(u32, F::Output)> {
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return Poll::Pending;
        };
        slot.wake.reset();
        let future = slot.future.as_mut().map(|place| place.as_mut());
        let Some(call) = future.and_then(Option::as_pin_mut) else {
            return Poll::Pending;
        };
        let tag = slot.tag;
        let output = ready!(call.poll(&mut Context::from_waker(&slot.waker)));
        self.end(number);
        Poll::Ready((tag, output))
    }

    /// Drops the call of a slot.
    pub(super) fn end(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return;
        };
        if !mem::take(&mut slot.is_used) {
            return;
        }
        match &mut slot.future {
            Some(place) if self.free.len() < KEPT => place.as_mut().set(None),
            other => *other = None,
        }
        self.free.push(number);
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT {
            self.slots.truncate(KEPT);
            self.free.clear();
            self.free.extend((0..KEPT as u32).rev());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn calls_are_polled_when_woken_and_their_slots_are_used_again() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let task = Context::from_waker(&waker);
        let wakes = Arc::new(Wakes::default());
        let mut woken = Vec::new();
        wakes.take(&task, &mut woken);
        let mut calls = Calls::new(wakes.clone());
        let mut senders = Vec::new();
        for number in 0..20 {
            let (sender, receiver) = oneshot::channel();
            senders.push(sender);
            assert_eq!(calls.start(number + 100, receiver), number);
            assert_eq!(calls.poll(number), Poll::Pending);
        }
        for (number, sender) in senders.into_iter().enumerate() {
            sender.send(number).unwrap();
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "woken once");
        assert!(!wakes.take(&task, &mut woken));
        assert_eq!(woken.len(), 20);
        for number in woken.drain(..) {
            let answer = (number + 100, Ok(number as usize));
            assert_eq!(calls.poll(number), Poll::Ready(answer));
            assert_eq!(calls.poll(number), Poll::Pending);
        }
        assert_eq!((calls.slots.len(), calls.free.len()), (KEPT, KEPT));
        let (_sender, receiver) = oneshot::channel();
        let slot = calls.start(7, receiver);
        assert!((slot as usize) < KEPT);
        // One that is ended drops its call, and only once.
        let (sender, receiver) = oneshot::channel();
        let slot = calls.start(7, receiver);
        calls.end(slot);
        calls.end(slot);
        assert!(sender.is_closed());
        assert_eq!(calls.free.len(), KEPT - 1);
        relay_waker(&wakes).wake();
        assert!(wakes.take(&task, &mut woken));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
