//! The client against a real server of etcd's API.
//!
//! `etcd` is started from the `PATH`, on free ports of the loopback interface and in temporary
//! directories. Where it is not installed, each test says that it was skipped. `BOWLINE_TEST_SERVER` names
//! another program, with the words before its flags, such as `target/debug/bowline serve`; it has to take
//! etcd's flags.

mod failures;
mod keys;
mod leases;
mod members;
mod proxy;
mod server;
mod watches;

use std::future::Future;
use std::io::Write;

use server::Cluster;

/// Runs a test against a cluster of `size` nodes, if there is a server to run.
fn with_cluster<F: Future<Output = ()>>(size: usize, test: impl FnOnce(Cluster) -> F) {
    let Some(program) = server::program() else {
        // Past the runner, which keeps what a test that passes prints.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: etcd is not on the PATH, and BOWLINE_TEST_SERVER names no other server"
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let cluster = Cluster::start(program, size).await;
        test(cluster).await;
    });
}
