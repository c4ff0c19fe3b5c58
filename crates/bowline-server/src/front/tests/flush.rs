//! A stream that keeps what is written until it is flushed, as TLS does when the socket is full.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

use super::super::Limits;
use super::client::{greeting, request};
use super::{PUT, put};
use crate::test_server::TestServer;

/// Keeps what is written. Every second flush takes its time.
struct Buffering {
    inner: DuplexStream,
    kept: Vec<u8>,
    was_slow: bool,
}

impl AsyncRead for Buffering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(task, buffer)
    }
}

impl AsyncWrite for Buffering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.was_slow = !this.was_slow;
        if this.was_slow {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        while !this.kept.is_empty() {
            let count = ready!(Pin::new(&mut this.inner).poll_write(task, &this.kept))?;
            this.kept.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }
}

/// Over TLS, the end of a reply that did not fit into the socket was sent with the next reply.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stream_buffers_is_flushed() {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let server = TestServer::start().await;
    let limits = Limits {
        streams_max: 10,
        header_bytes_max: 1 << 14,
        partial_timeout: TIMEOUT,
        unread_timeout: TIMEOUT,
        keep_alive_interval: Some(TIMEOUT),
        keep_alive_timeout: TIMEOUT,
    };
    let (mut near, far) = duplex(1 << 20);
    let stream = Buffering {
        inner: far,
        kept: Vec::new(),
        was_slow: false,
    };
    let account = server.context().memory.account();
    let open = Box::new(|_| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(async {}) });
    let serving = super::super::serve(stream, server.context(), &account, limits, open);
    tokio::spawn(serving);
    let mut sent = greeting(&[]);
    // The front reads the preface itself, before it serves.
    sent.drain(..super::super::frame::PREFACE.len());
    sent.extend(request(1, PUT, &put("k", "v")));
    near.write_all(&sent).await.unwrap();
    let mut read = Vec::new();
    // The trailers of the reply are the last frame: it ends stream 1.
    let is_over = |read: &[u8]| read.windows(5).any(|at| at == [1, 5, 0, 0, 0]);
    while !is_over(&read) {
        let arrived = tokio::time::timeout(Duration::from_secs(10), near.read_buf(&mut read));
        assert!(arrived.await.expect("all is flushed").unwrap() > 0);
    }
    server.shutdown().await;
}
