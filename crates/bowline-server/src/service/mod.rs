//! The services of etcd v3, and the graph, one file each.
//!
//! A service checks and converts the request, asks the node, and converts the answer. It holds no
//! state but the [`Context`](crate::context::Context).

mod cluster;
mod graph;
mod kv;
mod lease;
mod maintenance;
mod range_stream;
mod snapshot;
mod stream;
mod watch;

pub(crate) use cluster::ClusterService;
pub(crate) use graph::GraphService;
pub(crate) use kv::KvService;
pub(crate) use lease::LeaseService;
pub(crate) use maintenance::{MaintenanceService, VERSION};
pub(crate) use watch::WatchService;

use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::Context;
use crate::status::Fault;

/// Whether a client asked to be refused, rather than to wait, while there is no leader.
fn needs_leader(metadata: &MetadataMap) -> bool {
    metadata
        .get("hasleader")
        .is_some_and(|value| value == "true")
}

/// Refuses what cannot be served now: anything but the few calls that a learner serves, and calls
/// that need a leader while there is none.
fn check(context: &Context, metadata: &MetadataMap) -> Result<(), Status> {
    if context.is_learner() {
        return Err(Fault::LearnerUnsupported.into());
    }
    check_leader(context, metadata)
}

fn check_leader(context: &Context, metadata: &MetadataMap) -> Result<(), Status> {
    if !context.has_leader() && needs_leader(metadata) {
        return Err(Fault::NoLeader.into());
    }
    Ok(())
}
