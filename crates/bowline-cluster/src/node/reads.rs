//! Reads at the three levels.
//!
//! *Linearizable* (ReadIndex): the leader notes its commit index, confirms by one round of heartbeats that it
//! still leads, and the reader proceeds once it has applied that index. No clock is trusted. All waiting
//! reads share the next round; a read that arrives during a round waits for the one after, since the round
//! may have noted an older index.
//!
//! *Lease*: while the leader's lease is valid and it has applied everything committed, its own state is the
//! newest, and the read runs at once on the calling thread ([`Core::holds_lease`]). Another member asks the
//! leader for its index.
//!
//! A request to a leader that was deposed is repeated to its successor, so a read waits for any leader, not for a
//! certain one.
//!
//! *Eventual*: this member's present state.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline::Revision;
use bowline_types::ReadLevel;
use tokio::sync::{mpsc, oneshot};

use super::core::Core;
use crate::error::{Error, Result};
use crate::peer::Confirmation;
use crate::types::NodeId;

/// The point at which a read happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPoint {
    /// The level that was served.
    pub level: ReadLevel,
    /// One past the Raft index that this member had applied, at least.
    pub applied_index: u64,
    /// The newest revision at that point.
    pub revision: Revision,
    /// The term of that entry.
    pub term: u64,
    /// The member that proposed that entry as the leader. A term may have several leaders, one after the other, so only
    /// both tell which entry it is; 0 without an entry.
    #[doc(hidden)]
    pub proposer: NodeId,
}

/// A result with its point.
#[derive(Debug, Clone, PartialEq)]
pub struct Read<T> {
    /// The result.
    pub value: T,
    /// The point of the read.
    pub point: ReadPoint,
}

type Asked = oneshot::Sender<Result<u64>>;

/// The queue of linearizable reads.
#[derive(Debug, Clone)]
pub(crate) struct ReadRounds {
    queue: mpsc::Sender<Asked>,
}

impl ReadRounds {
    /// Starts the task that runs the rounds; it ends with the last handle.
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
        let answer = core.read_index_of_leader(Confirmation::Majority).await;
        for waiter in waiting.drain(..) {
            let _ = waiter.send(answer.clone());
        }
    }
}

impl Core {
    /// One past the index that a read must have applied, from the leader on whichever member.
    pub(crate) async fn read_index_of_leader(&self, by: Confirmation) -> Result<u64> {
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        loop {
            let attempt = async {
                self.check_running()?;
                let leader = self.leader_id().ok_or(Error::NoLeader)?;
                let answer = async {
                    if leader.node_id == self.member_id {
                        self.read_index(by).await
                    } else {
                        let client = self.peer(leader.node_id).ok_or(Error::NoLeader)?;
                        client.read_index(by).await.map_err(|_| Error::NoLeader)
                    }
                };
                tokio::select! {
                    biased;
                    answer = answer => answer,
                    () = self.other_than(leader) => Err(Error::NoLeader),
                }
            };
            let answer = tokio::time::timeout_at(deadline, attempt).await;
            match answer {
                // A read changes nothing: it is repeated until the deadline.
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
    pub(crate) async fn read_index(&self, by: Confirmation) -> Result<u64> {
        if by == Confirmation::Lease
            && let Some(next) = self.leased_index()
        {
            return Ok(next);
        }
        // An invalid lease is no error: the round works without one.
        let next = self.raft.read_index().await?;
        // Before any read returns: the state may only later show it as committed.
        self.read_floor.fetch_max(next, Ordering::AcqRel);
        Ok(next)
    }
}
