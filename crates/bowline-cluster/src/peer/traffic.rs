//! What is counted of the connections to each peer: bytes, failures and round trips.
//!
//! Bytes are those of the connections, except what this member asks over gRPC: that library opens its connections itself, so
//! there the files of snapshots and the proposals count, and the little that is around them does not.
//!
//! A connection that a peer has made counts for nobody until the peer has said who it is ([`Connected`](super::port)). What
//! came before counts for it then.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_storage::histogram::{Histogram, HistogramSnapshot};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::types::NodeId;

/// What is counted of one peer since the start.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    round_trips: Histogram,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    send_failures: AtomicU64,
}

/// What has been exchanged with one peer since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerMetrics {
    /// The peer.
    pub member_id: NodeId,
    /// Times from a heartbeat of this member, as the leader, to its answer.
    pub round_trips: HistogramSnapshot,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
    /// Requests that did not reach it, or were not answered in time. Those that were not tried, while the connection waits
    /// after a failure, are none.
    pub send_failures: u64,
}

impl Traffic {
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn send_failed(&self) {
        self.send_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn round_trip(&self, took: Duration) {
        self.round_trips.record(took);
    }

    pub(super) fn read(&self, member_id: NodeId) -> PeerMetrics {
        PeerMetrics {
            member_id,
            round_trips: self.round_trips.read(),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            send_failures: self.send_failures.load(Ordering::Relaxed),
        }
    }
}

/// The bytes of a connection that a peer has made, until it is known which one.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    of: OnceLock<Arc<Traffic>>,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Unclaimed {
    /// The connection is this peer's.
    pub(super) fn claim(&self, traffic: impl FnOnce() -> Arc<Traffic>) {
        if self.of.get().is_none() {
            self.of.get_or_init(traffic);
            self.settle();
        }
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.settle();
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.settle();
    }

    /// Moves what has been counted to the peer. What is counted at the same time is moved with the next bytes.
    fn settle(&self) {
        if let Some(of) = self.of.get() {
            of.sent(self.sent_bytes.swap(0, Ordering::Relaxed));
            of.received(self.received_bytes.swap(0, Ordering::Relaxed));
        }
    }
}

/// A connection to a peer whose bytes are counted.
pub(super) struct Counted<S> {
    inner: S,
    traffic: Arc<Traffic>,
}

impl<S> Counted<S> {
    pub(super) fn new(inner: S, traffic: Arc<Traffic>) -> Counted<S> {
        Counted { inner, traffic }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(task, buffer);
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.traffic.received(read as u64);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(task, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.traffic.sent(*count as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(task, parts);
        if let Poll::Ready(Ok(count)) = &written {
            self.traffic.sent(*count as u64);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_bytes_of_a_connection_are_counted_in_both_directions() {
        let (near, mut far) = tokio::io::duplex(64);
        let traffic = Arc::new(Traffic::default());
        let mut near = Counted::new(near, traffic.clone());
        near.write_all(b"asked").await.expect("it is open");
        far.write_all(b"an answer").await.expect("it is open");
        let mut answer = [0; 9];
        near.read_exact(&mut answer).await.expect("an answer");
        let read = traffic.read(7);
        assert_eq!(
            (read.member_id, read.sent_bytes, read.received_bytes),
            (7, 5, 9)
        );
    }

    /// The bytes before the peer has said who it is are its own, too.
    #[test]
    fn a_connection_counts_for_the_peer_that_is_behind_it() {
        let (traffic, other) = (Arc::new(Traffic::default()), Arc::new(Traffic::default()));
        let unclaimed = Unclaimed::default();
        unclaimed.received(24);
        unclaimed.sent(3);
        assert_eq!(traffic.read(1).received_bytes, 0);
        unclaimed.claim(|| traffic.clone());
        unclaimed.claim(|| other.clone());
        unclaimed.received(10);
        unclaimed.sent(4);
        let read = traffic.read(1);
        assert_eq!((read.sent_bytes, read.received_bytes), (7, 34));
        assert_eq!(other.read(2).received_bytes, 0);
    }
}
