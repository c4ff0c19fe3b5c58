//! The planner: it turns a command into a batch for the engine, a reply, and changes for watchers.
//!
//! *Choose* decides the branches of a transaction, evaluating all conditions first, in the state before it.
//! *Check* finds the reasons for a refusal. *Do* executes the operations in order, on an overlay that later
//! operations of the same command read. Nothing reaches the engine before the whole command is planned, so a
//! refusal leaves no trace.
//!
//! Invariants:
//!
//! - A plan depends on the replicated state and the command only: no clock, no setting of this member, no
//!   history that another member may have trimmed earlier or later. Changes of a key since a revision are not
//!   such history from the last compaction on; see `plan/commit.rs`.
//! - The work of a transaction is bounded, the same on every member (`work.rs`). So are the writes of a command, by
//!   their bytes: a deletion of a range, or of a lease's keys, stops reading where it exceeds that bound.
//! - A plan is made against everything applied before it, published or not.
//! - The batch has the writes of keys in the order of execution; where that is not the order of the keys, it
//!   records it besides (`kv/order.rs`).

mod commit;
mod indexes;
mod leases;
mod quotas;
mod users;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::engine::{BatchWriter, Engine};
use bowline_storage::{Index, TreeId, Value};

use super::command::{
    AlarmKind, Command, Compare, DeleteRangeOp, Op, OpReply, Outcome, PutOp, RangeOp, RangeReply,
    Refusal, Reply, Target as Compared, Txn, TxnReply,
};
use super::index::IndexEffect;
use super::overlay::{Overlaid, Overlay};
use super::range::{self, Span, entry_holds, for_each, is_below_all, is_newest};
use super::records;
use super::users::{Tokens, Users, UsersRefusal};
use super::work::{self, Work};
use bowline_core::error::{Error, Result};
use bowline_core::graph::KindId;
use bowline_core::graph::csr::GraphChanges;
use bowline_core::index::Indexes;
use bowline_core::kinds::Kinds;
use bowline_core::kv::record::Meta;
use bowline_core::kv::{Entry, order};
use bowline_core::lease::{Grant, LeaseId};
use bowline_core::options::Limits;
use bowline_core::quota::Quotas;
use bowline_core::trees;
use bowline_core::watch::Change;
use bowline_core::write;
use bowline_core::write::lookup::Lookup;
use bowline_core::write::target::Target;
use bowline_core::write::validate::{self, Guard, Verdict};
use bowline_core::write::writer::{self, Collect, Writer};
use bowline_types::{GraphWrite, Revision};
pub(crate) use quotas::QuotaEffect;
pub(crate) use users::TokenEffect;

/// Replicated state outside the trees; loaded from them at the opening.
#[derive(Debug, Default, Clone)]
pub(crate) struct Known {
    /// The revision of the last committed compaction. The readable history may begin later: while entries are
    /// applied again, a later compaction has already been executed. `None` before the first one, which may
    /// have revision 0.
    pub(crate) compacted: Option<Revision>,
    /// The alarms that are raised.
    pub(crate) alarms: BTreeSet<(u64, AlarmKind)>,
    /// The users and roles.
    pub(crate) users: Arc<Users>,
    /// The quotas, with their counters.
    pub(crate) quotas: Arc<Quotas>,
}

impl Known {
    /// Whether a read of this revision in a transaction is of the newest: 0 is, and, as in etcd, -1 before
    /// the first compaction.
    pub(crate) fn is_newest(&self, revision: Revision) -> bool {
        is_newest(revision, self.compacted)
    }

    /// Refuses a revision that cannot be read. A negative one, which is a number above every revision here,
    /// counts as below the readable history.
    pub(crate) fn check_readable(
        &self,
        revision: Revision,
        newest: Revision,
    ) -> Result<(), Refusal> {
        let oldest = self.compacted.unwrap_or(Revision::ZERO);
        if is_below_all(revision) || revision < oldest {
            return Err(Refusal::Compacted { revision, oldest });
        }
        if revision > newest {
            return Err(Refusal::FutureRevision { revision, newest });
        }
        Ok(())
    }

