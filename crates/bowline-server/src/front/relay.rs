//! The relay: the streams of a connection that are not served here, carried to the HTTP library in this process.
//!
//! ```text
//! client ◀──▶ front ◀── pipe in memory ──▶ hyper ──▶ transport::Dispatch
//! ```
//!
//! The pipe is a connection of HTTP/2 of its own, opened with the first such stream. The front is its client. The
//! library is polled by the task of the client's connection, so that nothing is handed from task to task.
//!
//! | | client to library | library to client |
//! |---|---|---|
//! | head | decoded, and written again as literals | as it is: the library has no table (size 0) |
//! | data, resets, windows of streams | as they are, with the other id | the same |
//! | window of the connection | what the library gives back is passed on, but for what the front gave already | the library has 64 KiB, renewed as they are sent |
//! | settings | initial window and frame size are passed on, and acknowledged when the library has | answered here |
//! | pings | answered by the front | answered here |
//!
//! Streams get ids of their own, because a stream may turn out to be one for the relay after later ones have been
//! relayed.
//!
//! Invariants:
//!
//! - At most [`LIBRARY_WINDOW`] bytes of data wait here for the client's windows.
//! - What the client may still send, and what the library has not given back, are together no more than the library
//!   has granted; see [`Relay::take_credit`].
//! - A head goes to the client as a whole: no other frame gets between its parts.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::calls::{Wakes, relay_waker};
use super::frame::{
    FRAME_BYTES_MIN, PREFACE, Partial, WINDOW, flag, kind, setting, write_head, write_ping,
    write_settings, write_settings_ack, write_window_update,
};

/// The capacity of the pipe. The library announces its window before more than this can have been sent.
const PIPE_BYTES: usize = 32 << 10;
/// The library's window for what it sends: the initial one of HTTP/2, which is never enlarged.
pub(super) const LIBRARY_WINDOW: i64 = WINDOW;
/// What is written at most before the client is not read for a while.
const OUT_BYTES_MAX: usize = 256 << 10;
/// What is written at most before new streams are refused.
const HEADS_BYTES_MAX: usize = 768 << 10;
/// Renewed in such steps.
const RENEW_BYTES: u32 = 16 << 10;

/// The library, serving its end of the pipe.
pub(crate) type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts the library at one end of a pipe.
pub(crate) type Open = Box<dyn Fn(DuplexStream) -> Served + Send + Sync>;

/// What the library grants as the connection's window, beyond the initial one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted(pub(super) u32);

/// The settings of the client that the library follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    pub(super) window: u32,
    pub(super) frame_bytes_max: usize,
}

/// The largest frame that the library may send: what fits into its window.
const FRAME_BYTES_MAX: usize = 48 << 10;

impl Followed {
    fn settings(self) -> [(u16, u32); 2] {
        // Between 2¹⁴ and the bound.
        let frame_bytes_max = self.frame_bytes_max.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX);
        [
            (setting::INITIAL_WINDOW_SIZE, self.window),
            (setting::MAX_FRAME_SIZE, frame_bytes_max as u32),
        ]
    }
}

/// The relay of a connection.
pub(super) struct Relay {
    pipe: DuplexStream,
    served: Served,
    has_ended: bool,
    waker: Waker,
    /// What is to be written to the pipe.
    out: Vec<u8>,
    written: usize,
    /// What is to be written once the library has announced its settings: until they are acknowledged, its windows
    /// are the initial ones.
    waiting: Option<Vec<u8>>,
    pub(super) partial: Partial,
    /// The client's ids of the streams.
    ids: HashMap<u32, u32>,
    next_id: u32,
    /// What the library returns of its window, but the client has already been given.
    advanced: u64,
    /// What the front may still send on the connection.
    send_window: i64,
    /// What of that the library has yet to grant.
    ungranted: u32,
    /// What was sent to the client, and the library's window is not yet renewed by.
    sent: u32,
    /// How many settings of the front the library has not acknowledged; for each, whether the client waits for it.
    unacknowledged: VecDeque<bool>,
    /// The parts of a head that is not complete, for the client.
    pub(super) head: Vec<u8>,
    /// The relay must be polled although it was not woken.
    pub(super) is_due: bool,
    frame_bytes_max: usize,
}

