//! [`PendingUpdate`]: an update of one key in the queue.
//!
//! It is decided by the leader, against the newest version of its key, staged or published. So it has no precondition that
//! could fail, and updates of one key share a group and its flush.
//!
//! A group reserves space before it begins, so the size of a request is bounded when it enters the queue. The bytes that an
//! append adds to a value of any length are estimated from the value of then, with room for other appends that come
//! before it. One that has outgrown its room is not decided, and enters the queue again with more.

use std::sync::Arc;

use bowline_core::error::{Error, Result, show_key};
use bowline_core::kv::{Entry, record};
use bowline_core::options::Limits;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::write::update;
use bowline_core::write::writer::{Collect, Writer};
use bowline_storage::Value;
use bowline_storage::engine::{CommitGroup, Engine};
use bowline_storage::sync::Mutex;
use bowline_types::{NewValue, Revision, Update};

use super::outcome::{Committed, internal};

/// An update of a key, and what came of it.
#[derive(Debug)]
pub(crate) struct PendingUpdate {
    key: Vec<u8>,
    update: Update,
    limits: Limits,
    answer: Mutex<Option<Answer>>,
}

/// What the leader leaves for the committer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The value of the key behind the update.
    Value(Option<Value>),
    /// The new value has more bytes than the request had room for.
    Outgrown,
}

/// An update in one request.
#[derive(Debug)]
pub(crate) struct UpdateRequest {
    pub(crate) pending: Arc<PendingUpdate>,
    /// How often it had too little room.
    pub(crate) attempts: u32,
    /// The longest new value that there is room for.
    value_max_bytes: usize,
}

impl PendingUpdate {
    pub(crate) fn new(key: &[u8], update: Update, limits: Limits) -> PendingUpdate {
        PendingUpdate {
            key: key.to_vec(),
            update,
            limits,
            answer: Mutex::new(None),
        }
    }

    /// What came of it, once its request is committed.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.answer.lock().take()
    }
}

impl UpdateRequest {
    pub(crate) fn new(pending: Arc<PendingUpdate>, attempts: u32) -> UpdateRequest {
        UpdateRequest {
            pending,
            attempts,
            value_max_bytes: 0,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.pending.key
    }

    pub(super) fn only_deletes(&self) -> bool {
        self.pending.update.only_deletes()
    }

    /// Looks the key up on the committer's thread, so that the leader finds its page in memory, and decides how long the new
    /// value may be. Returns that.
    pub(super) fn prepare(&mut self, core: &Core) -> Result<usize> {
        /// Of so many appends in a row, or of so many bytes; twice as much at each further attempt.
        const APPENDS: usize = 32;
        const APPEND_MIN_BYTES: usize = 64;
        const ROOM_MAX_BYTES: usize = 64 << 10;
        const ATTEMPTS_MAX: u32 = 20;
        let entry = newest(&core.engine, self.key())?;
        let update = &self.pending.update;
        let added = update.most_added_bytes();
        self.value_max_bytes = match update.keeps_the_value() {
            false => added,
            true => {
                let length = entry.map_or(0, |entry| entry.value.len());
                let appends = added.max(APPEND_MIN_BYTES).saturating_mul(APPENDS);
                let doubled = 1 << self.attempts.min(ATTEMPTS_MAX);
                let room = appends.min(ROOM_MAX_BYTES).saturating_mul(doubled);
                let room = room.saturating_add(added);
                let limit = self.pending.limits.value_size_max_bytes;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                // What is longer than the limit is refused, and takes no room.
                length.saturating_add(room).min(limit)
            }
        };
        Ok(self.value_max_bytes)
    }

    /// Decides it, and encodes what it changes at the next revision into the writer.
    pub(super) fn encode(
        &self,
        engine: &Engine,
        group: &CommitGroup<'_>,
        collect: Collect,
        writer: &mut Writer<()>,
    ) -> Result<Committed> {
        let PendingUpdate { key, update, .. } = &*self.pending;
        let entry = newest(engine, key)?;
        let made = update::decide(key, update, entry.as_ref(), &self.pending.limits)?;
        let old = entry.as_ref().map(record::Meta::of);
        let lease = old.and_then(|meta| meta.lease);
        let mut committed = Committed {
            revision: Revision::new(group.last_revision()),
            deleted: 0,
            changed: false,
        };
        let value = match made {
            NewValue::Unchanged => entry.map(|entry| entry.value),
            NewValue::Put(value) if value.len() > self.value_max_bytes => {
                *self.pending.answer.lock() = Some(Answer::Outgrown);
                return Ok(committed);
            }
            made => {
                committed.revision = Revision::new(group.next_revision());
                committed.changed = true;
                writer.begin(committed.revision, collect);
                match made {
                    NewValue::Put(value) => {
                        let value = Value::copy_from(&value);
                        writer.put(key, &value, lease, old);
                        Some(value)
                    }
                    _ => {
                        writer.delete(key, lease);
                        committed.deleted = 1;
                        None
                    }
                }
            }
        };
        *self.pending.answer.lock() = Some(Answer::Value(value));
        Ok(committed)
    }
}

/// The newest entry of a key, with all that is decided before.
fn newest(engine: &Engine, key: &[u8]) -> Result<Option<Entry>> {
    engine.read_since(trees::KV, key, 0, |found| record::entry_of(key, found))?
}

/// The error of a committed update without an answer, which no leader leaves.
pub(crate) fn unanswered(key: &[u8]) -> Error {
    internal(&format!("the update of {} has no answer", show_key(key)))
}
