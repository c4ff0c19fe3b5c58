//! Isolation under real threads: transactions run beside each other, what they read and wrote is
//! recorded, and the record is searched for cycles of dependencies.
//!
//! Each history is one database, small enough that flush and compaction never rest, a few threads,
//! a few hot keys. Half of the histories run under [`Isolation::Serializable`]: they may have no
//! cycle, real time included. Half run under [`Isolation::Snapshot`]: write skew only, and if there
//! were none at all in a whole run, the threads would not have met and the test would prove
//! nothing. Every fifth history loses power in the middle; what became of the transactions that
//! got no answer is then looked up in the history of their keys.
//!
//! Every history is judged twice: without believing any revision, and believing all of them.
//!
//! `BOWLINE_ISOLATION_HISTORIES` sets the number of histories (default 50), and
//! `BOWLINE_ISOLATION_TRANSACTIONS` the transactions of each (default 2,000).
//!
//! The seed repeats what was tried, but not how the threads met. So a history that shows an anomaly
//! is written to a file, which is judged again by
//!
//! ```text
//! BOWLINE_ISOLATION_RECHECK=FILE cargo test -p bowline --test isolation judged_again -- --nocapture
//! ```

mod disk;
mod keys;
mod random;
mod session;
mod tally;
mod updates;
mod world;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bowline::Isolation;
use bowline_testing::Seed;
use bowline_testing::isolation::{Counts, History, Level, Outcome, Trust, check};

use tally::Tally;
use world::World;

/// A history takes a second or so; threads that wait for each other take for ever.
const HANGS_AFTER: Duration = Duration::from_secs(180);

const TRUSTS: [Trust; 2] = [Trust::Nothing, Trust::Commits];

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number")),
        Err(_) => default,
    }
}

/// What a run was made of.
#[derive(Default)]
struct Totals {
    histories: u64,
    crashes: u64,
    transactions: u64,
    aborted: u64,
    conflicts: u64,
    unknown_resolved: u64,
    shared_rounds: u64,
    flushes: u64,
    compactions: u64,
    tally: Tally,
    counts: Counts,
}

fn level_of(isolation: Isolation) -> Level {
    match isolation {
        Isolation::Serializable => Level::Serializable,
        Isolation::Snapshot => Level::Snapshot,
    }
}

/// Writes a history down; returns where and how to judge it again.
fn keep(history: &History, level: Level, seed: Seed) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path: PathBuf = directory.join(format!("isolation-{}.history", seed.0));
    let text = format!("# level: {level:?}\n# {seed} -p bowline --test isolation\n{history}");
    match std::fs::write(&path, text) {
        Ok(()) => format!(
            "judge it again: BOWLINE_ISOLATION_RECHECK={} cargo test -p bowline --test isolation \
             judged_again -- --nocapture",
            path.display()
        ),
        Err(error) => format!("it could not be written to {}: {error}", path.display()),
    }
}

fn judge(history: &History, level: Level, seed: Seed, totals: &mut Totals) {
    for trust in TRUSTS {
        let report = check(history, level, trust);
        if !report.is_clean() {
            let kept = keep(history, level, seed);
            let violations: Vec<_> = report.violations().map(ToString::to_string).collect();
            let violations = violations.join("\n");
            panic!("{level:?} histories, believing {trust:?}:\n{violations}\n{kept}");
        }
        if trust == Trust::Commits {
            totals.counts.add(&report.counts);
        }
    }
}

