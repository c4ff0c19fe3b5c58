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
mod gated;
mod graph;
mod graph_ingest;
mod graph_view;
mod graph_view_saved;
mod held_blocks;
mod history;
mod indexes;
mod ingest;
mod keys;
mod kinds;
mod leases;
mod limits;
mod many;
mod queries;
mod read_only;
mod read_only_race;
mod regressions;
mod support;
mod tck;
mod tickets;
mod transactions;
mod updates;
mod updates_in_groups;
mod upkeep;
mod watch;

/// The seeds of a random test: `fixed`, and fresh ones.
fn seeds(fixed: std::ops::Range<u64>) -> bowline_testing::seed::Seeds {
    bowline_testing::Seed::many(fixed, "-p bowline --test behaviour")
}
