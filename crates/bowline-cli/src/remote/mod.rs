//! Commands against a cluster: what `--endpoints` names, instead of a directory.
//!
//! ```text
//!   commands::execute ──▶ --endpoints given? ── no ──▶ the command, on the directory
//!                               │
//!                               └── yes ──▶ remote::execute ──▶ the same command, by the client
//! ```
//!
//! A command prints the same and ends with the same code in both places. What only a cluster has
//! (members, alarms, leaders) is here alone, and goes to this machine's port 2379 if no endpoint is
//! given.

mod endpoints;
mod graph;
mod import;
mod keys;
mod leases;
mod members;
mod upkeep;

use std::future::Future;
use std::time::Duration;

use bowline_client::{Client, ReadLevel, Status};

use crate::args::Command;
use crate::args::cluster::ClusterCommand;
use crate::commands::{self, Context};
use crate::exit::{Exit, Failure};

pub(crate) use graph::RemoteGraphs;

/// Where a cluster is looked for if nobody says.
pub(crate) const DEFAULT_ENDPOINT: &str = "127.0.0.1:2379";

/// A cluster, and what it takes to wait for it.
pub(crate) struct Remote {
    runtime: tokio::runtime::Runtime,
    client: Client,
    level: ReadLevel,
}

impl Remote {
    /// A client of the endpoints that the command line names.
    pub(crate) fn of(context: &Context<'_, '_>) -> Result<Remote, Failure> {
        Remote::to(context.endpoints(), context.read_level())
    }

    fn to(endpoints: Vec<String>, level: ReadLevel) -> Result<Remote, Failure> {
        Remote::with_patience(endpoints, level, Duration::from_secs(10))
    }

    /// A client that waits so long for an answer.
    fn with_patience(
        endpoints: Vec<String>,
        level: ReadLevel,
        patience: Duration,
    ) -> Result<Remote, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = {
            let _entered = runtime.enter();
            let client = Client::builder()
                .endpoints(endpoints)
                .connect_timeout(Duration::from_secs(2))
                .request_timeout(patience);
            client.connect_lazy()?
        };
        Ok(Remote {
            runtime,
            client,
            level,
        })
    }

    /// Waits for a request.
    fn wait<T>(
        &self,
        request: impl Future<Output = bowline_client::Result<T>>,
    ) -> Result<T, Failure> {
        Ok(self.runtime.block_on(request)?)
    }
}

/// The state of the member at an endpoint.
pub(crate) fn status_of(endpoint: &str) -> Result<Status, Failure> {
    let remote = Remote::to(vec![endpoint.to_owned()], ReadLevel::Eventual)?;
    remote.wait(async { remote.client.status().await })
}

/// Does a command of a directory on a cluster.
pub(crate) fn execute(context: &mut Context<'_, '_>, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Put(args) => keys::put(context, args),
        Command::Get(args) => keys::get(context, args),
        Command::Del(args) => keys::del(context, args),
        Command::Range(args) => keys::range(context, args),
        Command::History(args) => keys::history(context, args),
        Command::Watch(args) => keys::watch(context, args),
        Command::Cas(args) => keys::cas(context, args),
        Command::Lease(args) => leases::run(context, args),
        // They ask a reader of the graph, which is this cluster's then.
        Command::Block(args) => commands::blocks::block(context, args),
        Command::Edge(args) => commands::blocks::edge(context, args),
        Command::Graph(args) => commands::graph::run(context, args),
        Command::Import(args) => commands::transfer::import(context, args),
        Command::Export(args) => commands::transfer::export(context, args),
        Command::Compact(args) => upkeep::compact(context, args),
        _ => Err(Failure::new(
            Exit::Usage,
            "this command works on a directory: leave --endpoints out, and say --data-dir",
        )),
    }
}

/// Does a command that only a cluster has.
pub(crate) fn execute_cluster(
    context: &mut Context<'_, '_>,
    command: &ClusterCommand,
) -> Result<(), Failure> {
    match command {
        ClusterCommand::Member(args) => members::run(context, args),
        ClusterCommand::Endpoint(args) => endpoints::run(context, args),
        ClusterCommand::MoveLeader { id } => members::move_leader(context, *id),
        ClusterCommand::Snapshot(args) => upkeep::snapshot(context, args),
        ClusterCommand::Alarm(args) => upkeep::alarm(context, args),
        ClusterCommand::Defrag => upkeep::defrag(context),
    }
}

/// A member's number as it is written: in hexadecimal, as etcd's tools do.
fn member_id(id: u64) -> String {
    format!("{id:x}")
}
