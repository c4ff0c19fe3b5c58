//! The command line: every command, option and help text, in one tree.
//!
//! Help, completions and parsing all come from these types. Every command ends with examples,
//! and a test parses each of them, so none can go stale. What a text means (a duration, a size, a
//! block by id or name) is decided here, so that the commands get values, not strings.

pub mod bench;
mod cert;
pub mod cluster;
mod files;
mod global;
mod graph;
mod graph_algorithms;
mod keys;
mod queried;
mod quota;
mod serve;
mod update;
mod users;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use cert::{Cert, CertCa, CertClient, CertHost, CertPlace};
pub use files::{
    Checkpoint, Compact, Completions, Export, ExportFormat, Import, ImportFormat, Man, Shell,
    Stats, Tour,
};
use global::{CLUSTER, DIRECTORY, PRINTED, without};
pub use global::{ClusterOptions, LoginAs, TlsOptions};
pub(crate) use graph::parse_json_attribute;
pub use graph::{
    Block, Bounds, Direction, Edge, EdgeFilter, EdgeKey, GivenAttributes, Graph, IndexOf, Indexed,
    Scope,
};
pub use graph_algorithms::Algorithm;
pub use keys::{Cas, Del, Durability, Encoding, Get, History, Lease, Put, Range, Watch, Write};
pub use queried::Queried;
pub(crate) use queried::{Shown, Statement};
pub use quota::Quota;
pub use serve::{Cluster, ClusterUp, KeptDir, RestoredDir, Serve};
pub(crate) use update::is_refused;
pub use update::{Change, UpdateKey};
pub(crate) use users::name_and_password;
pub use users::{Allowed, Auth, Hidden, Keys, NewPassword, Role, User};

use crate::exit::Exit;

