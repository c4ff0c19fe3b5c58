//! Prometheus's text format.

mod etcd;
mod grpc;
mod process;
mod rows;
mod tls;

use std::fmt::{self, Write};
use std::time::Instant;

use bowline::Stats;
use bowline_cluster::{Histogram, NodeMetrics, PeerMetrics, Status};
use bowline_replica::Quota;
use tonic::Code;

use crate::audit::Audit;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::version::VERSION;
use rows::{head, write_row, write_times};

/// Renders all metrics.
pub(crate) fn render(context: &Context) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Writing into a string does not fail.
    let _ = write_all(&mut text, context);
    text
}

fn write_all(out: &mut String, context: &Context) -> fmt::Result {
    let names = context.settings.metric_names;
    let node = context.client.metrics();
    let status = context.client.status();
    let stats = context.client.db().stats();
    if names.of_bowline {
        write_own(out, context, &node, &status, &stats)?;
    }
    if names.of_etcd {
        etcd::write(out, context, &node, &status, &stats)?;
        grpc::write(out, &context.metrics)?;
    }
    process::write(out)
}

/// Bowline's own metrics.
fn write_own(
    out: &mut String,
    context: &Context,
    node: &NodeMetrics,
    status: &Status,
    stats: &Stats,
) -> fmt::Result {
    write_requests(out, &context.metrics)?;
    head(
        out,
        "bowline_build_info",
        "gauge",
        "The version of the program.",
    )?;
    let (version, etcd) = (env!("CARGO_PKG_VERSION"), VERSION);
    writeln!(
        out,
        "bowline_build_info{{version=\"{version}\",etcd=\"{etcd}\"}} 1"
    )?;
    let rows = client_rows(context)
        .into_iter()
        .chain(context.audit.iter().flat_map(|audit| audit_rows(audit)))
        .chain(member_rows(node, status))
        .chain(storage_rows(context, node, status, stats));
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
        (
            "bowline_manifest_commit_duration_seconds",
            "Times to make a change of the set of tables durable.",
            stats.engine.commit_times,
        ),
    ];
    for (name, help, times) in times {
        head(out, name, "histogram", help)?;
        write_times(out, name, "", &times, Histogram::OWN_US)?;
    }
    for (name, value) in stats.engine.counters.named() {
        // Prometheus's unit of times is the second.
        let (name, value) = match name.strip_suffix("_ms") {
            Some(name) => (format!("{name}_seconds"), value as f64 / 1e3),
            None => (name.to_owned(), value as f64),
        };
        let name = format!("bowline_storage_{name}_total");
        head(out, &name, "counter", "A counter of the storage engine.")?;
        writeln!(out, "{name} {value}")?;
    }
    write_rates(out, context)?;
    write_quotas(out, context)?;
    write_peers(out, node)?;
    tls::write(out, context.ports.get().map_or(&[], Vec::as_slice))
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
        (
            "received_bytes_total",
            "counter",
            "Bytes that clients have sent over HTTP/2.",
            metrics.received_bytes.get(),
        ),
        (
            "sent_bytes_total",
            "counter",
            "Bytes sent to clients over HTTP/2.",
            metrics.sent_bytes.get(),
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

/// The audit log.
fn audit_rows(audit: &Audit) -> Vec<Row> {
    vec![
        (
            "audit_written_total",
            "counter",
            "Lines written to the audit log.",
            audit.written.get(),
        ),
        (
            "audit_dropped_total",
            "counter",
            "Lines of the audit log that were dropped.",
            audit.dropped.get(),
        ),
        (
            "audit_refused_total",
            "counter",
            "Calls that were refused since the audit log had no room.",
            audit.refused.get(),
        ),
        (
            "audit_queue_bytes",
            "gauge",
            "Bytes of lines that wait to be written.",
            audit.used_bytes() as u64,
        ),
        (
            "audit_rotations_total",
            "counter",
            "Files that the audit log has ended.",
            audit.rotations.get(),
        ),
        (
            "audit_failing",
            "gauge",
            "Whether the audit log cannot be written.",
            u64::from(audit.failure().is_some()),
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
            "held_block_bytes",
            "gauge",
            "Bytes of the kinds and attributes of blocks that queries have read, about.",
            stats.graph_view.held_bytes,
        ),
        (
            "graph_view_edges",
            "gauge",
            "Edges in the base of the graph view.",
            stats.graph_view.edges,
        ),
    ]
}

/// What rates have refused, if there are some.
fn write_rates(out: &mut String, context: &Context) -> fmt::Result {
    let Some(rates) = &context.rates else {
        return Ok(());
    };
    let name = "bowline_rate_refused_total";
    let help = "Calls that were refused since their principal had exceeded a limit.";
    head(out, name, "counter", help)?;
    let (requests, bytes) = (&rates.refused_requests, &rates.refused_scanned_bytes);
    writeln!(out, "{name}{{limit=\"requests\"}} {}", requests.get())?;
    writeln!(out, "{name}{{limit=\"scanned_bytes\"}} {}", bytes.get())?;
    let help = "Users and addresses that have made calls lately.";
    let name = "bowline_rate_principals";
    head(out, name, "gauge", help)?;
    writeln!(out, "{name} {}", rates.principals(Instant::now()))
}

/// The quotas of prefixes.
fn write_quotas(out: &mut String, context: &Context) -> fmt::Result {
    type Number = fn(&Quota) -> Option<u64>;
    let numbers: [(&str, &str, Number); 4] = [
        (
            "bowline_quota_prefix_keys",
            "Keys that begin with a prefix that has a quota.",
            |quota| Some(quota.used.keys),
        ),
        (
            "bowline_quota_prefix_keys_max",
            "The most keys that begin with the prefix.",
            |quota| quota.limits.keys,
        ),
        (
            "bowline_quota_prefix_bytes",
            "Bytes of the keys that begin with a prefix that has a quota, and of their newest values.",
            |quota| Some(quota.used.bytes),
        ),
        (
            "bowline_quota_prefix_bytes_max",
            "The most bytes of the keys that begin with the prefix, and of their newest values.",
            |quota| quota.limits.bytes,
        ),
    ];
    let name = "bowline_quota_refused_total";
    head(
        out,
        name,
        "counter",
        "Commands that were refused for the quota of a prefix.",
    )?;
    writeln!(out, "{name} {}", context.client.quota_refusals())?;
    let quotas = context.client.quotas();
    for (name, help, number) in numbers.into_iter().filter(|_| !quotas.is_empty()) {
        head(out, name, "gauge", help)?;
        for quota in &quotas {
            if let Some(number) = number(quota) {
                let prefix = bowline::text::escape(&quota.prefix);
                // The escapes of labels are backslash, quote and line feed; the text has no other line feed.
                let prefix = prefix.replace('\\', "\\\\").replace('"', "\\\"");
                writeln!(out, "{name}{{prefix=\"{prefix}\"}} {number}")?;
            }
        }
    }
    Ok(())
}

/// What is exchanged with each other member.
fn write_peers(out: &mut String, node: &NodeMetrics) -> fmt::Result {
    type Count = fn(&PeerMetrics) -> u64;
    let counts: [(&str, &str, Count); 3] = [
        (
            "bowline_peer_sent_bytes_total",
            "Bytes sent to a member.",
            |peer| peer.sent_bytes,
        ),
        (
            "bowline_peer_received_bytes_total",
            "Bytes received from a member.",
            |peer| peer.received_bytes,
        ),
        (
            "bowline_peer_send_failures_total",
            "Requests that did not reach a member, or were not answered in time.",
            |peer| peer.send_failures,
        ),
    ];
    for (name, help, count) in counts {
        head(out, name, "counter", help)?;
        for peer in &node.peers {
            let (id, count) = (peer.member_id, count(peer));
            writeln!(out, "{name}{{peer=\"{id:x}\"}} {count}")?;
        }
    }
    let name = "bowline_peer_round_trip_seconds";
    let help = "Times from a heartbeat of this member, as the leader, to its answer.";
    head(out, name, "histogram", help)?;
    for peer in &node.peers {
        if peer.round_trips.count > 0 {
            let label = format!("peer=\"{:x}\"", peer.member_id);
            write_times(out, name, &label, &peer.round_trips, Histogram::OWN_US)?;
        }
    }
    Ok(())
}

fn write_requests(out: &mut String, metrics: &Metrics) -> fmt::Result {
    head(
        out,
        "bowline_requests_total",
        "counter",
        "Requests that were answered, or that nobody waited for any more, by code; streams at their beginning.",
    )?;
    for (method, of) in metrics.methods() {
        let (codes, _) = of.answers(method.kind());
        let (service, method) = method.names();
        for (code, count) in (0..).zip(codes) {
            let count = count.get();
            if count > 0 {
                let code = Code::from_i32(code);
                writeln!(
                    out,
                    "bowline_requests_total{{service=\"{service}\",method=\"{method}\",\
                     code=\"{code:?}\"}} {count}"
                )?;
            }
        }
    }
    let name = "bowline_request_duration_seconds";
    let help = "Times to the answer; to the beginning of a stream.";
    head(out, name, "histogram", help)?;
    for (method, of) in metrics.methods() {
        let times = of.answers(method.kind()).1.read();
        if times.count == 0 {
            continue;
        }
        let (service, method) = method.names();
        let labels = format!("service=\"{service}\",method=\"{method}\"");
        write_times(out, name, &labels, &times, Histogram::OWN_US)?;
    }
    Ok(())
}
