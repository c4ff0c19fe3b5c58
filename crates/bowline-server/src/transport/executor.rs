//! Runs the calls of a connection, on the connection's own task when they do not wait.
//!
//! A read of this member's memory is answered at the first poll. To spawn a task for it would cost
//! more than the read. So a call is polled once where it is, and becomes a task only when it has to
//! wait. The first poll has no one to wake: what it registers is registered again by the task, which
//! polls before it waits.

use std::future::Future;
use std::task::{Context, Waker};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct EagerExecutor;

impl<F> hyper::rt::Executor<F> for EagerExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        let mut call = Box::pin(call);
        let mut context = Context::from_waker(Waker::noop());
        if call.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(call);
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

    #[tokio::test]
    async fn what_does_not_wait_is_done_at_once_and_what_waits_later() {
        let done = Arc::new(AtomicBool::new(false));
        let setting = done.clone();
        EagerExecutor.execute(async move { setting.store(true, Ordering::Relaxed) });
        assert!(done.load(Ordering::Relaxed));
        let (go, gone) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        EagerExecutor.execute(async move { done.send(gone.await).unwrap() });
        go.send(7).unwrap();
        assert_eq!(is_done.await.unwrap(), Ok(7));
    }
}
