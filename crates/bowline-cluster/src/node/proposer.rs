//! The proposer: it batches commands into log entries, and keeps a few entries under way.
//!
//! Commands wait in a queue; one task takes all that are there, makes one proposal of them, and hands it to
//! Raft on the leader, or forwards it to the leader. While the limit of proposals is under way, commands
//! gather: the higher the load, the larger the entries, and the fewer the flushes per command.
//!
//! The state machine delivers the outcomes (see [`Waiters`]). A proposal that is known to be in no log, or in
//! none that will ever be committed, is proposed again until the commands' deadline; if its fate is unknown
//! it is not, and its waiters get that error.
//!
//! A proposal waits for *a* leader, not for the one that it was handed to: that one may be silent, and answer
//! late or never. Once another member leads, the committed log shows the proposal's fate.
//!
//! Invariants:
//!
//! - A proposal is handed to one leader, by term and member, which accepts it in no other term: a delayed
//!   copy enters no later log beside the one that was proposed again.
//! - A forwarded proposal is answered only after the leader has applied it. So the leader's own state holds
//!   everything that any member has acknowledged: its lease reads rely on that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_replica::{COMMANDS_MAX, Command, IndexChange};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::core::Core;
use crate::error::{Error, Result};
use crate::raft::Outcome;
use crate::raft::waiters::{Applied, Fate, Waiter};
use crate::types::{LeaderId, Proposal};

/// The most proposals under way at once.
const UNDER_WAY_MAX: usize = 4;
/// The most bytes of keys and values in one entry, except for a single command.
const ENTRY_BYTES: usize = 1 << 20;
/// The most bytes of commands that wait; a single command may be larger.
const WAITING_BYTES_MAX: usize = 128 << 20;
/// The pause before a proposal is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A queued command.
struct Queued {
    command: Command,
    waiter: Waiter,
    deadline: Instant,
    bytes: WaitingBytes,
}

