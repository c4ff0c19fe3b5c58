//! Metrics under etcd's names, so that dashboards and alerts made for etcd keep working.
//!
//! Only known values are exported. A name without a counterpart here (the pages of etcd's file, for example)
//! is left out: an alert without rows reports that, an alert on a constant zero never fires. docs/guide/monitoring.md has
//! the list of both.

use std::fmt::{self, Write};

use bowline::Stats;
use bowline_cluster::{Histogram, NodeMetrics, PeerMetrics, Status};

use super::rows::{head, write_times};
use crate::context::Context;
use crate::metrics::{CHECKS, CheckOf, Method, Metrics};
use crate::version::{CLUSTER_VERSION_SHORT, VERSION};

/// Writes all rows.
pub(super) fn write(
    out: &mut String,
    context: &Context,
    node: &NodeMetrics,
    status: &Status,
    stats: &Stats,
) -> fmt::Result {
    let is = u64::from;
    let health = &context.metrics.health;
    let (watches, behind) = context.watches.counts();
    let of_watch = context.metrics.of(Method::Watch);
    // Read in this order: a stream that begins and ends in between must not make it negative.
    let ended = of_watch.ended_count();
    let watch_streams = of_watch.started.get().saturating_sub(ended);
    let (gauge, counter) = ("gauge", "counter");
    // Name, type, help, value.
    for (name, kind, help, value) in [
        (
            "server_has_leader",
            gauge,
            "Whether a leader is known.",
            is(status.leader.is_some()),
        ),
        (
            "server_is_leader",
            gauge,
            "Whether this member leads.",
            is(status.leader == Some(status.member_id)),
        ),
        (
            "server_is_learner",
            gauge,
            "Whether this member is a learner.",
            is(status.is_learner),
        ),
        (
            "server_leader_changes_seen_total",
            counter,
            "Changes of the leader.",
            node.leader_changes,
        ),
        (
            "server_proposals_committed_total",
            gauge,
            "The newest index that is committed.",
            status.applied_index + node.apply_lag,
        ),
        (
            "server_proposals_applied_total",
            gauge,
            "The newest index that is applied.",
            status.applied_index,
        ),
        (
            "server_proposals_pending",
            gauge,
            "Proposals under way.",
            node.proposals_pending,
        ),
        (
            "server_proposals_failed_total",
            counter,
            "Proposals that failed.",
            node.proposals_failed,
        ),
        (
            "server_quota_backend_bytes",
            gauge,
            "Bytes the database may take.",
            context.settings.quota_bytes,
        ),
        (
            "server_health_success",
            counter,
            "Answers of /health that were good.",
            health.passed.get(),
        ),
        (
            "server_health_failures",
            counter,
            "Answers of /health that were not.",
            health.failed.get(),
        ),
        (
            "mvcc_db_total_size_in_bytes",
            gauge,
            "Bytes on disk.",
            status.size_bytes,
        ),
        (
            "mvcc_db_total_size_in_use_in_bytes",
            gauge,
            "Bytes on disk that are in use.",
            status.size_in_use_bytes,
        ),
        (
            "debugging_mvcc_current_revision",
            gauge,
            "The newest revision.",
            stats.revision.get(),
        ),
        (
            "debugging_mvcc_compact_revision",
            gauge,
            "The oldest readable revision.",
            stats.oldest_revision.get(),
        ),
        (
            "network_client_grpc_received_bytes_total",
            counter,
            "Bytes that clients have sent over HTTP/2.",
            context.metrics.received_bytes.get(),
        ),
        (
            "network_client_grpc_sent_bytes_total",
            counter,
            "Bytes sent to clients over HTTP/2.",
            context.metrics.sent_bytes.get(),
        ),
        (
            "debugging_mvcc_watch_stream_total",
            gauge,
            "Streams of watches.",
            watch_streams,
        ),
        (
            "debugging_mvcc_watcher_total",
            gauge,
            "Watches.",
            watches as u64,
        ),
        (
            "debugging_mvcc_slow_watcher_total",
            gauge,
            "Watches that read history.",
            behind as u64,
        ),
    ] {
        let name = format!("etcd_{name}");
        head(out, &name, kind, help)?;
        writeln!(out, "{name} {value}")?;
    }
    for (name, label, value) in [
        ("etcd_server_version", "server_version", VERSION.to_owned()),
        (
            "etcd_cluster_version",
            "cluster_version",
            CLUSTER_VERSION_SHORT.to_owned(),
        ),
        (
            "etcd_server_id",
            "server_id",
            format!("{:x}", status.member_id),
        ),
    ] {
        head(out, name, gauge, "1 for what the label says.")?;
        writeln!(out, "{name}{{{label}=\"{value}\"}} 1")?;
    }
    for (name, help, times) in [
        (
            "etcd_disk_wal_fsync_duration_seconds",
            "Times to make entries of the log durable.",
            &node.log_flush_times,
        ),
        (
            "etcd_disk_backend_commit_duration_seconds",
            "Times to make a change of the set of tables durable.",
            &stats.engine.commit_times,
        ),
    ] {
        head(out, name, "histogram", help)?;
        write_times(out, name, "", times, Histogram::ETCD_DISK_US)?;
    }
    write_peers(out, node)?;
    write_checks(out, &context.metrics)
}

/// What is exchanged with each other member.
fn write_peers(out: &mut String, node: &NodeMetrics) -> fmt::Result {
    type Count = fn(&PeerMetrics) -> u64;
    let counts: [(&str, &str, &str, Count); 3] = [
        (
            "sent_bytes_total",
            "Bytes sent to a member.",
            "To",
            |peer| peer.sent_bytes,
        ),
        (
            "received_bytes_total",
            "Bytes received from a member.",
            "From",
            |peer| peer.received_bytes,
        ),
        (
            "sent_failures_total",
            "Requests that did not reach a member, or were not answered in time.",
            "To",
            |peer| peer.send_failures,
        ),
    ];
    for (name, help, label, count) in counts {
        let name = format!("etcd_network_peer_{name}");
        head(out, &name, "counter", help)?;
        for peer in &node.peers {
            let (id, count) = (peer.member_id, count(peer));
            writeln!(out, "{name}{{{label}=\"{id:x}\"}} {count}")?;
        }
    }
    let name = "etcd_network_peer_round_trip_time_seconds";
    let help = "Times from a heartbeat of this member, as the leader, to its answer.";
    head(out, name, "histogram", help)?;
    for peer in &node.peers {
        if peer.round_trips.count > 0 {
            let label = format!("To=\"{:x}\"", peer.member_id);
            write_times(
                out,
                name,
                &label,
                &peer.round_trips,
                Histogram::ETCD_PEER_US,
            )?;
        }
    }
    Ok(())
}

fn write_checks(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let name = "etcd_server_healthchecks_total";
    head(out, name, "counter", "Outcomes of each check.")?;
    let checks = CHECKS.iter().zip(&metrics.checks);
    // etcd has no audit log.
    for (check, outcomes) in checks.filter(|(check, _)| check.of != CheckOf::Audit) {
        let (kind, check) = (check.kind, check.name);
        for (status, count) in [("success", &outcomes.passed), ("error", &outcomes.failed)] {
            writeln!(
                out,
                "{name}{{name=\"{check}\",status=\"{status}\",type=\"{kind}\"}} {}",
                count.get()
            )?;
        }
    }
    Ok(())
}
