//! The tests of `cluster`, on etcd.

#[path = "../cluster/main.rs"]
mod cluster;