    /// Whether some member has raised the alarm about differing data.
    pub(crate) fn is_corrupt(&self) -> bool {
        let mut alarms = self.alarms.iter();
        alarms.any(|(_, kind)| *kind == AlarmKind::Corrupt)
    }

    /// Whether some member has raised the alarm for space.
    pub(crate) fn is_out_of_space(&self) -> bool {
        let mut alarms = self.alarms.iter();
        alarms.any(|(_, kind)| *kind == AlarmKind::NoSpace)
    }
}

/// The effects of a command outside the trees.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    Lease(LeaseId, LeaseEffect),
    Compacted(Revision),
    Alarm(u64, AlarmKind, bool),
    Kind(KindId, String),
    Users(Arc<Users>),
    Tokens(TokenEffect),
    Quota(QuotaEffect),
    Index(IndexEffect),
}

/// The effect on a lease.
#[derive(Debug, PartialEq)]
pub(crate) enum LeaseEffect {
    Granted(Grant),
    Ended,
    /// The leader recorded its remaining time, or cleared the record.
    Recorded(Option<Duration>),
}

/// A command, ready to be applied.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Empty without writes.
    pub(crate) batch: Vec<u8>,
    pub(crate) operations: u64,
    /// The revision after it.
    pub(crate) revision: Revision,
    pub(crate) changes: Vec<Change>,
    /// The changes of the graph, for its view.
    pub(crate) graph: GraphChanges,
    pub(crate) effects: Vec<Effect>,
    pub(crate) reply: Reply,
}

/// The least size of an edge deletion in a batch: two keys of 36 bytes.
const EDGE_DELETION_BYTES: u64 = 72;

/// The position of a command's entry in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: Index,
    pub(crate) term: u64,
}

/// The planner of one command.
pub(crate) struct Planner<'a> {
    engine: &'a Engine,
    kinds: &'a Kinds,
    indexes: &'a Indexes,
    known: &'a Known,
    tokens: &'a Tokens,
    /// The last applied revision.
    last: Revision,
    place: Place,
    /// Whether the reply has a waiter.
    wants_reply: bool,
    collect: Collect,
    work: Work,
    /// The most bytes of the batch.
    writes_max: u64,
    writer: Writer<Overlay>,
    effects: Vec<Effect>,
    new_kinds: Vec<(KindId, String)>,
}

/// The chosen branch of a transaction, with those of nested ones.
struct Chosen<'a> {
    succeeded: bool,
    ops: Vec<ChosenOp<'a>>,
}

