//! A client's watches: the requests of the stream, and its messages from their queue to the output.
//!
//! ```text
//! DATA ─▶ body ─▶ requests ─▶ WatchSession ─▶ queue ─▶ EncodedDelivery ─▶ DATA
//! ```
//!
//! The stream is served from its head on, whatever comes behind it, since a client may wait for the reply's head before
//! it asks for anything. Messages are written as the windows and the output have room, many to a frame; only the one
//! that did not fit is kept, and charged. A client that does not read its messages makes no more requests, and is noticed
//! as for any other reply.
//!
//! What is received of a message is charged, and has the time of any request to arrive. The window of the stream is
//! given back while there is room for messages.

use std::future::Future;
use std::mem;

use tokio::time::Instant;
use tonic::{Code, Status};

use super::STREAM_WINDOW;
use super::calls::StreamWaker;
use super::connection::{CALL_BYTES, Connection};
use super::frame::{FRAME_BYTES_MIN, Reason, end_frame, kind, write_head, write_window_update};
use super::head::Head;
use super::hot::HotReply;
use super::reply::{write_status_trailers, write_trailers};
use super::stream::Stream;
use super::watching::{Watching, cut_off};
use crate::audited::{Audited, SharedDetails};
use crate::memory::Charge;
use crate::metrics::{Method, Tally};
use crate::service::WatchService;
use crate::status::in_words_of_etcd;

/// The window of a stream is renewed in such steps.
const RENEW_BYTES: u32 = 64 << 10;

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    /// A watch begins.
    pub(super) fn begin_watch(&mut self, id: u32, head: &Head) {
        let fixed_bytes = CALL_BYTES + head.bytes;
        let opened = match Charge::of(&self.account, fixed_bytes) {
            Ok(charge) => {
                let admitted = self.context.admit(&head.terms.credentials, &self.account);
                let admitted = admitted.map_err(Status::from);
                let session = admitted.and_then(|_| WatchService::open(&self.context, &head.terms));
                session.map(|session| (session, charge))
            }
            Err(over) => Err(over.into()),
        };
        let audited = self.context.audits(Method::Watch).map(|audit| {
            let credentials = &head.terms.credentials;
            let details = SharedDetails::default();
            let audited = Audited::begin(&self.context, audit, Method::Watch, credentials, details);
            audited.admit_now()
        });
        let (mut audited, opened) = match audited.transpose() {
            Ok(audited) => (audited, opened),
            Err(full) => (None, Err(full)),
        };
        let code = opened.as_ref().err().map_or(Code::Ok, Status::code);
        let tally = Tally::begin(&self.context.metrics, Method::Watch, self.now);
        tally.stream_begins(code);
        let (session, charge) = match opened {
            Ok(opened) => opened,
            Err(status) => {
                tally.end(code);
                if let Some(audited) = audited {
                    audited.end(Some(&status));
                }
                self.writer.write_refusal(&mut self.out, id, &status);
                self.write_reset(id, Reason::NoError);
                return;
            }
        };
        self.writer.write_stream_head(&mut self.out, id);
        if let Some(audited) = &mut audited {
            audited.begins();
        }
        let watching = Watching::new(
            session,
            (tally, audited),
            StreamWaker::new(&self.wakes, id),
            charge,
            i64::from(STREAM_WINDOW),
            i64::from(self.followed.window),
            self.now,
        );
        self.streams
            .insert(id, Stream::Watching(Box::new(watching)));
        self.queue(id);
    }

    /// Requests have come, or a part of one.
    pub(super) fn watch_data(
        &mut self,
        id: u32,
        data: &[u8],
        has_ended: bool,
    ) -> Result<(), Reason> {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.body.extend_from_slice(data);
        stream.has_client_ended = has_ended;
        self.take_watch_requests(id);
        Ok(())
    }

    /// See [`Watching::take_requests`].
    fn take_watch_requests(&mut self, id: u32) {
        let bytes_max = self.context.settings.message_bytes_max();
        let now = self.now;
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.end.is_some() {
            stream.body = Vec::new();
            return;
        }
        let before = stream.body.len();
        if let Err(status) = stream.take_requests(bytes_max) {
            return self.end_watch(id, Some(in_words_of_etcd(status)));
        }
        let has_taken = stream.body.len() < before;
        if let Err(over) = stream.charge() {
            return self.end_watch(id, Some(over.into()));
        }
        if !stream.is_partial() {
            stream.partial_since = None;
        } else if stream.has_client_ended {
            return self.end_watch(id, Some(cut_off()));
        } else if stream.partial_since.is_none() || has_taken {
            stream.partial_since = Some(now);
            self.note_incomplete(id);
        }
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.consumed >= RENEW_BYTES && !stream.session.is_full() {
            let bytes = mem::take(&mut stream.consumed);
            stream.receive_window += i64::from(bytes);
            write_window_update(&mut self.out, id, bytes);
        }
        if has_taken {
            self.wake_watch(id);
        }
    }

    /// There may be something for the client, whose time to read it begins now.
    pub(super) fn wake_watch(&mut self, id: u32) {
        let now = Instant::now();
        if let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) {
            if !mem::replace(&mut stream.is_given, true) {
                stream.since = now;
            }
            if !mem::replace(&mut stream.is_queued, true) {
                self.queue(id);
            }
        }
        let timeout = self.limits.unread_timeout;
        self.unread_check.get_or_insert(now + timeout);
    }

    /// Sends a frame of messages.
    pub(super) fn send_watch(&mut self, id: u32) {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        let room = self.send_window.min(stream.send_window);
        let room = usize::try_from(room).unwrap_or(0).min(FRAME_BYTES_MIN);
        if room == 0 {
            stream.is_queued = false;
            return;
        }
        let head_at = self.out.len();
        write_head(&mut self.out, 0, kind::DATA, 0, id);
        let start = self.out.len();
        let has_more = stream.write(&mut self.out, room);
        if self.out.len() > start + room {
            stream.rest = self.out.split_off(start + room);
        }
        let bytes = self.out.len() - start;
        match bytes {
            0 => self.out.truncate(head_at),
            _ => end_frame(&mut self.out, head_at),
        }
        self.send_window -= bytes as i64;
        stream.send_window -= bytes as i64;
        self.is_held_next = true;
        if bytes > 0 {
            stream.since = Instant::now();
        }
        stream.is_given = has_more;
        stream.is_queued = has_more;
        let charged = stream.charge();
        let ended = match stream.rest.is_empty() {
            true => stream.end.take(),
            false => None,
        };
        let is_waiting = !stream.body.is_empty();
        if has_more {
            self.queue(id);
        }
        if let Some(end) = ended {
            return self.end_watch(id, end);
        }
        if let Err(over) = charged {
            return self.end_watch(id, Some(over.into()));
        }
        if is_waiting {
            self.take_watch_requests(id);
        }
    }

    /// Ends the stream of a client's watches.
    pub(super) fn end_watch(&mut self, id: u32, status: Option<Status>) {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.rest.is_empty() {
            // A message is sent as a whole.
            stream.end = Some(status);
            stream.partial_since = None;
            return;
        }
        let has_client_ended = stream.has_client_ended;
        if let Some(Stream::Watching(stream)) = self.streams.remove(&id) {
            stream.end(status.as_ref());
        }
        match status {
            Some(status) => write_status_trailers(&mut self.out, id, &status),
            None => write_trailers(&mut self.out, id),
        }
        if !has_client_ended {
            self.write_reset(id, Reason::NoError);
        }
    }
}
