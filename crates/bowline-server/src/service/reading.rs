//! Shared code of the `bowline.v1` reads: a snapshot of the requested freshness, turns, blocking threads, and
//! replies in parts.

use std::sync::Arc;
use std::time::Duration;

use bowline::{Revision, Snapshot};
use bowline_cluster::{ReadLevel, ReadPoint, VisitNeeds, blocking};
use bowline_proto::v1 as pb;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::stream::{Ended, PartSender};
use super::{check, check_leader};
use crate::context::Context;
use crate::convert::graph as convert;
use crate::status::{Fault, status};

/// How long a query waits for its turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(5);
/// The most visits, neighbors, ids or entries in a part of a reply.
pub(super) const PART_ITEMS: usize = 1_000;
/// A part ends at so many bytes.
pub(super) const PART_BYTES: usize = 256 << 10;
/// A reply that can be requested in parts ends at so many bytes.
const REPLY_BYTES: usize = 1 << 20;
/// The memory of an item of a part, in addition to its bytes.
const ITEM_BYTES: usize = 128;

/// The database at the freshness of a request.
pub(super) struct Opened {
    pub(super) snapshot: Snapshot,
    pub(super) header: pb::Header,
    pub(super) point: ReadPoint,
}

/// The header of a reply.
pub(super) fn header(
    context: &Context,
    revision: Revision,
    term: u64,
    applied_index: u64,
) -> pb::Header {
    let known = context.header(revision, term).unwrap_or_default();
    pb::Header {
        cluster_id: known.cluster_id,
        member_id: known.member_id,
        revision: revision.get(),
        raft_term: term,
        applied_index,
        ..pb::Header::default()
    }
}

/// Waits until this member is fresh enough, checks that the caller has the rights that the call needs, and takes a
/// snapshot.
pub(super) async fn open(
    context: &Context,
    metadata: &MetadataMap,
    read: Option<pb::Read>,
    needs: VisitNeeds<'_, '_>,
) -> Result<Opened, Status> {
    let (level, revision) = convert::read(read)?;
    if level == ReadLevel::Eventual {
        check_leader(context, metadata)?;
    } else {
        check(context, metadata)?;
    }
    let client = &context.client;
    let caller = context.caller_of(metadata).await?;
    let point = client.read_barrier(level).await.map_err(status)?;
    // In the state that is read.
    let taken = client.by(&caller).take_if(needs, |db| {
        let newest = db.snapshot();
        let at = newest.revision();
        match revision {
            0 => Ok((at, newest)),
            revision => Ok((at, db.snapshot_at(Revision::new(revision))?)),
        }
    });
    let (newest, snapshot) = taken.map_err(status)?;
    let header = pb::Header {
        read_level: convert::read_level(point.level).into(),
        read_revision: match revision {
            0 => newest.get(),
            revision => revision,
        },
        ..header(context, newest, point.term, point.applied_index)
    };
    Ok(Opened {
        snapshot,
        header,
        point,
    })
}

/// Waits for a turn of this weight.
pub(super) async fn turn_of(
    turns: &Arc<Semaphore>,
    weight: u32,
) -> Result<OwnedSemaphorePermit, Status> {
    let turn = turns.clone().acquire_many_owned(weight);
    match tokio::time::timeout(TURN_WAIT_MAX, turn).await {
        Ok(Ok(permit)) => Ok(permit),
        // An error is impossible: the semaphore is never closed.
        Ok(Err(_)) | Err(_) => Err(Fault::TooManyRequests.into()),
    }
}

/// Waits for a turn, up to a timeout.
pub(super) async fn turn_within(
    turns: &Arc<Semaphore>,
    wait_max: Duration,
) -> Result<OwnedSemaphorePermit, Status> {
    match tokio::time::timeout(wait_max, turns.clone().acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        // An error is impossible: the semaphore is never closed.
        Ok(Err(_)) | Err(_) => Err(Fault::TooManyRequests.into()),
    }
}

