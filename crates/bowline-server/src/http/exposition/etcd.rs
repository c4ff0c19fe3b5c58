//! Metrics under etcd's names, so that dashboards and alerts made for etcd keep working.
//!
//! Only known values are exported. A name without a counterpart here (the pages of etcd's file, for example)
//! is left out: an alert without rows reports that, an alert on a constant zero never fires.

use std::fmt::{self, Write};

use bowline::Stats;
use bowline_cluster::{NodeMetrics, Status};
use tonic::Code;

use super::rows::write_times;
use crate::context::Context;
use crate::metrics::{CHECKS, CODES, Method, Metrics};
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
    let name = "etcd_disk_wal_fsync_duration_seconds";
    head(
        out,
        name,
        "histogram",
        "Times to make entries of the log durable.",
    )?;
    write_times(out, name, "", &node.log_flush_times)?;
    write_checks(out, &context.metrics)?;
    write_calls(out, &context.metrics)
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}")?;
    writeln!(out, "# TYPE {name} {kind}")
}

fn write_checks(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let name = "etcd_server_healthchecks_total";
    head(out, name, "counter", "Outcomes of each check.")?;
    for (check, outcomes) in CHECKS.iter().zip(&metrics.checks) {
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

/// Calls as gRPC libraries count them: a call at its reply, a stream at its start.
fn write_calls(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let handled = "grpc_server_handled_total";
    head(out, handled, "counter", "Calls that were answered.")?;
    for (method, of) in Method::ALL.iter().zip(&metrics.methods) {
        let (service, method) = method.names();
        for code in 0..CODES {
            let count = of.codes[code].get();
            if count > 0 {
                let code = Code::from_i32(code as i32);
                writeln!(
                    out,
                    "{handled}{{grpc_code=\"{}\",grpc_method=\"{method}\",\
                     grpc_service=\"{service}\"}} {count}",
                    name_of(code)
                )?;
            }
        }
    }
    Ok(())
}

/// The name of a code in the Go library, which spells one of them with a single `l`.
fn name_of(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
