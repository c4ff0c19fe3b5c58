//! Reads at the three levels.
//!
//! *Linearizable* (ReadIndex): the leader notes how far it has committed, makes sure by one round
//! of heartbeats that it still leads, and whoever asked reads once it has applied that far. No clock
//! is trusted. All reads that wait share the next round; one that comes while a round is under way
//! waits for the one after, since that round may have noted its place before.
//!
//! *Lease*: while the leader's lease holds, and it has applied what is agreed on, its own state is the newest
//! there is, and the read goes on at once, on the calling thread ([`Core::holds_lease`]). Another member asks
//! the leader for its place.
//!
//! A read waits for *a* leader: once another one leads than the one that is asked, that one is asked.
//!
//! *Eventual*: whatever this member has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};

use super::core::Core;
use crate::error::{Error, Result};
use crate::peer;

/// How new what is read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ReadLevel {
    /// As new as everything that was acknowledged before the read began, whatever clocks do.
    #[default]
    Linearizable,
    /// The same, as long as the members' clocks run at nearly the same speed.
    Lease,
    /// Some state that was, on the member that is asked.
    Eventual,
}

/// Where a read happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPoint {
    /// The level that was served.
    pub level: ReadLevel,
    /// One past the Raft index that this member had applied, at least.
    pub applied_index: u64,
    /// The newest revision there then.
    pub revision: u64,
    /// The term of that entry.
    pub term: u64,
}

/// What was read, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Read<T> {
    /// What was read.
    pub value: T,
    /// Where.
    pub point: ReadPoint,
}

type Asked = oneshot::Sender<Result<u64>>;

/// Where linearizable reads wait for their round.
#[derive(Debug, Clone)]
pub(crate) struct ReadRounds {
    queue: mpsc::Sender<Asked>,
}

impl ReadRounds {
    /// Starts the task that goes round after round; it ends with the last handle.
    pub(crate) fn start(core: &Arc<Core>, waiting_max: usize) -> ReadRounds {
        let (queue, asked) = mpsc::channel(waiting_max.max(1));
        tokio::spawn(run(core.clone(), asked));
        ReadRounds { queue }
    }

    /// One past the Raft index that a linearizable read must have applied.
    pub(crate) async fn next(&self) -> Result<u64> {
        let (asked, answer) = oneshot::channel();
        let closed = || Error::stopped("it is closed");
        self.queue.try_send(asked).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::TooManyRequests,
            mpsc::error::TrySendError::Closed(_) => closed(),
        })?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn run(core: Arc<Core>, mut asked: mpsc::Receiver<Asked>) {
    const AT_ONCE: usize = 4096;
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, AT_ONCE).await > 0 {
        let answer = core
            .read_index_of_leader(peer::ReadLevel::Linearizable)
            .await;
        for waiter in waiting.drain(..) {
            let _ = waiter.send(answer.clone());
        }
    }
}

impl Core {
    /// One past the index that a read must have applied, from the leader, wherever it is.
    pub(crate) async fn read_index_of_leader(&self, level: peer::ReadLevel) -> Result<u64> {
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        loop {
            let attempt = async {
                self.check_running()?;
                let leader = self.leader_id().ok_or(Error::NoLeader)?;
                let answer = async {
                    if leader.node_id == self.member_id {
                        self.read_index(level).await
                    } else {
                        let client = self.peer(leader.node_id).ok_or(Error::NoLeader)?;
                        client.read_index(level).await.map_err(|_| Error::NoLeader)
                    }
                };
                tokio::select! {
                    answer = answer => answer,
                    () = self.other_than(leader) => Err(Error::NoLeader),
                }
            };
            let answer = tokio::time::timeout_at(deadline, attempt).await;
            match answer {
                // A read changes nothing: it is tried again as long as there is time.
                Ok(Err(Error::NoLeader | Error::NotLeader)) => {
                    if tokio::time::Instant::now() + PAUSE >= deadline {
                        return Err(Error::NoLeader);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(answer) => return answer,
                Err(_) => return Err(Error::Timeout),
            }
        }
    }

    /// The same on the leader itself.
    pub(crate) async fn read_index(&self, level: peer::ReadLevel) -> Result<u64> {
        if level == peer::ReadLevel::Lease
            && let Some(next) = self.leased_index()
        {
            return Ok(next);
        }
        // A lease that does not hold is no reason to refuse: the round does without.
        let next = self.raft.read_index().await?;
        // Before anybody reads what is there: the state may say later that it is agreed on.
        self.read_floor.fetch_max(next, Ordering::AcqRel);
        Ok(next)
    }
}
