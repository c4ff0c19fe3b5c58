//! The database as a replicated state machine.
//!
//! The members agree on a log of entries; each entry is a list of [`Command`]s. A [`Replica`] applies them in
//! order, and all replicas reach the same state at the same revisions, and the same [`Reply`]s. It knows
//! nothing of the consensus: its owner receives the opened log, and the owner's data for each entry (its
//! term, the membership) is an opaque *mark*, written in the same commit group as the entry's changes.
//!
//! ```text
//! owner ──entry(index, term, commands, mark)──► Planner ──batch──► CommitGroup ──► memtable
//!                                                  │                 │
//!                                                  └── Reply         └─ applied record: (mark, part)
//! ```
//!
//! Reads go through a [`DbReader`], the part of [`Db`] that reads.
//!
//! Modules use only modules below them: `applier`, `authorize`, `reads`; `plan`, `weigh`; `range`, `present`; `needs`;
//! `work`, `codec`, `restore`; `command`; `users`, `quota`, `index`; `overlay`, `records`, `sequence`, `walked`.
//!
//! Invariants:
//!
//! - The applied record and the changes that it describes are in one commit group, so in one memtable, so in one
//!   edit of the manifest: an entry is applied exactly once, whatever is lost.
//! - A group becomes visible as a whole, and replies are given out after that.
//! - Applying reads no clock and no setting of this member (`plan`).

mod applier;
mod authorize;
mod codec;
mod command;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod needs;
mod overlay;
mod plan;
mod present;
mod quota;
mod range;
mod reads;
mod records;
mod restore;
mod sequence;
#[cfg(test)]
mod tests;
mod users;
mod walked;
mod weigh;
mod work;

use std::cell::Cell;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_storage::engine::{
    ArrivingFiles, Engine, FrozenTables, Installed, Replicated, ScanDirection,
};
use bowline_storage::log::Log;
use bowline_storage::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use bowline_storage::sync::{ArcSwap, Mutex};
use bowline_storage::{Clock, Index};
use bowline_types::Revision;

pub use applier::Applier;
pub use codec::{
    COMMAND_VERSION, COMMANDS_MAX, DecodeError, TXN_DEPTH_MAX, commands_version, decode_commands,
    encode_commands, require_indexes, require_quotas,
};
pub use command::*;
pub use index::{IndexChange, IndexProgress, IndexRefusal, NotUnique};
pub use needs::{Need, needs, needs_of_txn};
pub use quota::{Limited, QuotaChange, QuotaRefusal};
pub use reads::ReadAt;
pub use records::AppliedMark;
pub use restore::{FrozenSource, RestoredAs, restore};
pub use users::{
    Access, Actor, Caller, Grant, NAME_BYTES_MAX, Permission, ROOT, Rights, Role, Session,
    TokenChange, TokenHash, User, Users, UsersChange, UsersRefusal,
};
pub use work::{PROPOSAL_BYTES_MAX, TXN_BYTES_MAX, TXN_KEYS_MAX, Weight};

pub use bowline_core::lease::{LeaseLeft, Renewal};
pub use bowline_types::{EdgeKey, GraphWrite, Quota, QuotaLimits, QuotaUse, Touched};

use bowline::{Db, DbBuilder, DbReader, TreeHashes};
use bowline_core::error::{Error, Result, show_key};
use bowline_core::index::State;
use bowline_core::lease::{self, LeaseId};
use bowline_core::options::Limits;
use bowline_core::quota::Quotas;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_core::write::writer;
use plan::Known;
use sequence::StateSequence;
use users::Tokens;
use work::Work;

