//! Decay of data at rest: flipped bits, zeroed, swapped, misdirected and stale sectors, cut,
//! extended, lost and exchanged files, in every part of every kind of file.
//!
//! After each damage the database is opened with the shipped code. Whatever opens is read in every
//! way; each answer is right, or an error that names the file and a place in it. A check lists the
//! damage wherever the opening does not repair it. Writes, flushes and merges over damage go on or
//! fail, and never make it look sound. No allocation follows a length out of damaged bytes, and
//! nothing hangs.
//!
//! `BOWLINE_ROT_CASES` sets the number of damages (default 5,000). A failed case prints the command
//! that repeats it.

mod damage;
mod judge;
mod layout;
mod log;
mod memory;
mod reads;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "this binary uses a part of what the others share")]
mod support;
mod victim;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use bowline_testing::Seed;

use damage::{DECAYS, Damage, Decay, PARTS, Part};
use judge::{Judge, Outcome};
use memory::{Taken, counted};
use victim::{SHAPES, Victim};

/// Databases of each shape.
const VARIANTS: usize = 2;
/// A case that takes longer hangs.
const CASE_SECONDS_MAX: u64 = 120;
/// Failures that are printed; then it stops.
const FAILURES_MAX: usize = 12;

/// A victim with what is known of it while it is sound.
struct Sound {
    victim: Victim,
    oldest: u64,
    taken: Taken,
}

impl Sound {
    fn new(number: usize) -> Sound {
        let (shape, ending) = SHAPES[number % SHAPES.len()];
        let victim = Victim::new(shape, ending, 1000 + number as u64 * 4);
        let disk = victim.disk.after_kill();
        let db = victim.builder(&disk).open(victim.path).expect("it opens");
        let oldest = db.oldest_revision();
        drop(db);
        let judge = Judge::new(&victim, None, oldest.get());
        let (outcome, taken) = counted(|| judge.judge(&mut fastrand::Rng::with_seed(1)));
        if let Err(why) = outcome {
            panic!("{shape:?}, {ending:?}, undamaged: {why}");
        }
        Sound {
            victim,
            oldest: oldest.get(),
            taken,
        }
    }

    /// What a case may take: what the sound database takes, and some for longer files.
    fn budget(&self, damage: &Damage) -> Taken {
        let lengths = damage.changes.iter().filter_map(|(_, new)| new.as_ref());
        let longest = lengths.map(Vec::len).max().unwrap_or(0) as u64;
        // A larger list of the test disk's operations, an older state with more of the log.
        let fixed = 512 << 10;
        Taken {
            largest: self.taken.largest + 2 * longest + fixed,
            peak: 2 * self.taken.peak + 4 * longest + fixed,
        }
    }
}

/// All victims, each made when it is first wanted.
#[derive(Default)]
struct Victims {
    made: [[OnceLock<Sound>; SHAPES.len()]; VARIANTS],
}

impl Victims {
    fn get(&self, number: usize) -> &Sound {
        let cell = &self.made[number / SHAPES.len()][number % SHAPES.len()];
        cell.get_or_init(|| Sound::new(number))
    }
}

#[derive(Default)]
struct Results {
    cells: BTreeMap<(Part, Decay), BTreeMap<&'static str, u64>>,
    /// How often, and the most groups that were lost.
    outcomes: BTreeMap<Outcome, (u64, u64)>,
    failures: Vec<String>,
    largest: Taken,
}

fn run_case(
    victims: &Victims,
    seed: Seed,
) -> (Part, Decay, String, Result<Outcome, String>, Taken) {
    let mut rng = seed.rng();
    loop {
        let sound = victims.get(rng.usize(0..SHAPES.len() * VARIANTS));
        // Pages more often: most of what is damaged elsewhere is found by the opening.
        let part = PARTS.get(rng.usize(0..PARTS.len() + 4));
        let part = *part.unwrap_or(&Part::TablePages);
        let decay = DECAYS[rng.usize(0..DECAYS.len())];
        // Few pages are of one length.
        let tries = if decay == Decay::SwapUnits { 20 } else { 1 };
        let mut draws = (0..tries).map(|_| Damage::draw(&sound.victim, part, decay, &mut rng));
        let Some(damage) = draws.find_map(|drawn| drawn) else {
            continue;
        };
        let name = format!(
            "{:?}, {:?}: {damage}",
            sound.victim.shape, sound.victim.ending
        );
        let judge = Judge::new(&sound.victim, Some(&damage), sound.oldest);
        // The database draws salts for new segments and tables.
        fastrand::seed(seed.0);
        let case = || catch_unwind(AssertUnwindSafe(|| judge.judge(&mut rng)));
        let (outcome, taken) = counted(case);
        let mut outcome = outcome.unwrap_or_else(|_| Err("PANIC, see above".to_owned()));
        let budget = sound.budget(&damage);
        if taken.largest > budget.largest || taken.peak > budget.peak {
            outcome = Err(format!("MEMORY: took {taken:?}, may take {budget:?}"));
        }
        return (part, decay, name, outcome, taken);
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "refused",
        Outcome::ReadError => "read error",
        Outcome::Listed => "listed",
        Outcome::Repaired(_) => "repaired",
        Outcome::Window(..) => "window",
        Outcome::Harmless(_) => "harmless",
    }
}

