//! What the queries of `bowline.v1.Graph` share: turns, the end of a computation whose client has left, and
//! results in parts.
//!
//! Invariants: at most [`WALKS_MAX`] traversals and [`WHOLE_MAX`] queries of the whole graph are under way or
//! waiting for their clients, and neither kind blocks the other. A request that waits for a leader holds no
//! turn. A computation ends soon after its call does, or
//! after the time that the server gives one, and gives its turn back. A part has at most
//! [`PART_ITEMS`] items. The result of a traversal is charged to the connection until its last part is handed
//! over; the results of the few queries of the whole graph are not, which are as large as the graph is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bowline::{BlockId, Cancel, Graph as View};
use bowline_cluster::ReadPoint;
use bowline_proto::v1 as pb;
use bowline_replica::{Caller, Need};
use futures_core::Stream;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::reading::{PART_BYTES, PART_ITEMS, ask_in_turn, open, turn_of};
use super::stream::{Replies, of_parts};
use crate::context::Context;
use crate::convert::graph as convert;
use crate::memory::{Account, Charge, current_account};
use crate::status::{Fault, status};

/// The most concurrent traversals.
const WALKS_MAX: usize = 16;
/// The weight of a search that may visit edges repeatedly, or keeps state for each block.
pub(super) const SEARCH_WEIGHT: u32 = 4;
/// The most concurrent queries of the whole graph.
const WHOLE_MAX: usize = 2;

/// Opens the graph for queries, and bounds how many are under way.
#[derive(Debug, Clone)]
pub(super) struct Queries {
    context: Arc<Context>,
    walks: Arc<Semaphore>,
    whole: Arc<Semaphore>,
}

/// The graph at the freshness of a request.
pub(super) struct Opened {
    pub(super) view: View,
    pub(super) header: pb::Header,
    pub(super) point: ReadPoint,
}

impl Queries {
    pub(super) fn new(context: Arc<Context>) -> Queries {
        Queries {
            context,
            walks: Arc::new(Semaphore::new(WALKS_MAX)),
            whole: Arc::new(Semaphore::new(WHOLE_MAX)),
        }
    }

    /// Opens the graph for a query of edges of these kinds; without kinds, of everything.
    pub(super) async fn open(
        &self,
        metadata: &MetadataMap,
        read: Option<pb::Read>,
        kinds: &[String],
    ) -> Result<Opened, Status> {
        let opened = open(&self.context, metadata, read, &|each| match kinds {
            [] => each(Need::read_kind(None)),
            kinds => {
                let mut kinds = kinds.iter();
                kinds.try_for_each(|kind| each(Need::read_kind(Some(kind))))
            }
        })
        .await?;
        Ok(Opened {
            view: opened.snapshot.graph(),
            header: opened.header,
            point: opened.point,
        })
    }

    /// As [`Queries::open`], for a read of blocks whose kinds are known when they are read: see [`Queries::check_blocks`].
    pub(super) async fn open_for_blocks(
        &self,
        metadata: &MetadataMap,
        read: Option<pb::Read>,
    ) -> Result<Opened, Status> {
        let opened = open(&self.context, metadata, read, &|_| Ok(())).await?;
        Ok(Opened {
            view: opened.snapshot.graph(),
            header: opened.header,
            point: opened.point,
        })
    }

    /// Refuses blocks of which a caller may not read all kinds.
    pub(super) fn check_blocks(&self, caller: &Caller, blocks: &[pb::Block]) -> Result<(), Status> {
        let checked = self.context.client.by(caller).check(|each| {
            blocks.iter().try_for_each(|block| {
                let only = Some(&block.kind).filter(|kind| !kind.is_empty());
                let mut kinds = only.into_iter().chain(&block.kinds).peekable();
                if kinds.peek().is_none() {
                    return each(Need::read_kind(None));
                }
                kinds.try_for_each(|kind| each(Need::read_kind(Some(kind))))
            })
        });
        checked.map_err(status)
    }

    /// Waits for a traversal's turn, of this weight.
    pub(super) async fn turn(&self, weight: u32) -> Result<OwnedSemaphorePermit, Status> {
        turn_of(&self.walks, weight).await
    }

    /// Waits for the turn of a query of the whole graph.
    pub(super) async fn turn_of_whole(&self) -> Result<OwnedSemaphorePermit, Status> {
        turn_of(&self.whole, 1).await
    }

    /// The account of the call being polled.
    pub(super) fn account(&self) -> Arc<Account> {
        current_account(&self.context.memory)
    }

