//! `KV.Range` over many keys, in bounded memory.
//!
//! A gRPC message begins with its length, so a single pass cannot send a reply while it reads. A range is
//! read into memory up to [`WHOLE_BYTES`]; most end there, and are answered at once. One that does not is
//! *long*: what was read is dropped, the rest of the range is measured in keys and bytes, and a second pass
//! over the same snapshot encodes it in parts, no faster than the client takes them. This costs two passes.
//! The alternative, buffering up to a larger bound, would cost memory for each slow client.
//!
//! ```text
//! header field | parts: kvs, kvs, …                  | more, count
//!              | one message, whose fields may come one after another
//! ```
//!
//! A connection has as many such ranges under way as there are threads to read them, and a long one is under
//! way until the client has taken it: a client that requests everything and reads nothing waits for itself
//! only.
//!
//! The keys beyond a limit are only counted, which may take as long as reading them would: on a thread for
//! reads, also where the reply was read on the caller's thread, and without their values ([`Beyond`]).
//!
//! A range sorted by something other than the key must be in memory as a whole; with a limit, what the limit
//! lets through. That is measured first, and charged to the connection.
//!
//! Invariants:
//!
//! - Both passes are over one snapshot, so the length matches the contents.
//! - A long range keeps in memory the part being sent and the part being made; before the client takes it,
//!   nothing.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};

use bowline::{Entry, EntryRef, Revision, Snapshot, Value};
use bowline_cluster::{ReadLevel, ReadPoint};
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Caller, Need, RangeOp, SortOrder, SortTarget};
use bytes::{BufMut, Bytes, BytesMut};
use futures_core::Stream;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use prost::Message;
use tonic::body::Body;
use tonic::{Response, Status};

use super::answer::Answer;
use super::encoded::encode_if_large;
use super::etcd_range::{Beyond, has_bounds, passes, range_of};
use super::stream::{Stepwise, stepwise};
use crate::context::Context;
use crate::convert;
use crate::memory::{Charge, OverBudget, current_account};
use crate::read_threads::ReadThreads;
use crate::status::{Fault, status};

/// The largest reply that is answered at once.
const WHOLE_BYTES: usize = 1 << 20;
/// Up to so many keys are read on the caller's thread.
const FEW_KEYS: u64 = 16;
/// The size of a part of a long reply.
const PART_BYTES: usize = 256 << 10;
/// The charge of a long reply: the part being made, one as a message, and two on their way.
const CHARGED_BYTES: usize = 4 * PART_BYTES;

/// Whether this module reads the range: not single keys, and not counts only. With a limit of 1 a range holds
/// as much memory as a single key, in whatever order.
pub(super) fn is_wide(op: &RangeOp) -> bool {
    !op.range_end.is_empty() && !op.count_only && op.limit != 1
}

