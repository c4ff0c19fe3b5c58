//! Load and faults for a few seconds, then everything is healed and what clients saw is judged. What
//! watchers and holders of leases saw is judged at the end of all rounds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline_client::KeyRange;
use bowline_testing::Seed;
use bowline_testing::linear::{Held, Operation, check};

use crate::cluster::{Cluster, MEMBERS};
use crate::leases::Holders;
use crate::load::{Change, PATIENCE, REGISTERS, Record, STRIDE, Shared, TOTAL, Worker, held};
use crate::nemesis::Step;
use crate::watches::Watchers;

const CLIENTS: usize = 6;
/// How long faults go on in a round.
const LOAD: Duration = Duration::from_millis(3000);
/// How long the checker may think about one history.
const BUDGET: Duration = Duration::from_secs(20);

#[test]
fn what_clients_see_is_linearizable_and_nothing_acknowledged_is_lost_untold_or_early() {
    let _alone = crate::alone();
    let seed = Seed::from_env_or(0xFA);
    let _guard = seed.print_on_failure("-p bowline-cli --test faults rounds");
    println!("{seed} -p bowline-cli --test faults rounds");
    crate::runtime().block_on(async {
        let mut cluster = Cluster::start().await;
        let mut random = seed.part(u64::MAX).rng();
        let watchers = Watchers::start(&cluster, &mut random).await;
        let holders = Holders::start(&cluster, &mut random);
        for round in 0..crate::rounds() {
            one_round(&mut cluster, round, seed.part(round)).await;
        }
        holders.judge(&cluster).await;
        let last = cluster.wait_healthy().await;
        watchers.judge(&cluster, last).await;
    });
}

async fn one_round(cluster: &mut Cluster, round: u64, seed: Seed) {
    let began = Instant::now();
    let mut random = seed.rng();
    let shared = Shared::new(round);
    let workers: Vec<_> = (0..CLIENTS)
        .map(|at| {
            // Half of them know all members, half only one.
            let count = if at % 2 == 0 { MEMBERS } else { 1 };
            let client = cluster.client(at % MEMBERS, count, PATIENCE);
            let seed = seed.part(at as u64 + 1).0;
            let worker = Worker::new(format!("c{at}"), client, shared.clone(), seed);
            tokio::spawn(worker.run())
        })
        .collect();
    let mut steps = Vec::new();
    while began.elapsed() < LOAD {
        let leader = cluster.leader(&[0, 1, 2]).await;
        let step = Step::random(&mut random, leader);
        tokio::time::sleep(step.pause).await;
        steps.push(format!("{} +{step}", shared.now()));
        step.carry_out(cluster).await;
    }
    cluster.heal();
    shared.is_over.store(true, Ordering::Relaxed);
    let mut record = Record::default();
    for worker in workers {
        record.merge(worker.await.expect("a client does not panic"));
    }
    let healed = Instant::now();
    let newest = cluster.wait_healthy().await;
    let healed = healed.elapsed();
    final_reads(cluster, &shared, &mut record).await;

    let checked = Instant::now();
    judge(round, &steps, &record);
    everything_is_there(cluster, &shared, &record).await;
    all_members_agree(cluster, newest).await;
    println!(
        "round {round}: {} answered, {} unknown, {} refused; healed in {healed:.1?}, judged in {:.1?}; {:.1?} in all; {}",
        record.answered(),
        record.unknown,
        record.refused,
        checked.elapsed(),
        began.elapsed(),
        steps.join(", "),
    );
    assert!(record.answered() > 0, "no client was answered");
}

/// Reads everything once more from every member, into the histories.
async fn final_reads(cluster: &Cluster, shared: &Arc<Shared>, record: &mut Record) {
    for member in 0..MEMBERS {
        let client = cluster.only(member);
        let note = format!("at the end, from m{member}");
        for at in 0..REGISTERS {
            let start = shared.now();
            let reply = client.get(shared.register(at)).await.expect("healed");
            let operation = Operation::read(0, held(&reply)).lasted(start, shared.now());
            record.registers[at].push(operation.noted(&note));
        }
        for at in 0..2 {
            let start = shared.now();
            let reply = client.get(shared.account(at)).await.expect("healed");
            let operation = Operation::read(at, held(&reply)).lasted(start, shared.now());
            record.accounts.push(operation.noted(&note));
        }
    }
}