enum ChosenOp<'a> {
    Plain(&'a Op),
    Txn(Chosen<'a>),
}

/// The command is refused, or this member failed.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<bowline_storage::Error> for Stop {
    fn from(error: bowline_storage::Error) -> Stop {
        Stop::Failed(error.into())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

/// The lease of a command. No lease has the number 0.
fn lease_of(id: i64) -> Result<LeaseId, Refusal> {
    LeaseId::new(id).ok_or(Refusal::LeaseNotFound { id })
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        (kinds, indexes): (&'a Kinds, &'a Indexes),
        (known, tokens): (&'a Known, &'a Tokens),
        last: Revision,
        place: Place,
        wants_reply: bool,
        collect: Collect,
    ) -> Planner<'a> {
        Planner {
            engine,
            kinds,
            indexes,
            known,
            tokens,
            last,
            place,
            wants_reply,
            collect,
            work: Work::unlimited(),
            writes_max: Limits::TRANSACTION_SIZE_BYTES,
            writer: Writer::default(),
            effects: Vec::new(),
            new_kinds: Vec::new(),
        }
    }

    /// With a bound of its own on the writes: see [`Replica::limit_writes`](super::Replica::limit_writes).
    pub(crate) fn with_writes_max(mut self, writes_max: u64) -> Planner<'a> {
        self.writes_max = writes_max;
        self
    }

    /// With a buffer for the batch.
    pub(crate) fn with_buffer(mut self, buffer: Vec<u8>) -> Planner<'a> {
        self.writer = Writer::with_buffer(buffer);
        self
    }

    /// Plans the command. An error is this member's, not the command's.
    pub(crate) fn plan(mut self, command: &Command) -> Result<Plan> {
        self.writer.begin(self.last + 1, self.collect);
        let result = match self.outcome(command) {
            Ok(outcome) => Ok(outcome),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let Overlay {
            operations,
            is_numbered,
            ..
        } = self.writer.journal;
        let mut plan = Plan {
            batch: Vec::new(),
            operations: 0,
            revision: self.last,
            changes: Vec::new(),
            graph: GraphChanges::default(),
            effects: Vec::new(),
            reply: Reply {
                revision: self.last,
                result,
            },
        };
        if plan.reply.result.is_err() {
            return Ok(plan);
        }
        plan.effects = self.effects;
        if operations > 0 {
            plan.operations = operations;
            plan.changes = self.writer.take_changes();
            plan.graph = std::mem::take(self.writer.graph());
            plan.batch = self.writer.take_batch();
            if is_numbered {
                plan.revision = self.last + 1;
            } else {
                // Without a revision (leases, alarms): written again at the last revision.
                plan.batch = with_revision(&plan.batch, self.last);
            }
        }
        plan.reply.revision = plan.revision;
        Ok(plan)
    }

    /// Refuses a command with too many writes.
    fn check_size(&self) -> Result<(), Refusal> {
        self.check_size_with(0)
    }

    /// [`Planner::check_size`] with so many more bytes.
    fn check_size_with(&self, more: u64) -> Result<(), Refusal> {
        let size = self.writer.batch().len() as u64 + more;
        let limit = self.writes_max;
        match size > limit {
            true => Err(Refusal::TooManyWrites { size, limit }),
            false => Ok(()),
        }
    }

    fn command(&mut self, command: &Command) -> Result<Outcome, Stop> {
        if self.known.is_corrupt() && command.is_asked_for() {
            return Err(Refusal::Corrupt.into());
        }
        let (actor, command) = match command {
            Command::By { actor, command, .. } => (Some(actor), &**command),
            command => (None, command),
        };
        self.check_actor(actor, command)?;
        match command {
            // The decoder refuses it.
            Command::By { .. } => Err(Refusal::from(UsersRefusal::InvalidToken).into()),
            Command::Users(change) => self.change_users(change),
            Command::Tokens(change) => self.change_tokens(change),
            Command::Quota(change) => self.change_quota(change),
            Command::Index(change) => self.change_index(change),
            Command::Txn(txn) => {
                self.work = Work::of_txn();
                self.txn(txn).map(Outcome::Txn)
            }
            Command::UnboundedTxn(txn) => self.txn(txn).map(Outcome::Txn),
            Command::LeaseGrant { id, ttl } => self.grant(*id, *ttl),
            Command::LeaseRevoke { id } => self.end_lease(lease_of(*id)?),
            Command::LeaseExpire { id, term, granted } => {
                let lease = self.expired_lease(*id, *term, *granted)?;
                self.end_lease(lease)
            }
            Command::LeaseDeleteKeys { id, expired } => {
                let lease = match expired {
                    Some((term, granted)) => self.expired_lease(*id, *term, Some(*granted))?,
                    None => lease_of(*id)?,
                };
                self.delete_keys_of_lease(lease)
            }
            Command::LeaseCheckpoint { remaining } => {
                for (id, left) in remaining {
                    if let Some(id) = LeaseId::new(*id)
                        && self.has_lease(id)?
                    {
                        self.tell(id, Some(*left))?;
                    }
                }
                Ok(Outcome::Done)
            }
            Command::LeaseRemaining { term, leases } => {
                let is_of_term = *term == self.place.term;
                for lease in leases.iter().filter(|_| is_of_term) {
                    if self.grant_index(lease.id)? == Some(lease.granted) {
                        self.tell(lease.id, lease.left)?;
                    }
                }
                Ok(Outcome::Done)
            }
            Command::Compact { revision } => {
                self.known.check_readable(*revision, self.last)?;
                if let Some(oldest) = self.known.compacted
                    && *revision == oldest
                {
                    let revision = *revision;
                    return Err(Refusal::Compacted { revision, oldest }.into());
                }
                let value = records::encode_number(revision.get());
                let key = trees::compacted_key();
                self.writer.put_record(trees::SYSTEM, &key, &value);
                self.effects.push(Effect::Compacted(*revision));
                Ok(Outcome::Done)
            }
            Command::Graph(writes) => {
                if command.takes_space() {
                    self.check_space()?;
                }
                let done: Result<Vec<bool>, Stop> =
                    writes.iter().map(|write| self.graph_write(write)).collect();
                done.map(Outcome::Graph)
            }
            Command::Commit(commit) => {
                if command.takes_space() {
                    self.check_space()?;
                }
                self.commit(commit)
            }
            Command::Alarm {
                member,
                kind,
                is_raised,
            } => {
                let key = trees::alarm_key(*member, *kind as u8);
                if self.known.alarms.contains(&(*member, *kind)) != *is_raised {
                    match is_raised {
                        true => self.writer.put_record(trees::SYSTEM, &key, &[]),
                        false => self.writer.delete_record(trees::SYSTEM, &key),
                    }
                    self.effects.push(Effect::Alarm(*member, *kind, *is_raised));
                }
                Ok(Outcome::Done)
            }
        }
    }

    // --- conditions ---

    fn check_space(&self) -> Result<(), Stop> {
        match self.known.is_out_of_space() {
            true => Err(Refusal::NoSpace.into()),
            false => Ok(()),
        }
    }

    /// The newest state, with this command's writes on top.
    fn lookup(&self) -> Overlaid<'_> {
        Overlaid {
            engine: self.engine,
            overlay: &self.writer.journal,
        }
    }

    /// Refuses the command if a rule refuses it.
    fn allow(&self, verdict: Verdict) -> Result<(), Stop> {
        match verdict? {
            Ok(()) => Ok(()),
            Err(violation) => Err(Stop::Refused(self.refusal(violation)?)),
        }
    }

    fn has_lease(&self, id: LeaseId) -> Result<bool> {
        self.lookup().exists(trees::SYSTEM, &trees::lease_key(id))
    }

    // --- transactions over keys ---

    fn txn(&mut self, txn: &Txn) -> Result<TxnReply, Stop> {
        let chosen = self.choose(txn)?;
        self.check(&chosen, work::is_plain_deletion(txn), &mut HashSet::new())?;
        let reply = self.carry_out(&chosen, chosen.ops.len() == 1)?;
        if let Some(order) = order::of_batch(self.writer.batch()) {
            let key = trees::order_key();
            self.writer.put_record(trees::SYSTEM, &key, &order);
        }
        Ok(reply)
    }

    fn choose<'t>(&self, txn: &'t Txn) -> Result<Chosen<'t>, Stop> {
        let mut succeeded = true;
        range::look_ahead(self.engine, range::compared_keys(txn));
        for compare in &txn.compares {
            self.work.look_up()?;
            succeeded = self.holds(compare)?;
            self.work.check()?;
            if !succeeded {
                break;
            }
        }
        let branch = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        range::look_ahead(self.engine, range::single_keys(branch));
        let ops = branch.iter().map(|op| match op {
            Op::Txn(inner) => self.choose(inner).map(ChosenOp::Txn),
            plain => Ok(ChosenOp::Plain(plain)),
        });
        Ok(Chosen {
            succeeded,
            ops: ops.collect::<Result<_, Stop>>()?,
        })
    }

    fn holds(&self, compare: &Compare) -> Result<bool> {
        let span = Span::of(&compare.key, &compare.range_end);
        if let Span::Key(key) = &span {
            let entry = match &compare.target {
                Compared::Value(_) => {
                    let entry = self.lookup().entry(key)?;
                    let read = entry.as_ref().map_or(0, |entry| entry.value.len());
                    self.work.take(0, read as u64);
                    entry
                }
                _ => {
                    let meta = self.lookup().meta(key)?;
                    meta.map(|meta| meta.entry(&[], Value::default()))
                }
            };
            return Ok(entry_holds(compare, entry.as_ref()));
        }
        range::holds(
            self.engine,
            &self.writer.journal,
            compare,
            Revision::MAX,
            &self.work,
        )
    }

    /// Finds any reason for a refusal before an operation is executed.
    fn check<'t>(
        &self,
        chosen: &Chosen<'t>,
        is_plain_deletion: bool,
        puts: &mut HashSet<&'t [u8]>,
    ) -> Result<(), Stop> {
        for op in &chosen.ops {
            self.work.look_up()?;
            match op {
                ChosenOp::Txn(inner) => self.check(inner, false, puts)?,
                ChosenOp::Plain(Op::Range(range)) if !self.known.is_newest(range.revision) => {
                    self.known.check_readable(range.revision, self.last)?;
                }
                ChosenOp::Plain(Op::Range(range)) => self.weigh_range(range)?,
                ChosenOp::Plain(Op::DeleteRange(delete)) if !is_plain_deletion => {
                    if self.work.is_limited() {
                        let at = Revision::MAX;
                        range::walk_deletion(self.engine, delete, at, &self.work)??;
                    }
                }
                ChosenOp::Plain(Op::Put(put)) => {
                    if work::reads_previous(put) {
                        self.weigh_value(&put.key)?;
                    }
                    self.check_put(put)?;
                    if !puts.insert(&put.key) {
                        return Err(Refusal::DuplicateKey.into());
                    }
                }
                ChosenOp::Plain(_) => {}
            }
        }
        Ok(())
    }

    /// Charges the work of a range at the newest revision, also without a waiter for its result.
    fn weigh_range(&self, range: &RangeOp) -> Result<(), Stop> {
        if range.range_end.is_empty() {
            return self.weigh_value(&range.key);
        }
        if self.work.is_limited() {
            range::weigh(self.engine, range, Revision::MAX, &self.work)??;
        }
        Ok(())
    }

    /// Charges the bytes of a read value.
    fn weigh_value(&self, key: &[u8]) -> Result<(), Stop> {
        if self.work.is_limited() {
            let value_bytes = work::value_bytes(self.engine, key)?;
            self.work.take(1, key.len() as u64 + value_bytes);
            self.work.check()?;
        }
        Ok(())
    }

    fn check_put(&self, put: &PutOp) -> Result<(), Stop> {
        self.check_space()?;
        for (what, size, limit) in [
            ("a key", put.key.len(), Limits::KEY_SIZE_BYTES),
            ("a value", put.value.len(), Limits::VALUE_SIZE_BYTES),
        ] {
            let (what, size) = (what.to_owned(), size as u64);
            if size > limit {
                return Err(Refusal::TooLarge { what, size, limit }.into());
            }
        }
        // As in etcd, the lease comes first.
        if let Some(lease) = LeaseId::new(put.lease).filter(|_| !put.ignore_lease) {
            self.allow(validate::check_lease(&self.lookup(), lease, true))?;
        }
        if (put.ignore_value || put.ignore_lease) && self.lookup().meta(&put.key)?.is_none() {
            return Err(Refusal::KeyNotFound.into());
        }
        Ok(())
    }

    /// Executes the operations. With `is_last` the single operation is the command's last, so its writes are
    /// not read.
    fn carry_out(&mut self, chosen: &Chosen<'_>, is_last: bool) -> Result<TxnReply, Stop> {
        let mut reply = TxnReply {
            succeeded: chosen.succeeded,
            replies: Vec::new(),
        };
        let is_last = is_last && chosen.ops.len() == 1;
        let writes =
            |op: &ChosenOp<'_>| matches!(op, ChosenOp::Plain(Op::Put(_) | Op::DeleteRange(_)));
        self.writer.journal.is_last = is_last && writes(&chosen.ops[0]);
        for op in &chosen.ops {
            let done = match op {
                ChosenOp::Txn(inner) => Some(OpReply::Txn(self.carry_out(inner, is_last)?)),
                ChosenOp::Plain(Op::Range(range)) if self.wants_reply => {
                    let nothing = Overlay::default();
                    let (overlay, at) = match self.known.is_newest(range.revision) {
                        true => (&self.writer.journal, Revision::MAX),
                        false => (&nothing, range.revision),
                    };
                    Some(OpReply::Range(self.read(overlay, range, at)?))
                }
                ChosenOp::Plain(Op::Put(put)) => Some(OpReply::Put(self.put(put)?)),
                ChosenOp::Plain(Op::DeleteRange(delete)) => Some(self.delete_range(delete)?),
                ChosenOp::Plain(_) => None,
            };
            if self.wants_reply {
                reply.replies.extend(done);
            }
        }
        Ok(reply)
    }

    fn read(&self, overlay: &Overlay, op: &RangeOp, at: Revision) -> Result<RangeReply> {
        range::read(self.engine, overlay, op, at)
    }

    fn put(&mut self, put: &PutOp) -> Result<Option<Entry>, Stop> {
        let needs_value = put.ignore_value || (put.prev_kv && self.wants_reply);
        let (previous, before) = match needs_value {
            true => {
                let previous = self.lookup().entry(&put.key)?;
                let before = previous.as_ref().map(Meta::of);
                (previous, before)
            }
            false => (None, self.lookup().meta(&put.key)?),
        };
        if before.is_none() && (put.ignore_value || put.ignore_lease) {
            // It existed, and an earlier operation of the transaction has deleted it.
            return Err(Refusal::KeyNotFound.into());
        }
        let lease = match put.ignore_lease {
            true => before.and_then(|meta| meta.lease),
            false => LeaseId::new(put.lease),
        };
        let value = match (&previous, put.ignore_value) {
            (Some(previous), true) => &previous.value,
            _ => &put.value,
        };
        self.writer.put(&put.key, value, lease, before);
        Ok(previous.filter(|_| put.prev_kv))
    }

    fn delete_range(&mut self, delete: &DeleteRangeOp) -> Result<OpReply, Stop> {
        let span = Span::of(&delete.key, &delete.range_end);
        let keeps = delete.prev_kv && self.wants_reply;
        let mut found = Vec::new();
        let mut refused = Ok(());
        let mut size = 0;
        for_each(
            self.engine,
            &self.writer.journal,
            &span,
            Revision::MAX,
            keeps,
            &mut |mut entry| {
                if !keeps {
                    // A write of the transaction itself has its value.
                    entry.value = Value::default();
                }
                size += writer::deletion_bytes(&entry.key, entry.lease);
                refused = self.check_size_with(size);
                found.push(entry);
                // The rest need not be read.
                Ok(refused.is_ok())
            },
        )?;
        refused?;
        for entry in &found {
            self.writer.delete(&entry.key, entry.lease);
        }
        let deleted = found.len() as u64;
        if !keeps {
            found.clear();
        }
        Ok(OpReply::DeleteRange {
            deleted,
            previous: found,
        })
    }

    // --- the graph ---

    fn graph_write(&mut self, write: &GraphWrite) -> Result<bool, Stop> {
        match write {
            GraphWrite::PutBlock(block) => write::graph::put_block(self, block).map(|()| true),
            GraphWrite::DeleteBlock(id) => write::graph::delete_block(self, *id),
            GraphWrite::PutEdge(edge) => write::graph::put_edge(self, edge).map(|()| true),
            GraphWrite::DeleteEdge(key) => match self.known_kind(&key.kind) {
                Some(kind) => write::graph::delete_edge(self, key.source, kind, key.target),
                None => Ok(false),
            },
        }
    }

    /// The number of a kind that is registered, possibly by this command.
    fn known_kind(&self, name: &str) -> Option<KindId> {
        let new = || self.new_kinds.iter().find(|(_, new)| new == name);
        let id = self.kinds.id(name);
        id.or_else(|| new().map(|(id, _)| *id))
    }
}