impl Relay {
    /// Opens the pipe. `frame_bytes_max` is the largest frame that the library takes.
    pub(super) fn new(
        open: &Open,
        wakes: &Arc<Wakes>,
        followed: Followed,
        granted: Granted,
        frame_bytes_max: usize,
    ) -> Relay {
        let (pipe, other) = tokio::io::duplex(PIPE_BYTES);
        let mut out = PREFACE.to_vec();
        let [window, frame] = followed.settings();
        let fixed = [(setting::HEADER_TABLE_SIZE, 0), (setting::ENABLE_PUSH, 0)];
        write_settings(&mut out, &[fixed[0], fixed[1], window, frame]);
        Relay {
            pipe,
            served: open(other),
            has_ended: false,
            waker: relay_waker(wakes),
            out,
            written: 0,
            waiting: Some(Vec::new()),
            partial: Partial::default(),
            ids: HashMap::new(),
            next_id: 1,
            advanced: u64::from(granted.0),
            send_window: WINDOW + i64::from(granted.0),
            ungranted: granted.0,
            sent: 0,
            unacknowledged: [false].into(),
            head: Vec::new(),
            is_due: true,
            frame_bytes_max,
        }
    }

    /// Whether so much waits for the library that the client must wait.
    pub(super) fn is_full(&self) -> bool {
        self.queued() > OUT_BYTES_MAX
    }

    /// Whether so much waits that no more heads are taken: a few bytes of the client may stand for a long one, and one
    /// read may have thousands.
    pub(super) fn is_overfull(&self) -> bool {
        self.queued() > HEADS_BYTES_MAX
    }