pub(super) async fn range(
    context: &Arc<Context>,
    caller: &Caller,
    op: RangeOp,
    level: ReadLevel,
) -> Result<Answer<pb::RangeResponse>, Status> {
    let (snapshot, point) = open(context, caller, &op, level).await?;
    let newest = match op.revision {
        Revision::ZERO => snapshot.revision(),
        _ => context.client.db().revision(),
    };
    let header = context.header(newest, point.term);
    let is_by_key = op.sort_target == SortTarget::Key && op.sort_order != SortOrder::Descend;
    if !is_by_key {
        return sorted(context, caller, op, level, &snapshot).await;
    }
    let account = current_account(&context.memory);
    let beyond = Beyond::new(context, &op, &snapshot);
    let whole = match op.limit {
        // With bounds of revisions it may read any number of keys until few have passed.
        1..=FEW_KEYS if !has_bounds(&op) => match read_whole(&snapshot, &op).map_err(status)? {
            Some(Whole {
                reply,
                rest_from: None,
            }) => Ok(reply),
            Some(whole) => {
                let (_turn, beyond) = (account.wide_read().await, beyond.clone());
                let count = move || whole.with_rest(&beyond);
                Ok(context.wide_reads.run(count).await??)
            }
            None => Err(account.wide_read().await),
        },
        _ => {
            let turn = account.wide_read().await;
            let (snapshot, op, beyond) = (snapshot.clone(), op.clone(), beyond.clone());
            let read = move || match read_whole(&snapshot, &op).map_err(status)? {
                Some(whole) => whole.with_rest(&beyond).map(Ok),
                None => Ok(Err(turn)),
            };
            context.wide_reads.run(read).await??
        }
    };
    // A long range keeps its turn until its client has taken it.
    let turn = match whole {
        Ok(mut reply) => {
            reply.header = header;
            return encode_if_large(context, Answer::of_read(reply, &point)).await;
        }
        Err(turn) => turn,
    };
    let charge = Charge::of(&account, CHARGED_BYTES)?;
    let measuring = {
        let snapshot = snapshot.clone();
        move || {
            let measured = measure(&snapshot, &op).map_err(status)?;
            let measured = measured.with_rest(&beyond)?;
            Ok::<_, Status>((op, measured))
        }
    };
    let (op, measured) = context.long_reads.run(measuring).await??;
    let head = pb::RangeResponse {
        header,
        ..pb::RangeResponse::default()
    };
    let tail = pb::RangeResponse {
        more: measured.more,
        count: measured.count as i64,
        ..pb::RangeResponse::default()
    };
    let length = measured.bytes + (head.encoded_len() + tail.encoded_len()) as u64;
    let Ok(length) = u32::try_from(length) else {
        return Err(Fault::TooLong.into());
    };
    let mut entries = Kept::new(snapshot.range(range_of(&op)).map_err(status)?, op);
    let parts = stepwise(
        context.long_reads.clone(),
        move || match entries.next_part() {
            Ok(part) if part.kvs.is_empty() => None,
            Ok(part) => Some(Ok(part)),
            Err(error) => Some(Err(status(error))),
        },
        (charge, turn),
    );
    let long = LongReply {
        head,
        tail,
        length,
        parts,
        unsent_keys: measured.count.saturating_sub(measured.sent),
    };
    let mut answer = Answer::of_read(pb::RangeResponse::default(), &point);
    answer.long = Some(long);
    Ok(answer)
}

/// A snapshot of the freshness that the level requires.
async fn open(
    context: &Context,
    caller: &Caller,
    op: &RangeOp,
    level: ReadLevel,
) -> Result<(Snapshot, ReadPoint), Status> {
    let client = &context.client;
    // Checked in the state that is read.
    let take = || {
        let reader = client.by(caller);
        let taken = reader.take_if(
            &|each| each(Need::read(&op.key, &op.range_end)),
            |db| match op.revision {
                Revision::ZERO => Ok(db.snapshot()),
                revision => db.snapshot_at(revision),
            },
        );
        taken.map_err(status)
    };
    if level == ReadLevel::Lease && client.holds_lease() {
        let point = client.read_barrier(ReadLevel::Eventual).await;
        let point = ReadPoint {
            level,
            ..point.map_err(status)?
        };
        let snapshot = take()?;
        // Checked again: this thread may have slept between the first check and the snapshot.
        if client.holds_lease() {
            return Ok((snapshot, point));
        }
    }
    let point = client.read_barrier(level).await.map_err(status)?;
    Ok((take()?, point))
}

/// A range sorted in memory.
async fn sorted(
    context: &Arc<Context>,
    caller: &Caller,
    op: RangeOp,
    level: ReadLevel,
    snapshot: &Snapshot,
) -> Result<Answer<pb::RangeResponse>, Status> {
    let mut charge = Charge::none(current_account(&context.memory));
    let measured = read_on(&context.long_reads, {
        let (snapshot, op) = (snapshot.clone(), op.clone());
        move || {
            let bytes = sorted_bytes(&snapshot, &op, &mut charge)?;
            Ok(bytes.map(|bytes| (bytes, charge)))
        }
    })
    .await?;
    let (bytes, mut charge) = measured?;
    let charged = if bytes > 2 * WHOLE_BYTES { bytes } else { 0 };
    charge.set(charged)?;
    let client = context.client.by(caller);
    let read = client.range(&op, level).await.map_err(status)?;
    let reply = pb::RangeResponse {
        header: context.header_of_read(&read.point),
        ..convert::range_reply(read.value)
    };
    encode_if_large(context, Answer::of_read(reply, &read.point)).await
}

async fn read_on<T: Send + 'static>(
    threads: &ReadThreads,
    read: impl FnOnce() -> bowline::Result<T> + Send + 'static,
) -> Result<T, Status> {
    threads.run(read).await?.map_err(status)
}

fn limit_of(op: &RangeOp) -> u64 {
    match op.limit {
        0 => u64::MAX,
        limit => limit,
    }
}

/// The returned entries of a range, and the count up to the last of them.
struct Kept<I> {
    entries: I,
    op: RangeOp,
    left: u64,
    count: u64,
    /// The first key beyond the limit, once it was reached.
    rest_from: Option<Vec<u8>>,
}

