//! The turns of a connection: one read, all calls that are ready, one write.
//!
//! ```text
//! woken calls ─▶ relay ─▶ write ─▶ read ─▶ frames, calls ─┐
//!                 ▲                                        │
//!                 └────────────── until nothing is ready ──┘
//! ```
//!
//! The buffers belong to the thread: a connection that waits holds none, unless its client does not read.
//!
//! While much waits for the client to read it, nothing is read from the client, and nothing is taken from the
//! relay.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::calls::StreamWaker;
use super::connection::{Connection, Drain, OUT_BYTES_MAX, PING_ALIVE};
use super::frame::write_ping;
use super::hot::HotReply;
use super::relay::Relay;
use crate::memory::{self, Account};

/// The most that is read at once.
const INPUT_BYTES: usize = 64 << 10;
/// The most that is read at once from the relay.
const RELAY_BYTES: usize = 32 << 10;
/// After so many reads other tasks run.
const READS_MAX: u32 = 4;
/// A larger buffer is not kept.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The buffers of a thread.
struct Scratch {
    input: Box<[u8]>,
    relay: Box<[u8]>,
    out: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    fn take() -> Scratch {
        SCRATCH.take().unwrap_or_else(|| Scratch {
            input: vec![0; INPUT_BYTES].into(),
            relay: vec![0; RELAY_BYTES].into(),
            out: Vec::with_capacity(INPUT_BYTES),
        })
    }
}

/// The pings of a connection whose client is silent.
struct KeepAlive {
    sleep: Option<Pin<Box<Sleep>>>,
    is_pinged: bool,
}

/// A connection that is served.
pub(crate) struct Front<S, F> {
    io: S,
    connection: Connection<F>,
    account: Option<Arc<Account>>,
    /// What is written of the output.
    written: usize,
    /// Whether what was written may still be in a buffer of the stream, as TLS has one.
    is_unflushed: bool,
    woken: Vec<u32>,
    late: Option<Pin<Box<Sleep>>>,
    unread: Option<Pin<Box<Sleep>>>,
    keep_alive: KeepAlive,
    is_closing: bool,
}

impl<S, F> Front<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<HotReply, Status>>,
{
    pub(super) fn new(io: S, connection: Connection<F>) -> Front<S, F> {
        Front {
            io,
            account: Some(connection.account.clone()),
            connection,
            written: 0,
            is_unflushed: false,
            woken: Vec::new(),
            late: None,
            unread: None,
            keep_alive: KeepAlive {
                sleep: None,
                is_pinged: false,
            },
            is_closing: false,
        }
    }

    /// What the connection keeps for its output.
    #[cfg(test)]
    pub(super) fn kept_output(&self) -> usize {
        self.connection.out.capacity()
    }

    /// Begins no more streams, and ends with the last one.
    pub(crate) fn begin_drain(&mut self) {
        self.connection.begin_drain();
    }

    fn turn(&mut self, task: &mut Task<'_>, scratch: &mut Scratch) -> Poll<io::Result<()>> {
        let mut is_relay_woken = self.connection.wakes.take(task, &mut self.woken);
        for slot in self.woken.drain(..) {
            if let Some(id) = StreamWaker::stream_of(slot) {
                self.connection.woken(id);
            } else if let Poll::Ready((id, result)) = self.connection.calls.poll(slot) {
                self.connection.answered(id, result);
            }
        }
        let mut reads = 0;
        loop {
            if !self.is_closing
                && (mem::take(&mut is_relay_woken) || self.connection.has_relay_due())
                && let Err(reason) = self.connection.poll_relay(&mut scratch.relay)
            {
                self.close(reason);
            }
            let has_more = self.connection.send();
            self.connection.renew_window();
            let is_written = self.poll_write(task)?;
            if self.is_closing {
                return match is_written {
                    true => Pin::new(&mut self.io).poll_shutdown(task),
                    false => Poll::Pending,
                };
            }
            if is_written && (has_more || self.connection.has_relay_due()) {
                continue;
            }
            let connection = &mut self.connection;
            if is_written && connection.drain == Drain::Final && connection.streams.is_empty() {
                self.is_closing = true;
                continue;
            }
            let is_full = connection.relay.as_ref().is_some_and(Relay::is_full);
            if connection.out.len() < OUT_BYTES_MAX && !is_full {
                if reads == READS_MAX {
                    task.waker().wake_by_ref();
                } else if let Poll::Ready(bytes) = self.poll_read(task, scratch)? {
                    reads += 1;
                    if bytes == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    self.connection.now = Instant::now();
                    if let Err(reason) = self.connection.receive(&scratch.input[..bytes]) {
                        self.close(reason as u32);
                    }
                    continue;
                }
            }
            self.poll_timers(task)?;
            if self.connection.out.is_empty() || !is_written {
                return Poll::Pending;
            }
        }
    }

