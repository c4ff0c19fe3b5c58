//! Replays fuzzed inputs without a fuzzer: seeds, a stored corpus, and mutations of both.
//!
//! A coverage-guided fuzzer needs its own build and minutes. Its findings are in a corpus of small files,
//! packed by `tar`; running those, and some thousand random mutations of them, takes milliseconds with any
//! compiler, and protects from regressions.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::io::Read;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tar::Archive;

use crate::Seed;

/// The environment variable for the number of mutations per target.
const CASES_VARIABLE: &str = "BOWLINE_FUZZ_CASES";
/// When set, seeds are written to the directory in which `tools/fuzz/run` stores its findings.
const WRITE_VARIABLE: &str = "BOWLINE_FUZZ_WRITE_SEEDS";
const CASES: u64 = 4_000;
/// The largest input.
const INPUT_BYTES_MAX: usize = 16 << 10;

/// A step that takes longer counts as hanging: its input is some kilobytes.
const STEP: Duration = Duration::from_secs(120);

/// Ends the process when a step of a test hangs, since a thread cannot be stopped.
#[derive(Debug)]
pub struct Watchdog {
    steps: mpsc::Sender<Vec<u8>>,
}

impl Watchdog {
    /// Watches `test` from now on, until it is dropped.
    #[must_use]
    pub fn new(test: &'static str) -> Watchdog {
        let (steps, receiver) = mpsc::channel::<Vec<u8>>();
        thread::spawn(move || {
            let mut input = Vec::new();
            loop {
                match receiver.recv_timeout(STEP) {
                    Ok(next) => input = next,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("{test} hangs: no end after {} s", STEP.as_secs());
                        eprintln!("input of {} bytes: {}", input.len(), input.escape_ascii());
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog { steps }
    }

    /// Begins the next step, whose input is printed if it hangs.
    pub fn step(&self, input: &[u8]) {
        // An error is impossible: the thread lives as long as this.
        let _ = self.steps.send(input.to_vec());
    }
}

/// Runs `target` on `seeds`, on every file in the archive `corpus`, and on mutations of these. The target judges: it
/// panics on what must not be. An empty path is no corpus.
///
/// # Panics
/// When the corpus is missing or empty, so that no test passes for having tried nothing; when `target` does, after printing the input and how to repeat it. An input that takes two minutes ends
/// the process.
pub fn replay(test: &'static str, corpus: &Path, seeds: Vec<Vec<u8>>, target: impl Fn(&[u8])) {
    let seed = Seed::from_env_or(0xf0_22);
    let cases: u64 = std::env::var(CASES_VARIABLE).map_or(CASES, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{CASES_VARIABLE} must be a number, not {text}"))
    });
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        write_seeds(test, corpus, &seeds);
    }
    let mut inputs = seeds;
    inputs.push(Vec::new());
    let seeds_count = inputs.len() - 1;
    inputs.extend(files(corpus));
    let files_count = inputs.len() - 1 - seeds_count;
    let is_wanted = !corpus.as_os_str().is_empty() && std::env::var_os(WRITE_VARIABLE).is_none();
    assert!(
        !is_wanted || files_count > 0,
        "{}: no corpus",
        corpus.display()
    );
    let watchdog = Watchdog::new(test);
    let run = |input: &[u8], case: Option<u64>| {
        watchdog.step(input);
        let done = panic::catch_unwind(AssertUnwindSafe(|| target(input)));
        if let Err(cause) = done {
            match case {
                None => eprintln!("{test}: an input of the corpus fails"),
                Some(case) if case < cases => {
                    eprintln!("{seed} {test} (case {case} of {cases})");
                }
                // The fresh seed was printed when it was chosen.
                Some(case) => eprintln!("{test}: case {} of the fresh seed", case - cases),
            }
            eprintln!("input of {} bytes: {}", input.len(), input.escape_ascii());
            panic::resume_unwind(cause);
        }
    };
    for input in &inputs {
        run(input, None);
    }
    let mut random = seed.rng();
    // A tenth more has a fresh seed in each run.
    let fresh = Seed::fresh(test);
    let fresh_cases = if fresh.is_some() { cases / 10 } else { 0 };
    for case in 0..cases + fresh_cases {
        if let Some(fresh) = fresh.filter(|_| case == cases) {
            random = fresh.rng();
        }
        let mut input = random.choice(&inputs).cloned().unwrap_or_default();
        for _ in 0..random.usize(1..=6) {
            mutate(&mut input, &inputs, &mut random);
        }
        input.truncate(INPUT_BYTES_MAX);
        run(&input, Some(case));
    }
    println!("{test}: {seeds_count} seeds, {files_count} corpus files, {cases} mutations");
}

/// The files of an archive; none when it does not exist.
fn files(corpus: &Path) -> Vec<Vec<u8>> {
    let packed = match File::open(corpus) {
        Ok(packed) => packed,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{}: {error}", corpus.display()),
    };
    let mut archive = Archive::new(packed);
    let files = archive.entries().expect("the corpus is an archive");
    let read = files.map(|file| {
        let mut bytes = Vec::new();
        let mut file = file.expect("a file of the corpus");
        file.read_to_end(&mut bytes).expect("it reads");
        bytes
    });
    read.collect()
}

fn write_seeds(test: &str, corpus: &Path, seeds: &[Vec<u8>]) {
    let target = corpus.file_stem().expect("the name of a target");
    let found = corpus.parent().and_then(Path::parent).expect("a folder");
    let found = found.join("out/corpus").join(target);
    fs::create_dir_all(&found).expect("the folder can be created");
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(found.join(format!("{test}-{number}")), seed).expect("a seed can be written");
    }
}

/// Changes an input in one of the ways that may mislead a decoder.
fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut fastrand::Rng) {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 32,
        i64::MAX as u64,
        u64::MAX,
    ];
    let len = input.len();
    let at = random.usize(..=len);
    let end = at + random.usize(..=(len - at).min(32));
    match random.u8(..9) {
        0 if at < len => input[at] ^= 1 << random.u8(..8),
        1 if at < len => input[at] = random.u8(..),
        2 if at < len => input[at] = input[at].wrapping_add(random.u8(..3)).wrapping_sub(1),
        3 => {
            let number = NUMBERS[random.usize(..NUMBERS.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.usize(..4)].min(len - at);
            input[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => drop(input.drain(at..end)),
        5 => {
            let piece = input[at..end].to_vec();
            let to = random.usize(..=len);
            input.splice(to..to, piece);
        }
        6 => {
            let piece: Vec<u8> = (0..random.usize(1..12)).map(|_| random.u8(..)).collect();
            input.splice(at..at, piece);
        }
        7 => input.truncate(at),
        _ => {
            let other = random.choice(others).map_or(&[][..], Vec::as_slice);
            let from = random.usize(..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_panic_deep_in_a_target_is_found_and_passed_on() {
        let found = panic::catch_unwind(|| {
            replay("a", Path::new(""), vec![b"abc".to_vec()], |input| {
                assert!(!input.starts_with(b"ab\xff"), "found");
            });
        });
        assert!(found.is_err());
    }

    #[test]
    fn a_corpus_that_is_missing_is_an_error() {
        let missing = Path::new("/nonexistent/corpus.tar");
        let found = panic::catch_unwind(|| replay("c", missing, Vec::new(), |_| {}));
        assert!(found.is_err());
    }

    #[test]
    fn mutations_reach_every_length_and_many_bytes() {
        let (longest, empty) = (Cell::new(0), Cell::new(0));
        replay("b", Path::new(""), vec![vec![7; 40]], |input| {
            longest.set(longest.get().max(input.len()));
            empty.set(empty.get() + usize::from(input.is_empty()));
        });
        assert!(longest.get() > 60 && empty.get() > 10);
    }
}
