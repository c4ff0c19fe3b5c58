//! [`Begun`]: a stream of which the first bytes were read already.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The head of a record: its kind, version and length.
const HEAD_BYTES: usize = 5;
/// The kind of a record that begins a handshake.
const HANDSHAKE: u8 = 22;
/// The most bytes of a record.
const RECORD_BYTES_MAX: u16 = (16 << 10) + 256;

/// A stream whose first bytes are given once more.
#[derive(Debug)]
pub struct Begun<S> {
    head: [u8; HEAD_BYTES],
    given: usize,
    inner: S,
}

/// Reads the head of the first record; `Err(stream)` when it is no record of a handshake. Nothing was allocated till
/// then.
pub(crate) async fn begin<S: AsyncRead + Unpin>(
    mut stream: S,
) -> io::Result<Result<Begun<S>, (S, [u8; HEAD_BYTES])>> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let [kind, major, _, high, low] = head;
    let bytes = u16::from_be_bytes([high, low]);
    if kind != HANDSHAKE || major != 3 || bytes == 0 || bytes > RECORD_BYTES_MAX {
        return Ok(Err((stream, head)));
    }
    Ok(Ok(Begun {
        head,
        given: 0,
        inner: stream,
    }))
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.head[self.given..];
        if left.is_empty() {
            return Pin::new(&mut self.inner).poll_read(task, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.given += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(task, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }
}