/// The bytes of a command that waits, until this is dropped. Also a command whose caller has gone waits, for which its
/// connection is not charged any more.
#[derive(Debug)]
struct WaitingBytes {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl WaitingBytes {
    /// `None` when more would wait than may.
    fn reserve(all: &Arc<AtomicUsize>, own: usize) -> Option<WaitingBytes> {
        let before = all.fetch_add(own, Ordering::Relaxed);
        let all = all.clone();
        // Given back when it is dropped.
        let reserved = WaitingBytes { all, own };
        (before == 0 || before + own <= WAITING_BYTES_MAX).then_some(reserved)
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// The result of handing over a proposal.
pub(crate) enum Handed {
    /// The leader has applied it.
    Applied,
    /// It is in no log.
    Nowhere(Error),
    /// It may be in a log.
    Unknown(Error),
}

/// The queue of commands.
#[derive(Debug, Clone)]
pub(crate) struct Proposer {
    queue: mpsc::Sender<Queued>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Proposer {
    /// Starts the task; it ends with the last handle.
    pub(crate) fn start(core: &Arc<Core>, waiting_max: usize) -> Proposer {
        let (proposer, commands) = Proposer::new(waiting_max);
        tokio::spawn(run(core.clone(), commands));
        proposer
    }

    fn new(waiting_max: usize) -> (Proposer, mpsc::Receiver<Queued>) {
        let (queue, commands) = mpsc::channel(waiting_max.max(1));
        let waiting_bytes = Arc::default();
        let proposer = Proposer {
            queue,
            waiting_bytes,
        };
        (proposer, commands)
    }

    /// Queues a command; its outcome comes later. `TooManyRequests` when too many wait, or too many bytes of them.
    pub(crate) fn put(
        &self,
        command: Command,
        timeout: Duration,
    ) -> Result<oneshot::Receiver<Result<Applied>>> {
        let (waiter, outcome) = oneshot::channel();
        let bytes = WaitingBytes::reserve(&self.waiting_bytes, command_bytes(&command));
        let queued = Queued {
            command,
            waiter,
            deadline: Instant::now() + timeout,
            bytes: bytes.ok_or(Error::TooManyRequests)?,
        };
        match self.queue.try_send(queued) {
            Ok(()) => Ok(outcome),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Error::TooManyRequests),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Error::stopped("it is closed")),
        }
    }
}

async fn run(core: Arc<Core>, mut commands: mpsc::Receiver<Queued>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    while let Some(first) = commands.recv().await {
        let Ok(permit) = under_way.clone().acquire_owned().await else {
            return;
        };
        let mut deadline = first.deadline;
        let mut bytes = first.bytes.own;
        let mut batch = vec![first.command];
        let mut waiters = vec![first.waiter];
        while batch.len() < COMMANDS_MAX && bytes < ENTRY_BYTES {
            let Ok(next) = commands.try_recv() else {
                break;
            };
            bytes += next.bytes.own;
            deadline = deadline.max(next.deadline);
            batch.push(next.command);
            waiters.push(next.waiter);
        }
        let (number, proposal) = core.waiters.propose(&batch, waiters);
        let core = core.clone();
        tokio::spawn(async move {
            let counts = &core.counts;
            counts.proposals_pending.fetch_add(1, Ordering::Relaxed);
            let start = Instant::now();
            let is_applied = core.hand_in_until(number, proposal, deadline, permit);
            let is_applied = is_applied.await;
            counts.proposals_pending.fetch_sub(1, Ordering::Relaxed);
            let counted = match is_applied {
                true => &counts.proposals_committed,
                false => &counts.proposals_failed,
            };
            counted.fetch_add(1, Ordering::Relaxed);
            if is_applied {
                counts.commit_times.record(start.elapsed());
            }
            // The replies come from this member's own state machine, when it has applied the entry.
            if is_applied && core.waiters.is_waiting(number) {
                tokio::time::sleep(core.options.request_timeout).await;
                core.waiters.fail(number, &Error::Timeout);
            }
        });
    }
}

/// Whether a command has nested transactions deeper than any member decodes.
pub(crate) fn is_too_deep(command: &Command) -> bool {
    use bowline_replica::{Op, TXN_DEPTH_MAX, Txn};
    fn exceeds(txn: &Txn, left: usize) -> bool {
        let mut ops = txn.success.iter().chain(&txn.failure);
        ops.any(|op| match op {
            Op::Txn(inner) => left == 0 || exceeds(inner, left - 1),
            Op::Put(_) | Op::Range(_) | Op::DeleteRange(_) => false,
        })
    }
    match command.inner() {
        Command::Txn(txn) | Command::UnboundedTxn(txn) => exceeds(txn, TXN_DEPTH_MAX),
        _ => false,
    }
}

/// The approximate size of a command, in bytes.
#[must_use]
pub fn command_bytes(command: &Command) -> usize {
    use bowline_replica::{CommitRead, CommitWrite, Compare, GraphWrite, Op, Target, Txn};
    fn compare(compare: &Compare) -> usize {
        let value = match &compare.target {
            Target::Value(value) => value.len(),
            Target::Version(_) | Target::Create(_) | Target::Mod(_) | Target::Lease(_) => 8,
        };
        compare.key.len() + compare.range_end.len() + value + 24
    }
    fn txn(t: &Txn) -> usize {
        // With what an operation takes beside its texts.
        let op = |op: &Op| match op {
            Op::Put(put) => put.key.len() + put.value.len() + 32,
            Op::Range(range) => range.key.len() + range.range_end.len() + 72,
            Op::DeleteRange(delete) => delete.key.len() + delete.range_end.len() + 16,
            Op::Txn(inner) => txn(inner) + 16,
        };
        let ops = t.success.iter().chain(&t.failure).map(op);
        ops.sum::<usize>() + t.compares.iter().map(compare).sum::<usize>()
    }
    fn graph_write(write: &GraphWrite) -> usize {
        let texts = |attributes: &bowline::Attributes| -> usize {
            let pairs = attributes.iter();
            pairs
                .map(|(name, value)| name.len() + value.size_bytes() + 16)
                .sum()
        };
        match write {
            GraphWrite::PutBlock(block) => {
                let kinds: usize = block.kinds.iter().map(|kind| kind.len() + 4).sum();
                kinds + block.content.len() + texts(&block.attributes)
            }
            GraphWrite::PutEdge(edge) => edge.kind.len() + texts(&edge.attributes),
            GraphWrite::DeleteEdge(key) => key.kind.len(),
            _ => 0,
        }
    }
    fn index_change(change: &IndexChange) -> usize {
        match change {
            IndexChange::Create {
                kind, attributes, ..
            }
            | IndexChange::Drop { kind, attributes } => {
                let names: usize = attributes.iter().map(|name| name.len() + 4).sum();
                64 + kind.len() + names
            }
            _ => 32,
        }
    }
    match command {
        Command::By { command, .. } => 64 + command_bytes(command),
        Command::Users(change) => 64 + change.text_bytes(),
        // It has the name of a user who was found.
        Command::Tokens(_) => 512,
        Command::Quota(change) => 64 + change.prefix().len(),
        Command::Index(change) => index_change(change),
        Command::Txn(t) | Command::UnboundedTxn(t) => txn(t),
        Command::Graph(writes) => writes.iter().map(|write| graph_write(write) + 48).sum(),
        Command::Commit(commit) => {
            let read = |read: &CommitRead| match read {
                CommitRead::Key(key) => key.len(),
                CommitRead::Range { key, range_end } => key.len() + range_end.len(),
                CommitRead::Edge { kind, .. } => 32 + kind.len(),
                CommitRead::Block(_) | CommitRead::EdgesOut(_) | CommitRead::EdgesIn(_) => 16,
                CommitRead::Blocks { .. } => 32,
                CommitRead::Entries { first, end, .. } => 8 + first.len() + end.len(),
            };
            let write = |write: &CommitWrite| match write {
                CommitWrite::Put { key, value, .. } => key.len() + value.len(),
                CommitWrite::Delete { key } => key.len(),
                CommitWrite::DeleteRange { key, range_end } => key.len() + range_end.len(),
                CommitWrite::Graph(write) => 48 + graph_write(write),
                CommitWrite::Update { key, update } => key.len() + update.carried_bytes(),
            };
            let expectations = commit.expectations.iter();
            commit.reads.iter().map(read).sum::<usize>()
                + expectations.map(|e| e.key.len() + 8).sum::<usize>()
                + commit.writes.iter().map(write).sum::<usize>()
                + 4 * (commit.reads.len() + commit.writes.len())
        }
        _ => 32,
    }
}

impl Core {
    /// Proposes once, without waiters.
    pub(crate) async fn hand_in_once(&self, number: u64, proposal: Bytes, deadline: Instant) {
        let Some(leader) = self.leader_id() else {
            return self.waiters.fail(number, &Error::NoLeader);
        };
        let handing = self.hand_in(number, leader, proposal);
        match tokio::time::timeout_at(deadline, handing).await {
            Ok(Handed::Applied) => {}
            Ok(Handed::Nowhere(error) | Handed::Unknown(error)) => {
                self.waiters.fail(number, &error);
            }
            Err(_) => self.waiters.fail(number, &Error::Timeout),
        }
    }