    /// Charges a result of so many items to the connection.
    pub(super) fn charge<T>(&self, result: &[T]) -> Result<Charge, Status> {
        Ok(Charge::of(&self.account(), size_of_val(result))?)
    }

    /// A reply with known parts. `kept` is dropped when the last one is handed over.
    pub(super) fn in_parts<T: Message + 'static>(
        &self,
        parts: impl Iterator<Item = T> + Send + 'static,
        kept: impl Send + 'static,
    ) -> Result<Replies<T>, Status> {
        of_parts(self.account(), parts, kept)
    }

    /// Runs a computation in its turn, on a thread that may block. When the client cancels the call, or the time
    /// of a query is over, the computation ends.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        turn: OwnedSemaphorePermit,
        view: View,
        question: impl FnOnce(View) -> bowline::Result<T> + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), Status> {
        let time_max = self.context.settings.query_time_max;
        compute_within(time_max, turn, view, question).await
    }

    /// Replies that are computed while they are sent. When the client cancels the call, or the time of a query is
    /// over, the computation ends.
    pub(super) fn canceling<T>(&self, replies: Replies<T>, cancel: Cancel) -> Canceling<T> {
        let time_max = self.context.settings.query_time_max;
        Queries::canceling_within(replies, cancel, (time_max, time_max), takes_too_long)
    }

    /// The same with a time of its own, what is left of it, and the refusal when it is over.
    pub(super) fn canceling_within<T>(
        replies: Replies<T>,
        cancel: Cancel,
        (time_max, left): (Duration, Duration),
        refusal: fn(Duration) -> Status,
    ) -> Canceling<T> {
        let sleep = Box::pin(tokio::time::sleep(left));
        Canceling {
            replies,
            cancel: CancelOnDrop(cancel),
            time: Time::Left(time_max, sleep, refusal),
        }
    }

    /// Replies that are read while they are sent. When the client cancels the call, the reading ends. It has no
    /// time: to read the whole of a large graph takes long, and what is read is sent.
    pub(super) fn reading<T>(replies: Replies<T>, cancel: Cancel) -> Canceling<T> {
        Canceling {
            replies,
            cancel: CancelOnDrop(cancel),
            time: Time::Unlimited,
        }
    }

    /// The server's bound on the blocks of one reply.
    pub(super) fn blocks_max(&self) -> u64 {
        self.context.settings.traversal_blocks_max
    }
}

/// Cancels a computation when it is dropped.
#[derive(Debug)]
pub(super) struct CancelOnDrop(pub(super) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn compute_within<T: Send + 'static>(
    time_max: Duration,
    turn: OwnedSemaphorePermit,
    view: View,
    question: impl FnOnce(View) -> bowline::Result<T> + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), Status> {
    let cancel = Cancel::new();
    let _canceled = CancelOnDrop(cancel.clone());
    let computed = ask_in_turn(turn, move || question(view.cancelable(&cancel)));
    let computed = tokio::time::timeout(time_max, computed).await;
    computed.unwrap_or_else(|_| Err(takes_too_long(time_max)))
}

fn takes_too_long(time_max: Duration) -> Status {
    let text = format!(
        "the query takes longer than the {time_max:?} that the server gives one: ask for a smaller depth or fewer \
         kinds, or raise the server's --max-query-time"
    );
    Fault::Unfit(text).into()
}

/// See [`Queries::canceling`].
pub(crate) struct Canceling<T> {
    replies: Replies<T>,
    cancel: CancelOnDrop,
    time: Time,
}

/// The time of a query.
enum Time {
    Unlimited,
    /// The time that it was given, the rest of it, and the refusal when it is over.
    Left(Duration, Pin<Box<Sleep>>, fn(Duration) -> Status),
    Over,
}

impl<T> Stream for Canceling<T> {
    type Item = Result<T, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<T, Status>>> {
        match &mut self.time {
            Time::Over => return Poll::Ready(None),
            Time::Left(time_max, deadline, refusal) => {
                if deadline.as_mut().poll(task).is_ready() {
                    let ended = refusal(*time_max);
                    self.time = Time::Over;
                    self.cancel.0.cancel();
                    return Poll::Ready(Some(Err(ended)));
                }
            }
            Time::Unlimited => {}
        }
        Pin::new(&mut self.replies).poll_next(task)
    }
}

/// Parts of at most so many items, and whether each is the last; one empty part if there are none.
pub(super) fn parts_of<T: Send + 'static>(
    items: Vec<T>,
) -> impl Iterator<Item = (Vec<T>, bool)> + Send {
    let mut items = items.into_iter();
    let mut is_done = false;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let part: Vec<T> = items.by_ref().take(PART_ITEMS).collect();
        is_done = items.len() == 0;
        Some((part, is_done))
    })
}

