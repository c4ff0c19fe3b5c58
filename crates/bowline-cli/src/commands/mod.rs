//! The commands: each makes a few calls on its target, and prints.
//!
//! What a directory and a cluster both hold is done by one command, on a
//! [`Target`](crate::store::target::Target); it prints the same and ends with the same code in both places. What only a
//! cluster has (members, endpoints, alarms, snapshots) goes to this machine's port 2379 if no endpoint is given.
//!
//! Commands that only read refuse a directory that does not exist; commands that write create it.

pub(crate) mod bench;
pub(crate) mod blocks;
pub(crate) mod cert;
mod children;
pub(crate) mod cluster;
pub(crate) mod endpoints;
pub(crate) mod graph;
mod graph_algorithms;
mod heaps;
mod indexes;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod maintenance;
pub(crate) mod manual;
pub(crate) mod members;
pub(crate) mod query;
pub(crate) mod quotas;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod tour;
pub(crate) mod transfer;
pub(crate) mod users;
