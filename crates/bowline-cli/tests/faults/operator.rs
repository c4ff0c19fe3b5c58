//! The resources that three idle members use: CPU, log output, connections; all healthy, and with one member that is dead,
//! stopped, cut off, mute, deaf or slow.
//!
//! After a follower was killed, the leader once used a whole core and wrote megabytes of log a second until it was back, in
//! three of four runs, while every reply was right. Replies are checked by other tests.
//!
//! And what libraries log while a leader resumes after its replacement: nothing above INFO.

use std::time::{Duration, Instant};

use bowline_testing::Seed;
use bowline_testing::vitals::{Bounds, Process, Sample, Unwell};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::{ALL, Cluster, MEMBERS};
use crate::links::Link;
use crate::nemesis::{Fault, State, Who};
use crate::network::Wiring;
use crate::stale_reads::known_leader;

/// How long members are looked at in one situation.
const WINDOW: Duration = Duration::from_millis(1500);
/// How long a cluster may take to come to terms with a fault: an election, and what was under way.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// How long a leader is suspended after its replacement.
const PAUSE: Duration = Duration::from_secs(3);

/// The most that a member may use while nobody asks anything of it, with heartbeats every 50 ms, unoptimised: some
/// twice what it does use.
pub(crate) const IDLE: Bounds = Bounds {
    cores: 0.15,
    log_bytes_per_minute: 2_000,
    resident_bytes: 128 << 20,
    threads: 32,
    open_files: 64,
    disk_bytes: 32 << 20,
};

/// The same beside a member that does not answer: attempts to reach it, and lines that say so now and then.
pub(crate) const BESIDE_A_FAULT: Bounds = Bounds {
    cores: 0.20,
    log_bytes_per_minute: 30_000,
    ..IDLE
};

/// The same after rounds of load, with the connections of all clients, their data, and history.
pub(crate) const AFTER_LOAD: Bounds = Bounds {
    cores: 0.25,
    resident_bytes: 192 << 20,
    open_files: 128,
    disk_bytes: 96 << 20,
    ..BESIDE_A_FAULT
};

/// Members that are looked at for a while.
pub(crate) struct Watch(Vec<(Process, Sample)>);

impl Watch {
    /// From now on, those members that run and are not stopped.
    pub(crate) fn begin(cluster: &Cluster, state: &State) -> Watch {
        let up = (0..MEMBERS).filter(|&at| !state.dead[at] && !state.stopped[at]);
        let processes = up.filter_map(|at| cluster.process(at));
        let all = processes.map(|process| {
            let sample = process.sample().expect("it runs");
            (process, sample)
        });
        Watch(all.collect())
    }

    pub(crate) fn judge(&self, when: &str, bounds: &Bounds) -> Vec<Unwell> {
        let judged = self.0.iter().map(|(process, from)| {
            let judged = process.judge(when, from, bounds);
            if let Ok(usage) = &judged {
                println!("{} {when}: {usage}", process.name);
            }
            judged
        });
        judged.filter_map(Result::err).collect()
    }
}

/// Something is done to a member, which is not asked anything.
struct Situation {
    name: String,
    wiring: Wiring,
    fault: Option<Fault>,
    met: usize,
}

/// Every situation, with its fault at the leader (`true`) or at a follower.
fn situations(leader: usize) -> Vec<Situation> {
    let mut all = vec![Situation {
        name: "while all is well".to_owned(),
        wiring: Wiring::Direct,
        fault: None,
        met: leader,
    }];
    let mut add = |name: &str, wiring, fault: fn(Who) -> Fault, met: usize| {
        let role = if met == leader { "leader" } else { "follower" };
        all.push(Situation {
            name: format!("beside a {name} {role}, m{met}"),
            wiring,
            fault: Some(fault(Who::Member(met))),
            met,
        });
    };
    let followers = [(leader + 1) % MEMBERS, (leader + 2) % MEMBERS];
    // Twice: it did not go wrong every time.
    for met in [followers[0], followers[1], leader] {
        add("dead", Wiring::Direct, Fault::Kill, met);
    }
    add("stopped", Wiring::Direct, Fault::Stop, leader);
    let held = |who| Fault::Isolate(who, Link::Held);
    add("silently cut off", Wiring::Switched, held, followers[1]);
    let cut = |who| Fault::Isolate(who, Link::Cut);
    add("cut off", Wiring::Switched, cut, followers[0]);
    add("cut off", Wiring::Switched, cut, leader);
    add("mute", Wiring::Switched, Fault::Mute, followers[0]);
    add("deaf", Wiring::Switched, Fault::Deaf, followers[0]);
    let slow = |who| Fault::Slow(who, 100);
    add("slow", Wiring::Switched, slow, followers[1]);
    all
}

