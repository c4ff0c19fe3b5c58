//! Pending proposals and their reply channels.
//!
//! A proposal names its proposer: member, run of that member, number. Every member applies it; the proposer
//! finds its waiters here, and sends them the replies of its own state machine. So replies never cross the
//! network, and a client that receives one finds its effects on the member it talks to.
//!
//! A reply is sent once it exists *and* the leader has applied the proposal, too: lease reads rely on the
//! leader's state for everything acknowledged. For a proposal handed over on this member the two are one:
//! either this member leads, or another does in a later term, whose lease reads wait for its own first entry,
//! which is behind this one.
//!
//! *Proposals of a failed leader.* A proposal is handed to one leader, and enters the log only in that
//! leader's name. Once this member has applied an entry of a later leader, every entry of the earlier one
//! that will ever be applied precedes it. So a proposal with an outcome by then is done; one without will
//! never be applied, and is proposed again. Only where a snapshot replaced entries, its fate is unknown.
//!
//! ```text
//! proposal  | member u64 BE | run u64 BE | number u64 BE | commands |
//! ```

use std::collections::HashMap;

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_replica::{
    Command, Replica, Reply, decode_commands, encode_commands, require_indexes, require_quotas,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};
use crate::types::{LeaderId, NodeId};

pub(crate) const HEAD_BYTES: usize = 24;

/// A reply, with its position in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The result of the command.
    pub reply: Reply,
    /// The Raft index of its entry.
    pub index: u64,
    /// The term of its entry.
    pub term: u64,
}

/// A reply channel.
pub(crate) type Waiter = oneshot::Sender<Result<Applied>>;

/// The waiters, by the number of their proposal.
#[derive(Debug)]
pub(crate) struct Waiters {
    member: NodeId,
    /// Random, so that an entry of an earlier run never matches.
    run: u64,
    state: Mutex<State>,
    /// The leader of the last applied entry. The outcomes of that entry are stored before.
    leader: watch::Sender<Option<LeaderId>>,
    /// Whether there are quotas, in this member's state.
    has_quotas: AtomicBool,
    /// Whether there are indexes.
    has_indexes: AtomicBool,
}

/// The fate of a proposal after its leader has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is applied, and its waiters have their replies.
    Done,
    /// It will never be applied.
    Lost,
    /// A snapshot replaced the entries.
    Unknown,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    waiters: Vec<Waiter>,
    /// The leader has applied it, or it was handed over here.
    is_confirmed: bool,
    /// The results of this member's state machine.
    outcomes: Option<Vec<Applied>>,
    /// Whether a snapshot has replaced entries since the proposal was made.
    is_skipped: bool,
}

impl Pending {
    fn is_ready(&self) -> bool {
        self.is_confirmed && self.outcomes.is_some()
    }

    fn send(self) {
        let outcomes = self.outcomes.unwrap_or_default();
        if outcomes.len() != self.waiters.len() {
            // Some of its commands came with a snapshot from the middle of it: the replies cannot be
            // assigned.
            for waiter in self.waiters {
                let _ = waiter.send(Err(Error::LeaderChanged));
            }
            return;
        }
        for (waiter, applied) in self.waiters.into_iter().zip(outcomes) {
            // An error means that the waiter has gone.
            let _ = waiter.send(Ok(applied));
        }
    }
}

/// A decoded proposal.
pub(crate) struct Parts {
    pub(crate) commands: Vec<Command>,
    /// `None` if this member has no waiters for it.
    pub(crate) awaited: Option<Awaited>,
}

/// What is awaited of a proposal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) number: u64,
    /// Whether the waiter of each command is still there. One that has gone has given back the memory for its reply.
    pub(crate) of_each: Vec<bool>,
}

/// The proposer's member id; `None` when the proposal is shorter than its head.
pub(crate) fn proposer_of(proposal: &[u8]) -> Option<NodeId> {
    let head: &[u8; HEAD_BYTES] = proposal.first_chunk()?;
    let member: &[u8; 8] = head.first_chunk()?;
    Some(u64::from_be_bytes(*member))
}

impl Waiters {
    pub(crate) fn new(member: NodeId) -> Waiters {
        Waiters {
            member,
            run: fastrand::u64(..),
            state: Mutex::default(),
            leader: watch::Sender::new(None),
            has_quotas: AtomicBool::new(false),
            has_indexes: AtomicBool::new(false),
        }
    }

    /// Notes whether there are quotas and indexes: then proposals require members that know of them.
    pub(crate) fn note_what_is_kept(&self, replica: &Replica) {
        self.has_quotas
            .store(replica.has_quotas(), Ordering::Relaxed);
        self.has_indexes
            .store(replica.has_indexes(), Ordering::Relaxed);
    }

