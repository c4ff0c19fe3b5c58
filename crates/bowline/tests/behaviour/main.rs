//! The behaviour of the embedded database, tested from outside through its public interface.
//!
//! One binary, one module per topic. Where a promise must hold wherever the data lies, the same
//! scenario runs in every [`support::Stage`]: memtable, tables, merged tables, reopened.

mod algorithms;
mod anomalies;
mod bad_input;
mod commit_queue;
mod concurrency;
mod damage;
mod disk_full;
mod graph;
mod graph_ingest;
mod graph_view;
mod graph_view_saved;
mod history;
mod ingest;
mod keys;
mod leases;
mod limits;
mod read_only;
mod read_only_race;
mod regressions;
mod support;
mod transactions;
mod upkeep;
mod watch;
