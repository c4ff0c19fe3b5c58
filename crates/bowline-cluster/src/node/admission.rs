//! Admission of an empty or restored directory: founding a cluster, joining one, or the proof that it may vote.
//!
//! A directory gets its incarnation with its file `MEMBER`, before anything else happens. Until the
//! membership names that incarnation, the member is inert: Raft runs without a membership, and no peer
//! message is addressed to it (see `peer::peers`). It serves its peer port all the same, so that others can
//! ask for its state.
//!
//! *Founding.* Each founder asks all others. The one with the lowest id begins the cluster once every other
//! founder has confirmed that its directory is blank (no vote, no log, no state). It puts their incarnations
//! into the first membership, which the others receive by replication.
//!
//! *Joining.* The directory claims the member id that was added for it from the leader. The claim is a change
//! of the membership, which then names the incarnation; repeating it changes nothing. It asks until the cluster has agreed to
//! the claim: a leader that has lost its log since may have sent it something meanwhile.
//!
//! *Restored.* The member asks all other founders, as for a founding, and votes once every one of them has replied that
//! it is at its beginning (see `restored`).
//!
//! Invariants:
//! - All founders must confirm that they are blank: one that does not answer may hold acknowledged entries.
//!   So a founder whose directory was emptied never founds a second time while any other holds anything: it
//!   waits, or learns that its id belongs to another incarnation, and stops;
//! - a member id is claimed once. An incarnation that lost its directory does not come back: its member is
//!   removed, and added again under another id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::core::Core;
use super::leader_request::{LeaderRequest, LeaderResponse};
use crate::error::{Error, Result};
use crate::peer::{ClusterMember, ClusterMembers, PeerClient};
use crate::types::{Member, Membership, NodeId};

/// The advice for a directory that is not the member's.
pub(super) const LOST: &str = "it is not the one that the cluster knows this member by, but an empty one or an \
                               older copy: remove this member from the cluster, and add it again with an \
                               empty directory";
const REMOVED: &str = "this member was removed from the cluster";

/// The pause between two rounds of requests: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How often to log what is awaited.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What an answer depends on: the asking directory's identity.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) cluster_id: u64,
    pub(super) member_id: NodeId,
    pub(super) incarnation: u64,
    pub(super) is_founder: bool,
}

impl Place {
    /// Why a blank directory cannot be this member, according to another member's answer. Between question and answer
    /// this member may have been admitted, and have started: `still_waits` is asked after the answer.
    pub(super) fn refusal(
        &self,
        answer: &ClusterMembers,
        still_waits: impl FnOnce() -> bool,
    ) -> Option<&'static str> {
        // A member without a membership is waiting, too.
        if answer.cluster_id != self.cluster_id || answer.members.is_empty() {
            return None;
        }
        match answer
            .members
            .iter()
            .find(|member| member.id == self.member_id)
        {
            // The directory is blank, but the cluster has seen it started: it is an older copy.
            Some(own) if own.incarnation == self.incarnation => {
                (has_started(own) && still_waits()).then_some(LOST)
            }
            // Not claimed yet, or claimed before there were incarnations.
            Some(own) if own.incarnation == 0 && own.is_learner && !has_started(own) => None,
            Some(_) => Some(LOST),
            // Every membership has the founders, until one is removed. A joining member may be missing in an
            // older one.
            None => self.is_founder.then_some(REMOVED),
        }
    }
}

/// Whether a member has published its client URLs, as it does after each start.
pub(super) fn has_started(member: &ClusterMember) -> bool {
    !member.client_urls.is_empty()
}

/// Admits a blank or restored directory; returns when it is a member, or has stopped.
pub(super) async fn run(core: Arc<Core>) {
    let mut closing = core.closing.subscribe();
    let admitted = async {
        match core.founders.clone() {
            Some(founders) if core.is_blank() => core.found(&founders).await,
            Some(founders) => core.prove(&founders).await,
            None => core.claim_place().await,
        }
    };
    tokio::select! {
        biased;
        result = admitted => match result {
            Ok(()) => {}
            Err(Error::Stopped { reason }) => core.fail(&reason),
            Err(error) => core.fail(&error.to_string()),
        },
        _ = closing.wait_for(|closed| *closed) => {}
    }
}

/// Pauses between rounds, and logs now and then what is awaited.
struct Backoff {
    pause: Duration,
    said: Instant,
}

impl Backoff {
    fn new() -> Backoff {
        Backoff {
            pause: PAUSE.0,
            // Members that start together need a moment.
            said: Instant::now(),
        }
    }

    async fn wait(&mut self, reason: impl FnOnce() -> String) {
        if self.said.elapsed() >= SAY_EVERY {
            tracing::warn!(
                reason = reason(),
                "this member waits to be admitted to its cluster"
            );
            self.said = Instant::now();
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
    }
}

impl Core {
    fn place(&self) -> Place {
        Place {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            incarnation: self.incarnation,
            is_founder: self.founders.is_some(),
        }
    }

