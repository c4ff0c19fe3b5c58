//! Reads at a leader that was suspended (SIGSTOP) while another one was elected and wrote: none may return an old value.
//!
//! Some requests wait in its sockets when it resumes: it reads them before it hears of its successor. Each was sent after
//! the new value was acknowledged.
//!
//! Other clients write while it is suspended, so replies of followers to its requests wait in its sockets, too. Once they
//! renewed its lease as if they had been sent when it resumed (docs/bugs.md).

use std::time::{Duration, Instant};

use bowline_client::{Client, Operation, OperationReply, ReadLevel};
use bowline_testing::Seed;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::{ALL, Cluster, MEMBERS};
use crate::load::held;
use crate::network::Wiring;

const KEY: &str = "stale";
const CONNECTIONS: usize = 6;
const WRITERS: usize = 4;
const ELECTED_WITHIN: Duration = Duration::from_secs(20);

#[test]
fn a_woken_leader_does_not_answer_from_memory() {
    let _alone = crate::alone();
    let seed = Seed::from_env_or(0x57);
    let _guard = seed.print_on_failure("-p bowline-cli --test faults stale_reads");
    println!("{seed} -p bowline-cli --test faults stale_reads");
    let mut random = seed.rng();
    // What the last round does is new in each run.
    let fresh = Seed::fresh("-p bowline-cli --test faults stale_reads");
    let rounds = crate::rounds(6);
    crate::runtime().block_on(async {
        let mut cluster = Cluster::start(Wiring::Switched).await;
        let mut answered = 0;
        for round in 0..rounds {
            if let (true, Some(fresh)) = (round + 1 == rounds, fresh) {
                random = fresh.rng();
            }
            answered += one_round(&mut cluster, round, &mut random).await;
        }
        println!("{answered} reads were answered");
        assert!(answered > 0, "no read was answered: nothing was tested");
    });
}

/// How a question is asked.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Lease,
    Txn,
}

async fn ask(client: &Client, kind: Kind) -> bowline_client::Result<Option<u64>> {
    match kind {
        Kind::Get => client.get(KEY).await.map(|reply| held(&reply)),
        Kind::Lease => {
            let get = client.get(KEY).level(ReadLevel::Lease);
            get.await.map(|reply| held(&reply))
        }
        Kind::Txn => {
            let reply = client.txn().then([Operation::get(KEY)]).await?;
            match reply.replies.first() {
                Some(OperationReply::Get(reply)) => Ok(held(reply)),
                other => panic!("the answer to a read in a transaction: {other:?}"),
            }
        }
    }
}

async fn put(client: &Client, value: u64) {
    let deadline = Instant::now() + ELECTED_WITHIN;
    while let Err(error) = client.put(KEY, value.to_string()).await {
        // This writer is the only one: doing it twice is the same.
        assert!(Instant::now() < deadline, "cannot write: {error}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The leader, once there is one that is not `not`.
pub(crate) async fn known_leader(cluster: &Cluster, among: &[usize], not: Option<usize>) -> usize {
    let deadline = Instant::now() + ELECTED_WITHIN;
    loop {
        match cluster.leader(among).await {
            Some(leader) if Some(leader) != not => return leader,
            _ => assert!(Instant::now() < deadline, "no leader was elected"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Gives how many reads were answered.
async fn one_round(cluster: &mut Cluster, round: u64, random: &mut fastrand::Rng) -> usize {
    let old = known_leader(cluster, &ALL, None).await;
    let others: Vec<_> = (0..MEMBERS).filter(|&at| at != old).collect();
    let (before, after) = (2 * round + 1, 2 * round + 2);
    let writer = cluster.client(others[0], 1, Duration::from_secs(2));
    put(&writer, before).await;
    // Connections that were open before.
    let kinds = [Kind::Get, Kind::Lease, Kind::Txn];
    let mut clients = Vec::new();
    for at in 0..CONNECTIONS {
        let client = cluster.client(old, 1, Duration::from_secs(3));
        let value = ask(&client, kinds[at % kinds.len()]).await;
        assert_eq!(value.expect("it answers"), Some(before));
        clients.push(client);
    }
    let mut busy = JoinSet::new();
    for at in 0..WRITERS {
        let client = cluster.client(old, 1, Duration::from_millis(500));
        busy.spawn(async move {
            loop {
                // Those that the stop meets are not answered.
                if client.put(format!("busy-{at}"), "x").await.is_err() {
                    sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    sleep(Duration::from_millis(random.u64(20..40))).await;
    cluster.stop(old);
    let new = known_leader(cluster, &others, Some(old)).await;
    let writer = cluster.client(new, 1, Duration::from_secs(2));
    put(&writer, after).await;
    sleep(Duration::from_millis(random.u64(0..300))).await;

    let mut reads = JoinSet::new();
    let mut read = |client: &Client, kind, when: &'static str| {
        let client = client.clone();
        reads.spawn(async move { (when, kind, ask(&client, kind).await) });
    };
    for client in &clients {
        for kind in kinds {
            read(client, kind, "while it slept");
        }
    }
    // They are in its sockets.
    sleep(Duration::from_millis(random.u64(5..60))).await;
    // In every second round nobody is there to tell it of its successor.
    let is_alone = round % 2 == 1;
    if is_alone {
        others.iter().for_each(|&at| cluster.stop(at));
    }
    cluster.wake(old);
    let woken = Instant::now();
    while woken.elapsed() < Duration::from_millis(150) {
        for client in &clients {
            read(
                client,
                kinds[random.usize(0..kinds.len())],
                "once it was awake",
            );
        }
        sleep(Duration::from_millis(2)).await;
    }
    if is_alone {
        others.iter().for_each(|&at| cluster.wake(at));
    }
    let (mut answered, mut failed) = (0, 0);
    while let Some(outcome) = reads.join_next().await {
        match outcome.expect("a read does not panic") {
            (_, _, Err(_)) => failed += 1,
            (when, kind, Ok(value)) => {
                answered += 1;
                assert_eq!(
                    value,
                    Some(after),
                    "round {round}: m{old} led, slept, and m{new} took over; asked {when} ({kind:?})"
                );
            }
        }
    }
    busy.shutdown().await;
    println!("round {round}: m{old} slept, m{new} took over; {answered} answered, {failed} failed");
    cluster.heal();
    cluster.wait_healthy().await;
    answered
}
