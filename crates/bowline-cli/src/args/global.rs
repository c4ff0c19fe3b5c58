//! The options with which a command goes to a cluster instead of a directory, and which of the options of every command
//! the help of a command leaves out.

use bowline_client::ReadLevel;
use clap::{Arg, Args, Command};

use super::Global;

/// Options that name a directory.
pub(super) const DIRECTORY: &[&str] = &["data_dir"];
/// Options that name a cluster.
pub(super) const CLUSTER: &[&str] = &["endpoints", "read"];
/// Options that say how results are printed.
pub(super) const PRINTED: &[&str] = &["output", "quiet", "width"];

/// Options of every command that have no meaning for one command. They stand in the place of those of every command,
/// and its help does not show them. They are taken all the same, so that a command can say why it refuses them.
pub(super) fn without(groups: &[&[&str]]) -> Vec<Arg> {
    let every = Global::augment_args(Command::new("bowline"));
    let is_left_out = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        groups.iter().any(|group| group.contains(&id))
    };
    let found = every.get_arguments().filter(is_left_out);
    found.map(|argument| argument.clone().hide(true)).collect()
}

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