/// A transactional key-value and graph database.
///
/// Keys, values, blocks and edges live in one directory and share one history: every change has
/// a revision, and what was true at a revision can still be asked. New here? `bowline tour` needs
/// no argument and shows it all in one go.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    version,
    after_help = top_help(),
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The end of `bowline --help`.
fn top_help() -> String {
    format!(
        "Examples:\n  bowline tour\n  bowline put greeting hello\n  bowline get greeting\n  bowline \
         import Cargo.lock\n  bowline graph reach libc@0.2.180 --direction in --max-depth \
         3\n\n{}",
        Exit::table()
    )
}

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The directory that holds the database
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_DATA_DIR",
        default_value = "./bowline-data",
        value_name = "DIR",
        value_hint = clap::ValueHint::DirPath
    )]
    pub data_dir: PathBuf,
    /// How results are printed: a table for people, or one JSON object per line for programs
    #[arg(
        short,
        long,
        global = true,
        help_heading = "Global options",
        value_enum,
        default_value_t = Output::Table,
        value_name = "FORMAT"
    )]
    pub output: Output,
    /// Cut tables to this many columns; 0 cuts nothing [default: those of the terminal, or COLUMNS]
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "COLUMNS"
    )]
    pub width: Option<usize>,
    /// Which cluster, and how it is read.
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Print results only: no progress bar, no remarks
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Aligned columns
    Table,
    /// One JSON object per line
    Json,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set a key to a value
    #[command(
        visible_alias = "set",
        after_help = "Examples:
  bowline put greeting hello
  bowline put config --file config.json
  bowline put config < config.json
  bowline put svc/a up --lease 7
  bowline put --hex 00ff cafe"
    )]
    Put(Put),
    /// Print the value of a key
    #[command(after_help = "Examples:
  bowline get greeting
  bowline get greeting --rev 5
  bowline get --prefix svc/
  bowline get config --raw > config.json
  bowline -o json get greeting")]
    Get(Get),
    /// Delete a key, a range or every key with a prefix
    #[command(after_help = "Examples:
  bowline del greeting
  bowline del --prefix svc/
  bowline del --range a b")]
    Del(Del),
    /// List keys and values in order
    #[command(
        visible_aliases = ["list", "ls"],
        after_help = "Examples:
  bowline range
  bowline range a b --limit 10
  bowline range svc/ --prefix --keys-only
  bowline range svc/ --prefix --rev 5 --reverse"
    )]
    Range(Range),
    /// List every kept version of a key
    #[command(after_help = "Examples:
  bowline history greeting
  bowline history greeting --who
  bowline -o json history greeting --limit 3")]
    History(History),
    /// Print changes in order, from the past if asked
    #[command(after_help = "Examples:
  bowline watch greeting --from 2 --timeout 1s
  bowline watch svc/ --prefix --from 1 --count 10
  bowline -o json watch --from 1 --timeout 500ms")]
    Watch(Watch),
    /// Compare and swap: set a key only if it is at the expected revision
    ///
    /// The revision is the one that `get` and `range` show as `modified`; 0 means that the key must
    /// be absent. If another change came first, nothing is written and the exit code is 3.
    #[command(after_help = "Examples:
  bowline cas leader 0 node-1
  bowline cas counter 7 8")]
    Cas(Cas),
    /// Change a key by a rule, on the value that it has then: a counter, a maximum, an append, a swap
    ///
    /// Never conflicts, however many do the same. Numbers are written in decimal; an absent key counts as
    /// 0. The key stays attached to its lease. If bounds, `set-if-absent` or `swap` do not allow it, nothing is written,
    /// and the exit code is 3.
    #[command(after_help = "Examples:
  bowline update jobs/next add 1
  bowline update seats add -1 --min 0
  bowline update leader set-if-absent node-1
  bowline update state swap --expected idle --new busy")]
    Update(UpdateKey),
    /// Grant, keep alive, revoke and list leases
    #[command(
        subcommand,
        after_help = "Examples:
  bowline lease grant 30s
  bowline put svc/a up --lease 7
  bowline lease keep-alive 7"
    )]
    Lease(Lease),
    /// Put, get, list and delete blocks: the nodes of the graph
    #[command(
        subcommand,
        after_help = "Examples:
  bowline block put ann --kind person
  bowline block get ann
  bowline block list
  bowline block del ann"
    )]
    Block(Block),
    /// Put, get, list and delete edges between blocks
    #[command(
        subcommand,
        after_help = "Examples:
  bowline edge put ann knows bob
  bowline edge get ann knows bob
  bowline edge list ann
  bowline edge del ann knows bob"
    )]
    Edge(Edge),
    /// Query the graph: neighbors, reach, paths, order, components
    #[command(
        subcommand,
        after_help = "Examples:
  bowline graph neighbors ann
  bowline graph path ann dan
  bowline graph stats"
    )]
    Graph(Graph),
    /// Read a Cargo.lock, an edge list or JSON Lines into the database
    ///
    /// Malformed parts are skipped, counted and reported with line and column. Importing the
    /// same file twice changes nothing. The result counts the blocks, edges and keys that were created; `again` counts
    /// items for what existed already, and `changed` the items that created or changed something.
    #[command(after_help = "Examples:
  bowline import Cargo.lock
  bowline import web-Google.txt --strict
  bowline import follows.csv --skip-lines 1 --block-kind user --edge-kind follows
  gzip -dc web-Google.txt.gz | bowline import - --format edge-list")]
    Import(Import),
    /// Write the database as JSON Lines, or its graph as Graphviz DOT
    #[command(after_help = "Examples:
  bowline export backup.jsonl
  bowline export - --rev 5 | bowline --data-dir other import - --format jsonl
  bowline export graph.dot --format dot")]
    Export(Export),
    /// Trim old history and merge the tables
    ///
    /// A cluster only trims its history, and needs the revision; `defrag` returns the space to the disks of its members.
    #[command(after_help = "Examples:
  bowline compact
  bowline compact 1000")]
    Compact(Compact),
    /// Read every byte of the database and verify it
    ///
    /// Verifies the files, and what the data in them means together: edges and their blocks, keys and their leases. Also
    /// takes the directory of a member of a cluster that is stopped. The exit code is 6 if anything is damaged or missing.
    #[command(
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline check
  bowline -o json check"
    )]
    Check,
    /// Show revisions and sizes; with --all, every counter
    ///
    /// JSON always has every counter.
    #[command(
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline stats
  bowline stats --all
  bowline -o json stats"
    )]
    Stats(Stats),
    /// Copy the database to another directory, as a database of its own
    #[command(
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline checkpoint backup/monday
  bowline --data-dir backup/monday check"
    )]
    Checkpoint(Checkpoint),
    /// See what Bowline does, on a real dependency graph, in one minute
    ///
    /// Takes the Cargo.lock of the current directory, or else the one that this program was built
    /// from. Works in a temporary directory and leaves nothing behind, unless --keep says where.
    #[command(
        args = without(&[DIRECTORY, CLUSTER]),
        after_help = "Examples:
  bowline tour
  bowline tour --keep ./tour-data"
    )]
    Tour(Tour),
    /// Serve a database to clients of etcd v3, alone or as a member of a cluster
    ///
    /// The flags are those of etcd. Each can also be given as an environment variable
    /// (--listen-client-urls as BOWLINE_LISTEN_CLIENT_URLS) or in a TOML file (--config-file).
    #[command(
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline serve
  bowline serve --name a --data-dir ./a --listen-client-urls http://127.0.0.1:2379
  bowline serve --config-file bowline.toml --print-config"
    )]
    Serve(Serve),
    /// Run a cluster on this machine
    #[command(
        subcommand,
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline cluster up"
    )]
    Cluster(Cluster),
    /// What only a cluster has.
    #[command(flatten)]
    Remote(cluster::ClusterCommand),
    /// Put load on a cluster and measure it, or compare Bowline with etcd
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline bench put --conns 10 --clients 100 --total 100000
  bowline bench range --fill --consistency e
  bowline bench compare --quick"
    )]
    Bench(bench::Bench),
    /// Run many commands in one session, with history and completion
    ///
    /// The directory is opened once, or the cluster connected to. A line is a command without `bowline`. From a pipe,
    /// the first line that fails ends the session with its exit code.
    #[command(after_help = "Examples:
  bowline shell
  bowline shell --endpoints 127.0.0.1:2379
  bowline -q shell --keep-going < commands.txt")]
    Shell(Shell),
    /// Make a CA and certificates for a trial of TLS
    ///
    /// Each is a file NAME.crt and a file NAME.key, which only its owner may read. For lasting use take the CA of your
    /// organisation: whoever has ca.key can make certificates for every host and every user.
    #[command(
        subcommand,
        args = without(&[DIRECTORY, CLUSTER]),
        after_help = "Examples:
  bowline cert ca
  bowline cert server --name server --host localhost,127.0.0.1
  bowline serve --listen-client-urls https://localhost:2379 --cert-file pki/server.crt --key-file pki/server.key"
    )]
    Cert(Cert),
    /// Print a script that completes commands and options in a shell
    #[command(
        args = without(&[DIRECTORY, CLUSTER, PRINTED]),
        after_help = "Examples:
  bowline completions bash > ~/.local/share/bash-completion/completions/bowline
  bowline completions zsh > ~/.zfunc/_bowline
  bowline completions fish > ~/.config/fish/completions/bowline.fish"
    )]
    Completions(Completions),
    /// Write the manual pages into a directory
    ///
    /// One page for each command, from what `--help` shows: bowline.1, bowline-get.1 and so on.
    #[command(after_help = "Examples:
  bowline man ~/.local/share/man/man1
  bowline man ./pages")]
    Man(Man),
    /// Print the version of the program and of the etcd API that it serves
    #[command(
        args = without(&[DIRECTORY, CLUSTER]),
        after_help = "Examples:
  bowline version
  bowline -o json version"
    )]
    Version,
}

