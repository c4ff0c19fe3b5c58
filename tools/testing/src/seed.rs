//! Seeds of random tests: fixed ones, a fresh one in each run, or the one that the environment sets.
//!
//! With a fixed seed a failed run fails again, and the catalog of mutants relies on that. But fixed seeds
//! only try the same cases. So each suite also tries a fresh seed in each run, in a smaller size. It is
//! printed when it is chosen, so that it is known however the process ends.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// The environment variable that sets the seed.
const VARIABLE: &str = "BOWLINE_SEED";

/// The environment variable that, set to `0`, disables fresh seeds, for repeatable runs.
const FRESH_VARIABLE: &str = "BOWLINE_FRESH_SEED";

/// The seed of a random test. Displayed as the command line that repeats the test.
///
/// ```
/// use bowline_testing::Seed;
///
/// let seed = Seed::from_env_or(42);
/// let _printed_when_this_test_fails = seed.print_on_failure("my_random_test");
/// let mut random = seed.rng();
/// assert!(random.u8(0..10) < 10, "{seed}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed in `BOWLINE_SEED` (decimal, or hexadecimal after `0x`), else `default`.
    ///
    /// # Panics
    /// When the variable is set to something else: a test must not silently run with another seed than the
    /// requested one.
    #[must_use]
    pub fn from_env_or(default: u64) -> Seed {
        Seed::named().unwrap_or(Seed(default))
    }

    /// The seed in `BOWLINE_SEED`.
    ///
    /// # Panics
    /// As [`Seed::from_env_or`].
    #[must_use]
    pub fn named() -> Option<Seed> {
        let text = std::env::var_os(VARIABLE)?;
        match text.to_str().and_then(parse) {
            Some(seed) => Some(Seed(seed)),
            None => panic!(
                "{VARIABLE} must be a number below 2^64, not {}",
                text.display()
            ),
        }
    }

    /// The seed of a test that is for fresh ones: the one in `BOWLINE_SEED`, else [`Seed::fresh`]; `None` if
    /// fresh ones are disabled.
    ///
    /// # Panics
    /// As [`Seed::from_env_or`].
    #[must_use]
    pub fn named_or_fresh(test: &str) -> Option<Seed> {
        Seed::named().or_else(|| Seed::fresh(test))
    }

    /// The fresh seed of this process, printed once with the name of the test, of its runner or of its suite;
    /// `None` when `BOWLINE_SEED` sets another, or `BOWLINE_FRESH_SEED` is `0`.
    #[must_use]
    pub fn fresh(test: &str) -> Option<Seed> {
        static FRESH: OnceLock<u64> = OnceLock::new();
        static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let is_unwanted = std::env::var_os(FRESH_VARIABLE).is_some_and(|value| value == "0");
        if is_unwanted || std::env::var_os(VARIABLE).is_some() {
            return None;
        }
        // A hasher's keys come from the system's randomness.
        let seed = Seed(*FRESH.get_or_init(|| RandomState::new().hash_one(0)));
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !printed.iter().any(|name| name == test) {
            printed.push(test.to_owned());
            // Past the runner, which hides the output of a passing test. A write error does not matter.
            let line = format!("fresh seed of {test}: {VARIABLE}={}\n", seed.0);
            let _ = io::stderr().write_all(line.as_bytes());
        }
        Some(seed)
    }

    /// The seeds of a short test: [`Seed::from_env_or`] and [`Seed::fresh`].
    ///
    /// # Panics
    /// As [`Seed::from_env_or`].
    pub fn fixed_and_fresh(fixed: u64, test: &str) -> impl Iterator<Item = Seed> + use<> {
        std::iter::once(Seed::from_env_or(fixed)).chain(Seed::fresh(test))
    }

    /// The seeds of a test that tries many: `fixed`, and a tenth as many (at least one) from [`Seed::fresh`] on. If
    /// `BOWLINE_SEED` is set: only that tenth, from its seed on.
    ///
    /// If the loop over them panics, it prints how to repeat the test from the current seed on. `suite` is what
    /// `cargo test` needs to find it.
    ///
    /// ```
    /// use bowline_testing::Seed;
    ///
    /// for seed in Seed::many(0..20, "-p my-crate --lib") {
    ///     assert!(Seed(seed).rng().u8(0..10) < 10, "seed {seed}");
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`Seed::from_env_or`].
    #[must_use]
    pub fn many(fixed: Range<u64>, suite: &'static str) -> Seeds {
        let tenth = (fixed.end - fixed.start).div_ceil(10);
        let (named, fresh) = (Seed::named(), Seed::fresh(suite));
        Seeds {
            suite,
            fixed: if named.is_some() { 0..0 } else { fixed },
            next: named.or(fresh).unwrap_or(Seed(0)),
            left: if named.or(fresh).is_some() { tenth } else { 0 },
            current: None,
        }
    }

    /// A generator that starts at this seed.
    #[must_use]
    pub fn rng(self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.0)
    }

    /// The seed of part `part` of a test: different parts get unrelated seeds.
    #[must_use]
    pub fn part(self, part: u64) -> Seed {
        let mut random =
            fastrand::Rng::with_seed(self.0 ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Seed(random.u64(..))
    }

    /// Prints how to repeat the test if the guard is dropped by a panic.
    pub fn print_on_failure(self, test: &'static str) -> SeedGuard {
        SeedGuard { seed: self, test }
    }
}

