//! Whether Bowline can be told from etcd: the same requests to both, the same answers.
//!
//! Random sequences of requests, as any client may send them, go to a server in this process and to a
//! process of etcd. Replies are compared as a whole but for what two servers choose for themselves;
//! errors by code and text; watches event by event. A sequence that shows a difference is cut down on
//! new servers to the steps it needs, and printed. What may differ, and why, stands in
//! `differences.rs` alone. The reference is etcd 3.7.3, which `checks/etcd/build` builds; an older one
//! on the path is compared with, too.
//!
//! `BOWLINE_SAME_REQUESTS` says how many requests (5,000 ordinarily) go to each etcd, `BOWLINE_SEED`
//! repeats a run, `ETCD` names the programs of etcd. Each run has a fresh seed, which it prints:
//! `fixed.rs` keeps what once was different.

mod call;
mod calls;
mod differences;
mod fixed;
mod generate;
mod kubernetes;
mod plain_http;
mod rare;
mod run;
mod servers;
mod step;
mod streams;

use std::path::PathBuf;
use std::time::Instant;

use bowline_testing::Seed;
use run::{Asked, run, show, shrink};
use servers::{Pool, etcd_programs};

/// Steps of a sequence.
const LENGTH: usize = 250;
/// How many sequences run beside each other: most of their time they wait for what etcd does now and then. A long run has
/// more of them.
fn lanes(wanted: usize) -> u64 {
    if wanted < 50_000 { 4 } else { 12 }
}

/// How many requests go to each etcd.
fn requests() -> usize {
    const VARIABLE: &str = "BOWLINE_SAME_REQUESTS";
    std::env::var(VARIABLE).map_or(5_000, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{VARIABLE} is no number: {text:?}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_answered_as_by_etcd() {
    let test = "-p bowline-server --test same_as_etcd random # with BOWLINE_SAME_REQUESTS";
    let seed = Seed::fresh(test).unwrap_or_else(|| Seed::from_env_or(0));
    let _guard = seed.print_on_failure(test);
    for program in etcd_programs() {
        compare_with(program, requests(), seed.0).await;
    }
}

async fn compare_with(program: PathBuf, wanted: usize, seed: u64) {
    println!(
        "{}: {wanted} requests, BOWLINE_SEED={seed}",
        program.display()
    );
    let begun = Instant::now();
    let count = lanes(wanted);
    let each = wanted / count as usize + 1;
    let mut lanes = tokio::task::JoinSet::new();
    for first in 0..count {
        let numbers = (first..).step_by(count as usize);
        lanes.spawn(lane(program.clone(), seed, numbers, each));
    }
    let (mut asked, mut sequences) = (Asked::default(), 0);
    while let Some(ended) = lanes.join_next().await {
        let (of_lane, count) =
            ended.unwrap_or_else(|end| std::panic::resume_unwind(end.into_panic()));
        asked.add(of_lane);
        sequences += count;
    }
    println!(
        "{} requests in {sequences} sequences, {} of them refused, in {:.1} s",
        asked.requests,
        asked.refused,
        begun.elapsed().as_secs_f64()
    );
    for (reason, count) in &asked.unsent {
        println!("{count} not sent: {reason}");
    }
    // Without answers nothing would be compared.
    assert!(asked.requests >= wanted && asked.refused < asked.requests / 2);
}

/// Runs the sequences of these numbers, until so many requests were answered.
async fn lane(
    program: PathBuf,
    seed: u64,
    mut numbers: impl Iterator<Item = u64>,
    wanted: usize,
) -> (Asked, u64) {
    let mut pool = Pool::start(&program);
    let mut asked = Asked::default();
    let mut sequences = 0;
    while asked.requests < wanted
        && let Some(sequence) = numbers.next()
    {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(sequence));
        let steps = generate::sequence(&mut rng, LENGTH.min(wanted - asked.requests + 1));
        let mut pair = pool.take().await;
        let ran = run(&mut pair, &steps, &mut asked).await;
        let version = pair.etcd.version;
        pair.stop().await;
        if let Err(found) = ran {
            let first = show(&[], &found);
            println!("sequence {sequence}: {first}\ncutting it down");
            let (steps, found) = shrink(&mut pool, steps, found).await;
            panic!(
                "not as etcd {}.{}; seed {seed}, sequence {sequence}:\n{}",
                version.0,
                version.1,
                show(&steps, &found)
            );
        }
        sequences += 1;
    }
    (asked, sequences)
}
