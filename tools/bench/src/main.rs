//! Bowline's figures, and other stores' beside them.
//!
//! ```text
//! cargo run --release -p bowline-bench --features peers -- peers      S1 to S13, F first
//! cargo run --release -p bowline-bench -- reference                   the reference tables
//! cargo run --release -p bowline-bench -- graph                       G1 to G9, and other graph stores
//! cargo run --release -p bowline-bench -- people                      queries in Cypher beside other stores
//! cargo run --release -p bowline-bench -- instructions                what the hot paths cost
//! cargo run --release -p bowline-bench -- report                      docs/benchmarks.md, charts
//! cargo run --release -p bowline-bench -- save | compare              the baseline
//! ```
//!
//! `peers`, `reference` and `graph` keep what they measured; the others use that. With `--quick` each takes
//! some minutes. Without the feature `peers` no other store is compiled, and the tables have
//! Bowline alone. `graph --ladybug` asks LadybugDB, too, through Python.
//!
//! | module | what is in it |
//! |---|---|
//! | `measure`, `timing`, `statistics` | turns, rounds, samples; ratios within a round |
//! | `result`, `table`, `chart`, `report` | what is kept of a run, and how it is shown |
//! | `baseline`, `instructions` | what must not get worse |
//! | `store` | the stores behind one interface, each with its configuration |
//! | `peers` | the rows S1 to S13 |
//! | `reference` | the rows of the reference tables |
//! | `graph` | the rows G1 to G9, and those beside other stores of graphs |
//! | `people` | queries about people, beside other stores and beside calls |
//! | `data`, `machine` | keys and values; disk, memory and kernel |

mod arguments;
mod baseline;
mod chart;
mod data;
mod fallible;
mod graph;
mod instructions;
mod machine;
mod measure;
mod peers;
mod people;
mod reference;
mod report;
mod result;
mod statistics;
mod store;
mod table;
mod timing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use arguments::{Arguments, BaselineArguments, Command, Results, RunArguments};
use baseline::Baseline;
use clap::Parser;
use fallible::Fallible;
use instructions::Instructions;
use measure::{MACHINE, Row, measure};
use result::RunResult;
use store::{SYSTEMS, System};

