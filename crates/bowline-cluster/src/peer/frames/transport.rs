//! A connection that carries frames: its buffers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::{Frame, HEAD_BYTES, Head, Kind, PREFACE};

/// What is read at once.
const READ_BYTES: usize = 32 << 10;
/// A body of so many bytes takes over the buffer that it was read into. A shorter one is copied: the log keeps entries, and
/// none of them may hold on to a buffer many times its size.
const OWN_BUFFER_BYTES: usize = 32 << 10;
/// A buffer that has become larger is given back when it is empty.
const KEPT_BYTES: usize = 256 << 10;

fn malformed(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// A connection with its buffers.
pub(crate) struct Frames<S> {
    stream: S,
    input: BytesMut,
    output: BytesMut,
    /// How much of the output is written.
    written: usize,
    /// Whether what was written may still be in a buffer of the stream, as TLS has one.
    is_unflushed: bool,
    /// The largest body that may arrive.
    pub(super) received_bytes_max: usize,
    /// The largest body that the peer takes.
    pub(super) sent_bytes_max: usize,
    /// The number of the last call.
    pub(super) last_call: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// A connection that has just begun, on which `read` has arrived.
    pub(super) fn new(stream: S, read: BytesMut, received_bytes_max: usize) -> Frames<S> {
        Frames {
            stream,
            input: read,
            output: BytesMut::new(),
            written: 0,
            is_unflushed: false,
            received_bytes_max,
            sent_bytes_max: HELLO_BYTES_MAX,
            last_call: 0,
        }
    }

    /// The connection, for what comes before the first frame.
    pub(super) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Appends the preface to the output.
    pub(super) fn push_preface(&mut self) {
        self.output.extend_from_slice(PREFACE);
    }

    /// Appends a frame to the output.
    ///
    /// # Errors
    /// `InvalidInput` for a body that the peer would refuse.
    pub(super) fn push(
        &mut self,
        kind: Kind,
        call: u32,
        body: &impl Message,
    ) -> Result<(), io::Error> {
        let bytes = body.encoded_len();
        if bytes > self.sent_bytes_max {
            let limit = self.sent_bytes_max;
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a message of {bytes} bytes, where the peer takes {limit}"),
            ));
        }
        self.output.reserve(HEAD_BYTES + bytes);
        self.output
            .extend_from_slice(&Head::encode(bytes, kind, call));
        // It has the room.
        let _ = body.encode(&mut self.output);
        Ok(())
    }

    /// Appends a frame without a body to the output.
    pub(super) fn push_end(&mut self, call: u32) {
        self.output
            .extend_from_slice(&Head::encode(0, Kind::End, call));
    }

    /// How many bytes wait to be written.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    /// Whether something is to be written, or may still be in a buffer of the stream.
    pub(super) fn has_output(&self) -> bool {
        self.unwritten_bytes() > 0 || self.is_unflushed
    }

    /// How many bytes of an incomplete frame, or of frames that were not taken yet, have arrived.
    pub(super) fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    /// What the buffers have room for.
    #[cfg(any(test, fuzzing))]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Writes what waits.
    pub(super) fn poll_write(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unwritten_bytes() > 0 {
            self.is_unflushed = true;
            let stream = Pin::new(&mut self.stream);
            let count = ready!(stream.poll_write(task, &self.output[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.written = 0;
        match self.output.capacity() > KEPT_BYTES {
            true => self.output = BytesMut::new(),
            false => self.output.clear(),
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(task))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame; `None` when the peer has closed the connection between two frames.
    pub(super) fn poll_frame(&mut self, task: &mut Context<'_>) -> Poll<io::Result<Option<Frame>>> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if ready!(self.poll_read(task))? == 0 {
                return Poll::Ready(match self.input.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                });
            }
        }
    }

    /// Whether a connection that no call uses can be used. What has arrived is of a call that was given up.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut task = Context::from_waker(Waker::noop());
        loop {
            match self.poll_frame(&mut task) {
                Poll::Pending => return true,
                Poll::Ready(Ok(Some(_))) => {}
                Poll::Ready(Ok(None) | Err(_)) => return false,
            }
        }
    }

    fn poll_read(&mut self, task: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        self.input.reserve(READ_BYTES);
        // It keeps nothing between two polls.
        let reading = std::pin::pin!(self.stream.read_buf(&mut self.input));
        reading.poll(task)
    }

    fn take_frame(&mut self) -> io::Result<Option<Frame>> {
        let Some(head) = self.input.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = Head::decode(head, self.received_bytes_max).map_err(malformed)?;
        let bytes = HEAD_BYTES + head.body_bytes;
        if self.input.len() < bytes {
            return Ok(None);
        }
        let body = match head.body_bytes < OWN_BUFFER_BYTES {
            true => {
                let body = Bytes::copy_from_slice(&self.input[HEAD_BYTES..bytes]);
                bytes::Buf::advance(&mut self.input, bytes);
                body
            }
            false => self.input.split_to(bytes).freeze().slice(HEAD_BYTES..),
        };
        Ok(Some(Frame {
            kind: head.kind,
            call: head.call,
            body,
        }))
    }
}

/// A `Hello` is no longer: nothing else may be sent before the peer's has arrived.
pub(super) const HELLO_BYTES_MAX: usize = 256;

/// What a connection begins with.
pub(crate) enum Sniffed {
    /// Our own preface, behind which this has arrived.
    Frames(BytesMut),
    /// Something else, which this is the beginning of.
    Other(BytesMut),
}

/// Reads the beginning of a connection, until it is known what it is. A connection that ends or fails meanwhile is another.
pub(crate) async fn sniff(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Sniffed> {
    let mut read = BytesMut::with_capacity(PREFACE.len());
    loop {
        let have = read.len().min(PREFACE.len());
        if read[..have] != PREFACE[..have] {
            return Ok(Sniffed::Other(read));
        }
        if have == PREFACE.len() {
            return Ok(Sniffed::Frames(read.split_off(have)));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(Sniffed::Other(read));
        }
    }
}

/// A connection of which the beginning was read already.
pub(crate) struct Begun<S> {
    read: BytesMut,
    inner: S,
}

impl<S> Begun<S> {
    pub(crate) fn new(read: BytesMut, inner: S) -> Begun<S> {
        Begun { read, inner }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.inner).poll_read(task, buffer);
        }
        let count = buffer.remaining().min(self.read.len());
        buffer.put_slice(&self.read.split_to(count));
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
        Pin::new(&mut self.inner).poll_write_vectored(task, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
