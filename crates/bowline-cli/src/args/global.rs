//! The options with which a command goes to a cluster instead of a directory.

use bowline_client::ReadLevel;
use clap::Args;

/// Which cluster, and how it is read.
#[derive(Debug, Clone, Args)]
pub struct ClusterOptions {
    /// Work on the cluster at these addresses instead of on a directory
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_ENDPOINTS",
        value_delimiter = ',',
        value_name = "HOST:PORT,..."
    )]
    pub endpoints: Vec<String>,
    /// How fresh reads of a cluster are: linearizable, lease or eventual
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        default_value_t = ReadLevel::Linearizable,
        value_name = "LEVEL"
    )]
    pub read: ReadLevel,
}