    /// Proposes again and again while the proposal is in no log and there is time. Returns whether the leader
    /// has applied it; if not, the waiters have received an error. The permit is released at the end, or
    /// before this waits only for news of a failed leader.
    async fn hand_in_until(
        &self,
        number: u64,
        proposal: Bytes,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> bool {
        let mut permit = Some(permit);
        loop {
            let handed = match self.leader_id() {
                Some(leader) => {
                    let handing = self.hand_in(number, leader, proposal.clone());
                    match tokio::time::timeout_at(deadline, handing).await {
                        Ok(Handed::Unknown(error)) => {
                            drop(permit.take());
                            self.find_out(number, leader, error, deadline).await
                        }
                        Ok(handed) => handed,
                        Err(_) => Handed::Unknown(Error::Timeout),
                    }
                }
                None => Handed::Nowhere(Error::NoLeader),
            };
            let failure = match handed {
                Handed::Applied => return true,
                Handed::Nowhere(error)
                    if !is_final(&error) && Instant::now() + RETRY_PAUSE < deadline =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Handed::Nowhere(error) | Handed::Unknown(error) => error,
            };
            self.waiters.fail(number, &failure);
            return false;
        }
    }

    /// A leader failed with a proposal that may be in its log. If another member leads soon, the fate is
    /// known then.
    async fn find_out(
        &self,
        number: u64,
        leader: LeaderId,
        error: Error,
        deadline: Instant,
    ) -> Handed {
        let settled_by = Instant::now() + 3 * self.options.election_timeout;
        let superseded = self.waiters.superseded(leader);
        let is_running = self.stop_reason().is_none();
        let waited = tokio::time::timeout_at(settled_by.min(deadline), superseded);
        match is_running && waited.await.is_ok() {
            true => self.settle(number),
            false => Handed::Unknown(error),
        }
    }

    fn settle(&self, number: u64) -> Handed {
        match self.waiters.settle(number) {
            Fate::Done => Handed::Applied,
            Fate::Lost => Handed::Nowhere(Error::LeaderChanged),
            Fate::Unknown => Handed::Unknown(Error::LeaderChanged),
        }
    }

    /// Hands a proposal to a leader, here or elsewhere, and stops waiting once another member leads.
    async fn hand_in(&self, number: u64, leader: LeaderId, proposal: Bytes) -> Handed {
        if let Some(reason) = self.stop_reason() {
            return Handed::Unknown(Error::Stopped { reason });
        }
        if let Err(error) = self.check_before_proposing(&proposal) {
            return Handed::Nowhere(error);
        }
        let handing = async {
            if leader.node_id == self.member_id {
                self.waiters.confirm(number);
                return self.hand_in_here(leader.term, proposal).await;
            }
            let Some(client) = self.peer(leader.node_id) else {
                return Handed::Nowhere(Error::NoLeader);
            };
            self.waiters.unconfirm(number);
            match client.propose(leader.term, proposal).await {
                Ok(()) => {
                    self.waiters.confirm(number);
                    Handed::Applied
                }
                Err(status) => forwarded(&status),
            }
        };
        tokio::select! {
            biased;
            handed = handing => handed,
            () = self.waiters.superseded(leader) => self.settle(number),
        }
    }

    /// Hands a proposal to Raft on this member, as the leader of this term; returns after it was applied
    /// here. The proposal must have been made here, or have passed
    /// [`proposal::check`](super::proposal::check).
    pub(crate) async fn hand_in_here(&self, term: u64, proposal: Bytes) -> Handed {
        if let Err(error) = self.check_before_proposing(&proposal) {
            return Handed::Nowhere(error);
        }
        let leader = LeaderId {
            term,
            node_id: self.member_id,
        };
        let outcome = match self.raft.propose(leader, Proposal(proposal)).await {
            Ok(outcome) => outcome,
            Err(error) => return Handed::Unknown(error),
        };
        let outcome = tokio::select! {
            biased;
            outcome = outcome => outcome,
            () = self.waiters.superseded(leader) => return Handed::Unknown(Error::LeaderChanged),
        };
        match outcome {
            Outcome::Applied => Handed::Applied,
            Outcome::Refused => Handed::Nowhere(Error::NoLeader),
            Outcome::Replaced => Handed::Unknown(Error::LeaderChanged),
            Outcome::Failed(error) => Handed::Unknown(error),
            Outcome::Ended => {
                let stopped = || Error::stopped("it is closed");
                Handed::Unknown(self.check_running().err().unwrap_or_else(stopped))
            }
        }
    }
}

/// Whether a repetition would fail in the same way.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::CommandTooNew { .. } | Error::ProposalRefused { .. } | Error::RequestTooLarge { .. }
    )
}

/// What the status of a failed forward implies for the proposal.
fn forwarded(status: &tonic::Status) -> Handed {
    match status.code() {
        // It is not the leader, which is checked before anything is accepted.
        tonic::Code::FailedPrecondition => Handed::Nowhere(Error::NoLeader),
        tonic::Code::Unavailable if crate::peer::is_unsent(status) => {
            Handed::Nowhere(Error::NoLeader)
        }
        // It refused a proposal that it could not apply.
        tonic::Code::InvalidArgument | tonic::Code::OutOfRange => {
            let reason = status.message().to_owned();
            Handed::Nowhere(Error::ProposalRefused { reason })
        }
        tonic::Code::DeadlineExceeded => Handed::Unknown(Error::Timeout),
        _ => Handed::Unknown(Error::LeaderChanged),
    }
}

#[cfg(test)]
mod tests {
    use bowline::{Block, BlockId, Edge};
    use bowline_replica::{
        Compare, DeleteRangeOp, Grant, GraphWrite, Op, Permission, PutOp, RangeOp, Relation,
        Target, Txn, UsersChange, encode_commands,
    };

