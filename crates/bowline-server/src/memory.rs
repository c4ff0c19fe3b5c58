//! The memory that clients can make the server hold: one budget for the server, and a share for each
//! connection.
//!
//! Memory that is held *because a client has not finished* is charged to its connection and to the server:
//! requests that have partly arrived, requests that wait for the cluster, unread replies, parts of streams,
//! watches. A request is charged from its first byte until its call has an answer: a service that sees it has
//! its memory already, so no change is refused for want of memory after it was begun.
//!
//! ```text
//!  Charge ──▶ Account (of a connection) ──▶ Memory (of the server) ◀── queues of watches
//! ```
//!
//! A connection may hold at most its own limit, and at most half of what the other connections leave. So a
//! few greedy clients cannot take everything, and the sum stays below the budget. The first [`FLOOR_BYTES`]
//! of each connection are not counted: ordinary requests are served beside any crowd, and write no shared
//! counter.
//!
//! Invariants:
//!
//! - The sum of what connections hold above [`FLOOR_BYTES`] each is at most the budget.
//! - Each charge is released exactly once, when its [`Charge`] is dropped.
//! - Charging takes no lock.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_cluster::unread::UnsentReplies;
use bowline_replica::Session;
use bowline_tls::PeerIdentity;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::Status;

use crate::metrics::Counter;
use crate::read_threads::wide_threads_max;
use crate::status::Fault;

/// The uncounted allowance of each connection.
pub(crate) const FLOOR_BYTES: usize = 64 << 10;

/// The memory budget of the server.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: usize,
    connection_bytes_max: usize,
    used: AtomicUsize,
    /// Bytes in the queues of watches. They have a bound of their own, and also share the rest of this
    /// budget.
    pub(crate) watches: AtomicUsize,
    /// Refused charges.
    pub(crate) refused: Counter,
    /// Requests that missed the deadline for their arrival.
    pub(crate) late_requests: Counter,
    /// Calls that were ended because the client did not read the reply.
    pub(crate) unread_replies: Counter,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize, connection_bytes_max: usize) -> Arc<Memory> {
        Arc::new(Memory {
            bytes_max,
            connection_bytes_max,
            used: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            refused: Counter::default(),
            late_requests: Counter::default(),
            unread_replies: Counter::default(),
        })
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn connection_bytes_max(&self) -> usize {
        self.connection_bytes_max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) + self.watches.load(Ordering::Relaxed)
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.used())
    }

    /// The account of a new connection.
    pub(crate) fn account(self: &Arc<Memory>) -> Arc<Account> {
        Arc::new(Account {
            memory: self.clone(),
            used: AtomicUsize::new(0),
            unsent: Arc::default(),
            was_refused: AtomicBool::new(false),
            wide_reads: Arc::new(Semaphore::new(wide_threads_max())),
            identity: OnceLock::new(),
            certificate_session: OnceLock::new(),
            address: OnceLock::new(),
        })
    }
}

/// The charges of one connection.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    used: AtomicUsize,
    /// Replies handed to the connection and not sent yet.
    unsent: Arc<UnsentReplies>,
    /// Whether a charge was refused since the last check.
    was_refused: AtomicBool,
    /// The turns of wide ranges, held until the reply is made or, if it is long, until the client has taken
    /// it.
    wide_reads: Arc<Semaphore>,
    /// Where the client is.
    address: OnceLock<SocketAddr>,
    /// The names of the certificate that the client has shown.
    identity: OnceLock<Arc<PeerIdentity>>,
    /// The session of the user that the certificate stands for.
    certificate_session: OnceLock<Arc<Session>>,
}

