//! The commands: each opens the directory, makes a few calls of the library, and prints.
//!
//! With `--endpoints`, `remote` does them on a cluster instead.
//!
//! Commands that only read refuse a directory that does not exist; commands that write create it.

pub(crate) mod blocks;
pub(crate) mod cluster;
pub(crate) mod graph;
pub(crate) mod graph_reader;
mod heaps;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod sink;
mod store;
pub(crate) mod tour;
pub(crate) mod transfer;
pub(crate) mod upkeep;
