//! Who waits for what becomes of a proposal.
//!
//! A proposal says who made it: member, run of that member, number. Every member applies it; the
//! one that made it finds those who wait here, and gives them the replies of its own state machine.
//! So replies never travel, and whoever gets one finds its effects in the member it talks to.
//!
//! A reply is given out once it is there *and* the leader has applied the proposal, too: lease reads
//! take what the leader has for everything that was acknowledged. For a proposal that was handed in
//! here the two are one: either this member leads, or another does in a later term, whose lease
//! reads wait for its own first entry, which is behind this one.
//!
//! ```text
//! proposal  | member u64 BE | run u64 BE | number u64 BE | commands |
//! ```

use std::collections::HashMap;

use bowline::replica::{Command, Reply, decode_commands, encode_commands};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::types::NodeId;

const HEAD_BYTES: usize = 24;

/// A reply, with the place in the log that it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// What became of the command.
    pub reply: Reply,
    /// The Raft index of its entry.
    pub index: u64,
    /// The term of its entry.
    pub term: u64,
}

/// Where a reply goes.
pub(crate) type Waiter = oneshot::Sender<Result<Applied>>;

/// Those who wait, by the number of their proposal.
#[derive(Debug)]
pub(crate) struct Waiters {
    member: NodeId,
    /// Random, so that an entry of an earlier run is never taken for one of this.
    run: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    waiters: Vec<Waiter>,
    /// The leader has applied it, or it was handed in here.
    is_confirmed: bool,
    /// What this member's state machine has made of it.
    outcomes: Option<Vec<Applied>>,
}

impl Pending {
    fn is_ready(&self) -> bool {
        self.is_confirmed && self.outcomes.is_some()
    }

    fn send(self) {
        let outcomes = self.outcomes.unwrap_or_default();
        if outcomes.len() != self.waiters.len() {
            // Some of its commands came with a snapshot that was taken half-way through it: which
            // reply is whose is not known any more.
            for waiter in self.waiters {
                let _ = waiter.send(Err(Error::LeaderChanged));
            }
            return;
        }
        for (waiter, applied) in self.waiters.into_iter().zip(outcomes) {
            // Who has gone does not want to know.
            let _ = waiter.send(Ok(applied));
        }
    }
}

/// A proposal taken apart.
pub(crate) struct Parts {
    pub(crate) commands: Vec<Command>,
    /// Its number, when somebody of this member waits for it.
    pub(crate) awaited: Option<u64>,
}

impl Waiters {
    pub(crate) fn new(member: NodeId) -> Waiters {
        Waiters {
            member,
            run: fastrand::u64(..),
            state: Mutex::default(),
        }
    }

    /// Makes a proposal of commands, whose outcomes go to `waiters`.
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
        (number, out.into())
    }

    /// Whether anybody waits for a proposal.
    pub(crate) fn is_waiting(&self, number: u64) -> bool {
        self.state.lock().waiting.contains_key(&number)
    }

    /// Tells those who wait for a proposal that they will get no reply.
    pub(crate) fn fail(&self, number: u64, error: &Error) {
        let pending = self.state.lock().waiting.remove(&number);
        for waiter in pending.into_iter().flat_map(|pending| pending.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// The leader has applied a proposal, or it is about to be handed in here.
    pub(crate) fn confirm(&self, number: u64) {
        self.update(number, |pending| pending.is_confirmed = true);
    }

    /// A proposal goes to another member, which has yet to say that it has applied it.
    pub(crate) fn unconfirm(&self, number: u64) {
        self.update(number, |pending| pending.is_confirmed = false);
    }

    /// This member has applied a proposal, and what came of it is visible.
    pub(crate) fn applied(&self, number: u64, outcomes: Vec<Applied>) {
        self.update(number, |pending| pending.outcomes = Some(outcomes));
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

    /// Tells everybody.
    pub(crate) fn fail_all(&self, error: &Error) {
        let all = std::mem::take(&mut self.state.lock().waiting);
        for waiter in all.into_values().flat_map(|pending| pending.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Takes a proposal apart that is to be applied.
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
        let is_own = (member, run) == (self.member, self.run);
        let is_awaited = is_own && self.is_waiting(number);
        Ok(Parts {
            commands,
            awaited: is_awaited.then_some(number),
        })
    }
}
