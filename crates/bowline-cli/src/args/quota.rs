//! The arguments of `bowline quota`.

use bowline_load::units::parse_size;
use clap::Subcommand;

use super::Encoding;

/// `bowline quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Set what the keys that begin with a prefix may take, in number, in bytes, or in both
    ///
    /// A write that would take more is refused. Keys that are there count; a prefix that is over its quota may
    /// shrink, and not grow. A quota of the same prefix is replaced.
    #[command(after_help = "Examples:
  bowline quota set tenants/blue/ --keys 10000 --bytes 64MiB
  bowline quota set '' --keys 1000000
  bowline quota set 74656e616e74732f --hex --bytes 1GiB")]
    Set {
        /// The prefix; empty for all keys
        prefix: String,
        /// The most keys; any number if absent
        #[arg(long, value_name = "N", required_unless_present = "bytes")]
        keys: Option<u64>,
        /// The most bytes of keys and their newest values; any number if absent
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        bytes: Option<u64>,
        /// How the prefix is written.
        #[command(flatten)]
        encoding: Encoding,
    },
    /// List the quotas, with what their keys take
    #[command(after_help = "Examples:
  bowline quota list
  bowline -o json quota list")]
    List {
        /// How the prefixes are shown.
        #[command(flatten)]
        encoding: Encoding,
    },
    /// Remove the quota of a prefix; its keys stay
    #[command(after_help = "Examples:
  bowline quota remove tenants/blue/")]
    Remove {
        /// The prefix
        prefix: String,
        /// How the prefix is written.
        #[command(flatten)]
        encoding: Encoding,
    },
}
