//! Commands against a cluster: what `--endpoints` names, instead of a directory.
//!
//! A command prints the same and ends with the same code in both places. What only a cluster has
//! (members, alarms, leaders) is here alone, and goes to this machine's port 2379 if no endpoint is
//! given.

mod connection;
pub(crate) mod endpoints;
mod graph;
mod import;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod members;
pub(crate) mod upkeep;

pub(crate) use connection::status_of;
pub(crate) use graph::RemoteGraphs;