impl Account {
    /// Notes where the client is. The first call counts.
    pub(crate) fn locate(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// Where the client is, if it came over a socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Notes the names of the client's certificate, which was verified. The first call counts.
    pub(crate) fn identify(&self, identity: Arc<PeerIdentity>) {
        let _ = self.identity.set(identity);
    }

    /// The names of the client's certificate, if the connection has one.
    pub(crate) fn identity(&self) -> Option<&Arc<PeerIdentity>> {
        self.identity.get()
    }

    /// The session of the user that the client's certificate stands for, once it has begun.
    pub(crate) fn certificate_session(&self) -> Option<Arc<Session>> {
        self.certificate_session.get().cloned()
    }

    /// Begins the session of a user for the client's certificate. It stands for whoever has the name.
    pub(crate) fn begin_certificate_session(&self, user: &str) -> Arc<Session> {
        let begin = || Arc::new(Session::without_token(user, u64::MAX));
        self.certificate_session.get_or_init(begin).clone()
    }

    /// Waits until this connection may read a wide range. The turns are as many as the threads that read:
    /// more would not help a client, and a client that does not read its long replies costs the server no
    /// more than those.
    pub(crate) async fn wide_read(&self) -> Option<OwnedSemaphorePermit> {
        // An error is impossible: the semaphore is never closed.
        self.wide_reads.clone().acquire_owned().await.ok()
    }

    /// Counts a part of a reply from its hand-over to the connection until it is sent.
    pub(crate) fn hand_over(&self, part: Bytes) -> Bytes {
        self.unsent.hand_over(part)
    }

    /// Ends a period. Returns whether a reply has been unsent for at least a whole one.
    pub(crate) fn end_period(&self) -> bool {
        let is_unread = self.unsent.end_period();
        if is_unread {
            self.memory.unread_replies.add(1);
        }
        is_unread
    }

    /// Whether a charge was refused since the last call.
    pub(crate) fn take_refusal(&self) -> bool {
        // The common case is a read without a write.
        self.was_refused.load(Ordering::Relaxed) && self.was_refused.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), OverBudget> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let own = above_floor(before + bytes);
        if own == 0 {
            return Ok(());
        }
        let memory = &self.memory;
        memory
            .used
            .fetch_add(own - above_floor(before), Ordering::Relaxed);
        let others = memory.used().saturating_sub(own);
        let share = memory.bytes_max.saturating_sub(others) / 2;
        if own <= memory.connection_bytes_max.min(share) {
            return Ok(());
        }
        self.give_back(bytes);
        memory.refused.add(1);
        self.was_refused.store(true, Ordering::Relaxed);
        Err(OverBudget)
    }

    fn give_back(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        let less = above_floor(before) - above_floor(before - bytes);
        if less > 0 {
            self.memory.used.fetch_sub(less, Ordering::Relaxed);
        }
    }
}

fn above_floor(bytes: usize) -> usize {
    bytes.saturating_sub(FLOOR_BYTES)
}

/// The limit of the connection or of the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl From<OverBudget> for Status {
    fn from(_: OverBudget) -> Status {
        Fault::OutOfMemory.into()
    }
}

/// Memory held for a connection until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// An empty charge.
    pub(crate) fn none(account: Arc<Account>) -> Charge {
        Charge { account, bytes: 0 }
    }

    pub(crate) fn of(account: &Arc<Account>, bytes: usize) -> Result<Charge, OverBudget> {
        let mut charge = Charge::none(account.clone());
        charge.set(bytes)?;
        Ok(charge)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Changes the size. If that is refused, the old size stays.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), OverBudget> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => return Ok(()),
            Some(more) => self.account.take(more)?,
            None => self.account.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Takes so many bytes out of it, or all that it has, as a charge of its own.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge {
            account: self.account.clone(),
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

thread_local! {
    /// The connection whose call this thread is polling.
    static CURRENT: RefCell<Option<Arc<Account>>> = const { RefCell::new(None) };
    /// The charge of the complete request that the polled call has received.
    static RECEIVED: RefCell<Option<Charge>> = const { RefCell::new(None) };
}

/// Polls a call in the account of its connection. Also returns the charge of a complete request it received.
pub(crate) fn in_account<T>(
    account: &mut Option<Arc<Account>>,
    poll: impl FnOnce() -> T,
) -> (T, Option<Charge>) {
    // The reference is moved in and out, so the reference count is not touched.
    let swap = |account: &mut Option<Arc<Account>>| {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, account));
    };
    swap(account);
    let outer = RECEIVED.take();
    let polled = poll();
    let received = RECEIVED.replace(outer);
    swap(account);
    (polled, received)
}

/// The account of the call being polled; a new account for a call without a connection.
pub(crate) fn current_account(memory: &Arc<Memory>) -> Arc<Account> {
    CURRENT
        .with_borrow(Option::clone)
        .unwrap_or_else(|| memory.account())
}

/// Notes that a complete request has arrived; the call holds its charge from now on.
pub(crate) fn received(charge: Charge) {
    RECEIVED.set(Some(charge));
}

/// A partly received request or message: it is charged, and it has a deadline.
///
/// The deadline runs from the first time that the server waits for more; bytes that arrive do not move it.
#[derive(Debug)]
pub(crate) struct Partial {
    charge: Charge,
    deadline: Option<Pin<Box<Sleep>>>,
    timeout: Duration,
}

impl Partial {
    pub(crate) fn new(account: Arc<Account>, timeout: Duration) -> Partial {
        Partial {
            charge: Charge::none(account),
            deadline: None,
            timeout,
        }
    }

    /// Notes that the request is complete.
    pub(crate) fn is_complete(&mut self) {
        self.deadline = None;
        // A release is never refused.
        let _ = self.charge.set(0);
    }

