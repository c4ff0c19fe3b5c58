//! Deadlines for what a client sends, and a limit of resets.
//!
//! The HTTP/2 library waits without limit for the rest of a preface, frame or head, and each wait costs a
//! connection and the received bytes. So this stream parses the nine-byte head of each frame that is read,
//! and knows whether the client is between two pieces, where it may be silent for days, or within one.
//!
//! ```text
//! preface ──▶ between ──▶ frame ──▶ between        HEADERS without its end ──▶ CONTINUATION … with its end
//!    │                                             is one piece, whatever the number of frames
//!    └──▶ HTTP/1, whose heads have a limit of their own
//! ```
//!
//! Invariants:
//!
//! - A piece has a deadline from the first time that the server waits for more of it; bytes that arrive do
//!   not move it. Between two pieces there is none.
//! - A connection resets at most so many calls within [`RESETS_WINDOW`], counted from the first reset. Each
//!   costs the server about as much as a call, and the client nearly nothing.
//! - The library receives what is read unchanged.
//! - A client whose connection accepts no byte for the timeout of an unread reply is dropped.
//! - A connection that was refused memory is not read for [`REFUSED_PAUSE`]. A client that keeps sending what
//!   there is no room for costs the server one read per pause.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_cluster::read_turn::charge_read;
use bowline_cluster::unread::WriteDeadline;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::memory::Account;
use crate::metrics::Metrics;

/// The window for counting resets.
pub(super) const RESETS_WINDOW: Duration = Duration::from_secs(10);
/// The pause in reading after a refused charge. With 512 KiB per read, the connection is then read at 5
/// MiB/s.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
const KIND_HEADERS: u8 = 1;
const KIND_RESET: u8 = 3;
const KIND_CONTINUATION: u8 = 9;
const FLAG_END_HEADERS: u8 = 4;

/// The position in what a client sends.
#[derive(Debug)]
struct Pieces {
    at: At,
    /// Within a head whose last frame has not arrived.
    is_in_head: bool,
    /// The number of pieces that have ended.
    ended: u64,
    resets: u32,
    resets_since: Instant,
    resets_max: u32,
}

#[derive(Debug)]
enum At {
    /// So many bytes of the preface have arrived.
    Preface(usize),
    /// Not HTTP/2.
    Other,
    /// Within the head of a frame.
    Head {
        bytes: [u8; HEAD_BYTES],
        have: usize,
    },
    /// So many bytes of the frame are missing.
    Payload(usize),
}

const BEFORE_A_FRAME: At = At::Head {
    bytes: [0; HEAD_BYTES],
    have: 0,
};

impl Pieces {
    fn new(resets_max: u32) -> Pieces {
        Pieces {
            at: At::Preface(0),
            is_in_head: false,
            ended: 0,
            resets: 0,
            resets_since: Instant::now(),
            resets_max,
        }
    }

    /// Whether the client may be silent.
    fn is_between(&self) -> bool {
        match &self.at {
            At::Other => true,
            At::Head { have: 0, .. } => !self.is_in_head,
            At::Preface(_) | At::Head { .. } | At::Payload(_) => false,
        }
    }

    /// Advances over bytes that were read; fails on too many resets.
    fn take(&mut self, mut read: &[u8]) -> io::Result<()> {
        while let Some(next) = read.first() {
            match &mut self.at {
                At::Other => return Ok(()),
                At::Preface(have) if *next != PREFACE[*have] => self.at = At::Other,
                At::Preface(have) => {
                    *have += 1;
                    read = &read[1..];
                    if *have == PREFACE.len() {
                        self.at = BEFORE_A_FRAME;
                        self.ended += 1;
                    }
                }
                At::Head { bytes, have } => {
                    let count = read.len().min(HEAD_BYTES - *have);
                    bytes[*have..*have + count].copy_from_slice(&read[..count]);
                    *have += count;
                    read = &read[count..];
                    if *have == HEAD_BYTES {
                        let bytes = *bytes;
                        self.begin_frame(&bytes)?;
                    }
                }
                At::Payload(left) => {
                    let count = read.len().min(*left);
                    *left -= count;
                    read = &read[count..];
                    if *left == 0 {
                        self.end_frame();
                    }
                }
            }
        }
        Ok(())
    }

    fn begin_frame(&mut self, head: &[u8; HEAD_BYTES]) -> io::Result<()> {
        let [a, b, c, kind, flags, ..] = *head;
        match kind {
            KIND_HEADERS | KIND_CONTINUATION => self.is_in_head = flags & FLAG_END_HEADERS == 0,
            KIND_RESET => self.count_reset()?,
            _ => {}
        }
        match u32::from_be_bytes([0, a, b, c]) as usize {
            0 => self.end_frame(),
            length => self.at = At::Payload(length),
        }
        Ok(())
    }

    fn end_frame(&mut self) {
        self.at = BEFORE_A_FRAME;
        if !self.is_in_head {
            self.ended += 1;
        }
    }

