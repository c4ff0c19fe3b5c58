//! Servers for tests: started, killed, started again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bowline_client::{Client, ReadLevel};
use bowline_testing::ports::free_port;

/// A program with the words before its flags.
#[derive(Clone)]
pub(crate) struct Program {
    words: Vec<String>,
    is_etcd: bool,
}

/// The server to test against, if there is one.
pub(crate) fn program() -> Option<Program> {
    let other = |words: Vec<String>| Program {
        words,
        is_etcd: false,
    };
    // Where these files are a test program of the package that has it.
    if let Some(bowline) = option_env!("CARGO_BIN_EXE_bowline") {
        return Some(other(vec![bowline.to_owned(), "serve".to_owned()]));
    }
    if let Ok(line) = std::env::var("BOWLINE_TEST_SERVER") {
        return Some(other(line.split_whitespace().map(str::to_owned).collect()));
    }
    let etcd = bowline_testing::etcd::program()?;
    Some(Program {
        words: vec![etcd.display().to_string()],
        is_etcd: true,
    })
}

/// Nodes of one cluster, on this machine. Dropping it ends them.
pub(crate) struct Cluster {
    program: Program,
    directory: tempfile::TempDir,
    nodes: Vec<Node>,
    /// Further flags of each node.
    flags: Vec<String>,
}

struct Node {
    client_port: u16,
    peer_port: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Starts `size` nodes, and waits until they have a leader.
    pub(crate) async fn start(program: Program, size: usize, flags: &[&str]) -> Cluster {
        let node = |_| Node {
            client_port: free_port(),
            peer_port: free_port(),
            child: None,
        };
        let mut cluster = Cluster {
            program,
            directory: tempfile::tempdir().expect("a temporary directory"),
            nodes: (0..size).map(node).collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        for index in 0..size {
            cluster.run(index);
        }
        for index in 0..size {
            cluster.wait_until_ready(index).await;
        }
        cluster
    }

    /// Starts a node that is not running.
    pub(crate) fn run(&mut self, index: usize) {
        let initial: Vec<String> = (self.nodes.iter().enumerate())
            .map(|(index, node)| format!("n{index}=http://127.0.0.1:{}", node.peer_port))
            .collect();
        let node = &self.nodes[index];
        let (client, peer) = (
            format!("http://127.0.0.1:{}", node.client_port),
            format!("http://127.0.0.1:{}", node.peer_port),
        );
        let name = format!("n{index}");
        let mut command = self.command(&name);
        command
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &initial.join(",")])
            .args([
                "--initial-cluster-state",
                "new",
                "--initial-cluster-token",
                "test",
            ])
            .args(&self.flags);
        self.nodes[index].child = Some(command.spawn().expect("the server starts"));
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program.words[0]);
        command
            .args(&self.program.words[1..])
            .args(["--name", name, "--data-dir"])
            .arg(self.path(name));
        if self.program.is_etcd {
            // Only to make elections, and so the tests, quick.
            command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        let root: &Path = self.directory.path();
        root.join(name)
    }

    /// Waits until a node answers linearizable reads.
    pub(crate) async fn wait_until_ready(&self, index: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let client = Client::builder()
            .endpoints([self.endpoint(index)])
            .request_timeout(Duration::from_secs(2))
            .connect_lazy()
            .expect("a client");
        loop {
            let read = client.get("ready").level(ReadLevel::Linearizable).await;
            match read {
                Ok(_) => return,
                Err(error) if Instant::now() > deadline => panic!("node {index}: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Kills a node: it gets no chance to say or write anything.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.nodes[index].child.take() {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[index].client_port)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.nodes.len())
            .map(|index| self.endpoint(index))
            .collect()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.endpoints())
            .await
            .expect("a node can be reached")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            self.kill(index);
        }
    }
}
