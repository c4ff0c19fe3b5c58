//! `bowline bench`: load on any server of etcd's API, on the graph of Bowline's, and a comparison with etcd.
//!
//! ```text
//!   args ──▶ Workload (what requests look like) ──▶ load ──▶ Report ──▶ table or JSON
//!                                                    │
//!   compare: clusters, rounds, CPU of servers ──▶ ───┤
//!                                                    ▼
//!                                                  wire
//! ```
//!
//! `node` has the members in this process, and no wire between a client and its member.
//!
//! Latencies are kept in histograms of three significant digits. With `--rate`, a request's time runs
//! from when it was due, not from when it was sent: a server that stalls is charged for all that
//! waited.

mod compare;
mod graph;
mod load;
mod machine;
mod node;
mod report;
mod watch;
mod wire;
mod workload;

use crate::args::bench::{Bench, Load};
use crate::context::Context;
use crate::exit::Failure;

use load::Plan;
use workload::Workload;

/// Does what the command line says.
pub(crate) fn run(context: &mut Context<'_, '_>, args: &Bench) -> Result<(), Failure> {
    match args {
        Bench::Put(args) => one(context, "put", args, &Workload::puts(args)?),
        Bench::Txn { load, operations } => one(
            context,
            "txn",
            load,
            &Workload::transactions(load, *operations)?,
        ),
        Bench::Range {
            load,
            consistency,
            fill,
        } => {
            if *fill {
                let mut filling = load.clone();
                filling.sequential_keys = true;
                filling.rate = None;
                filling.duration = None;
                filling.total = Some(load.key_space_size);
                let report = load::run(
                    &plan(context, "fill", &filling)?,
                    &Workload::puts(&filling)?,
                )?;
                report.expect_no_errors()?;
            }
            one(
                context,
                "range",
                load,
                &Workload::reads(load, *consistency)?,
            )
        }
        Bench::Watch(args) => watch::run(context, args),
        Bench::Graph(args) => {
            if !args.no_fill {
                graph::fill(context, args)?;
            }
            let (name, workload) = graph::workload(args)?;
            one(context, name, &args.load(), &workload)
        }
        Bench::Node(args) => node::run(context, args),
        Bench::Compare(args) => compare::run(context, args),
    }
}

fn one(
    context: &mut Context<'_, '_>,
    name: &'static str,
    args: &Load,
    workload: &Workload,
) -> Result<(), Failure> {
    let report = load::run(&plan(context, name, args)?, workload)?;
    report.print(context, args.json)?;
    report.expect_some_success()
}

/// Where the load goes, and how much of it there is.
fn plan(context: &Context<'_, '_>, name: &'static str, args: &Load) -> Result<Plan, Failure> {
    let endpoints = context.endpoints();
    let endpoints = if args.target_leader {
        vec![machine::leader(&endpoints)?]
    } else {
        endpoints
    };
    let addresses = endpoints
        .iter()
        .map(|one| load::address(one))
        .collect::<Result<_, _>>()?;
    Ok(Plan {
        name,
        addresses,
        connections: args.conns.max(1),
        clients: args.clients.max(1),
        total: args.total(),
        duration: args.duration,
        rate: args.rate,
        threads: args.threads.max(1),
        quiet: context.is_quiet() || args.json,
    })
}
