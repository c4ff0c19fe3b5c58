//! Prometheus's text format.

mod etcd;
mod process;
mod rows;

use std::fmt::{self, Write};

use bowline::Stats;
use bowline_cluster::{NodeMetrics, Status};
use tonic::Code;

use crate::context::Context;
use crate::metrics::{CODES, Method, Metrics};
use crate::version::VERSION;
use rows::{write_row, write_times};

/// Renders all metrics.
pub(crate) fn render(context: &Context) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing into a string does not fail.
    let _ = write_all(&mut text, context);
    text
}

fn write_all(out: &mut String, context: &Context) -> fmt::Result {
    write_requests(out, &context.metrics)?;
    let node = context.client.metrics();
    let status = context.client.status();
    let stats = context.client.db().stats();
    writeln!(out, "# HELP bowline_build_info The version of the program.")?;
    writeln!(out, "# TYPE bowline_build_info gauge")?;
    let (version, etcd) = (env!("CARGO_PKG_VERSION"), VERSION);
    writeln!(
        out,
        "bowline_build_info{{version=\"{version}\",etcd=\"{etcd}\"}} 1"
    )?;
    let rows = client_rows(context)
        .into_iter()
        .chain(member_rows(&node, &status))
        .chain(storage_rows(context, &node, &status, &stats));
    for (name, kind, help, value) in rows {
        write_row(out, name, kind, help, value)?;
    }
    let times = [
        (
            "bowline_proposal_duration_seconds",
            "Times from a proposal of this member until the leader had applied it.",
            node.commit_times,
        ),
        (
            "bowline_log_flush_duration_seconds",
            "Times to make entries of the log durable.",
            node.log_flush_times,
        ),
    ];
    for (name, help, times) in times {
        writeln!(out, "# HELP {name} {help}")?;
        writeln!(out, "# TYPE {name} histogram")?;
        write_times(out, name, "", &times)?;
    }
    for (name, value) in stats.engine.counters.named() {
        let name = format!("storage_{name}_total");
        write_row(
            out,
            &name,
            "counter",
            "A counter of the storage engine.",
            value,
        )?;
    }
    etcd::write(out, context, &node, &status, &stats)?;
    process::write(out)
}

