//! The servers of `cluster up`: child processes, started again when they end.
//!
//! Each child is in a process group of its own: Ctrl-C reaches only this process, which then stops the children
//! one like the other and waits for them. Each child's standard input is a pipe that this process holds open
//! and never writes to. When this process ends in whatever way, the pipe closes, and the child stops.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{Exit, Failure};

/// One server of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) client: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// The servers. They end with this.
pub(super) struct Children {
    directory: PathBuf,
    /// `--initial-cluster`.
    founders: String,
    nodes: Vec<Node>,
}

/// A server, whether it runs or is to be started again.
struct Node {
    member: Member,
    /// The colour of its name, if log lines have colours.
    colour: Option<u8>,
    child: Option<Child>,
    started: Instant,
    /// When it is started again, while it does not run.
    start_at: Instant,
    restarts: Restarts,
    /// Whether it has answered since its last start.
    is_serving: bool,
    /// Whether it has ever answered.
    has_served: bool,
}

impl Children {
    /// Starts all members, with a directory each in `directory`.
    pub(super) fn start(members: Vec<Member>, directory: PathBuf) -> Result<Children, Failure> {
        let founder = |member: &Member| format!("{}=http://{}", member.name, member.peer);
        let founders: Vec<String> = members.iter().map(founder).collect();
        let mut children = Children {
            directory,
            founders: founders.join(","),
            nodes: Vec::new(),
        };
        let colours = has_colours(io::stderr().is_terminal(), std::env::var_os("NO_COLOR"));
        let now = Instant::now();
        for (member, colour) in std::iter::zip(members, COLOURS.iter().cycle()) {
            children.nodes.push(Node {
                member,
                colour: colours.then_some(*colour),
                child: None,
                started: now,
                start_at: now,
                restarts: Restarts::default(),
                is_serving: false,
                has_served: false,
            });
        }
        for index in 0..children.nodes.len() {
            children.start_one(index)?;
        }
        Ok(children)
    }

    fn start_one(&mut self, index: usize) -> Result<u32, Failure> {
        let node = &mut self.nodes[index];
        let member = &node.member;
        let client = format!("http://{}", member.client);
        let peer = format!("http://{}", member.peer);
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--stop-at-end-of-input")
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(self.directory.join(&member.name))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.founders])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        if let Some(log) = child.stderr.take() {
            let prefix = prefix(&member.name, node.colour);
            thread::spawn(move || copy_log(log, &prefix));
        }
        let id = child.id();
        node.child = Some(child);
        node.started = Instant::now();
        node.is_serving = false;
        Ok(id)
    }

    /// Sees which servers have ended, and starts those whose time has come. Returns what there is to say.
    ///
    /// # Errors
    /// When a server ended before it ever served, or too often.
    pub(super) fn look_after(&mut self) -> Result<Vec<String>, Failure> {
        let mut news = Vec::new();
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let name = node.member.name.clone();
            let Some(child) = &mut node.child else {
                if Instant::now() >= node.start_at {
                    let id = self.start_one(index)?;
                    news.push(format!("{name} was started again as process {id}"));
                }
                continue;
            };
            match child.try_wait()? {
                Some(status) => news.push(node.ended(status)?),
                None if node.is_serving => {}
                None if is_healthy(node.member.client) => {
                    if node.has_served {
                        news.push(format!("{name} serves again"));
                    }
                    node.is_serving = true;
                    node.has_served = true;
                }
                None => {}
            }
        }
        Ok(news)
    }

    /// Whether every server has answered at least once.
    pub(super) fn have_served(&self) -> bool {
        self.nodes.iter().all(|node| node.has_served)
    }

    /// The process of the first server, while it runs.
    pub(super) fn first_process(&self) -> Option<(&str, u32)> {
        let node = self.nodes.first()?;
        Some((&node.member.name, node.child.as_ref()?.id()))
    }

    pub(super) fn are_running(&mut self) -> bool {
        let mut running = self.nodes.iter_mut().filter_map(|node| node.child.as_mut());
        running.any(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks every server to stop.
    pub(super) fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Kills the servers that still run, and waits for them.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.wait();
            }
        }
    }

    fn signal(&mut self, signal: Signal) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            // One that has ended was waited for, or is still there to take the signal.
            let is_running = matches!(child.try_wait(), Ok(None));
            if is_running && let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        const TIMEOUT: Duration = Duration::from_secs(10);
        self.terminate();
        let deadline = Instant::now() + TIMEOUT;
        while self.are_running() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}

