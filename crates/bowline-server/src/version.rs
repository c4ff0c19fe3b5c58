//! The versions of etcd's API that the server reports.

/// The version of etcd whose behaviour this is. Clients decide by it what they may ask for:
/// Kubernetes asks for progress from 3.5.13 on, and streams of ranges exist from 3.7 on.
pub(crate) const VERSION: &str = "3.7.3";
/// The version on which all members agree, and that of the storage's format: etcd's have no patch.
pub(crate) const CLUSTER_VERSION: &str = "3.7.0";
/// The same as a reply about downgrades and a metric say it.
pub(crate) const CLUSTER_VERSION_SHORT: &str = "3.7";
