//! Dispatch: calls the command that a parsed command line names.

use crate::args::cluster::ClusterCommand;
use crate::args::{Cli, Command};
use crate::commands::{
    bench, blocks, cert, cluster, endpoints, graph, keys, leases, maintenance, manual, members,
    quotas, serve, snapshot, tour, transfer, users,
};
use crate::context::{Context, usage};
use crate::exit::Failure;
use crate::session::Session;
use crate::streams::Streams;

/// Does what the command line says, or a line of a session.
pub(crate) fn execute(
    cli: Cli,
    streams: &mut Streams<'_>,
    session: Option<&Session>,
) -> Result<(), Failure> {
    let mut context = Context {
        global: cli.global,
        streams,
        session,
    };
    let context = &mut context;
    match cli.command {
        Command::Put(args) => keys::put(context, &args),
        Command::Get(args) => keys::get(context, &args),
        Command::Del(args) => keys::del(context, &args),
        Command::Range(args) => keys::range(context, &args),
        Command::History(args) => keys::history(context, &args),
        Command::Watch(args) => keys::watch(context, &args),
        Command::Cas(args) => keys::cas(context, &args),
        Command::Update(args) => keys::update(context, &args),
        Command::Lease(args) => leases::run(context, &args),
        Command::Block(args) => blocks::block(context, &args),
        Command::Edge(args) => blocks::edge(context, &args),
        Command::Graph(args) => graph::run(context, &args),
        Command::Import(args) => transfer::import(context, &args),
        Command::Export(args) => transfer::export(context, &args),
        Command::Compact(args) => maintenance::compact(context, &args),
        Command::Check => maintenance::check(context),
        Command::Stats(args) => maintenance::stats(context, &args),
        Command::Checkpoint(args) => maintenance::checkpoint(context, &args),
        Command::Serve(args) => serve::run(context, &args),
        Command::Cluster(args) => cluster::run(context, &args),
        Command::Cert(args) => cert::run(context, &args),
        Command::Tour(args) => tour::run(context, &args),
        Command::Bench(args) => bench::run(context, &args),
        Command::Completions(args) => maintenance::completions(context, &args),
        Command::Man(args) => manual::write(&args),
        Command::Shell(_) => Err(usage("a session has begun already".to_owned())),
        Command::Version => maintenance::version(context),
        Command::Remote(args) => match args {
            ClusterCommand::Member(args) => members::run(context, &args),
            ClusterCommand::Endpoint(args) => endpoints::run(context, &args),
            ClusterCommand::MoveLeader { id } => members::move_leader(context, id),
            ClusterCommand::Snapshot(args) => snapshot::run(context, &args),
            ClusterCommand::Alarm(args) => maintenance::alarm(context, &args),
            ClusterCommand::Auth(args) => users::auth(context, &args),
            ClusterCommand::User(args) => users::user(context, &args),
            ClusterCommand::Role(args) => users::role(context, &args),
            ClusterCommand::Quota(args) => quotas::run(context, &args),
            ClusterCommand::Defrag => maintenance::defrag(context),
        },
    }
}