const PEERS_FILE: &str = "peers.json";
const REFERENCE_FILE: &str = "reference.json";
const GRAPH_FILE: &str = "graph.json";
const PEOPLE_FILE: &str = "people.json";

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let prepared = match command.measures() {
        true => machine::give_large_pages_to_all(),
        false => Ok(()),
    };
    match prepared.and_then(|()| work(command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(command: Command) -> Fallible<ExitCode> {
    match command {
        Command::Peers { run, stores } => peers(&run, &stores)?,
        Command::Reference { run } => reference(&run)?,
        Command::Graph {
            run,
            scale,
            ladybug,
        } => graph(&run, scale, ladybug.as_deref())?,
        Command::People { run, ladybug } => people(&run, ladybug.as_deref())?,
        Command::Instructions => print!("{}", instructions::count()?.table()),
        Command::Report { results, docs } => {
            let docs = docs.unwrap_or_else(|| root().join("docs"));
            let load = |file| {
                let path = path_of(&results, file)?;
                match path.exists() {
                    true => RunResult::load(&path).map(Some),
                    false => Ok(None),
                }
            };
            let (peers, reference) = (load(PEERS_FILE)?, load(REFERENCE_FILE)?);
            if peers.is_none() && reference.is_none() {
                return Err("no results: run `peers` or `reference` first".into());
            }
            report::write(&docs, peers.as_ref(), reference.as_ref())?;
        }
        Command::Save { results, baseline } => {
            let peers = RunResult::load(&path_of(&results, PEERS_FILE)?)?;
            let now = Baseline::of(&peers, counted(&baseline)?);
            let path = baseline.baseline.unwrap_or_else(default_baseline);
            now.save(&path)?;
            println!("saved {}", path.display());
        }
        Command::Compare {
            results,
            baseline,
            tolerance,
            instruction_tolerance,
        } => {
            let peers = RunResult::load(&path_of(&results, PEERS_FILE)?)?;
            let now = Baseline::of(&peers, counted(&baseline)?);
            let before = Baseline::load(&baseline.baseline.unwrap_or_else(default_baseline))?;
            let comparison = before.compare(&now, tolerance, instruction_tolerance);
            print!("{comparison}");
            if comparison.is_worse() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::ChildMemory {
            store,
            path,
            budget_bytes,
            written_bytes,
        } => println!(
            "{}",
            peers::memory_child(&store, &path, budget_bytes, written_bytes)?
        ),
        Command::ChildWrite {
            store,
            path,
            bytes,
            keep_in_log,
        } => peers::write_child(&store, &path, bytes, keep_in_log)?,
        Command::ChildRecover {
            store,
            path,
            bytes,
            keep_in_log,
        } => println!(
            "{}",
            peers::recover_child(&store, &path, bytes, keep_in_log)?.as_nanos()
        ),
        Command::ChildPath { name, count } => instructions::child(&name, count)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn counted(arguments: &BaselineArguments) -> Fallible<Instructions> {
    if arguments.without_instructions {
        return Ok(Instructions::default());
    }
    instructions::count()
}

fn peers(arguments: &RunArguments, stores: &[String]) -> Fallible<()> {
    let scale = match (arguments.smoke, arguments.quick) {
        (true, _) => peers::Scale::SMOKE,
        (false, true) => peers::Scale::QUICK,
        (false, false) => peers::Scale::FULL,
    };
    let systems: Vec<&'static System> = if stores.is_empty() {
        SYSTEMS.iter().collect()
    } else {
        let named = stores.iter().map(|name| store::system(name));
        named.collect::<Fallible<_>>()?
    };
    let directory = data_directory(arguments)?;
    let stage = peers::Stage::new(scale, directory.path(), systems, std::env::current_exe()?);
    let contestants = stage.systems.iter().map(|system| {
        let what = format!("{}: {}", system.version, system.configuration);
        (system.name.to_owned(), what)
    });
    let run = Run {
        arguments,
        directory: directory.path(),
        scale: scale.name.to_owned(),
        contestants: contestants.collect(),
        left_out: Vec::new(),
        ours: &[store::BOWLINE.name, MACHINE],
        file: PEERS_FILE,
    };
    run.finish(peers::rows(&stage), table::peers)
}

fn reference(arguments: &RunArguments) -> Fallible<()> {
    let scale = match (arguments.smoke, arguments.quick) {
        (true, _) => reference::Scale::SMOKE,
        (false, true) => reference::Scale::QUICK,
        (false, false) => reference::Scale::FULL,
    };
    let directory = data_directory(arguments)?;
    let place = reference::Place::new(scale, directory.path());
    let version = |what: &str| format!("{}, {what}", store::BOWLINE.version);
    let contestants = vec![
        (
            reference::SYNC.to_owned(),
            version("each commit flushed before it returns"),
        ),
        (
            reference::BATCHED.to_owned(),
            version("flushed every 10 ms by a thread"),
        ),
    ];
    let run = Run {
        arguments,
        directory: directory.path(),
        scale: scale.name.to_owned(),
        contestants,
        left_out: Vec::new(),
        ours: &[reference::SYNC, reference::BATCHED, MACHINE],
        file: REFERENCE_FILE,
    };
    run.finish(reference::rows(&place), table::reference)
}

fn graph(arguments: &RunArguments, scale: Option<u32>, ladybug: Option<&str>) -> Fallible<()> {
    let (name, default) = match (arguments.smoke, arguments.quick) {
        (true, _) => ("smoke", 8),
        (false, true) => ("quick", 16),
        (false, false) => ("full", 20),
    };
    let scale = scale.unwrap_or(default);
    let directory = data_directory(arguments)?;
    let stage = graph::Stage::new(scale, directory.path())?;
    let beside = graph::Beside::new(&stage, directory.path(), ladybug)?;
    let run = Run {
        arguments,
        directory: directory.path(),
        scale: format!("{name}, {stage}"),
        contestants: graph::contestants(&beside),
        left_out: beside.left_out.clone(),
        ours: &[store::BOWLINE.name, MACHINE],
        file: GRAPH_FILE,
    };
    run.finish(graph::rows(&stage, &beside, directory.path()), table::peers)
}

fn people(arguments: &RunArguments, ladybug: Option<&str>) -> Fallible<()> {
    let count = match (arguments.smoke, arguments.quick) {
        (true, _) => 600,
        (false, true) => 20_000,
        (false, false) => 100_000,
    };
    let directory = data_directory(arguments)?;
    let stage = people::Stage::new(count, directory.path(), ladybug)?;
    let run = Run {
        arguments,
        directory: directory.path(),
        scale: stage.scale(),
        contestants: stage.contestants(),
        left_out: stage.left_out.clone(),
        ours: &[store::BOWLINE.name, MACHINE],
        file: PEOPLE_FILE,
    };
    run.finish(stage.rows(), table::peers)
}

/// A run of rows, and what is told of it.
struct Run<'a> {
    arguments: &'a RunArguments,
    directory: &'a Path,
    scale: String,
    contestants: Vec<(String, String)>,
    /// Who does not take part, and why.
    left_out: Vec<String>,
    ours: &'a [&'a str],
    file: &'a str,
}

impl Run<'_> {
    /// Measures, prints and keeps the result.
    fn finish(self, mut rows: Vec<Row<'_>>, shown: fn(&RunResult) -> String) -> Fallible<()> {
        rows.retain(|row| row.name.contains(&self.arguments.only));
        if rows.is_empty() {
            return Err(format!("no row has {:?} in its name", self.arguments.only).into());
        }
        let plan = self.arguments.plan();
        let load_before = machine::load_average();
        let start = Instant::now();
        let rows = measure(&mut rows, &plan, self.ours)?;
        let mut circumstances = machine::surroundings(self.directory);
        let mut tell = |what: &str, which: String| circumstances.push((what.to_owned(), which));
        tell(
            "load average",
            format!("{load_before} before, {} after", machine::load_average()),
        );
        tell(
            "rounds",
            format!(
                "{} of {:?} per row and store, {} of the long rows, {:.0?} in all",
                plan.rounds,
                plan.sample,
                plan.long_rounds.min(plan.rounds),
                start.elapsed()
            ),
        );
        tell("data", self.scale);
        if !self.arguments.only.is_empty() {
            tell("rows", format!("only with {:?}", self.arguments.only));
        }
        tell("seed", format!("{:#X}", data::SEED));
        for which in self.left_out {
            tell("left out", which);
        }
        if cfg!(debug_assertions) {
            tell("build", "without optimization: not figures".to_owned());
        }
        let result = RunResult {
            circumstances,
            contestants: self.contestants,
            ours: self.ours.iter().map(|&name| name.to_owned()).collect(),
            rows,
        };
        result.save(&path_of(&self.arguments.results, self.file)?)?;
        print!("{}", shown(&result));
        Ok(())
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn default_baseline() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.json")
}

/// The directory that this program was built in: `target`, wherever that is.
fn target() -> Fallible<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2);
    Ok(target.ok_or("this program is nowhere")?.to_owned())
}

fn path_of(results: &Results, file: &str) -> Fallible<PathBuf> {
    let directory = match &results.results {
        Some(directory) => directory.clone(),
        None => target()?.join("bowline-bench"),
    };
    Ok(directory.join(file))
}

/// Where the data goes. Removed with all that is in it.
fn data_directory(arguments: &RunArguments) -> Fallible<tempfile::TempDir> {
    let parent = match &arguments.dir {
        Some(directory) => directory.clone(),
        None => target()?,
    };
    let mut builder = tempfile::Builder::new();
    Ok(builder
        .prefix("bench-")
        .tempdir_in(std::fs::canonicalize(parent)?)?)
}
