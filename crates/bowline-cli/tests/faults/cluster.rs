//! Three `bowline serve`, each with a directory and ports of its own.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_client::{Client, Status};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::links::Links;

pub(crate) const MEMBERS: usize = 3;
/// The pace of the members, so that a leader is missed quickly.
const HEARTBEAT_MS: &str = "50";
const ELECTION_MS: &str = "500";
/// So that leases of a few seconds are told of between two renewals.
const CHECKPOINT_MS: &str = "300";
/// How long the cluster may take to answer again once everything is healed.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

struct Member {
    child: Option<Child>,
    client: SocketAddr,
    peer: SocketAddr,
    proxy: SocketAddr,
}

pub(crate) struct Cluster {
    directory: Option<tempfile::TempDir>,
    members: Vec<Member>,
    pub(crate) links: Arc<Links>,
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bowline_testing::ports::free_port()))
}

impl Cluster {
    /// Starts three members, and waits until each answers.
    pub(crate) async fn start() -> Cluster {
        let links = Links::new();
        let mut members = Vec::new();
        for at in 0..MEMBERS {
            let listener = TcpListener::bind(("127.0.0.1", 0))
                .await
                .expect("a free port");
            let member = Member {
                child: None,
                client: free_address(),
                peer: free_address(),
                proxy: listener.local_addr().expect("an address"),
            };
            links.proxy(listener, at, member.peer);
            members.push(member);
        }
        let mut cluster = Cluster {
            directory: Some(tempfile::tempdir().expect("a temporary directory")),
            members,
            links,
        };
        for at in 0..MEMBERS {
            cluster.run(at);
        }
        cluster.wait_healthy().await;
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref().expect("it is there until the end");
        directory.path().join(name)
    }

    fn log(&self, at: usize) -> File {
        let path = self.path(&format!("m{at}.log"));
        let log = OpenOptions::new().create(true).append(true).open(path);
        log.expect("the log of the member")
    }

    /// Starts a member, new or again.
    pub(crate) fn run(&mut self, at: usize) {
        if self.members[at].child.is_some() {
            return;
        }
        let all: Vec<_> = (0..MEMBERS)
            .map(|at| format!("m{at}=http://{}", self.members[at].proxy))
            .collect();
        let member = &self.members[at];
        let url = |address: SocketAddr| format!("http://{address}");
        let child = Command::new(env!("CARGO_BIN_EXE_bowline"))
            .args(["serve", "--name", &format!("m{at}"), "--data-dir"])
            .arg(self.path(&format!("m{at}")))
            .args(["--listen-client-urls", &url(member.client)])
            .args(["--advertise-client-urls", &url(member.client)])
            .args(["--listen-peer-urls", &url(member.peer)])
            .args(["--initial-advertise-peer-urls", &url(member.proxy)])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--initial-cluster-token", "faults"])
            .args(["--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", HEARTBEAT_MS])
            .args(["--election-timeout", ELECTION_MS])
            .args(["--lease-checkpoint-interval", CHECKPOINT_MS])
            .stdin(Stdio::null())
            .stdout(self.log(at))
            .stderr(self.log(at))
            .spawn()
            .expect("the program starts");
        self.links.set_pid(at, Some(child.id()));
        self.members[at].child = Some(child);
    }

    /// SIGKILL; the process is gone when this returns.
    pub(crate) fn kill(&mut self, at: usize) {
        self.links.set_pid(at, None);
        if let Some(mut child) = self.members[at].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, at: usize, signal: Signal) {
        if let Some(child) = &self.members[at].child {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = kill_process(pid.expect("a process id"), signal);
        }
    }

    pub(crate) fn stop(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    pub(crate) fn wake(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    /// Everything runs and reaches everything. A member that ended by itself is a failure.
    pub(crate) fn heal(&mut self) {
        self.links.open_all();
        for at in 0..MEMBERS {
            self.wake(at);
            if let Some(child) = &mut self.members[at].child {
                let ended = child.try_wait().expect("a child of this process");
                assert!(ended.is_none(), "m{at} ended by itself: {ended:?}");
            }
            self.run(at);
        }
    }

    pub(crate) fn endpoint(&self, at: usize) -> String {
        self.members[at].client.to_string()
    }

    /// A client that starts with one member; of `count` members in all.
    pub(crate) fn client(&self, first: usize, count: usize, timeout: Duration) -> Client {
        let endpoints = (0..count).map(|more| self.endpoint((first + more) % MEMBERS));
        Client::builder()
            .endpoints(endpoints)
            .connect_timeout(Duration::from_millis(300))
            .request_timeout(timeout)
            .connect_lazy()
            .expect("a client")
    }

    /// A client of one member, that is patient.
    pub(crate) fn only(&self, at: usize) -> Client {
        self.client(at, 1, Duration::from_secs(10))
    }

    /// Waits until every member answers a linearizable read; gives the newest revision then.
    pub(crate) async fn wait_healthy(&mut self) -> u64 {
        let deadline = Instant::now() + HEALED_WITHIN;
        let mut newest = 0;
        for at in 0..MEMBERS {
            let client = self.only(at);
            loop {
                match client.get("health").await {
                    Ok(reply) => {
                        newest = newest.max(reply.header.revision);
                        break;
                    }
                    Err(error) => assert!(
                        Instant::now() < deadline,
                        "m{at} does not answer {HEALED_WITHIN:?} after everything was healed: {error}"
                    ),
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        newest
    }

    pub(crate) async fn status(&self, at: usize) -> Option<Status> {
        let client = self.client(at, 1, Duration::from_millis(300));
        client.status().await.ok()
    }

    /// The member that leads, as one of `among` says.
    pub(crate) async fn leader(&self, among: &[usize]) -> Option<usize> {
        let mut ids = [0; MEMBERS];
        let mut leader = 0;
        for &at in among {
            if let Some(status) = self.status(at).await {
                ids[at] = status.header.member_id;
                leader = status.leader;
            }
        }
        ids.iter().position(|&id| id != 0 && id == leader)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for at in 0..MEMBERS {
            self.kill(at);
        }
        if !std::thread::panicking() {
            return;
        }
        for at in 0..MEMBERS {
            const SHOWN: usize = 40;
            let text =
                std::fs::read_to_string(self.path(&format!("m{at}.log"))).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let skipped = lines.len().saturating_sub(SHOWN);
            eprintln!("--- the log of m{at}, without its first {skipped} lines");
            for line in &lines[skipped..] {
                eprintln!("{line}");
            }
        }
        if let Some(directory) = self.directory.take() {
            eprintln!("--- everything is in {}", directory.keep().display());
        }
    }
}
