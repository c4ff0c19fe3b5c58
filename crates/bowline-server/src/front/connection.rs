//! What a client sends: frames, and what follows from each.
//!
//! The state of a connection without its input and output, which are in [`super::turn`]. Frames come in through
//! [`Connection::receive`]; what is to be sent is in `out`.
//!
//! A stream whose head is hot collects its message here, and the call is polled at once. All other streams are
//! handed to the relay, as does one that turns out to be unusual: its message is compressed, large, or not decodable.
//!
//! Windows towards the client: each stream has [`STREAM_WINDOW`], which a hot call does not use up; the connection
//! has [`CONNECTION_WINDOW`], given back when a hot call's bytes have arrived and when the library gives back those of
//! the relay.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

use super::calls::{Calls, Wakes};
use super::frame::{
    FRAME_BYTES_MIN, FrameHead, ID_MAX, Partial, Reason, WINDOW, flag, kind, number, setting,
    write_goaway, write_ping, write_reset, write_settings, write_window_update,
};
use super::head::{Head, HeadReader};
use super::hot::{HotReply, HotRequest, Served};
use super::relay::{Followed, Open, Relay};
use super::reply::{PREFIX_BYTES, ReplyWriter, SMALL_BYTES, length_of};
use super::stream::{Call, Receiving, Running, Stream};
use super::{CONNECTION_WINDOW, FRAME_BYTES, Limits, STREAM_WINDOW};
use crate::audited;
use crate::context::Context;
use crate::memory::{Account, Charge, OverBudget};
use crate::metrics::Tally;
use crate::service::{KvService, Terms};
use crate::status::Fault;

/// More output than this lets the client wait.
pub(super) const OUT_BYTES_MAX: usize = 64 << 10;
/// A longer message goes to the relay. It is less than a stream's window, which therefore is never renewed.
const MESSAGE_BYTES_MAX: usize = 512 << 10;
/// What the library's window for the connection is larger than the client's. The library gives nothing back before a
/// third of its window is used up, so this is more than that and a message.
pub(super) const SLACK_BYTES: u32 = 3 << 20;
/// The approximate memory of a waiting call besides its messages.
pub(super) const CALL_BYTES: usize = 4 << 10;
/// The most streams that are reset because of the client in a period.
const FAULTS_MAX: u32 = 1024;
const FAULTS_PERIOD: Duration = Duration::from_secs(60);
/// So many requests are remembered although they have ended.
const INCOMPLETE_MIN: usize = 64;
/// The most parts of a head.
const PARTS_MAX: u32 = 32;
/// The newest streams that were reset, of which more may be on its way.
const RESET_MAX: usize = 64;

/// The payloads of our pings.
pub(super) const PING_DRAIN: [u8; 8] = *b"bwl-gone";
pub(super) const PING_ALIVE: [u8; 8] = *b"bwl-ping";

/// A head of which not all parts have come.
struct OpenBlock {
    id: u32,
    has_ended: bool,
    block: Vec<u8>,
    parts: u32,
}

/// How far a drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drain {
    No,
    /// The client was told, and may have begun streams since.
    Announced,
    /// Newer streams are ignored.
    Final,
}

/// A frame of the relay that waits for the client's window, or for one that does.
pub(super) struct Held {
    pub(super) id: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) payload: Bytes,
}

/// The start of a call.
pub(super) type Start<F> = fn(KvService, Terms, HotRequest) -> F;

