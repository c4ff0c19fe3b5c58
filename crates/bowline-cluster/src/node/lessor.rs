//! Ends leases, leading.
//!
//! Every member knows every lease; the leader alone keeps their time. A new leader cannot know when
//! a lease was kept alive last, so it begins every lease anew, and an election timeout later at
//! that: a lease may live longer after a change of leader, by that much at most beyond its time to
//! live counted from the change, and never shorter. An ended lease is a command in the log that
//! names the leader's term; in another term it does nothing.

use std::sync::Arc;
use std::time::Duration;

use bowline::replica::Command;

use super::core::Core;
use super::proposer::Handed;

/// How often leases are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How many leases one entry ends.
const AT_ONCE: usize = 1000;

/// Until the node is closed, whatever is under way then.
pub(crate) async fn run(core: Arc<Core>) {
    let mut closing = core.closing.subscribe();
    tokio::select! {
        () = end_leases(&core) => {}
        _ = closing.wait_for(|closed| *closed) => {}
    }
}

async fn end_leases(core: &Core) {
    let mut armed_term = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let term = core.leadership().term;
        // Not before it has applied what the leaders before did to leases.
        let leads = core.is_leading() && core.progress.borrow().term == term;
        if !leads {
            armed_term = 0;
            continue;
        }
        if armed_term != term {
            if let Err(error) = core.replica.extend_leases(core.options.election_timeout) {
                tracing::error!(%error, "leases could not be read; none is ended");
                continue;
            }
            armed_term = term;
        }
        let expired = core.replica.expired_leases();
        for ids in expired.chunks(AT_ONCE) {
            // One that was revoked and granted again while the others were ended lives.
            let db = core.replica.db();
            let is_over = |id: &&i64| db.lease(**id).is_some_and(|l| l.remaining.is_zero());
            let over = ids.iter().filter(is_over);
            let commands = over.map(|id| Command::LeaseExpire { id: *id, term });
            let commands: Vec<_> = commands.collect();
            if commands.is_empty() {
                continue;
            }
            let (_, proposal) = core.waiters.propose(&commands, Vec::new());
            match core.hand_in_here(proposal).await {
                Handed::Applied => {}
                Handed::Nowhere(error) | Handed::Unknown(error) => {
                    tracing::debug!(%error, "leases were not ended; it is tried again");
                }
            }
        }
    }
}
