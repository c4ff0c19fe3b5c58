//! Appends in the name of the member that leads, with its present vote, which it has not sent.
//!
//! Who has the vote of the leader and sends sound entries behind the end of the log *is* the leader, as far as a member can
//! know. Everything else is refused, or changes nothing: entries in the place of others that are committed, entries that
//! nobody can apply, and terms and indices that no leader has.

use bowline_proto::peer as proto;
use bowline_testing::Seed;

use super::hostile::{grpc, proposal, sender};
use super::*;
use crate::record;
use crate::types::{Entry, LeaderId, LogId, Payload, Proposal, Vote};

/// What a forger knows: the leader's vote, and the log.
struct Known {
    vote: Vote,
    entries: Vec<Entry>,
    other: u64,
}

impl Known {
    async fn of(target: &LocalClient, other: u64) -> Known {
        Known {
            vote: target.core().raft.view().vote(),
            entries: target.core().log.entries().await.unwrap(),
            other,
        }
    }

    fn last(&self) -> LogId {
        self.entries.last().expect("there are entries").log_id
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        let found = |entry: &&Entry| entry.log_id.index == index;
        self.entries.iter().find(found)
    }

    /// A member's leadership in a term about the present one.
    fn leader(&self, random: &mut fastrand::Rng) -> LeaderId {
        let term = self.vote.leader_id.term;
        LeaderId {
            term: random.u64(term.saturating_sub(2)..term + 3),
            node_id: match random.bool() {
                true => self.vote.leader_id.node_id,
                false => self.other,
            },
        }
    }

    /// The place of an entry: a real one, or one that never was. None is of this leader behind the end.
    fn place(&self, random: &mut fastrand::Rng) -> LogId {
        let last = self.last();
        let real = self.entries[random.usize(..self.entries.len())].log_id;
        match random.u8(..4) {
            0 => real,
            1 => LogId::new(self.leader(random), real.index),
            2 => LogId::new(self.leader(random), random.u64(..last.index + 1)),
            _ => {
                let leader = self.leader(random);
                let is_now = leader == self.vote.leader_id;
                let beyond = if is_now { 0 } else { random.u64(..20) };
                LogId::new(leader, last.index + beyond)
            }
        }
    }

    /// What stands there, something else that could, or something that nobody can apply. Behind the end it is that.
    fn payload(&self, index: u64, random: &mut fastrand::Rng) -> Payload {
        let put = || proposal(self.other, &[put("forged", "1")]);
        match (self.at(index), random.u8(..4)) {
            (Some(entry), 0) => entry.payload.clone(),
            (Some(_), 1) => Payload::Normal(Proposal(put().into())),
            (Some(_), 2) => Payload::Blank,
            _ => {
                let mut bytes = put();
                bytes.truncate(random.usize(..bytes.len()));
                Payload::Normal(Proposal(bytes.into()))
            }
        }
    }

    fn append(&self, random: &mut fastrand::Rng) -> proto::AppendRequest {
        let of = |id: LogId| proto::LogId {
            term: id.leader_id.term,
            node: id.leader_id.node_id,
            index: id.index,
        };
        let previous = random.u8(..6).gt(&0).then(|| self.place(random));
        let first = previous.map_or(0, |id| id.index + 1);
        let count = random.u64(..4);
        let mut entry = |index: u64| {
            let real = self.at(index).filter(|_| random.u8(..3) > 0);
            let leader = real.map(|entry| entry.log_id.leader_id);
            let leader = leader.unwrap_or_else(|| self.leader(random));
            let entry = Entry {
                log_id: LogId::new(leader, index),
                payload: self.payload(index, random),
            };
            let mut head = Vec::new();
            record::encode_head(&entry, None, &mut head);
            proto::Entry {
                head: head.into(),
                payload: record::payload(&entry),
            }
        };
        let entries = (first..first + count).map(&mut entry).collect();
        let mut maybe = || random.bool().then(|| self.place(random));
        let (committed, acknowledged) = (maybe(), maybe());
        let is_owed = |id: &LogId| *id > self.last();
        proto::AppendRequest {
            sender: None,
            sequence: 0,
            vote: Some(proto::Ballot {
                term: self.vote.leader_id.term,
                node: self.vote.leader_id.node_id,
                committed: true,
            }),
            previous: previous.map(of),
            committed: committed.map(of),
            entries,
            // More than there is would be owed: it may have been lost.
            acknowledged: acknowledged.filter(|id| !is_owed(id)).map(of),
            acknowledgements: Vec::new(),
        }
    }
}

