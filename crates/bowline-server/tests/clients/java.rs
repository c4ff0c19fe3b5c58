//! jetcd, the client for Java, which leaves locks and elections to the server.

use std::path::Path;
use std::time::Duration;

use bowline_testing::skip;
use tokio::process::Command;

use crate::server::{is_installed, on_both, repository};

/// How long it may take to fetch the libraries and to compile the program.
const BUILD_PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn jetcd_is_served() {
    if !is_installed("mvn", "--version") || !is_installed("java", "--version") {
        skip("mvn or java is not installed");
        return;
    }
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("etcd-java-client");
    let class_path = output.join("class-path");
    let mut build = Command::new("mvn");
    build
        .args(["-q", "-B", "-f"])
        .arg(repository("clients/java/pom.xml"))
        .arg(format!("-Doutput={}", output.display()))
        .args(["compile", "dependency:build-classpath"])
        .arg(format!("-Dmdep.outputFile={}", class_path.display()))
        .kill_on_drop(true);
    let Ok(built) = tokio::time::timeout(BUILD_PATIENCE, build.output()).await else {
        panic!("mvn took more than {BUILD_PATIENCE:?} to build the client");
    };
    let built = built.unwrap();
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stdout);
        // Its words for a repository that does not answer.
        let unreachable = [
            "Could not transfer",
            "Unknown host",
            "in offline mode",
            "No plugin found for prefix",
        ];
        assert!(
            unreachable.iter().any(|words| said.contains(words)),
            "{said}"
        );
        skip(format!("the libraries of the client cannot be had: {said}"));
        return;
    }
    let libraries = std::fs::read_to_string(&class_path).unwrap();
    let classes = format!("{}/classes:{}", output.display(), libraries.trim());
    on_both(12, |url| {
        let mut client = Command::new("java");
        client.args(["-cp", &classes, "Clients", url]);
        client
    })
    .await;
}
