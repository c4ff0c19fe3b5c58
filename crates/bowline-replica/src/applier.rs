//! [`Applier`]: plans the commands of log entries and makes them visible, many entries in one commit group.
//!
//! Invariants:
//!
//! - An entry is recorded as applied in the group that holds its last writes, so it is applied exactly once.
//! - What a group changes for watchers, leases and the graph view is handed over once the group is visible.
//! - Users are shown with the group that has changed them: not before, when a new right would be one to old data, and not
//!   after, when a right that is taken away would be one to new data.

use std::sync::Arc;

use bowline_storage::Index;
use bowline_storage::engine::{BatchWriter, CommitGroup};
use bowline_storage::sync::MutexGuard;
use bowline_storage::sync::atomic::Ordering;
use bowline_types::Revision;

use bowline::DbReader;
use bowline_core::error::{Error, Result};
use bowline_core::graph::csr::GraphChanges;
use bowline_core::lease::LeaseId;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::watch::Change;
use bowline_core::write::writer::Collect;

use super::command::{Command, Refusal, Reply};
use super::index::IndexEffect;
use super::plan::{Effect, LeaseEffect, Place, Plan, Planner, QuotaEffect, TokenEffect};
use super::quota::QuotaRefusal;
use super::{AppliedMark, ApplyState, Replica, trim_history};

/// Applies entries of the log, in order. Made by [`Replica::apply`].
///
/// Its entries become visible with [`Applier::finish`], and some before. If it is dropped unfinished with
/// entries in it, all writing stops, as for a commit group left half-way.
pub struct Applier<'a> {
    replica: &'a Replica,
    db: &'a DbReader,
    state: MutexGuard<'a, ApplyState>,
    _order: MutexGuard<'a, ()>,
    group: Option<CommitGroup<'a>>,
    published: Vec<(Revision, Vec<Change>)>,
    /// The changes of the graph, for its view.
    graph: GraphChanges,
    /// The effects on leases, applied when the group is visible.
    leases: Vec<(LeaseId, LeaseEffect)>,
    last: Revision,
    /// Whether the group holds writes that no applied record in it covers yet.
    is_unrecorded: bool,
    /// Whether the group changes users.
    changes_users: bool,
    /// The memory of the batches, one after the other.
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Applier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// The minimum room of a new commit group, so that it can take many commands.
const GROUP_BYTES: u64 = 64 << 10;
const GROUP_OPERATIONS: u64 = 256;
/// The reserve for the applied record: more than a membership takes.
const MARK_BYTES: u64 = 16 << 10;

impl<'a> Applier<'a> {
    pub(crate) fn new(replica: &'a Replica) -> Applier<'a> {
        let state = replica.state.lock();
        Applier {
            replica,
            db: &replica.db,
            last: replica.db.revision(),
            state,
            _order: replica.core().apply_order.lock(),
            group: None,
            published: Vec::new(),
            graph: GraphChanges::default(),
            leases: Vec::new(),
            is_unrecorded: false,
            changes_users: false,
            buffer: Vec::new(),
        }
    }

    fn core(&self) -> &'a Core {
        self.db.core()
    }

    /// Applies one entry. `index` is its index in the log, `mark` is stored once all of it is applied. With
    /// `awaited`, which says of each command whether somebody waits for its reply, the result has one reply per
    /// command: without what it reads where nobody does.
    ///
    /// # Errors
    /// This member failed and must stop. A refused command is no error.
    pub fn entry(
        &mut self,
        index: Index,
        term: u64,
        commands: &[Command],
        mark: &[u8],
        awaited: Option<&[bool]>,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        let done_before = self.state.applied.commands;
        for (at, command) in commands.iter().enumerate() {
            let number = at as u64;
            if number < done_before {
                continue;
            }
            let is_awaited = awaited.is_some_and(|all| all.get(at) == Some(&true));
            let reply = self.command(index, term, command, number, is_awaited)?;
            if awaited.is_some() {
                replies.push(reply);
            }
        }
        // With the mark there is always something to write.
        let record = AppliedMark::encode(mark, 0);
        self.write_applied(index, &record)?;
        self.state.applied = AppliedMark {
            mark: mark.to_vec(),
            commands: 0,
        };
        self.state.index = index;
        Ok(replies)
    }