/// Options for opening a member's database.
pub struct ReplicaOptions<'a> {
    /// The id of a newly created database: the same for all members of the cluster.
    pub database_id: u128,
    /// The id of the first file that this opening makes. The upper half is the member's; the lower half is to be drawn at
    /// random for each opening, as the directory may be an older one than the member has had.
    pub first_file_id: u64,
    /// Called once the directory is locked, before anything else is created in it, with whether it holds a
    /// database: no other process can open or create one then.
    pub locked: &'a mut dyn FnMut(bool) -> bowline_storage::Result<()>,
    /// Called when the log is damaged, or gone. With `true` the caller has noted, durably, that entries which it acknowledged
    /// may be missing: the log begins anew behind the tables. With `false` the opening fails.
    pub damaged: &'a mut dyn FnMut(&bowline_storage::Error) -> bowline_storage::Result<bool>,
    /// Visits every log entry behind the flushed ones, in order, as it was written.
    pub visit: &'a mut dyn FnMut(Index, &[u8]) -> bowline_storage::Result<()>,
}

impl std::fmt::Debug for ReplicaOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaOptions").finish_non_exhaustive()
    }
}

/// A member's database. See the [module](self).
#[derive(Debug)]
pub struct Replica {
    db: DbReader,
    state: Mutex<ApplyState>,
    /// Whether an alarm for space is raised. Read without the lock of the applier.
    is_out_of_space: AtomicBool,
    /// Whether an alarm is raised that data differs. Read without the lock of the applier.
    is_corrupt: AtomicBool,
    /// The most bytes of a command's writes.
    writes_max: AtomicU64,
    shown: Mutex<Shown>,
    /// Whether the users and the data are of one state.
    sequence: StateSequence,
    /// The users, as of the last visible command. Read without a lock.
    users: ArcSwap<Users>,
    /// Whether authentication is enabled: all that a call reads of users while it is not.
    are_users_enabled: AtomicBool,
    /// The tokens, as of the last applied command.
    tokens: Tokens,
    /// Called after each change of users.
    users_listener: UsersListener,
    /// The quotas; their counters are those of the last applied command. Read without a lock.
    quotas: ArcSwap<Quotas>,
    quota_refusals: AtomicU64,
}

/// A function that is called after each change of users.
#[derive(Default)]
struct UsersListener(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for UsersListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsersListener").finish_non_exhaustive()
    }
}

/// State outside the trees, for readers while entries are applied.
#[derive(Debug, Default)]
struct Shown {
    alarms: Vec<(u64, AlarmKind)>,
    compacted: Option<Revision>,
}

#[derive(Debug, Default)]
struct ApplyState {
    known: Known,
    applied: AppliedMark,
    /// The log index of the last entry that was applied as a whole.
    index: Index,
}

impl Replica {
    /// Opens the database in `path`, or creates it. The log belongs to the caller.
    ///
    /// # Errors
    /// As [`DbBuilder::open`].
    pub fn open(
        builder: DbBuilder,
        path: impl Into<PathBuf>,
        options: ReplicaOptions<'_>,
    ) -> Result<(Replica, Log)> {
        let ReplicaOptions {
            database_id,
            first_file_id,
            locked,
            damaged,
            visit,
        } = options;
        let replicated = Replicated {
            database_id,
            first_file_id,
            locked,
            damaged,
            visit,
        };
        let (db, log) = builder.open_replicated(path.into(), replicated)?;
        let replica = Replica {
            db,
            state: Mutex::default(),
            is_out_of_space: AtomicBool::new(false),
            is_corrupt: AtomicBool::new(false),
            writes_max: AtomicU64::new(Limits::TRANSACTION_SIZE_BYTES),
            shown: Mutex::default(),
            sequence: StateSequence::default(),
            users: ArcSwap::from_pointee(Users::default()),
            are_users_enabled: AtomicBool::new(false),
            tokens: Tokens::default(),
            users_listener: UsersListener::default(),
            quotas: ArcSwap::from_pointee(Quotas::default()),
            quota_refusals: AtomicU64::new(0),
        };
        replica.load(&mut replica.state.lock())?;
        Ok((replica, log))
    }

