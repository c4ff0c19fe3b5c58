//! [`Ticket`]: a commit that is under way.
//!
//! A ticket is a seat in the queue without a thread that waits. Somebody has to lead its group: a committer or another
//! waiter, who takes along what stands before it; the thread that waits for the ticket; or, for a future that was polled
//! and for a ticket that was dropped, the commit thread, which is started when it is first needed.
//!
//! Invariants, beside those of the queue:
//!
//! - The order of commits is the order of the calls that made their tickets. Each is decided against all before it, and
//!   against none behind it.
//! - A ticket is done when its group is durable and visible, or has failed; never before. After a failed flush all
//!   tickets behind it fail, too: they were ordered behind what may be lost.
//! - A ticket that was made is committed or refused, whatever becomes of the ticket itself, unless the database is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bowline_storage::sync::Instant;
use bowline_storage::sync::thread::{self, Thread};

use crate::commit_queue::{Committed, Request, Seat};
use crate::handle::{Handle, open_or_closed};
use bowline_core::error::Result;

/// A commit that has its place in the order of commits, and is not durable yet. Made by
/// [`Db::commit_later`](crate::Db::commit_later) and [`Db::put_later`](crate::Db::put_later).
///
/// It is durable and visible when [`Ticket::wait`] says so. One thread that has several commits under way shares flushes
/// among them, as several threads would:
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let tickets = ["a", "b", "c"].map(|key| db.put_later(key, "v"));
/// for ticket in tickets {
///     assert!(ticket?.wait()?.changed);
/// }
/// assert_eq!(db.range(..)?.count(), 3);
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// A ticket is also a future. It needs no particular runtime, and does not block the one that polls it, unless the database
/// has no threads of its own ([`Background::Manual`](crate::Background::Manual)).
///
/// ```
/// # fn block_on<T>(future: impl Future<Output = T>) -> T {
/// #     use std::task::{Context, Poll, Wake, Waker};
/// #     struct Unpark(std::thread::Thread);
/// #     impl Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
/// #     }
/// #     let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(value) => return value,
/// #             Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// # let db = bowline::Db::in_memory()?;
/// let committed = block_on(db.put_later("k", "v")?)?;
/// assert_eq!(db.revision(), committed.revision);
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// It is as durable then as [`Transaction::commit`](crate::Transaction::commit) makes it: with
/// [`Durability::Batched`](crate::Durability::Batched) the flush comes later.
///
/// A ticket that is dropped does not take the commit back. While a ticket is only held, its commit may wait for the next
/// one, or for one that waits. It keeps the database open.
#[derive(Debug)]
#[must_use = "its commit is not durable before it was waited for"]
pub struct Ticket {
    handle: Handle,
    seat: Arc<Seat>,
}

impl Ticket {
    /// Puts a request into the order of commits.
    pub(crate) fn of(handle: &Handle, request: Request) -> Result<Ticket> {
        handle.check_open()?;
        Ok(Ticket {
            seat: handle.queue.commit_later(&handle.core, request)?,
            handle: handle.clone(),
        })
    }

    /// That of a transaction that needs no commit.
    pub(crate) fn of_nothing(handle: &Handle, committed: Committed) -> Ticket {
        Ticket {
            handle: handle.clone(),
            seat: Seat::done(committed),
        }
    }

    /// Waits until the commit is durable and visible, or has failed.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// let ticket = db.commit_later(tx)?;
    /// let committed = ticket.wait()?;
    /// assert_eq!(db.entry("k")?.expect("an entry").mod_revision, committed.revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::commit`](crate::Transaction::commit). A failed flush fails the tickets behind it, too.
    pub fn wait(self) -> Result<Committed> {
        self.handle.queue.wait_for(&self.handle.core, &self.seat);
        self.outcome()
    }

    /// Waits at most for `timeout`; gives the ticket back when the commit is not done by then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let db = bowline::Db::in_memory()?;
    /// let mut ticket = db.put_later("k", "v")?;
    /// let committed = loop {
    ///     match ticket.wait_timeout(Duration::from_millis(1)) {
    ///         Ok(outcome) => break outcome?,
    ///         Err(under_way) => ticket = under_way, // and do something else for a while
    ///     }
    /// };
    /// assert!(committed.changed);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The ticket, when the time was over. Within: those of [`Ticket::wait`].
    pub fn wait_timeout(
        mut self,
        timeout: Duration,
    ) -> std::result::Result<Result<Committed>, Ticket> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let start = Instant::now();
        // As a future: another thread leads, so that a flush that takes long does not hold this one.
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut self).poll(&mut context) {
                return Ok(outcome);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(self);
            }
            thread::park_timeout(left);
        }
    }

    /// Whether the commit is durable and visible, or has failed: then waiting returns at once. While other threads commit, a
    /// commit may be visible a moment before its ticket says so.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let ticket = db.put_later("a", "1")?;
    /// // A commit takes along what stands before it.
    /// db.put("b", "2")?;
    /// assert!(ticket.is_done());
    /// # ticket.wait()?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.seat.is_done()
    }

    fn outcome(&self) -> Result<Committed> {
        open_or_closed(self.seat.take_outcome())
    }
}

/// Wakes the thread that waits for a ticket.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Ticket {
    type Output = Result<Committed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Committed>> {
        if let Poll::Ready(outcome) = self.seat.poll(context) {
            return Poll::Ready(open_or_closed(outcome));
        }
        // Behind the registration: the commit thread finds who waits.
        if !self.handle.commit_thread() {
            self.handle.queue.wait_for(&self.handle.core, &self.seat);
            return Poll::Ready(self.outcome());
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.seat.abandon() && !self.handle.commit_thread() {
            self.handle.queue.wait_for(&self.handle.core, &self.seat);
        }
    }
}
