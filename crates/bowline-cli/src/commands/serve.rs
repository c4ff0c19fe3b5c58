//! `serve`: runs a server from its flags, environment and configuration file.

use std::fs::File;
use std::os::fd::AsFd;
use std::{io, thread};

use bowline_server::ServeError;
use bowline_server::config::{Config, ConfigError, Layers};
use rustix::process::{Signal, getpid, kill_process};

use super::heaps;
use crate::args::Serve;
use crate::context::Context;
use crate::exit::{Exit, Failure};

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Serve) -> Result<(), Failure> {
    let (mut layers, mut config) = configure(args).map_err(|error| config_failure(&error))?;
    if args.print_config {
        layers.resolve(&config);
        return Ok(write!(context.streams.stdout, "{}", layers.to_toml())?);
    }
    inject_faults(args, &mut config)?;
    heaps::configure();
    heaps::give_back()?;
    if args.stop_at_end_of_input {
        stop_at_end_of_input()?;
    }
    bowline_server::run(config).map_err(|error| serve_failure(&error))
}

/// Lets the disk fail as a file says, if a test has named one.
#[cfg(any(debug_assertions, feature = "fault-disk"))]
fn inject_faults(args: &Serve, config: &mut Config) -> Result<(), Failure> {
    if let Some(file) = &args.fault_disk {
        let disk = crate::fault_disk::FaultDisk::new(config.node.vfs.clone(), file);
        let disk = disk
            .map_err(|error| Failure::new(Exit::Invalid, format!("{}: {error}", file.display())))?;
        config.node.vfs = std::sync::Arc::new(disk);
    }
    Ok(())
}

#[cfg(not(any(debug_assertions, feature = "fault-disk")))]
fn inject_faults(_: &Serve, _: &mut Config) -> Result<(), Failure> {
    Ok(())
}

/// Stops this server, as SIGTERM does, when its standard input ends.
fn stop_at_end_of_input() -> io::Result<()> {
    // The program holds the lock of `io::stdin`.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let wait = move || {
        // An error ends the input, too.
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let name = "bowline-input".to_owned();
    thread::Builder::new().name(name).spawn(wait).map(drop)
}

fn configure(args: &Serve) -> Result<(Layers, Config), ConfigError> {
    let mut layers = Layers::default();
    if let Some(path) = &args.config_file {
        layers.add_file(path)?;
    }
    layers.add_environment(|name| std::env::var(name).ok());
    for (key, value) in &args.flags {
        layers.add_flag(key, value.clone())?;
    }
    let config = Config::from_layers(&layers)?;
    Ok((layers, config))
}

pub(super) fn config_failure(error: &ConfigError) -> Failure {
    let exit = match error {
        ConfigError::Unreadable { .. } => Exit::Io,
        _ => Exit::Invalid,
    };
    Failure::new(exit, error.to_string())
}

fn serve_failure(error: &ServeError) -> Failure {
    let exit = match error {
        ServeError::Node(error) => of_node(error),
        ServeError::Resolve { .. } | ServeError::Tls(_) => Exit::Invalid,
        ServeError::Bind { .. } | ServeError::NodeStopped { .. } | ServeError::System { .. } => {
            Exit::Io
        }
        // The enum may grow.
        _ => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

/// How an error of a node ends the program.
pub(super) fn of_node(error: &bowline_cluster::Error) -> Exit {
    use bowline_cluster::Error as E;
    use bowline_cluster::error::LogStoreError as L;
    match error {
        E::Storage(error) => Exit::of_database(error),
        E::Damaged { source, .. } => Exit::of_database(source),
        E::Log(L::Storage(error)) => Exit::of_storage(error),
        E::Log(L::Record { .. } | L::Contradiction(_) | L::Hole { .. }) => Exit::Corrupt,
        E::Config { .. }
        | E::Directory { .. }
        | E::PlaceTaken { .. }
        | E::MemberNotFound { .. }
        | E::PeerUrlExists
        | E::MemberTooLarge
        | E::Refused(_)
        | E::ProposalRefused { .. }
        | E::RequestTooLarge { .. }
        | E::RequestTooDeep { .. }
        | E::TooManyLeaseKeys
        | E::CommandTooNew { .. }
        | E::Learner
        | E::NotLearner { .. }
        | E::TooManyLearners
        | E::BadTransferee { .. } => Exit::Invalid,
        E::Peer { .. }
        | E::NoLeader
        | E::NotLeader
        | E::LeaderChanged
        | E::Timeout
        | E::TooManyRequests
        | E::NotEnoughStarted
        | E::Unhealthy
        | E::LearnerNotReady
        | E::MembershipChanging => Exit::Unreachable,
        E::Bind { .. } | E::Stopped { .. } | E::Log(L::Stopped(_)) => Exit::Io,
        // The enum may grow.
        _ => Exit::Internal,
    }
}
