//! The client against a real server of etcd's API.
//!
//! These files are two test programs. That of this package runs on etcd, and is skipped where there is none.
//! `client` of the package `bowline-cli` runs on `bowline serve`, everywhere: what passes on one must pass on
//! the other. The servers are started on free ports of the loopback interface, in temporary directories.
//! `BOWLINE_TEST_SERVER` names another program for the first, with the words before its flags; it has to
//! take etcd's flags.

mod failures;
mod keys;
mod leases;
mod members;
mod proxy;
mod server;
mod users;
mod watches;

use std::future::Future;

use server::Cluster;

/// Runs a test against a cluster of `size` nodes, if there is a server to run.
fn with_cluster<F: Future<Output = ()>>(size: usize, test: impl FnOnce(Cluster) -> F) {
    with_cluster_of(size, &[], test);
}

/// The same with further flags, which must be etcd's.
fn with_cluster_of<F: Future<Output = ()>>(
    size: usize,
    flags: &[&str],
    test: impl FnOnce(Cluster) -> F,
) {
    let Some(program) = server::program() else {
        return bowline_testing::skip(bowline_testing::etcd::MISSING);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let cluster = Cluster::start(program, size, flags).await;
        test(cluster).await;
    });
}
