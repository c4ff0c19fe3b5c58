//! The arguments of `serve` and `cluster`.
//!
//! Those of `serve` are made from the server's own table of settings, so that flag, environment
//! variable, file and help are one thing.

use std::path::PathBuf;

use bowline_server::config::SETTINGS;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};

/// `bowline serve`.
#[derive(Debug, Clone, Default)]
pub struct Serve {
    /// A file with settings.
    pub config_file: Option<PathBuf>,
    /// Print what is in effect instead of serving.
    pub print_config: bool,
    /// Stop when standard input ends.
    pub stop_at_end_of_input: bool,
    /// A file with the faults of the disk. Only programs for tests have the flag.
    pub fault_disk: Option<PathBuf>,
    /// The settings that were given as flags: key and value.
    pub flags: Vec<(&'static str, String)>,
}

const STOP_AT_END_OF_INPUT: &str = "stop-at-end-of-input";
const FAULT_DISK: &str = "fault-disk";
/// Whether this is a program for tests: see `fault_disk`.
const HAS_FAULT_DISK: bool = cfg!(any(debug_assertions, feature = "fault-disk"));
/// The setting that every command has a flag for.
const DATA_DIR: &str = "data-dir";

impl Args for Serve {
    fn augment_args(command: Command) -> Command {
        let mut command = command
            .arg(
                Arg::new("config-file")
                    .long("config-file")
                    .value_name("FILE")
                    .env("BOWLINE_CONFIG_FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .value_hint(clap::ValueHint::FilePath)
                    .help("TOML file with settings; flags and BOWLINE_* variables take precedence"),
            )
            .arg(
                Arg::new("print-config")
                    .long("print-config")
                    .action(ArgAction::SetTrue)
                    .help("Print the settings in effect and the source of each, and exit"),
            );
        command = command.arg(
            // For programs that start servers, as `cluster up` does.
            Arg::new(STOP_AT_END_OF_INPUT)
                .long(STOP_AT_END_OF_INPUT)
                .action(ArgAction::SetTrue)
                .hide(true)
                .help("Stop when standard input ends, as it does when the program at its other end is gone"),
        );
        if HAS_FAULT_DISK {
            command = command.arg(
                Arg::new(FAULT_DISK)
                    .long(FAULT_DISK)
                    .value_name("FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .hide(true)
                    .help("Let the disk fail as this file says, for tests"),
            );
        }
        for setting in SETTINGS {
            if setting.key == DATA_DIR {
                command = command.arg(data_dir(setting.help).env("BOWLINE_DATA_DIR"));
                continue;
            }
            let mut help = setting.help.to_owned();
            if !setting.default.is_empty() {
                help.push_str(&format!(" [default: {}]", setting.default));
            }
            let mut argument = Arg::new(setting.key)
                .long(setting.key)
                .value_name(setting.value)
                .help(help);
            if setting.value == "true|false" {
                // As etcd takes it: the flag alone says yes.
                argument = argument.num_args(0..=1).default_missing_value("true");
            }
            command = command.arg(argument);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Serve::augment_args(command)
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Serve, clap::Error> {
        let mut serve = Serve::default();
        serve.update_from_arg_matches(matches)?;
        Ok(serve)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config_file = matches.get_one::<PathBuf>("config-file").cloned();
        self.stop_at_end_of_input = matches.get_flag(STOP_AT_END_OF_INPUT);
        self.print_config = matches.get_flag("print-config");
        if HAS_FAULT_DISK {
            self.fault_disk = matches.get_one::<PathBuf>(FAULT_DISK).cloned();
        }
        if let Some(path) = data_dir_given(matches) {
            let path = path.to_string_lossy().into_owned();
            self.flags.push((DATA_DIR, path));
        }
        for setting in SETTINGS.iter().filter(|setting| setting.key != DATA_DIR) {
            if let Some(value) = matches.get_one::<String>(setting.key) {
                self.flags.push((setting.key, value.clone()));
            }
        }
        Ok(())
    }
}

/// The directory of `--data-dir`, if the command line has it: a server has another default than
/// the other commands.
fn data_dir_given(matches: &ArgMatches) -> Option<PathBuf> {
    let is_given = matches.value_source("data_dir") == Some(ValueSource::CommandLine);
    let path = matches.get_one::<PathBuf>("data_dir");
    path.filter(|_| is_given).cloned()
}

/// The flag in the place of the one that every command has: its help would name a default that is
/// another here.
fn data_dir(help: &'static str) -> Arg {
    Arg::new("data_dir")
        .long(DATA_DIR)
        .value_name("DIR")
        .value_parser(clap::value_parser!(PathBuf))
        .value_hint(clap::ValueHint::DirPath)
        .help_heading("Global options")
        .help(help)
}

macro_rules! given_dirs {
    ($($(#[$doc:meta])* $name:ident: $argument:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        pub struct $name(pub Option<PathBuf>);

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                command.arg($argument)
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(data_dir_given(matches)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = data_dir_given(matches);
                Ok(())
            }
        }
    )*};
}

given_dirs! {
    /// A directory that is to be kept, if one was given.
    KeptDir: data_dir("Keep the data in this directory [default: a temporary one]");
    /// A directory that is to be restored, if one was given.
    RestoredDir: data_dir("The directory to create [default: NAME.bowline]")
        .env("BOWLINE_DATA_DIR");
}

/// `bowline cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Run several servers on this machine, as a cluster for trials
    ///
    /// Each has a client and a peer port on the loopback address, from --base-port on. Their data
    /// is gone when the command ends, unless --data-dir says where to keep it.
    ///
    /// The log of each node goes to standard error, every line with the node's name before it. A node
    /// that ends is started again after half a second, and later after up to 4 s. When one ends 5 times
    /// in a row, each time within 10 s of its start, or before it ever served, the command stops all and
    /// fails. Ctrl-C stops all nodes and waits for them.
    #[command(after_help = "Examples:
  bowline cluster up
  bowline cluster up --nodes 5 --base-port 12379
  bowline cluster up --data-dir ./cluster")]
    Up(ClusterUp),
}

/// `bowline cluster up`.
#[derive(Debug, Args)]
pub struct ClusterUp {
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: u16,
    /// The first port; each server takes two
    #[arg(long, value_name = "PORT", default_value_t = 2379, value_parser = clap::value_parser!(u16).range(1..=65_500))]
    pub base_port: u16,
    /// Where the data stays.
    #[command(flatten)]
    pub data_dir: KeptDir,
}
