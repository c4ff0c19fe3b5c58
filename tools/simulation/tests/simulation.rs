//! Seeds of the ordinary run: the program runs each twice, and both runs are the same.

use std::process::Command;

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

/// A seed that runs once and is not shrunk, which takes a bounded time: for the planted bugs of `tools/mutants`.
#[test]
fn a_seed_keeps_its_promises() {
    for seed in [1, 2] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_simulate"));
        program.args(["--one", &format!("--seed={seed}"), "--seconds=20"]);
        let output = program.output().expect("the program can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        let end = text.lines().last().unwrap_or_default();
        assert!(output.status.success(), "seed {seed}: {end}");
    }
}

#[test]
fn a_cluster_under_faults_keeps_its_promises() {
    simulate(1, 4, 10);
    if let Some(fresh) = Seed::fresh("-p bowline-simulation --test simulation") {
        simulate(fresh.rng().u64(..1 << 48), 2, 10);
    }
}