impl Node {
    /// Decides when a server that has ended is started again; returns what there is to say.
    fn ended(&mut self, status: ExitStatus) -> Result<String, Failure> {
        self.child = None;
        let name = &self.member.name;
        if !self.has_served && status.code().is_some() {
            // For example, its port is taken: it would fail again.
            let text = format!("{name} ended ({status}); its log says why");
            return Err(Failure::new(exit_of(status), text));
        }
        let now = Instant::now();
        let Some(pause) = self.restarts.after(now - self.started) else {
            let text = format!(
                "{name} ended {ENDS_MAX} times in a row, each time within {} s of its start, the last \
                 time with {status}; its log says why",
                STEADY.as_secs()
            );
            return Err(Failure::new(exit_of(status), text));
        };
        self.start_at = now + pause;
        let count = self.restarts.quick;
        Ok(format!(
            "{name} ended ({status}); it is started again in {pause:?} (attempt {count} of {})",
            ENDS_MAX - 1
        ))
    }
}

/// A server that ends this often in a row, each time sooner than [`STEADY`], is not started again.
pub(super) const ENDS_MAX: u32 = 5;
/// A server that ran for so long was well.
pub(super) const STEADY: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How often a server has ended soon after its start.
#[derive(Debug, Default)]
struct Restarts {
    quick: u32,
}

impl Restarts {
    /// The pause before the next start of a server that ended after it `ran` for so long; `None` when it is not
    /// to be started again.
    fn after(&mut self, ran: Duration) -> Option<Duration> {
        if ran >= STEADY {
            self.quick = 0;
        }
        self.quick += 1;
        (self.quick < ENDS_MAX).then(|| FIRST_PAUSE * 2_u32.pow(self.quick - 1))
    }
}

/// How this program ends when a server ended so.
fn exit_of(status: ExitStatus) -> Exit {
    let exit = status.code().and_then(|code| {
        let index = usize::try_from(code).ok()?;
        Exit::ALL.get(index).copied()
    });
    /// Signals by which a program ends itself that has a bug.
    const OF_BUGS: [Signal; 5] = [
        Signal::ABORT,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::SEGV,
    ];
    let signal = status.signal().and_then(Signal::from_named_raw);
    match (exit, signal) {
        // Somebody else told it to end, or the system did, as when there is no memory.
        (Some(Exit::Done), _) => Exit::Io,
        (None, Some(signal)) if !OF_BUGS.contains(&signal) => Exit::Io,
        (None, _) => Exit::Internal,
        (Some(exit), _) => exit,
    }
}

/// Whether log lines have colours: on a terminal, unless the variable `NO_COLOR` is set and not empty.
fn has_colours(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

/// ANSI codes: cyan, yellow, green, magenta, blue, and the bright ones.
const COLOURS: [u8; 9] = [36, 33, 32, 35, 34, 96, 93, 92, 95];

/// What begins a server's lines.
fn prefix(name: &str, colour: Option<u8>) -> String {
    match colour {
        Some(colour) => format!("\x1B[{colour}m{name} |\x1B[0m "),
        None => format!("{name} | "),
    }
}

/// Copies a server's log to standard error, line by line.
fn copy_log(log: impl Read, prefix: &str) {
    let mut log = BufReader::new(log);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match log.read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = bowline::text::line(text.trim_end());
        // Without a reader of this the server still needs one.
        let _ = io::stderr().write_all(format!("{prefix}{line}\n").as_bytes());
    }
}

/// Whether a server says that it is well.
fn is_healthy(address: SocketAddr) -> bool {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut reply = [0; 12];
        stream.read_exact(&mut reply)?;
        Ok(reply.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_ended_itself_in_a_way_of_its_own_has_a_bug() {
        for (raw, exit) in [
            // Exit codes 0, 6, 7 and that of a panic.
            (0, Exit::Io),
            (6 << 8, Exit::Corrupt),
            (7 << 8, Exit::Io),
            (101 << 8, Exit::Internal),
            // Signals.
            (libc::SIGKILL, Exit::Io),
            (libc::SIGTERM, Exit::Io),
            (libc::SIGSEGV, Exit::Internal),
            (libc::SIGABRT, Exit::Internal),
        ] {
            assert_eq!(exit_of(ExitStatus::from_raw(raw)), exit, "{raw}");
        }
    }

    #[test]
    fn a_server_that_ends_at_once_is_started_again_ever_later_and_not_for_ever() {
        let mut restarts = Restarts::default();
        let quick = Duration::from_secs(1);
        let ms: Vec<Option<u128>> = (0..5)
            .map(|_| restarts.after(quick).map(|pause| pause.as_millis()))
            .collect();
        assert_eq!(ms, [Some(500), Some(1000), Some(2000), Some(4000), None]);
        let mut restarts = Restarts::default();
        for _ in 0..100 {
            assert_eq!(restarts.after(STEADY), Some(FIRST_PAUSE));
        }
    }

    #[test]
    fn a_line_begins_with_the_name_of_its_server() {
        assert_eq!(prefix("node1", None), "node1 | ");
        assert_eq!(prefix("node1", Some(36)), "\x1B[36mnode1 |\x1B[0m ");
        assert!(has_colours(true, None) && has_colours(true, Some("".into())));
        assert!(!has_colours(true, Some("1".into())));
        assert!(!has_colours(false, None));
    }
}
