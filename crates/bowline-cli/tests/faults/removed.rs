//! A leader that is cut off is removed by the others; when it is connected again, it must stop.
//!
//! Bug 247: the other members accept nothing from a member that was removed, so nothing informed it: it continued as the
//! leader of an old term, and never stopped. Found by the simulation.

use std::time::{Duration, Instant};

use bowline_client::{Error, ReadLevel};
use tokio::time::sleep;

use crate::cluster::{Cluster, MEMBERS};
use crate::links::Link;
use crate::nemesis::{Fault, State, Who};
use crate::network::Wiring;
use crate::stale_reads::known_leader;

const STOPS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_leader_that_was_removed_while_it_was_cut_off_stops() {
    let _alone = crate::alone();
    crate::runtime().block_on(async {
        let mut cluster = Cluster::start(Wiring::Switched).await;
        let all: Vec<usize> = (0..MEMBERS).collect();
        let leader = known_leader(&cluster, &all, None).await;
        let mut cut = State::default();
        cut.add(Fault::Isolate(Who::Member(leader), Link::Cut), leader);
        cluster.apply(&cut);
        let others: Vec<usize> = all.into_iter().filter(|at| *at != leader).collect();
        let next = known_leader(&cluster, &others, Some(leader)).await;
        let client = cluster.only(next);
        let members = client.members(ReadLevel::Eventual).await.unwrap().members;
        let name = format!("m{leader}");
        let id = members.iter().find(|known| known.name == name).unwrap().id;
        let deadline = Instant::now() + STOPS_WITHIN;
        loop {
            match client.remove_member(id).await {
                Ok(_) | Err(Error::MemberNotFound) => break,
                // The leader is new, or the outcome is unknown.
                Err(error) => assert!(Instant::now() < deadline, "it is not removed: {error}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
        // So long that its connections to the others have ended.
        sleep(Duration::from_secs(4)).await;
        cluster.heal();
        let deadline = Instant::now() + STOPS_WITHIN;
        while !cluster
            .end_of_log(leader)
            .contains("was removed from the cluster")
        {
            assert!(
                Instant::now() < deadline,
                "it goes on:\n{}",
                cluster.end_of_log(leader)
            );
            sleep(Duration::from_millis(50)).await;
        }
    });
}