    /// Loads the state outside the trees.
    fn load(&self, state: &mut ApplyState) -> Result<()> {
        let engine = &self.core().engine;
        let read = |key: &[u8]| {
            engine.read_newest(trees::SYSTEM, key, |found| {
                let put = found.filter(|f| f.kind == bowline_storage::EntryKind::Put);
                put.map(|found| found.bytes().to_vec())
            })
        };
        let key = trees::applied_key();
        state.applied = match read(&key)? {
            Some(bytes) => AppliedMark::decode(&bytes).ok_or_else(|| invalid("applied", &key))?,
            None => AppliedMark::default(),
        };
        let key = trees::compacted_key();
        state.known = Known::default();
        if let Some(bytes) = read(&key)? {
            let number = records::decode_number(&bytes);
            state.known.compacted = Some(Revision::new(
                number.ok_or_else(|| invalid("compacted", &key))?,
            ));
        }
        let prefix = trees::alarms_prefix();
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let at = engine.visible();
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        while scan.advance()? {
            let alarm = split_alarm(scan.key());
            let alarm = alarm.ok_or_else(|| invalid("alarm", scan.key()))?;
            state.known.alarms.insert(alarm);
        }
        let (users, tokens) = self.load_users()?;
        state.known.users = Arc::new(users);
        self.tokens.replace(tokens);
        state.known.quotas = Arc::new(Quotas::load(engine, Revision::new(at))?);
        self.show_users(&state.known.users);
        self.show(&state.known);
        // The tables contain no later compaction: commits may be validated against changes since this one.
        let compacted = state.known.compacted.unwrap_or(Revision::ZERO);
        engine.hold_tombstones(compacted.get());
        state.index = engine.flushed_index();
        // A crash may have come between a compaction's command and its trim of the history.
        if engine.history_floor() < compacted.get() {
            trim_history(engine, compacted)?;
        }
        Ok(())
    }

    /// Shows what is known besides users.
    fn show(&self, known: &Known) {
        self.quotas.store(known.quotas.clone());
        *self.shown.lock() = Shown {
            alarms: known.alarms.iter().copied().collect(),
            compacted: known.compacted,
        };
        self.is_out_of_space
            .store(known.is_out_of_space(), Ordering::Release);
        self.is_corrupt.store(known.is_corrupt(), Ordering::Release);
    }

    /// Shows the users, within a change of the [sequence](StateSequence).
    fn show_users(&self, users: &Arc<Users>) {
        self.users.store(users.clone());
        self.are_users_enabled
            .store(users.is_enabled(), Ordering::Release);
    }

    /// Calls the listener, after the users were shown.
    fn tell_of_users(&self) {
        if let Some(listener) = self.users_listener.0.get() {
            listener();
        }
    }

