//! Commands against a cluster: what `--endpoints` names, instead of a directory.
//!
//! A command prints the same and ends with the same code in both places. What only a cluster has
//! (members, alarms, leaders) is here alone, and goes to this machine's port 2379 if no endpoint is
//! given.

pub(crate) mod endpoints;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod members;
pub(crate) mod upkeep;