#[test]
fn every_damage_is_an_error_or_a_repair() {
    let cases = std::env::var("BOWLINE_ROT_CASES").map_or(5_000, |text| {
        text.parse().expect("BOWLINE_ROT_CASES must be a number")
    });
    let seed = Seed::from_env_or(5);
    // A tenth more is new in each run.
    let fresh = Seed::fresh("-p bowline --test rot every_damage");
    let fresh_cases = if fresh.is_some() { cases / 10 } else { 0 };
    let victims = Victims::default();
    let results = Mutex::new(Results::default());
    let next = AtomicU64::new(0);
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2);
    // When each worker's case began, in milliseconds since the start; 0 while it has none.
    let start = Instant::now();
    let now = || start.elapsed().as_millis() as u64 + 1;
    let began: Vec<_> = (0..workers)
        .map(|_| (AtomicU64::new(0), AtomicU64::new(0)))
        .collect();
    let work = |(at, of): &(AtomicU64, AtomicU64)| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= cases + fresh_cases
                || results.lock().expect("sound").failures.len() >= FAILURES_MAX
            {
                break;
            }
            // The first has the seed itself, so that one case can be repeated.
            let seed = match (number, fresh) {
                (0, _) => seed,
                (_, Some(fresh)) if number >= cases => fresh.part(number),
                _ => seed.part(number),
            };
            of.store(seed.0, Ordering::Relaxed);
            at.store(now(), Ordering::Relaxed);
            let (part, decay, name, outcome, taken) = run_case(&victims, seed);
            let mut results = results.lock().expect("sound");
            let key = match outcome {
                Ok(outcome) => {
                    let (kind, groups) = match outcome {
                        Outcome::Window(what, groups) => (Outcome::Window(what, 0), groups),
                        other => (other, 0),
                    };
                    let (count, most) = results.outcomes.entry(kind).or_default();
                    *count += 1;
                    *most = groups.max(*most);
                    word(outcome)
                }
                Err(why) => {
                    let repeat = repeat(seed);
                    results
                        .failures
                        .push(format!("{name}\n  {why}\n  {repeat}"));
                    "FAILED"
                }
            };
            *results
                .cells
                .entry((part, decay))
                .or_default()
                .entry(key)
                .or_default() += 1;
            results.largest.largest = results.largest.largest.max(taken.largest);
            results.largest.peak = results.largest.peak.max(taken.peak);
        }
        at.store(0, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = began
            .iter()
            .map(|cell| scope.spawn(move || work(cell)))
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            for (at, of) in &began {
                let at = at.load(Ordering::Relaxed);
                if at > 0 && now().saturating_sub(at) > CASE_SECONDS_MAX * 1000 {
                    eprintln!("HANGS: {}", repeat(Seed(of.load(Ordering::Relaxed))));
                    std::process::exit(101);
                }
            }
        }
    });
    let results = results.into_inner().expect("sound");
    print_results(&results, cases, start.elapsed());
    assert!(
        results.failures.is_empty(),
        "{}",
        results.failures.join("\n")
    );
    assert!(cases < 5_000 || covers_all(&results));
}

fn repeat(seed: Seed) -> String {
    let number = seed.0;
    format!(
        "repeat with: BOWLINE_SEED={number} BOWLINE_ROT_CASES=1 cargo test -p bowline --test rot \
         every_damage"
    )
}

fn print_results(results: &Results, cases: u64, took: Duration) {
    let done: u64 = results.cells.values().flat_map(BTreeMap::values).sum();
    println!(
        "{done} of {cases} damages in {took:.1?}; the largest allocation and the most memory of"
    );
    println!("a case (the test's own included): {:?}\n", results.largest);
    for part in PARTS {
        println!("{part:?}");
        for decay in DECAYS {
            if let Some(cell) = results.cells.get(&(part, decay)) {
                let all: u64 = cell.values().sum();
                let each: Vec<_> = cell.iter().map(|(word, n)| format!("{n} {word}")).collect();
                println!(
                    "  {:<14} {all:>4}: {}",
                    format!("{decay:?}"),
                    each.join(", ")
                );
            }
        }
    }
    println!();
    for (outcome, (count, groups)) in &results.outcomes {
        match outcome {
            Outcome::Window(what, _) => {
                println!("{count:>6} window: {what}; at most {groups} groups");
            }
            Outcome::Repaired(what) => println!("{count:>6} repaired: {what}"),
            Outcome::Harmless(what) => println!("{count:>6} harmless: {what}"),
            other => println!("{count:>6} {}", word(*other)),
        }
    }
}

/// Whether every outcome and every part came up.
fn covers_all(results: &Results) -> bool {
    let words: std::collections::BTreeSet<_> =
        results.outcomes.keys().map(|it| word(*it)).collect();
    let parts: std::collections::BTreeSet<_> =
        results.cells.keys().map(|(part, _)| *part).collect();
    words.len() >= 5 && parts.len() == PARTS.len()
}