/// A metric: its name, kind, help and value.
type Row = (&'static str, &'static str, &'static str, u64);

/// What clients do, and hold.
fn client_rows(context: &Context) -> Vec<Row> {
    let metrics = &context.metrics;
    let (watches, behind) = context.watches.counts();
    vec![
        (
            "connections",
            "gauge",
            "Connections that are open.",
            metrics.connections.get(),
        ),
        (
            "connections_accepted_total",
            "counter",
            "Connections that were taken.",
            metrics.connections_accepted.get(),
        ),
        (
            "connections_refused_total",
            "counter",
            "Connections that were over the limit.",
            metrics.connections_refused.get(),
        ),
        (
            "requests_unknown_total",
            "counter",
            "Requests for unknown services or methods.",
            metrics.unknown.get(),
        ),
        (
            "client_memory_bytes",
            "gauge",
            "Bytes that clients make the server hold, beyond 64 KiB of each connection.",
            context.memory.used() as u64,
        ),
        (
            "client_memory_max_bytes",
            "gauge",
            "The most they may.",
            context.memory.bytes_max() as u64,
        ),
        (
            "client_memory_refused_total",
            "counter",
            "How often a connection was refused more memory.",
            context.memory.refused.get(),
        ),
        (
            "requests_late_total",
            "counter",
            "Requests that were begun and did not arrive in time.",
            context.memory.late_requests.get(),
        ),
        (
            "replies_unread_total",
            "counter",
            "Calls and connections that were ended since the client did not read the reply.",
            context.memory.unread_replies.get(),
        ),
        ("watches", "gauge", "Watches.", watches as u64),
        (
            "watches_behind",
            "gauge",
            "Watches that read history.",
            behind as u64,
        ),
    ]
}

/// The member in its cluster.
fn member_rows(node: &NodeMetrics, status: &Status) -> Vec<Row> {
    let is = u64::from;
    vec![
        (
            "has_leader",
            "gauge",
            "Whether the leader is known.",
            is(status.leader.is_some()),
        ),
        (
            "is_leader",
            "gauge",
            "Whether this member leads.",
            is(status.leader == Some(status.member_id)),
        ),
        (
            "is_learner",
            "gauge",
            "Whether this member does not vote.",
            is(status.is_learner),
        ),
        ("raft_term", "gauge", "The term.", status.term),
        (
            "raft_index",
            "gauge",
            "The newest index of the log.",
            status.raft_index,
        ),
        (
            "applied_index",
            "gauge",
            "The newest index that was applied.",
            status.applied_index,
        ),
        (
            "leader_changes_total",
            "counter",
            "Changes of the leader.",
            node.leader_changes,
        ),
        (
            "proposals_pending",
            "gauge",
            "Proposals under way.",
            node.proposals_pending,
        ),
        (
            "proposals_failed_total",
            "counter",
            "Proposals that failed.",
            node.proposals_failed,
        ),
        (
            "proposals_committed_total",
            "counter",
            "Proposals that were committed.",
            node.proposals_committed,
        ),
        (
            "apply_lag_entries",
            "gauge",
            "Entries that are committed and not applied.",
            node.apply_lag,
        ),
        (
            "repairs_total",
            "counter",
            "Times that the tables of this member were replaced by the leader's.",
            node.repairs,
        ),
        (
            "tables_scrubbed_total",
            "counter",
            "Tables that were read to find damage.",
            node.tables_scrubbed,
        ),
        (
            "damage_found_total",
            "counter",
            "Damage outside of tables that was found by reading: in the log, the manifest, the member's file.",
            node.damage_found,
        ),
        (
            "comparisons_total",
            "counter",
            "Comparisons of the data of all voters by this member as the leader.",
            node.comparisons,
        ),
    ]
}

/// What is on disk and in memory.
fn storage_rows(context: &Context, node: &NodeMetrics, status: &Status, stats: &Stats) -> Vec<Row> {
    vec![
        ("log_bytes", "gauge", "The size of the log.", node.log_bytes),
        ("size_bytes", "gauge", "Bytes on disk.", status.size_bytes),
        (
            "size_in_use_bytes",
            "gauge",
            "Bytes on disk that are in use.",
            status.size_in_use_bytes,
        ),
        (
            "quota_bytes",
            "gauge",
            "Bytes the database may take.",
            context.settings.quota_bytes,
        ),
        (
            "revision",
            "gauge",
            "The newest revision.",
            stats.revision.get(),
        ),
        (
            "oldest_revision",
            "gauge",
            "The oldest readable revision.",
            stats.oldest_revision.get(),
        ),
        ("leases", "gauge", "Leases.", stats.leases),
        (
            "table_bytes",
            "gauge",
            "Bytes of the tables.",
            stats.engine.table_bytes,
        ),
        (
            "blob_bytes",
            "gauge",
            "Bytes of the files of large values.",
            stats.engine.blob_bytes,
        ),
        (
            "blob_garbage_bytes",
            "gauge",
            "Bytes in these files that nothing refers to.",
            stats.engine.blob_garbage_bytes,
        ),
        (
            "memtable_bytes",
            "gauge",
            "Bytes of what is not in tables yet.",
            stats.engine.memtable_bytes,
        ),
        (
            "graph_view_bytes",
            "gauge",
            "Bytes of the graph view; 0 while the trees answer.",
            stats.graph_view.memory_bytes,
        ),
        (
            "graph_view_edges",
            "gauge",
            "Edges in the base of the graph view.",
            stats.graph_view.edges,
        ),
    ]
}

fn write_requests(out: &mut String, metrics: &Metrics) -> fmt::Result {
    writeln!(
        out,
        "# HELP bowline_requests_total Requests that were answered, by code."
    )?;
    writeln!(out, "# TYPE bowline_requests_total counter")?;
    for (method, of) in Method::ALL.iter().zip(&metrics.methods) {
        let (service, method) = method.names();
        for code in 0..CODES {
            let count = of.codes[code].get();
            if count > 0 {
                let code = Code::from_i32(code as i32);
                writeln!(
                    out,
                    "bowline_requests_total{{service=\"{service}\",method=\"{method}\",\
                     code=\"{code:?}\"}} {count}"
                )?;
            }
        }
    }
    let name = "bowline_request_duration_seconds";
    writeln!(
        out,
        "# HELP {name} Times to the answer; to the beginning of a stream."
    )?;
    writeln!(out, "# TYPE {name} histogram")?;
    for (method, of) in Method::ALL.iter().zip(&metrics.methods) {
        let times = of.latency.read();
        if times.count == 0 {
            continue;
        }
        let (service, method) = method.names();
        let labels = format!("service=\"{service}\",method=\"{method}\"");
        write_times(out, name, &labels, &times)?;
    }
    Ok(())
}