    use super::*;

    /// The bound of a log entry must count everything that can be large.
    #[test]
    fn the_size_of_a_write_of_the_graph_counts_texts_as_well_as_content() {
        let (id, large) = (BlockId(1), "x".repeat(100_000));
        for write in [
            GraphWrite::PutBlock(Block::new(id, "k").content(large.as_bytes())),
            GraphWrite::PutBlock(Block::new(id, "k").attribute("name", &*large)),
            GraphWrite::PutBlock(Block::new(id, "k").attribute(&*large, "text")),
            GraphWrite::PutEdge(Edge::new(id, "k", id).attribute("name", &*large)),
            GraphWrite::PutEdge(Edge::new(id, &*large, id)),
        ] {
            assert!(command_bytes(&Command::Graph(vec![write])) >= large.len());
        }
        // A comparison counted as 32 bytes: many in one proposal were refused together, with what others wanted.
        let target = Target::Value(large.as_bytes().to_vec());
        let compare = Compare {
            key: b"k".to_vec(),
            range_end: Vec::new(),
            relation: Relation::Equal,
            target,
        };
        let txn = Txn {
            compares: vec![compare],
            ..Txn::default()
        };
        assert!(command_bytes(&Command::Txn(txn)) >= large.len());
        // Operations counted as their texts only, and a nested transaction as nothing.
        for op in [
            Op::Txn(Txn::default()),
            Op::Range(RangeOp::default()),
            Op::DeleteRange(DeleteRangeOp::default()),
            Op::Put(PutOp::default()),
        ] {
            let txn = Txn {
                failure: vec![op; 1000],
                ..Txn::default()
            };
            let command = Command::Txn(txn);
            let mut encoded = Vec::new();
            encode_commands([&command].into_iter(), &mut encoded);
            let encoded = encoded.len();
            let counted = command_bytes(&command);
            assert!(
                counted + 100 >= encoded,
                "{counted} of {encoded}: {command:?}"
            );
        }
        let small = GraphWrite::DeleteBlock(id);
        let size = command_bytes(&Command::Graph(vec![small; 10_000]));
        assert!((160_000..1_000_000).contains(&size), "{size}");
    }

