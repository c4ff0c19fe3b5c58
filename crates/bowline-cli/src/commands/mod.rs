//! The commands on a directory: each opens it, makes a few calls of the library, and prints.
//!
//! Those of the graph ask a [`GraphReader`](crate::store::graph_reader::GraphReader), and so work on a cluster, too.
//!
//! Commands that only read refuse a directory that does not exist; commands that write create it.

pub(crate) mod bench;
pub(crate) mod blocks;
pub(crate) mod cluster;
pub(crate) mod graph;
mod heaps;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod tour;
pub(crate) mod transfer;
pub(crate) mod upkeep;
