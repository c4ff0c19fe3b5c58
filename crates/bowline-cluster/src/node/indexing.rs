//! Indexes of blocks: creating one, dropping one, and the steps in which all members build and clear them.
//!
//! ```text
//!   caller ── Create ──▶ registered: every write keeps it
//!     │                     │
//!     └──────── Step ──────▶│ 256 blocks, and how far that is
//!              Step ───────▶│ ...
//!                           ▼
//!                         ready: queries read by it
//! ```
//!
//! A step is a command, which each member executes on its own state. The member that was asked to create an index proposes the
//! steps, and so has the reply of the last one. Where it goes away, or the one who asked it, the leader goes on: it looks at
//! intervals whether an index is at the same place as before. It alone clears those that were dropped.
//!
//! Invariants:
//!
//! - An index that was registered is ready or gone at some time, whoever fails meanwhile, as long as there is a leader, and room.
//! - Between two steps of one proposer, other commands have as much time as the step has taken.

use std::time::Duration;

use bowline_replica::{Command, IndexChange, IndexProgress, IndexRefusal, Outcome, Refusal};
use futures_core::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::caller::CallerClient;
use super::core::Core;
use crate::error::{Error, Result};
use crate::raft::waiters::Applied;

/// How often the leader looks for an index that nobody builds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The timeout of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a step is proposed whose outcome is unknown, until the leader is left to go on.
const ATTEMPTS_MAX: u32 = 10;
/// The pause before it is proposed again.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// On the leader, goes on with indexes that nobody builds, and clears those that were dropped.
pub(crate) async fn run(core: &Core) {
    let mut seen = None;
    loop {
        sleep(LOOK_EVERY).await;
        let next = core.replica.index_step().filter(|_| core.is_leading());
        let is_left = next.is_some() && next == seen;
        seen = next;
        while is_left
            && core.is_leading()
            && let Some(step) = core.replica.index_step()
        {
            let begun = Instant::now();
            if !is_done(core, step).await {
                // It is tried again later: there may be no room, or no majority.
                break;
            }
            sleep(begun.elapsed()).await;
        }
    }
}

/// Proposes a step; whether it was applied, and not refused.
async fn is_done(core: &Core, step: IndexChange) -> bool {
    let (waiter, outcome) = oneshot::channel();
    let (number, proposal) = core.waiters.propose(&[Command::Index(step)], vec![waiter]);
    let deadline = Instant::now() + STEP_TIMEOUT;
    core.hand_in_once(number, proposal, deadline).await;
    let outcome = timeout(STEP_TIMEOUT, outcome).await;
    match outcome {
        Ok(Ok(Ok(applied))) => match applied.reply.result {
            Ok(Outcome::Index(IndexProgress::NotUnique { pairs })) => {
                tracing::error!(
                    ?pairs,
                    "a unique index over blocks with the same values is dropped"
                );
                true
            }
            result => result.is_ok(),
        },
        Ok(_) => false,
        Err(_) => {
            core.waiters.fail(number, &Error::Timeout);
            false
        }
    }
}

impl CallerClient<'_> {
    /// Creates an index of the blocks of a kind by the values of attributes, and returns when it is built; at once, if it
    /// exists. If this ends before, the cluster goes on building it. Needs the role `root` while authentication is enabled.
    ///
    /// # Errors
    /// `Refused` with an [`IndexRefusal`]; those of [`LocalClient::execute`](super::LocalClient::execute), when the cluster goes
    /// on by itself if it was registered.
    pub fn create_index(
        &self,
        kind: String,
        attributes: Vec<String>,
        is_unique: bool,
    ) -> BoxFuture<'_, Result<Applied>> {
        Box::pin(async move {
            let names = (kind.clone(), attributes.join(", "));
            let create = IndexChange::Create {
                kind,
                attributes,
                is_unique,
            };
            let mut applied = self.execute(Command::Index(create)).await?;
            loop {
                let refusal = match progress(&applied)? {
                    IndexProgress::Ready { .. } => return Ok(applied),
                    IndexProgress::Unfinished { id, done } => {
                        let begun = Instant::now();
                        applied = self.index_step(IndexChange::Step { id, done }).await?;
                        sleep(begun.elapsed()).await;
                        continue;
                    }
                    IndexProgress::NotUnique { pairs } => IndexRefusal::BuiltNotUnique {
                        kind: names.0,
                        attributes: names.1,
                        pairs,
                    },
                    _ => IndexRefusal::NotFound {
                        kind: names.0,
                        attributes: names.1,
                    },
                };
                return Err(Refusal::from(refusal).into());
            }
        })
    }

    /// Drops an index. Queries and writers do without it from then on; its entries are deleted later. Needs the role `root`
    /// while authentication is enabled.
    ///
    /// # Errors
    /// `Refused` with [`IndexRefusal::NotFound`]; those of [`LocalClient::execute`](super::LocalClient::execute).
    pub fn drop_index(
        &self,
        kind: String,
        attributes: Vec<String>,
    ) -> BoxFuture<'_, Result<Applied>> {
        Box::pin(async move {
            let drop = IndexChange::Drop { kind, attributes };
            let applied = self.execute(Command::Index(drop)).await?;
            progress(&applied)?;
            Ok(applied)
        })
    }

    /// Takes a step. It may be proposed several times, as the second one does nothing.
    async fn index_step(&self, step: IndexChange) -> Result<Applied> {
        let mut attempt = 1;
        loop {
            match self.execute(Command::Index(step.clone())).await {
                Err(error) if attempt < ATTEMPTS_MAX && may_repeat(&error) => {
                    attempt += 1;
                    sleep(REPEAT_PAUSE).await;
                }
                applied => return applied,
            }
        }
    }
}

/// Whether a step that failed so may be proposed again, also where its outcome is unknown.
fn may_repeat(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Timeout | Error::LeaderChanged)
}

/// How far an index is, by a reply.
fn progress(applied: &Applied) -> Result<IndexProgress> {
    match &applied.reply.result {
        Ok(Outcome::Index(progress)) => Ok(progress.clone()),
        Ok(other) => Err(Error::stopped(format!(
            "a change of indexes was replied to by {other:?}"
        ))),
        Err(refusal) => Err(refusal.clone().into()),
    }
}
