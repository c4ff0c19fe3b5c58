//! The nodes of a system on this machine.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::machine;
use crate::access::Access;
use crate::args::{Compare, Guard};
use crate::error::{Error, Result};
use crate::machine::status_of;
use crate::wire::Way;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Bowline,
    /// Bowline with certificates, users, or both.
    Guarded(Guard),
    Etcd,
}

impl System {
    /// Whether it knows what only Bowline knows.
    pub(crate) fn is_bowline(self) -> bool {
        self != System::Etcd
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            System::Bowline => "bowline",
            System::Guarded(Guard::Tls) => "bowline-tls",
            System::Guarded(Guard::Users) => "bowline-users",
            System::Guarded(Guard::Both) => "bowline-tls-users",
            System::Etcd => "etcd",
        })
    }
}

/// How to run a system.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    system: System,
    words: Vec<String>,
    version: String,
}

impl Program {
    /// Finds it, or says why it cannot be run.
    pub(crate) fn find(system: System, args: &Compare) -> Result<Program, String> {
        let words: Vec<String> = match (system, &args.bowline_program) {
            (System::Etcd, _) => vec![args.etcd_program.clone()],
            (System::Bowline | System::Guarded(_), Some(words)) => {
                words.split_whitespace().map(str::to_owned).collect()
            }
            (System::Bowline | System::Guarded(_), None) => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                vec![own.to_string_lossy().into_owned(), "serve".to_owned()]
            }
        };
        let program = words.first().ok_or("no program is given")?;
        if !is_program(program) {
            return Err(format!("{program} is not on the PATH"));
        }
        let said = Command::new(program).arg("--version").output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let said = said.unwrap_or_default();
        let first = said.lines().next().unwrap_or_default();
        // "etcd Version: 3.4.23", "bowline 0.1.0".
        let version = first.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Program {
            system,
            words,
            version,
        })
    }

    pub(crate) fn system(&self) -> System {
        self.system
    }
}

/// A directory that goes with its owner.
pub(crate) fn directory_below(parent: &Path) -> Result<TempDir> {
    fs::create_dir_all(parent)?;
    // Servers are started in other directories.
    let mut directory = tempfile::Builder::new();
    let directory = directory.prefix("bowline-bench-");
    Ok(directory.tempdir_in(parent.canonicalize()?)?)
}

/// Nodes. Dropping it ends them and removes their data.
pub(crate) struct Cluster {
    program: Program,
    nodes: Vec<Node>,
    directory: TempDir,
    access: Access,
    way: Way,
}

struct Node {
    client: String,
    peer: String,
    child: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        // If it is gone already, that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What nodes have used since they started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// The time of the processors.
    pub(crate) cpu: Duration,
    /// Switches from their threads to others.
    pub(crate) switches: u64,
}

