//! `bench compare`: Bowline and etcd in turn, under the same load.
//!
//! In each round, each system gets fresh nodes on this machine, three where nothing else is said, runs every row, and is stopped;
//! then the other one does. So a drift of the machine affects both. Medians are over rounds, and
//! the spread is shown beside them.
//!
//! The row of watchers counts events: so many puts, each delivered to every watcher of the leader, until the last
//! event has come. Its latencies are those of the puts.
//!
//! Writes, linearizable reads and lease reads go to the leader: a forwarding member would add the same latency to
//! every system, and hide the difference. Eventual reads go to all members.
//!
//! On a small machine the load takes a part of the processor. So the CPU time of the servers per
//! operation stands beside each throughput: it holds where throughput is noisy.
//!
//! A renewal of a lease is a call with one message, as of `etcdctl lease keep-alive --once`.

mod baseline;
mod cluster;
mod guard;
mod syscalls;
mod table;

pub use baseline::Baseline;

use std::time::Duration;

use bowline_client::ReadLevel;

use super::load::{self, Plan};
use super::machine::{self, Machine};
use super::report::{Report, micros_each, per_second};
use super::watch;
use super::workload::Workload;
use crate::args::{Compare, Load, WatchLoad};
use crate::error::{Error, Result};
use crate::progress::{Progress, Show, hidden};

use cluster::{Cluster, System};
use syscalls::Syscalls;

/// One line of the comparison.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    connections: usize,
    clients: usize,
    kind: Kind,
    value_bytes: usize,
    /// Whether only Bowline knows it.
    is_own: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Put,
    Read(ReadLevel),
    /// As many puts as linearizable reads.
    Half,
    /// Linearizable reads of so many keys in a row.
    Range {
        keys: u64,
    },
    /// Renewals of as many leases as there are keys.
    KeepAlive,
    /// So many puts, delivered to so many watchers.
    Watch {
        puts: u64,
        watchers: usize,
    },
}

const ROWS: [Row; 12] = [
    row("put 1/1", 1, 1, Kind::Put),
    row("put 10/100", 10, 100, Kind::Put),
    row("put 200/1000", 200, 1000, Kind::Put),
    row("50 % reads 200/1000", 200, 1000, Kind::Half),
    row(
        "linearizable read 200/1000",
        200,
        1000,
        Kind::Read(ReadLevel::Linearizable),
    ),
    Row {
        is_own: true,
        ..row(
            "lease read 200/1000",
            200,
            1000,
            Kind::Read(ReadLevel::Lease),
        )
    },
    row(
        "eventual read 200/1000",
        200,
        1000,
        Kind::Read(ReadLevel::Eventual),
    ),
    row(
        "events to 10,000 watchers",
        100,
        10,
        Kind::Watch {
            puts: 200,
            watchers: 10_000,
        },
    ),
    row("range of 100, 10/100", 10, 100, Kind::Range { keys: 100 }),
    row("lease kept alive 200/1000", 200, 1000, Kind::KeepAlive),
    // Last, as the keys have large values from then on.
    Row {
        value_bytes: 1 << 10,
        ..row("put 1 KiB, 10/100", 10, 100, Kind::Put)
    },
    Row {
        value_bytes: 16 << 10,
        ..row("put 16 KiB, 10/100", 10, 100, Kind::Put)
    },
];

/// The bytes of a value, where a row says nothing else.
const VALUE_BYTES: usize = 256;
/// The number of keys.
const KEYS: u64 = 10_000;

const fn row(name: &'static str, connections: usize, clients: usize, kind: Kind) -> Row {
    Row {
        name,
        connections,
        clients,
        kind,
        value_bytes: VALUE_BYTES,
        is_own: false,
    }
}

/// What a row beside which there is none of the same name is compared with.
fn counterpart(row: &Row) -> &'static str {
    if row.is_own {
        "linearizable read 200/1000"
    } else {
        row.name
    }
}