    /// Each counted as 512 bytes: thousands of any length could wait, and some of them made a proposal too large together, so
    /// that what others wanted was refused with them.
    #[test]
    fn a_change_of_users_counts_with_its_texts() {
        let (short, long) = (|| "a".to_owned(), || "x".repeat(100_000));
        let keys = |key: String, range_end: String| Permission::Keys {
            grant: Grant::Read,
            key: key.into_bytes(),
            range_end: range_end.into_bytes(),
        };
        let kinds = Permission::Kinds {
            grant: Grant::Read,
            prefix: long(),
        };
        let with_password = |name, password| UsersChange::AddUser {
            name,
            password: Some(password),
        };
        let granted = |permission| UsersChange::GrantPermission {
            role: short(),
            permission,
        };
        for change in [
            with_password(long(), short()),
            with_password(short(), long()),
            UsersChange::DeleteUser { name: long() },
            UsersChange::ChangePassword {
                name: short(),
                password: long(),
            },
            UsersChange::GrantRole {
                user: long(),
                role: short(),
            },
            UsersChange::RevokeRole {
                user: short(),
                role: long(),
            },
            UsersChange::AddRole { name: long() },
            UsersChange::DeleteRole { name: long() },
            granted(keys(long(), short())),
            granted(keys(short(), long())),
            granted(kinds),
            UsersChange::revoke_keys(long(), Vec::new(), Vec::new()),
        ] {
            let command = Command::Users(change);
            let mut encoded = Vec::new();
            encode_commands([&command].into_iter(), &mut encoded);
            let (counted, encoded) = (command_bytes(&command), encoded.len());
            assert!(
                encoded > 100_000 && counted >= encoded,
                "{counted} of {encoded}"
            );
        }
    }