    fn command(
        &mut self,
        index: Index,
        term: u64,
        command: &Command,
        number: u64,
        wants_reply: bool,
    ) -> Result<Reply> {
        let core = self.core();
        let collect = Collect {
            events: core.hub.is_watched(),
            graph: core.graph_view.is_collecting(),
        };
        let planner = Planner::new(
            &core.engine,
            (&core.kinds, &core.indexes),
            (&self.state.known, &self.replica.tokens),
            self.last,
            Place { index, term },
            wants_reply,
            collect,
        );
        let planner = planner
            .with_writes_max(self.replica.writes_max())
            .with_buffer(std::mem::take(&mut self.buffer));
        let Plan {
            batch,
            operations,
            revision,
            changes,
            mut graph,
            effects,
            reply,
        } = planner.plan(command)?;
        if let Err(Refusal::Quota(QuotaRefusal::Exceeded { .. })) = reply.result {
            self.replica.quota_refusals.fetch_add(1, Ordering::Relaxed);
        }
        if operations > 0 {
            let bytes = batch.len() as u64;
            let has_room =
                |group: &CommitGroup<'_>| group.has_room(operations + 1, bytes + MARK_BYTES);
            if !self.group.as_ref().is_some_and(has_room) {
                // A part of the entry is published: its length is recorded.
                if number > self.state.applied.commands {
                    self.write_part(number)?;
                }
                self.publish()?;
                self.begin(operations, bytes)?;
            }
            let group = self.group.as_mut().ok_or_else(no_group)?;
            // Until the entry is complete, the index is that of the one before.
            group.apply_at(self.state.index.min(index), &batch)?;
            self.is_unrecorded = true;
            self.graph.append(&mut graph);
            if collect.events && revision > self.last {
                self.published.push((revision, changes));
            }
            self.last = revision;
        }
        self.buffer = batch;
        for effect in effects {
            self.effect(effect, index, number + 1)?;
        }
        Ok(reply)
    }

    fn begin(&mut self, operations: u64, bytes: u64) -> Result<()> {
        let operations = operations.max(GROUP_OPERATIONS) + 1;
        let bytes = bytes.max(GROUP_BYTES) + MARK_BYTES;
        let engine = &self.core().engine;
        // A full disk holds up flushes. Then the memtable takes committed entries all the same, or this
        // member would fall behind.
        let group = engine.begin_freeing_group(1, operations, bytes)?;
        self.group = Some(group);
        Ok(())
    }

    /// Records that the first `commands` commands of the next entry are in the state.
    fn write_part(&mut self, commands: u64) -> Result<()> {
        let record = AppliedMark::encode(&self.state.applied.mark, commands);
        let index = self.state.index;
        self.write_applied(index, &record)?;
        self.state.applied.commands = commands;
        Ok(())
    }

    fn write_applied(&mut self, index: Index, record: &[u8]) -> Result<()> {
        let bytes = record.len() as u64 + 64;
        if !self
            .group
            .as_ref()
            .is_some_and(|group| group.has_room(1, bytes))
        {
            if self.is_unrecorded {
                // There is a reserve for this, unless the mark is huge.
                return Err(Error::NotSupported {
                    what: "a mark of this size",
                    why: "it does not fit beside what it speaks of",
                });
            }
            // Entries without changes may have filled the group with their records.
            self.publish()?;
            self.begin(1, bytes)?;
        }
        let mut batch = Vec::with_capacity(record.len() + 16);
        let mut writer = BatchWriter::start(&mut batch, self.last.get());
        writer.put(trees::SYSTEM, &trees::applied_key(), record, &[]);
        let group = self.group.as_mut().ok_or_else(no_group)?;
        group.apply_at(index, &batch)?;
        self.is_unrecorded = false;
        Ok(())
    }

