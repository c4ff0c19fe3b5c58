//! The state under the lock of a shard: its watches, and the streams that wait for progress or room.
//!
//! A watch is *live* when the feed serves it, and *behind* when it reads history by itself. A progress
//! notification states that every event up to a revision was sent, so it has two conditions: no watch of the
//! stream is behind, and none starts at, or was sent, a later revision than the feed has passed. A watch is
//! *ahead* while the second fails: it starts at a later revision, or it has read history faster than the
//! feed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::{Change, ChangeKind, Revision, Watcher};

use super::catch_up::Job;
use super::index::{Index, Member, Span};
use super::message::response;
use super::stream_queue::{Place, StreamQueue};

/// The state under the lock of a shard.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The revision that the feed takes next.
    pub(super) position: Revision,
    /// Whether there is a feed; without one, `position` has no meaning.
    pub(super) has_feed: bool,
    /// The new feed's watcher, for the thread to take.
    pub(super) new_feed: Option<Watcher>,
    pub(super) watches: Vec<Option<Watch>>,
    pub(super) free: Vec<u32>,
    pub(super) count: usize,
    pub(super) behind: usize,
    /// The watches whose `progress_from` the feed has not passed, nearest first: that revision, the slot and
    /// the generation.
    pub(super) ahead: BTreeSet<(Revision, u32, u64)>,
    pub(super) generation: u64,
    pub(super) index: Index,
    /// Streams that requested progress, and the revision to be reached before the reply.
    pub(super) asking: Vec<(Arc<StreamState>, Revision)>,
    /// Per stream: the watches that wait for room in its queue.
    pub(super) waiting: HashMap<u64, Vec<Job>>,
    /// Those of them that keep what they have read, with their stream, longest wait first.
    pub(super) holding: VecDeque<(u64, Key)>,
    /// The number of watches that keep what they have read until their turn.
    pub(super) holding_in_turn: usize,
}

/// A shard's state of a stream.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) id: u64,
    pub(super) queue: Arc<StreamQueue>,
    /// The number of its watches that are behind. Changed under the lock of the shard.
    pub(super) behind: AtomicUsize,
    /// The number of its watches that are ahead. Changed under the lock of the shard.
    pub(super) ahead: AtomicUsize,
}

impl StreamState {
    /// Its watch in this slot, for the index.
    pub(super) fn member(&self, place: u32) -> Member {
        Member {
            stream: self.id,
            place,
        }
    }
}

/// The slot and generation of a watch. A key is never used for another watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) place: u32,
    pub(super) generation: u64,
}

impl Key {
    /// The key of a watch that ended at its creation. Generations start at 1.
    pub(super) const ENDED: Key = Key {
        place: u32::MAX,
        generation: 0,
    };
}

/// One watch.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) stream: Arc<StreamState>,
    pub(super) id: i64,
    pub(super) generation: u64,
    pub(super) span: Span,
    /// The first revision that may be sent as progress: the client's start revision, or the newest revision
    /// that it was sent before the feed served the watch.
    pub(super) progress_from: Revision,
    /// The first revision to send.
    pub(super) from: Revision,
    pub(super) wants: Wants,
    pub(super) is_live: bool,
    /// Whether it was sent a message since the last round of progress.
    pub(super) was_told: bool,
    /// The position of its last events in the queue.
    pub(super) last: Place,
}

/// The options of a watch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wants {
    pub(super) previous: bool,
    pub(super) no_puts: bool,
    pub(super) no_deletions: bool,
    pub(super) fragments: bool,
    pub(super) progress: bool,
}

impl Watch {
    pub(super) fn wants(&self) -> Wants {
        self.wants
    }
}

impl Wants {
    pub(super) fn wants(self, change: &Change) -> bool {
        match change.kind {
            ChangeKind::Put => !self.no_puts,
            ChangeKind::Delete => !self.no_deletions,
        }
    }
}