fn judge(round: u64, steps: &[String], record: &Record) {
    for (at, history) in record.registers.iter().enumerate() {
        if let Err(failure) = check(history, BUDGET) {
            panic!("round {round}, register {at}: {failure}\nfaults: {steps:#?}");
        }
        leases_are_sane(at, history, &record.lease_reads);
    }
    if let Err(failure) = check(&record.accounts, BUDGET) {
        panic!("round {round}, accounts: {failure}\nfaults: {steps:#?}");
    }
    for operation in &record.accounts {
        let seen: HashMap<usize, Held> = operation.seen.iter().copied().collect();
        if let (Some(Some(a)), Some(Some(b))) = (seen.get(&0), seen.get(&1)) {
            assert_eq!(a / STRIDE + b / STRIDE, TOTAL, "money: {operation}");
        }
    }
    revisions_rise(record);
}

/// Across all keys: a change that began after another was acknowledged has a newer revision, no two
/// have the same, and a read is of a revision that is no older than what was acknowledged before.
fn revisions_rise(record: &Record) {
    let mut given = HashMap::new();
    for change in &record.changes {
        if let Some(other) = given.insert(change.revision, &change.note) {
            panic!(
                "revision {} twice: {other}, {}",
                change.revision, change.note
            );
        }
    }
    let mut ended: Vec<&Change> = record.changes.iter().chain(&record.reads).collect();
    ended.sort_by_key(|change| change.end);
    let mut began: Vec<(&Change, bool)> = (record.changes.iter().map(|change| (change, true)))
        .chain(record.reads.iter().map(|read| (read, false)))
        .collect();
    began.sort_by_key(|(change, _)| change.start);
    let mut ended = ended.into_iter().peekable();
    let mut newest: Option<&Change> = None;
    for (change, is_write) in began {
        while let Some(past) = ended.next_if(|past| past.end < change.start) {
            if newest.is_none_or(|newest| newest.revision < past.revision) {
                newest = Some(past);
            }
        }
        let Some(past) = newest else {
            continue;
        };
        let least = past.revision + u64::from(is_write);
        assert!(
            change.revision >= least,
            "{} from {} to {} is of revision {}, but {} was over at {} with revision {}",
            change.note,
            change.start,
            change.end,
            change.revision,
            past.note,
            past.end,
            past.revision,
        );
    }
}

/// Lease reads are not judged as linearizable here; but what they show was written, and not later.
fn leases_are_sane(register: usize, history: &[Operation], reads: &[(usize, Operation)]) {
    let mut writes = HashMap::new();
    for operation in history.iter().filter(|operation| operation.held) {
        for &(_, value) in &operation.writes {
            writes.insert(value, operation.start);
        }
    }
    for (at, read) in reads {
        let seen = read.seen[0].1;
        if *at != register || seen.is_none() {
            continue;
        }
        let start = writes.get(&seen);
        assert!(
            start.is_some_and(|&start| read.end.is_some_and(|end| start <= end)),
            "register {register}: a lease read of what was not written: {read}"
        );
    }
}

async fn everything_is_there(cluster: &Cluster, shared: &Arc<Shared>, record: &Record) {
    for member in 0..MEMBERS {
        let range = KeyRange::prefix(shared.ledger());
        let reply = cluster.only(member).range(range).await.expect("healed");
        let found: HashSet<(&[u8], &[u8], u64)> = (reply.entries.iter())
            .map(|entry| (&entry.key[..], &entry.value[..], entry.mod_revision))
            .collect();
        for written in &record.ledger {
            let value = written.value.to_string();
            let line = (written.key.as_bytes(), value.as_bytes(), written.revision);
            assert!(
                found.contains(&line),
                "m{member} has not {} = {value} at revision {}, which was acknowledged",
                written.key,
                written.revision
            );
        }
    }
}

async fn all_members_agree(cluster: &Cluster, revision: u64) {
    let mut hashes = Vec::new();
    for member in 0..MEMBERS {
        let client = cluster.only(member);
        // After this the member has everything up to the revision.
        let reply = client.get("health").await.expect("healed");
        assert!(reply.header.revision >= revision);
        let hash = client.hash_kv(revision).await.expect("healed");
        hashes.push((hash.hash, hash.compact_revision));
    }
    assert!(
        hashes.iter().all(|hash| *hash == hashes[0]),
        "the members differ at revision {revision}: {hashes:?}"
    );
}
