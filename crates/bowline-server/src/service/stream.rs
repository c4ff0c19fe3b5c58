//! Replies in parts.
//!
//! A part is handed over when the client has room for it. A stream whose client takes nothing for
//! [`STALL_MAX`] ends, which frees its snapshot, permit and result.
//!
//! Invariant: a part that waits for its client is charged to the connection.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_core::Stream;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::memory::{Account, Charge};
use crate::read_threads::ReadThreads;
use crate::status::Fault;

/// The parts of a reply.
pub(crate) struct Replies<T>(mpsc::Receiver<Waiting<T>>);

impl<T> Stream for Replies<T> {
    type Item = Result<T, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<T, Status>>> {
        let waiting = self.0.poll_recv(task);
        waiting.map(|waiting| waiting.map(|waiting| waiting.part))
    }
}

/// Sends replies from a task, each when the client has taken the one before.
pub(super) struct ReplySender<T> {
    replies: mpsc::Sender<Waiting<T>>,
    account: Arc<Account>,
}

impl<T> ReplySender<T> {
    /// Waits until the client has room for a reply that holds so many bytes.
    pub(super) async fn send(&self, reply: T, bytes: usize) -> Result<(), Ended> {
        let reply = Waiting::new(reply, &self.account, bytes).map_err(Ended::Failed)?;
        self.replies.send(reply).await.map_err(|_| Ended::Gone)
    }

    /// Ends the replies with an error.
    pub(super) async fn fail(&self, status: Status) {
        // A client that has disconnected gets no error.
        let _ = self.replies.send(Waiting::failed(status)).await;
    }

    /// Returns when the client has disconnected.
    pub(super) async fn closed(&self) {
        self.replies.closed().await;
    }
}

/// Replies that come one by one, to a client with this account; at most one of them waits for the client.
pub(super) fn one_by_one<T>(account: Arc<Account>) -> (ReplySender<T>, Replies<T>) {
    let (replies, receiver) = mpsc::channel(1);
    (ReplySender { replies, account }, Replies(receiver))
}

/// A part that waits for the client, with its memory.
struct Waiting<T> {
    part: Result<T, Status>,
    _charge: Option<Charge>,
}

impl<T> Waiting<T> {
    fn new(part: T, account: &Arc<Account>, bytes: usize) -> Result<Waiting<T>, Status> {
        Ok(Waiting {
            part: Ok(part),
            _charge: Some(Charge::of(account, bytes)?),
        })
    }

    fn failed(status: Status) -> Waiting<T> {
        Waiting {
            part: Err(status),
            _charge: None,
        }
    }
}

/// The most parts of a reply that wait for the client.
const WAITING_MAX: usize = 2;

/// The memory of a part with many ids, for each byte of its encoding: each id is an allocation.
const HELD_FACTOR: usize = 4;

/// The memory of a part that was charged before, for each byte of its encoding: as rows, and as a message.
const CHARGED_FACTOR: usize = 2;

/// The longest time in which a client may take nothing.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Why the parts ended early.
pub(super) enum Ended {
    /// The client has disconnected, or takes nothing.
    Gone,
    /// The rest cannot be read.
    Failed(Status),
}

/// Sends parts from a blocking thread, as the client takes them.
pub(super) struct PartSender<T> {
    replies: mpsc::Sender<Waiting<T>>,
    runtime: Handle,
    account: Arc<Account>,
}

impl<T> PartSender<T> {
    /// Sends a part that holds so many bytes.
    pub(super) fn send(&self, part: T, bytes: usize) -> Result<(), Ended> {
        let part = Waiting::new(part, &self.account, bytes).map_err(Ended::Failed)?;
        let sent = send_in_time(&self.replies, part, STALL_MAX);
        self.runtime.block_on(sent)
    }
}

async fn send_in_time<T>(
    replies: &mpsc::Sender<Waiting<T>>,
    part: Waiting<T>,
    timeout: Duration,
) -> Result<(), Ended> {
    match tokio::time::timeout(timeout, replies.send(part)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Ended::Gone),
    }
}

