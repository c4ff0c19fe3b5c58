//! The first figures: durable commits beside the raw disk, reads from memory and from tables,
//! scans, and the graph. See `docs/benchmarks.md`.
//!
//! ```text
//! cargo bench -p bowline --bench figures -- [--long] [--rounds N] [--only TEXT] [--dir PATH]
//! ```
//!
//! Prints a table, one row per figure, in Markdown. Every row checks that it did its work: values
//! read are the values written, revisions rise by the number of commits, flushes were made, and
//! what is said to come from memory or from the cache does.
//!
//! Without `--bench` in the arguments (`cargo test --benches`) it runs every row once, for a few
//! milliseconds, on little data: a test of the benchmark, not a measurement.

#[path = "figures/data.rs"]
mod data;
#[path = "figures/report.rs"]
mod report;
#[path = "figures/rows.rs"]
mod rows;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use data::{Data, EVERY, FULL, SEED, SMOKE};
use report::{Fallible, measure};
use rows::rows;

struct Arguments {
    is_smoke: bool,
    rounds: usize,
    sample: Duration,
    only: String,
    directory: PathBuf,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Fallible<Arguments> {
        let given: Vec<String> = arguments.collect();
        let has = |name: &str| given.iter().any(|argument| argument == name);
        let value = |name: &str| {
            let at = given.iter().position(|argument| argument == name)?;
            given.get(at + 1)
        };
        let is_smoke = !has("--bench") || has("--test");
        let is_long = has("--long") && !has("--quick");
        let (mut rounds, sample_ms) = match (is_smoke, is_long) {
            (true, _) => (1, 2),
            (false, true) => (15, 1_000),
            (false, false) => (7, 250),
        };
        if let Some(count) = value("--rounds") {
            rounds = count.parse()?;
        }
        let directory = value("--dir").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        Ok(Arguments {
            is_smoke,
            rounds,
            sample: Duration::from_millis(sample_ms),
            only: value("--only").cloned().unwrap_or_default(),
            directory,
        })
    }
}

fn main() -> Fallible<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let directory = tempfile::Builder::new()
        .prefix("figures-")
        .tempdir_in(std::fs::canonicalize(&arguments.directory)?)?;
    let load_before = report::load_average();
    let start = Instant::now();
    let scale = if arguments.is_smoke { SMOKE } else { FULL };
    let data = Data::new(scale, directory.path().to_owned());
    let mut rows = rows(&data);
    rows.retain(|row| row.name().contains(&arguments.only));
    let table = measure(&mut rows, arguments.rounds, arguments.sample)?;
    let rounds = arguments.rounds;
    let sample_ms = arguments.sample.as_millis();
    println!("{}", report::surroundings(directory.path()));
    println!(
        "- load average: {load_before} before, {} after",
        report::load_average()
    );
    println!("- durability: `Sync` where a row says durable, else `Batched` every {EVERY:?}");
    println!("- bowline {}, seed {SEED:#X}", env!("CARGO_PKG_VERSION"));
    println!(
        "- {rounds} rounds of {sample_ms} ms per row, {:.0?} in all",
        start.elapsed()
    );
    if cfg!(debug_assertions) {
        println!("- built without optimization: not figures");
    }
    println!("\n{table}");
    Ok(())
}