    /// What waits for the library.
    pub(super) fn queued(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, Vec::len);
        waiting + self.out.len() - self.written
    }

    /// What of that the library may have now.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        self.out.len() - self.written
    }

    /// Where frames are written to.
    fn output(&mut self) -> &mut Vec<u8> {
        self.is_due = true;
        self.waiting.as_mut().unwrap_or(&mut self.out)
    }

    /// What the front may still send on the connection.
    #[cfg(test)]
    pub(super) fn send_window(&self) -> i64 {
        self.send_window
    }

    /// The library has announced its settings.
    pub(super) fn acknowledge(&mut self) {
        self.is_due = true;
        write_settings_ack(&mut self.out);
        if let Some(waiting) = self.waiting.take() {
            self.out.extend_from_slice(&waiting);
        }
    }

    /// Whether all ids are used up.
    pub(super) fn is_worn_out(&self) -> bool {
        self.next_id >= super::frame::ID_MAX - 2
    }

    /// Begins a stream of the client, and returns its id on the pipe.
    pub(super) fn begin(&mut self, id: u32, block: &[u8], has_ended: bool) -> u32 {
        let inner = self.next_id;
        self.next_id += 2;
        self.ids.insert(inner, id);
        self.write_block(inner, block, has_ended);
        inner
    }

    /// Writes a head, in as many frames as it takes.
    pub(super) fn write_block(&mut self, inner: u32, block: &[u8], has_ended: bool) {
        let bytes_max = self.frame_bytes_max;
        let out = self.output();
        let (mut frame_kind, mut flags) = (kind::HEADERS, 0);
        if has_ended {
            flags = flag::END_STREAM;
        }
        let mut rest = block;
        loop {
            let (part, after) = rest.split_at(rest.len().min(bytes_max));
            rest = after;
            if rest.is_empty() {
                flags |= flag::END_HEADERS;
            }
            write_head(out, part.len(), frame_kind, flags, inner);
            out.extend_from_slice(part);
            if rest.is_empty() {
                return;
            }
            (frame_kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Passes a frame of the client on.
    pub(super) fn write(&mut self, frame_kind: u8, flags: u8, inner: u32, payload: &[u8]) {
        if frame_kind == kind::DATA {
            self.send_window -= payload.len() as i64;
        }
        let out = self.output();
        write_head(out, payload.len(), frame_kind, flags, inner);
        out.extend_from_slice(payload);
    }

    /// Passes on data for which the client was given back its window already. Refuses what the library has no
    /// window for.
    pub(super) fn write_advanced(
        &mut self,
        inner: u32,
        data: &[u8],
        has_ended: bool,
        client_window: i64,
    ) -> bool {
        let bytes = data.len() as i64;
        if bytes + client_window.max(0) > self.send_window {
            return false;
        }
        self.advanced += data.len() as u64;
        let mut rest = data;
        loop {
            let (part, after) = rest.split_at(rest.len().min(self.frame_bytes_max));
            rest = after;
            let is_last = has_ended && rest.is_empty();
            self.write(
                kind::DATA,
                if is_last { flag::END_STREAM } else { 0 },
                inner,
                part,
            );
            if rest.is_empty() {
                return true;
            }
        }
    }

    /// The library has given back so much of the connection's window; returns how much of it is the client's.
    pub(super) fn take_credit(&mut self, bytes: u32) -> u32 {
        let granted = self.ungranted.min(bytes);
        self.ungranted -= granted;
        self.send_window += i64::from(bytes - granted);
        let advanced = self.advanced.min(u64::from(bytes));
        self.advanced -= advanced;
        bytes - advanced as u32
    }

    /// Passes settings of the client on. The client's acknowledgement follows the library's.
    pub(super) fn follow(&mut self, followed: Followed) {
        self.unacknowledged.push_back(true);
        write_settings(self.output(), &followed.settings());
    }

    /// The library has acknowledged settings; returns whether the client waits for that.
    pub(super) fn take_acknowledgement(&mut self) -> bool {
        self.unacknowledged.pop_front().unwrap_or(false)
    }

    /// Whether the library has yet to acknowledge settings.
    pub(super) fn waits_for_acknowledgement(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Answers a ping of the library.
    pub(super) fn answer(&mut self, payload: &[u8]) {
        self.is_due = true;
        write_ping(&mut self.out, flag::ACK, payload);
    }

    /// So many bytes of data have left for the client or were dropped.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u32;
        if self.sent >= RENEW_BYTES {
            let bytes = std::mem::take(&mut self.sent);
            write_window_update(self.output(), 0, bytes);
        }
    }

    /// The client takes so many bytes more of a stream.
    pub(super) fn open_window(&mut self, inner: u32, bytes: u32) {
        write_window_update(self.output(), inner, bytes);
    }

    /// The client's id of a stream.
    pub(super) fn id_of(&self, inner: u32) -> Option<u32> {
        self.ids.get(&inner).copied()
    }

    /// A stream has ended.
    pub(super) fn forget(&mut self, inner: u32) {
        self.ids.remove(&inner);
    }

    /// Moves bytes to the library, lets it serve, and reads what it has sent. `Ok(0)` is the end.
    pub(super) fn poll(&mut self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let waker = self.waker.clone();
        let task = &mut Context::from_waker(&waker);
        loop {
            let has_written = self.poll_write(task)?;
            if !self.has_ended && self.served.as_mut().poll(task).is_ready() {
                self.has_ended = true;
            }
            let mut read = ReadBuf::new(buffer);
            if Pin::new(&mut self.pipe)
                .poll_read(task, &mut read)?
                .is_ready()
            {
                return Poll::Ready(Ok(read.filled().len()));
            }
            // What was written made room for no more, or the library has taken all of it.
            if !has_written || self.out.is_empty() {
                return Poll::Pending;
            }
        }
    }

    /// Returns whether something was written.
    fn poll_write(&mut self, task: &mut Context<'_>) -> io::Result<bool> {
        let mut has_written = false;
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match Pin::new(&mut self.pipe).poll_write(task, rest) {
                Poll::Ready(Ok(count)) => self.written += count,
                // The end is seen by the next read.
                Poll::Ready(Err(_)) => self.written = self.out.len(),
                Poll::Pending => break,
            }
            has_written = true;
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        } else if self.written >= self.out.len() / 2 {
            // Each byte is moved at most once on the average.
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(has_written)
    }
}
