//! A fourth member that is added, catches up, votes, and is removed again in every round, under the faults of the others.
//!
//! It comes back at the same addresses in every round, each time with an empty directory. After its removal its process
//! must end by itself and report the reason: a process that continued would vote and acknowledge in the name of the next
//! member at its address.

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_client::{Client, Member, ReadLevel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::cluster::{GUEST, MEMBERS, Starter};
use crate::network::Network;

/// How long each of its steps may take once everything is healed.
const STEP_WITHIN: Duration = Duration::from_secs(30);
/// How long a removed member may go on once everything is healed.
const ENDED_WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);
/// What a removed member says.
const REASON: &str = "removed from the cluster";

/// The guest of one round.
pub(crate) struct Guest {
    pub(crate) starter: Starter,
    pub(crate) network: Arc<Network>,
    /// Where nothing is yet.
    pub(crate) data: PathBuf,
    /// How long its log is already, from the guests before.
    pub(crate) log_from: u64,
    pub(crate) random: fastrand::Rng,
    /// Whether everything is healed.
    pub(crate) healed: watch::Receiver<bool>,
}

/// A process that is killed with whoever has it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest {
    /// All of it. Gives what happened when, or what went wrong.
    pub(crate) async fn visit(mut self) -> Result<String, String> {
        let began = Instant::now();
        let mut told = Vec::new();
        let mut note = |what: &str| told.push(format!("{what} at {:.1?}", began.elapsed()));
        let client = self.starter.client(0, MEMBERS, Duration::from_secs(2));
        sleep(Duration::from_millis(self.random.u64(0..3000))).await;
        let url = self.starter.peer_url(GUEST);
        let added = self
            .until("it is added", || async {
                if let Some(member) = self.known(&client, &url).await? {
                    return Some(member.id);
                }
                client
                    .add_learner([url.clone()])
                    .await
                    .ok()
                    .map(|reply| reply.member.id)
            })
            .await?;
        note("added");
        let mut process = self.start();
        self.until("it votes", || async {
            let _ = client.promote_member(added).await;
            let member = self.known(&client, &url).await?;
            member.filter(|member| !member.is_learner).map(drop)
        })
        .await
        .map_err(|why| format!("{why}\n{}", self.end_of_log()))?;
        note("voting");
        let own = self.starter.client(GUEST, 1, Duration::from_secs(2));
        self.until("it answers", || async { own.get("health").await.ok() })
            .await
            .map_err(|why| format!("{why}\n{}", self.end_of_log()))?;
        sleep(Duration::from_millis(self.random.u64(0..3000))).await;
        if let Ok(Some(status)) = process.0.try_wait() {
            return Err(format!(
                "the guest ended by itself: {status}\n{}",
                self.end_of_log()
            ));
        }
        self.until("it is removed", || async {
            let _ = client.remove_member(added).await;
            match self.known(&client, &url).await? {
                Some(_) => None,
                None => Some(()),
            }
        })
        .await?;
        note("removed");
        self.ended(&mut process).await?;
        note("ended");
        self.network.set_pid(GUEST, None);
        Ok(told.join(", "))
    }

    fn start(&self) -> Running {
        let child = self.starter.start(GUEST, &self.data, true);
        self.network.set_pid(GUEST, Some(child.id()));
        Running(child)
    }

    fn end_of_log(&self) -> String {
        let text = std::fs::read(self.starter.log_path(GUEST)).unwrap_or_default();
        let from = usize::try_from(self.log_from).expect("a short log");
        let text = String::from_utf8_lossy(text.get(from..).unwrap_or_default());
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        let lines: Vec<_> = lines.into_iter().rev().collect();
        format!("--- the end of its log\n{}", lines.join("\n"))
    }

    /// The member at an address, if there is one; `None` outside if nobody says.
    async fn known(&self, client: &Client, url: &str) -> Option<Option<Member>> {
        let members = client.members(ReadLevel::Linearizable).await.ok()?.members;
        let mut found = members
            .into_iter()
            .filter(|one| one.peer_urls.iter().any(|at| at == url));
        let first = found.next();
        assert!(found.next().is_none(), "two members have the address {url}");
        Some(first)
    }

    /// Tries until it succeeds, or everything is healed for too long.
    async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, String> {
        let mut healed_at = None;
        loop {
            if let Some(value) = attempt().await {
                return Ok(value);
            }
            if *self.healed.borrow() {
                let since: &Instant = healed_at.get_or_insert_with(Instant::now);
                if since.elapsed() > STEP_WITHIN {
                    return Err(format!("the guest: not within {STEP_WITHIN:?} that {what}"));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Its process ends by itself, and says why.
    async fn ended(&mut self, process: &mut Running) -> Result<(), String> {
        let mut healed = self.healed.clone();
        let ended = async {
            let mut deadline = None;
            loop {
                if process.0.try_wait().ok().flatten().is_some() {
                    return true;
                }
                let now = Instant::now();
                if *healed.borrow() && now > *deadline.get_or_insert(now + ENDED_WITHIN) {
                    return false;
                }
                let _ = timeout(PAUSE, healed.changed()).await;
                sleep(PAUSE).await;
            }
        };
        let has_ended = ended.await;
        verdict(has_ended, &self.end_of_log())
    }
}

/// Whether a removed member did what it should: its process ended, and its log says why.
fn verdict(has_ended: bool, log: &str) -> Result<(), String> {
    let what = match (has_ended, log.contains(REASON)) {
        (true, true) => return Ok(()),
        (true, false) => "ended without saying that it was",
        (false, _) => "its process goes on after everything was healed",
    };
    Err(format!("the guest was removed, and {what}\n{log}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted: a process that goes on is refused whatever it says, and one that ends in silence, too.
    #[test]
    fn a_removed_member_that_goes_on_or_is_silent_is_refused() {
        let says = "ERROR this member stops reason=\"this member was removed from the cluster\"";
        assert_eq!(verdict(true, says), Ok(()));
        for (has_ended, log) in [(false, says), (false, ""), (true, "INFO stopped")] {
            assert!(verdict(has_ended, log).is_err(), "{has_ended} {log}");
        }
    }
}
