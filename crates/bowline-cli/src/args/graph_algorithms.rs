//! The arguments of the graph algorithms with a value for each block, or with several paths.

use clap::Subcommand;

use super::graph::{EdgeFilter, Scope, parse_block};
use crate::import::BlockRef;

/// The algorithms of `bowline graph`.
#[derive(Debug, Subcommand)]
pub enum Algorithm {
    /// Rank blocks by PageRank: how often one who follows edges at random comes to each
    ///
    /// A table has the first 20, and JSON has all.
    #[command(after_help = "Examples:
  bowline graph rank
  bowline graph rank --kind links_to --limit 100
  bowline -o json graph rank --damping 0.9 --iterations 50")]
    Rank {
        /// The probability of following an edge, instead of going anywhere
        #[arg(long, value_name = "P", default_value_t = 0.85, value_parser = parse_probability)]
        damping: f64,
        /// How many iterations
        #[arg(long, value_name = "N", default_value_t = 20)]
        iterations: u32,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// At most this many blocks
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Divide the blocks into communities by label propagation, the largest first
    ///
    /// Edges count in both directions. A table has the first 20, and JSON has all.
    #[command(after_help = "Examples:
  bowline graph communities
  bowline graph communities --kind knows --iterations 20 --limit 5")]
    Communities {
        /// At most this many iterations; it ends earlier once nothing changes
        #[arg(long, value_name = "N", default_value_t = 10)]
        iterations: u32,
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
        /// At most this many communities
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Count triangles, and list the blocks in most of them
    ///
    /// Directions are ignored. A table has the first 20 blocks, and JSON has all.
    #[command(after_help = "Examples:
  bowline graph triangles
  bowline graph triangles --kind knows --limit 100")]
    Triangles {
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
        /// At most this many blocks
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// List the blocks whose neighbors are most tied to each other
    ///
    /// The local clustering coefficient is the share of the possible edges among a block's neighbors that exist. A table
    /// has the first 20 blocks, and JSON has all.
    #[command(after_help = "Examples:
  bowline graph clustering
  bowline graph clustering --undirected --limit 100")]
    Clustering {
        /// Ignore the directions of edges; otherwise an edge each way is possible
        #[arg(long)]
        undirected: bool,
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
        /// At most this many blocks
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// List the blocks within a number of edges, the nearest first
    ///
    /// A table has the first 20, and JSON has all.
    #[command(after_help = "Examples:
  bowline graph k-hop ann 2
  bowline graph k-hop libc@0.2.180 3 --direction in --limit 100")]
    KHop {
        /// The block to start from, by name or id
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// How many edges at most
        hops: u32,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// At most this many blocks
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// List the paths between two blocks on which no block occurs twice
    ///
    /// There may be very many: at most 20 are searched for, if --limit does not say how many. The exit code is 1 if
    /// there is none.
    #[command(after_help = "Examples:
  bowline graph simple-paths ann dan --max-depth 4
  bowline graph simple-paths app@0.1.0 libc@0.2.180 --kind depends_on --limit 1000")]
    SimplePaths {
        /// Where they start, by name or id
        #[arg(value_parser = parse_block)]
        from: BlockRef,
        /// Where they end, by name or id
        #[arg(value_parser = parse_block)]
        to: BlockRef,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// At most this many edges on a path
        #[arg(long, value_name = "N")]
        max_depth: Option<u32>,
        /// At most this many paths
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
}

/// Reads a probability.
fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("a probability is a number between 0 and 1".to_owned()),
    }
}
