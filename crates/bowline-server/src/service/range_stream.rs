//! `KV.RangeStream`: a range in parts, as in etcd from 3.7 on.
//!
//! A snapshot pins the revision before the first part, so all parts are of one revision. They come from one
//! iterator over that snapshot, and are made as the client takes them:
//!
//! ```text
//! part 1 | 10 keys
//! part n | twice as many as part n - 1 while that was below half of the target,
//!        | half as many when it was above twice the target; never more bytes than the target
//! last   | header, count, more
//! ```
//!
//! Invariants: memory holds the waiting parts and the one being made, whatever the size of the range; the
//! parts together are what `Range` would have returned; what is only counted is not read ([`Beyond`]).

use std::sync::Arc;

use bowline::{Entry, Revision, Value};
use bowline_cluster::ReadLevel;
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Caller, Need, RangeOp, SortOrder, SortTarget};
use prost::Message;
use tonic::{Response, Status};

use super::etcd_range::{Beyond, range_of};
use super::stream::{Stepwise, stepwise};
use super::unsent::UnsentKeys;
use crate::context::{Context, respond_read};
use crate::convert;
use crate::memory::{Charge, current_account};
use crate::status::{Fault, status};

/// The largest part, however large a request may be: several parts wait for a client.
const PART_BYTES: usize = 512 << 10;
/// The most bytes that a key takes in a part besides its own.
const FRAME_BYTES: usize = 4;
/// The number of keys in the first part.
const FIRST_KEYS: u64 = 10;

pub(super) async fn stream(
    context: &Arc<Context>,
    caller: &Caller,
    op: RangeOp,
    level: ReadLevel,
) -> Result<Response<Stepwise<pb::RangeStreamResponse>>, Status> {
    let is_by_key = op.sort_order == SortOrder::None
        || op.sort_order == SortOrder::Ascend && op.sort_target == SortTarget::Key;
    if !is_by_key {
        let text = "RangeStream does not support custom sort orders";
        return Err(Fault::Unsupported(text).into());
    }
    if op.min_mod_revision != 0
        || op.max_mod_revision != 0
        || op.min_create_revision != 0
        || op.max_create_revision != 0
    {
        let text = "RangeStream does not support revision filters";
        return Err(Fault::Unsupported(text).into());
    }
    let point = context.client.read_barrier(level).await.map_err(status)?;
    // In the state that is read.
    let reader = context.client.by(caller);
    let taken = reader.take_if(&|each| each(Need::read(&op.key, &op.range_end)), |db| {
        let newest = db.revision();
        let snapshot = match op.revision {
            Revision::ZERO => db.snapshot(),
            revision => db.snapshot_at(revision)?,
        };
        Ok((newest, snapshot))
    });
    let (newest, snapshot) = taken.map_err(status)?;
    let header = match op.revision {
        Revision::ZERO => context.header(snapshot.revision(), point.term),
        _ => context.header(newest, point.term),
    };
    let bytes_target = context.settings.request_bytes_max.min(PART_BYTES);
    // One that waits, one being made, one on its way.
    let charge = Charge::of(&current_account(&context.memory), 3 * bytes_target)?;
    let entries = snapshot.range(range_of(&op)).map_err(status)?;
    let beyond = Beyond::new(context, &op, &snapshot);
    let count = move |from: &[u8]| Ok(beyond.count(from)?.count);
    let mut parts = Parts::new(entries, &op, bytes_target, count);
    let unsent = UnsentKeys::default();
    let counted = unsent.clone();
    let step = move || match parts.next_part() {
        Ok(Some(mut part)) => {
            if parts.is_done {
                part.header = header;
                counted.add(parts.unsent);
            }
            Some(Ok(pb::RangeStreamResponse {
                range_response: Some(part),
            }))
        }
        Ok(None) => None,
        Err(status) => Some(Err(status)),
    };
    let replies = stepwise(context.long_reads.clone(), step, charge);
    let mut response = respond_read(replies, &point);
    unsent.leave_in(&mut response);
    Ok(response)
}

/// Splits entries into parts.
struct Parts<I: Iterator, C> {
    entries: std::iter::Peekable<I>,
    /// Counts the keys from one on.
    count_from: C,
    keys_only: bool,
    count_only: bool,
    /// The number of keys that may still come.
    left: u64,
    /// The most keys of the next part.
    keys_max: u64,
    bytes_target: usize,
    count: u64,
    /// The number of keys that are only counted, in the last part.
    unsent: u64,
    is_done: bool,
}