/// Everything is read at the newest state, so there is no read set.
impl Target for Planner<'_> {
    type Error = Stop;

    fn exists(&mut self, tree: TreeId, key: &[u8]) -> Result<bool, Stop> {
        Ok(self.lookup().exists(tree, key)?)
    }

    /// At most one more than a command may delete: then a block with too many edges is refused before all of them are
    /// read, and so is the end of a lease with too many keys.
    fn first_keys(
        &mut self,
        tree: TreeId,
        prefix: &[u8],
        count_max: usize,
    ) -> Result<Vec<Vec<u8>>, Stop> {
        let mut keys = Vec::new();
        let mut size = 0;
        if count_max == 0 {
            return Ok(keys);
        }
        self.lookup().for_each_key(tree, prefix, &mut |key| {
            keys.push(key.to_vec());
            size += match tree {
                trees::EDGE_OUT | trees::EDGE_IN => EDGE_DELETION_BYTES,
                // Those of a lease: with each its key goes, which is the rest of it.
                _ => writer::attached_deletion_bytes(key, prefix),
            };
            keys.len() < count_max && size <= self.writes_max
        })?;
        Ok(keys)
    }

    fn require(&mut self, guard: Guard) -> Result<(), Stop> {
        self.allow(guard.check(&self.lookup()))
    }

    fn kind(&mut self, name: &str) -> Result<KindId, Stop> {
        if let Some(id) = self.known_kind(name) {
            return Ok(id);
        }
        let registered = write::graph::register_kind(self.kinds, self.new_kinds.len(), name);
        let (id, record) = match registered {
            Err(Error::InvalidKind { name }) => return Err(Refusal::InvalidKind { name }.into()),
            other => other?,
        };
        self.writer.write_record(&record)?;
        self.new_kinds.push((id, name.to_owned()));
        self.effects.push(Effect::Kind(id, name.to_owned()));
        Ok(id)
    }

    fn put_record(&mut self, tree: TreeId, key: &[u8], value: Vec<u8>) -> Result<(), Stop> {
        self.writer.put_record(tree, key, &value);
        Ok(())
    }

    fn delete_record(&mut self, tree: TreeId, key: &[u8]) -> Result<(), Stop> {
        self.writer.delete_record(tree, key);
        // Ends the deletion of a block with more edges than a command may delete.
        Ok(self.check_size()?)
    }

    fn delete_attached(&mut self, key: &[u8], lease: LeaseId) -> Result<(), Stop> {
        // Before the write: what deletes as many keys as it may keeps those before this one.
        self.check_size_with(writer::deletion_bytes(key, Some(lease)))?;
        self.writer.delete(key, Some(lease));
        Ok(())
    }
}

/// The same operations at another revision.
fn with_revision(batch: &[u8], revision: Revision) -> Vec<u8> {
    let mut out = Vec::with_capacity(batch.len());
    BatchWriter::start(&mut out, revision.get());
    let operations = bowline_storage::engine::BatchReader::new(batch).map_or(&[][..], |r| r.rest());
    out.extend_from_slice(operations);
    out
}
