//! Seeds of the ordinary run: the program runs each twice, and both runs are the same.
//!
//! The tests that are ignored are those of the planted bugs (`tools/mutants` runs them). Without a bug the pipeline runs three
//! hundred such seeds, in a program that is optimised.

use std::process::Command;
use std::thread;

use bowline_testing::Seed;

fn simulate(first: u64, seeds: u64, seconds: u64) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_simulate"));
    program.args([
        seeds.to_string(),
        format!("--seed={first}"),
        format!("--seconds={seconds}"),
    ]);
    let output = program.output().expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let answered = text
        .lines()
        .filter(|line| line.contains("answered: "))
        .count();
    assert_eq!(answered as u64, seeds, "{text}");
    print!("{text}");
}

/// Runs seeds once each, two at a time. None is shrunk, so that this takes a bounded time: for the planted bugs of
/// `tools/mutants`.
fn keep_their_promises(seeds: &[u64], more: &[&str]) {
    let run = |seed: u64| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_simulate"));
        program.args(["--one", &format!("--seed={seed}"), "--seconds=20"]);
        program.args(more);
        let output = program.output().expect("the program can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        let failure = text.lines().rfind(|line| line.starts_with("FAILED: "));
        let outcome = failure.or(text.lines().last()).unwrap_or_default();
        assert!(output.status.success(), "seed {seed}: {outcome}");
    };
    for two in seeds.chunks(2) {
        thread::scope(|scope| {
            for &seed in two {
                scope.spawn(move || run(seed));
            }
        });
    }
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn a_seed_keeps_its_promises() {
    keep_their_promises(&[1, 2], &[]);
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn more_seeds_keep_their_promises() {
    keep_their_promises(&[3, 4, 5, 6, 7, 8], &[]);
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn users_over_the_network_keep_their_promises() {
    keep_their_promises(&[1, 2, 3, 4, 7, 11], &["--served"]);
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn members_that_come_and_go_keep_their_promises() {
    keep_their_promises(&[2, 9], &["--grows"]);
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn members_whose_files_rot_keep_their_promises() {
    keep_their_promises(&[17, 21], &["--rots"]);
}

#[test]
#[ignore = "for planted bugs: the pipeline runs such seeds optimised"]
fn members_whose_clocks_leap_keep_their_promises() {
    keep_their_promises(&[1, 2], &["--leaps"]);
}

#[test]
fn a_cluster_under_faults_keeps_its_promises() {
    simulate(1, 2, 10);
    if let Some(fresh) = Seed::fresh("-p bowline-simulation --test simulation") {
        simulate(fresh.rng().u64(..1 << 48), 1, 10);
    }
}
