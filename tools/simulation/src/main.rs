//! Simulates a cluster, seed after seed.
//!
//! `simulate [SEEDS] [--seed FIRST] [--members N] [--seconds N] [--without FAULT,…] [--jobs N] [--once] [--coverage]`
//!
//! One seed in ten has five members and one in fifty seven, unless `--members` says how many. In one seed of five disks are
//! full at times, with `--full-disks` in all. In one of three the members are behind the shipped server, and there are users
//! over the network, with `--served` in all. In one of eleven the membership grows and shrinks, with `--grows` in all.
//! In one of eight files of all kinds rot, with `--rots` in all. In one of twelve monotonic clocks leap
//! forward, with `--leaps` in all.
//!
//! Each seed runs twice, each time in a process of its own, and both runs must be the same: in one process the second run
//! would find counters of the first. With `--once` only every tenth seed does. A seed that fails is shrunk: faults are left
//! out one by one for as long as it fails. `--coverage` tells what the faults of all seeds have met. `--one` runs one seed in
//! this process and prints its trace, with `--story` also what the members send each other, and with `--wire` what arrives
//! on each connection.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bowline_simulation::{Options, entropy, run};

/// The command line.
struct Arguments {
    seeds: u64,
    first: Option<u64>,
    jobs: u64,
    is_one: bool,
    is_once: bool,
    /// Whether it tells in the end what faults have met.
    tells_coverage: bool,
    /// How many members; by the seed if it is not said.
    members: Option<usize>,
    options: Options,
}

impl Arguments {
    /// The options of a seed: of ten seeds one has five members, and of fifty one has seven.
    fn options_of(&self, seed: u64) -> Options {
        let drawn = match seed % 50 {
            25 => 7,
            last if last % 10 == 9 => 5,
            _ => 3,
        };
        Options {
            members: self.members.unwrap_or(drawn),
            // `--one` is given what applies.
            fills_disks: self.options.fills_disks || !self.is_one && seed.is_multiple_of(5),
            serves: self.options.serves || !self.is_one && seed % 6 == 1,
            grows: self.options.grows || !self.is_one && seed % 11 == 3,
            // Half of those with five members, and some with three.
            rots: self.options.rots || !self.is_one && (seed % 20 == 19 || seed % 13 == 5),
            leaps: self.options.leaps || !self.is_one && seed % 12 == 6,
            ..self.options.clone()
        }
    }
}

fn main() -> ExitCode {
    let arguments = arguments();
    match arguments.is_one {
        true => one(&arguments),
        false => many(&arguments),
    }
}

fn arguments() -> Arguments {
    let mut parsed = Arguments {
        seeds: 1,
        first: None,
        jobs: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        is_one: false,
        is_once: false,
        tells_coverage: false,
        members: None,
        options: Options::default(),
    };
    // `--seed 7` and `--seed=7` are the same.
    let mut arguments = std::env::args().skip(1).flat_map(|argument| {
        let parts = argument.splitn(2, '=').map(ToOwned::to_owned);
        parts.collect::<Vec<_>>()
    });
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.unwrap_or_else(|| usage(&format!("{argument} needs a value")))
        };
        let options = &mut parsed.options;
        match argument.as_str() {
            "--seed" => parsed.first = Some(number(&value())),
            "--members" => parsed.members = Some(number(&value()) as usize),
            "--seconds" => options.virtual_seconds = number(&value()),
            "--without" => {
                let value = value();
                let faults = value.split(',').filter(|fault| !fault.is_empty());
                options.without = faults.map(|fault| number(fault) as usize).collect();
            }
            "--jobs" => parsed.jobs = number(&value()),
            "--one" => parsed.is_one = true,
            "--once" => parsed.is_once = true,
            "--coverage" => parsed.tells_coverage = true,
            "--full-disks" => options.fills_disks = true,
            "--served" => options.serves = true,
            "--grows" => options.grows = true,
            "--rots" => options.rots = true,
            "--leaps" => options.leaps = true,
            "--story" => options.tells_messages = true,
            "--wire" => options.traces_wire = true,
            count => parsed.seeds = number(count),
        }
    }
    if !parsed
        .members
        .is_none_or(|members| (1..=9).contains(&members))
    {
        usage("there are one to nine members");
    }
    if parsed.jobs == 0 || parsed.seeds == 0 {
        usage("there is at least one job, and one seed");
    }
    parsed
}

fn usage(reason: &str) -> ! {
    eprintln!("{reason}");
    eprintln!(
        "usage: simulate [SEEDS] [--seed FIRST] [--members N] [--seconds N] [--without FAULT,…] [--jobs N] [--once] [--coverage] [--one] [--full-disks] [--served] [--grows] [--rots] [--leaps] [--story] [--wire]"
    );
    std::process::exit(2)
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| usage(&format!("{text:?} is not a number")))
}

/// One seed in this process.
fn one(arguments: &Arguments) -> ExitCode {
    let Some(seed) = arguments.first else {
        usage("--one needs --seed");
    };
    entropy::seed(seed);
    let outcome = run(seed, &arguments.options_of(seed));
    print!("{}", outcome.trace);
    println!("{outcome}");
    ExitCode::from(u8::from(outcome.failure.is_some()))
}