impl Usage {
    pub(crate) fn since(self, before: &Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            // Those of threads that have ended are not in it.
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

impl Cluster {
    /// Starts so many nodes with empty directories, and waits for a leader.
    pub(crate) fn start(program: &Program, below: &Path, members: usize) -> Result<Cluster> {
        let directory = directory_below(&below.join(program.system.to_string()))?;
        let addresses = machine::free_addresses(2 * members)?;
        let guard = match program.system {
            System::Guarded(guard) => Some(guard),
            System::Bowline | System::Etcd => None,
        };
        let (arguments, tls) = match guard {
            Some(guard) => guard.certificates(directory.path())?,
            None => (Vec::new(), None),
        };
        let scheme = match &tls {
            Some(_) => "https",
            None => "http",
        };
        let initial: Vec<String> = (0..members)
            .map(|node| format!("n{}={scheme}://{}", node + 1, addresses[members + node]))
            .collect();
        let mut cluster = Cluster {
            program: program.clone(),
            nodes: Vec::new(),
            directory,
            access: Access { tls, user: None },
            way: Way::default(),
        };
        for node in 0..members {
            let name = format!("n{}", node + 1);
            let (client, peer) = (&addresses[node], &addresses[members + node]);
            let path = cluster.directory.path().join(&name);
            let log = File::create(path.with_extension("log"))?;
            let child = Command::new(&program.words[0])
                .args(&program.words[1..])
                .args(["--name", &name, "--data-dir"])
                .arg(&path)
                .args(["--listen-client-urls", &format!("{scheme}://{client}")])
                .args(["--advertise-client-urls", &format!("{scheme}://{client}")])
                .args(["--listen-peer-urls", &format!("{scheme}://{peer}")])
                .args([
                    "--initial-advertise-peer-urls",
                    &format!("{scheme}://{peer}"),
                ])
                .args(["--initial-cluster", &initial.join(",")])
                .args([
                    "--initial-cluster-state",
                    "new",
                    "--initial-cluster-token",
                    "bench",
                ])
                .args(&arguments)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .map_err(|error| {
                    let text = format!("cannot start {}: {error}", program.words[0]);
                    Error::System(text)
                })?;
            cluster.nodes.push(Node {
                client: client.clone(),
                peer: peer.clone(),
                child,
            });
        }
        cluster.wait_for_leader()?;
        let addresses = cluster.addresses();
        if let Some(guard) = guard {
            cluster.access = guard.enable_users(&addresses, &cluster.access)?;
        }
        (_, cluster.way) = cluster.access.way_to(&addresses)?;
        Ok(cluster)
    }

    /// What every connection of a load has in common.
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    fn wait_for_leader(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if node.child.try_wait()?.is_some() {
                    let text = format!(
                        "node {} of {} ended at once{}",
                        index + 1,
                        self.program.system,
                        {
                            let log = self.directory.path().join(format!("n{}.log", index + 1));
                            last_line(&log)
                        }
                    );
                    return Err(Error::Unreachable(text));
                }
            }
            let agree = self.nodes.iter().all(|node| {
                status_of(&node.client, &self.access).is_ok_and(|status| status.leader.is_some())
            });
            if agree {
                return Ok(());
            }
            if Instant::now() > deadline {
                let peers: Vec<&str> = self.nodes.iter().map(|node| node.peer.as_str()).collect();
                let text = format!(
                    "the nodes of {} at {} have no leader after 20 s",
                    self.program.system,
                    peers.join(", ")
                );
                return Err(Error::Unreachable(text));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn system(&self) -> System {
        self.program.system
    }

    /// The process of each node.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.child.id()).collect()
    }

    /// `host:port` of each node.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.client.clone()).collect()
    }

    pub(crate) fn leader(&self) -> Result<String> {
        machine::leader(&self.addresses(), &self.access)
    }

    pub(crate) fn version(&self) -> Result<String> {
        let api = status_of(&self.nodes[0].client, &self.access)?.version;
        Ok(version_text(&api, &self.program.version))
    }

    /// What all nodes have used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let gone = || Error::Unreachable("a node ended while it was measured".to_owned());
        let mut usage = Usage {
            cpu: Duration::ZERO,
            switches: 0,
        };
        for node in &self.nodes {
            let process = node.child.id();
            usage.cpu += machine::cpu_of(process).ok_or_else(gone)?;
            usage.switches += machine::switches_of(process).ok_or_else(gone)?;
        }
        Ok(usage)
    }
}

/// What a program said last, to be put behind a message.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    // Help stands at the end; what is wrong stands in front of it.
    let wrong = lines.clone().find(|line| line.starts_with("error"));
    wrong
        .or_else(|| lines.next_back())
        .map_or(String::new(), |line| format!(": {line}"))
}

/// The version that a server tells, beside what its program says of itself.
fn version_text(api: &str, program: &str) -> String {
    if program.is_empty() {
        api.to_owned()
    } else {
        format!("{program} (API {api})")
    }
}

/// Whether a program is on the `PATH`, or is one by its path.
fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