    fn count_reset(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.resets == 0 || now - self.resets_since >= RESETS_WINDOW {
            (self.resets, self.resets_since) = (0, now);
        }
        self.resets += 1;
        if self.resets > self.resets_max {
            let (count, window) = (self.resets, RESETS_WINDOW);
            let text = format!("{count} calls were reset within {window:?}; see --max-resets");
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

/// The deadline of a piece.
#[derive(Debug)]
struct Deadline {
    piece: u64,
    sleep: Pin<Box<Sleep>>,
}

/// A connection with read deadlines.
#[derive(Debug)]
pub(super) struct DeadlineStream<S> {
    inner: S,
    pieces: Pieces,
    deadline: Option<Deadline>,
    timeout: Duration,
    unwritten: WriteDeadline,
    account: Arc<Account>,
    /// Where the bytes of HTTP/2 are counted.
    metrics: Option<Arc<Metrics>>,
    /// The end of a pause.
    refused: Option<Pin<Box<Sleep>>>,
}

impl<S> DeadlineStream<S> {
    /// Each piece may take `timeout`, a write may wait for `unread_timeout`, and the client may
    /// reset so many calls. Memory of the connection is charged to `account`.
    pub(super) fn new(
        inner: S,
        timeout: Duration,
        unread_timeout: Duration,
        resets_max: u32,
        account: Arc<Account>,
    ) -> DeadlineStream<S> {
        DeadlineStream {
            inner,
            pieces: Pieces::new(resets_max),
            deadline: None,
            timeout,
            unwritten: WriteDeadline::new(unread_timeout),
            account,
            metrics: None,
            refused: None,
        }
    }

    /// Counts the bytes in `metrics`, if the client speaks HTTP/2.
    pub(super) fn counted_in(self, metrics: Arc<Metrics>) -> DeadlineStream<S> {
        DeadlineStream {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Where the bytes are counted: nowhere before the preface of HTTP/2 has begun.
    fn counts(&self) -> Option<&Metrics> {
        let is_http2 = !matches!(self.pieces.at, At::Other);
        self.metrics.as_deref().filter(|_| is_http2)
    }

    fn count_sent(&self, written: &Poll<io::Result<usize>>) {
        if let (Some(metrics), Poll::Ready(Ok(bytes))) = (self.counts(), written) {
            metrics.sent_bytes.add(*bytes as u64);
        }
    }

    /// Waits for the end of a pause.
    fn poll_pause(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if self.account.take_refusal() {
            self.refused = Some(Box::pin(tokio::time::sleep(REFUSED_PAUSE)));
        }
        if let Some(pause) = &mut self.refused {
            ready!(pause.as_mut().poll(task));
            self.refused = None;
        }
        Poll::Ready(())
    }

    /// Checks the deadline while the server waits for the client.
    fn poll_read_deadline(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pieces.is_between() {
            self.deadline = None;
            return Poll::Pending;
        }
        let (piece, timeout) = (self.pieces.ended, self.timeout);
        let deadline = match &mut self.deadline {
            Some(deadline) if deadline.piece == piece => deadline,
            other => other.insert(Deadline {
                piece,
                sleep: Box::pin(tokio::time::sleep(timeout)),
            }),
        };
        match deadline.sleep.as_mut().poll(task) {
            Poll::Ready(()) => {
                let text = format!("the client began to send and did not end within {timeout:?}");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for DeadlineStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_pause(task));
        let before = buffer.filled().len();
        match Pin::new(&mut this.inner).poll_read(task, buffer) {
            Poll::Pending => this.poll_read_deadline(task),
            Poll::Ready(Ok(())) => {
                let read = &buffer.filled()[before..];
                charge_read(task, read.len());
                let taken = this.pieces.take(read);
                if let Some(metrics) = this.counts() {
                    metrics.received_bytes.add(read.len() as u64);
                }
                Poll::Ready(taken)
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for DeadlineStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(task, bytes);
        self.count_sent(&written);
        self.unwritten.note(task, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(task, slices);
        self.count_sent(&written);
        self.unwritten.note(task, written)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Charge, Memory};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut out = length[1..].to_vec();
        out.extend([kind, flags, 0, 0, 0, 1]);
        out.extend(payload);
        out
    }

    #[test]
    fn a_client_may_be_silent_between_pieces_and_not_within() {
        let data = frame(0, 0, b"data");
        let whole_head = frame(KIND_HEADERS, FLAG_END_HEADERS, b"head");
        let mut parts = frame(KIND_HEADERS, 0, b"he");
        parts.extend(frame(KIND_CONTINUATION, 0, b""));
        parts.extend(frame(KIND_CONTINUATION, FLAG_END_HEADERS, b"ad"));
        let pieces = [PREFACE.to_vec(), frame(4, 0, b""), whole_head, parts, data];
        let mut client = Pieces::new(1);
        for (ended, piece) in (0..).zip(&pieces) {
            for byte in piece {
                assert_eq!(client.ended, ended);
                client.take(&[*byte]).unwrap();
            }
            assert!(client.is_between(), "{piece:?}");
            for cut in 1..piece.len() {
                let mut other = Pieces::new(1);
                other.take(&pieces[..ended as usize].concat()).unwrap();
                other.take(&piece[..cut]).unwrap();
                assert!(!other.is_between(), "{cut} bytes of {piece:?}");
            }
        }
        // In one read the result is the same.
        let mut other = Pieces::new(1);
        other.take(&pieces.concat()).unwrap();
        assert!(other.is_between() && other.ended == client.ended);
        let mut old = Pieces::new(1);
        old.take(b"PUT / HTTP/1.1").unwrap();
        assert!(old.is_between(), "HTTP/1 is followed elsewhere");
    }

    #[test]
    fn resets_are_counted_for_a_while() {
        let mut client = Pieces::new(3);
        client.take(PREFACE).unwrap();
        let reset = frame(KIND_RESET, 0, &[0; 4]);
        for _ in 0..3 {
            for _ in 0..3 {
                client.take(&reset).unwrap();
            }
            client.resets_since -= RESETS_WINDOW;
        }
        client.take(&reset.repeat(3)).unwrap();
        let refused = client.take(&reset).unwrap_err().to_string();
        assert!(
            refused.contains("4 calls were reset within 10s"),
            "{refused}"
        );
    }

    fn account() -> Arc<Account> {
        Memory::new(1 << 20, 1 << 20).account()
    }

    /// A client that kept sending messages for which there was no room occupied a processor of the server:
    /// each was read and dropped. The p99 of a good client beside it was three times as long.
    #[tokio::test]
    async fn a_connection_that_was_refused_memory_is_not_read_for_a_moment() {
        let timeout = Duration::from_secs(20);
        let (mut client, server) = duplex(1 << 10);
        let account = account();
        let mut server = DeadlineStream::new(server, timeout, timeout, 1, account.clone());
        client.write_all(PREFACE).await.unwrap();
        let mut buffer = [0; 64];
        for _ in 0..3 {
            assert!(Charge::of(&account, 2 << 20).is_err());
            let before = Instant::now();
            client.write_all(&frame(0, 0, b"data")).await.unwrap();
            let read = tokio::time::timeout(timeout, server.read(&mut buffer)).await;
            assert!(read.expect("a pause ends").unwrap() > 0);
            assert!(before.elapsed() >= REFUSED_PAUSE);
            // Once for each refusal.
            client.write_all(&frame(0, 0, b"data")).await.unwrap();
            let read = tokio::time::timeout(timeout, server.read(&mut buffer)).await;
            assert!(read.expect("a pause ends").unwrap() > 0);
            assert!(server.refused.is_none());
        }
    }

    #[tokio::test]
    async fn what_was_begun_has_a_deadline_that_bytes_do_not_move() {
        let timeout = Duration::from_millis(300);
        let (mut client, server) = duplex(1 << 10);
        let mut server = DeadlineStream::new(server, timeout, timeout, 1, account());
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            let mut buffer = [0; 64];
            loop {
                match server.read(&mut buffer).await {
                    Ok(0) => return (read, None),
                    Ok(count) => read.extend(&buffer[..count]),
                    Err(error) => return (read, Some(error)),
                }
            }
        });
        let mut sent = PREFACE.to_vec();
        client.write_all(PREFACE).await.unwrap();
        // Between two pieces there is no deadline.
        tokio::time::sleep(timeout * 3).await;
        for byte in frame(0, 0, &[7; 64]) {
            // The server closes the connection at the deadline.
            if client.write_all(&[byte]).await.is_err() {
                break;
            }
            sent.push(byte);
            tokio::time::sleep(timeout / 10).await;
        }
        drop(client);
        let (read, error) = reading.await.unwrap();
        assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
        assert!(read.len() > PREFACE.len(), "it had a part of its time");
        assert!(sent.starts_with(&read), "it is handed on as it is");
    }

    /// A client that requested much and read nothing kept its connection, and the queued replies, for ever.
    #[tokio::test]
    async fn a_client_that_reads_nothing_is_dropped_and_one_that_reads_a_little_is_not() {
        let timeout = Duration::from_millis(200);
        for reads in [false, true] {
            let (mut client, server) = duplex(16);
            let mut server = DeadlineStream::new(server, timeout, timeout, 1, account());
            let writing = tokio::spawn(async move { server.write_all(&[7; 160]).await });
            let mut byte = [0; 4];
            while reads && client.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(timeout / 20).await;
            }
            let written = tokio::time::timeout(Duration::from_secs(20), writing).await;
            let written = written
                .expect("it is written, or the client dropped")
                .unwrap();
            match reads {
                true => written.unwrap(),
                false => assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut),
            }
        }
    }
}
