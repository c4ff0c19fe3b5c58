//! `cluster up`: servers as child processes on the loopback address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bowline_cluster::member_file::MemberFile;
use bowline_storage::vfs::OsVfs;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::children::{Children, Member};
use crate::args::{Cluster, ClusterUp};
use crate::context::Context;
use crate::exit::{Exit, Failure};

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Cluster) -> Result<(), Failure> {
    match args {
        Cluster::Up(args) => up(context, args),
    }
}

fn up(context: &mut Context<'_, '_>, args: &ClusterUp) -> Result<(), Failure> {
    let temporary;
    let directory = match &args.data_dir.0 {
        Some(directory) => directory.as_path(),
        None => {
            temporary = tempfile::Builder::new()
                .prefix("bowline-cluster-")
                .tempdir()?;
            temporary.path()
        }
    };
    refuse_another_size(directory, args.nodes)?;
    // Before any child: from here on, a signal is asked for and does not end this process.
    let mut signals = Signals::new()?;
    let members = members(args);
    let endpoints: Vec<String> = members.iter().map(|m| m.client.to_string()).collect();
    let endpoints = endpoints.join(",");
    let mut children = Children::start(members, directory.to_owned())?;
    context.remark(&format!("data       {}", directory.display()))?;
    context.remark(&format!("endpoints  {endpoints}"))?;
    context.remark("stop       Ctrl-C")?;
    context.streams.stdout.flush()?;
    let mut was_ready = false;
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    while !signals.came_within(LOOK_EVERY) {
        for news in children.look_after()? {
            context.remark(&news)?;
        }
        if !was_ready && children.have_served() {
            was_ready = true;
            context.remark("ready")?;
            what_to_try(context, &endpoints, &children)?;
        }
        context.streams.stdout.flush()?;
    }
    context.remark("stopping; Ctrl-C again kills the nodes")?;
    context.streams.stdout.flush()?;
    stop(&mut signals, &mut children);
    context.remark("stopped")
}

/// The next commands, to be copied as they are.
fn what_to_try(
    context: &mut Context<'_, '_>,
    endpoints: &str,
    children: &Children,
) -> Result<(), Failure> {
    context.remark("\nIn another terminal, try:\n")?;
    context.remark(&format!("  export BOWLINE_ENDPOINTS={endpoints}"))?;
    context.remark("  bowline put greeting hello")?;
    context.remark("  bowline get greeting")?;
    context.remark("  bowline endpoint status")?;
    context.remark("  etcdctl --endpoints $BOWLINE_ENDPOINTS get greeting")?;
    if let Some((name, id)) = children.first_process() {
        context.remark(&format!(
            "  kill -9 {id}    # {name}: the others go on, and it is started again"
        ))?;
    }
    context.remark("")
}

/// Refuses a directory whose cluster has another number of nodes: the nodes that are there would keep their
/// membership, and more of them would wait for a cluster that does not know them.
fn refuse_another_size(directory: &Path, nodes: u16) -> Result<(), Failure> {
    /// As many as the command line takes.
    const NODES_MAX: u16 = 9;
    for number in 1..=NODES_MAX {
        let node = directory.join(format!("node{number}"));
        // A directory that cannot be read is reported by the server that is started on it.
        let Ok(Some(member)) = MemberFile::read(&OsVfs, &node) else {
            continue;
        };
        let founders = member.founders.map(|founders| founders.nodes().count());
        let (Some(founders), directory) = (founders, directory.display()) else {
            continue;
        };
        if founders != usize::from(nodes) {
            let text = format!(
                "{directory} has a cluster of {founders} nodes: start it with --nodes {founders}, or name an empty \
                 directory for one of {nodes}; `bowline member add` adds a member to a cluster that runs"
            );
            return Err(Failure::new(Exit::Invalid, text));
        }
    }
    Ok(())
}

/// Stops the servers like any other: a signal that they may answer to in their time.
fn stop(signals: &mut Signals, children: &mut Children) {
    const LOOKS: u32 = 500;
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    children.terminate();
    for _ in 0..LOOKS {
        if !children.are_running() || signals.came_within(LOOK_EVERY) {
            break;
        }
    }
    children.kill();
}

/// SIGINT and SIGTERM.
struct Signals {
    runtime: Runtime,
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (interrupted, terminated) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        Ok(Signals {
            runtime,
            interrupted,
            terminated,
        })
    }

    /// Whether one comes within a time.
    fn came_within(&mut self, time: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupted.recv() => true,
                _ = self.terminated.recv() => true,
                () = tokio::time::sleep(time) => false,
            }
        })
    }
}

fn members(args: &ClusterUp) -> Vec<Member> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let member = |number: u16| Member {
        name: format!("node{}", number + 1),
        client: at(args.base_port + 2 * number),
        peer: at(args.base_port + 2 * number + 1),
    };
    (0..args.nodes).map(member).collect()
}
