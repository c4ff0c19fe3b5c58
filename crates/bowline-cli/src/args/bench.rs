//! The arguments of `bench`: which load, with its parameters.

use bowline_client::ReadLevel;
use bowline_load::args::{Compare, GraphLoad, Load, NodeLoad, WatchLoad};
use clap::Subcommand;

/// `bowline bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Put keys
    #[command(after_help = "Examples:
  bowline bench put --conns 10 --clients 100 --total 100000
  bowline bench put --endpoints 10.0.0.1:2379,10.0.0.2:2379 --duration 10s --val-size 1024
  bowline bench put --rate 500 --duration 30s --json")]
    Put(Load),
    /// Read single keys
    #[command(after_help = "Examples:
  bowline bench range --fill --conns 200 --clients 1000 --total 500000
  bowline bench range --consistency e --duration 10s
  bowline bench range --consistency lease --json")]
    Range {
        /// How much of what.
        #[command(flatten)]
        load: Load,
        /// How fresh reads are: l (linearizable), lease, or e (eventual); s (serializable) is etcd's word
        /// for e
        #[arg(long, default_value = "l", value_name = "LEVEL")]
        consistency: ReadLevel,
        /// Put every key first, so that each read finds one
        #[arg(long)]
        fill: bool,
    },
    /// Put several keys in each transaction
    #[command(after_help = "Examples:
  bowline bench txn --txn-ops 8 --total 20000
  bowline bench txn --conns 10 --clients 100 --duration 10s")]
    Txn {
        /// How much of what.
        #[command(flatten)]
        load: Load,
        /// How many keys a transaction puts
        #[arg(long = "txn-ops", value_name = "N", default_value_t = 4)]
        operations: u32,
    },
    /// Put keys that many watchers watch, and count the events they receive
    #[command(after_help = "Examples:
  bowline bench watch --watchers 1000 --total 1000
  bowline bench watch --watchers 10000 --conns 100 --rate 50 --duration 20s --json")]
    Watch(WatchLoad),
    /// Write a graph, then put edges, look around blocks, or walk from them
    ///
    /// Speaks `bowline.v1`, which only servers of Bowline do.
    #[command(after_help = "Examples:
  bowline bench graph --operation neighbors --conns 10 --clients 100
  bowline bench graph --operation edge --blocks 100000 --fan-out 5 --duration 10s
  bowline bench graph --operation traverse --max-depth 3 --no-fill --consistency e --json")]
    Graph(GraphLoad),
    /// Measure members in this process, asked without a socket: puts, and reads at each level
    ///
    /// The members agree over loopback and have a directory each, which is removed in the end. The
    /// clients ask the leader. The CPU time shown is that of the members and the load together.
    #[command(after_help = "Examples:
  bowline bench node
  bowline bench node --only lease --threads 2 --duration 10s
  bowline bench node --nodes 1 --clients 10 --total 20000 --json")]
    Node(NodeLoad),
    /// Run Bowline and etcd in turn, some nodes each on this machine, under the same load
    ///
    /// The nodes keep their data in temporary directories below the current one, and are stopped in the
    /// end. What is not on the PATH is left out, and the report says so.
    #[command(after_help = "Examples:
  bowline bench compare
  bowline bench compare --quick
  bowline bench compare --rounds 7 --duration 10s --json")]
    Compare(Compare),
}