/// The state of a connection.
pub(super) struct Connection<F> {
    pub(super) context: Arc<Context>,
    pub(super) account: Arc<Account>,
    service: KvService,
    start: Start<F>,
    pub(super) limits: Limits,
    pub(super) open: Open,
    partial: Partial,
    pub(super) has_settings: bool,
    /// When settings began to be counted, and how many have come since.
    pub(super) settings_since: (Instant, u32),
    heads: HeadReader,
    open_block: Option<OpenBlock>,
    pub(super) streams: BTreeMap<u32, Stream>,
    last_id: u32,
    /// The last stream that is not ignored.
    served_id: u32,
    reset_ids: VecDeque<u32>,
    /// How many streams were reset because of the client, and since when.
    faults: u32,
    faults_since: Instant,
    pub(super) followed: Followed,
    /// What the client takes on the connection.
    pub(super) send_window: i64,
    /// What the client may send on the connection.
    pub(super) receive_window: i64,
    /// What of it is to be given back.
    pub(super) consumed: u32,
    pub(super) wakes: Arc<Wakes>,
    pub(super) calls: Calls<F>,
    pub(super) writer: ReplyWriter,
    pub(super) out: Vec<u8>,
    /// The streams that have something to send.
    pub(super) sending: VecDeque<u32>,
    pub(super) relay: Option<Relay>,
    pub(super) held: VecDeque<Held>,
    /// Whether it is the turn of what is held, and not of a reply, to use the window.
    pub(super) is_held_next: bool,
    /// The requests that are not complete, with the beginning of each.
    pub(super) incomplete: VecDeque<(Instant, u32)>,
    pub(super) drain: Drain,
    /// When to look for replies that the client does not read.
    pub(super) unread_check: Option<Instant>,
    /// The client has answered a ping.
    pub(super) has_pong: bool,
    /// When the bytes being handled were read.
    pub(super) now: Instant,
}

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    /// A connection after its preface.
    pub(super) fn new(
        context: Arc<Context>,
        account: Arc<Account>,
        start: Start<F>,
        limits: Limits,
        open: Open,
    ) -> Connection<F> {
        let wakes = Arc::new(Wakes::default());
        let mut out = Vec::with_capacity(64);
        let greeting = [
            (setting::MAX_CONCURRENT_STREAMS, limits.streams_max),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (setting::MAX_FRAME_SIZE, FRAME_BYTES),
            (setting::MAX_HEADER_LIST_SIZE, limits.header_bytes_max),
        ];
        write_settings(&mut out, &greeting);
        write_window_update(&mut out, 0, CONNECTION_WINDOW - WINDOW as u32);
        Connection {
            service: KvService::new(context.clone()),
            context,
            account,
            start,
            heads: HeadReader::new(limits.header_bytes_max as usize),
            limits,
            open,
            partial: Partial::default(),
            has_settings: false,
            settings_since: (Instant::now(), 0),
            open_block: None,
            streams: BTreeMap::new(),
            last_id: 0,
            served_id: 0,
            reset_ids: VecDeque::new(),
            faults: 0,
            faults_since: Instant::now(),
            followed: Followed {
                window: WINDOW as u32,
                frame_bytes_max: FRAME_BYTES_MIN,
            },
            send_window: WINDOW,
            receive_window: i64::from(CONNECTION_WINDOW),
            consumed: 0,
            calls: Calls::new(wakes.clone()),
            wakes,
            writer: ReplyWriter::default(),
            out,
            sending: VecDeque::new(),
            relay: None,
            held: VecDeque::new(),
            is_held_next: false,
            incomplete: VecDeque::new(),
            drain: Drain::No,
            unread_check: None,
            has_pong: false,
            now: Instant::now(),
        }
    }

    /// Takes in what was read.
    pub(super) fn receive(&mut self, mut input: &[u8]) -> Result<(), Reason> {
        let mut partial = mem::take(&mut self.partial);
        let bytes_max = FRAME_BYTES as usize;
        loop {
            let taken = partial.next(&mut input, bytes_max, |head, payload| {
                self.frame(head, payload)
            });
            match taken {
                Ok(Some(result)) => result?,
                Ok(None) => break,
                Err(_) => return Err(Reason::FrameSize),
            }
        }
        self.partial = partial;
        Ok(())
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        let continues = self.open_block.as_ref().map(|open| open.id);
        let is_continuation = head.kind == kind::CONTINUATION;
        if is_continuation != continues.is_some() || is_continuation && continues != Some(head.id) {
            return Err(Reason::Protocol);
        }
        if !self.has_settings && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Reason::Protocol);
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::PRIORITY => match (head.id, payload.len()) {
                (0, _) => Err(Reason::Protocol),
                (id, 5) if number(payload).is_some_and(|on| on & ID_MAX == id) => {
                    Err(Reason::Protocol)
                }
                (_, 5) => Ok(()),
                // A stream that was not begun cannot be reset (RFC 9113, section 6.4).
                (id, _) if self.is_idle(id) => Err(Reason::FrameSize),
                (id, _) => self.fail(id, Reason::FrameSize),
            },
            kind::RST_STREAM => self.reset_by_client(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PUSH_PROMISE => Err(Reason::Protocol),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => match (head.id, payload.len()) {
                (0, 8..) => Ok(()),
                (0, _) => Err(Reason::FrameSize),
                _ => Err(Reason::Protocol),
            },
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            _ => Ok(()),
        }
    }

    /// Whether the client has not begun this stream.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last_id || id.is_multiple_of(2)
    }

    fn data(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if self.is_idle(head.id) {
            return Err(Reason::Protocol);
        }
        let bytes = payload.len() as i64;
        self.receive_window -= bytes;
        if self.receive_window < 0 {
            return Err(Reason::FlowControl);
        }
        let data = head.unpadded(payload).ok_or(Reason::Protocol)?;
        let has_ended = head.has(flag::END_STREAM);
        match self.streams.get_mut(&head.id) {
            Some(Stream::Relayed(stream)) if stream.is_reset => {
                self.consumed += payload.len() as u32;
                Ok(())
            }
            Some(Stream::Relayed(stream)) if !stream.has_client_ended => {
                stream.has_client_ended = has_ended;
                let (inner, is_over) = (stream.inner, has_ended && stream.has_server_ended);
                if let Some(relay) = &mut self.relay {
                    relay.write(head.kind, head.flags, inner, payload);
                }
                if is_over {
                    self.end_relayed(head.id);
                }
                Ok(())
            }
            Some(Stream::Receiving(stream)) => {
                self.consumed += payload.len() as u32;
                stream.receive_window -= bytes;
                if stream.receive_window < 0 {
                    return self.fail(head.id, Reason::FlowControl);
                }
                if has_ended && stream.body.is_empty() {
                    return self.request(head.id, data);
                }
                stream.body.extend_from_slice(data);
                if has_ended {
                    let body = mem::take(&mut stream.body);
                    return self.request(head.id, &body);
                }
                self.more_of_request(head.id)
            }
            Some(Stream::Watching(stream)) if !stream.has_client_ended => {
                self.consumed += payload.len() as u32;
                if !stream.take_window(payload.len()) {
                    return self.fail(head.id, Reason::FlowControl);
                }
                self.watch_data(head.id, data, has_ended)
            }
            Some(_) => {
                self.consumed += payload.len() as u32;
                self.fail(head.id, Reason::StreamClosed)
            }
            None => {
                self.consumed += payload.len() as u32;
                match self.reset_ids.contains(&head.id) {
                    true => Ok(()),
                    false => self.fail(head.id, Reason::StreamClosed),
                }
            }
        }
    }

    /// A part of a message has come.
    fn more_of_request(&mut self, id: u32) -> Result<(), Reason> {
        let Some(Stream::Receiving(stream)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if let Some((prefix, rest)) = stream.body.split_first_chunk::<PREFIX_BYTES>() {
            let bytes = length_of(prefix);
            if bytes.is_none_or(|bytes| bytes > MESSAGE_BYTES_MAX || rest.len() > bytes) {
                return self.relay_request(id, None, false);
            }
        }
        let bytes = stream.body.len();
        if bytes <= SMALL_BYTES {
            return Ok(());
        }
        let account = &self.account;
        let charge = stream
            .charge
            .get_or_insert_with(|| Charge::none(account.clone()));
        match charge.set(bytes) {
            Ok(()) => Ok(()),
            Err(over) => {
                self.refuse(id, &over.into(), false);
                Ok(())
            }
        }
    }

    /// A request is complete.
    fn request(&mut self, id: u32, body: &[u8]) -> Result<(), Reason> {
        if self
            .incomplete
            .back()
            .is_some_and(|(_, newest)| *newest == id)
        {
            self.incomplete.pop_back();
        }
        let Some(Stream::Receiving(stream)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let Some(Served::Call(method)) = stream.head.hot else {
            return Ok(());
        };
        let message = match body.split_first_chunk::<PREFIX_BYTES>() {
            Some((prefix, message)) if length_of(prefix) == Some(message.len()) => message,
            _ => return self.relay_request(id, Some(body), true),
        };
        let request = match HotRequest::decode(method, message) {
            Ok(request) if message.len() <= MESSAGE_BYTES_MAX => request,
            _ => return self.relay_request(id, Some(body), true),
        };
        let (send_window, begun) = (stream.send_window, stream.begun);
        let terms = stream.head.terms.clone();
        let mut charge = stream.charge.take();
        if body.len() > SMALL_BYTES {
            let account = &self.account;
            let charge = charge.get_or_insert_with(|| Charge::none(account.clone()));
            if let Err(over) = charge.set(body.len()) {
                self.refuse(id, &over.into(), true);
                return Ok(());
            }
        }
        let tally = Tally::begin(&self.context.metrics, method.method(), begun);
        let admitted = self.context.admit(&terms.credentials, &self.account);
        let (principal, refused) = match admitted {
            Ok(principal) => (principal, None),
            Err(fault) => (None, Some(fault)),
        };
        let call = Call {
            send_window,
            tally,
            principal,
        };
        if let Some(fault) = refused {
            let status = Status::from(fault);
            audited::refused(&self.context, method.method(), &terms.credentials, &status);
            self.streams.remove(&id);
            self.answer(id, call, Err(status));
            return Ok(());
        }
        let slot = self
            .calls
            .start(id, (self.start)(self.service.clone(), terms, request));
        match self.calls.poll(slot) {
            Poll::Ready((_, result)) => {
                self.streams.remove(&id);
                self.answer(id, call, result);
                Ok(())
            }
            Poll::Pending => {
                let mut charge = charge.unwrap_or_else(|| Charge::none(self.account.clone()));
                if charge.set(charge.bytes() + CALL_BYTES).is_err() {
                    self.calls.end(slot);
                    self.reset(id, Reason::Cancel);
                    return Ok(());
                }
                let running = Running {
                    slot,
                    call,
                    _charge: charge,
                };
                self.streams.insert(id, Stream::Running(running));
                Ok(())
            }
        }
    }

    pub(super) fn write_reset(&mut self, id: u32, reason: Reason) {
        write_reset(&mut self.out, id, reason);
        self.note_reset(id);
    }

    /// The client may send more of this stream before it knows.
    pub(super) fn note_reset(&mut self, id: u32) {
        if self.reset_ids.len() == RESET_MAX {
            self.reset_ids.pop_front();
        }
        self.reset_ids.push_back(id);
    }

    /// Ends a stream because of what the client did.
    pub(super) fn fail(&mut self, id: u32, reason: Reason) -> Result<(), Reason> {
        if self.now.duration_since(self.faults_since) >= FAULTS_PERIOD {
            (self.faults_since, self.faults) = (self.now, 0);
        }
        self.faults += 1;
        if self.faults > FAULTS_MAX {
            return Err(Reason::EnhanceYourCalm);
        }
        self.reset(id, reason);
        Ok(())
    }

    /// Ends a stream that there is no room for.
    pub(super) fn reset(&mut self, id: u32, reason: Reason) {
        self.drop_stream(id, reason as u32);
        self.write_reset(id, reason);
    }

    /// Drops a stream, and resets it on the pipe.
    fn drop_stream(&mut self, id: u32, code: u32) {
        match self.streams.remove(&id) {
            Some(Stream::Running(running)) => self.calls.end(running.slot),
            Some(Stream::Relayed(stream)) => {
                if let Some(relay) = &mut self.relay
                    && !stream.is_reset
                {
                    relay.write(kind::RST_STREAM, 0, stream.inner, &code.to_be_bytes());
                    relay.forget(stream.inner);
                }
                let bytes = self.drop_held(id);
                if let Some(relay) = &mut self.relay {
                    relay.sent(bytes);
                }
            }
            Some(Stream::Receiving(_) | Stream::Sending(_) | Stream::Watching(_)) | None => {}
        }
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if head.id.is_multiple_of(2) {
            return Err(Reason::Protocol);
        }
        let mut block = head.unpadded(payload).ok_or(Reason::Protocol)?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Reason::FrameSize)?;
            depends_on_itself = number(priority).is_some_and(|on| on & ID_MAX == head.id);
            block = rest;
        }
        let has_ended = head.has(flag::END_STREAM);
        if depends_on_itself {
            return Err(Reason::Protocol);
        }
        if head.has(flag::END_HEADERS) {
            return self.block(head.id, has_ended, block);
        }
        self.open_block = Some(OpenBlock {
            id: head.id,
            has_ended,
            block: block.to_vec(),
            parts: 0,
        });
        Ok(())
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        let Some(open) = &mut self.open_block else {
            return Err(Reason::Protocol);
        };
        open.parts += 1;
        // A block is about as long as what it stands for, or shorter.
        let bytes_max = (self.limits.header_bytes_max as usize).max(FRAME_BYTES as usize);
        if open.block.len() + payload.len() > bytes_max || open.parts > PARTS_MAX {
            return Err(Reason::EnhanceYourCalm);
        }
        open.block.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        match self.open_block.take() {
            Some(open) => self.block(open.id, open.has_ended, &open.block),
            None => Ok(()),
        }
    }

    /// A head is complete: of a new stream, or the end of one.
    fn block(&mut self, id: u32, has_ended: bool, block: &[u8]) -> Result<(), Reason> {
        let head = self.heads.read(block)?;
        if id <= self.last_id {
            return self.trailers(id, has_ended, &head);
        }
        self.last_id = id;
        if self.drain != Drain::Final {
            self.served_id = id;
        }
        if self.drain == Drain::Final {
            self.note_reset(id);
            return Ok(());
        }
        if self.streams.len() >= self.limits.streams_max as usize {
            self.reset(id, Reason::Refused);
            return Ok(());
        }
        if head.is_too_large {
            self.writer.write_too_large(&mut self.out, id);
            if !has_ended {
                self.write_reset(id, Reason::NoError);
            }
            return Ok(());
        }
        if head.hot.is_none() || has_ended {
            return self.relay_stream(id, &head, has_ended);
        }
        if head.hot == Some(Served::Watch) {
            self.begin_watch(id, &head);
            return Ok(());
        }
        self.note_incomplete(id);
        let Ok(head_charge) = self.charge_head(&head) else {
            self.refuse(id, &OverBudget.into(), false);
            return Ok(());
        };
        let receiving = Receiving {
            head,
            head_charge,
            body: Vec::new(),
            charge: None,
            receive_window: i64::from(STREAM_WINDOW),
            send_window: i64::from(self.followed.window),
            begun: self.now,
        };
        self.streams.insert(id, Stream::Receiving(receiving));
        Ok(())
    }

    /// A message of a stream begins to arrive.
    pub(super) fn note_incomplete(&mut self, id: u32) {
        // Those that have ended since are dropped now and then, so that the oldest one does not keep them all.
        if self.incomplete.len() > INCOMPLETE_MIN + 2 * self.streams.len() {
            let streams = &self.streams;
            self.incomplete
                .retain(|(begun, id)| streams.get(id).is_some_and(|it| it.is_arriving(*begun)));
        }
        self.incomplete.push_back((self.now, id));
    }

    fn trailers(&mut self, id: u32, has_ended: bool, head: &Head) -> Result<(), Reason> {
        match self.streams.get_mut(&id) {
            Some(Stream::Relayed(stream)) if stream.is_reset => Ok(()),
            Some(Stream::Relayed(stream)) if !stream.has_client_ended => {
                if !has_ended || head.is_too_large {
                    return self.fail(id, Reason::Protocol);
                }
                if self.relay.as_ref().is_some_and(Relay::is_overfull) {
                    self.reset(id, Reason::EnhanceYourCalm);
                    return Ok(());
                }
                stream.has_client_ended = true;
                let (inner, is_over) = (stream.inner, stream.has_server_ended);
                if let Some(relay) = &mut self.relay {
                    relay.write_block(inner, &head.block, true);
                }
                if is_over {
                    self.end_relayed(id);
                }
                Ok(())
            }
            Some(Stream::Receiving(_)) => {
                if !has_ended || head.is_too_large {
                    return self.fail(id, Reason::Protocol);
                }
                self.relay_request(id, None, false)?;
                match self.streams.contains_key(&id) {
                    true => self.trailers(id, has_ended, head),
                    false => Ok(()),
                }
            }
            Some(Stream::Watching(stream)) if !stream.has_client_ended => {
                if !has_ended || head.is_too_large {
                    return self.fail(id, Reason::Protocol);
                }
                self.watch_data(id, &[], true)
            }
            Some(_) => self.fail(id, Reason::StreamClosed),
            None if self.reset_ids.contains(&id) => Ok(()),
            None => Err(Reason::StreamClosed),
        }
    }

    fn reset_by_client(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if self.is_idle(head.id) {
            return Err(Reason::Protocol);
        }
        let code = match payload.len() {
            4 => number(payload).unwrap_or_default(),
            _ => return Err(Reason::FrameSize),
        };
        self.drop_stream(head.id, code);
        Ok(())
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if head.id != 0 {
            return Err(Reason::Protocol);
        }
        if payload.len() != 8 {
            return Err(Reason::FrameSize);
        }
        if !head.has(flag::ACK) {
            write_ping(&mut self.out, flag::ACK, payload);
        } else if *payload == PING_ALIVE {
            self.has_pong = true;
        } else if *payload == PING_DRAIN && self.drain == Drain::Announced {
            self.drain = Drain::Final;
            write_goaway(&mut self.out, self.last_id, Reason::NoError as u32);
        }
        Ok(())
    }

    /// Tells the client to begin no more streams.
    pub(super) fn begin_drain(&mut self) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            write_goaway(&mut self.out, ID_MAX, Reason::NoError as u32);
            write_ping(&mut self.out, 0, &PING_DRAIN);
        }
    }

    /// Ends the connection for a reason.
    pub(super) fn write_goaway(&mut self, reason: u32) {
        write_goaway(&mut self.out, self.served_id, reason);
    }

    /// Drops the requests that did not arrive in time; returns the beginning of the oldest one that has time left.
    pub(super) fn drop_late(&mut self, now: Instant) -> Option<Instant> {
        let timeout = self.limits.partial_timeout;
        while let Some((begun, id)) = self.incomplete.front().copied() {
            let stream = self.streams.get(&id);
            if stream.is_some_and(|stream| stream.is_arriving(begun)) {
                if now < begun + timeout {
                    return Some(begun);
                }
                self.account.memory().late_requests.add(1);
                let status = Fault::PartialRequest(timeout).into();
                match stream {
                    Some(Stream::Watching(_)) => self.end_watch(id, Some(status)),
                    _ => self.refuse(id, &status, false),
                }
            }
            self.incomplete.pop_front();
        }
        None
    }
}