    /// Encodes a proposal of commands, whose outcomes go to `waiters`.
    pub(crate) fn propose(&self, commands: &[Command], waiters: Vec<Waiter>) -> (u64, Bytes) {
        let number = {
            let mut state = self.state.lock();
            state.next += 1;
            let number = state.next;
            if !waiters.is_empty() {
                let pending = Pending {
                    waiters,
                    ..Pending::default()
                };
                state.waiting.insert(number, pending);
            }
            number
        };
        let mut out = Vec::with_capacity(64 + 64 * commands.len());
        out.extend_from_slice(&self.member.to_be_bytes());
        out.extend_from_slice(&self.run.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        encode_commands(commands.iter(), &mut out);
        let encoded = out.get_mut(HEAD_BYTES..).unwrap_or_default();
        if self.has_quotas.load(Ordering::Relaxed) {
            require_quotas(encoded);
        }
        if self.has_indexes.load(Ordering::Relaxed) {
            require_indexes(encoded);
        }
        (number, out.into())
    }

    /// Whether a proposal has waiters.
    pub(crate) fn is_waiting(&self, number: u64) -> bool {
        self.state.lock().waiting.contains_key(&number)
    }

    /// Sends an error to the waiters of a proposal.
    pub(crate) fn fail(&self, number: u64, error: &Error) {
        let pending = self.state.lock().waiting.remove(&number);
        for waiter in pending.into_iter().flat_map(|pending| pending.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Notes that the leader has applied a proposal, or that it is about to be handed over here.
    pub(crate) fn confirm(&self, number: u64) {
        self.update(number, |pending| pending.is_confirmed = true);
    }

    /// Notes that a proposal is forwarded to another member, which has not confirmed yet that it has applied
    /// it.
    pub(crate) fn unconfirm(&self, number: u64) {
        self.update(number, |pending| pending.is_confirmed = false);
    }

    /// Stores the outcomes of a proposal that this member has applied; they are visible.
    pub(crate) fn applied(&self, number: u64, outcomes: Vec<Applied>) {
        self.update(number, |pending| pending.outcomes = Some(outcomes));
    }

    /// Notes that a snapshot replaced entries.
    pub(crate) fn skipped(&self) {
        for pending in self.state.lock().waiting.values_mut() {
            pending.is_skipped = true;
        }
    }

    /// Notes that this member has applied an entry of this leader, and stored the outcomes of all entries
    /// before.
    pub(crate) fn leader_applied(&self, leader: Option<LeaderId>) {
        self.leader.send_if_modified(|known| {
            let is_later = leader > *known;
            *known = leader.max(*known);
            is_later
        });
    }

    /// Waits until this member has applied an entry of a later leader.
    pub(crate) async fn superseded(&self, leader: LeaderId) {
        let mut applied = self.leader.subscribe();
        // An error is impossible: the sender lives as long as this.
        let _ = applied.wait_for(|applied| *applied > Some(leader)).await;
    }

    /// The fate of a proposal, once its leader is [superseded](Self::superseded).
    pub(crate) fn settle(&self, number: u64) -> Fate {
        let fate = match self.state.lock().waiting.get(&number) {
            Some(pending) if pending.outcomes.is_some() => Fate::Done,
            Some(pending) if pending.is_skipped => Fate::Unknown,
            Some(_) => Fate::Lost,
            // The waiters have had their reply.
            None => Fate::Done,
        };
        if fate == Fate::Done {
            // A later leader applies it before its lease reads.
            self.confirm(number);
        }
        fate
    }

    fn update(&self, number: u64, change: impl FnOnce(&mut Pending)) {
        let ready = {
            let mut state = self.state.lock();
            let Some(pending) = state.waiting.get_mut(&number) else {
                return;
            };
            change(pending);
            match pending.is_ready() {
                true => state.waiting.remove(&number),
                false => None,
            }
        };
        if let Some(pending) = ready {
            pending.send();
        }
    }

    /// Sends an error to all waiters.
    pub(crate) fn fail_all(&self, error: &Error) {
        let all = std::mem::take(&mut self.state.lock().waiting);
        for waiter in all.into_values().flat_map(|pending| pending.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Decodes a proposal that is to be applied.
    pub(crate) fn take(&self, proposal: &Bytes) -> Result<Parts> {
        let number_at = |at: usize| {
            let bytes = proposal.get(at..at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let (Some(member), Some(run), Some(number)) = (number_at(0), number_at(8), number_at(16))
        else {
            return Err(Error::stopped("a proposal is shorter than its head"));
        };
        let commands = decode_commands(&proposal.slice(HEAD_BYTES..)).map_err(Error::stopped)?;
        let awaited = match (member, run) == (self.member, self.run) {
            true => self.awaited(number),
            false => None,
        };
        Ok(Parts { commands, awaited })
    }

    fn awaited(&self, number: u64) -> Option<Awaited> {
        let state = self.state.lock();
        let waiters = state.waiting.get(&number)?.waiters.iter();
        Some(Awaited {
            number,
            of_each: waiters.map(|waiter| !waiter.is_closed()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use bowline::Revision;
    use bowline_replica::Outcome;

    use super::*;

    const COMMAND: Command = Command::LeaseRevoke { id: 1 };

    fn leader(term: u64) -> LeaderId {
        LeaderId { term, node_id: 1 }
    }

    fn applied(index: u64) -> Applied {
        let reply = Reply {
            revision: Revision::new(index),
            result: Ok(Outcome::Done),
        };
        Applied {
            reply,
            index,
            term: 1,
        }
    }

    /// A proposal of so many commands, with its reply channels.
    fn proposed(
        waiters: &Waiters,
        count: usize,
    ) -> (u64, Bytes, Vec<oneshot::Receiver<Result<Applied>>>) {
        let (senders, receivers) = (0..count).map(|_| oneshot::channel()).unzip();
        let (number, proposal) = waiters.propose(&vec![COMMAND; count], senders);
        (number, proposal, receivers)
    }

    /// Lease reads rely on the leader's state for everything acknowledged.
    #[test]
    fn a_reply_waits_for_the_leader_and_for_this_member() {
        let waiters = Waiters::new(1);
        for leader_is_first in [true, false] {
            let (number, _, mut replies) = proposed(&waiters, 2);
            waiters.unconfirm(number);
            match leader_is_first {
                true => waiters.confirm(number),
                false => waiters.applied(number, vec![applied(7), applied(8)]),
            }
            assert!(replies[0].try_recv().is_err(), "{leader_is_first}");
            match leader_is_first {
                true => waiters.applied(number, vec![applied(7), applied(8)]),
                false => waiters.confirm(number),
            }
            for (reply, index) in replies.iter_mut().zip([7, 8]) {
                assert_eq!(reply.try_recv().unwrap().unwrap().index, index);
            }
        }
    }

    /// A proposal is not repeated if it is done, or may be in an installed snapshot.
    #[test]
    fn what_became_of_a_proposal_is_told_by_what_was_applied() {
        let waiters = Waiters::new(1);
        let (done, _, mut replies) = proposed(&waiters, 1);
        waiters.applied(done, vec![applied(7)]);
        assert_eq!(waiters.settle(done), Fate::Done);
        assert!(replies[0].try_recv().unwrap().is_ok());
        assert_eq!(waiters.settle(done), Fate::Done, "who waited was told");
        let (skipped, _, _skipped) = proposed(&waiters, 1);
        waiters.skipped();
        assert_eq!(waiters.settle(skipped), Fate::Unknown);
        let (lost, _, _lost) = proposed(&waiters, 1);
        assert_eq!(waiters.settle(lost), Fate::Lost);
    }

    /// A proposal may still be committed from its leader's log.
    #[test]
    fn only_a_later_leader_supersedes_one() {
        let waiters = Waiters::new(1);
        let is_superseded = |term| {
            use futures_util::FutureExt;
            waiters.superseded(leader(term)).now_or_never().is_some()
        };
        assert!(!is_superseded(3));
        waiters.leader_applied(Some(leader(3)));
        assert!(!is_superseded(3) && is_superseded(2));
        waiters.leader_applied(Some(leader(1)));
        assert!(is_superseded(2), "it does not go back");
        waiters.leader_applied(Some(leader(4)));
        assert!(is_superseded(3));
    }

    /// Each run numbers its proposals from the start.
    #[test]
    fn an_entry_of_an_earlier_run_answers_nobody() {
        let (earlier, waiters) = (Waiters::new(1), Waiters::new(1));
        let (old, old_proposal, _old) = proposed(&earlier, 1);
        let (number, proposal, _replies) = proposed(&waiters, 1);
        assert_eq!(old, number);
        assert_eq!(waiters.take(&old_proposal).unwrap().awaited, None);
        let awaited = waiters.take(&proposal).unwrap().awaited.unwrap();
        assert_eq!(awaited.number, number);
        assert!(awaited.of_each.iter().all(|is_awaited| *is_awaited));
        assert!(waiters.take(&proposal.slice(..HEAD_BYTES - 1)).is_err());
    }

    /// The memory for a reply is given back when its caller goes: then the reply is not made.
    #[test]
    fn a_waiter_that_has_gone_awaits_nothing() {
        let waiters = Waiters::new(1);
        let (_, proposal, mut replies) = proposed(&waiters, 3);
        drop(replies.remove(1));
        let awaited = waiters.take(&proposal).unwrap().awaited.unwrap();
        assert_eq!(awaited.of_each, [true, false, true]);
    }

    /// A snapshot may be taken in the middle of a proposal: then the replies cannot be assigned.
    #[test]
    fn replies_that_are_not_all_there_go_to_nobody() {
        let waiters = Waiters::new(1);
        let (number, _, replies) = proposed(&waiters, 2);
        waiters.confirm(number);
        waiters.applied(number, vec![applied(8)]);
        for mut reply in replies {
            assert!(matches!(reply.try_recv(), Ok(Err(Error::LeaderChanged))));
        }
    }
}