/// Among random appends in the leader's name, two made openraft forget what was committed: one with an entry of a later term
/// at an earlier index before it, and one that said that such an entry is committed. Then entries that had been applied were
/// cut off, and others were taken in their place: after the next start the member had other data than the others, without a
/// word. With debug assertions it stopped.
#[tokio::test(flavor = "multi_thread")]
async fn forged_appends_in_the_leaders_name_stop_nobody() {
    let test = "-p bowline-cluster forged_appends_in_the_leaders_name_stop_nobody";
    for seed in Seed::fixed_and_fresh(0xF046, test) {
        let _guard = seed.print_on_failure(test);
        forge(seed.rng()).await;
    }
}

/// Waits until all members have applied the same last entry, which is committed then, as far as each of them knows.
async fn at_rest(three: &Three) {
    let lasts = || {
        let last = |number: usize| {
            let client = three.client(number);
            let core = client.core();
            let (last, applied) = (core.log.last_log_id(), core.raft.view().last_applied());
            (last == applied).then_some(last)
        };
        [0, 1, 2].map(last)
    };
    // What each member says of itself after a start or a change of leader.
    let mut since = (lasts(), tokio::time::Instant::now());
    while since.1.elapsed() < Duration::from_millis(300) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = lasts();
        let is_same = now[0].is_some() && now.iter().all(|one| *one == now[0]);
        if !is_same || now != since.0 {
            since = (now, tokio::time::Instant::now());
        }
    }
}

async fn forge(mut random: fastrand::Rng) {
    const ROUNDS: usize = 8;
    const STREAMS: usize = 60;
    let mut three = Three::start(|config| {
        config.heartbeat_interval = Duration::from_millis(100);
        config.election_timeout = Duration::from_secs(2);
    })
    .await;
    let (mut taken, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        // Entries of several terms.
        if round % 3 == 1 {
            let next = three.client((three.leader().await + 1) % 3);
            three.move_leader(next.status().member_id).await;
        }
        let client = three.client(three.leader().await);
        for number in 0..3 {
            surely(&client, &put("good", &format!("{round}.{number}"))).await;
        }
        three.assert_equal().await;
        at_rest(&three).await;
        let leader = three.leader().await;
        let number = (leader + 1 + random.usize(..2)) % 3;
        let (client, target) = (three.client(leader), three.client(number));
        let other = three.client(3 - leader - number).core().member_id;
        let known = Known::of(&target, other).await;
        if known.vote.leader_id.node_id != client.core().member_id {
            // The leader has changed in this moment.
            continue;
        }
        let mut grpc = grpc(three.nodes[number].as_ref().unwrap()).await;
        for _ in 0..STREAMS {
            let mut requests = Vec::new();
            for sequence in 1..random.u64(2..5) {
                requests.push(proto::AppendRequest {
                    sender: Some(sender(&client, &target)),
                    sequence,
                    ..known.append(&mut random)
                });
            }
            let shown = format!("{requests:?}");
            let stream = futures_util::stream::iter(requests);
            let replies = async {
                let mut replies = grpc.append(stream).await?.into_inner();
                while let Some(reply) = replies.message().await? {
                    taken += usize::from(reply.result.is_some());
                }
                Ok::<_, tonic::Status>(())
            };
            let ended = tokio::time::timeout(PATIENCE, replies).await;
            refused += usize::from(ended.expect("it is answered").is_err());
            assert_eq!(target.core().stop_reason(), None, "{shown}");
            let now = target.core().log.entries().await.unwrap();
            assert!(
                now.starts_with(&known.entries),
                "the log is another: {shown}"
            );
        }
        drop((client, target));
        let client = three.client(three.leader().await);
        surely(&client, &put("still", &round.to_string())).await;
        three.assert_equal().await;
    }
    println!("{taken} requests changed nothing, {refused} streams were refused");
    assert!(
        taken > 20 && refused > 20,
        "{taken} taken, {refused} refused"
    );
    for number in 0..3 {
        three.stop(number).await;
    }
    for number in 0..3 {
        three.nodes[number] = Some(start(&three.configs[number]).await);
    }
    let client = three.client(three.leader().await);
    surely(&client, &put("at last", "1")).await;
    assert!(client.db().get("forged").unwrap().is_none());
    drop(client);
    three.assert_equal().await;
    three.shutdown().await;
}
