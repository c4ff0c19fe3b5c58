//! `cluster up`: servers as child processes on the loopback address.
//!
//! The children are in process groups of their own, so that Ctrl-C reaches only this process, which
//! then ends them one like the other and waits for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bowline_cluster::member_file::MemberFile;
use bowline_storage::vfs::OsVfs;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Cluster, ClusterUp};
use crate::context::Context;
use crate::exit::{Exit, Failure};

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Cluster) -> Result<(), Failure> {
    match args {
        Cluster::Up(args) => up(context, args),
    }
}

fn up(context: &mut Context<'_, '_>, args: &ClusterUp) -> Result<(), Failure> {
    let temporary;
    let directory = match &args.data_dir.0 {
        Some(directory) => directory.as_path(),
        None => {
            temporary = tempfile::Builder::new()
                .prefix("bowline-cluster-")
                .tempdir()?;
            temporary.path()
        }
    };
    refuse_another_size(directory, args.nodes)?;
    // Before any child: from here on, a signal is asked for and does not end this process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let members = Member::all(args);
    let mut children = Children(Vec::new());
    for member in &members {
        children.start(member, &members, directory)?;
    }
    let endpoints: Vec<String> = members.iter().map(|m| m.client.to_string()).collect();
    let endpoints = endpoints.join(",");
    context.remark(&format!("data       {}", directory.display()))?;
    context.remark(&format!("endpoints  {endpoints}"))?;
    context.remark(&format!(
        "try        etcdctl --endpoints {endpoints} put greeting hello"
    ))?;
    context.remark("stop       Ctrl-C")?;
    context.streams.stdout.flush()?;
    let is_ready = |members: &[Member]| members.iter().all(|member| is_healthy(member.client));
    let mut was_ready = false;
    let ended = loop {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let signaled = runtime.block_on(async {
            tokio::select! {
                _ = interrupted.recv() => true,
                _ = terminated.recv() => true,
                () = tokio::time::sleep(LOOK_EVERY) => false,
            }
        });
        if signaled {
            break Ok(());
        }
        if let Some(failure) = children.any_ended()? {
            break Err(failure);
        }
        if !was_ready && is_ready(&members) {
            was_ready = true;
            context.remark("ready")?;
            context.streams.stdout.flush()?;
        }
    };
    children.stop();
    ended
}

/// Refuses a directory whose cluster has another number of nodes: the nodes that are there would keep their
/// membership, and more of them would wait for a cluster that does not know them.
fn refuse_another_size(directory: &Path, nodes: u16) -> Result<(), Failure> {
    /// As many as the command line takes.
    const NODES_MAX: u16 = 9;
    for number in 1..=NODES_MAX {
        let node = directory.join(format!("node{number}"));
        // What cannot be read is told by the server that is started on it.
        let Ok(Some(member)) = MemberFile::read(&OsVfs, &node) else {
            continue;
        };
        let founders = member.founders.map(|founders| founders.nodes().count());
        let (Some(founders), directory) = (founders, directory.display()) else {
            continue;
        };
        if founders != usize::from(nodes) {
            let text = format!(
                "{directory} has a cluster of {founders} nodes: start it with --nodes {founders}, or name an empty \
                 directory for one of {nodes}; `bowline member add` adds a member to a cluster that runs"
            );
            return Err(Failure::new(Exit::Invalid, text));
        }
    }
    Ok(())
}

/// One server.
struct Member {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
}

impl Member {
    fn all(args: &ClusterUp) -> Vec<Member> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let member = |number: u16| Member {
            name: format!("node{}", number + 1),
            client: at(args.base_port + 2 * number),
            peer: at(args.base_port + 2 * number + 1),
        };
        (0..args.nodes).map(member).collect()
    }
}

/// The servers that run. They end with this.
struct Children(Vec<(String, Child)>);

impl Children {
    fn start(
        &mut self,
        member: &Member,
        members: &[Member],
        directory: &Path,
    ) -> Result<(), Failure> {
        let (client, peer) = (
            format!("http://{}", member.client),
            format!("http://{}", member.peer),
        );
        let all: Vec<String> = members
            .iter()
            .map(|member| format!("{}=http://{}", member.name, member.peer))
            .collect();
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(directory.join(&member.name))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        if let Some(log) = child.stderr.take() {
            let name = member.name.clone();
            thread::spawn(move || {
                for line in BufReader::new(log).lines().map_while(Result::ok) {
                    eprintln!("{name} | {}", bowline::text::line(&line));
                }
            });
        }
        self.0.push((member.name.clone(), child));
        Ok(())
    }

    /// The failure of a server that ended by itself.
    fn any_ended(&mut self) -> Result<Option<Failure>, Failure> {
        for (name, child) in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                let exit = match status.code() {
                    Some(code) => *Exit::ALL.get(code as usize).unwrap_or(&Exit::Internal),
                    None => Exit::Internal,
                };
                let exit = if exit == Exit::Done {
                    Exit::Internal
                } else {
                    exit
                };
                let text = format!("{name} ended ({status}); its log says why");
                return Ok(Some(Failure::new(exit, text)));
            }
        }
        Ok(None)
    }

    fn signal(&mut self, signal: Signal) {
        for (_, child) in &mut self.0 {
            // One that has ended was waited for, or is still there to take the signal.
            let is_running = matches!(child.try_wait(), Ok(None));
            if is_running && let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn stop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        self.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let is_running =
                |(_, child): &mut (String, Child)| matches!(child.try_wait(), Ok(None));
            if !self.0.iter_mut().any(is_running) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.signal(Signal::KILL);
        for (_, child) in &mut self.0 {
            let _ = child.wait();
        }
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether a server says that it is well.
fn is_healthy(address: SocketAddr) -> bool {
    const PATIENCE: Duration = Duration::from_millis(500);
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut reply = [0; 12];
        stream.read_exact(&mut reply)?;
        Ok(reply.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}
