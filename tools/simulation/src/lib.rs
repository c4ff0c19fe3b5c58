//! A whole cluster in one thread and in virtual time, under faults, from one seed.
//!
//! The members are the shipped code: [`bowline_cluster::Node`], with openraft, gRPC and HTTP/2 below it and the
//! storage engine beside it; in some seeds behind the shipped server, [`bowline_server::Server`], with users who reach it by
//! the library's own client. What they take from the system is simulated:
//!
//! | module | what it is instead of |
//! |---|---|
//! | `wire` | the network: segments with delays, cut and slow paths, resets |
//! | `runtime` | the process: a runtime of one thread whose time the simulation moves |
//! | `member` | a member's process, with its disk and its clock |
//! | `cluster` | the machines: all members, moved in steps of a millisecond |
//! | `faults` | what happens to them, drawn from the seed |
//! | `entropy` | randomness and time of the system, as this run has them |
//! | `clients` | users of a member's process: they write and read, and write down what they saw |
//! | `remote` | users over the network |
//! | `history` | what all of them asked and were told |
//! | `operator` | who removes, adds and promotes members |
//! | `holders`, `subscribers` | users of leases, and of watches |
//! | `told`, `register` | what watches tell: of everything, and of one register |
//! | `entries` | which entries members have applied |
//! | `hurt` | the last judge: with one member hurt, the others answer |
//! | `options` | what decides about a run beside its seed |
//! | `run` | one seed from beginning to end, with its judges |
//! | `trace` | what happened, as text and as a hash |
//! | `story` | what the members log, as a part of the text |
//!
//! A seed decides everything: delays, faults, what clients do, and the randomness of the members
//! (`fastrand`, seeded for the thread). Two runs of a seed have the same trace.
//!
//! # Example
//! ```
//! use bowline_simulation::{Options, run};
//!
//! let outcome = run(7, &Options { virtual_seconds: 2, ..Options::default() });
//! assert!(outcome.failure.is_none(), "{outcome}");
//! ```

#![recursion_limit = "256"]

mod clients;
mod cluster;
mod entries;
pub mod entropy;
mod faults;
mod history;
mod holders;
mod hurt;
mod member;
mod operator;
mod options;
mod register;
mod remote;
mod run;
mod runtime;
mod story;
mod subscribers;
mod told;
mod trace;
mod wire;

pub use options::Options;
pub use run::{Outcome, run};