/// Iterator of [`Seed::many`].
#[derive(Debug)]
pub struct Seeds {
    suite: &'static str,
    fixed: Range<u64>,
    /// The next one after the fixed ones, and how many are left from it on.
    next: Seed,
    left: u64,
    current: Option<Seed>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = self.fixed.next().map(Seed).or_else(|| {
            self.left = self.left.checked_sub(1)?;
            let seed = self.next;
            self.next = Seed(seed.0.wrapping_add(1));
            Some(seed)
        });
        self.current.map(|seed| seed.0)
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let (true, Some(seed)) = (thread::panicking(), self.current) {
            // The runner names a test's thread after it, unless it runs one at a time.
            let this = thread::current();
            let test = this.name().filter(|name| *name != "main");
            eprintln!("{seed} {} {}", self.suite, test.unwrap_or_default());
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repeat with: {VARIABLE}={} cargo test", self.0)
    }
}

/// Prints the seed when its test fails.
#[derive(Debug)]
#[must_use = "the seed is printed when the guard is dropped during a panic"]
pub struct SeedGuard {
    seed: Seed,
    test: &'static str,
}

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{} {}", self.seed, self.test);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_seed_reads_back() {
        let shown = Seed(u64::MAX).to_string();
        let number = shown.split(['=', ' ']).find_map(parse);
        assert_eq!(number, Some(u64::MAX), "{shown}");
        assert_eq!(parse("0xff"), Some(255));
        assert_eq!(parse(" 7\n"), Some(7));
        assert_eq!((parse("seven"), parse("-1"), parse("")), (None, None, None));
    }

    #[test]
    fn a_process_has_one_fresh_seed_unless_it_is_given_one() {
        let seeds: Vec<Seed> = Seed::fixed_and_fresh(7, "-p bowline-testing").collect();
        match std::env::var_os(VARIABLE).is_some() || std::env::var_os(FRESH_VARIABLE).is_some() {
            true => assert_eq!(seeds, [Seed::from_env_or(7)]),
            false => {
                assert_eq!((seeds.len(), seeds[0]), (2, Seed(7)));
                assert_eq!(Seed::fresh("again"), Some(seeds[1]));
                assert_eq!(Seed::named_or_fresh("again"), Some(seeds[1]));
            }
        }
    }

    #[test]
    fn many_seeds_are_the_fixed_ones_and_a_tenth_of_fresh_ones_or_the_named_ones() {
        let suite = "-p bowline-testing --lib";
        let fixed: Vec<u64> = (30..45).collect();
        let seeds: Vec<u64> = Seed::many(30..45, suite).collect();
        match (Seed::named(), Seed::fresh(suite)) {
            (Some(Seed(first)), _) => assert_eq!(seeds, [first, first.wrapping_add(1)]),
            (None, Some(Seed(first))) => {
                assert_eq!(seeds[..15], fixed);
                assert_eq!(seeds[15..], [first, first.wrapping_add(1)]);
            }
            (None, None) => assert_eq!(seeds, fixed),
        }
    }

    /// A test of fresh seeds repeats the given one, and tries none where they are disabled. Runs itself as a
    /// process, once for each.
    #[test]
    fn a_test_of_fresh_seeds_repeats_the_one_that_is_named() {
        const CHILD: &str = "BOWLINE_TEST_SEEDS";
        if let Some(expected) = std::env::var_os(CHILD) {
            let seed = Seed::named_or_fresh("a child").map(|seed| seed.0);
            assert_eq!(format!("{seed:?}"), expected.to_string_lossy());
            return;
        }
        let name = "seed::tests::a_test_of_fresh_seeds_repeats_the_one_that_is_named";
        for (variable, value, expected) in
            [(VARIABLE, "41", "Some(41)"), (FRESH_VARIABLE, "0", "None")]
        {
            let mut command =
                std::process::Command::new(std::env::current_exe().expect("a program"));
            command.env_remove(VARIABLE).env_remove(FRESH_VARIABLE);
            command.env(variable, value).env(CHILD, expected);
            let output = command.args(["--exact", name]).output();
            assert!(
                output.expect("it runs").status.success(),
                "{variable}={value}"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_parts_differ() {
        assert_eq!(Seed(5).rng().u64(..), Seed(5).rng().u64(..));
        assert_eq!(Seed(5).part(1), Seed(5).part(1));
        assert_ne!(Seed(5).part(1), Seed(5).part(2));
        assert_ne!(Seed(5).part(1), Seed(6).part(1));
    }
}
