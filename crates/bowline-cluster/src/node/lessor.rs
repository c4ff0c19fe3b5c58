//! The lessor: on the leader, it ends leases and records for the others how long each has left.
//!
//! Every member knows every lease; the leader alone keeps their time. Three kinds of entries carry
//! it on, each of many leases at once:
//!
//! ```text
//! end     the time is over: the lease and its keys go
//! tell    it has an interval less left than the next leader would believe: that is recorded
//! clear   it was renewed, and something is recorded: the record goes, then the holder is answered
//! ```
//!
//! A new leader gives each lease what is recorded of it, or else its whole time to live, and an
//! election timeout on top, from when it has applied what the leaders before it left behind.
//!
//! Invariants:
//!
//! - Never early: by the monotonic clock of whoever leads, a lease lives for its time to live after
//!   it was granted, and after each renewal that was answered began. What is recorded is never less than
//!   what is left; a renewal is answered only when nothing is recorded, or on its way into the log. The
//!   leader before may tell nothing any more, as each entry names its term; nor of a lease that was
//!   granted anew, as it names the entry that granted it.
//! - Late by a bound. Under one leader a lease ends a tick and an entry after its time. A change of
//!   leader adds at most: the checkpoint interval (for a lease that lives no longer than that: its time
//!   to live), a tick and an entry; the time in which nobody led; and an election timeout.
//! - A renewal costs nothing of the log unless something is recorded, and one clearing for each
//!   recording. A lease that is renewed more often than the interval is never recorded.
//!
//! The interval is a minute, where etcd has five: a lease that nobody renews costs a few bytes of one
//! entry a minute, shared by up to a thousand, and one that is renewed less than once a minute one
//! command for each renewal. Those with many holders, of a few seconds, cost nothing.
//!
//! One task does all of it, one entry after the other: a clearing is never before what it clears. A new
//! leader answers nothing about leases before this task has begun its term: what the table says until then
//! is from when this member followed, or led before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_replica::{Command, LeaseLeft};

use super::core::Core;
use super::proposer::Handed;
use crate::log_limit::SharedLogLimit;

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How many leases one entry ends, or tells of.
const AT_ONCE: usize = 1000;

/// Until the node is closed, whatever is under way then.
pub(crate) async fn run(core: Arc<Core>) {
    let mut closing = core.closing.subscribe();
    tokio::select! {
        () = keep_time(&core) => {}
        _ = closing.wait_for(|closed| *closed) => {}
    }
}

async fn keep_time(core: &Core) {
    let mut armed_term = 0;
    let failures = SharedLogLimit::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = core.renewals.wanted.notified() => {}
        }
        // Not before it has applied what the leaders before did to leases.
        let Some(term) = core
            .leading_term()
            .filter(|term| core.has_applied_own(*term))
        else {
            continue;
        };
        // Once for each term: what is on its way into the log in this one stays known.
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
        clear(core, term).await;
        end(core, term).await;
        tell(core, term).await;
        core.counts.lease_rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes back what is recorded of leases that were renewed since.
async fn clear(core: &Core, term: u64) {
    let leases = core.replica.leases_to_clear(AT_ONCE);
    if !leases.is_empty() {
        let command = Command::LeaseRemaining { term, leases };
        hand_in(core, term, &[command], "renewed").await;
        core.renewals.cleared.send_replace(());
    }
}

/// Ends leases whose time is over.
async fn end(core: &Core, term: u64) {
    let expired = core.replica.expired_leases();
    for some in expired.chunks(AT_ONCE) {
        let expire = |&(id, granted): &(i64, u64)| Command::LeaseExpire {
            id,
            term,
            granted: Some(granted),
        };
        let commands: Vec<_> = some.iter().map(expire).collect();
        if !hand_in(core, term, &commands, "ended").await {
            return;
        }
        // Who renewed one of them waits for it to be gone.
        core.renewals.cleared.send_replace(());
    }
}

/// Tells the others what leases have left.
async fn tell(core: &Core, term: u64) {
    let interval = core.options.lease_checkpoint_interval;
    // A record takes space, if little: until there is some, leases live longer.
    while !core.is_out_of_space() {
        let leases = core.replica.begin_checkpoint(interval, AT_ONCE);
        if leases.is_empty() {
            return;
        }
        let told: Vec<LeaseLeft> = leases.clone();
        let command = Command::LeaseRemaining { term, leases };
        let (_, proposal) = core.waiters.propose(&[command], Vec::new());
        match core.hand_in_here(term, proposal).await {
            Handed::Applied => core.replica.end_checkpoint(&told),
            Handed::Nowhere(error) => {
                core.replica.end_checkpoint(&told);
                tracing::debug!(%error, "what leases have left was not told; it is tried again");
                return;
            }
            // Whoever leads next may find it: in this term no renewal of these leases is final.
            Handed::Unknown(error) => {
                tracing::debug!(%error, "what leases have left may have been told");
                return;
            }
        }
        core.renewals.cleared.send_replace(());
    }
}

/// Hands commands in; tells whether they were carried out.
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
