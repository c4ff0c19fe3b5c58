//! The services of etcd v3 and of `bowline.v1`, one file each.
//!
//! A service checks and converts the request, calls the node, and converts the result. It has no state except
//! the [`Context`](crate::context::Context).

mod answer;
mod auth;
mod cluster;
mod cypher;
mod election;
mod encoded;
mod etcd_range;
mod graph;
mod graph_algorithms;
mod graph_query;
mod health;
mod indexes;
mod kv;
mod lease;
mod lease_ms;
mod lock;
mod long_range;
mod maintenance;
mod members;
mod queue;
mod quotas;
mod range_stream;
mod reading;
mod reflection;
mod reserved;
mod roles;
mod snapshot;
mod store;
mod stream;
mod unsent;
mod watch;

pub(crate) use answer::{Answer, Terms};
pub(crate) use auth::AuthService;
pub(crate) use cluster::ClusterService;
pub(crate) use election::ElectionService;
pub(crate) use encoded::EncodedReply;
pub(crate) use graph::GraphService;
pub(crate) use health::HealthService;
pub(crate) use indexes::IndexesService;
pub(crate) use kv::KvService;
pub(crate) use lease::LeaseService;
pub(crate) use lease_ms::MsLeaseService;
pub(crate) use lock::LockService;
pub(crate) use long_range::LongReply;
pub(crate) use maintenance::MaintenanceService;
pub(crate) use members::MembersService;
pub(crate) use quotas::QuotasService;
pub(crate) use reflection::Reflection;
pub(crate) use roles::RolesService;
pub(crate) use store::StoreService;
pub(crate) use unsent::{Counting, UnsentKeys};
pub(crate) use watch::WatchService;

use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::Context;
use crate::status::Fault;

/// How long an operation on the whole database waits for the one under way.
const MAINTENANCE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Whether the client asked for a refusal, rather than a wait, while there is no leader.
fn needs_leader(metadata: &MetadataMap) -> bool {
    metadata
        .get("hasleader")
        .is_some_and(|value| value == "true")
}

/// Refuses what cannot be served now: on a learner all but a few calls, and calls that need a leader while
/// there is none.
fn check(context: &Context, metadata: &MetadataMap) -> Result<(), Status> {
    check_member(context, needs_leader(metadata))
}

/// See [`check`].
fn check_member(context: &Context, needs_leader: bool) -> Result<(), Status> {
    if context.is_learner() {
        return Err(Fault::LearnerUnsupported.into());
    }
    check_leader_if(context, needs_leader)
}

fn check_leader(context: &Context, metadata: &MetadataMap) -> Result<(), Status> {
    check_leader_if(context, !context.has_leader() && needs_leader(metadata))
}

fn check_leader_if(context: &Context, needs_leader: bool) -> Result<(), Status> {
    if needs_leader && !context.has_leader() {
        return Err(Fault::NoLeader.into());
    }
    Ok(())
}

fn check_size(context: &Context, bytes: usize) -> Result<(), Status> {
    if bytes > context.settings.request_bytes_max {
        return Err(Fault::RequestTooLarge.into());
    }
    Ok(())
}
