//! `bench node`: members in this process, asked without a socket.
//!
//! The members talk to each other over loopback and have a directory each, as three processes would;
//! only the way from a client to its member is gone. So the figures show what the member itself costs,
//! and what a program gains that has its member inside. All clients ask the leader, which is where a
//! lease read never leaves the calling thread.
//!
//! The members have a runtime of their own. Each thread of the load has one, too, and some of the
//! clients; each client has one request under way.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline::Value;
use bowline_cluster::{LocalClient, Node, NodeConfig, ReadLevel};
use bowline_replica::{Command, Op, PutOp, RangeOp, Txn};

use super::machine;
use super::report::{Counts, Figures, Report};
use super::workload::{Random, value};
use crate::args::NodeLoad;
use crate::error::{Error, Result};

/// What is measured: a name, and how it is read (a write has no level).
const ROWS: [(&str, Option<ReadLevel>); 4] = [
    ("node put", None),
    ("node linearizable read", Some(ReadLevel::Linearizable)),
    ("node lease read", Some(ReadLevel::Lease)),
    ("node eventual read", Some(ReadLevel::Eventual)),
];

/// Starts the members, measures each row, and gives each report to `each`.
pub fn run(args: &NodeLoad, each: &mut dyn FnMut(&Report) -> io::Result<()>) -> Result<()> {
    let wanted = args.only.as_deref().unwrap_or("");
    let mut rows: Vec<_> = ROWS.into_iter().collect();
    rows.retain(|(name, _)| name.contains(wanted));
    if rows.is_empty() {
        let text = format!("no row is called {wanted:?}: put, linearizable, lease, eventual");
        return Err(Error::Usage(text));
    }
    let digits = u32::try_from(args.key_size.min(16)).unwrap_or(16);
    if digits == 0 || (digits < 16 && args.key_space_size > 1 << (4 * digits)) {
        let text = "the keys do not fit into their hexadecimal digits: raise --key-size";
        return Err(Error::Usage(text.to_owned()));
    }
    let directory = tempfile::Builder::new()
        .prefix("bowline-bench-")
        .tempdir_in(&args.directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let nodes = runtime.block_on(start(args.nodes, directory.path()))?;
    let measured = runtime
        .block_on(leader(&nodes))
        .and_then(|leader| measure(args, &rows, &leader, each));
    let stopped = runtime.block_on(async {
        let mut stopped = Ok(());
        for node in nodes {
            stopped = stopped.and(node.shutdown().await.map_err(|error| failed(&error)));
        }
        stopped
    });
    measured.and(stopped)
}

fn measure(
    args: &NodeLoad,
    rows: &[(&'static str, Option<ReadLevel>)],
    leader: &LocalClient,
    each: &mut dyn FnMut(&Report) -> io::Result<()>,
) -> Result<()> {
    if rows.iter().any(|(_, level)| level.is_some()) {
        let filling = Limits {
            total: Some(args.key_space_size),
            duration: None,
            is_sequential: true,
        };
        load("fill", None, args, filling, leader)?.expect_no_errors()?;
    }
    let limits = Limits {
        total: args.total,
        duration: args.total.is_none().then_some(args.duration),
        is_sequential: false,
    };
    for (name, level) in rows {
        let report = load(name, *level, args, limits, leader)?;
        each(&report)?;
        report.expect_some_success()?;
    }
    Ok(())
}

/// The figures of a load on members in this process: there are no connections, and the CPU time is that of the
/// members, too.
#[must_use]
pub fn figures(report: &Report) -> Figures {
    let mut figures = report.figures();
    figures.retain(|(name, _)| *name != "connections");
    for (name, _) in &mut figures {
        *name = match *name {
            "client_cpu_us_per_request" => "cpu_us_per_request",
            "client_cpu_cores" => "cpu_cores",
            name => name,
        };
    }
    figures
}

fn failed(error: &bowline_cluster::Error) -> Error {
    Error::System(error.to_string())
}

/// Starts members of one cluster.
async fn start(count: u16, directory: &Path) -> Result<Vec<Node>> {
    let addresses = machine::free_addresses(usize::from(count))?;
    let members: Vec<_> = (1..)
        .zip(addresses)
        .map(|(number, address)| (format!("node{number}"), format!("http://{address}")))
        .collect();
    let mut nodes = Vec::new();
    for (name, url) in &members {
        let mut config = NodeConfig::new(name.clone(), directory.join(name));
        config.listen_peer_urls = vec![url.clone()];
        config.advertise_peer_urls = vec![url.clone()];
        config.initial_cluster = members.clone();
        nodes.push(Node::start(config).await.map_err(|error| failed(&error))?);
    }
    Ok(nodes)
}

/// A client of the member that leads, once one does.
async fn leader(nodes: &[Node]) -> Result<LocalClient> {
    const START_TIMEOUT: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_millis(10);
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        for node in nodes {
            let client = node.client();
            let status = client.status();
            // With its lease, it has also applied what came before it.
            if status.leader == Some(status.member_id) && client.holds_lease() {
                return Ok(client);
            }
        }
        if Instant::now() > deadline {
            return Err(Error::Unreachable("no member leads".to_owned()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// When a load ends.
#[derive(Debug, Clone, Copy)]
struct Limits {
    total: Option<u64>,
    duration: Option<Duration>,
    is_sequential: bool,
}

/// What the clients of a load share.
struct Shared {
    leader: LocalClient,
    level: Option<ReadLevel>,
    limits: Limits,
    began: Instant,
    issued: AtomicU64,
    key_bytes: usize,
    key_space: u64,
    value: Value,
}

fn load(
    name: &'static str,
    level: Option<ReadLevel>,
    args: &NodeLoad,
    limits: Limits,
    leader: &LocalClient,
) -> Result<Report> {
    let clients = args.clients.max(1);
    let threads = args.threads.clamp(1, clients);
    let cpu_before = machine::cpu_of_self();
    let shared = Arc::new(Shared {
        leader: leader.clone(),
        level,
        limits,
        began: Instant::now(),
        issued: AtomicU64::new(0),
        key_bytes: args.key_size,
        key_space: args.key_space_size,
        value: Value::from(value(args.val_size)),
    });
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            let mine: Vec<usize> = (thread..clients).step_by(threads).collect();
            std::thread::spawn(move || work(&shared, &mine))
        })
        .collect();
    let mut counts = Counts::new();
    for worker in workers {
        let panicked = |_| Error::Internal("a thread of the load panicked".to_owned());
        counts.add(worker.join().map_err(panicked)??);
    }
    let cpu = machine::cpu_of_self().saturating_sub(cpu_before);
    Ok(counts.report(name, 0, clients, 1, cpu))
}

/// One thread: its clients, on a runtime of its own.
fn work(shared: &Arc<Shared>, mine: &[usize]) -> Result<Counts> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let clients: Vec<_> = mine
            .iter()
            .map(|index| tokio::task::spawn_local(drive(Arc::clone(shared), *index)))
            .collect();
        let mut counts = Counts::new();
        for client in clients {
            let done = client.await;
            counts.add(done.map_err(|error| Error::Internal(error.to_string()))?);
        }
        Ok(counts)
    }))
}

/// One client: asks, waits for the answer, and asks again.
async fn drive(shared: Arc<Shared>, index: usize) -> Counts {
    /// A read that never waits would leave the thread to no other client.
    const TURN: u64 = 64;
    let limits = shared.limits;
    let deadline = limits.duration.map(|duration| shared.began + duration);
    let mut random = Random::of(u64::try_from(index).unwrap_or(0));
    let mut counts = Counts::new();
    counts.began(shared.began);
    let mut now = Instant::now();
    for turn in 1_u64.. {
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
        let number = shared.issued.fetch_add(1, Ordering::Relaxed);
        if limits.total.is_some_and(|total| number >= total) {
            break;
        }
        let choice = if limits.is_sequential {
            number
        } else {
            random.next()
        };
        let (key, width) = (choice % shared.key_space, shared.key_bytes);
        let done = shared.ask(format!("{key:0width$x}").into_bytes()).await;
        let before = std::mem::replace(&mut now, Instant::now());
        match done {
            Ok(is_found) => counts.success(now.saturating_duration_since(before), !is_found),
            Err(error) => counts.error(error),
        }
        counts.answered(now);
        if turn % TURN == 0 {
            tokio::task::yield_now().await;
            now = Instant::now();
        }
    }
    counts
}

impl Shared {
    /// One request; says whether it found what it was to read.
    async fn ask(&self, key: Vec<u8>) -> Result<bool, String> {
        let Some(level) = self.level else {
            let put = PutOp {
                key,
                value: self.value.clone(),
                ..PutOp::default()
            };
            let txn = Txn {
                success: vec![Op::Put(put)],
                ..Txn::default()
            };
            let done = self.leader.execute(Command::Txn(txn)).await;
            let applied = done.map_err(|error| error.to_string())?;
            let refused = applied.reply.result.err();
            return refused.map_or(Ok(true), |refusal| Err(refusal.to_string()));
        };
        let op = RangeOp {
            key,
            ..RangeOp::default()
        };
        let read = self.leader.range(&op, level).await;
        let read = read.map_err(|error| error.to_string())?;
        Ok(!read.value.entries.is_empty())
    }
}
