//! The arguments of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::measure::Plan;

/// Bowline's figures, and other stores' beside them.
#[derive(Debug, Parser)]
#[command(name = "bowline-bench", version, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// The figures S1 to S13: Bowline, and other stores where this was built with `peers`.
    Peers {
        #[command(flatten)]
        run: RunArguments,
        /// Only these stores, by name, with commas between them.
        #[arg(long, value_delimiter = ',')]
        stores: Vec<String>,
    },
    /// The reference tables: each row beside its published figure.
    Reference {
        #[command(flatten)]
        run: RunArguments,
    },
    /// The figures G1 to G9: a large graph through the graph view, beside bare arrays; and questions beside other
    /// stores of graphs, petgraph and SQLite where this was built with `peers`.
    Graph {
        #[command(flatten)]
        run: RunArguments,
        /// The graph has two to the power of this vertices. Default: 20, with `--quick` 16.
        #[arg(long, value_parser = clap::value_parser!(u32).range(10..=20))]
        scale: Option<u32>,
        /// Asks LadybugDB, too, through this Python, where it can import `ladybug`.
        #[arg(long, value_name = "PYTHON", num_args = 0..=1, require_equals = true, default_missing_value = "python3")]
        ladybug: Option<String>,
    },
    /// Nine queries about 100,000 people with 2.7 million edges (with `--quick` 20,000 people), in Cypher, beside SQLite where
    /// this was built with `sqlite`; and a query beside the same by calls.
    People {
        #[command(flatten)]
        run: RunArguments,
        /// Asks LadybugDB, too, through this Python, where it can import `ladybug`.
        #[arg(long, value_name = "PYTHON", num_args = 0..=1, require_equals = true, default_missing_value = "python3")]
        ladybug: Option<String>,
    },
    /// Instructions of the hot paths, counted by valgrind.
    Instructions,
    /// Writes the results of the last runs into `docs/benchmarks.md`, with charts.
    Report {
        #[command(flatten)]
        results: Results,
        /// The directory of the documents.
        #[arg(long)]
        docs: Option<PathBuf>,
    },
    /// Keeps the ratios of the last run of `peers`, and instruction counts, as the baseline.
    Save {
        #[command(flatten)]
        results: Results,
        #[command(flatten)]
        baseline: BaselineArguments,
    },
    /// Compares the last run of `peers`, and instruction counts, with the baseline; fails when one
    /// is worse.
    Compare {
        #[command(flatten)]
        results: Results,
        #[command(flatten)]
        baseline: BaselineArguments,
        /// By how many percent a ratio may be worse.
        #[arg(long, default_value_t = 20.0)]
        tolerance: f64,
        /// By how many percent an instruction count may be worse.
        #[arg(long, default_value_t = 3.0)]
        instruction_tolerance: f64,
    },
    /// What the row of memory runs in a process of its own.
    #[command(hide = true)]
    ChildMemory {
        store: String,
        path: PathBuf,
        budget_bytes: u64,
        written_bytes: u64,
    },
    /// What is killed for the rows of recovery: writes, tells it, and waits.
    #[command(hide = true)]
    ChildWrite {
        store: String,
        path: PathBuf,
        bytes: u64,
        #[arg(long)]
        keep_in_log: bool,
    },
    /// What the rows of recovery run in a process of its own.
    #[command(hide = true)]
    ChildRecover {
        store: String,
        path: PathBuf,
        bytes: u64,
        #[arg(long)]
        keep_in_log: bool,
    },
    /// What runs under valgrind.
    #[command(hide = true)]
    ChildPath { name: String, count: u64 },
}

impl Command {
    /// Whether it takes figures, and does not only show or compare them.
    pub fn measures(&self) -> bool {
        matches!(
            self,
            Command::Peers { .. }
                | Command::Reference { .. }
                | Command::Graph { .. }
                | Command::People { .. }
        )
    }
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Less data and shorter samples: some minutes.
    #[arg(long)]
    pub quick: bool,
    /// Tests the program on next to no data: measures nothing.
    #[arg(long, hide = true, conflicts_with = "quick")]
    pub smoke: bool,
    /// How many rounds count. Default: 9, with `--quick` 5.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// How long one sample lasts, in milliseconds. Default: 500, with `--quick` 60.
    #[arg(long)]
    pub sample_ms: Option<u64>,
    /// Only rows whose names hold this.
    #[arg(long, default_value = "")]
    pub only: String,
    /// Where the data goes: on the disk that is meant. Default: the target directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub results: Results,
}

impl RunArguments {
    pub fn plan(&self) -> Plan {
        let (rounds, long_rounds, sample_ms) = match (self.smoke, self.quick) {
            (true, _) => (1, 1, 2),
            (false, true) => (5, 1, 60),
            (false, false) => (9, 5, 500),
        };
        let rounds = self.rounds.map_or(rounds, usize::from);
        Plan {
            rounds,
            long_rounds: self.rounds.map_or(long_rounds, |_| rounds),
            sample: Duration::from_millis(self.sample_ms.unwrap_or(sample_ms)),
        }
    }
}

#[derive(Debug, Args)]
pub struct Results {
    /// Where results are kept between runs. Default: `bowline-bench` in the target directory.
    #[arg(long)]
    pub results: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BaselineArguments {
    /// The baseline. Default: `baseline.json` beside this program's source.
    #[arg(long)]
    pub baseline: Option<PathBuf>,
    /// Only the ratios: valgrind takes its time.
    #[arg(long)]
    pub without_instructions: bool,
}
