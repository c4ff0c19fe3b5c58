//! A round: load and faults for a while, then everything is healed and the results are checked: the order of operations,
//! reads by their revision, acknowledged writes, equality of the members, the resources that members use and their logs.
//! Watchers and holders of leases are checked at the end of all rounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline::Revision;
use bowline_client::KeyRange;
use bowline_client::graph::{Block, Direction, Edge};
use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use bowline_testing::Seed;
use bowline_testing::linear::Operation;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::{ALL, Cluster, GUEST, KEPT_ENTRIES, MEMBERS, SNAPSHOT_ENTRIES};
use crate::guest::Guest;
use crate::judges;
use crate::leases::Holders;
use crate::load::{BLOCKS, REGISTERS, Record, Shared, TIMEOUT, Worker, held};
use crate::nemesis::{Fault, Plan, State, Who};
use crate::network::Wiring;
use crate::operator::{AFTER_LOAD, Watch};
use crate::states::{self, Shown};
use crate::watches::Watchers;

const CLIENTS: usize = 6;
/// How long faults begin in a round.
const LOAD: Duration = Duration::from_secs(20);
/// How long it may take until members have applied the same, beside leases that are renewed.
const HASHED_WITHIN: Duration = Duration::from_secs(20);
/// How long members are looked at in each round while nobody asks anything.
const WINDOW: Duration = Duration::from_millis(1500);
/// How long two members may take to elect a leader.
const ELECTED_WITHIN: Duration = Duration::from_secs(20);
/// The most that a member may log in a minute in which so much is done to it.
const LOG_BYTES_PER_MINUTE: f64 = 300_000.0;

/// What all rounds leave to be judged at the end.
#[derive(Default)]
struct AllRounds {
    shown: Vec<Shown>,
    /// Revisions of acknowledged changes of keys.
    acknowledged: BTreeSet<u64>,
    /// What went wrong and leaves the rest worth judging.
    wrong: Vec<String>,
    /// In how many rounds no disk failed, or none was full, although the machine allows it.
    without_failed_disk: usize,
    without_full_disk: usize,
}

#[test]
fn what_clients_see_is_linearizable_and_nothing_acknowledged_is_lost_untold_or_early() {
    let _alone = crate::alone();
    let command = "-p bowline-cli --test faults what_clients_see_is_linearizable";
    run(Seed::from_env_or(0xFA), command, crate::rounds(2));
}

/// The same with a seed that nobody has tried. `BOWLINE_SEED` repeats it, here as above.
#[test]
fn what_clients_see_is_right_with_a_fresh_seed() {
    let _alone = crate::alone();
    let command = "-p bowline-cli --test faults what_clients_see_is_right_with_a_fresh_seed";
    if let Some(seed) = Seed::named_or_fresh(command) {
        run(seed, command, crate::rounds(1));
    }
}

fn run(seed: Seed, command: &'static str, rounds: u64) {
    let _guard = seed.print_on_failure(command);
    crate::runtime().block_on(async {
        let mut cluster = Cluster::start(Wiring::chosen(seed)).await;
        let mut random = seed.part(u64::MAX).rng();
        age(&cluster).await;
        let watchers = Watchers::start(&cluster, &mut random).await;
        let holders = Holders::start(&cluster, &mut random);
        let mut all = AllRounds::default();
        for round in 0..rounds {
            one_round(&mut cluster, round, seed.part(round), &mut all).await;
            if let Some(exchanged) = cluster.exchange_program(round).await {
                println!("after round {round}: {exchanged}");
            }
        }
        let changes = lag_behind_the_log(&mut cluster).await;
        all.acknowledged.extend(changes);
        holders.judge(&cluster).await;
        let last = cluster.wait_healthy().await;
        let (history, wrong) = watchers.judge(&cluster, last, &all.acknowledged).await;
        all.wrong.extend(wrong);
        let checked = history.map_or(Ok(()), |history| states::check(&history, &all.shown));
        if let Err(why) = checked {
            all.wrong.push(format!("a read showed a state that never was: {why}"));
        }
        let snapshots = cluster.snapshots_installed();
        println!(
            "{} reads were judged by their revisions; {snapshots} snapshots were installed; {} members ended as their disk failed",
            all.shown.len(),
            cluster.ended
        );
        if all.without_failed_disk > 0 || all.without_full_disk > 0 {
            all.wrong.push(format!(
                "in {} rounds no disk failed, and in {} none was full: nothing of them was tested",
                all.without_failed_disk, all.without_full_disk
            ));
        }
        all.wrong.extend(cluster.damage_reported());
        if snapshots == 0 {
            all.wrong.push("no snapshot was installed: nothing of them was tested".to_owned());
        }
        assert!(all.wrong.is_empty(), "{}", all.wrong.join("\n"));
    });
}