impl Command {
    /// Commands that have no use for what a session has open, by their names.
    pub(crate) const NOT_FOR_SESSIONS: [&str; 6] =
        ["serve", "cluster", "tour", "bench", "shell", "completions"];

    /// Whether a session has it.
    pub(crate) fn is_for_sessions(&self) -> bool {
        !matches!(
            self,
            Command::Serve(_)
                | Command::Cluster(_)
                | Command::Tour(_)
                | Command::Bench(_)
                | Command::Shell(_)
                | Command::Completions(_)
        )
    }

    /// Whether it makes calls of a cluster, and so logs in where a user is given. `is_remote` tells whether a cluster is
    /// named.
    pub(crate) fn logs_in(&self, is_remote: bool) -> bool {
        match self {
            Command::Remote(cluster::ClusterCommand::Snapshot(snapshot)) => {
                matches!(snapshot, cluster::Snapshot::Save { .. })
            }
            Command::Remote(_) => true,
            // These start members of their own.
            Command::Bench(bench) => {
                !matches!(bench, bench::Bench::Node(_) | bench::Bench::Compare(_))
            }
            Command::Serve(_)
            | Command::Cluster(_)
            | Command::Tour(_)
            | Command::Check
            | Command::Stats(_)
            | Command::Checkpoint(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Version => false,
            _ => is_remote,
        }
    }

    /// Whether it works on servers and never on a directory that `--data-dir` names for it to open.
    pub(crate) fn is_about_servers(&self) -> bool {
        matches!(
            self,
            Command::Remote(_) | Command::Bench(_) | Command::Serve(_) | Command::Cluster(_)
        )
    }
}

#[cfg(test)]
mod messages_tests;
#[cfg(test)]
mod tests;