/// Many seeds, each twice.
fn many(arguments: &Arguments) -> ExitCode {
    let first = arguments.first.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.as_micros() as u64)
    });
    let began = Instant::now();
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let coverage = Mutex::new(Coverage::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= arguments.seeds {
                        return;
                    }
                    let seed = first.wrapping_add(at);
                    let is_twice = !arguments.is_once || seed.is_multiple_of(10);
                    let checked = check(seed, &arguments.options_of(seed), is_twice);
                    let mut coverage = coverage.lock().unwrap_or_else(PoisonError::into_inner);
                    println!("{}", checked.report);
                    for (what, count) in checked.met {
                        let (seeds, times) = coverage.entry(what).or_default();
                        *seeds += 1;
                        *times += count;
                    }
                    if !checked.is_right {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if arguments.tells_coverage {
        let coverage = coverage.into_inner();
        for (what, (seeds, times)) in coverage.unwrap_or_else(PoisonError::into_inner) {
            println!("| {what} | {seeds} | {times} |");
        }
    }
    let failed = failed.into_inner();
    let (seeds, seconds) = (arguments.seeds, began.elapsed().as_secs_f64());
    let times = if arguments.is_once {
        "once, every tenth twice"
    } else {
        "twice"
    };
    println!("{seeds} seeds from {first} on, {times}: {failed} failed, {seconds:.1} s");
    ExitCode::from(u8::from(failed > 0))
}

/// The arguments that run one seed with these options.
fn to_run(seed: u64, options: &Options) -> Vec<String> {
    let without: Vec<_> = options.without.iter().map(ToString::to_string).collect();
    let mut arguments = vec![
        "--one".to_owned(),
        format!("--seed={seed}"),
        format!("--members={}", options.members),
        format!("--seconds={}", options.virtual_seconds),
        format!("--without={}", without.join(",")),
    ];
    if options.fills_disks {
        arguments.push("--full-disks".to_owned());
    }
    if options.serves {
        arguments.push("--served".to_owned());
    }
    if options.grows {
        arguments.push("--grows".to_owned());
    }
    if options.rots {
        arguments.push("--rots".to_owned());
    }
    if options.leaps {
        arguments.push("--leaps".to_owned());
    }
    if options.tells_messages {
        arguments.push("--story".to_owned());
    }
    if options.traces_wire {
        arguments.push("--wire".to_owned());
    }
    arguments
}

fn start(seed: u64, options: &Options) -> Output {
    let program = std::env::current_exe().expect("the program has a path");
    let output = Command::new(program).args(to_run(seed, options)).output();
    output.expect("the program can be started")
}

/// What faults have met: in how many seeds, and how often.
type Coverage = BTreeMap<String, (u64, u64)>;

/// What came of a seed.
struct Checked {
    /// What to print.
    report: String,
    is_right: bool,
    /// What its faults have met, and how often.
    met: Vec<(String, u64)>,
}

/// Runs a seed, twice if asked.
fn check(seed: u64, options: &Options, is_twice: bool) -> Checked {
    let ran = start(seed, options);
    let again = if is_twice {
        start(seed, options)
    } else {
        ran.clone()
    };
    let text = String::from_utf8_lossy(&ran.stdout);
    let text_again = String::from_utf8_lossy(&again.stdout);
    let met = text.lines().filter_map(|line| {
        let (what, count) = line.strip_prefix("  met: ")?.rsplit_once(": ")?;
        Some((what.to_owned(), count.parse().ok()?))
    });
    let met = met.collect();
    let checked = |report, is_right| Checked {
        report,
        is_right,
        met,
    };
    // What the members log may name times of the machine.
    let is_common = |line: &&str| line.get(9..11) != Some("| ");
    let lines = text.lines().filter(is_common);
    let lines_again = text_again.lines().filter(is_common);
    if !lines.clone().eq(lines_again.clone()) {
        let mut pairs = lines.zip(lines_again);
        let differ = pairs.find(|(a, b)| a != b).unwrap_or_default();
        let report = format!(
            "seed {seed}: two runs differ, first here:\n  {}\n  {}\nrepeat with: {}",
            differ.0,
            differ.1,
            command(seed, options)
        );
        return checked(report, false);
    }
    if ran.status.success() {
        let summary = text.lines().find(|line| line.starts_with("seed "));
        return checked(summary.unwrap_or_default().to_owned(), true);
    }
    let (mut options, _) = shrink(seed, options, ran);
    options.tells_messages = true;
    let ran = start(seed, &options);
    let report = format!(
        "{}{}\nrepeat with: {}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
        command(seed, &options)
    );
    checked(report, false)
}

fn command(seed: u64, options: &Options) -> String {
    let arguments = to_run(seed, options).join(" ");
    format!("cargo run --release -p bowline-simulation -- {arguments}")
}

/// Leaves out faults for as long as the seed fails.
fn shrink(seed: u64, options: &Options, mut failed: Output) -> (Options, Output) {
    let text = String::from_utf8_lossy(&failed.stdout).into_owned();
    let faults = text
        .lines()
        .filter(|line| line.starts_with("  fault "))
        .count();
    let mut options = options.clone();
    let left: BTreeSet<_> = (0..faults)
        .filter(|fault| !options.without.contains(fault))
        .collect();
    for fault in left {
        let mut fewer = options.clone();
        fewer.without.insert(fault);
        let ran = start(seed, &fewer);
        if !ran.status.success() {
            (options, failed) = (fewer, ran);
        }
    }
    (options, failed)
}
