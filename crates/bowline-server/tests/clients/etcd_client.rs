//! The crate `etcd-client`: every verb it has.
//!
//! Its build runs `protoc`, which the project does without. So it is no dependency of a test, which
//! would ask for `protoc` wherever the workspace is built, but a package beside the workspace, in
//! `clients/rust`, with a stand-in for `protoc` that is built before it. This test builds both, and
//! runs the client.

use std::path::{Path, PathBuf};

use bowline_testing::skip;
use tokio::process::Command;

use crate::server::{PATIENCE, start};

/// What the program prints a line for.
const PARTS: [&str; 9] = [
    "kv",
    "txn",
    "watch",
    "lease",
    "lock",
    "election",
    "cluster",
    "maintenance",
    "auth",
];

fn cargo(word: &str, target: &Path) -> Command {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/rust/Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command
        .args([word, "--quiet", "--locked", "--manifest-path"])
        .arg(package)
        .env("CARGO_TARGET_DIR", target);
    command
}

#[tokio::test]
async fn etcd_client_is_served_in_every_verb() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients/rust");
    let fetched = cargo("fetch", &target).status().await.unwrap();
    if !fetched.success() {
        skip("the registry cannot be reached for the crate etcd-client");
        return;
    }
    let protoc = cargo("build", &target).args(["-p", "protoc"]).status();
    assert!(protoc.await.unwrap().success());
    let protoc: PathBuf = target.join("debug/protoc");
    let mut build = cargo("build", &target);
    assert!(
        build
            .env("PROTOC", protoc)
            .status()
            .await
            .unwrap()
            .success()
    );
    let running = start().await;
    let client = Command::new(target.join("debug/bowline-client-rust"))
        .arg(running.address())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, client).await;
    let output = output.unwrap_or_else(|_| panic!("the client took more than {PATIENCE:?}"));
    let output = output.unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{lines}{errors}");
    let expected: String = PARTS.map(|part| format!("ok {part}\n")).concat();
    assert_eq!(lines, expected);
}
