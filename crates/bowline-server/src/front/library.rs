//! The streams of the relay: their hand-over to the library, and what it sends on its way to the client.
//!
//! Data waits for the client's window of the connection, which it shares with the replies of the hot calls; the
//! window of the stream is the library's business, which follows the client's. What waits keeps its order within a
//! stream.

use std::future::Future;
use std::mem;
use std::task::Poll;

use bytes::Bytes;
use tonic::Status;

use super::connection::{Connection, Held, OUT_BYTES_MAX, SLACK_BYTES};
use super::frame::{
    FRAME_BYTES_MIN, FrameHead, Reason, WINDOW, flag, kind, number, write_head, write_settings_ack,
};
use super::head::Head;
use super::hot::HotReply;
use super::relay::{Granted, LIBRARY_WINDOW, Relay};
use super::reply::EMPTY_TABLE;
use super::stream::{Relayed, Stream};
use super::{CONNECTION_WINDOW, FRAME_BYTES};
use crate::memory::{Charge, OverBudget};

/// Smaller heads are not charged: the number of streams is bounded.
const HEAD_BYTES_FREE: usize = 1 << 10;
/// So many of the frames that wait are looked at for one of the same stream.
const NEWEST_HELD: usize = 64;
/// The library sends no longer frames.
const FRAME_BYTES_MAX: usize = LIBRARY_WINDOW as usize;

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    /// The relay, opened if it is not.
    fn relay(&mut self) -> &mut Relay {
        let granted = Granted(CONNECTION_WINDOW + SLACK_BYTES - WINDOW as u32);
        self.relay.get_or_insert_with(|| {
            let bytes_max = FRAME_BYTES as usize;
            Relay::new(&self.open, &self.wakes, self.followed, granted, bytes_max)
        })
    }

    /// Hands a new stream to the relay.
    pub(super) fn relay_stream(
        &mut self,
        id: u32,
        head: &Head,
        has_ended: bool,
    ) -> Result<(), Reason> {
        if self.relay().is_worn_out() || self.relay().is_overfull() {
            self.reset(id, Reason::Refused);
            return Ok(());
        }
        let Ok(charge) = self.charge_head(head) else {
            match head.is_grpc {
                true => self.refuse(id, &OverBudget.into(), has_ended),
                false => self.reset(id, Reason::Refused),
            }
            return Ok(());
        };
        let relayed = Relayed {
            inner: self.relay().begin(id, &head.block, has_ended),
            has_client_ended: has_ended,
            has_server_ended: false,
            is_reset: false,
            _charge: charge,
        };
        self.streams.insert(id, Stream::Relayed(relayed));
        Ok(())
    }

    /// Charges a head for as long as its stream has it.
    pub(super) fn charge_head(&self, head: &Head) -> Result<Option<Charge>, OverBudget> {
        match head.bytes > HEAD_BYTES_FREE {
            true => Charge::of(&self.account, head.bytes).map(Some),
            false => Ok(None),
        }
    }

    /// Hands a stream to the relay whose request has come in part, or is here as a whole.
    pub(super) fn relay_request(
        &mut self,
        id: u32,
        body: Option<&[u8]>,
        has_ended: bool,
    ) -> Result<(), Reason> {
        let Some(Stream::Receiving(mut stream)) = self.streams.remove(&id) else {
            return Ok(());
        };
        // It is charged again.
        stream.head_charge = None;
        self.relay_stream(id, &stream.head, false)?;
        let Some(Stream::Relayed(relayed)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        relayed.has_client_ended = has_ended;
        let inner = relayed.inner;
        // The library does not know what the client has opened since.
        let opened = stream.send_window - i64::from(self.followed.window);
        if let Ok(opened @ 1..) = u32::try_from(opened) {
            self.relay().open_window(inner, opened);
        }
        let body = body.unwrap_or(&stream.body);
        // What may still come is what the client was given, and what is about to be.
        let window = self.receive_window + i64::from(self.consumed);
        if (!body.is_empty() || has_ended)
            && !self.relay().write_advanced(inner, body, has_ended, window)
        {
            self.reset(id, Reason::Refused);
            return Ok(());
        }
        Ok(())
    }

    /// Both sides of a relayed stream have ended.
    pub(super) fn end_relayed(&mut self, id: u32) {
        if let Some(Stream::Relayed(stream)) = self.streams.remove(&id)
            && let Some(relay) = &mut self.relay
        {
            relay.forget(stream.inner);
        }
    }

    /// Whether the relay has something to do, and there is room for what it may send.
    pub(super) fn has_relay_due(&self) -> bool {
        self.out.len() < OUT_BYTES_MAX && self.relay.as_ref().is_some_and(|relay| relay.is_due)
    }

    /// Exchanges frames with the library until both wait.
    pub(super) fn poll_relay(&mut self, buffer: &mut [u8]) -> Result<(), u32> {
        while let Some(mut relay) = self.relay.take() {
            relay.is_due = self.out.len() >= OUT_BYTES_MAX;
            if relay.is_due {
                self.relay = Some(relay);
                break;
            }
            let bytes = match relay.poll(buffer) {
                Poll::Pending => {
                    self.relay = Some(relay);
                    break;
                }
                Poll::Ready(Ok(bytes)) if bytes > 0 => bytes,
                Poll::Ready(_) => {
                    self.end_of_library(&mut relay);
                    break;
                }
            };
            let mut input = &buffer[..bytes];
            let mut partial = mem::take(&mut relay.partial);
            loop {
                let taken = partial.next(&mut input, FRAME_BYTES_MAX, |head, payload| {
                    self.frame_of_library(&mut relay, head, payload)
                });
                match taken {
                    Ok(Some(result)) => result?,
                    Ok(None) => break,
                    Err(_) => return Err(Reason::Internal as u32),
                }
            }
            relay.partial = partial;
            self.relay = Some(relay);
        }
        Ok(())
    }

    /// The library has ended the pipe: its streams are over, and what it had to say of settings is said here.
    pub(super) fn end_of_library(&mut self, relay: &mut Relay) {
        let is_relayed = |stream: &Stream| matches!(stream, Stream::Relayed(_));
        let streams = self.streams.iter();
        let relayed: Vec<u32> = streams
            .filter(|(_, stream)| is_relayed(stream))
            .map(|(id, _)| *id)
            .collect();
        for id in relayed {
            self.streams.remove(&id);
            self.write_reset(id, Reason::Internal);
        }
        for held in mem::take(&mut self.held) {
            if held.kind == kind::SETTINGS {
                self.out.extend_from_slice(&held.payload);
            }
        }
        while relay.waits_for_acknowledgement() {
            if relay.take_acknowledgement() {
                write_settings_ack(&mut self.out);
            }
        }
    }

    /// Handles a frame of the library. `Err` is its reason to end the connection.
    pub(super) fn frame_of_library(
        &mut self,
        relay: &mut Relay,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<(), u32> {
        match head.kind {
            kind::DATA => self.data_of_library(relay, head, payload),
            kind::HEADERS | kind::CONTINUATION => self.head_of_library(relay, head, payload),
            kind::RST_STREAM => {
                if let Some(id) = relay.id_of(head.id) {
                    relay.forget(head.id);
                    let is_error = number(payload) != Some(Reason::NoError as u32);
                    if !is_error && self.hold_reset(id, payload) {
                        return Ok(());
                    }
                    self.streams.remove(&id);
                    let dropped = self.drop_held(id);
                    relay.sent(dropped);
                    write_head(&mut self.out, payload.len(), head.kind, 0, id);
                    self.out.extend_from_slice(payload);
                    self.note_reset(id);
                }
            }
            kind::SETTINGS if head.has(flag::ACK) && relay.take_acknowledgement() => {
                self.acknowledge_settings();
            }
            kind::SETTINGS if head.has(flag::ACK) => {}
            kind::SETTINGS => relay.acknowledge(),
            kind::PING if !head.has(flag::ACK) => relay.answer(payload),
            kind::GOAWAY => match payload.get(4..).and_then(number) {
                Some(0) => {}
                reason => return Err(reason.unwrap_or(Reason::Internal as u32)),
            },
            kind::WINDOW_UPDATE => {
                let bytes = number(payload).unwrap_or_default();
                if head.id == 0 {
                    self.consumed += relay.take_credit(bytes);
                } else if let Some(id) = relay.id_of(head.id) {
                    write_head(&mut self.out, payload.len(), head.kind, 0, id);
                    self.out.extend_from_slice(payload);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The library follows the client's settings. What it sent before that goes first, because the client counts it in
    /// the windows that it had then.
    fn acknowledge_settings(&mut self) {
        if self.held.is_empty() {
            write_settings_ack(&mut self.out);
            return;
        }
        let mut frame = Vec::new();
        write_settings_ack(&mut frame);
        self.held.push_back(Held {
            id: 0,
            kind: kind::SETTINGS,
            flags: 0,
            payload: frame.into(),
        });
    }

    /// Holds a reset without an error behind what waits of its stream: it ends a reply that is complete. Returns whether
    /// something waits.
    fn hold_reset(&mut self, id: u32, payload: &[u8]) -> bool {
        let Some(Stream::Relayed(stream)) = self.streams.get_mut(&id) else {
            return false;
        };
        if !self.held.iter().any(|held| held.id == id) {
            return false;
        }
        stream.is_reset = true;
        let mut frame = Vec::new();
        write_head(&mut frame, payload.len(), kind::RST_STREAM, 0, id);
        frame.extend_from_slice(payload);
        self.held.push_back(Held {
            id,
            kind: kind::RST_STREAM,
            flags: 0,
            payload: frame.into(),
        });
        true
    }

    fn data_of_library(&mut self, relay: &mut Relay, head: FrameHead, payload: &[u8]) {
        let Some(id) = relay.id_of(head.id) else {
            // The client has reset the stream.
            relay.sent(payload.len());
            return;
        };
        let account = self.account.clone();
        let has_room = payload.len() as i64 <= self.send_window;
        if self.held.is_empty() && has_room {
            self.send_window -= payload.len() as i64;
            relay.sent(payload.len());
            write_head(&mut self.out, payload.len(), kind::DATA, head.flags, id);
            self.out.extend_from_slice(payload);
            if head.has(flag::END_STREAM) {
                self.server_has_ended(relay, id);
            }
            return;
        }
        if let Some(last) = self.last_held(id)
            && last.kind == kind::DATA
            && last.payload.len() + payload.len() <= FRAME_BYTES_MIN
        {
            // Many small frames are kept as one: what each needs besides its bytes is not counted.
            let joined = [&last.payload, payload].concat();
            (last.payload, last.flags) = (account.hand_over(joined.into()), head.flags);
            return;
        }
        self.held.push_back(Held {
            id,
            kind: kind::DATA,
            flags: head.flags,
            payload: self.account.hand_over(Bytes::copy_from_slice(payload)),
        });
    }

    /// The last frame of a stream that waits, if it is one of the newest, and no settings are behind it.
    fn last_held(&mut self, id: u32) -> Option<&mut Held> {
        let mut newest = self.held.iter_mut().rev().take(NEWEST_HELD);
        let last = newest.find(|held| held.id == id || held.kind == kind::SETTINGS)?;
        (last.id == id).then_some(last)
    }

    fn head_of_library(&mut self, relay: &mut Relay, head: FrameHead, payload: &[u8]) {
        let Some(id) = relay.id_of(head.id) else {
            return;
        };
        let is_first = head.kind == kind::HEADERS;
        if is_first && !relay.head.is_empty() {
            // The client has reset a stream between the parts of its head, which may have had the size of the table.
            relay.head.clear();
            self.writer.empty_table_again();
        }
        let lead: &[u8] = match is_first && self.writer.must_empty_table() {
            true if payload.first() != Some(&EMPTY_TABLE) => &[EMPTY_TABLE],
            _ => &[],
        };
        let bytes = lead.len() + payload.len();
        write_head(&mut relay.head, bytes, head.kind, head.flags, id);
        relay.head.extend_from_slice(lead);
        relay.head.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return;
        }
        let frames = mem::take(&mut relay.head);
        let flags = FrameHead::read(&frames).map_or(0, |first| first.flags);
        if self.held.iter().any(|held| held.id == id) {
            self.held.push_back(Held {
                id,
                kind: kind::HEADERS,
                flags,
                payload: frames.into(),
            });
            return;
        }
        self.out.extend_from_slice(&frames);
        if flags & flag::END_STREAM != 0 {
            self.server_has_ended(relay, id);
        }
        // Its memory is used again.
        relay.head = frames;
        relay.head.clear();
    }

    fn server_has_ended(&mut self, relay: &mut Relay, id: u32) {
        if let Some(Stream::Relayed(stream)) = self.streams.get_mut(&id) {
            stream.has_server_ended = true;
            if stream.has_client_ended {
                relay.forget(stream.inner);
                self.streams.remove(&id);
            }
        }
    }

    /// Sends the first frame that waits, or the part of it that the window lets through. Returns whether something was
    /// sent.
    pub(super) fn send_held(&mut self) -> bool {
        let window = usize::try_from(self.send_window).unwrap_or(0);
        let Some(held) = self.held.front_mut() else {
            return false;
        };
        let Some(mut relay) = self.relay.take() else {
            return false;
        };
        let is_data = held.kind == kind::DATA;
        let bytes = held.payload.len();
        if is_data && bytes > window {
            // What is left counts as unsent from now on.
            let part = held.payload.slice(..window);
            let rest = Bytes::copy_from_slice(&held.payload[window..]);
            let id = held.id;
            if window > 0 {
                held.payload = self.account.hand_over(rest);
                self.send_part(&mut relay, id, 0, &part);
            }
            self.relay = Some(relay);
            return window > 0;
        }
        if let Some(held) = self.held.pop_front() {
            match is_data {
                true => self.send_part(&mut relay, held.id, held.flags, &held.payload),
                false => self.out.extend_from_slice(&held.payload),
            }
            if held.kind == kind::RST_STREAM {
                self.streams.remove(&held.id);
                self.note_reset(held.id);
            }
            if held.flags & flag::END_STREAM != 0 {
                self.server_has_ended(&mut relay, held.id);
            }
        }
        self.relay = Some(relay);
        true
    }

    fn send_part(&mut self, relay: &mut Relay, id: u32, flags: u8, part: &[u8]) {
        self.send_window -= part.len() as i64;
        relay.sent(part.len());
        write_head(&mut self.out, part.len(), kind::DATA, flags, id);
        self.out.extend_from_slice(part);
        self.is_held_next = false;
    }

    /// Drops what waits of a stream; returns how many bytes of data that was.
    pub(super) fn drop_held(&mut self, id: u32) -> usize {
        let of_stream = self.held.iter().filter(|held| held.id == id);
        let data = of_stream.filter(|held| held.kind == kind::DATA);
        let bytes = data.map(|held| held.payload.len()).sum();
        self.held.retain(|held| held.id != id);
        bytes
    }
}