    /// Notes that the request is complete, and takes the charge of its bytes: the charge of the part that has
    /// waited becomes that of the whole.
    pub(crate) fn complete(&mut self, bytes: usize) -> Result<Charge, OverBudget> {
        self.deadline = None;
        self.charge.set(bytes)?;
        let none = Charge::none(self.charge.account.clone());
        Ok(std::mem::replace(&mut self.charge, none))
    }

    /// Notes that the server waits for more, with so many bytes received.
    pub(crate) fn wait(&mut self, task: &mut Context<'_>, bytes: usize) -> Result<(), Status> {
        self.charge.set(bytes)?;
        let timeout = self.timeout;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match deadline.as_mut().poll(task) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                self.charge.account.memory.late_requests.add(1);
                Err(Fault::PartialRequest(timeout).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_at_most_its_limit_and_half_of_what_the_others_leave() {
        const MIB: usize = 1 << 20;
        let memory = Memory::new(16 * MIB, 4 * MIB);
        let greedy: Vec<_> = (0..40).map(|_| memory.account()).collect();
        let mut charges: Vec<Charge> = greedy.iter().cloned().map(Charge::none).collect();
        let most = |charge: &mut Charge| while charge.set(charge.bytes() + 4096).is_ok() {};
        charges.iter_mut().for_each(most);
        let counted: Vec<usize> = charges.iter().map(|it| above_floor(it.bytes())).collect();
        assert_eq!(counted[..5], [4, 4, 4, 2, 1].map(|mib| mib * MIB));
        assert_eq!(memory.used(), counted.iter().sum::<usize>());
        assert!(memory.used() <= 16 * MIB);
        // The last one is served, too.
        assert_eq!(charges[39].bytes(), FLOOR_BYTES);
        assert_eq!(charges[39].bytes(), greedy[39].used());
        assert!(memory.refused.get() >= 40);
        drop(charges);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_watches_hold_is_of_the_same_budget() {
        let memory = Memory::new(1 << 20, 1 << 20);
        let account = memory.account();
        let charge = Charge::of(&account, 500_000).unwrap();
        drop(charge);
        memory.watches.fetch_add(900_000, Ordering::Relaxed);
        assert!(Charge::of(&account, 500_000).is_err());
        assert_eq!(memory.used(), 900_000);
    }

    #[test]
    fn a_charge_that_cannot_grow_stays_as_it_was() {
        let memory = Memory::new(1 << 20, 100_000);
        let account = memory.account();
        let mut charge = Charge::of(&account, FLOOR_BYTES + 80_000).unwrap();
        assert_eq!(charge.set(FLOOR_BYTES + 100_001), Err(OverBudget));
        assert_eq!(memory.used(), 80_000);
        assert_eq!(account.used(), charge.bytes());
        charge.set(10).unwrap();
        assert_eq!((account.used(), memory.used()), (10, 0));
    }

    #[test]
    fn a_reply_that_is_not_read_is_counted() {
        let memory = Memory::new(1 << 20, 1 << 20);
        let account = memory.account();
        let stuck = account.hand_over(Bytes::from_static(b"reply"));
        assert!(!account.end_period());
        assert!(account.end_period(), "it is there for a whole period");
        drop(stuck);
        assert!(!account.end_period());
        assert_eq!(memory.unread_replies.get(), 1);
    }

    #[test]
    fn calls_within_calls_know_their_account_and_what_they_received() {
        let memory = Memory::new(1 << 20, 1 << 20);
        let mut outer = Some(memory.account());
        let of_outer = outer.clone().unwrap();
        let (inner_received, outer_received) = in_account(&mut outer, || {
            received(Charge::of(&of_outer, 7).unwrap());
            let (account, inner_received) = in_account(&mut Some(memory.account()), || {
                received(Charge::of(&current_account(&memory), 5).unwrap());
                current_account(&memory)
            });
            assert!(!Arc::ptr_eq(&account, &of_outer));
            assert!(Arc::ptr_eq(&current_account(&memory), &of_outer));
            inner_received
        });
        let bytes = |received: Option<Charge>| received.map(|charge| charge.bytes());
        assert_eq!(
            (bytes(inner_received), bytes(outer_received)),
            (Some(5), Some(7))
        );
        assert!(outer.is_some());
    }

    #[test]
    fn the_charge_of_a_part_becomes_that_of_the_whole_request() {
        let memory = Memory::new(1 << 20, 100_000);
        let account = memory.account();
        let mut partial = Partial::new(account.clone(), Duration::from_secs(60));
        partial.charge.set(150_000).unwrap();
        let charge = partial.complete(160_000).unwrap();
        assert_eq!((charge.bytes(), account.used()), (160_000, 160_000));
        drop(partial);
        assert_eq!(account.used(), 160_000);
        let mut other = Partial::new(account.clone(), Duration::from_secs(60));
        assert!(other.complete(10_000).is_err());
        drop(charge);
        assert_eq!(account.used(), 0);
    }
}
