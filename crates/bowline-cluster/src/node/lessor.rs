//! The lessor: on the leader, it ends leases and replicates their remaining times.
//!
//! Every member has the table of leases; only the leader keeps their time. Three kinds of entries replicate
//! it, each for many leases at once:
//!
//! ```text
//! end     the time is over: the lease and its keys are deleted
//! tell    the remaining time is an interval below the next leader's estimate: it is recorded
//! clear   the lease was renewed and has a record: the record is cleared, then the holder is answered
//! ```
//!
//! A new leader gives each lease its recorded time, or else its whole TTL, plus an election timeout, from the
//! moment when it has applied all entries of earlier leaders.
//!
//! Invariants:
//!
//! - Never early: by the monotonic clock of each leader, a lease lives for its TTL after its grant, and after
//!   the beginning of each renewal that was answered. A record is never below the remaining time; a renewal
//!   is answered only when there is no record, none on its way into the log either. An earlier leader can no
//!   longer record anything, as each entry names its term; nor can a record apply to a lease that was granted
//!   anew, as it names the entry of the grant.
//! - Late by a bound. Under one leader a lease ends a tick and an entry after its time. A change of leader
//!   adds at most: the checkpoint interval (for a shorter lease: its TTL), a tick and an entry; the time
//!   without a leader; and an election timeout.
//! - A renewal costs nothing of the log unless there is a record; each record costs one clearing. A lease
//!   that is renewed more often than the interval is never recorded.
//!
//! The interval is a minute, where etcd has five: a lease that nobody renews costs a few bytes of one entry a
//! minute, shared by up to a thousand leases, and one renewed less than once a minute costs one command per
//! renewal. Leases of a few seconds with many holders cost nothing.
//!
//! One task does all of it, one entry after the other: a clearing never precedes its record. It pauses for a tick after
//! a refusal, as while the lead is handed over. A new leader
//! answers no request about leases before this task has begun its term: until then the table is that of a
//! follower, or of an earlier term.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline::LeaseId;
use bowline_replica::{Command, LeaseLeft};

use super::core::Core;
use super::proposer::Handed;
use crate::log_limit::SharedLogLimit;

/// The interval of checks.
const TICK: Duration = Duration::from_millis(50);
/// The most leases in one entry.
const AT_ONCE: usize = 1000;

/// Runs until the node is closed, whatever is under way then.
pub(crate) async fn run(core: Arc<Core>) {
    let mut closing = core.closing.subscribe();
    tokio::select! {
        biased;
        () = keep_time(&core) => {}
        _ = closing.wait_for(|closed| *closed) => {}
    }
}

async fn keep_time(core: &Core) {
    let mut armed_term = 0;
    let failures = SharedLogLimit::default();
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = core.renewals.wanted.notified() => {}
        }
        // The effects of earlier leaders on leases must be applied first.
        let Some(term) = core
            .leading_term()
            .filter(|term| core.has_applied_own(*term))
        else {
            continue;
        };
        // Once per term: records on their way into the log in this term stay known.
        if armed_term != term {
            if let Err(error) = core.replica.extend_leases(core.options.election_timeout) {
                if let Some(more) = failures.admit_now() {
                    tracing::error!(%error, "leases could not be read; none is ended{more}");
                }
                continue;
            }
            armed_term = term;
            core.renewals.kept_term.send_replace(term);
        }
        // None of them keeps the next from its turn.
        let mut is_done = clear(core, term).await;
        is_done &= end(core, term).await;
        is_done &= tell(core, term).await;
        core.counts.lease_rounds.fetch_add(1, Ordering::Relaxed);
        // A renewal that waits asks for the next round at once.
        if !is_done {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Clears the records of leases that were renewed since. Returns whether what was to be done is done, as the others do.
async fn clear(core: &Core, term: u64) -> bool {
    let leases = core.replica.leases_to_clear(AT_ONCE);
    if leases.is_empty() {
        return true;
    }
    let command = Command::LeaseRemaining { term, leases };
    let is_done = hand_in(core, term, &[command], "renewed").await;
    core.renewals.cleared.send_replace(());
    is_done
}

/// Ends leases whose time is over.
async fn end(core: &Core, term: u64) -> bool {
    let expired = core.replica.expired_leases();
    for some in expired.chunks(AT_ONCE) {
        let expire = |&(id, granted): &(LeaseId, u64)| Command::LeaseExpire {
            id: id.get(),
            term,
            granted: Some(granted),
        };
        let commands: Vec<_> = some.iter().map(expire).collect();
        if !hand_in(core, term, &commands, "ended").await {
            return false;
        }
        // Renewals of these leases wait for their end.
        core.renewals.cleared.send_replace(());
    }
    true
}

/// Replicates remaining times.
async fn tell(core: &Core, term: u64) -> bool {
    let interval = core.options.lease_checkpoint_interval;
    // A record takes a little space: while there is none, leases live longer.
    while !core.is_out_of_space() {
        let leases = core.replica.begin_checkpoint(interval, AT_ONCE);
        if leases.is_empty() {
            return true;
        }
        let told: Vec<LeaseLeft> = leases.clone();
        let command = Command::LeaseRemaining { term, leases };
        let (_, proposal) = core.waiters.propose(&[command], Vec::new());
        match core.hand_in_here(term, proposal).await {
            Handed::Applied => core.replica.end_checkpoint(&told),
            Handed::Nowhere(error) => {
                core.replica.end_checkpoint(&told);
                tracing::debug!(%error, "what leases have left was not told; it is tried again");
                return false;
            }
            // The next leader may find the record: in this term no renewal of these leases is final.
            Handed::Unknown(error) => {
                tracing::debug!(%error, "what leases have left may have been told");
                return false;
            }
        }
        core.renewals.cleared.send_replace(());
    }
    true
}

/// Proposes commands; returns whether they were applied.
async fn hand_in(core: &Core, term: u64, commands: &[Command], what: &str) -> bool {
    let (_, proposal) = core.waiters.propose(commands, Vec::new());
    match core.hand_in_here(term, proposal).await {
        Handed::Applied => true,
        Handed::Nowhere(error) | Handed::Unknown(error) => {
            tracing::debug!(%error, "leases were not {what}; it is tried again");
            false
        }
    }
}
