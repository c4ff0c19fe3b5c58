//! The replica as openraft's state machine.
//!
//! Entries are applied in chunks of all available ones: one round of the engine, one publication. The mark
//! stored with the replica's state holds the id of the last entry and the membership, so that both are
//! exactly as new as the state.
//!
//! A full disk stops nothing here: applying takes memory only, a snapshot is then that of the last flush, and
//! an installation is retried until there is room. The same holds when the process has no free file
//! descriptor. An installation also waits for the readers of a table that comes again under the same name.
//!
//! *Repair.* A state machine that meets damage in its tables waits for the snapshot of another member, which
//! replaces them; see [`StateMachine::be_repaired`]. The log, the vote and the id stay, so the member goes on
//! voting. Invariants: the snapshot contains every entry that was applied, and the log holds its last entry. An
//! entry that came with the snapshot is not applied again.
//!
//! ```text
//! mark  | term varint | node varint | index varint | has membership u8
//!       | (its term varint, node varint, index varint, 0 or 1 before) | membership |
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_replica::Replica;
use bowline_storage::codec::{Reader, put_varint};
use bowline_storage::engine::FrozenTables;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use tokio::sync::watch;

use super::log_store::LogStore;
use super::repairs::{Arrival, Repairs, Wanted};
use super::waiters::{Applied, Awaited, Waiters};
use crate::blocking;
use crate::error::Error;
use crate::in_place::in_place;
use crate::log_limit::SharedLogLimit;
use crate::peer::{OutgoingFile, SnapshotData, SnapshotFile};
use crate::record;
use crate::types::{
    self, LeaderId, LogId, Membership, SnapshotMeta, StoredMembership, TypeConfig, log_id,
};

type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotData>;

/// The most entries applied at once.
const CHUNK_ENTRIES: usize = 256;

/// How long the log may take to receive the last entry of a snapshot that repairs the state.
const LOG_WITHIN: Duration = Duration::from_secs(10);

/// The pause between attempts without disk space or file descriptors.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// The position up to which this member has applied the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// One past the Raft index of the last entry; 0 is none.
    pub(crate) next: u64,
    /// The leader that proposed the last entry.
    pub(crate) leader: Option<LeaderId>,
}

impl Progress {
    fn of(last: Option<LogId>) -> Progress {
        Progress {
            next: last.map_or(0, |id| id.index + 1),
            leader: last.map(|id| id.leader_id),
        }
    }

    /// The term of the last entry.
    pub(crate) fn term(&self) -> u64 {
        self.leader.map_or(0, |leader| leader.term)
    }
}

/// The state machine.
#[derive(Clone)]
pub(crate) struct StateMachine {
    replica: Arc<Replica>,
    log: LogStore,
    waiters: Arc<Waiters>,
    progress: Arc<watch::Sender<Progress>>,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    repairs: Arc<Repairs>,
    /// The last entry that was passed over, as the tables are damaged.
    passed_over: Option<LogId>,
    /// The last entry that the consensus has had applied. Tables that came for a repair may be ahead of it.
    ordered: Option<LogId>,
    limits: Arc<Limits>,
    /// Whether a task flushes and merges, in a simulation.
    is_merging: Arc<AtomicBool>,
}

/// Limits of repeated log messages.
#[derive(Default)]
struct Limits {
    older_snapshot: SharedLogLimit,
    waits: SharedLogLimit,
}

impl StateMachine {
    /// The id of the last applied entry. With `is_founder` the entries of an embedded database count as
    /// committed.
    pub(crate) fn applied_of(replica: &Replica, is_founder: bool) -> Result<Option<LogId>, Error> {
        let mark = replica.applied().mark;
        if mark.is_empty() {
            let embedded = replica
                .flushed_index()
                .checked_sub(1)
                .filter(|_| is_founder);
            return Ok(embedded.map(|index| log_id(0, 0, index)));
        }
        let decoded = decode_mark(&mark);
        let invalid = || Error::stopped("the applied mark does not decode");
        decoded.map(|(id, _)| Some(id)).ok_or_else(invalid)
    }