/// A reply to a client with this account, whose parts `produce` sends on a blocking thread.
pub(super) fn produced<T: Send + 'static>(
    account: Arc<Account>,
    produce: impl FnOnce(&PartSender<T>) -> Result<(), Ended> + Send + 'static,
) -> Replies<T> {
    let (replies, receiver) = mpsc::channel(WAITING_MAX);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let sender = PartSender {
            replies,
            runtime,
            account,
        };
        if let Err(Ended::Failed(status)) = produce(&sender) {
            // A client that has disconnected or takes nothing gets no error.
            let sent = send_in_time(&sender.replies, Waiting::failed(status), STALL_MAX);
            let _ = sender.runtime.block_on(sent);
        }
    });
    Replies(receiver)
}

/// A reply whose parts `step` makes one at a time, on a blocking thread: the first at the first poll, each
/// other when the one before is taken. No thread waits for the client. `kept` is dropped after the last part.
pub(super) fn stepwise<T, K>(
    threads: Arc<ReadThreads>,
    step: impl FnMut() -> Option<Result<T, Status>> + Send + 'static,
    kept: K,
) -> Stepwise<T>
where
    T: Send + 'static,
    K: Send + 'static,
{
    let mut step = step;
    let next = move || {
        let _held = &kept;
        step()
    };
    Stepwise {
        threads,
        at: At::Waits(Box::new(next)),
    }
}

type Step<T> = Box<dyn FnMut() -> Option<Result<T, Status>> + Send>;
/// A part, and the step that makes the next.
type Made<T> = (Option<Result<T, Status>>, Step<T>);

/// See [`stepwise`].
pub(crate) struct Stepwise<T> {
    threads: Arc<ReadThreads>,
    at: At<T>,
}

enum At<T> {
    Waits(Step<T>),
    /// The next part is being made. Each part has its own turn; none is held while the client is slow.
    Makes(AbortOnDrop<Result<Made<T>, Status>>),
    Ended,
}

impl<T: Send + 'static> Stepwise<T> {
    fn make(&self, mut step: Step<T>) -> At<T> {
        let threads = self.threads.clone();
        At::Makes(AbortOnDrop(tokio::spawn(async move {
            let make = move || {
                let part = step();
                (part, step)
            };
            threads.run(make).await
        })))
    }
}

impl<T: Send + 'static> Stream for Stepwise<T> {
    type Item = Result<T, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<T, Status>>> {
        let this = &mut *self;
        let mut making = match mem::replace(&mut this.at, At::Ended) {
            At::Waits(step) => this.make(step),
            other => other,
        };
        let At::Makes(made) = &mut making else {
            return Poll::Ready(None);
        };
        let Poll::Ready(made) = Pin::new(&mut made.0).poll(task) else {
            this.at = making;
            return Poll::Pending;
        };
        let made = made.unwrap_or_else(|error| Err(Fault::Internal(error.to_string()).into()));
        Poll::Ready(match made {
            Ok((Some(Ok(part)), step)) => {
                this.at = this.make(step);
                Some(Ok(part))
            }
            Ok((other, _)) => other,
            Err(failed) => Some(Err(failed)),
        })
    }
}

/// A task that is aborted when this is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A reply with known parts, to a client with this account. `kept` is dropped when the last one is handed over.
pub(super) fn of_parts<T, I, K>(
    account: Arc<Account>,
    parts: I,
    kept: K,
) -> Result<Replies<T>, Status>
where
    T: Message + 'static,
    I: Iterator<Item = T> + Send + 'static,
    K: Send + 'static,
{
    of_parts_within(STALL_MAX, account, parts, kept)
}

fn of_parts_within<T, I, K>(
    timeout: Duration,
    account: Arc<Account>,
    parts: I,
    kept: K,
) -> Result<Replies<T>, Status>
where
    T: Message + 'static,
    I: Iterator<Item = T> + Send + 'static,
    K: Send + 'static,
{
    let mut parts = parts.map(move |part| {
        let bytes = HELD_FACTOR * part.encoded_len();
        Waiting::new(part, &account, bytes)
    });
    // The first ones are charged before there is a reply.
    let first = parts.by_ref().take(WAITING_MAX);
    let first = first.collect::<Result<Vec<_>, Status>>()?;
    let others = parts.map(|part| part.unwrap_or_else(Waiting::failed));
    Ok(handed_over(timeout, first.into_iter().chain(others), kept))
}