/// Runs a short query, when one of the threads for reads is free.
pub(super) async fn ask<T: Send + 'static>(
    context: &Context,
    question: impl FnOnce() -> bowline::Result<T> + Send + 'static,
) -> Result<T, Status> {
    context.wide_reads.run(question).await?.map_err(status)
}

/// Runs a query that needs a turn on a thread of its own, and keeps the turn until it has ended, also when the
/// client goes away.
pub(super) async fn ask_in_turn<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    question: impl FnOnce() -> bowline::Result<T> + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), Status> {
    let asked = blocking::spawn(move || (question(), turn)).await;
    let (answer, turn) = asked.map_err(|error| Fault::Internal(error.to_string()))?;
    Ok((answer.map_err(status)?, turn))
}

/// Reads items in order until the results fill one reply. Returns the number of items read.
pub(super) fn read_some<K, T: Message>(
    all: &[K],
    mut read: impl FnMut(&K) -> bowline::Result<Option<T>>,
) -> bowline::Result<(Vec<T>, u64)> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for (number, one) in (1..).zip(all) {
        if let Some(one) = read(one)? {
            bytes += one.encoded_len();
            found.push(one);
        }
        if bytes >= REPLY_BYTES {
            return Ok((found, number));
        }
    }
    Ok((found, all.len() as u64))
}

/// Collects the items of a scan into parts.
pub(super) struct Parts<'a, T, R, M> {
    sender: &'a PartSender<R>,
    header: Option<pb::Header>,
    items: Vec<T>,
    /// A part ends at so many items.
    items_max: usize,
    bytes: usize,
    make: M,
    ended: Option<Ended>,
}

impl<'a, T, R, M: FnMut(Option<pb::Header>, Vec<T>, bool) -> R> Parts<'a, T, R, M> {
    pub(super) fn new(sender: &'a PartSender<R>, header: pb::Header, make: M) -> Self {
        Parts {
            sender,
            header: Some(header),
            items: Vec::new(),
            items_max: PART_ITEMS,
            bytes: 0,
            make,
            ended: None,
        }
    }

    /// Parts of which the first has one item, and each other up to twice as many as the one before: items that
    /// take long to find are sent soon, and many of them need few parts.
    pub(super) fn growing(sender: &'a PartSender<R>, header: pb::Header, make: M) -> Self {
        Parts {
            items_max: 1,
            ..Parts::new(sender, header, make)
        }
    }

    /// Adds an item. An error ends the scan; the reason is stored here.
    pub(super) fn push(&mut self, item: T, bytes: usize) -> bowline::Result<()> {
        self.items.push(item);
        self.bytes += bytes;
        if self.items.len() < self.items_max && self.bytes < PART_BYTES {
            return Ok(());
        }
        self.items_max = (2 * self.items_max).min(PART_ITEMS);
        self.flush()
    }

    /// Sends what there is, without being the last part. An error ends the scan; the reason is stored here.
    pub(super) fn flush(&mut self) -> bowline::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let held_bytes = self.held_bytes();
        self.bytes = 0;
        let items = std::mem::take(&mut self.items);
        let part = (self.make)(self.header.take(), items, false);
        self.sender.send(part, held_bytes).map_err(|ended| {
            self.ended = Some(ended);
            bowline::Error::Closed
        })
    }

    fn held_bytes(&self) -> usize {
        self.bytes + ITEM_BYTES * self.items.len()
    }

    pub(super) fn finish(self, scanned: bowline::Result<()>) -> Result<(), Ended> {
        self.finish_with(scanned.map_err(status))
    }

    /// The same for a scan whose errors have their statuses.
    pub(super) fn finish_with(mut self, scanned: Result<(), Status>) -> Result<(), Ended> {
        let held_bytes = self.held_bytes();
        match (self.ended, scanned) {
            (Some(ended), _) => Err(ended),
            (None, Err(failed)) => Err(Ended::Failed(failed)),
            (None, Ok(())) => {
                let last = (self.make)(self.header, self.items, true);
                self.sender.send(last, held_bytes)
            }
        }
    }
}