    /// Otherwise a copy in some log and the repeated proposal could both be applied.
    #[test]
    fn only_a_proposal_that_is_in_no_log_is_handed_in_again() {
        use tonic::{Code, Status};
        let broken = || {
            let mut status = Status::unavailable("the connection broke");
            status.set_source(Arc::new(std::io::Error::other("reset")));
            status
        };
        for status in [
            broken(),
            Status::deadline_exceeded("too late"),
            Status::cancelled("gone"),
            Status::unknown("?"),
            Status::internal("?"),
        ] {
            let code = status.code();
            assert!(matches!(forwarded(&status), Handed::Unknown(_)), "{code:?}");
        }
        for (code, again) in [
            (Code::FailedPrecondition, true),
            (Code::InvalidArgument, false),
            (Code::OutOfRange, false),
        ] {
            let Handed::Nowhere(error) = forwarded(&Status::new(code, "no")) else {
                panic!("{code:?} says that nothing was taken");
            };
            assert_eq!(!is_final(&error), again, "{code:?}");
        }
    }

    fn put(bytes: usize) -> Command {
        let put = PutOp {
            key: b"k".to_vec(),
            value: vec![b'v'; bytes].into(),
            ..PutOp::default()
        };
        Command::Txn(Txn::of(Op::Put(put)))
    }

    /// 5,000 commands of 1.5 MiB might wait, and those whose callers had gone were charged to nobody.
    #[tokio::test]
    async fn the_bytes_that_wait_are_bounded_also_without_their_callers() {
        let (proposer, mut commands) = Proposer::new(5_000);
        let large = WAITING_BYTES_MAX / 8;
        let all = std::iter::from_fn(|| proposer.put(put(large), Duration::ZERO).ok());
        // Without a bound it would take all of the machine's memory.
        assert_eq!(all.take(20).map(drop).count(), 7);
        assert!(matches!(
            proposer.put(put(large), Duration::ZERO),
            Err(Error::TooManyRequests)
        ));
        drop(commands.recv().await);
        assert!(proposer.put(put(large), Duration::ZERO).is_ok());
        while commands.try_recv().is_ok() {}
        assert_eq!(proposer.waiting_bytes.load(Ordering::Relaxed), 0);
        // One that is larger alone has its turn.
        assert!(proposer.put(put(WAITING_BYTES_MAX), Duration::ZERO).is_ok());
        assert!(proposer.put(put(1), Duration::ZERO).is_err());
    }
}
