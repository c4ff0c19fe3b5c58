//! Load on any server of etcd's API, on the graph of Bowline's, and a comparison with etcd.
//!
//! ```text
//!   args ──▶ Workload (what requests look like) ──▶ load ──▶ Report ──▶ figures
//!                                                    │
//!   compare: clusters, rounds, CPU of servers ──▶ ───┤
//!                                                    ▼
//!                                                  wire
//! ```
//!
//! Modules use only modules below them: `compare`; `watch`; `load`, `graph`, `node`; `machine`, `workload`; `access`; `args`,
//! `report`; `wire`, `progress`, `units`, `error`.
//!
//! `node` has the members in this process, and no wire between a client and its member.
//!
//! Latencies are kept in histograms of three significant digits. With a rate, a request's time runs
//! from when it was due, not from when it was sent: the latency of a stalled server includes the wait of the
//! requests behind (no coordinated omission).
//!
//! Nothing here prints: a load returns named figures, and reports its progress through [`Progress`].

mod access;
pub mod args;
mod compare;
mod error;
mod graph;
mod load;
mod machine;
mod node;
mod progress;
mod report;
pub mod units;
mod watch;
mod wire;
mod workload;

use bowline_client::ReadLevel;

use args::{GraphLoad, Load, WatchLoad};
use load::Plan;
use workload::Workload;

pub use access::Access;
pub use compare::{Baseline, Comparison, run as compare};
pub use error::{Error, Result};
pub use node::{figures as node_figures, run as measure_node};
pub use progress::{Progress, Show};
pub use report::{Figure, Figures, Report};
pub use watch::Watched;

/// Puts load on servers.
pub struct Generator<'a> {
    /// Where the servers are.
    pub endpoints: Vec<String>,
    /// How they are reached.
    pub access: Access,
    /// Shows how far a load is.
    pub show: Show<'a>,
}

impl Generator<'_> {
    /// Puts keys.
    pub fn puts(&self, args: &Load) -> Result<Report> {
        self.run("put", args, &Workload::puts(args)?)
    }

    /// Puts several keys in each transaction.
    pub fn transactions(&self, args: &Load, operations: u32) -> Result<Report> {
        let workload = Workload::transactions(args, operations)?;
        self.run("txn", args, &workload)
    }

    /// Reads single keys; with `fill`, puts every one of them first.
    pub fn reads(&self, args: &Load, consistency: ReadLevel, fill: bool) -> Result<Report> {
        if fill {
            let filling = Load {
                sequential_keys: true,
                rate: None,
                duration: None,
                total: Some(args.key_space_size),
                ..args.clone()
            };
            let report = self.run("fill", &filling, &Workload::puts(&filling)?)?;
            report.expect_no_errors()?;
        }
        self.run("range", args, &Workload::reads(args, consistency)?)
    }

    /// Puts keys that many watchers watch.
    pub fn watches(&self, args: &WatchLoad) -> Result<Watched> {
        let (addresses, way) = self.access.way_to(&self.endpoints)?;
        watch::measure(args, &addresses, &way, self.show)
    }

    /// Writes a graph unless that was done before, and asks about it.
    pub fn graph(&self, args: &GraphLoad) -> Result<Report> {
        if !args.no_fill {
            graph::fill(&self.endpoints, &self.access, args, self.show)?;
        }
        let (name, workload) = graph::workload(args)?;
        self.run(name, &args.load(), &workload)
    }

    fn run(&self, name: &'static str, args: &Load, workload: &Workload) -> Result<Report> {
        let (addresses, way) = match args.target_leader {
            true => {
                let leader = machine::leader(&self.endpoints, &self.access)?;
                self.access.way_to(&[leader])?
            }
            false => self.access.way_to(&self.endpoints)?,
        };
        let plan = Plan {
            name,
            addresses,
            way,
            load: args.clone(),
        };
        load::run(&plan, workload, self.show)
    }
}