/// Two members that reach each other have a leader, who has something to send to the third; then nobody asks
/// anything any more.
async fn settle(cluster: &Cluster, met: Option<usize>) {
    let asked = match met {
        Some(met) => (met + 1) % MEMBERS,
        None => 0,
    };
    let client = cluster.client(asked, 1, Duration::from_secs(2));
    let deadline = Instant::now() + SETTLED_WITHIN;
    for number in 0..10 {
        while let Err(error) = client.put("settled", format!("{number}")).await {
            assert!(Instant::now() < deadline, "m{asked} takes no put: {error}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn look(wiring: Wiring, unwell: &mut Vec<Unwell>) {
    let mut cluster = Cluster::start(wiring).await;
    let mut number = 0;
    loop {
        settle(&cluster, None).await;
        let Some(leader) = cluster.leader(&ALL).await else {
            continue;
        };
        let all = situations(leader).into_iter();
        let Some(situation) = all.filter(|one| one.wiring == wiring).nth(number) else {
            return;
        };
        number += 1;
        let mut state = State::default();
        if let Some(fault) = situation.fault {
            state.add(fault, situation.met);
        }
        cluster.apply(&state);
        settle(&cluster, situation.fault.map(|_| situation.met)).await;
        let watch = Watch::begin(&cluster, &state);
        // A window of time is what is measured, however much happens in it.
        sleep(WINDOW).await;
        let bounds = match situation.fault {
            Some(_) => BESIDE_A_FAULT,
            None => IDLE,
        };
        unwell.extend(watch.judge(&situation.name, &bounds));
        cluster.heal();
        cluster.wait_healthy().await;
    }
}

/// The leader of three took a whole core and wrote 3 to 5 MB of log a second beside a follower that had been killed.
#[test]
fn members_use_little_when_idle_and_beside_one_that_does_not_answer() {
    let _alone = crate::alone();
    let seed = Seed(0);
    let _guard = seed.print_on_failure("-p bowline-cli --test faults members_use_little");
    crate::runtime().block_on(async {
        let mut unwell = Vec::new();
        for wiring in [Wiring::Direct, Wiring::Switched] {
            look(wiring, &mut unwell).await;
        }
        let found: Vec<_> = unwell.iter().map(ToString::to_string).collect();
        assert!(
            found.is_empty(),
            "members use too much:\n{}",
            found.join("\n")
        );
    });
}

/// Whether a line of a log is a warning or an error of a library: time, level, target, message.
fn is_warning_of_a_library(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let (level, target) = (words.next(), words.next());
    let is_warning = level.is_some_and(|level| level == "WARN" || level == "ERROR");
    is_warning && target.is_some_and(|target| !target.starts_with("bowline"))
}

/// To a leader that resumes, its term is over and its connections are dead, all at once. Raft and the transport warn of
/// that; an operator reads in the log what it means, once, and nothing of a library.
#[test]
fn a_leader_that_resumes_after_its_replacement_logs_no_warning_of_a_library() {
    let _alone = crate::alone();
    crate::runtime().block_on(async {
        let mut cluster = Cluster::start(Wiring::Direct).await;
        settle(&cluster, None).await;
        let old = known_leader(&cluster, &ALL, None).await;
        let others: Vec<usize> = ALL.into_iter().filter(|at| *at != old).collect();
        // Its requests to the others are under way when it stops, and those of its clients.
        let mut busy = JoinSet::new();
        for at in 0..4 {
            let client = cluster.client(old, 1, Duration::from_millis(500));
            busy.spawn(async move { while client.put(format!("busy-{at}"), "x").await.is_ok() {} });
        }
        let log_before = cluster.log_bytes(old);
        cluster.stop(old);
        known_leader(&cluster, &others, Some(old)).await;
        // It misses entries.
        settle(&cluster, Some(old)).await;
        busy.join_all().await;
        // What waits for an answer waits no longer: a pause of seconds is the subject.
        sleep(PAUSE).await;
        cluster.wake(old);
        // It answers once it follows its successor.
        cluster.wait_healthy().await;
        let starter = cluster.starter();
        for at in ALL {
            let log = std::fs::read_to_string(starter.log_path(at)).expect("its log");
            assert!(log.contains(" INFO bowline"), "m{at}: {log}");
            let found: Vec<_> = log
                .lines()
                .filter(|line| is_warning_of_a_library(line))
                .collect();
            assert!(found.is_empty(), "m{at}: {found:#?}");
        }
        println!(
            "m{old} has logged {} bytes since it was stopped",
            cluster.log_bytes(old) - log_before
        );
    });
}

#[test]
fn a_warning_of_a_library_is_found() {
    let time = "2026-01-01T00:00:00.000000Z";
    for (line, is_found) in [
        ("WARN openraft::core: it is not a leader", true),
        ("ERROR h2: refused", true),
        ("INFO openraft: vote", false),
        ("WARN bowline_cluster::node: a peer is down", false),
    ] {
        assert_eq!(
            is_warning_of_a_library(&format!("{time}  {line}")),
            is_found,
            "{line}"
        );
    }
    assert!(!is_warning_of_a_library(""));
}