impl<I, C> Parts<I, C>
where
    I: Iterator<Item = bowline::Result<Entry>>,
    C: FnMut(&[u8]) -> Result<u64, Status>,
{
    fn new(entries: I, op: &RangeOp, bytes_target: usize, count_from: C) -> Parts<I, C> {
        Parts {
            entries: entries.peekable(),
            count_from,
            keys_only: op.keys_only,
            count_only: op.count_only,
            left: match op.limit {
                0 => u64::MAX,
                limit => limit,
            },
            keys_max: FIRST_KEYS,
            bytes_target,
            count: 0,
            unsent: 0,
            is_done: false,
        }
    }

    /// The next part, without its header; the last one has the count.
    fn next_part(&mut self) -> Result<Option<pb::RangeResponse>, Status> {
        if self.is_done {
            return Ok(None);
        }
        let mut part = pb::RangeResponse::default();
        let mut bytes = 0;
        let keys_max = match self.count_only {
            true => 0,
            false => self.keys_max.min(self.left),
        };
        while (part.kvs.len() as u64) < keys_max && bytes < self.bytes_target {
            let Some(entry) = self.entries.next() else {
                break;
            };
            let mut entry = entry.map_err(status)?;
            if self.keys_only {
                entry.value = Value::default();
            }
            let kv = convert::key_value(entry);
            bytes += kv.encoded_len() + FRAME_BYTES;
            part.kvs.push(kv);
        }
        let keys = part.kvs.len() as u64;
        self.count += keys;
        self.left -= keys;
        self.keys_max = match bytes {
            few if few < self.bytes_target / 2 => self.keys_max.saturating_mul(2),
            many if many > self.bytes_target.saturating_mul(2) => (self.keys_max / 2).max(1),
            _ => self.keys_max,
        };
        let is_cut = self.entries.peek().is_some();
        if is_cut && self.left > 0 && !self.count_only {
            return Ok(Some(part));
        }
        self.is_done = true;
        if let Some(beyond) = self.entries.next() {
            self.unsent = (self.count_from)(&beyond.map_err(status)?.key)?;
            self.count += self.unsent;
        }
        part.more = is_cut && !self.count_only;
        part.count = self.count as i64;
        Ok(Some(part))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn entry(number: u32, bytes: usize) -> Entry {
        Entry {
            key: Value::copy_from(&number.to_be_bytes()),
            value: Value::from(vec![7; bytes]),
            create_revision: Revision::new(2),
            mod_revision: Revision::new(2),
            version: 1,
            lease: None,
        }
    }

    #[test]
    fn no_more_is_read_than_the_next_part_needs() {
        const TARGET: usize = 100_000;
        let read = Cell::new(0);
        let entries = (0..20_000).map(|number| {
            read.set(read.get() + 1);
            // Long values follow many short ones: a part must not grow by that.
            Ok(entry(number, if number < 10_000 { 10 } else { 20_000 }))
        });
        let mut parts = Parts::new(entries, &RangeOp::default(), TARGET, |_| {
            panic!("all of them are told")
        });
        let (mut told, mut sizes) = (0, Vec::new());
        while let Some(part) = parts.next_part().unwrap() {
            assert!(
                part.encoded_len() <= TARGET + 20_100,
                "{}",
                part.encoded_len()
            );
            told += part.kvs.len();
            sizes.push(part.kvs.len());
            // One beyond, to know whether there are more.
            assert!(read.get() <= told + 1, "{} read, {told} told", read.get());
            assert_eq!(part.count, if parts.is_done { 20_000 } else { 0 });
            assert!(!part.more);
        }
        assert_eq!(told, 20_000);
        assert_eq!(sizes[..4], [10, 20, 40, 80]);
        assert!(parts.is_done);
    }

    /// All that was beyond the limit was read with its values, only to be counted. Found by review.
    #[test]
    fn what_is_beyond_the_limit_counts_and_is_not_told() {
        let read = Cell::new(0);
        let of = |limit, count_only| {
            let op = RangeOp {
                limit,
                count_only,
                ..RangeOp::default()
            };
            read.set(0);
            let entries = (0..50).map(|number| {
                read.set(read.get() + 1);
                Ok(entry(number, 1))
            });
            let count_from = |from: &[u8]| {
                let from = from.try_into().map(u32::from_be_bytes);
                Ok(50 - u64::from(from.unwrap()))
            };
            let mut parts = Parts::new(entries, &op, 1000, count_from);
            let mut all = Vec::new();
            while let Some(part) = parts.next_part().unwrap() {
                all.push((part.kvs.len(), part.more, part.count));
            }
            all
        };
        assert_eq!(of(10, false), [(10, true, 50)]);
        assert_eq!(read.get(), 11, "one beyond, to know whether there are more");
        assert_eq!(
            of(35, false),
            [(10, false, 0), (20, false, 0), (5, true, 50)]
        );
        assert_eq!(
            of(50, false),
            [(10, false, 0), (20, false, 0), (20, false, 50)]
        );
        assert_eq!(of(35, true), [(0, false, 50)]);
        assert_eq!(read.get(), 1);
    }
}