impl State {
    pub(super) fn insert(&mut self, mut watch: Watch) -> Key {
        self.generation += 1;
        watch.generation = self.generation;
        let place = self.free.pop().unwrap_or_else(|| {
            self.watches.push(None);
            (self.watches.len() - 1) as u32
        });
        self.count += 1;
        if watch.is_live {
            let member = watch.stream.member(place);
            self.index.insert(&watch.span, member);
        } else {
            self.behind += 1;
            watch.stream.behind.fetch_add(1, Ordering::Relaxed);
        }
        let key = Key {
            place,
            generation: self.generation,
        };
        let progress_from = watch.progress_from;
        self.watches[place as usize] = Some(watch);
        self.hold_progress(key, progress_from);
        key
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut Watch> {
        let watch = self.watches.get_mut(key.place as usize)?.as_mut()?;
        (watch.generation == key.generation).then_some(watch)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Watch> {
        self.get(key)?;
        let watch = self.watches[key.place as usize].take()?;
        self.free.push(key.place);
        self.count -= 1;
        if watch.is_live {
            let member = watch.stream.member(key.place);
            self.index.remove(&watch.span, member);
        } else {
            self.behind -= 1;
            watch.stream.behind.fetch_sub(1, Ordering::Relaxed);
        }
        let is_ahead = (watch.progress_from, key.place, key.generation);
        if self.ahead.remove(&is_ahead) {
            watch.stream.ahead.fetch_sub(1, Ordering::Relaxed);
        }
        Some(watch)
    }

    /// The feed serves a watch from now on. The watch has received everything before `from`, and the feed has
    /// not passed `from`.
    pub(super) fn go_live(&mut self, key: Key, from: Revision) {
        debug_assert!(from >= self.position);
        let Some(watch) = self.get(key) else {
            return;
        };
        watch.is_live = true;
        watch.from = watch.from.max(from);
        watch.stream.behind.fetch_sub(1, Ordering::Relaxed);
        let (span, member) = (watch.span.clone(), watch.stream.member(key.place));
        self.behind -= 1;
        self.index.insert(&span, member);
        self.hold_progress(key, from - 1);
        self.answer_asking();
    }

    /// Holds a watch's progress until the feed has passed a revision.
    fn hold_progress(&mut self, key: Key, from: Revision) {
        let position = self.position;
        let Some(watch) = self.get(key) else {
            return;
        };
        let held = (watch.progress_from, key.place, key.generation);
        watch.progress_from = watch.progress_from.max(from);
        let holds = (watch.progress_from, key.place, key.generation);
        let stream = watch.stream.clone();
        if self.ahead.remove(&held) {
            stream.ahead.fetch_sub(1, Ordering::Relaxed);
        }
        if holds.0 >= position {
            self.ahead.insert(holds);
            stream.ahead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The feed has sent everything before `position`. Watches that waited for that are no longer ahead.
    pub(super) fn move_to(&mut self, position: Revision) {
        self.position = position;
        while let Some(&(progress_from, place, _)) = self.ahead.first()
            && progress_from < position
        {
            self.ahead.pop_first();
            if let Some(watch) = &self.watches[place as usize] {
                watch.stream.ahead.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Begins the turn of a watch.
    pub(super) fn begin_turn(&mut self, job: &mut Job) {
        self.holding_in_turn -= usize::from(std::mem::take(&mut job.holds_in_turn));
    }

    /// Takes the watches that wait for room in a stream's queue.
    pub(super) fn take_waiting(&mut self, stream: &StreamState) -> Vec<Job> {
        self.holding.retain(|(holding, _)| *holding != stream.id);
        self.waiting.remove(&stream.id).unwrap_or_default()
    }

    /// Replies to the streams that requested progress and have reached it. At most two requests of a stream
    /// wait: the first, and one for all that came after it. So a client that requests faster than it is
    /// answered takes no more memory, and still receives its progress.
    pub(super) fn ask(&mut self, stream: &Arc<StreamState>, now: Revision) {
        let mut own = self.asking.iter_mut();
        let mut own = own.by_ref().filter(|(asking, _)| asking.id == stream.id);
        match (own.next(), own.next()) {
            (Some(_), Some((_, target))) => *target = now,
            _ => self.asking.push((stream.clone(), now)),
        }
    }

    pub(super) fn answer_asking(&mut self) {
        if self.asking.is_empty() {
            return;
        }
        let position = self.position;
        self.asking.retain(|(stream, target)| {
            let waiting =
                stream.behind.load(Ordering::Relaxed) + stream.ahead.load(Ordering::Relaxed);
            let is_there = position > *target && waiting == 0;
            if is_there {
                stream.queue.push(response(-1, position - 1, Vec::new()));
            }
            !is_there
        });
    }

    /// Sends progress to idle live watches that asked for it. A watch that starts at, or was sent, a later
    /// revision is skipped: the notification would move its client back.
    pub(super) fn tell_progress(&mut self) {
        let revision = self.position - 1;
        for watch in self.watches.iter_mut().flatten() {
            let is_due = watch.wants.progress && watch.is_live && !watch.was_told;
            if is_due && watch.progress_from <= revision {
                let told = response(watch.id, revision, Vec::new());
                watch.stream.queue.push(told);
            }
            watch.was_told = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::super::message::Delivery;
    use super::super::stream_queue::Taken;
    use super::*;
    use crate::memory::Memory;
    use std::task::{Context, Poll, Waker};

    /// etcd's Go client received progress 1000 after an event of 1001: its watch had read history while the
    /// feed stood still, went live ahead of the feed, and was sent the feed's position.
    #[test]
    fn a_watch_that_is_ahead_of_the_feed_is_not_told_where_the_feed_is() {
        let budget = Budget::new(1 << 20, Memory::new(1 << 30, 1 << 30));
        let queue = Arc::new(StreamQueue::new(1 << 20, budget));
        let stream = Arc::new(StreamState {
            id: 0,
            queue: queue.clone(),
            behind: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
        });
        let told = || {
            let mut told = Vec::new();
            let mut context = Context::from_waker(Waker::noop());
            while let Poll::Ready(Taken::Message(Delivery { message, .. }, _)) =
                queue.poll(&mut context)
            {
                told.push((message.watch_id, message.header.unwrap().revision));
            }
            told
        };
        // The feed takes 10 next. One watch starts in the past and one in the future.
        let mut state = State {
            position: Revision::new(10),
            has_feed: true,
            ..State::default()
        };
        let mut watch = |id, start, is_live| {
            state.insert(Watch {
                stream: stream.clone(),
                id,
                generation: 0,
                span: Span::new(b"k", b"").unwrap(),
                progress_from: start,
                from: start,
                wants: Wants {
                    progress: true,
                    ..Wants::default()
                },
                is_live,
                was_told: false,
                last: Place::default(),
            })
        };
        let past = watch(1, Revision::new(3), false);
        let future = watch(2, Revision::new(12), false);
        state.ask(&stream, Revision::new(5));
        state.go_live(future, Revision::new(12));
        // It has received all up to 14.
        state.go_live(past, Revision::new(15));
        state.tell_progress();
        for position in 11..15 {
            assert_eq!(told(), [], "the feed is at {position}");
            state.move_to(Revision::new(position));
            state.answer_asking();
        }
        // The other watch has reached its start.
        state.tell_progress();
        assert_eq!(told(), [(2, 13)]);
        state.move_to(Revision::new(15));
        state.answer_asking();
        assert_eq!(told(), [(-1, 14)]);
        state.tell_progress();
        assert_eq!(told(), [(1, 14), (2, 14)]);
        // No state of them is left.
        state.remove(past);
        state.remove(future);
        assert!(state.ahead.is_empty());
        assert_eq!(stream.ahead.load(Ordering::Relaxed), 0);
    }
}