/// Parts of items with their bytes: each of at most so many items, and of about 256 KiB beyond its largest item.
pub(super) fn parts_of_bytes<T: Send + 'static>(
    items: Vec<(T, usize)>,
) -> impl Iterator<Item = (Vec<T>, bool)> + Send {
    let mut items = items.into_iter();
    let mut is_done = false;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let (mut part, mut bytes) = (Vec::new(), 0);
        while part.len() < PART_ITEMS
            && bytes < PART_BYTES
            && let Some((item, more)) = items.next()
        {
            part.push(item);
            bytes += more;
        }
        is_done = items.len() == 0;
        Some((part, is_done))
    })
}

/// Parts with components, and whether each is the last; one empty part if there are none.
pub(super) fn component_parts(
    components: Vec<Vec<BlockId>>,
) -> impl Iterator<Item = (Vec<pb::Component>, bool)> + Send {
    let mut rest = pieces(components).peekable();
    let mut is_done = false;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let mut components = Vec::new();
        let mut ids = 0;
        while ids < PART_ITEMS
            && let Some(component) = rest.next()
        {
            ids += component.blocks.len();
            components.push(component);
        }
        is_done = rest.peek().is_none();
        Some((components, is_done))
    })
}

/// Components as pieces; a large component takes several.
fn pieces(components: Vec<Vec<BlockId>>) -> impl Iterator<Item = pb::Component> + Send {
    components.into_iter().flat_map(|blocks| {
        let starts = (0..blocks.len()).step_by(PART_ITEMS);
        starts.map(move |start| {
            let end = blocks.len().min(start + PART_ITEMS);
            let part = &blocks[start..end];
            pb::Component {
                blocks: part.iter().map(|id| convert::id_bytes(*id)).collect(),
                continues: start > 0,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_MAX: Duration = Duration::from_secs(60);

    /// A computation whose client had left went on to its end, and kept its turn until then.
    #[tokio::test]
    async fn a_computation_ends_with_its_call_and_gives_its_turn_back() {
        let view = bowline::Db::in_memory().unwrap().snapshot().graph();
        let turns = Arc::new(Semaphore::new(1));
        let turn = turns.clone().acquire_owned().await.unwrap();
        let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let endless = move |view: View| {
            began.send(()).unwrap();
            let give_up = std::time::Instant::now() + Duration::from_secs(60);
            loop {
                view.stats([] as [&str; 0])?;
                assert!(std::time::Instant::now() < give_up, "nobody cancels it");
            }
        };
        let call = compute_within::<()>(TIME_MAX, turn, view.clone(), endless);
        tokio::select! {
            _ = call => panic!("it has no end of its own"),
            _ = begins.recv() => {}
        }
        let turn = turn_of(&turns, 1).await.unwrap();
        // One whose client stays has its result.
        let (blocks, _) = compute_within(TIME_MAX, turn, view, |view| {
            Ok(view.stats([] as [&str; 0])?.blocks)
        })
        .await
        .unwrap();
        assert_eq!(blocks, 0);
    }

    #[test]
    fn parts_are_whole_in_order_and_only_the_last_says_so() {
        for count in [0, 1, PART_ITEMS, PART_ITEMS + 1, 3 * PART_ITEMS] {
            let parts: Vec<_> = parts_of((0..count).collect()).collect();
            assert_eq!(parts.len(), count.div_ceil(PART_ITEMS).max(1));
            let (last, before) = parts.split_last().unwrap();
            assert!(last.1 && before.iter().all(|part| !part.1));
            let joined: Vec<_> = parts.into_iter().flat_map(|part| part.0).collect();
            assert_eq!(joined, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_large_component_is_told_in_parts_that_continue_it() {
        let sizes = [1, PART_ITEMS + 1, 2];
        let components = sizes.map(|size| (0..size as u128).map(BlockId).collect());
        let parts: Vec<_> = pieces(components.to_vec()).collect();
        let told: Vec<_> = parts
            .iter()
            .map(|p| (p.blocks.len(), p.continues))
            .collect();
        let expected = [(1, false), (PART_ITEMS, false), (1, true), (2, false)];
        assert_eq!(told, expected);
        let lasts: Vec<_> = component_parts(components.to_vec())
            .map(|(_, is_last)| is_last)
            .collect();
        assert_eq!(lasts, [false, true]);
        let none: Vec<_> = component_parts(Vec::new()).collect();
        assert_eq!(none, [(Vec::new(), true)]);
    }
}
