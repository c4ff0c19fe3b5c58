//! The parameters of each load, as a command line gives them.
//!
//! Those that etcd's and d-engine's benchmarks have, too, have the same names.

use std::path::PathBuf;
use std::time::Duration;

use bowline_client::ReadLevel;
use clap::{Args, ValueEnum};

use crate::units::parse_duration;

/// How much of what.
#[derive(Debug, Clone, Args)]
pub struct Load {
    /// How many connections, spread over the endpoints
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub conns: usize,
    /// How many clients, spread over the connections; each has one request under way
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// How many requests [default: 10000, or no limit with --duration]
    #[arg(long, value_name = "N")]
    pub total: Option<u64>,
    /// For how long, as in 10s
    #[arg(long, value_parser = parse_duration, value_name = "SPAN")]
    pub duration: Option<Duration>,
    /// How many requests per second at most; as many as are answered if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Take keys in order instead of at random
    #[arg(long)]
    pub sequential_keys: bool,
    /// The bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub key_size: usize,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub key_space_size: u64,
    /// The bytes of a value
    #[arg(
        long,
        alias = "value-size",
        value_name = "BYTES",
        default_value_t = 256
    )]
    pub val_size: usize,
    /// Send everything to the leader instead of to all endpoints
    #[arg(long)]
    pub target_leader: bool,
    /// How many threads make the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Print one JSON object, as `--output json` does
    #[arg(long)]
    pub json: bool,
}

impl Default for Load {
    /// What a command line without any option says.
    fn default() -> Load {
        Load {
            conns: 1,
            clients: 1,
            total: None,
            duration: None,
            rate: None,
            sequential_keys: false,
            key_size: 8,
            key_space_size: 10_000,
            val_size: 256,
            target_leader: false,
            threads: 1,
            json: false,
        }
    }
}

impl Load {
    /// How many requests.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.or(match self.duration {
            Some(_) => None,
            None => Some(10_000),
        })
    }
}

/// `bowline bench watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchLoad {
    /// How many watchers, all of the same keys
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub watchers: usize,
    /// How many streams on each connection carry them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: usize,
    /// How many connections, spread over the endpoints
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub conns: usize,
    /// How many puts [default: 1000, or no limit with --duration]
    #[arg(long, value_name = "N")]
    pub total: Option<u64>,
    /// For how long to put, as in 10s
    #[arg(long, value_parser = parse_duration, value_name = "SPAN")]
    pub duration: Option<Duration>,
    /// How many puts per second at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// How many clients put
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub clients: usize,
    /// The bytes of a value
    #[arg(
        long,
        alias = "value-size",
        value_name = "BYTES",
        default_value_t = 256
    )]
    pub val_size: usize,
    /// Print one JSON object, as `--output json` does
    #[arg(long)]
    pub json: bool,
}

/// `bowline bench graph`.
#[derive(Debug, Clone, Args)]
pub struct GraphLoad {
    /// What is measured
    #[arg(long, value_enum, default_value_t = GraphOperation::Neighbors)]
    pub operation: GraphOperation,
    /// How many blocks the graph has
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// How many edges leave each block
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub fan_out: u64,
    /// How far a walk goes
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub max_depth: u32,
    /// Do not write the graph first: an earlier run did
    #[arg(long)]
    pub no_fill: bool,
    /// How fresh reads are: l (linearizable), lease, or e (eventual)
    #[arg(long, default_value = "l", value_name = "LEVEL")]
    pub consistency: ReadLevel,
    /// How many connections, spread over the endpoints
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub conns: usize,
    /// How many clients, spread over the connections; each has one request under way
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// How many requests [default: 10000, or no limit with --duration]
    #[arg(long, value_name = "N")]
    pub total: Option<u64>,
    /// For how long, as in 10s
    #[arg(long, value_parser = parse_duration, value_name = "SPAN")]
    pub duration: Option<Duration>,
    /// How many requests per second at most; as many as are answered if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Send everything to the leader instead of to all endpoints
    #[arg(long)]
    pub target_leader: bool,
    /// How many threads make the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Print one JSON object, as `--output json` does
    #[arg(long)]
    pub json: bool,
}

/// `bowline bench node`.
#[derive(Debug, Clone, Args)]
pub struct NodeLoad {
    /// How many members
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: u16,
    /// How many clients; each has one request under way
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub clients: usize,
    /// How many threads make the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// For how long each row runs, as in 10s
    #[arg(long, value_parser = parse_duration, value_name = "SPAN", default_value = "5s")]
    pub duration: Duration,
    /// How many requests each row is, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub total: Option<u64>,
    /// The bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub key_size: usize,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub key_space_size: u64,
    /// The bytes of a value
    #[arg(
        long,
        alias = "value-size",
        value_name = "BYTES",
        default_value_t = 256
    )]
    pub val_size: usize,
    /// Only rows whose name contains this: put, linearizable, lease, eventual
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Where the members keep their data, in a directory that is removed in the end
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Print one JSON object for each row, as `--output json` does
    #[arg(long)]
    pub json: bool,
}

/// What `bowline bench graph` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphOperation {
    /// Puts of an edge between two blocks, each at random
    Edge,
    /// Reads of the blocks one edge away
    Neighbors,
    /// Walks of some depth
    Traverse,
}

impl GraphLoad {
    /// The bytes of an id.
    const ID_BYTES: usize = 16;

    /// What it has in common with the loads of keys: a block's id is a key of 16 bytes.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            conns: self.conns,
            clients: self.clients,
            total: self.total,
            duration: self.duration,
            rate: self.rate,
            key_size: GraphLoad::ID_BYTES,
            key_space_size: self.blocks,
            val_size: 0,
            target_leader: self.target_leader,
            threads: self.threads,
            json: self.json,
            ..Load::default()
        }
    }
}

/// `bowline bench compare`.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// How often each system runs every row; they take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// How long each row runs in each round
    #[arg(long, value_parser = parse_duration, value_name = "SPAN", default_value = "5s")]
    pub duration: Duration,
    /// Two rounds of one second: whether it works, not how fast it is
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object, as `--output json` does
    #[arg(long)]
    pub json: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// How many nodes each system has
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=9))]
    pub members: usize,
    /// Where the nodes keep their data, in a directory that is removed in the end
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Run Bowline in the clear and with guards in turn, instead of Bowline and etcd: tls, users, or both
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GUARDS", conflicts_with_all = ["save", "baseline"])]
    pub guards: Vec<Guard>,
    /// The server to run as Bowline, with the words before its flags [default: this program, serve]
    #[arg(long, value_name = "WORDS")]
    pub bowline_program: Option<String>,
    /// The etcd to run
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    pub etcd_program: String,
    /// Keep the ratios to etcd in a file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub save: Option<PathBuf>,
    /// Hold the ratios against those of a file that --save has written, and fail where one is worse
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub baseline: Option<PathBuf>,
}

/// What guards the nodes of `bowline bench compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Guard {
    /// Certificates, between clients and members and among members
    Tls,
    /// A user with a password, whose rights are checked
    Users,
    /// Certificates and users
    Both,
}
