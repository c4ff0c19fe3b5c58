//! The arguments of the commands about files, and of those about the database as a whole.

use std::path::PathBuf;

use bowline::Revision;
use clap::{Args, ValueEnum};

use super::Write;
use crate::import;
use bowline_load::units::parse_size;

/// `bowline import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The file; standard input if `-`
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// What the file is
    #[arg(long, value_enum, default_value_t = ImportFormat::Auto)]
    pub format: ImportFormat,
    /// Stop at the first malformed part, which is reported with its line and column. What precedes it
    /// may have been written
    #[arg(long)]
    pub strict: bool,
    /// Load blocks and edges straight into the tables of a directory, as one revision: all of them, or
    /// none if an edge's block is missing. For a hundred thousand edges and more
    #[arg(long, conflicts_with_all = ["batch", "batch_bytes", "durability"])]
    pub bulk: bool,
    /// How many items go into one transaction
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// How many bytes go into one transaction at most, unless a single item has more
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_size)]
    pub batch_bytes: u64,
    /// The kind of the blocks of a Cargo.lock or an edge list [default: package, node]
    #[arg(long, value_name = "KIND")]
    pub block_kind: Option<String>,
    /// The kind of the edges of a Cargo.lock or an edge list [default: depends_on, links]
    #[arg(long, value_name = "KIND")]
    pub edge_kind: Option<String>,
    /// The attribute that takes an edge list's third column; `weight` has to be a number
    #[arg(long, value_name = "ATTRIBUTE", default_value = "weight")]
    pub third_column: String,
    /// How many lines of an edge list to skip first, such as a header
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_lines: u64,
    /// The longest line taken [default: 1MiB for an edge list, 2GiB for JSON Lines]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_line: Option<u64>,
    /// How the write is acknowledged.
    #[command(flatten)]
    pub write: Write,
}

impl Import {
    /// What the parsers need to know.
    #[must_use]
    pub fn options(&self) -> import::Options {
        import::Options {
            block_kind: self.block_kind.clone(),
            edge_kind: self.edge_kind.clone(),
            third_column: self.third_column.clone(),
            skip_lines: self.skip_lines,
            line_max_bytes: self
                .max_line
                .map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
        }
    }
}

/// The format of a file to import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// Detected from the name and the first bytes
    Auto,
    /// A Cargo.lock
    CargoLock,
    /// Two ids per line, separated by tab, space or comma
    EdgeList,
    /// One JSON object per line, as `export` writes them
    Jsonl,
}

impl ImportFormat {
    /// The format asked for; `None` if it is to be detected from the file.
    #[must_use]
    pub fn fixed(self) -> Option<import::Format> {
        match self {
            ImportFormat::Auto => None,
            ImportFormat::CargoLock => Some(import::Format::CargoLock),
            ImportFormat::EdgeList => Some(import::Format::EdgeList),
            ImportFormat::Jsonl => Some(import::Format::JsonLines),
        }
    }
}

/// `bowline export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The file to write; standard output if `-`
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION")]
    pub rev: Option<Revision>,
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Keys, blocks and edges, one JSON object per line; `import` reads it back
    Jsonl,
    /// Blocks and edges, for Graphviz
    Dot,
}

/// `bowline compact`.
#[derive(Debug, Args)]
pub struct Compact {
    /// Trim the history before this revision first; only merge the tables if absent
    pub revision: Option<Revision>,
}

/// `bowline stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Show every counter, too
    #[arg(long)]
    pub all: bool,
}

/// `bowline checkpoint`.
#[derive(Debug, Args)]
pub struct Checkpoint {
    /// The directory to create
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub path: PathBuf,
}

/// `bowline tour`.
#[derive(Debug, Args)]
pub struct Tour {
    /// Keep the database of the tour in this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub keep: Option<PathBuf>,
}

/// `bowline shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// From a pipe: run the lines after one that fails, too; the exit code is that of the first that failed
    #[arg(long)]
    pub keep_going: bool,
}

/// `bowline completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `bowline man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory to write the pages into; created if absent
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub directory: PathBuf,
}
