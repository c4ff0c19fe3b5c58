//! The etcd versions in replies and metrics.

/// The etcd version that this server behaves like. Clients derive features from it: Kubernetes requests
/// progress from 3.5.13 on, and range streams exist from 3.7 on.
pub const VERSION: &str = "3.7.3";
/// The cluster version and the storage version: etcd's have no patch level.
pub(crate) const CLUSTER_VERSION: &str = "3.7.0";
/// The same in a downgrade reply and in a metric.
pub(crate) const CLUSTER_VERSION_SHORT: &str = "3.7";