    /// Ends the connection once the reason is written.
    fn close(&mut self, reason: u32) {
        tracing::debug!(reason, "a connection is ended");
        self.connection.write_goaway(reason);
        self.is_closing = true;
    }

    /// Reads into the thread's buffer; no bytes are the end.
    fn poll_read(&mut self, task: &mut Task<'_>, scratch: &mut Scratch) -> io::Result<Poll<usize>> {
        let mut buffer = ReadBuf::new(&mut scratch.input);
        match Pin::new(&mut self.io).poll_read(task, &mut buffer) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(buffer.filled().len())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Writes as much as the client takes; returns whether that is all.
    fn poll_write(&mut self, task: &mut Task<'_>) -> io::Result<bool> {
        let out = &mut self.connection.out;
        while self.written < out.len() {
            self.is_unflushed = true;
            match Pin::new(&mut self.io).poll_write(task, &out[self.written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    out.drain(..mem::take(&mut self.written));
                    return Ok(false);
                }
            }
        }
        out.clear();
        self.written = 0;
        if self.is_unflushed {
            match Pin::new(&mut self.io).poll_flush(task) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending => return Ok(false),
            }
            self.is_unflushed = false;
        }
        Ok(true)
    }

    fn poll_timers(&mut self, task: &mut Task<'_>) -> io::Result<()> {
        let connection = &mut self.connection;
        if connection.incomplete.is_empty() {
            self.late = None;
        }
        while !connection.incomplete.is_empty() {
            let timeout = connection.limits.partial_timeout;
            let Some(begun) = connection.drop_late(Instant::now()) else {
                self.late = None;
                break;
            };
            let until = begun + timeout;
            let late = self
                .late
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if late.as_mut().poll(task).is_pending() {
                break;
            }
            self.late = None;
        }
        while let Some(until) = connection.unread_check {
            let unread = self
                .unread
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if unread.as_mut().poll(task).is_pending() {
                break;
            }
            self.unread = None;
            connection.drop_unread(Instant::now());
        }
        let timeout = connection.limits.keep_alive_timeout;
        let Some(interval) = connection.limits.keep_alive_interval else {
            return Ok(());
        };
        let alive = &mut self.keep_alive;
        let sleep = alive
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(interval)));
        if mem::take(&mut connection.has_pong) && mem::take(&mut alive.is_pinged) {
            sleep.as_mut().reset(Instant::now() + interval);
        }
        while sleep.as_mut().poll(task).is_ready() {
            let due = connection.now + interval;
            if alive.is_pinged {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client does not answer pings",
                ));
            }
            if due > Instant::now() {
                sleep.as_mut().reset(due);
            } else {
                write_ping(&mut connection.out, 0, &PING_ALIVE);
                alive.is_pinged = true;
                sleep.as_mut().reset(Instant::now() + timeout);
            }
        }
        Ok(())
    }
}

impl<S, F> Future for Front<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<HotReply, Status>>,
{
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut scratch = Scratch::take();
        if this.connection.out.is_empty() {
            mem::swap(&mut this.connection.out, &mut scratch.out);
        }
        let mut account = this.account.take();
        let (polled, _) = memory::in_account(&mut account, || this.turn(task, &mut scratch));
        this.account = account;
        if this.connection.out.is_empty() {
            // The connection has none while it waits; the thread keeps the larger one.
            let out = mem::take(&mut this.connection.out);
            if out.capacity() > scratch.out.capacity() && out.capacity() <= KEPT_BYTES_MAX {
                scratch.out = out;
            }
        }
        SCRATCH.set(Some(scratch));
        polled
    }
}