impl<I: Iterator<Item = bowline::Result<Entry>>> Kept<I> {
    fn new(entries: I, op: RangeOp) -> Kept<I> {
        Kept {
            entries,
            left: limit_of(&op),
            op,
            count: 0,
            rest_from: None,
        }
    }

    /// The next returned entry. None is read beyond the first one after the limit.
    fn next(&mut self) -> bowline::Result<Option<Entry>> {
        for entry in self.entries.by_ref() {
            let mut entry = entry?;
            if self.left == 0 {
                self.rest_from = Some(entry.key.to_vec());
                break;
            }
            self.count += 1;
            if !passes(&self.op, &entry) {
                continue;
            }
            self.left -= 1;
            if self.op.keys_only {
                entry.value = Value::default();
            }
            return Ok(Some(entry));
        }
        Ok(None)
    }

    /// The next returned entries; none after the last. Entries beyond the limit are not read again.
    fn next_part(&mut self) -> bowline::Result<pb::RangeResponse> {
        let mut part = pb::RangeResponse::default();
        let mut bytes = 0;
        while bytes < PART_BYTES && self.left > 0 {
            let Some(entry) = self.next()? else { break };
            let kv = convert::key_value(entry);
            bytes += kv.encoded_len();
            part.kvs.push(kv);
        }
        Ok(part)
    }
}

/// A range that was read up to its limit.
struct Whole {
    /// With the count up to the limit.
    reply: pb::RangeResponse,
    /// The first key beyond the limit.
    rest_from: Option<Vec<u8>>,
}

impl Whole {
    /// The reply with the count of the keys beyond the limit.
    fn with_rest(self, beyond: &Beyond) -> Result<pb::RangeResponse, Status> {
        let mut reply = self.reply;
        if let Some(from) = self.rest_from {
            let rest = beyond.count(&from)?;
            reply.count += rest.count as i64;
            reply.more = rest.more;
        }
        Ok(reply)
    }
}

/// Reads a range up to its limit, unless it is long.
fn read_whole(snapshot: &Snapshot, op: &RangeOp) -> bowline::Result<Option<Whole>> {
    let mut kept = Kept::new(snapshot.range(range_of(op))?, op.clone());
    let mut reply = pb::RangeResponse::default();
    let mut bytes = 0;
    while let Some(entry) = kept.next()? {
        bytes += entry.key.len() + entry.value.len();
        if bytes > WHOLE_BYTES {
            return Ok(None);
        }
        reply.kvs.push(convert::key_value(entry));
    }
    reply.count = kept.count as i64;
    Ok(Some(Whole {
        reply,
        rest_from: kept.rest_from,
    }))
}

/// The measured size of a range's reply.
#[derive(Debug, Default, PartialEq, Eq)]
struct Measured {
    /// The bytes of its keys in a reply.
    bytes: u64,
    /// The number of them.
    sent: u64,
    /// The count up to the limit.
    count: u64,
    more: bool,
    /// The first key beyond the limit.
    rest_from: Option<Vec<u8>>,
}

impl Measured {
    /// Adds the count of the keys beyond the limit.
    fn with_rest(mut self, beyond: &Beyond) -> Result<Measured, Status> {
        if let Some(from) = self.rest_from.take() {
            let rest = beyond.count(&from)?;
            self.count += rest.count;
            self.more = rest.more;
        }
        Ok(self)
    }
}

/// An entry without its value, and the length of that.
fn without_value(at: &EntryRef<'_>) -> bowline::Result<(Entry, usize)> {
    let value_bytes = usize::try_from(at.value_bytes()?).unwrap_or(usize::MAX);
    Ok((at.to_entry_without_value()?, value_bytes))
}