/// A reply whose parts were charged before there was one, with [`CHARGED_FACTOR`]: none of them is refused. Each has its
/// share of the charge.
pub(super) fn of_charged_parts<T, I>(parts: I, charge: Charge) -> Replies<T>
where
    T: Message + 'static,
    I: Iterator<Item = T> + Send + 'static,
{
    let mut charge = charge;
    let parts = parts.map(move |part| {
        let share = charge.split(CHARGED_FACTOR * part.encoded_len());
        Waiting {
            part: Ok(part),
            _charge: Some(share),
        }
    });
    handed_over(STALL_MAX, parts, ())
}

/// Hands parts over, each when there is room for it, up to the first one that is an error.
fn handed_over<T, I, K>(timeout: Duration, parts: I, kept: K) -> Replies<T>
where
    T: Send + 'static,
    I: Iterator<Item = Waiting<T>> + Send + 'static,
    K: Send + 'static,
{
    let (replies, receiver) = mpsc::channel(WAITING_MAX);
    let mut parts = parts.peekable();
    // Most replies have one part, for which no task is needed.
    while replies.capacity() > 0 {
        let Some(part) = parts.next() else {
            return Replies(receiver);
        };
        // There is room, and the receiver exists.
        let _ = replies.try_send(part);
    }
    if parts.peek().is_some() {
        tokio::spawn(async move {
            for part in parts {
                let is_refused = part.part.is_err();
                let sent = send_in_time(&replies, part, timeout).await;
                if is_refused || sent.is_err() {
                    break;
                }
            }
            drop(kept);
        });
    }
    Replies(receiver)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_stream::StreamExt;

    use super::*;
    use crate::memory::{FLOOR_BYTES, Memory};

    #[tokio::test]
    async fn known_parts_come_in_order_and_then_the_end() {
        for count in [0_u32, 1, 4, 5, 100] {
            let parts = of_parts(account(), 0..count, ()).unwrap();
            let parts: Vec<_> = parts.map(Result::unwrap).collect().await;
            assert_eq!(parts, (0..count).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_with_what_is_kept_for_it() {
        let timeout = Duration::from_millis(50);
        let (kept, mut released) = mpsc::channel::<()>(1);
        let mut stalled = of_parts_within(timeout, account(), 0_u32..100, kept).unwrap();
        let before = tokio::time::Instant::now();
        assert_eq!(released.recv().await, None);
        assert!(before.elapsed() >= timeout);
        // The parts handed over remain; the rest is dropped.
        let mut left = 0;
        while stalled.next().await.is_some() {
            left += 1;
        }
        assert_eq!(left, WAITING_MAX);
    }

    /// An account that has room for 100,000 bytes.
    fn account() -> Arc<Account> {
        Memory::new(1 << 20, 100_000 - FLOOR_BYTES).account()
    }

    #[tokio::test]
    async fn replies_that_come_one_by_one_are_charged_while_they_wait() {
        let account = account();
        let (sender, mut replies) = one_by_one(account.clone());
        assert!(sender.send(1, 60_000).await.is_ok());
        assert_eq!(account.used(), 60_000);
        let refused = sender.send(2, 60_000).await;
        let Err(Ended::Failed(status)) = refused else {
            panic!("there is no room for it");
        };
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(replies.next().await.unwrap().unwrap(), 1);
        assert_eq!(account.used(), 0);
        drop(replies);
        assert!(matches!(sender.send(3, 1).await, Err(Ended::Gone)));
        assert_eq!(account.used(), 0);
    }

    #[tokio::test]
    async fn parts_that_wait_are_charged_and_one_beyond_the_budget_ends_the_stream() {
        let account = account();
        let (tried, all_tried) = tokio::sync::oneshot::channel();
        let mut parts = produced(account.clone(), |sender| {
            sender.send(1, 40_000)?;
            sender.send(2, 40_000)?;
            let third = sender.send(3, 40_000);
            let _ = tried.send(());
            third
        });
        let all_tried = tokio::time::timeout(STALL_MAX / 3, all_tried).await;
        assert!(
            all_tried.is_ok(),
            "the third waits for room, and is not refused"
        );
        assert_eq!(parts.next().await.unwrap().unwrap(), 1);
        // The third was refused beside the two that waited.
        assert_eq!(parts.next().await.unwrap().unwrap(), 2);
        let refused = parts.next().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(parts.next().await.is_none());
        assert_eq!(account.used(), 0);
        // The first of known parts is refused before there is a reply.
        let large = "v".repeat(100_000);
        assert!(of_parts(account.clone(), std::iter::once(large.clone()), ()).is_err());
        let few = [String::new(), String::new(), large];
        let mut parts = of_parts(account.clone(), few.into_iter(), ()).unwrap();
        assert!(parts.next().await.unwrap().is_ok());
        assert!(parts.next().await.unwrap().is_ok());
        assert!(parts.next().await.unwrap().is_err());
        assert!(parts.next().await.is_none());
        assert_eq!(account.used(), 0);
    }

    /// They were charged a second time when they were sent, after what they tell of was done: it was refused.
    #[tokio::test]
    async fn parts_that_were_charged_before_are_not_refused_and_give_back_what_they_hold() {
        let account = account();
        let part = "v".repeat(9_000);
        let charge = Charge::of(&account, 99_000).unwrap();
        let parts = std::iter::repeat_n(part.clone(), 5);
        let mut parts = of_charged_parts(parts, charge);
        assert_eq!(account.used(), 99_000);
        for left in (0..5).rev() {
            assert_eq!(parts.next().await.unwrap().unwrap(), part);
            // The parts that are left are charged, and this one is not any more.
            let used = account.used();
            assert!(used >= left * CHARGED_FACTOR * 9_000, "{left}: {used}");
            assert!(
                used <= 99_000 - (5 - left) * CHARGED_FACTOR * 9_000,
                "{left}: {used}"
            );
        }
        assert!(parts.next().await.is_none());
        assert_eq!(account.used(), 0);
    }

    fn one_thread() -> Arc<ReadThreads> {
        ReadThreads::new("a-reader", 1).unwrap()
    }

    #[tokio::test]
    async fn steps_are_made_as_they_are_taken_and_end_with_the_receiver() {
        let made = Arc::new(AtomicUsize::new(0));
        let (kept, mut released) = mpsc::channel::<()>(1);
        let counted = made.clone();
        let step = move || Some(Ok(counted.fetch_add(1, Ordering::Relaxed)));
        let threads = one_thread();
        let mut parts = stepwise(threads.clone(), step, kept);
        // A task that was spawned has queued its work, and the thread has finished all work before this.
        tokio::task::yield_now().await;
        threads.run(|| ()).await.unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 0, "nobody has asked");
        for number in 0..10 {
            assert_eq!(parts.next().await.unwrap().unwrap(), number);
            // One part is made ahead.
            assert!(made.load(Ordering::Relaxed) <= number + 2);
        }
        drop(parts);
        assert_eq!(released.recv().await, None);
        let mut failing = stepwise(
            one_thread(),
            || -> Option<Result<u8, _>> { panic!("of this test") },
            (),
        );
        let failed = failing.next().await.unwrap().unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Internal);
        assert!(failing.next().await.is_none());
    }

    #[tokio::test]
    async fn a_failure_follows_what_was_read_before_it() {
        let mut parts = produced(account(), |sender| {
            sender.send(1, 100)?;
            Err(Ended::Failed(Status::data_loss("damaged")))
        });
        assert_eq!(parts.next().await.unwrap().unwrap(), 1);
        assert_eq!(
            parts.next().await.unwrap().unwrap_err().message(),
            "damaged"
        );
        assert!(parts.next().await.is_none());
    }
}
