//! Commands on a cluster, through the real program: the same results as on a directory.
//!
//! The cluster is one node on free ports: of `bowline serve` in the test program `cluster`, and of etcd in
//! `cluster_on_etcd`, which is skipped where there is none. What passes on one must pass on the other.

mod bench;
mod commands;

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One node, and the program that talks to it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    server: Child,
    endpoint: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn free_address() -> String {
    format!("127.0.0.1:{}", bowline_testing::ports::free_port())
}

/// The words with which a server is started, if there is one.
fn server() -> Option<Vec<String>> {
    if env!("CARGO_CRATE_NAME") == "cluster" {
        let program = env!("CARGO_BIN_EXE_bowline");
        return Some(vec![program.to_owned(), "serve".to_owned()]);
    }
    let etcd = bowline_testing::etcd::program()?;
    Some(vec![etcd.display().to_string()])
}

impl Place {
    /// Starts a node; `None`, said aloud, if there is nothing to start.
    pub(crate) fn start() -> Option<Place> {
        let Some(words) = server() else {
            bowline_testing::skip(bowline_testing::etcd::MISSING);
            return None;
        };
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (client, peer) = (free_address(), free_address());
        let url = |address: &str| format!("http://{address}");
        let server = Command::new(&words[0])
            .args(&words[1..])
            .args(["--name", "n1", "--data-dir"])
            .arg(directory.path().join("node"))
            .args(["--listen-client-urls", &url(&client)])
            .args(["--advertise-client-urls", &url(&client)])
            .args(["--listen-peer-urls", &url(&peer)])
            .args(["--initial-advertise-peer-urls", &url(&peer)])
            .args(["--initial-cluster", &format!("n1=http://{peer}")])
            .args([
                "--initial-cluster-state",
                "new",
                "--initial-cluster-token",
                "test",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let place = Place {
            directory,
            server,
            endpoint: client,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !place.command("endpoint health").status.success() {
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(place)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bowline"))
            .args(line.split_whitespace())
            .current_dir(self.directory.path())
            .env("BOWLINE_ENDPOINTS", &self.endpoint)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    /// Runs a line that must succeed; gives what it printed.
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.command(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "bowline {line}: {stderr}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs a line that must succeed with JSON output; gives its objects.
    pub(crate) fn json(&self, line: &str) -> Vec<Value> {
        let text = self.ok(&format!("-o json {line}"));
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Runs a line that must fail with this code; gives its message.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.command(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "bowline {line}: {stderr}");
        stderr
    }
}