/// Measures a range up to its limit.
fn measure(snapshot: &Snapshot, op: &RangeOp) -> bowline::Result<Measured> {
    let mut left = limit_of(op);
    let mut measured = Measured::default();
    // Values are measured, and not read.
    let entries = snapshot.range(range_of(op))?.without_large_values();
    let walked = entries.visit(|at| {
        if left == 0 {
            return ControlFlow::Break(Ok(at.key.to_vec()));
        }
        let (entry, value_bytes) = match without_value(&at) {
            Ok(found) => found,
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        measured.count += 1;
        if passes(op, &entry) {
            left -= 1;
            measured.sent += 1;
            let value_bytes = if op.keys_only { 0 } else { value_bytes };
            measured.bytes += field_bytes(key_value_bytes(entry, value_bytes)) as u64;
        }
        ControlFlow::Continue(())
    })?;
    measured.rest_from = walked.break_value().transpose()?;
    Ok(measured)
}

/// The bytes that a sorted range holds in memory: once as entries, once as a message. What the measuring itself
/// holds is charged.
fn sorted_bytes(
    snapshot: &Snapshot,
    op: &RangeOp,
    charge: &mut Charge,
) -> bowline::Result<Result<usize, OverBudget>> {
    let is_filtered = op.min_mod_revision != 0
        || op.max_mod_revision != 0
        || op.min_create_revision != 0
        || op.max_create_revision != 0;
    if op.limit > 0 && (op.sort_order != SortOrder::None || is_filtered) {
        return selected_bytes(snapshot, op, charge);
    }
    // Without an order the first keys are sorted, one more than the limit.
    let limit = match op.limit {
        0 => 0,
        limit => limit.saturating_add(1),
    };
    let measured = measure(
        snapshot,
        &RangeOp {
            limit,
            ..op.clone()
        },
    )?;
    let bytes = usize::try_from(measured.bytes.saturating_mul(2)).unwrap_or(usize::MAX / 2);
    Ok(Ok(bytes))
}

/// [`sorted_bytes`] of a range that keeps the first entries in its order up to its limit, of all that are
/// visited.
fn selected_bytes(
    snapshot: &Snapshot,
    op: &RangeOp,
    charge: &mut Charge,
) -> bowline::Result<Result<usize, OverBudget>> {
    /// A kept entry: its place in the order, the place of its key, its bytes.
    type Ranked = (u64, u64, usize);
    let limit = usize::try_from(op.limit).unwrap_or(usize::MAX);
    let mut kept: BinaryHeap<Ranked> = BinaryHeap::new();
    let mut visited = 0_u64;
    let entries = snapshot.range(range_of(op))?.without_large_values();
    let walked = entries.visit(|at| {
        let (entry, value_bytes) = match without_value(&at) {
            Ok(found) => found,
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        if !passes(op, &entry) {
            return ControlFlow::Continue(());
        }
        visited += 1;
        let rank = match op.sort_target {
            SortTarget::Key => visited,
            SortTarget::Version => entry.version,
            SortTarget::Create => entry.create_revision.get(),
            SortTarget::Mod => entry.mod_revision.get(),
            // While values are compared, the longest of all may be held.
            SortTarget::Value => 0,
        };
        let has_value = !op.keys_only || op.sort_target == SortTarget::Value;
        let value_bytes = if has_value { value_bytes } else { 0 };
        let bytes = field_bytes(key_value_bytes(entry, value_bytes));
        let rank = match (op.sort_target, op.sort_order) {
            (SortTarget::Value, _) => !(bytes as u64),
            (_, SortOrder::Descend) => !rank,
            _ => rank,
        };
        let found = (rank, visited, bytes);
        if kept.len() < limit {
            kept.push(found);
            let own_bytes = kept.capacity() * size_of::<Ranked>();
            if own_bytes > WHOLE_BYTES
                && let Err(refused) = charge.set(own_bytes)
            {
                return ControlFlow::Break(Ok(refused));
            }
        } else if let Some(mut last) = kept.peek_mut()
            && found < *last
        {
            *last = found;
        }
        ControlFlow::Continue(())
    })?;
    match walked {
        ControlFlow::Break(Err(error)) => Err(error),
        ControlFlow::Break(Ok(refused)) => Ok(Err(refused)),
        ControlFlow::Continue(()) => {
            // Each as it is measured twice, and the fields of an entry.
            let bytes_of = |(_, _, bytes): &Ranked| 2 * bytes + size_of::<Entry>();
            Ok(Ok(kept.iter().map(bytes_of).sum()))
        }
    }
}

/// The encoded length of a key with its metadata and a value of so many bytes.
fn key_value_bytes(without_value: Entry, value_bytes: usize) -> usize {
    let length = convert::key_value(without_value).encoded_len();
    match value_bytes {
        // Empty fields are omitted.
        0 => length,
        bytes => length + field_bytes(bytes),
    }
}

/// The encoded length of a field, with its one-byte tag and its length.
fn field_bytes(bytes: usize) -> usize {
    1 + prost::length_delimiter_len(bytes) + bytes
}

/// A reply in parts that together are one message.
pub(crate) struct LongReply {
    pub(crate) head: pb::RangeResponse,
    pub(crate) tail: pb::RangeResponse,
    /// The length of the message.
    length: u32,
    pub(crate) parts: Stepwise<pb::RangeResponse>,
    /// The number of keys that are only counted.
    pub(crate) unsent_keys: u64,
}

/// The slot in which a service leaves a long reply for the transport.
#[derive(Clone)]
struct LongReplySlot(Arc<Mutex<Option<LongReply>>>);

impl LongReply {
    /// Leaves it in a response for the transport.
    pub(super) fn leave_in<M>(self, response: &mut Response<M>) {
        let slot = LongReplySlot(Arc::new(Mutex::new(Some(self))));
        response.extensions_mut().insert(slot);
    }

    /// The long reply of a response; it replaces the response's own message.
    pub(crate) fn taken_from<B>(response: &mut http::Response<B>) -> Option<LongReply> {
        // Nearly all responses have no extensions, and then this costs nothing.
        let slot: LongReplySlot = response.extensions_mut().remove()?;
        slot.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The length of the message.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    /// The length of the long reply of a response, if it has one.
    pub(crate) fn bytes_in<B>(response: &http::Response<B>) -> Option<u64> {
        let slot: &LongReplySlot = response.extensions().get()?;
        let reply = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        reply.as_ref().map(LongReply::bytes)
    }

    /// The reply as a gRPC message.
    pub(crate) fn into_grpc(self) -> Body {
        let mut head = BytesMut::new();
        head.put_u8(0);
        head.put_u32(self.length);
        // The buffer grows, so this cannot fail.
        let _ = self.head.encode(&mut head);
        Body::new(GrpcReply {
            left: u64::from(self.length) - self.head.encoded_len() as u64,
            head: Some(head.freeze()),
            tail: Some(self.tail),
            parts: Some(self.parts),
        })
    }
}

/// See [`LongReply::into_grpc`].
struct GrpcReply {
    head: Option<Bytes>,
    tail: Option<pb::RangeResponse>,
    /// `None` at the end.
    parts: Option<Stepwise<pb::RangeResponse>>,
    /// The bytes still to come.
    left: u64,
}

impl GrpcReply {
    fn frame(&mut self, part: &pb::RangeResponse) -> Frame<Bytes> {
        let bytes = part.encode_to_vec();
        self.left = self.left.wrapping_sub(bytes.len() as u64);
        Frame::data(bytes.into())
    }

    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.parts = None;
        let mut trailers = HeaderMap::new();
        let added = status.add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }
}

impl HttpBody for GrpcReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        let Some(parts) = &mut self.parts else {
            return Poll::Ready(None);
        };
        match ready!(Pin::new(parts).poll_next(task)) {
            Some(Ok(part)) => Poll::Ready(Some(Ok(self.frame(&part)))),
            Some(Err(status)) => self.end(&status),
            None => match self.tail.take() {
                Some(tail) => Poll::Ready(Some(Ok(self.frame(&tail)))),
                None if self.left == 0 => self.end(&Status::ok("")),
                None => {
                    let text = format!("a range was read twice, and differed by {}", self.left);
                    self.end(&Fault::Internal(text).into())
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a limit of a few keys, all of the range was counted by the thread that serves all calls, value by
    /// value. Found by review.
    #[test]
    fn a_range_is_read_no_further_than_its_limit() {
        let db = bowline::Db::in_memory().unwrap();
        for number in 0..50 {
            db.put(format!("k{number:02}"), "v").unwrap();
        }
        let snapshot = db.snapshot();
        let of = |limit, min_mod_revision| RangeOp {
            key: b"k".to_vec(),
            range_end: b"l".to_vec(),
            limit,
            min_mod_revision: Revision::new(min_mod_revision),
            ..RangeOp::default()
        };
        let first = snapshot.entry("k00").unwrap().unwrap().mod_revision.get();
        for (op, kept, count) in [
            (of(3, 0), 3, 3),
            (of(3, first + 10), 3, 13),
            (of(50, 0), 50, 50),
            (of(0, 0), 50, 50),
        ] {
            let rest_from = (count < 50).then(|| format!("k{count:02}").into_bytes());
            let whole = read_whole(&snapshot, &op).unwrap().unwrap();
            assert_eq!((whole.reply.kvs.len(), whole.reply.count), (kept, count));
            assert_eq!(whole.rest_from, rest_from);
            let measured = measure(&snapshot, &op).unwrap();
            assert_eq!(measured.count as i64, count);
            assert_eq!(measured.rest_from, rest_from);
        }
    }
}
