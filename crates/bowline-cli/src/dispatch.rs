//! The way from a command line to its command.
//!
//! ```text
//!   execute ──▶ --endpoints given? ── no ──▶ the command, on the directory
//!                     │
//!                     └── yes ──▶ on_cluster ──▶ the same command, by the client
//! ```

use crate::args::cluster::ClusterCommand;
use crate::args::{Cli, Command};
use crate::commands::{bench, blocks, cluster, graph, keys, leases, serve, tour, transfer, upkeep};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::remote;
use crate::streams::Streams;

/// Does what the command line says.
pub(crate) fn execute(cli: Cli, streams: &mut Streams<'_>) -> Result<(), Failure> {
    let mut context = Context {
        global: cli.global,
        streams,
    };
    let context = &mut context;
    if context.is_remote() && cli.command.is_of_database() {
        return on_cluster(context, &cli.command);
    }
    match cli.command {
        Command::Put(args) => keys::put(context, &args),
        Command::Get(args) => keys::get(context, &args),
        Command::Del(args) => keys::del(context, &args),
        Command::Range(args) => keys::range(context, &args),
        Command::History(args) => keys::history(context, &args),
        Command::Watch(args) => keys::watch(context, &args),
        Command::Cas(args) => keys::cas(context, &args),
        Command::Lease(args) => leases::run(context, &args),
        Command::Block(args) => blocks::block(context, &args),
        Command::Edge(args) => blocks::edge(context, &args),
        Command::Graph(args) => graph::run(context, &args),
        Command::Import(args) => transfer::import(context, &args),
        Command::Export(args) => transfer::export(context, &args),
        Command::Compact(args) => upkeep::compact(context, &args),
        Command::Check => upkeep::check(context),
        Command::Stats => upkeep::stats(context),
        Command::Checkpoint(args) => upkeep::checkpoint(context, &args),
        Command::Serve(args) => serve::run(context, &args),
        Command::Cluster(args) => cluster::run(context, &args),
        Command::Tour(args) => tour::run(context, &args),
        Command::Bench(args) => bench::run(context, &args),
        Command::Completions(args) => upkeep::completions(context, &args),
        Command::Remote(args) => of_cluster(context, &args),
    }
}

/// Does a command of a directory on a cluster.
fn on_cluster(context: &mut Context<'_, '_>, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Put(args) => remote::keys::put(context, args),
        Command::Get(args) => remote::keys::get(context, args),
        Command::Del(args) => remote::keys::del(context, args),
        Command::Range(args) => remote::keys::range(context, args),
        Command::History(args) => remote::keys::history(context, args),
        Command::Watch(args) => remote::keys::watch(context, args),
        Command::Cas(args) => remote::keys::cas(context, args),
        Command::Lease(args) => remote::leases::run(context, args),
        // They ask a reader of the graph, which is this cluster's then.
        Command::Block(args) => blocks::block(context, args),
        Command::Edge(args) => blocks::edge(context, args),
        Command::Graph(args) => graph::run(context, args),
        Command::Import(args) => transfer::import(context, args),
        Command::Export(args) => transfer::export(context, args),
        Command::Compact(args) => remote::upkeep::compact(context, args),
        _ => Err(Failure::new(
            Exit::Usage,
            "this command works on a directory: leave --endpoints out, and say --data-dir",
        )),
    }
}

/// Does a command that only a cluster has.
fn of_cluster(context: &mut Context<'_, '_>, command: &ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Member(args) => remote::members::run(context, args),
        ClusterCommand::Endpoint(args) => remote::endpoints::run(context, args),
        ClusterCommand::MoveLeader { id } => remote::members::move_leader(context, *id),
        ClusterCommand::Snapshot(args) => remote::upkeep::snapshot(context, args),
        ClusterCommand::Alarm(args) => remote::upkeep::alarm(context, args),
        ClusterCommand::Defrag => remote::upkeep::defrag(context),
    }
}
