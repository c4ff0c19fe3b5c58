//! The two servers: a process of etcd, and Bowline in this process, both new, on loopback, with
//! their files in memory where the machine has a place for that.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bowline_proto::etcdserverpb as pb;
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::ports::free_port;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tonic::transport::Channel;

/// The programs of etcd to compare with. What is not there is told as skipped.
pub(crate) fn etcd_programs() -> Vec<PathBuf> {
    let found = bowline_testing::etcd::programs();
    match found.len() {
        0 => bowline_testing::skip(bowline_testing::etcd::MISSING),
        1 if std::env::var_os("ETCD").is_none() => {
            bowline_testing::skip_part("only one version of etcd is here");
        }
        _ => {}
    }
    found
}

/// The clients of one server.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) kv: KvClient<Channel>,
    pub(crate) watch: WatchClient<Channel>,
    pub(crate) lease: LeaseClient<Channel>,
    pub(crate) cluster: ClusterClient<Channel>,
    pub(crate) maintenance: MaintenanceClient<Channel>,
    pub(crate) channel: Channel,
    /// Where it listens.
    pub(crate) address: String,
    /// The server's member, and its address for others.
    pub(crate) member_id: u64,
    pub(crate) peer_url: String,
}

impl Clients {
    fn new(channel: &Channel) -> Clients {
        Clients {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            lease: LeaseClient::new(channel.clone()),
            cluster: ClusterClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            channel: channel.clone(),
            address: String::new(),
            member_id: 0,
            peer_url: String::new(),
        }
    }

    /// Connects, and waits until there is a leader.
    async fn connect(address: &str) -> Clients {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < Duration::from_secs(120), "{address}");
            let url = format!("http://{address}");
            if let Ok(channel) = Channel::from_shared(url).unwrap().connect().await {
                let mut clients = Clients::new(&channel);
                let status = clients.maintenance.status(pb::StatusRequest {}).await;
                if status.is_ok_and(|status| status.get_ref().leader != 0) {
                    let members = pb::MemberListRequest::default();
                    let members = clients.cluster.member_list(members).await.unwrap();
                    let member = members.into_inner().members.swap_remove(0);
                    clients.address = address.to_owned();
                    clients.member_id = member.id;
                    clients.peer_url = member.peer_ur_ls.concat();
                    return clients;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A directory that goes with its server.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(directory) => directory,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// A process of etcd; ends with it.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    pub(crate) clients: Clients,
    /// Major and minor.
    pub(crate) version: (u32, u32),
    _directory: tempfile::TempDir,
}

impl Etcd {
    pub(crate) async fn start(program: &Path) -> Etcd {
        // Somebody else may take a port between the question and the start.
        for _ in 0..5 {
            let directory = directory();
            let (client, peer) = (free_port(), free_port());
            let url = |port: u16| format!("http://127.0.0.1:{port}");
            let mut child = Command::new(program)
                .arg("--data-dir")
                .arg(directory.path().join("data"))
                .args([
                    "--name",
                    "default",
                    "--logger",
                    "zap",
                    "--log-level",
                    "error",
                ])
                .args(["--listen-client-urls", &url(client)])
                .args(["--advertise-client-urls", &url(client)])
                .args(["--listen-peer-urls", &url(peer)])
                .args(["--initial-advertise-peer-urls", &url(peer)])
                .args(["--initial-cluster", &format!("default={}", url(peer))])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let address = format!("127.0.0.1:{client}");
            let connecting = Clients::connect(&address);
            let connected = tokio::select! {
                clients = connecting => Some(clients),
                () = exited(&mut child) => None,
            };
            let Some(mut clients) = connected else {
                continue;
            };
            let status = clients.maintenance.status(pb::StatusRequest {}).await;
            let version = status.unwrap().into_inner().version;
            let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
            let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            return Etcd {
                child,
                clients,
                version,
                _directory: directory,
            };
        }
        panic!("{} does not start", program.display());
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

async fn exited(child: &mut Child) {
    while matches!(child.try_wait(), Ok(None)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bowline in this process.
#[derive(Debug)]
pub(crate) struct Bowline {
    server: Server,
    pub(crate) clients: Clients,
    _directory: tempfile::TempDir,
}

impl Bowline {
    pub(crate) async fn start() -> Bowline {
        let directory = directory();
        let data = directory.path().join("data").display().to_string();
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut layers = Layers::default();
        for (key, value) in [
            ("data-dir", data.as_str()),
            ("listen-client-urls", "http://127.0.0.1:0"),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("drain-timeout", "10ms"),
        ] {
            layers.add_flag(key, value.to_owned()).unwrap();
        }
        let config = Config::from_layers(&layers).unwrap();
        let server = Server::start(config).await.unwrap();
        let clients = Clients::connect(&server.addresses()[0].to_string()).await;
        Bowline {
            server,
            clients,
            _directory: directory,
        }
    }

    /// Ends it. It has threads, which are waited for.
    pub(crate) async fn stop(self) {
        drop(self.clients);
        self.server.shutdown().await.unwrap();
    }
}

/// Both, with nothing in them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) etcd: Etcd,
    pub(crate) bowline: Bowline,
}

impl Pair {
    pub(crate) async fn start(program: &Path) -> Pair {
        let (etcd, bowline) = tokio::join!(Etcd::start(program), Bowline::start());
        Pair { etcd, bowline }
    }

    /// Ends both.
    pub(crate) async fn stop(self) {
        drop(self.etcd);
        self.bowline.stop().await;
    }
}

/// Pairs that are made ahead: a start takes longer than a sequence.
#[derive(Debug)]
pub(crate) struct Pool {
    pairs: tokio::sync::mpsc::Receiver<Pair>,
}

impl Pool {
    pub(crate) fn start(program: &Path) -> Pool {
        /// How many wait.
        const AHEAD: usize = 2;
        let (sender, pairs) = tokio::sync::mpsc::channel(AHEAD);
        for _ in 0..2 {
            let (sender, program) = (sender.clone(), program.to_owned());
            tokio::spawn(async move {
                while let Ok(place) = sender.reserve().await {
                    place.send(Pair::start(&program).await);
                }
            });
        }
        Pool { pairs }
    }

    pub(crate) async fn take(&mut self) -> Pair {
        self.pairs.recv().await.unwrap()
    }
}