    fn refuse(&self, reason: &str) -> Error {
        match reason {
            REMOVED => Error::stopped(REMOVED),
            reason => Error::Directory {
                path: self.options.data_dir.clone(),
                reason: reason.to_owned(),
            },
        }
    }

    /// Founds the cluster with the other founders, or waits until another one has.
    async fn found(&self, founders: &Membership) -> Result<()> {
        let others = self.others(founders);
        let is_first = others.iter().all(|(id, _)| *id > self.member_id);
        let mut backoff = Backoff::new();
        while self.is_blank() {
            let (mut blank, missing) = self.ask_founders(&others, Core::is_blank).await?;
            if is_first && blank.len() == others.len() {
                blank.insert(self.member_id, self.incarnation);
                return self.begin(founders, &blank).await;
            }
            let reason = || match missing.is_empty() {
                true => "the founder with the lowest id has yet to begin".to_owned(),
                false => format!(
                    "every founder is needed for a beginning: {}",
                    missing.join("; ")
                ),
            };
            self.counts.admission_rounds.fetch_add(1, Ordering::Relaxed);
            backoff.wait(reason).await;
        }
        Ok(())
    }

    /// Waits until every other founder of a restored cluster has replied that it is at its beginning, or until this
    /// member hears from a leader.
    async fn prove(&self, founders: &Membership) -> Result<()> {
        let others = self.others(founders);
        let mut backoff = Backoff::new();
        while self.is_unproven() {
            let (at_beginning, missing) = self.ask_founders(&others, Core::is_unproven).await?;
            if at_beginning.len() == others.len() {
                return self.note_proof().await;
            }
            self.counts.admission_rounds.fetch_add(1, Ordering::Relaxed);
            backoff
                .wait(|| {
                    format!(
                        "a restored member votes when every other one has been started: {}",
                        missing.join("; ")
                    )
                })
                .await;
        }
        Ok(())
    }

    /// The other founders.
    fn others(&self, founders: &Membership) -> Vec<(NodeId, PeerClient)> {
        let others = founders.nodes().filter(|(id, _)| **id != self.member_id);
        others
            .map(|(id, member)| (*id, self.peers.client(*id, member)))
            .collect()
    }

    /// Asks other founders: the incarnations of those that are at their beginning, and what is wrong with the rest.
    async fn ask_founders(
        &self,
        others: &[(NodeId, PeerClient)],
        still_waits: fn(&Core) -> bool,
    ) -> Result<(BTreeMap<NodeId, u64>, Vec<String>)> {
        let asked = others
            .iter()
            .map(|(id, client)| async move { (*id, client.members().await) });
        let mut blank = BTreeMap::new();
        let mut missing = Vec::new();
        for (id, answer) in join_all(asked).await {
            match answer {
                Ok(answer) => {
                    if let Some(reason) = self.place().refusal(&answer, || still_waits(self)) {
                        return Err(self.refuse(reason));
                    }
                    let is_it = (answer.cluster_id, answer.member_id) == (self.cluster_id, id);
                    if is_it && answer.is_blank {
                        blank.insert(id, answer.incarnation);
                    } else if is_it {
                        missing.push(format!("{id:x} is past its founding"));
                    } else {
                        missing.push(format!(
                            "at the peer URL of {id:x} answers a member of another cluster"
                        ));
                    }
                }
                Err(status) => missing.push(format!("{id:x}: {}", status.message())),
            }
        }
        Ok((blank, missing))
    }

    /// Commits the first membership.
    async fn begin(
        &self,
        founders: &Membership,
        incarnations: &BTreeMap<NodeId, u64>,
    ) -> Result<()> {
        let with_incarnation = |(id, member): (&NodeId, &Member)| {
            let incarnation = incarnations.get(id).copied().unwrap_or_default();
            let member = Member {
                incarnation,
                ..member.clone()
            };
            (*id, member)
        };
        let members: BTreeMap<NodeId, Member> = founders.nodes().map(with_incarnation).collect();
        self.raft.found(members).await
    }

    /// Whether the membership that the cluster has agreed on names this directory, as far as this member has applied it.
    pub(super) fn is_admitted(&self) -> bool {
        let view = self.raft.view();
        let own = view.agreed_membership().get_node(&self.member_id);
        own.is_some_and(|own| own.incarnation == self.incarnation)
    }