    /// Continues at the replica's position. `founder` is the membership of a cluster founded with an embedded
    /// database, until an entry has been applied.
    pub(crate) fn new(
        replica: Arc<Replica>,
        log: LogStore,
        waiters: Arc<Waiters>,
        founder: Option<Membership>,
    ) -> Result<StateMachine, Error> {
        let mark = replica.applied().mark;
        let (last_applied, membership) = match (mark.is_empty(), founder) {
            (false, _) => {
                let decoded = decode_mark(&mark);
                let (id, membership) =
                    decoded.ok_or_else(|| Error::stopped("the applied mark does not decode"))?;
                (Some(id), membership)
            }
            (true, Some(founder)) if replica.flushed_index() > 0 => {
                // The embedded time ends with an entry that counts as committed by this member alone.
                let id = log_id(0, 0, replica.flushed_index() - 1);
                (Some(id), StoredMembership::new(Some(id), founder))
            }
            _ => (None, StoredMembership::default()),
        };
        let progress = Progress::of(last_applied);
        waiters.note_what_is_kept(&replica);
        waiters.leader_applied(progress.leader);
        Ok(StateMachine {
            replica,
            log,
            waiters,
            progress: Arc::new(watch::Sender::new(progress)),
            last_applied,
            membership,
            repairs: Arc::default(),
            passed_over: None,
            ordered: last_applied,
            limits: Arc::default(),
            is_merging: Arc::default(),
        })
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn repairs(&self) -> Arc<Repairs> {
        self.repairs.clone()
    }

    fn apply_chunk(&mut self, chunk: Vec<EntryResponder<TypeConfig>>) -> Result<(), Error> {
        let replica = self.replica.clone();
        let mut applier = replica.apply();
        let mut responders = Vec::new();
        let mut answers: Vec<(u64, Vec<Applied>)> = Vec::new();
        for (entry, responder) in chunk {
            let id = entry.log_id;
            if Some(id) <= self.last_applied {
                // It came with a snapshot.
                responders.extend(responder);
                continue;
            }
            let mut commands = Vec::new();
            let mut awaited = None;
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(proposal) => {
                    let parts = self.waiters.take(&proposal.0)?;
                    (commands, awaited) = (parts.commands, parts.awaited);
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(id), membership);
                }
            }
            self.last_applied = Some(id);
            let mark = encode_mark(&id, &self.membership);
            let term = id.leader_id.term;
            let of_each = awaited.as_ref().map(|awaited| &awaited.of_each[..]);
            let replies = applier.entry(id.index + 1, term, &commands, &mark, of_each)?;
            if let Some(Awaited { number, .. }) = awaited {
                let index = id.index;
                let outcome = |reply| Applied { reply, index, term };
                answers.push((number, replies.into_iter().map(outcome).collect()));
            }
            responders.extend(responder);
        }
        applier.finish()?;
        self.run_background();
        let progress = Progress::of(self.last_applied);
        self.progress.send_replace(progress);
        for (number, outcomes) in answers {
            self.waiters.applied(number, outcomes);
        }
        // After the outcomes: an entry without one by now will never have one.
        self.waiters.note_what_is_kept(&self.replica);
        self.waiters.leader_applied(progress.leader);
        for responder in responders {
            responder.send(types::Applied::default());
        }
        Ok(())
    }

    /// Flushes and merges, if the database has no threads for that. In a simulation it happens later and step by step, so that
    /// other work overtakes it, as it overtakes a thread.
    fn run_background(&self) {
        if !blocking::is_alone() {
            while self.replica.run_background() {}
            return;
        }
        if self.is_merging.swap(true, Ordering::Relaxed) {
            return;
        }
        let (replica, is_merging) = (self.replica.clone(), self.is_merging.clone());
        tokio::spawn(async move {
            loop {
                blocking::wait_for_the_background().await;
                if !replica.run_background() {
                    break;
                }
            }
            is_merging.store(false, Ordering::Relaxed);
        });
    }

    /// The tables with everything applied; on a full disk, and while they wait to be replaced, those of the last flush.
    fn snapshot(&self) -> Result<Option<(SnapshotMeta, FrozenTables)>, Error> {
        let frozen = match self.repairs.was_put_off() {
            // A part of a chunk may be in memory.
            Some(_) => match self.replica.freeze_flushed()? {
                Some(frozen) => Ok(frozen),
                None => return Ok(None),
            },
            None => self.replica.freeze().map_err(Error::from),
        };
        let (frozen, mark) = match frozen {
            Err(short) if is_shortage(&short) => {
                if let Some(more) = self.limits.older_snapshot.admit_now() {
                    tracing::warn!(%short, "a snapshot is that of the last flush{more}");
                }
                self.replica.freeze_flushed()?.ok_or(short)?
            }
            // The same when the damage was met just now. If a flush has failed, the state machine says so.
            Err(half_done) if is_poisoned(&half_done) => match self.replica.freeze_flushed()? {
                Some(frozen) => frozen,
                None => return Ok(None),
            },
            frozen => frozen?,
        };
        self.log.set_flushed(frozen.index);
        let (last_log_id, last_membership) = if mark.is_empty() {
            match self.last_applied {
                Some(id) => (id, self.membership.clone()),
                None => return Ok(None),
            }
        } else {
            decode_mark(&mark).ok_or_else(|| Error::stopped("the applied mark does not decode"))?
        };
        let meta = SnapshotMeta {
            last_log_id: Some(last_log_id),
            last_membership,
        };
        Ok(Some((meta, frozen)))
    }

    async fn install(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> Result<(), Error> {
        let SnapshotData::Incoming {
            state,
            directory,
            arrival: _until_installed,
            ..
        } = snapshot
        else {
            return Err(Error::stopped(
                "a snapshot of this member to be installed here",
            ));
        };
        let Some(last) = meta.last_log_id else {
            return Err(Error::stopped("a snapshot without an end"));
        };
        let keeps_log = self.log.holds(&last).await?;
        if keeps_log {
            // The entry may be in memory only. The tables must never be ahead of the log.
            self.log.flush().await?;
        }
        let (state, directory) = (Arc::new(state), Arc::new(directory));
        let installed = loop {
            let replica = self.replica.clone();
            let (state, directory) = (state.clone(), directory.clone());
            let installing =
                blocking::spawn(move || replica.install(&state, &directory, keeps_log));
            let installed = installing.await.map_err(Error::stopped)?;
            match installed.map_err(Error::from) {
                Err(later) if is_shortage(&later) || is_still_read(&later) => {
                    self.wait_for_room(&later).await?;
                }
                installed => break installed?,
            }
        };
        if installed.index != last.index + 1 {
            return Err(Error::stopped("a snapshot ends elsewhere than it said"));
        }
        if !keeps_log {
            self.log.restart_behind(last).await?;
            while let Err(error) = self.replica.log_restarted().map_err(Error::from) {
                if !is_shortage(&error) {
                    return Err(error);
                }
                self.wait_for_room(&error).await?;
            }
        }
        self.log.set_flushed(installed.index);
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        let progress = Progress::of(Some(last));
        // The fate of proposals within the tables is unknown.
        self.waiters.skipped();
        self.progress.send_replace(progress);
        self.waiters.note_what_is_kept(&self.replica);
        self.waiters.leader_applied(progress.leader);
        Ok(())
    }
}

