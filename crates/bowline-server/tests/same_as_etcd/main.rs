//! Whether Bowline can be told from etcd: the same requests to both, the same answers.
//!
//! Random sequences of requests, as any client may send them, go to a server in this process and to a
//! process of etcd. Replies are compared as a whole but for what two servers choose for themselves;
//! errors by code and text; watches event by event. A sequence that shows a difference is cut down on
//! new servers to the steps it needs, and printed. What may differ, and why, stands in
//! `differences.rs` alone.
//!
//! `BOWLINE_SAME_REQUESTS` says how many requests (5,000 ordinarily), `BOWLINE_SAME_SEED` repeats a
//! run, `ETCD` names another program of etcd than the one on the path.

mod call;
mod calls;
mod differences;
mod fixed;
mod generate;
mod kubernetes;
mod rare;
mod run;
mod servers;
mod step;
mod streams;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use run::{Asked, run, show, shrink};
use servers::{Pool, etcd_program};

/// Steps of a sequence.
const LENGTH: usize = 250;
/// Sequences that run beside each other: most of their time they wait for what etcd does now and then.
const LANES: u64 = 4;

/// Past the runner, which keeps what a test that passes prints.
fn skipped() {
    // Whether anybody reads it is not what is tested.
    let _ = writeln!(io::stderr(), "SKIPPED: etcd is not installed");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_answered_as_by_etcd() {
    let Some(program) = etcd_program() else {
        skipped();
        return;
    };
    let wanted = number("BOWLINE_SAME_REQUESTS").unwrap_or(5_000) as usize;
    let seed = number("BOWLINE_SAME_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{wanted} requests, BOWLINE_SAME_SEED={seed}");
    let begun = Instant::now();
    let mut lanes = tokio::task::JoinSet::new();
    for first in 0..LANES {
        lanes.spawn(lane(
            program.clone(),
            seed,
            first,
            wanted / LANES as usize + 1,
        ));
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

/// Runs every [`LANES`]th sequence from `first` on, until so many requests were answered.
async fn lane(program: PathBuf, seed: u64, first: u64, wanted: usize) -> (Asked, u64) {
    let mut pool = Pool::start(&program);
    let mut asked = Asked::default();
    let mut sequences = 0;
    while asked.requests < wanted {
        let sequence = first + sequences * LANES;
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
