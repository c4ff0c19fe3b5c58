//! The lessor: on the leader, it ends leases and replicates their remaining times.
//!
//! Every member has the table of leases; only the leader keeps their time. Three kinds of entries replicate
//! it, each for many leases at once:
//!
//! ```text
//! end     the time is over: the lease and its keys are deleted; of one with too many keys for a command, as many as one
//!         may delete, and the rest in later rounds
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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline::LeaseId;
use bowline_replica::{Command, LeaseLeft};
use tokio::time::Instant;

use super::core::Core;
use super::proposer::Handed;
use crate::in_place::in_place;
use crate::log_limit::SharedLogLimit;

/// The interval of checks.
const TICK: Duration = Duration::from_millis(50);
/// The most leases in one entry.
const AT_ONCE: usize = 1000;
/// The pause after the end of a lease was refused: it got more keys than a command may delete just before.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

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
    let mut ended = Ended::new();
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
            ended.clear();
            core.renewals.kept_term.send_replace(term);
        }
        // None of them keeps the next from its turn.
        let mut is_done = clear(core, term).await;
        is_done &= end(core, term, &mut ended).await;
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

/// The leases whose end was applied, by id and grant, with the moment. One that is still there was refused.
type Ended = HashMap<(LeaseId, u64), Instant>;

/// Those of the expired leases whose end is to be proposed now.
fn due(expired: Vec<(LeaseId, u64)>, ended: &mut Ended, now: Instant) -> Vec<(LeaseId, u64)> {
    if ended.is_empty() {
        return expired;
    }
    let left: HashSet<_> = expired.iter().copied().collect();
    ended.retain(|lease, _| left.contains(lease));
    let is_due = |lease: &(LeaseId, u64)| {
        let Some(applied) = ended.get(lease) else {
            return true;
        };
        let is_due = now.duration_since(*applied) >= REFUSED_PAUSE;
        if is_due {
            tracing::error!(
                lease_id = lease.0.get(),
                "a lease whose time is over was not ended, as its keys were too many for one command; it is tried again"
            );
        }
        is_due
    };
    expired.into_iter().filter(is_due).collect()
}

/// Ends leases whose time is over.
async fn end(core: &Core, term: u64, ended: &mut Ended) -> bool {
    let expired = due(core.replica.expired_leases(), ended, Instant::now());
    if expired.is_empty() {
        return true;
    }
    // An error is that of the whole database: the command that meets it stops this member.
    let has_too_many = |lease: &(LeaseId, u64)| {
        let known = core.replica.has_too_many_keys(lease.0, usize::MAX);
        known.is_ok_and(|known| known == Some(true))
    };
    let (large, expired): (Vec<_>, Vec<_>) = in_place(core.options.reads_block_in_place, || {
        expired.into_iter().partition(has_too_many)
    });
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
        let now = Instant::now();
        ended.extend(some.iter().map(|lease| (*lease, now)));
        // Renewals of these leases wait for their end.
        core.renewals.cleared.send_replace(());
    }
    // One part of each in a round: nothing else waits for all of them.
    for (id, granted) in large {
        let command = Command::LeaseDeleteKeys {
            id: id.get(),
            expired: Some((term, granted)),
        };
        if !hand_in(core, term, &[command], "ended").await {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease with more keys than one command may delete was to be ended in every round, for ever: each was an entry
    /// of the log, over which every member read all of its keys. Found by review. Such a lease is ended in parts now; one
    /// that gets so many keys between the leader's look and its end is still refused.
    #[test]
    fn a_lease_that_cannot_be_ended_is_tried_again_after_a_pause() {
        let lease = |id: i64| (LeaseId::new(id).unwrap(), 7);
        let (start, mut ended) = (Instant::now(), Ended::new());
        let both = vec![lease(1), lease(2)];
        assert_eq!(due(both.clone(), &mut ended, start), both);
        ended.extend(both.iter().map(|lease| (*lease, start)));
        let soon = start + TICK;
        assert_eq!(due(vec![lease(2), lease(3)], &mut ended, soon), [lease(3)]);
        assert_eq!(ended.len(), 1, "the first has ended");
        let granted_anew = (LeaseId::new(2).unwrap(), 9);
        assert_eq!(
            due(vec![granted_anew], &mut ended.clone(), soon),
            [granted_anew]
        );
        let later = start + REFUSED_PAUSE;
        assert_eq!(due(vec![lease(2)], &mut ended, later), [lease(2)]);
    }
}