    fn effect(&mut self, effect: Effect, index: Index, commands: u64) -> Result<()> {
        let core = self.core();
        match effect {
            Effect::Lease(id, effect) => self.leases.push((id, effect)),
            Effect::Kind(id, name) => core.kinds.insert(id, &name),
            Effect::Alarm(member, kind, true) => {
                self.state.known.alarms.insert((member, kind));
                self.replica.show(&self.state.known);
            }
            Effect::Alarm(member, kind, false) => {
                self.state.known.alarms.remove(&(member, kind));
                self.replica.show(&self.state.known);
            }
            Effect::Users(users) => {
                self.state.known.users = users;
                self.changes_users = true;
            }
            Effect::Quota(QuotaEffect::Used(all)) => {
                for (place, used) in all {
                    if let Some(quota) = self.state.known.quotas.at(place) {
                        quota.set_used(used);
                    }
                }
            }
            Effect::Quota(QuotaEffect::Changed(prefix, quota)) => {
                let quotas = self.state.known.quotas.with(&prefix, quota);
                self.state.known.quotas = Arc::new(quotas);
                self.replica.show(&self.state.known);
            }
            Effect::Index(IndexEffect::Put(index)) => core.indexes.put(index),
            Effect::Index(IndexEffect::Removed(id)) => core.indexes.remove(id),
            Effect::Tokens(TokenEffect::Added(token, session)) => {
                self.replica.tokens.add(token, session);
            }
            Effect::Tokens(TokenEffect::Renewed(token, expires_ms)) => {
                self.replica.tokens.renew(&token, expires_ms);
            }
            Effect::Tokens(TokenEffect::Removed(tokens)) => {
                for token in &tokens {
                    self.replica.tokens.remove(token);
                }
            }
            Effect::Compacted(revision) => {
                self.state.known.compacted = Some(revision);
                self.replica.show(&self.state.known);
                // The record covers what is visible.
                self.write_part(commands)?;
                self.publish()?;
                core.engine.hold_tombstones_later(index, revision.get());
                trim_history(&core.engine, revision)?;
            }
        }
        Ok(())
    }

    /// Makes the applied entries visible.
    fn publish(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        self.finish_group(group)?;
        let core = self.core();
        let now = self.core().clock().monotonic();
        for (id, effect) in self.leases.drain(..) {
            match effect {
                LeaseEffect::Granted(grant) => core.leases.insert(id, grant, now),
                LeaseEffect::Ended => core.leases.remove(id),
                LeaseEffect::Recorded(left) => core.leases.set_recorded(id, left),
            }
        }
        for (revision, changes) in self.published.drain(..) {
            core.hub.publish(revision, changes);
        }
        core.hub.wake();
        core.publish_graph(&mut self.graph);
        Ok(())
    }

    /// Makes a group visible, with the users that it has changed.
    fn finish_group(&mut self, group: CommitGroup<'_>) -> Result<()> {
        if !std::mem::take(&mut self.changes_users) {
            group.finish()?;
            return Ok(());
        }
        let replica = self.replica;
        replica.sequence.begin();
        let finished = group.finish();
        if finished.is_ok() {
            replica.show_users(&self.state.known.users);
        }
        replica.sequence.end_group();
        finished?;
        replica.tell_of_users();
        Ok(())
    }

    /// Makes everything visible; returns the newest revision.
    ///
    /// # Errors
    /// As of [`Applier::entry`].
    pub fn finish(mut self) -> Result<Revision> {
        self.publish()?;
        Ok(self.last)
    }
}

fn no_group() -> Error {
    Error::Storage(bowline_storage::Error::Internal(
        "no commit group".to_owned(),
    ))
}
