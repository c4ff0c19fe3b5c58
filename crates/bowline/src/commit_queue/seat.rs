//! [`Seat`]: the place of a request in the queue, and who is told of its outcome.
//!
//! Invariants:
//!
//! - A seat is waiting, then perhaps leads, then is done. It is done once, with one outcome.
//! - A seat that leads belongs to a thread that waits: nobody else takes the lead away.
//! - Whoever waits is registered before it looks whether the seat is done, or under the lock of the one that finishes it:
//!   no wake-up is lost.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline_storage::sync::Mutex;
use bowline_storage::sync::atomic::{AtomicU8, Ordering};
use bowline_storage::sync::thread::{self, Thread};

use super::outcome::{Committed, internal};
use super::request::Prepared;
use bowline_core::error::Result;

const WAITING: u8 = 0;
const LEAD: u8 = 1;
const DONE: u8 = 2;

/// What a seat does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    /// Its thread leads the next commit group.
    Leads,
    Done,
}

/// Who is told that a seat is done.
#[derive(Debug)]
enum Waiter {
    /// Nobody yet: a ticket that is held.
    Nobody,
    /// A thread that can also lead.
    Thread(Thread),
    /// A future was polled.
    Waker(Waker),
    /// Nobody ever: a ticket that was dropped.
    Gone,
}

/// The place of a request, or of [`CommitQueue::lead_alone`](super::CommitQueue::lead_alone), which has none.
#[derive(Debug)]
pub(crate) struct Seat {
    state: AtomicU8,
    waiter: Mutex<Waiter>,
    request: Mutex<Option<Prepared>>,
    outcome: Mutex<Option<Result<Committed>>>,
    /// The encoded size of the request.
    pub(super) request_bytes: Option<u64>,
}

impl Seat {
    fn new(request: Option<Prepared>, waiter: Waiter) -> Arc<Seat> {
        Arc::new(Seat {
            state: AtomicU8::new(WAITING),
            waiter: Mutex::new(waiter),
            request_bytes: request.as_ref().map(|request| request.encoded_bytes),
            request: Mutex::new(request),
            outcome: Mutex::new(None),
        })
    }

    /// That of the calling thread.
    pub(super) fn of_thread(request: Option<Prepared>) -> Arc<Seat> {
        Seat::new(request, Waiter::Thread(thread::current()))
    }

    /// That of a ticket.
    pub(super) fn of_ticket(request: Prepared) -> Arc<Seat> {
        Seat::new(Some(request), Waiter::Nobody)
    }

    /// One that never was in the queue.
    pub(crate) fn done(committed: Committed) -> Arc<Seat> {
        let seat = Seat::new(None, Waiter::Nobody);
        seat.finish(Ok(committed));
        seat
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            WAITING => State::Waiting,
            LEAD => State::Leads,
            _ => State::Done,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state() == State::Done
    }

    /// Says that its thread leads. Of a seat in the queue, under the lock of the queue: there it cannot be done.
    pub(super) fn begin_lead(&self) -> bool {
        self.replace_state(WAITING, LEAD)
    }

    /// Says that its thread has led, unless it is done by that.
    pub(super) fn end_lead(&self) {
        self.replace_state(LEAD, WAITING);
    }

    fn replace_state(&self, from: u8, to: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.state
            .compare_exchange(from, to, success, failure)
            .is_ok()
    }

    /// The calling thread waits for it, and can lead.
    pub(super) fn register_thread(&self) {
        *self.waiter.lock() = Waiter::Thread(thread::current());
    }

    /// Nobody will ever wait for it. Says whether it still has to be done.
    pub(crate) fn abandon(&self) -> bool {
        let mut waiter = self.waiter.lock();
        *waiter = Waiter::Gone;
        !self.is_done()
    }

    /// The outcome, or the waker to be woken when there is one.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Committed>> {
        let mut waiter = self.waiter.lock();
        if self.is_done() {
            return Poll::Ready(self.take_outcome());
        }
        match &mut *waiter {
            Waiter::Waker(waker) => waker.clone_from(context.waker()),
            other => *other = Waiter::Waker(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Wakes the thread that waits for it, if there is one, to lead. Called under the lock of the queue.
    pub(super) fn give_lead(&self) -> bool {
        match &*self.waiter.lock() {
            Waiter::Thread(thread) if self.begin_lead() => {
                thread.unpark();
                true
            }
            _ => false,
        }
    }

    /// Whether it must be done although no thread waits for it.
    pub(super) fn needs_another(&self) -> bool {
        matches!(&*self.waiter.lock(), Waiter::Waker(_) | Waiter::Gone)
    }

    pub(super) fn take_request(&self) -> Option<Prepared> {
        self.request.lock().take()
    }

    /// The outcome of a seat that is done.
    pub(crate) fn take_outcome(&self) -> Result<Committed> {
        let outcome = self.outcome.lock().take();
        outcome.unwrap_or_else(|| Err(internal("a commit group gave no outcome")))
    }

    /// Gives it its outcome, and wakes the thread that waits. Says whether a waker is left to [`Seat::wake`].
    pub(super) fn finish(&self, outcome: Result<Committed>) -> bool {
        *self.outcome.lock() = Some(outcome);
        self.state.store(DONE, Ordering::Release);
        let waiter = {
            let mut waiter = self.waiter.lock();
            if matches!(*waiter, Waiter::Waker(_)) {
                return true;
            }
            std::mem::replace(&mut *waiter, Waiter::Nobody)
        };
        if let Waiter::Thread(thread) = waiter {
            thread.unpark();
        }
        false
    }

    /// Wakes the future of a seat that is done.
    pub(super) fn wake(&self) {
        // Not under its lock: a waker is somebody else's code.
        let waiter = std::mem::replace(&mut *self.waiter.lock(), Waiter::Nobody);
        if let Waiter::Waker(waker) = waiter {
            waker.wake();
        }
    }
}
