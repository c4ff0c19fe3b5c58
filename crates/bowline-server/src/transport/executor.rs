//! The executor of a connection's calls: a call that does not wait runs on the connection's task.
//!
//! A read from memory is answered at the first poll, and spawning a task would cost more than the read. So a
//! call is polled once in place, and becomes a task only if it has to wait. The first poll has a waker that
//! does nothing: the task polls again before it waits, and registers its own.
//!
//! A waiting call is charged to its connection, and its client must keep reading: if the client takes nothing
//! of the reply for a while, the call is dropped, which resets its stream and frees its memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Sleep;

use super::bodies::{Progress, SharedInput, take_progress};
use crate::memory::{Account, Charge};

/// The approximate memory of a waiting call besides its messages: its futures, the stream, the request's
/// head.
const CALL_BYTES: usize = 4 << 10;

/// The executor of a connection's calls.
#[derive(Debug, Clone)]
pub(super) struct EagerExecutor {
    account: Arc<Account>,
    unread_timeout: Duration,
}

impl EagerExecutor {
    pub(super) fn new(account: Arc<Account>, unread_timeout: Duration) -> EagerExecutor {
        EagerExecutor {
            account,
            unread_timeout,
        }
    }
}

impl<F> hyper::rt::Executor<F> for EagerExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        let input = SharedInput::offered();
        let mut call = Box::pin(call);
        let mut context = Context::from_waker(Waker::noop());
        if let Some(input) = &input {
            // The task will report a charge above the limit.
            let _ = input.drain(&mut context);
        }
        take_progress();
        if call.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(Waiting {
                call,
                input,
                charge: Charge::none(self.account.clone()),
                first: Some(take_progress()),
                unread: None,
                unread_timeout: self.unread_timeout,
            });
        }
    }
}

/// A call that has to wait.
struct Waiting<F> {
    call: Pin<Box<F>>,
    /// Its input, if that is a stream.
    input: Option<Arc<SharedInput>>,
    charge: Charge,
    /// The reply's progress at the first poll.
    first: Option<Progress>,
    /// The deadline since the client stopped reading.
    unread: Option<Pin<Box<Sleep>>>,
    unread_timeout: Duration,
}

impl<F: Future<Output = ()>> Future for Waiting<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // In both cases the call is dropped, which resets its stream: sending more is useless to a client
        // that does not read, or that has used up its memory with calls.
        if this.charge.bytes() == 0 && this.charge.set(CALL_BYTES).is_err() {
            return Poll::Ready(());
        }
        if let Some(input) = &this.input
            && input.drain(task).is_err()
        {
            return Poll::Ready(());
        }
        take_progress();
        if this.call.as_mut().poll(task).is_ready() {
            return Poll::Ready(());
        }
        let progress = match take_progress() {
            Progress::None => this.first.take().unwrap_or(Progress::None),
            known => known,
        };
        match progress {
            Progress::Gave => {
                this.unread = Some(Box::pin(tokio::time::sleep(this.unread_timeout)));
            }
            Progress::Waits => this.unread = None,
            Progress::None => {}
        }
        if let Some(unread) = &mut this.unread
            && unread.as_mut().poll(task).is_ready()
        {
            this.charge.account().memory().unread_replies.add(1);
            tracing::debug!("a call was ended: its client does not read the reply");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<F> Drop for Waiting<F> {
    fn drop(&mut self) {
        if let Some(input) = &self.input {
            input.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use hyper::rt::Executor;
    use tokio::sync::oneshot;

    use super::*;
    use crate::memory::{FLOOR_BYTES, Memory};

    #[tokio::test]
    async fn what_does_not_wait_is_done_at_once_and_what_waits_later() {
        let memory = Memory::new(1 << 20, 1 << 20);
        let account = memory.account();
        let executor = EagerExecutor::new(account.clone(), Duration::from_secs(60));
        let done = Arc::new(AtomicBool::new(false));
        let setting = done.clone();
        executor.execute(async move { setting.store(true, Ordering::Relaxed) });
        assert!(done.load(Ordering::Relaxed));
        assert_eq!(account.used(), 0);
        let (go, gone) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        executor.execute(async move { done.send(gone.await).unwrap() });
        tokio::task::yield_now().await;
        assert_eq!(account.used(), CALL_BYTES);
        go.send(7).unwrap();
        assert_eq!(is_done.await.unwrap(), Ok(7));
    }

    /// Waiting calls were bounded only by the number of streams, which is unlimited by default.
    #[tokio::test]
    async fn calls_that_wait_are_bounded_by_the_memory_of_their_connection() {
        const MAX: usize = 100 * CALL_BYTES;
        let memory = Memory::new(1 << 20, MAX);
        let executor = EagerExecutor::new(memory.account(), Duration::from_secs(60));
        let mut senders = Vec::new();
        for _ in 0..150 {
            let (sender, receiver) = oneshot::channel::<()>();
            executor.execute(async move { drop(receiver.await) });
            senders.push(sender);
        }
        for _ in 0..150 {
            tokio::task::yield_now().await;
        }
        assert_eq!(memory.used(), MAX);
        let ended = senders.iter().filter(|sender| sender.is_closed()).count();
        assert_eq!(ended, 150 - 100 - FLOOR_BYTES / CALL_BYTES);
    }
}