    /// Whether flush and compaction are behind, so that applying may be slowed.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.core().engine.pressure() > 0.0
    }

    /// Whether an alarm for space is raised: commands that take space are refused. Does not block.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        self.is_out_of_space.load(Ordering::Acquire)
    }

    /// Whether an alarm is raised that the data of members differs. Does not block.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.is_corrupt.load(Ordering::Acquire)
    }

    /// Ends the embedded time of a database: its trimmed history is recorded as a compaction, because the
    /// members must agree on what is readable, and everything is flushed.
    ///
    /// The record is written, not taken from the engine's history floor at each opening: after a crash the
    /// floor can be ahead of the entries that are applied again.
    ///
    /// # Errors
    /// `Storage` when the disk fails or is full.
    pub fn end_embedded_time(db: &Db) -> Result<()> {
        let floor = db.core().engine.history_floor();
        if floor > 1 {
            let record = records::encode_number(floor);
            db.put_system_record(&trees::compacted_key(), record)?;
        }
        db.flush()
    }

    fn core(&self) -> &Core {
        self.db.core()
    }

    /// The database's reader.
    #[must_use]
    pub fn db(&self) -> &DbReader {
        &self.db
    }

    /// The position up to which the log has been applied.
    #[must_use]
    pub fn applied(&self) -> AppliedMark {
        self.state.lock().applied.clone()
    }

    /// The last log entry in the tables: a restart does not need it any more.
    #[must_use]
    pub fn flushed_index(&self) -> Index {
        self.core().engine.flushed_index()
    }

    /// The alarms that are raised.
    #[must_use]
    pub fn alarms(&self) -> Vec<(u64, AlarmKind)> {
        self.shown.lock().alarms.clone()
    }

    /// Whether there are quotas. Does not block.
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        !self.quotas.load().is_empty()
    }

    /// Whether there are indexes, also such as are being built or cleared. Does not block.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        !self.core().indexes.now().is_empty()
    }

    /// What is left to do on an index: the next [`IndexChange::Step`]. Does not block.
    #[must_use]
    pub fn index_step(&self) -> Option<IndexChange> {
        let all = self.core().indexes.now();
        let mut unfinished = all.dropped.iter().chain(&all.kept);
        unfinished.find_map(|index| match index.state {
            State::Ready { .. } => None,
            State::Dropped => Some(IndexChange::Step {
                id: index.id,
                done: None,
            }),
            State::Building { done } => Some(IndexChange::Step { id: index.id, done }),
        })
    }

    /// How many commands were refused for a quota since the database was opened.
    #[must_use]
    pub fn quota_refusals(&self) -> u64 {
        self.quota_refusals.load(Ordering::Relaxed)
    }

    /// The quotas in the order of their prefixes, with what their keys take.
    #[must_use]
    pub fn quotas(&self) -> Vec<Quota> {
        self.quotas.load().all()
    }

    /// The revision of the last compaction; 0 when there was none.
    #[must_use]
    pub fn compacted_revision(&self) -> Revision {
        self.shown.lock().compacted.unwrap_or(Revision::ZERO)
    }

    /// Begins to apply entries. One caller at a time.
    pub fn apply(&self) -> Applier<'_> {
        Applier::new(self)
    }

    /// Does one of the flushes and merges that are due, if the database has no threads for them
    /// ([`Background::Manual`](bowline::Background::Manual)). Returns whether there may be more. What was applied stands if
    /// one fails; the next commit group reports the failure itself.
    pub fn run_background(&self) -> bool {
        let done = self.core().engine.run_job_if_manual();
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "flush or compaction failed");
            false
        })
    }

    /// Whether a transaction must be [weighed](Replica::weigh) before it is proposed.
    #[must_use]
    pub fn may_exceed(txn: &Txn) -> bool {
        work::may_exceed(txn)
    }

    /// Refuses a transaction that exceeds the bound of work on this member's state; else says what it reads. The applying
    /// members check it again.
    ///
    /// # Errors
    /// `Storage` when the disk fails; `Closed`.
    pub fn weigh(&self, txn: &Txn) -> Result<Result<Weight, Refusal>> {
        match work::plain_deletion(txn) {
            Some(delete) => {
                let weighed = self.weigh_deletion(delete, usize::MAX)?;
                Ok(weighed.unwrap_or(Ok(())).map(|()| Weight::default()))
            }
            None => self.weigh_within(txn, &Work::of_proposal()),
        }
    }

    /// [`Replica::weigh`] where it is soon done: for the deletion of a range of few keys, and for few look-ups without a
    /// range. `None` otherwise.
    ///
    /// # Errors
    /// As [`Replica::weigh`].
    pub fn weigh_at_once(&self, txn: &Txn) -> Result<Option<Result<(), Refusal>>> {
        match work::plain_deletion(txn) {
            Some(delete) => self.weigh_deletion(delete, Replica::FEW_KEYS),
            None if work::is_few_look_ups(txn, Replica::FEW_KEYS) => {
                Ok(Some(self.weigh(txn)?.map(drop)))
            }
            None => Ok(None),
        }
    }

    /// [`Replica::weigh`] of a transaction that reads little, and of the deletion of a range. `None` for one that reads so
    /// much that others wait while it is applied: it is weighed and proposed in its turn.
    ///
    /// # Errors
    /// As [`Replica::weigh`].
    pub fn weigh_light(&self, txn: &Txn) -> Result<Option<Result<(), Refusal>>> {
        if work::is_plain_deletion(txn) {
            return Ok(Some(self.weigh(txn)?.map(drop)));
        }
        let weighed = self.weigh_within(txn, &Work::of_light())?;
        Ok(weighed.is_ok().then_some(Ok(())))
    }

    /// What the updates of a commit read and make, as [`Replica::weigh`] says it of a transaction.
    ///
    /// # Errors
    /// As [`Replica::weigh`].
    pub fn weigh_updates(&self, commit: &Commit) -> Result<Result<Weight, Refusal>> {
        self.core().check_open()?;
        let engine = &self.core().engine;
        let _pin = engine.pin_newest();
        weigh::weigh_updates(engine, commit, &Work::of_proposal())
    }

    fn weigh_within(&self, txn: &Txn, work: &Work) -> Result<Result<Weight, Refusal>> {
        self.core().check_open()?;
        let engine = &self.core().engine;
        let pin = engine.pin_newest();
        let at = Revision::new(pin.revision());
        let compacted = self.shown.lock().compacted;
        weigh::weigh(engine, txn, at, compacted, work)
    }

    fn weigh_deletion(
        &self,
        delete: &DeleteRangeOp,
        keys_max: usize,
    ) -> Result<Option<Result<(), Refusal>>> {
        self.core().check_open()?;
        let engine = &self.core().engine;
        let pin = engine.pin_newest();
        let bounds = (self.writes_max(), keys_max);
        weigh::weigh_deletion(engine, delete, Revision::new(pin.revision()), bounds)
    }

    /// So many keys are looked at in less time than it takes to wait for a turn.
    pub const FEW_KEYS: usize = 256;

    /// Whether a lease has more keys, in this member's state, than the command may delete that ends it: then
    /// [`Command::LeaseDeleteKeys`] comes first. No more keys are read than it takes to know that; `None` when it is not
    /// known after `keys_max`.
    ///
    /// # Errors
    /// As [`Replica::weigh`].
    pub fn has_too_many_keys(&self, id: LeaseId, keys_max: usize) -> Result<Option<bool>> {
        /// More than the head of the batch and the records of the lease take.
        const OTHER_BYTES: u64 = 64;
        /// More than the record of an author takes besides the name.
        const AUTHOR_BYTES: u64 = 64;
        let author_bytes = match self.are_users_enabled() {
            true => AUTHOR_BYTES + NAME_BYTES_MAX as u64,
            false => 0,
        };
        let keys = match self.db.lease_keys(id) {
            Err(Error::LeaseNotFound { .. }) => return Ok(Some(false)),
            keys => keys?,
        };
        let (mut size, limit) = (OTHER_BYTES + author_bytes, self.writes_max());
        for (before, key) in keys.enumerate() {
            if before == keys_max {
                return Ok(None);
            }
            size += writer::deletion_bytes(&key?, Some(id));
            if size > limit {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn writes_max(&self) -> u64 {
        self.writes_max.load(Ordering::Relaxed)
    }

    /// Lowers the bound of a command's writes, for tests: what is beyond the usual one takes gigabytes. Every member
    /// needs the same bound, or their states differ.
    #[doc(hidden)]
    pub fn limit_writes(&self, bytes: u64) {
        self.writes_max.store(bytes, Ordering::Relaxed);
    }

    /// Hashes every tree, and returns the log index of the last hashed entry. Members with the same index
    /// have the same hashes. Entries are applied meanwhile, except while the system tree, which is small, is
    /// hashed.
    ///
    /// # Errors
    /// `Storage` when something cannot be read.
    pub fn tree_hashes(&self) -> Result<(Index, TreeHashes)> {
        self.core().check_open()?;
        let (index, snapshot, system) = {
            let state = self.state.lock();
            let snapshot = self.db.snapshot();
            let system = snapshot.system_hash()?;
            (state.index, snapshot, system)
        };
        Ok((index, snapshot.tree_hashes_with(system)?))
    }

    /// Flushes, and pins the tables: a copy of the state for another member, with the mark of its last entry.
    /// Nothing is applied meanwhile.
    ///
    /// # Errors
    /// `Storage` when the disk fails or is full.
    pub fn freeze(&self) -> Result<(FrozenTables, Vec<u8>)> {
        let state = self.state.lock();
        let frozen = self.core().engine.freeze()?;
        Ok((frozen, state.applied.mark.clone()))
    }

    /// [`Replica::freeze`] at the last flush, which works on a full disk: it includes everything trimmed from
    /// the log. `None` when no entry of the log is in tables yet.
    ///
    /// # Errors
    /// `Storage` when the disk fails.
    pub fn freeze_flushed(&self) -> Result<Option<(FrozenTables, Vec<u8>)>> {
        let frozen = self.core().engine.freeze_flushed()?;
        let key = trees::applied_key();
        let Some(record) = frozen.read(trees::SYSTEM, &key)? else {
            return Ok(None);
        };
        let applied = AppliedMark::decode(&record).ok_or_else(|| invalid("applied", &key))?;
        Ok(Some((frozen, applied.mark)))
    }

    /// Reads the manifest back from the disk, and writes it anew if it is damaged. Gives the damage.
    ///
    /// # Errors
    /// `Storage` when the disk fails.
    pub fn mend_manifest(&self) -> Result<Option<Error>> {
        let mended = self.core().engine.mend_manifest()?;
        Ok(mended.map(Error::from))
    }

    /// The files of another member's [`Replica::freeze`], so that they can be checked before they are
    /// installed. Errors name `source`.
    ///
    /// # Errors
    /// `Storage` for an invalid state.
    pub fn arriving_files(source: &Path, frozen: &[u8]) -> Result<ArrivingFiles> {
        Ok(ArrivingFiles::of_state(source, frozen, trees::COUNT)?)
    }

    /// Replaces the state by another member's, whose files are in `directory`; see
    /// [`bowline_storage::engine::Engine::install`]. Unless it `keeps_log`, the owner then restarts the log
    /// behind the returned index, and calls [`Replica::log_restarted`].
    ///
    /// # Errors
    /// `Storage`, when the files are damaged or do not fit.
    pub fn install(&self, frozen: &[u8], directory: &Path, keeps_log: bool) -> Result<Installed> {
        let mut state = self.state.lock();
        let core = self.core();
        // Before the state is another: nothing begins the view again meanwhile.
        let _order = core.apply_order.lock();
        core.graph_view.forget();
        let was_one_state = Cell::new(false);
        // Not before: readers go on while a merge is waited for, and files are opened.
        let replacing = || was_one_state.set(self.sequence.begin_replacing());
        let engine = &core.engine;
        let installed = match engine.install(frozen, directory, keeps_log, replacing) {
            Ok(installed) => installed,
            Err(error) => {
                // What was there is there still.
                if was_one_state.get() {
                    self.sequence.end();
                }
                return Err(error.into());
            }
        };
        // After an error from here on readers stay refused: what is known is not of these tables.
        core.kinds.reload(&core.engine)?;
        core.indexes.reload(&core.engine)?;
        core.leases.reload(&core.engine, self.core().clock())?;
        self.load(&mut state)?;
        self.sequence.end();
        self.tell_of_users();
        core.hub.wake();
        Ok(installed)
    }

    /// Records that the log continues behind an installed state.
    ///
    /// # Errors
    /// `Storage` when the disk fails or is full.
    pub fn log_restarted(&self) -> Result<()> {
        Ok(self.core().engine.log_restarted()?)
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.core().clock()
    }

    // --- leases: the leader keeps their time ---

    /// Restarts the time of every lease, on a new leader, which does not know the last renewals. Each gets
    /// its recorded remaining time or its TTL, plus `extension`.
    ///
    /// # Errors
    /// `Storage` when they cannot be read.
    pub fn extend_leases(&self, extension: Duration) -> Result<()> {
        // During a commit group the table of leases is ahead of the visible state.
        let _state = self.state.lock();
        let core = self.core();
        core.leases.reload(&core.engine, self.core().clock())?;
        core.leases.extend(extension);
        Ok(())
    }

    /// Renews a lease, on the leader. `None` when there is no such lease in the applied state.
    ///
    /// While a remaining time [is recorded](Renewal::Recorded), the next leader would use it: the holder gets
    /// no answer, the record is cleared ([`Replica::leases_to_clear`]), and the lease is renewed again.
    #[must_use]
    pub fn renew_lease(&self, id: LeaseId) -> Option<Renewal> {
        let now = self.core().clock().monotonic();
        self.core().leases.renew(id, now)
    }

    /// The recorded remaining time of a lease, which the next leader would use.
    #[must_use]
    pub fn recorded_lease(&self, id: LeaseId) -> Option<Duration> {
        self.core().leases.recorded(id)
    }

    /// Renewed leases with a record, which the leader has to clear by [`Command::LeaseRemaining`]; at most
    /// `most`.
    #[must_use]
    pub fn leases_to_clear(&self, most: usize) -> Vec<LeaseLeft> {
        self.core().leases.awaited(most)
    }

    /// Leases whose remaining time is below the next leader's estimate by `interval` or more, which the
    /// leader has to record by [`Command::LeaseRemaining`]; at most `most`. Until [`Replica::end_checkpoint`]
    /// their renewals are not final.
    #[must_use]
    pub fn begin_checkpoint(&self, interval: Duration, most: usize) -> Vec<LeaseLeft> {
        let now = self.core().clock().monotonic();
        self.core().leases.begin_telling(now, interval, most)
    }

    /// Ends a checkpoint: its command has been applied here, or is in no log and never will be. If neither is
    /// known, do not call this: [`Replica::extend_leases`] starts anew.
    pub fn end_checkpoint(&self, told: &[LeaseLeft]) {
        self.core().leases.end_telling(told);
    }

    /// The expired leases, by this member's clock; they cannot be renewed any more. Each with the entry that
    /// granted it, 0 if there is none.
    #[must_use]
    pub fn expired_leases(&self) -> Vec<(LeaseId, Index)> {
        let core = self.core();
        core.leases.take_expired(self.core().clock().monotonic())
    }
}

fn invalid(what: &'static str, key: &[u8]) -> Error {
    Error::InvalidRecord {
        what,
        key: show_key(key),
        reason: "it does not decode",
    }
}

/// Trims the history below `revision`, as a command of the log requires.
///
/// On a full disk only in memory: the history is unreadable at once, and the next flush, merge or opening
/// records it. An error would stop what is meant to free space.
fn trim_history(engine: &Engine, revision: Revision) -> Result<()> {
    match engine.compact_history(revision.get()) {
        // Already trimmed when the entry is applied again.
        Ok(Ok(()) | Err(_)) => Ok(()),
        Err(error @ bowline_storage::Error::NoSpace { .. }) => {
            tracing::warn!(%error, "the floor of the history is recorded later");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn split_alarm(key: &[u8]) -> Option<(u64, AlarmKind)> {
    let (member, kind) = key.get(1..)?.split_first_chunk::<8>()?;
    let kind = match kind {
        [1] => AlarmKind::NoSpace,
        [2] => AlarmKind::Corrupt,
        _ => return None,
    };
    Some((u64::from_be_bytes(*member), kind))
}

/// Whether a TTL is within the bounds.
#[must_use]
pub fn is_valid_ttl(ttl: Duration) -> bool {
    lease::check_ttl(ttl).is_ok()
}
