//! Deadlines for what the other side of a connection does not read.
//!
//! There are two places where sent data waits without limit, and each has a deadline of its own:
//!
//! | where | because | noticed by |
//! |---|---|---|
//! | before the socket | the other side takes no bytes at all | [`WriteDeadline`] |
//! | in the HTTP/2 library | the stream's window is closed, although pings are answered | [`UnsentReplies`] |
//!
//! Pings bound neither. The library sends one only on a connection that has been silent for a while, and one
//! that is answered says nothing about windows.
//!
//! Invariants:
//!
//! - A reply counts as unsent from its hand-over to the library until the library has given it to the socket, or
//!   has dropped it with its stream.
//! - A reply that is noticed has waited for a whole period; one that waits for two is noticed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Sleep;

/// The deadline of a write, since the other side stopped accepting bytes.
#[derive(Debug)]
pub struct WriteDeadline {
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl WriteDeadline {
    /// A write may wait for `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> WriteDeadline {
        WriteDeadline {
            timeout,
            sleep: None,
        }
    }

    /// Notes the result of an attempt to write. One that waits for too long fails.
    pub fn note(
        &mut self,
        task: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.sleep = None;
            return written;
        }
        let timeout = self.timeout;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match sleep.as_mut().poll(task) {
            Poll::Ready(()) => {
                let text = format!("the other side has read nothing for {timeout:?}");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Counts the parts of replies that were handed to the HTTP/2 library of a connection and are not sent yet.
#[derive(Debug, Default)]
pub struct UnsentReplies {
    /// By the parity of the period in which they were handed over.
    counts: [AtomicUsize; 2],
    period: AtomicUsize,
}

impl UnsentReplies {
    /// Counts a part until it is dropped, which the library does when it has sent it.
    #[must_use]
    pub fn hand_over(self: &Arc<UnsentReplies>, bytes: Bytes) -> Bytes {
        let slot = self.period.load(Ordering::Relaxed) % 2;
        self.counts[slot].fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Unsent {
            bytes,
            replies: self.clone(),
            slot,
        })
    }

    /// Ends a period. Returns whether a part from the period before is still unsent: it has then waited for at
    /// least a whole period.
    #[must_use]
    pub fn end_period(&self) -> bool {
        let before = (self.period.load(Ordering::Relaxed) + 1) % 2;
        if self.counts[before].load(Ordering::Relaxed) > 0 {
            return true;
        }
        self.period.fetch_add(1, Ordering::Relaxed);
        false
    }
}

/// A part that was handed over.
struct Unsent {
    bytes: Bytes,
    replies: Arc<UnsentReplies>,
    slot: usize,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.replies.counts[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_not_on_its_way_for_a_whole_period_is_noticed() {
        let replies = Arc::new(UnsentReplies::default());
        let hand_over = || replies.hand_over(Bytes::from_static(b"reply"));
        for _ in 0..5 {
            let sent = hand_over();
            assert!(!replies.end_period(), "it was handed over just now");
            drop(sent);
        }
        let stuck = hand_over();
        assert!(!replies.end_period());
        let newer = hand_over();
        assert!(replies.end_period(), "it is there for a whole period");
        drop((stuck, newer));
        assert!(!replies.end_period());
    }
}