    /// Claims the member id that was added for this directory.
    async fn claim_place(&self) -> Result<()> {
        // A directory from before there were incarnations is already a member.
        if self.incarnation == 0 {
            return Ok(());
        }
        let own_urls = &self.options.advertise_peer_urls;
        let others = self.options.initial_cluster.iter();
        let others: Vec<&String> = others
            .map(|(_, url)| url)
            .filter(|url| !own_urls.contains(url))
            .collect();
        let mut backoff = Backoff::new();
        while !self.is_admitted() && !others.is_empty() {
            let mut missing = Vec::new();
            for url in &others {
                match self.claim_through(url).await {
                    Ok(()) => return Ok(()),
                    Err(Error::PlaceTaken { .. }) => return Err(self.refuse(LOST)),
                    Err(Error::MemberNotFound { .. }) => return Err(self.refuse(REMOVED)),
                    Err(error) => missing.push(format!("{url}: {error}")),
                }
            }
            self.counts.admission_rounds.fetch_add(1, Ordering::Relaxed);
            backoff.wait(|| missing.join("; ")).await;
        }
        Ok(())
    }

    /// Asks the member at `url` for the leader, and claims this member's id from the leader.
    async fn claim_through(&self, url: &str) -> Result<()> {
        let failed = |reason: &str| Error::Peer {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self.peers.client_at(url).agreed_members().await;
        let answer = answer.map_err(|status| failed(status.message()))?;
        if answer.cluster_id != self.cluster_id {
            return Err(failed("it is a member of another cluster"));
        }
        let id = self.member_id;
        let find = |id: NodeId| answer.members.iter().find(|member| member.id == id);
        let own = find(id).ok_or(Error::MemberNotFound { id })?;
        if own.incarnation == self.incarnation {
            return Ok(());
        }
        if own.incarnation != 0 {
            return Err(Error::PlaceTaken { id });
        }
        let leader = answer.leader_id.and_then(find).ok_or(Error::NoLeader)?;
        let member = Member {
            peer_urls: leader.peer_urls.clone(),
            incarnation: leader.incarnation,
            ..Member::default()
        };
        let question = LeaderRequest::MemberClaim {
            id,
            incarnation: self.incarnation,
        };
        let asked = self.peers.client(leader.id, &member);
        let answer = asked.ask(question.into_proto()).await;
        let answer = answer.map_err(|status| failed(status.message()))?;
        match LeaderResponse::from_proto(answer) {
            Some(LeaderResponse::Done) => Ok(()),
            Some(LeaderResponse::Refused(error)) => Err(error),
            _ => Err(failed("it answers something else")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(own: Option<(u64, bool, bool)>) -> ClusterMembers {
        let member = |id, incarnation, is_learner, has_started: bool| ClusterMember {
            id,
            name: String::new(),
            peer_urls: Vec::new(),
            client_urls: vec!["http://a:2379".to_owned(); usize::from(has_started)],
            is_learner,
            incarnation,
        };
        let own = own.map(|(incarnation, is_learner, has_started)| {
            member(5, incarnation, is_learner, has_started)
        });
        ClusterMembers {
            cluster_id: 1,
            database_id: 1,
            leader_id: None,
            members: [member(7, 70, false, true)]
                .into_iter()
                .chain(own)
                .collect(),
            member_id: 7,
            incarnation: 70,
            is_blank: false,
            is_unfit_to_lead: false,
        }
    }

    /// Under load an answer came after the member had been admitted and had published its client URLs: a founder stopped
    /// for good, 50 ms after its first start.
    #[test]
    fn an_answer_that_comes_after_the_admission_refuses_nothing() {
        let place = Place {
            cluster_id: 1,
            member_id: 5,
            incarnation: 50,
            is_founder: true,
        };
        let started = answer(Some((50, false, true)));
        assert_eq!(place.refusal(&started, || true), Some(LOST));
        assert_eq!(place.refusal(&started, || false), None);
        // What another directory does is not this one's admission.
        let other = answer(Some((51, false, true)));
        assert_eq!(place.refusal(&other, || false), Some(LOST));
    }

    #[test]
    fn a_blank_directory_gets_only_a_place_that_is_its_own_or_free() {
        let place = Place {
            cluster_id: 1,
            member_id: 5,
            incarnation: 50,
            is_founder: true,
        };
        // Its own id without any progress; an unclaimed one.
        for own in [(50, false, false), (50, true, false), (0, true, false)] {
            assert_eq!(place.refusal(&answer(Some(own)), || true), None, "{own:?}");
        }
        // Its own id, after progress; another's; one from before there were incarnations.
        for own in [
            (50, false, true),
            (51, false, false),
            (51, true, true),
            (0, false, false),
            (0, true, true),
        ] {
            assert_eq!(
                place.refusal(&answer(Some(own)), || true),
                Some(LOST),
                "{own:?}"
            );
        }
        assert_eq!(place.refusal(&answer(None), || true), Some(REMOVED));
        let joining = Place {
            is_founder: false,
            ..place
        };
        assert_eq!(
            joining.refusal(&answer(None), || true),
            None,
            "it may know an old membership"
        );
        let elsewhere = Place {
            cluster_id: 2,
            ..place
        };
        assert_eq!(
            elsewhere.refusal(&answer(Some((51, false, true))), || true),
            None
        );
    }
}