/// Makes the log so long that its beginning is trimmed: a member without it needs a snapshot. How many puts share an
/// entry depends on the disk, so entries are counted, not puts.
async fn age(cluster: &Cluster) {
    const WRITERS: usize = 4;
    const WRITES: usize = 50;
    // Two snapshots and the entries that are kept behind one, with as much again.
    const ENTRIES: u64 = 2 * (2 * SNAPSHOT_ENTRIES + KEPT_ENTRIES);
    loop {
        let writers = (0..WRITERS).map(|at| {
            let client = cluster.only(at % MEMBERS);
            async move {
                for number in 0..WRITES {
                    let put = client.put(format!("age/{at}"), number.to_string());
                    put.await.expect("all is well");
                }
                let deleted = client.delete(format!("age/{at}"));
                deleted.await.expect("all is well");
            }
        });
        join_all(writers).await;
        let status = cluster.only(0).status().await.expect("all is well");
        if status.raft_index >= ENTRIES {
            return;
        }
    }
}

/// A member is down while so much is written that the others trim their logs beyond its end: it needs a snapshot. In the
/// rounds that is left to chance, as a member that is killed finds its whole log again. Gives the revisions of what was
/// written.
async fn lag_behind_the_log(cluster: &mut Cluster) -> Vec<u64> {
    const DOWN: usize = 0;
    const WRITES: u64 = 2 * (2 * SNAPSHOT_ENTRIES + KEPT_ENTRIES);
    let mut state = State::default();
    state.add(Fault::Kill(Who::Member(DOWN)), DOWN);
    cluster.apply(&state);
    let client = cluster.client(1, 1, Duration::from_secs(2));
    let deadline = Instant::now() + ELECTED_WITHIN;
    while let Err(error) = client.get("health").await {
        assert!(Instant::now() < deadline, "all members but one: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    let mut revisions = Vec::new();
    // One after the other, so that each is an entry of its own.
    for number in 0..WRITES {
        let put = client.put("behind", number.to_string()).await;
        revisions.extend(put.map(|reply| reply.header.revision.get()));
    }
    cluster.heal();
    cluster.wait_healthy().await;
    revisions
}

async fn one_round(cluster: &mut Cluster, round: u64, seed: Seed, all: &mut AllRounds) {
    let began = Instant::now();
    let mut random = seed.rng();
    let shared = Shared::new(round);
    let logs = ALL.map(|at| cluster.log_bytes(at));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|at| {
            // Half of them know all members, half only one.
            let count = if at % 2 == 0 { MEMBERS } else { 1 };
            let client = cluster.client(at % MEMBERS, count, TIMEOUT);
            let seed = seed.part(at as u64 + 1).0;
            let worker = Worker::new(format!("c{at}"), client, shared.clone(), seed);
            tokio::spawn(worker.run())
        })
        .collect();
    let (heal, healed) = watch::channel(false);
    let guest = Guest {
        starter: cluster.starter(),
        network: cluster.network.clone(),
        data: cluster.path(&format!("guest{round}")),
        log_from: cluster.log_bytes(GUEST),
        random: random.fork(),
        healed,
    };
    let guest = tokio::spawn(guest.visit());
    let plan = Plan::random(&mut random, LOAD, cluster.network.has_netem());
    let done = plan.carry_out(cluster).await;
    all.without_failed_disk += usize::from(done.disks_failed == Some(0));
    all.without_full_disk += usize::from(done.disks_filled == Some(0));
    let slowed = match done.slowed {
        Some(count) => format!("{count} slow paths"),
        None => "no slow path is possible".to_owned(),
    };
    let steps = done.told;
    shared.is_over.store(true, Ordering::Relaxed);
    let mut record = Record::default();
    for worker in workers {
        record.merge(worker.await.expect("a client does not panic"));
    }
    let healing = Instant::now();
    cluster.wait_healthy().await;
    heal.send_replace(true);
    let visit = guest.await.expect("the guest's task does not panic");
    let newest = cluster.wait_healthy().await;
    let healing = healing.elapsed();
    final_reads(cluster, &shared, &mut record).await;

    let checked = Instant::now();
    if let Err(why) = judges::check(&record) {
        panic!("round {round}: {why}\nfaults: {steps:#?}");
    }
    everything_is_there(cluster, &shared, &record).await;
    all_members_agree(cluster, &shared, newest).await;
    let checked = checked.elapsed();
    let on_disks = cluster.disk_faults_met();
    let mut unwell = logged(cluster, logs, began.elapsed());
    unwell.extend(quiet_window(cluster, &mut random).await);
    println!(
        "round {round}: {} answered ({} lease reads), {} eventual reads, {} changes of the graph, {} unknown, {} refused; healed in {healing:.1?}, judged in {checked:.1?}; {:.1?} in all; guest: {visit:?}; faults of disks met: {on_disks:?}; {slowed}; {}",
        record.answered(),
        record.lease_reads,
        record.eventual_reads,
        record.graph_writes,
        record.unknown,
        record.refused,
        began.elapsed(),
        steps.join(", "),
    );
    if let Err(why) = visit {
        unwell.push(why);
    }
    if !unwell.is_empty() {
        all.wrong.push(format!(
            "round {round}: what an operator sees is not well:\n{}\nfaults: {steps:#?}",
            unwell.join("\n")
        ));
    }
    assert!(record.answered() > 0, "no client was answered");
    all.acknowledged
        .extend(record.changes.iter().map(|change| change.revision));
    all.shown.append(&mut record.shown);
}

/// What members wrote into their logs in a round, beyond what they may.
fn logged(cluster: &Cluster, before: [u64; MEMBERS], lasted: Duration) -> Vec<String> {
    let minutes = lasted.as_secs_f64() / 60.0;
    let each = (0..MEMBERS).filter_map(|at| {
        let bytes = cluster.log_bytes(at) - before[at];
        let per_minute = bytes as f64 / minutes;
        println!("m{at} logged {bytes} bytes in {lasted:.1?}");
        (per_minute > LOG_BYTES_PER_MINUTE).then(|| {
            format!("m{at} in a round of {lasted:.1?}: log: {per_minute:.0} bytes a minute, at most {LOG_BYTES_PER_MINUTE}")
        })
    });
    each.collect()
}

/// Nobody asks anything for a while, in which a member is hurt, or none. What do the members use?
async fn quiet_window(cluster: &mut Cluster, random: &mut fastrand::Rng) -> Vec<String> {
    let met = random.usize(0..MEMBERS);
    let who = Who::Member(met);
    let faults = [
        None,
        Some(Fault::Kill(who)),
        Some(Fault::Stop(who)),
        Some(Fault::Mute(who)),
        Some(Fault::Slow(who, 60)),
    ];
    let fault = random.choice(faults).flatten();
    let fault = fault.filter(|&fault| cluster.network.can(fault));
    crate::set_quiet(true);
    let mut state = State::default();
    if let Some(fault) = fault {
        state.add(fault, met);
        cluster.apply(&state);
    }
    // The others have a leader again.
    let client = cluster.client((met + 1) % MEMBERS, 1, Duration::from_secs(2));
    let deadline = Instant::now() + ELECTED_WITHIN;
    while let Err(error) = client.get("health").await {
        assert!(
            Instant::now() < deadline,
            "beside {fault:?} of m{met}: {error}"
        );
        sleep(Duration::from_millis(50)).await;
    }
    let watch = Watch::begin(cluster, &state);
    sleep(WINDOW).await;
    let unwell = watch.judge(&format!("beside {fault:?} after a round"), &AFTER_LOAD);
    crate::set_quiet(false);
    cluster.heal();
    cluster.wait_healthy().await;
    unwell.iter().map(ToString::to_string).collect()
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

async fn everything_is_there(cluster: &Cluster, shared: &Arc<Shared>, record: &Record) {
    for member in 0..MEMBERS {
        let range = KeyRange::prefix(shared.ledger());
        let reply = cluster.only(member).range(range).await.expect("healed");
        let entries = reply.entries.iter();
        let found =
            entries.map(|entry| (&entry.key[..], &entry.value[..], entry.mod_revision.get()));
        if let Some(written) = judges::missing(&found.collect(), &record.ledger) {
            panic!(
                "m{member} has not {} = {} at revision {}, which was acknowledged",
                written.key, written.value, written.revision
            );
        }
    }
}

/// What a member holds at a revision.
#[derive(PartialEq, Debug)]
struct Contents {
    /// Of all keys, with their metadata; and up to where history was trimmed.
    keys: (u32, u64),
    blocks: Vec<Block>,
    edges: Vec<Edge>,
    /// For each block of the round, the edges that end there, which are a tree of their own.
    ends: Vec<Vec<String>>,
}

async fn contents(cluster: &Cluster, shared: &Shared, member: usize, revision: u64) -> Contents {
    let client = cluster.only(member);
    // After this the member has everything up to the revision.
    let reply = client.get("health").await.expect("healed");
    assert!(reply.header.revision >= revision);
    let hash = client
        .hash_kv(Some(Revision::new(revision)))
        .await
        .expect("healed");
    let graph = client.graph();
    let (mut blocks, mut edges, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut list = graph
        .list_blocks()
        .revision(Revision::new(revision))
        .await
        .expect("healed");
    while let Some(part) = list.next().await.expect("healed") {
        blocks.extend(part);
    }
    let mut list = graph
        .list_edges()
        .revision(Revision::new(revision))
        .await
        .expect("healed");
    while let Some(part) = list.next().await.expect("healed") {
        edges.extend(part);
    }
    for at in 0..BLOCKS {
        let asked = graph.neighbors(shared.block(at)).direction(Direction::In);
        let reply = asked.revision(Revision::new(revision)).await;
        ends.push(match reply {
            Ok(reply) => reply
                .neighbors
                .iter()
                .map(|one| format!("{one:?}"))
                .collect(),
            Err(error) => vec![error.to_string()],
        });
    }
    Contents {
        keys: (hash.hash, hash.compact_revision.map_or(0, Revision::get)),
        blocks,
        edges,
        ends,
    }
}

/// All trees of all members hold the same: what they show at a revision, and the checksums of everything (`Hash`)
/// where they have applied the same.
async fn all_members_agree(cluster: &Cluster, shared: &Shared, revision: u64) {
    let first = contents(cluster, shared, 0, revision).await;
    for member in 1..MEMBERS {
        let other = contents(cluster, shared, member, revision).await;
        assert!(
            first == other,
            "m0 and m{member} differ at revision {revision}:\n{first:?}\n{other:?}"
        );
    }
    let deadline = Instant::now() + HASHED_WITHIN;
    loop {
        let hashes = join_all((0..MEMBERS).map(|at| hash(cluster, at))).await;
        if let [Some((index, hash)), rest @ ..] = &hashes[..]
            && rest
                .iter()
                .all(|other| other.is_some_and(|(at, _)| at == *index))
        {
            let same = rest
                .iter()
                .all(|other| other.is_some_and(|(_, other)| other == *hash));
            assert!(
                same,
                "members that have applied the same hold different things: {hashes:?}"
            );
            return;
        }
        // Leases are renewed meanwhile.
        assert!(
            Instant::now() < deadline,
            "members never had applied the same: {hashes:?}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

/// What a member has applied, and the checksum of that; `None` if more was applied meanwhile.
async fn hash(cluster: &Cluster, at: usize) -> Option<(u64, u32)> {
    let client = cluster.only(at);
    let before = client.status().await.expect("healed").raft_applied_index;
    let mut service = MaintenanceClient::new(client.channel());
    let reply = service.hash(pb::HashRequest {}).await.expect("healed");
    let after = client.status().await.expect("healed").raft_applied_index;
    (before == after).then(|| (after, reply.into_inner().hash))
}
