//! The database against the model: random calls, each answer compared.
//!
//! Everything is small and runs on one thread, so a few hundred steps cross flushes and merges at
//! any place between two calls: while a snapshot, a transaction, an iterator or a watch is open.
//! The sizes and the strategy of compaction are drawn anew for each case. The model keeps all of
//! the past; what the history setting lets the database give up is either answered rightly or
//! refused as compacted, and what it must keep is answered.
//!
//! `BOWLINE_MODEL_CASES` sets the number of cases of all tests together (default 2,000),
//! `BOWLINE_MODEL_STEPS` the steps of each (default 200). A failed case is cut down to the steps
//! that it needs ([`shrink`]), which are printed with the command that repeats it.

mod case;
mod coverage;
mod held;
mod reads;
mod shrink;
#[path = "../support/mod.rs"]
mod support;
mod transaction;
mod updates;

use bowline::History;
use bowline_testing::Seed;

use coverage::Coverage;
use shrink::Plan;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number")),
        Err(_) => default,
    }
}

/// Runs a part of the cases. The first has the seed itself, so that one case can be repeated.
fn run(
    test: &'static str,
    seed: u64,
    percent: u64,
    history: impl Fn(&mut fastrand::Rng) -> History,
) {
    let seed = Seed::from_env_or(seed);
    let cases = (number("BOWLINE_MODEL_CASES", 2000) * percent).div_ceil(100);
    // A tenth more is new in each run.
    let fresh = Seed::fresh(test);
    let fresh_cases = if fresh.is_some() { cases / 10 } else { 0 };
    let steps = number("BOWLINE_MODEL_STEPS", 200);
    let mut coverage = Coverage::default();
    let mut flushes = 0;
    let mut compactions = 0;
    for part in 0..cases + fresh_cases {
        let seed = match (part, fresh) {
            (0, _) => seed,
            (_, Some(fresh)) if part >= cases => fresh.part(part),
            _ => seed.part(part),
        };
        let _guard = seed.print_on_failure(test);
        let counters = Plan::new(seed, steps, &history).run_or_shrink(&mut coverage);
        flushes += counters.flushes;
        compactions += counters.compactions;
    }
    let missing = coverage.missing();
    println!("{cases} cases of {steps} steps: {flushes} flushes, {compactions} compactions");
    println!("covered: {coverage}");
    println!("never: {missing:?}");
    assert_eq!(coverage.unexpected(), [""; 0]);
    assert!(steps < 100 || (flushes >= cases && compactions >= cases));
    assert!(
        cases * steps < 50_000 || missing.is_empty(),
        "in so many steps there should have been: {missing:?}"
    );
}

#[test]
fn all_history_is_kept_until_it_is_compacted() {
    let test = "-p bowline --test model all_history # with BOWLINE_MODEL_CASES=1";
    run(test, 21, 40, |_| History::All);
}

#[test]
fn without_history_the_newest_and_what_is_held_is_right() {
    let test = "-p bowline --test model without_history # with BOWLINE_MODEL_CASES=1";
    run(test, 22, 35, |_| History::None);
}

#[test]
fn the_last_revisions_are_kept() {
    let test = "-p bowline --test model the_last_revisions # with BOWLINE_MODEL_CASES=1";
    run(test, 23, 25, |rng| History::Revisions(rng.u64(1..60)));
}
