//! etcd's own client for Go, with sessions, mutexes, elections and transactional memory.

use std::path::Path;
use std::time::Duration;

use bowline_testing::skip;
use tokio::process::Command;

use crate::server::{is_installed, on_both, repository};

/// How long it may take to fetch the modules and to build the program.
const BUILD_PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn the_go_client_is_served() {
    if !is_installed("go", "version") {
        skip("go is not installed");
        return;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("etcd-go-client");
    let mut build = Command::new("go");
    build
        .current_dir(repository("clients/go"))
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .args([program.as_os_str(), ".".as_ref()])
        .kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(BUILD_PATIENCE, build.output()).await else {
        panic!("go took more than {BUILD_PATIENCE:?} to build the client");
    };
    let output = output.unwrap();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        // Its words for a proxy or a name server that does not answer, and for a toolchain that is too old.
        let unreachable = [
            "dial tcp",
            "i/o timeout",
            "proxyconnect",
            "GOPROXY=off",
            "requires go >=",
        ];
        assert!(
            unreachable.iter().any(|words| errors.contains(words)),
            "{errors}"
        );
        skip(format!("the modules of the client cannot be had: {errors}"));
        return;
    }
    on_both(19, |url| {
        let mut client = Command::new(&program);
        client.arg(url);
        client
    })
    .await;
}