/// One run of one row.
#[derive(Debug, Clone)]
struct Sample {
    row: &'static str,
    system: System,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p99_9_ms: f64,
    server_cpu_us: f64,
    client_cpu_us: f64,
    /// Switches between the threads of the servers, per operation.
    switches: f64,
    /// Calls of the servers to the system, per operation, where `perf` can count them. Counted before the rest, as that takes
    /// time.
    syscalls: Option<f64>,
    errors: u64,
    empty: u64,
}

/// Everything that is reported of a comparison.
pub struct Comparison {
    /// The systems, in the order in which they are shown.
    systems: Vec<System>,
    /// The one whose figures the others' are set in proportion to.
    reference: System,
    machine: Machine,
    flushes_per_second: f64,
    versions: Vec<(System, String)>,
    /// Why a system was left out.
    left_out: Vec<(System, String)>,
    rounds: usize,
    duration: Duration,
    samples: Vec<Sample>,
}

/// Runs the rows on each system in turn.
pub fn run(args: &Compare, show: Show<'_>) -> Result<Comparison> {
    let (rounds, duration) = if args.quick {
        (2, Duration::from_secs(1))
    } else {
        (args.rounds.max(1), args.duration)
    };
    let rows: Vec<Row> = ROWS
        .into_iter()
        .filter(|row| {
            args.only
                .as_deref()
                .is_none_or(|text| row.name.contains(text))
        })
        .collect();
    if rows.is_empty() {
        return Err(Error::Usage("no row has this in its name".to_owned()));
    }
    let directory = cluster::directory_below(&args.directory)?;
    let (systems, reference) = match &args.guards[..] {
        [] => (vec![System::Bowline, System::Etcd], System::Etcd),
        guards => {
            let guarded = guards.iter().map(|guard| System::Guarded(*guard));
            let systems = std::iter::once(System::Bowline).chain(guarded).collect();
            (systems, System::Bowline)
        }
    };
    let mut comparison = Comparison {
        systems: systems.clone(),
        reference,
        machine: Machine::of(directory.path()),
        flushes_per_second: machine::flushes_per_second(directory.path(), Duration::from_secs(1))?,
        versions: Vec::new(),
        left_out: Vec::new(),
        rounds,
        duration,
        samples: Vec::new(),
    };
    let mut programs = Vec::new();
    for system in systems {
        match cluster::Program::find(system, args) {
            Ok(program) => programs.push(program),
            Err(reason) => comparison.left_out.push((system, reason)),
        }
    }
    let total = u64::try_from(rounds * programs.len() * rows.len()).unwrap_or(u64::MAX);
    let progress = show("rows", Some(total));
    for round in 0..rounds {
        // The systems take turns in being first.
        if round > 0 && !programs.is_empty() {
            programs.rotate_left(1);
        }
        for program in &programs {
            let (number, system) = (round + 1, program.system());
            progress.remark(&format!("round {number} of {rounds}, {system}"));
            let cluster = match Cluster::start(program, directory.path(), args.members) {
                Ok(cluster) => cluster,
                Err(failure) if round == 0 => {
                    comparison
                        .left_out
                        .push((program.system(), failure.to_string()));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if round == 0 {
                comparison
                    .versions
                    .push((program.system(), cluster.version()?));
            }
            let samples = measure(&cluster, &rows, duration, &*progress)?;
            comparison.samples.extend(samples);
        }
        programs.retain(|program| {
            !comparison
                .left_out
                .iter()
                .any(|(system, _)| *system == program.system())
        });
    }
    Ok(comparison)
}

/// Runs every row once.
fn measure(
    cluster: &Cluster,
    rows: &[Row],
    duration: Duration,
    progress: &dyn Progress,
) -> Result<Vec<Sample>> {
    let run = |row: &Row,
               total: Option<u64>,
               duration: Option<Duration>,
               begun: &mut dyn FnMut()|
     -> Result<Report> {
        let all = row.kind == Kind::Read(ReadLevel::Eventual);
        let load = Load {
            conns: row.connections,
            clients: row.clients,
            total,
            duration,
            sequential_keys: total.is_some(),
            key_space_size: KEYS,
            val_size: row.value_bytes,
            ..Load::default()
        };
        let workload = match row.kind {
            Kind::Put => Workload::puts(&load)?,
            Kind::Half => Workload::puts_and_reads(&load)?,
            Kind::KeepAlive if total.is_some() => Workload::grants(&load)?,
            Kind::KeepAlive => Workload::keep_alives(&load)?,
            Kind::Read(consistency) => Workload::reads(&load, consistency)?,
            Kind::Range { keys } => Workload::ranges(&load, keys)?,
            Kind::Watch { .. } => {
                return Err(Error::Internal("watchers are no requests".to_owned()));
            }
        };
        let addresses = if all {
            cluster.addresses()
        } else {
            vec![cluster.leader()?]
        };
        let plan = Plan {
            name: row.name,
            addresses,
            way: cluster.way().clone(),
            load,
        };
        load::run_noting(&plan, &workload, &hidden, begun)
    };
    // Every read is to find its key, and every put to replace one.
    run(
        &row("fill", 10, 100, Kind::Put),
        Some(KEYS),
        None,
        &mut || {},
    )?
    .expect_no_errors()?;
    let mut samples = Vec::new();
    for row in rows {
        if row.is_own && !cluster.system().is_bowline() {
            progress.add(1);
            continue;
        }
        if let Kind::Watch { puts, watchers } = row.kind {
            samples.push(watched(cluster, row, puts, watchers)?);
            progress.add(1);
            continue;
        }
        if row.kind == Kind::KeepAlive {
            run(row, Some(KEYS), None, &mut || {})?.expect_no_errors()?;
        }
        let counting = Syscalls::count(&cluster.processes());
        let warmed = run(row, None, Some(duration / 10), &mut || {})?.succeeded();
        let syscalls = counting.and_then(Syscalls::end);
        // From when all are connected: a handshake is none of the operations.
        let mut before = cluster.usage();
        let report = run(row, None, Some(duration), &mut || before = cluster.usage())?;
        let used = cluster.usage()?.since(&before?);
        let done = report.succeeded();
        samples.push(Sample {
            row: row.name,
            system: cluster.system(),
            per_second: report.throughput(),
            p50_ms: report.percentile_ms(50.0),
            p99_ms: report.percentile_ms(99.0),
            p99_9_ms: report.percentile_ms(99.9),
            server_cpu_us: micros_each(used.cpu, done),
            client_cpu_us: micros_each(report.client_cpu, done),
            switches: used.switches as f64 / done as f64,
            syscalls: syscalls.map(|calls| calls as f64 / warmed as f64),
            errors: report.failed(),
            empty: report.empty,
        });
        progress.add(1);
    }
    Ok(samples)
}

/// Runs the row of watchers once.
fn watched(cluster: &Cluster, row: &Row, puts: u64, watchers: usize) -> Result<Sample> {
    let load = WatchLoad {
        watchers,
        streams: 1,
        conns: row.connections,
        total: Some(puts),
        duration: None,
        rate: None,
        clients: row.clients,
        val_size: row.value_bytes,
        json: false,
    };
    let before = cluster.usage()?;
    let watched = watch::measure(&load, &[cluster.leader()?], cluster.way(), &hidden)?;
    let used = cluster.usage()?.since(&before);
    let puts = &watched.puts;
    let missing = watched.events_expected.saturating_sub(watched.events);
    Ok(Sample {
        row: row.name,
        system: cluster.system(),
        per_second: per_second(watched.events, watched.elapsed),
        p50_ms: puts.percentile_ms(50.0),
        p99_ms: puts.percentile_ms(99.0),
        p99_9_ms: puts.percentile_ms(99.9),
        server_cpu_us: micros_each(used.cpu, watched.events),
        client_cpu_us: micros_each(watched.client_cpu, watched.events),
        switches: used.switches as f64 / watched.events as f64,
        syscalls: None,
        errors: puts.failed() + watched.broken_streams + missing,
        empty: 0,
    })
}
