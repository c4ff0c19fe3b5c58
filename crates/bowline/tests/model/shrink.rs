//! A case as a list of steps, and the search for a shorter one that fails as well.
//!
//! Each step has a seed of its own and draws all its choices from it and from the state it finds.
//! So a step means something wherever it stands, and any part of a case is a case. A case that
//! fails is tried again without half of its steps, then without quarters and so on (Zeller and
//! Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", TSE 2002), until no single
//! step can be left out.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use bowline::{CountersSnapshot, History};
use bowline_testing::Seed;

use crate::case::Case;
use crate::coverage::Coverage;

/// Runs that looking for a shorter case may take.
const TRIES_MAX: usize = 3000;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread fails on purpose.
pub fn is_quiet() -> bool {
    IS_QUIET.get()
}

/// Runs something that may panic; says whether it did, and nothing else.
fn panics(run: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_quiet() {
                loud(info);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(before);
    result.is_err()
}

/// A case that has not been run.
#[derive(Clone)]
pub struct Plan {
    seed: u64,
    history: History,
    steps: Vec<u64>,
}

impl Plan {
    pub fn new(seed: Seed, steps: u64, history: impl Fn(&mut fastrand::Rng) -> History) -> Plan {
        let mut rng = seed.rng();
        let history = history(&mut rng);
        Plan {
            seed: rng.u64(..),
            history,
            steps: (0..steps).map(|_| rng.u64(..)).collect(),
        }
    }

    fn run(&self, coverage: &mut Coverage) -> CountersSnapshot {
        let mut case = Case::new(self.history, fastrand::Rng::with_seed(self.seed));
        for seed in &self.steps {
            case.step(*seed);
        }
        case.finish(coverage)
    }

    /// Runs it. When it fails, fails with the shortest case that was found to fail.
    pub fn run_or_shrink(self, coverage: &mut Coverage) -> CountersSnapshot {
        let mut counters = None;
        if !panics(|| counters = Some(self.run(coverage))) {
            return counters.expect("it ran to its end");
        }
        let full = self.steps.len();
        let (short, tries) = self.shrunk();
        eprintln!(
            "a case of {full} steps fails, and so do these {} of them (found in {tries} tries):",
            short.steps.len()
        );
        short.run(&mut Coverage::default());
        panic!("it did not fail again: it depends on more than its seed");
    }

    fn shrunk(mut self) -> (Plan, usize) {
        let mut tries = 0;
        let mut size = self.steps.len().div_ceil(2);
        loop {
            let mut is_shorter = false;
            let mut at = 0;
            while at < self.steps.len() && tries < TRIES_MAX {
                let mut without = self.clone();
                let end = (at + size).min(self.steps.len());
                without.steps.drain(at..end);
                tries += 1;
                let run = || {
                    without.run(&mut Coverage::default());
                };
                if panics(run) {
                    self = without;
                    is_shorter = true;
                } else {
                    at += size;
                }
            }
            if tries >= TRIES_MAX || (size <= 1 && !is_shorter) {
                return (self, tries);
            }
            size = (size / 2).max(1);
        }
    }
}
