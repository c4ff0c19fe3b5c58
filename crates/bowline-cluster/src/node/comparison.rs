//! The comparison of the members' data: a divergence raises the alarm CORRUPT by itself.
//!
//! At intervals the leader takes a revision that it has applied and requests from every voter the hashes of its keys,
//! blocks and edges at that revision. Equal histories have equal hashes, whatever the tables look like. If a
//! majority of the voters agrees, the alarm is raised for each voter that differs; if voters differ and no majority
//! agrees, for each of them, as it is unknown which is right. As in etcd, commands of clients are refused while the
//! alarm is raised; a named member also refuses reads. `bowline member repair` replaces its data by the leader's.
//!
//! A member that is down, behind or damaged has no hashes, and is not judged. etcd compares by
//! `--corrupt-check-time`; its hashes have keys only, and the alarm there names no member reliably.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline::Revision;
use bowline_replica::{AlarmKind, Command};
use tokio::time::Instant;

use super::core::Core;
use super::damage::Hashes;
use super::leader_request::{LeaderRequest, LeaderResponse};
use crate::error::{Error, Result};
use crate::types::NodeId;

/// How long the members may take for their hashes.
const HASHES_WITHIN: Duration = Duration::from_secs(600);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(200);
/// The timeout of an attempt to raise an alarm.
const ALARM_TIMEOUT: Duration = Duration::from_secs(2);

impl Core {
    /// The hashes at a revision; `None` until they are computed, which the first call begins.
    pub(crate) fn hashes_at(&self, revision: Revision) -> Result<Option<Hashes>> {
        let mut state = self.hashing.0.lock();
        match *state {
            Some((known, hashes)) if known == revision => return Ok(hashes),
            // One at a time.
            Some((_, None)) => return Ok(None),
            _ => {}
        }
        if self.replica.db().revision() < revision {
            return Ok(None);
        }
        let snapshot = self.replica.db().snapshot_at(revision)?;
        *state = Some((revision, None));
        let (shared, damage) = (self.hashing.0.clone(), self.damage.clone());
        drop(crate::blocking::spawn(move || {
            let hashes = snapshot.tree_hashes();
            let mut state = shared.lock();
            if *state != Some((revision, None)) {
                // The data was replaced meanwhile.
                return;
            }
            match hashes {
                Ok(found) => {
                    // Members of earlier versions, which know of four, have no indexes.
                    let blocks = found.blocks ^ found.indexes;
                    let hashes = [found.keys, blocks, found.edges_out, found.edges_in];
                    *state = Some((revision, Some(hashes)));
                }
                Err(error) => {
                    *state = None;
                    let error = Error::from(error);
                    tracing::error!(%error, "the hashes of this member cannot be computed");
                    if error.is_damage() {
                        damage.note(error.to_string());
                    }
                }
            }
        }));
        Ok(None)
    }

    /// Forgets the hashes of data that was replaced.
    pub(crate) fn forget_hashes(&self) {
        *self.hashing.0.lock() = None;
    }

    /// The hashes of a member at a revision; `None` if it has none in time.
    async fn hashes_of(&self, id: NodeId, revision: Revision, until: Instant) -> Option<Hashes> {
        while Instant::now() < until && self.is_leading() {
            let hashes = match id == self.member_id {
                true => self.hashes_at(revision).ok()?,
                false => {
                    let question = LeaderRequest::HashesAt(revision).into_proto();
                    let answer = self.peer(id)?.ask(question).await.ok()?;
                    match LeaderResponse::from_proto(answer)? {
                        LeaderResponse::Hashes(hashes) => hashes,
                        _ => return None,
                    }
                }
            };
            if hashes.is_some() {
                return hashes;
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// As the leader: compares all voters at the newest revision. Gives those that differ.
    pub(crate) async fn compare_voters(&self) -> Vec<NodeId> {
        let revision = self.replica.db().revision();
        let voters: Vec<NodeId> = self.membership().voter_ids().collect();
        let until = Instant::now() + HASHES_WITHIN;
        let asked = voters.iter().map(|id| self.hashes_of(*id, revision, until));
        let found = futures_util::future::join_all(asked).await;
        let known: Vec<(NodeId, Hashes)> = { voters.iter().zip(found) }
            .filter_map(|(id, hashes)| Some((*id, hashes?)))
            .collect();
        let differing = differing(&known, voters.len());
        tracing::debug!(%revision, compared = known.len(), ?differing, "members are compared");
        for id in &differing {
            tracing::error!(
                member = %format_args!("{id:x}"),
                %revision,
                ?known,
                "the data of a member differs from that of the majority: the alarm CORRUPT is raised; \
                 see `bowline member repair`"
            );
            self.raise_corrupt(*id).await;
        }
        self.counts.comparisons.fetch_add(1, Ordering::Relaxed);
        differing
    }

    async fn raise_corrupt(&self, member: NodeId) {
        let kind = AlarmKind::Corrupt;
        while !self.replica.alarms().contains(&(member, kind)) && self.is_leading() {
            let command = Command::Alarm {
                member,
                kind,
                is_raised: true,
            };
            let (number, proposal) = self.waiters.propose(&[command], Vec::new());
            let deadline = Instant::now() + ALARM_TIMEOUT;
            self.hand_in_once(number, proposal, deadline).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The members whose hashes are not those of a majority of `voters`; all of them if they differ and no majority
/// agrees.
fn differing(known: &[(NodeId, Hashes)], voters: usize) -> Vec<NodeId> {
    let mut counts: BTreeMap<Hashes, usize> = BTreeMap::new();
    for (_, hashes) in known {
        *counts.entry(*hashes).or_default() += 1;
    }
    if counts.len() <= 1 {
        return Vec::new();
    }
    let agreed = counts.iter().find(|(_, count)| **count > voters / 2);
    let agreed = agreed.map(|(hashes, _)| *hashes);
    let differs = |(_, hashes): &&(NodeId, Hashes)| Some(*hashes) != agreed;
    known.iter().filter(differs).map(|(id, _)| *id).collect()
}

/// Runs until the node is closed.
pub(crate) async fn run(core: &Core) {
    let interval = core.options.corrupt_check_interval;
    if interval.is_zero() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(interval).await;
        if core.is_leading() && !core.repairs.is_wanted() {
            core.compare_voters().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_decides_who_differs() {
        let [a, b, c] = [[1; 4], [2; 4], [3; 4]];
        assert_eq!(differing(&[(1, a), (2, a), (3, a)], 3), []);
        assert_eq!(differing(&[(1, a), (2, b), (3, a)], 3), [2]);
        assert_eq!(differing(&[(1, b), (2, a), (3, a)], 3), [1]);
        // It is unknown which is right.
        assert_eq!(differing(&[(1, a), (2, b), (3, c)], 3), [1, 2, 3]);
        assert_eq!(differing(&[(1, a), (2, b)], 3), [1, 2]);
        // Half of four is no majority.
        assert_eq!(
            differing(&[(1, a), (2, a), (3, b), (4, b)], 4),
            [1, 2, 3, 4]
        );
        // One voter alone, and one that is down.
        assert_eq!(differing(&[(1, a)], 1), []);
        assert_eq!(differing(&[(1, a), (3, a)], 3), []);
    }
}