impl StateMachine {
    /// Waits for another member's snapshot that has every entry up to `until` and every one that was applied, and
    /// replaces the tables by it. Nothing is applied meanwhile. Ends without one when the member closes, and when no leader
    /// has announced one for `timeout`, if there is one.
    pub(crate) async fn be_repaired(
        &mut self,
        until: Option<LogId>,
        reason: String,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let last = self.last_applied.max(until).max(self.passed_over);
        let next = last.map_or(0, |id| id.index + 1);
        tracing::warn!(
            reason,
            next,
            "the tables of this member are replaced by those of another one"
        );
        let repairs = self.repairs.clone();
        let _waiting = repairs.wait(Wanted {
            next,
            reason: reason.clone(),
        });
        let began = tokio::time::Instant::now();
        loop {
            let mut arrival = repairs.next();
            // Checked after that, so that no request is missed.
            if repairs.yields() {
                self.passed_over = last;
                repairs.put_off(reason);
                return Ok(());
            }
            let arrived = loop {
                match tokio::time::timeout(ROOM_PAUSE, &mut arrival).await {
                    Ok(arrived) => break arrived,
                    Err(_) if self.log.is_closing() => return Err(Error::stopped("it is closed")),
                    Err(_) => {
                        let heard = repairs.promised_at().map_or(began, |at| at.max(began));
                        if timeout.is_some_and(|timeout| heard.elapsed() > timeout) {
                            return Err(Error::Timeout);
                        }
                    }
                }
            };
            let Ok(arrived) = arrived else {
                continue;
            };
            let Arrival {
                meta,
                snapshot,
                installed,
            } = arrived;
            let result = match self.has_in_log(meta.last_log_id).await {
                Ok(()) => self.install(&meta, snapshot).await,
                Err(error) => Err(error),
            };
            let said = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            // An error means that the sender has gone.
            let _ = installed.send(said);
            match result {
                Ok(()) => {
                    let index = meta.last_log_id.map(|id| id.index);
                    tracing::info!(index, "this member has sound tables again");
                    self.passed_over = None;
                    repairs.is_done();
                    repairs.count();
                    return Ok(());
                }
                // Nothing has changed: the next one may do.
                Err(Error::Timeout) => {}
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes entries over, as the tables are damaged: they come with the snapshot that replaces the tables. That is later
    /// while the member starts, and while the consensus is about to install a snapshot.
    async fn pass_over(&mut self, last: Option<LogId>, reason: String) -> Result<(), io::Error> {
        if self.repairs.is_up() && !self.repairs.yields() {
            return self.be_repaired(last, reason, None).await.map_err(failed);
        }
        tracing::warn!(
            reason,
            "the tables of this member are damaged: they are replaced a little later"
        );
        self.passed_over = last.max(self.passed_over);
        self.repairs.put_off(reason);
        Ok(())
    }

    /// Waits until the log has the last entry of a snapshot, so that it can go on behind it.
    async fn has_in_log(&self, last: Option<LogId>) -> Result<(), Error> {
        let last = last.ok_or_else(|| Error::stopped("a snapshot without an end"))?;
        let began = tokio::time::Instant::now();
        while !self.log.holds(&last).await? {
            if began.elapsed() > LOG_WITHIN {
                return Err(Error::Timeout);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Whether other voters may have what this member lacks.
    fn has_others(&self) -> bool {
        self.membership.membership().voter_ids().count() > 1
    }

    /// [`StateMachine::snapshot`] on a blocking thread; waits for room if nothing was ever flushed.
    async fn freeze(&self) -> Result<Option<(SnapshotMeta, FrozenTables)>, io::Error> {
        loop {
            let machine = self.clone();
            let freezing = blocking::spawn(move || machine.snapshot());
            match freezing.await.map_err(io::Error::other)? {
                Err(short) if is_shortage(&short) => {
                    self.wait_for_room(&short).await.map_err(failed)?;
                }
                frozen => return frozen.map_err(failed),
            }
        }
    }

    /// Waits a moment for disk space, a file descriptor or the end of a reader, unless the member is closing.
    async fn wait_for_room(&self, short: &Error) -> Result<(), Error> {
        if let Some(more) = self.limits.waits.admit_now() {
            tracing::error!(%short, "the state machine waits and tries again{more}");
        }
        tokio::time::sleep(ROOM_PAUSE).await;
        match self.log.is_closing() {
            true => Err(Error::stopped("it is closed")),
            false => Ok(()),
        }
    }
}

/// Whether disk space or a file descriptor was missing: nothing has changed, and a retry may succeed.
fn is_shortage(error: &Error) -> bool {
    matches!(error, Error::Storage(bowline::Error::Storage(error)) if error.is_shortage())
}

/// Whether a table came whose file of before has a reader still: nothing has changed, and a retry succeeds once the
/// reader has ended.
fn is_still_read(error: &Error) -> bool {
    use bowline_storage::Error as Cause;
    matches!(
        error,
        Error::Storage(bowline::Error::Storage(Cause::StillRead { .. }))
    )
}

/// Whether the engine takes no more, as a part of a chunk is in memory or a write has failed.
fn is_poisoned(error: &Error) -> bool {
    use bowline_storage::Error as Cause;
    matches!(
        error,
        Error::Storage(bowline::Error::Storage(Cause::Poisoned { .. }))
    )
}

fn failed(error: Error) -> io::Error {
    tracing::error!(%error, "the state machine failed; this member stops");
    io::Error::other(error)
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = StateMachine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunks = entries.ready_chunks(CHUNK_ENTRIES);
        while let Some(chunk) = chunks.next().await {
            let chunk: Result<Vec<_>, _> = chunk.into_iter().collect();
            let chunk = chunk?;
            let last = chunk.last().map(|(entry, _)| entry.log_id);
            self.ordered = last.max(self.ordered);
            if let Some(reason) = self.repairs.was_put_off() {
                self.pass_over(last, reason).await?;
                continue;
            }
            // An apply that waits for a flush would delay the member's own heartbeats.
            let is_long = self.replica.is_behind();
            match in_place(is_long, || self.apply_chunk(chunk)) {
                // The outcomes of its commands are unknown.
                Err(damage) if damage.is_damage() && self.has_others() => {
                    self.pass_over(last, damage.to_string()).await?;
                }
                applied => applied.map_err(failed)?,
            }
        }
        Ok(())
    }

    /// None while the tables are ahead of what the consensus has had applied: it would trim the log up to the snapshot,
    /// and then ask for entries that are gone.
    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<StateMachine> {
        (self.last_applied <= self.ordered).then(|| self.clone())
    }

    async fn get_snapshot_builder(&mut self) -> StateMachine {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> Result<(), io::Error> {
        self.install(meta, snapshot).await.map_err(failed)?;
        self.ordered = self.last_applied.max(self.ordered);
        self.passed_over = None;
        self.repairs.is_done();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let Some((meta, frozen)) = self.freeze().await? else {
            return Ok(None);
        };
        let files = frozen.tables.iter().map(|table| OutgoingFile {
            described: SnapshotFile {
                name: table.name(),
                bytes: table.file_bytes(),
                crc32c: 0,
            },
            file: table.file().clone(),
            table: Some(table.clone()),
        });
        let snapshot = SnapshotData::Outgoing {
            files: files.collect(),
            state: Bytes::from(frozen.state),
        };
        Ok(Some(Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;

    /// The tables are the snapshot: flushing them is enough before the log can be trimmed. Files are listed
    /// when a member asks for them.
    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let Some((meta, frozen)) = self.freeze().await? else {
            return Err(io::Error::other("nothing has been applied yet"));
        };
        if Some(frozen.index) < self.last_applied.map(|id| id.index + 1) {
            // On a full disk it is older than requested, and another is requested at once.
            tokio::time::sleep(ROOM_PAUSE).await;
        }
        let snapshot = SnapshotData::Outgoing {
            state: Bytes::from(frozen.state),
            files: Vec::new(),
        };
        Ok(Snapshot { meta, snapshot })
    }
}

fn put_id(id: &LogId, out: &mut Vec<u8>) {
    put_varint(out, id.leader_id.term);
    put_varint(out, id.leader_id.node_id);
    put_varint(out, id.index);
}

fn read_id(reader: &mut Reader<'_>) -> Option<LogId> {
    let (term, node) = (reader.varint()?, reader.varint()?);
    Some(log_id(term, node, reader.varint()?))
}

pub(crate) fn encode_mark(id: &LogId, membership: &StoredMembership) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    put_id(id, &mut out);
    match membership.log_id() {
        Some(at) => {
            out.push(1);
            put_id(at, &mut out);
        }
        None => out.push(0),
    }
    record::encode_membership(membership.membership(), &mut out);
    out
}

pub(crate) fn decode_mark(bytes: &[u8]) -> Option<(LogId, StoredMembership)> {
    let mut reader = Reader::new(bytes);
    let id = read_id(&mut reader)?;
    let at = match reader.u8()? {
        0 => None,
        1 => Some(read_id(&mut reader)?),
        _ => return None,
    };
    let membership = record::decode_membership(reader.rest()).ok()?;
    Some((id, StoredMembership::new(at, membership)))
}

#[cfg(test)]
mod tests;