/// Runs half of the histories. The first has the seed itself, so that it can be repeated.
fn run(test: &'static str, seed: u64, isolation: Isolation) -> Totals {
    let seed = Seed::from_env_or(seed);
    let histories = number("BOWLINE_ISOLATION_HISTORIES", 50).div_ceil(2);
    let transactions = number("BOWLINE_ISOLATION_TRANSACTIONS", 2000);
    let level = level_of(isolation);
    let mut totals = Totals::default();
    // One more, which is new in each run.
    let fixed = (0..histories).map(|part| if part == 0 { seed } else { seed.part(part) });
    for seed in fixed.chain(Seed::fresh(test)) {
        let _guard = seed.print_on_failure(test);
        // By the seed, so that a part that is run alone is the same one.
        let crashes = seed.0.is_multiple_of(5);
        let world = World::new(seed, isolation, transactions, crashes);
        let done = or_abort(seed, test, || world.run());
        totals.tally.add(&done.history);
        totals.histories += 1;
        totals.crashes += u64::from(done.has_crashed);
        totals.transactions += done.history.transactions.len() as u64;
        let aborted = done.history.transactions.iter();
        let aborted = aborted.filter(|t| t.outcome == Outcome::Aborted);
        totals.aborted += aborted.count() as u64;
        totals.conflicts += done.conflicts;
        totals.unknown_resolved += done.unknown_resolved;
        totals.shared_rounds += done.shared_rounds;
        totals.flushes += done.flushes;
        totals.compactions += done.compactions;
        judge(&done.history, level, seed, &mut totals);
    }
    let Totals {
        crashes,
        transactions,
        aborted,
        conflicts,
        unknown_resolved,
        shared_rounds,
        flushes,
        compactions,
        tally,
        counts,
        ..
    } = &totals;
    println!(
        "{histories} {level:?} histories ({crashes} with a crash, {unknown_resolved} unknown \
         outcomes found in it), {transactions} transactions: {aborted} did not commit, {conflicts} \
         of them for a conflict; {shared_rounds} commits shared a flush; {flushes} flushes, \
         {compactions} compactions"
    );
    println!("{counts}");
    println!("operations: {tally}");
    let is_whole = histories >= 10 && transactions / histories >= 1000;
    assert!(
        !is_whole || (*conflicts > 100 && *shared_rounds > 100 && *flushes > 10),
        "the transactions hardly met"
    );
    assert!(!is_whole || *crashes > 0, "the power was never lost");
    assert!(!is_whole || *compactions > 0, "nothing was compacted");
    assert!(
        !is_whole || (counts.rw > 1000 && counts.rw_range > 100),
        "nothing to get wrong"
    );
    assert!(
        !is_whole || tally.missing().is_empty(),
        "never: {:?}",
        tally.missing()
    );
    totals
}

/// Runs a history; ends the process when it hangs, since its threads cannot be ended.
fn or_abort<T>(seed: Seed, test: &'static str, run: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(HANGS_AFTER) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a history hangs; {seed} {test}");
            std::process::exit(101);
        }
    });
    let result = run();
    drop(done);
    watchdog.join().expect("the watchdog does not panic");
    result
}

#[test]
fn serializable_histories_have_no_cycle() {
    let test = "-p bowline --test isolation serializable # with BOWLINE_ISOLATION_HISTORIES=2";
    let totals = run(test, 71, Isolation::Serializable);
    assert_eq!(totals.counts.skews, 0);
}

#[test]
fn snapshot_histories_have_write_skew_and_nothing_worse() {
    let test = "-p bowline --test isolation snapshot # with BOWLINE_ISOLATION_HISTORIES=2";
    let totals = run(test, 72, Isolation::Snapshot);
    assert!(
        totals.histories < 10 || totals.counts.skews > 0,
        "no skew: these threads did not meet"
    );
}

/// Judges a history that an earlier run has kept; does nothing when none is named.
#[test]
fn a_kept_history_is_judged_again() {
    let Some(path) = std::env::var_os("BOWLINE_ISOLATION_RECHECK") else {
        return;
    };
    let text = std::fs::read_to_string(&path).expect("it is there");
    let level = match text.lines().next() {
        Some("# level: Serializable") => Level::Serializable,
        Some("# level: Snapshot") => Level::Snapshot,
        other => panic!("the first line names the level: {other:?}"),
    };
    let history = History::parse(&text).expect("it reads");
    let reports = TRUSTS.map(|trust| (trust, check(&history, level, trust)));
    for (trust, report) in &reports {
        println!("believing {trust:?}: {report}\n");
    }
    assert!(reports.iter().all(|(_, report)| report.is_clean()));
}
