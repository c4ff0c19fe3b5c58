//! Three `bowline serve`, each with a directory and ports of its own, and a seat for a fourth that comes and goes.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bowline_client::{Client, Status};
use bowline_testing::vitals::Process;
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::disks::{Disk, FaultDisk, Met};
use crate::nemesis::State;
use crate::network::{Network, Seat, Wiring};

/// Five where `BOWLINE_FIVE_MEMBERS` is set while the test is built.
pub(crate) const MEMBERS: usize = match option_env!("BOWLINE_FIVE_MEMBERS") {
    Some(_) => 5,
    None => 3,
};
/// All of them.
pub(crate) const ALL: [usize; MEMBERS] = {
    let mut all = [0; MEMBERS];
    let mut at = 0;
    while at < MEMBERS {
        all[at] = at;
        at += 1;
    }
    all
};
/// The members, and the seat of the guest.
pub(crate) const SEATS: usize = MEMBERS + 1;
/// The seat of a member that is added and removed.
pub(crate) const GUEST: usize = MEMBERS;
/// The pace of the members, so that a leader is missed quickly.
const HEARTBEAT_MS: &str = "50";
const ELECTION_MS: &str = "500";
/// So that leases of a few seconds are told of between two renewals.
const CHECKPOINT_MS: &str = "300";
/// So few that a member which was away for a second needs a snapshot.
pub(crate) const SNAPSHOT_ENTRIES: u64 = 100;
pub(crate) const KEPT_ENTRIES: u64 = 100;
/// How long the cluster may take to answer again once everything is healed.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// How to start a member.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    seats: Vec<Seat>,
    log_directory: PathBuf,
    /// An earlier version of the program, and which members run it.
    earlier: Option<PathBuf>,
    is_earlier: Arc<[AtomicBool; SEATS]>,
    /// Whether the disk of a present and of an earlier program can fail.
    can_fail: bool,
    earlier_can_fail: bool,
}

impl Starter {
    /// Starts a member; it joins when `is_guest`.
    pub(crate) fn start(&self, at: usize, data: &Path, is_guest: bool) -> Child {
        let seat = &self.seats[at];
        let url = |address: std::net::SocketAddr| format!("http://{address}");
        let count = if is_guest { SEATS } else { MEMBERS };
        let all: Vec<_> = (0..count)
            .map(|at| format!("m{at}={}", url(self.seats[at].advertised)))
            .collect();
        let state = if is_guest { "existing" } else { "new" };
        let program = match &self.earlier {
            Some(earlier) if self.is_earlier[at].load(Ordering::Relaxed) => earlier.as_path(),
            _ => Path::new(PROGRAM),
        };
        let mut command = seat.command(program);
        command
            .args(["serve", "--name", &format!("m{at}"), "--data-dir"])
            .arg(data);
        if self.disk_can_fail(at) {
            command.arg("--fault-disk").arg(self.disk_rules(at));
        }
        command
            .args(["--listen-client-urls", &url(seat.client)])
            .args(["--advertise-client-urls", &url(seat.client)])
            .args(["--listen-peer-urls", &url(seat.peer)])
            .args(["--initial-advertise-peer-urls", &url(seat.advertised)])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--initial-cluster-token", "faults"])
            .args(["--initial-cluster-state", state])
            .args(["--heartbeat-interval", HEARTBEAT_MS])
            .args(["--election-timeout", ELECTION_MS])
            .args(["--lease-checkpoint-interval", CHECKPOINT_MS])
            .args(["--snapshot-count", &SNAPSHOT_ENTRIES.to_string()])
            .args(["--snapshot-catchup-entries", &KEPT_ENTRIES.to_string()])
            .stdin(Stdio::null())
            .stdout(self.log(at))
            .stderr(self.log(at))
            .spawn()
            .expect("the program starts")
    }

    fn disk_can_fail(&self, at: usize) -> bool {
        match self.is_earlier[at].load(Ordering::Relaxed) {
            true => self.earlier_can_fail,
            false => self.can_fail,
        }
    }

    /// The rules of a member's disk.
    fn disk_rules(&self, at: usize) -> PathBuf {
        self.log_directory.join(format!("m{at}.disk"))
    }

    pub(crate) fn log_path(&self, at: usize) -> PathBuf {
        self.log_directory.join(format!("m{at}.log"))
    }

    fn log(&self, at: usize) -> File {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path(at));
        log.expect("the log of the member")
    }

    /// Where the others find a member.
    pub(crate) fn peer_url(&self, at: usize) -> String {
        format!("http://{}", self.seats[at].advertised)
    }

    /// A client that starts with one member; of `count` members in all.
    pub(crate) fn client(&self, first: usize, count: usize, timeout: Duration) -> Client {
        // The guest is known by who asks for it only.
        let endpoints = (0..count).map(|more| match first {
            GUEST => self.seats[GUEST].client.to_string(),
            first => self.seats[(first + more) % MEMBERS].client.to_string(),
        });
        Client::builder()
            .endpoints(endpoints)
            .connect_timeout(Duration::from_millis(300))
            .request_timeout(timeout)
            .connect_lazy()
            .expect("a client")
    }
}

pub(crate) struct Cluster {
    directory: Option<tempfile::TempDir>,
    children: Vec<Option<Child>>,
    data: Vec<PathBuf>,
    starter: Starter,
    pub(crate) network: Arc<Network>,
    /// Of the last member.
    pub(crate) disk: Disk,
    fault_disks: Vec<FaultDisk>,
    /// Members whose disk has failed since all was well: they may have ended by themselves.
    may_end: [bool; MEMBERS],
    /// How often a member ended by itself as its disk failed.
    pub(crate) ended: u64,
}

/// Whether a line of a log reports damage. Not counted: one copy of two of a vote, as a process leaves it that is killed
/// between the two halves of a write; and a table that cannot be read, which a disk that fails does not give back. The
/// member takes that for damage, too, as it is no use to it.
fn is_of_damage(line: &str) -> bool {
    let damage = [
        "of this member is damaged",
        "of this member are damaged",
        "is damaged at offset",
    ];
    let expected = ["one copy of the member's vote", "error=cannot read"];
    let has = |text: &&str| line.contains(*text);
    damage.iter().any(has) && !expected.iter().any(has)
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = kill_process(pid.expect("a process id"), signal);
}

impl Cluster {
    /// Starts three members, and waits until each answers.
    pub(crate) async fn start(wiring: Wiring) -> Cluster {
        let (network, seats) = Network::new(wiring).await;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut data: Vec<_> = (0..MEMBERS)
            .map(|at| directory.path().join(format!("m{at}")))
            .collect();
        let disk = Disk::small(&directory.path().join("small"));
        if let Some(path) = disk.path() {
            data[MEMBERS - 1] = path.join("data");
        }
        let earlier = std::env::var_os("BOWLINE_EARLIER_PROGRAM").map(PathBuf::from);
        let begins_earlier = earlier.is_some();
        let earlier_can_fail = earlier.as_deref().is_some_and(FaultDisk::is_known_to);
        let starter = Starter {
            seats,
            log_directory: directory.path().to_owned(),
            earlier,
            is_earlier: Arc::new(std::array::from_fn(|at| {
                AtomicBool::new(begins_earlier && at < MEMBERS)
            })),
            can_fail: FaultDisk::is_known_to(Path::new(PROGRAM)),
            earlier_can_fail,
        };
        let rules = (0..MEMBERS).map(|at| starter.disk_rules(at));
        let fault_disks = rules.map(FaultDisk::new).collect();
        let mut cluster = Cluster {
            directory: Some(directory),
            children: (0..MEMBERS).map(|_| None).collect(),
            data,
            starter,
            network: Arc::new(network),
            disk,
            fault_disks,
            may_end: [false; MEMBERS],
            ended: 0,
        };
        for at in 0..MEMBERS {
            cluster.run(at);
        }
        cluster.wait_healthy().await;
        cluster
    }

    pub(crate) fn starter(&self) -> Starter {
        self.starter.clone()
    }

    /// If there is an earlier version of the program: one member after the other, a round each, gets the present one,
    /// and then the earlier one again. Says what was done.
    pub(crate) async fn exchange_program(&mut self, round: u64) -> Option<String> {
        self.starter.earlier.as_ref()?;
        let at = (round % MEMBERS as u64) as usize;
        let was_earlier = self.starter.is_earlier[at].fetch_xor(true, Ordering::Relaxed);
        self.kill(at);
        self.run(at);
        self.wait_healthy().await;
        let version = if was_earlier { "present" } else { "earlier" };
        Some(format!("m{at} has the {version} version"))
    }

    /// A new directory beside those of the members.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref().expect("it is there until the end");
        directory.path().join(name)
    }

    /// Starts a member, new or again.
    fn run(&mut self, at: usize) {
        if self.children[at].is_none() {
            let child = self.starter.start(at, &self.data[at], false);
            self.network.set_pid(at, Some(child.id()));
            self.children[at] = Some(child);
        }
    }

    /// SIGKILL; the process is gone when this returns.
    pub(crate) fn kill(&mut self, at: usize) {
        self.network.set_pid(at, None);
        if let Some(mut child) = self.children[at].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn stop(&self, at: usize) {
        if let Some(child) = &self.children[at] {
            signal(child, Signal::STOP);
        }
    }

    pub(crate) fn wake(&self, at: usize) {
        if let Some(child) = &self.children[at] {
            signal(child, Signal::CONT);
        }
    }

    /// A process to look at, while the member runs.
    pub(crate) fn process(&self, at: usize) -> Option<Process> {
        let child = self.children[at].as_ref()?;
        Some(Process {
            name: format!("m{at}"),
            pid: child.id(),
            log: Some(self.starter.log_path(at)),
            data: Some(self.data[at].clone()),
        })
    }

    pub(crate) fn log_bytes(&self, at: usize) -> u64 {
        std::fs::metadata(self.starter.log_path(at)).map_or(0, |log| log.len())
    }

    /// Whether the disk of each member can fail.
    pub(crate) fn all_disks_can_fail(&self) -> bool {
        (0..MEMBERS).all(|at| self.starter.disk_can_fail(at))
    }

    /// The faults of their disks that members have met since this was called before.
    pub(crate) fn disk_faults_met(&mut self) -> Met {
        let mut met = Met::new();
        for (fault, count) in self.fault_disks.iter_mut().flat_map(FaultDisk::met) {
            *met.entry(fault).or_default() += count;
        }
        met
    }

    /// Makes the members and links what a state of faults says. A member that ended by itself is a
    /// failure, unless its disk has failed.
    pub(crate) fn apply(&mut self, state: &State) {
        self.network.apply(state);
        self.disk.set_full(state.is_full);
        for at in 0..MEMBERS {
            // An answer to a disk that fails; to a full disk it is none.
            self.may_end[at] |= self.starter.disk_can_fail(at) && state.ills[at].may_end_it();
            self.fault_disks[at].set(state.ills[at]);
            if let Some(child) = &mut self.children[at]
                && let Some(status) = child.try_wait().expect("a child of this process")
            {
                assert!(
                    self.may_end[at],
                    "m{at} ended by itself: {status}\n{}",
                    self.end_of_log(at)
                );
                self.ended += 1;
                self.kill(at);
            }
            match (state.dead[at], state.stopped[at]) {
                (true, _) => self.kill(at),
                (false, true) => {
                    self.run(at);
                    self.stop(at);
                }
                (false, false) => {
                    self.wake(at);
                    self.run(at);
                }
            }
        }
    }

    /// Everything runs and reaches everything.
    pub(crate) fn heal(&mut self) {
        self.apply(&State::default());
    }

    /// A client that starts with one member; of `count` members in all.
    pub(crate) fn client(&self, first: usize, count: usize, timeout: Duration) -> Client {
        self.starter.client(first, count, timeout)
    }

    /// A client of one member, that is patient.
    pub(crate) fn only(&self, at: usize) -> Client {
        self.client(at, 1, Duration::from_secs(10))
    }

    pub(crate) fn endpoint(&self, at: usize) -> String {
        self.starter.seats[at].client.to_string()
    }

    /// Waits until every member answers a linearizable read; gives the newest revision then.
    pub(crate) async fn wait_healthy(&mut self) -> u64 {
        let deadline = Instant::now() + HEALED_WITHIN;
        let mut newest = 0;
        for at in 0..MEMBERS {
            let client = self.client(at, 1, Duration::from_secs(3));
            loop {
                match client.get("health").await {
                    Ok(reply) => {
                        newest = newest.max(reply.header.revision.get());
                        break;
                    }
                    Err(error) => assert!(
                        Instant::now() < deadline,
                        "m{at} does not answer {HEALED_WITHIN:?} after everything was healed: {error}\n{}",
                        self.end_of_log(at)
                    ),
                }
                // One that found out only now that its disk has failed.
                self.heal();
                sleep(Duration::from_millis(50)).await;
            }
        }
        self.may_end = [false; MEMBERS];
        newest
    }

    pub(crate) async fn status(&self, at: usize) -> Option<Status> {
        let client = self.client(at, 1, Duration::from_millis(300));
        client.status().await.ok()
    }

    /// The member that leads, as one of `among` says.
    pub(crate) async fn leader(&self, among: &[usize]) -> Option<usize> {
        let all = join_all(among.iter().map(|&at| self.status(at))).await;
        let all: Vec<_> = among.iter().zip(all).collect();
        let known = all.iter().filter_map(|(_, status)| status.as_ref());
        // An older one may be believed by who was asleep.
        let newest = known.max_by_key(|status| status.raft_term)?.leader?;
        let is_it = |status: &Status| status.header.member_id == newest;
        let found = all
            .iter()
            .find(|(_, status)| status.as_ref().is_some_and(is_it));
        found.map(|(at, _)| **at)
    }

    /// How many snapshots members have taken from others, the guest's too, as their logs say.
    pub(crate) fn snapshots_installed(&self) -> usize {
        const LINE: &str = "a snapshot has arrived";
        let logs =
            (0..SEATS).map(|at| std::fs::read(self.starter.log_path(at)).unwrap_or_default());
        logs.map(|log| String::from_utf8_lossy(&log).matches(LINE).count())
            .sum()
    }

    /// What members have said of damaged files. No fault damages one: a disk that fails gives errors, and one that takes
    /// a part of a write says so. A member whose log or tables are damaged gets them from the others, so that clients
    /// may see nothing of it.
    pub(crate) fn damage_reported(&self) -> Vec<String> {
        let mut found = Vec::new();
        for at in 0..SEATS {
            let text = std::fs::read(self.starter.log_path(at)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().filter(|line| is_of_damage(line));
            found.extend(lines.map(|line| format!("m{at} reported damage: {line}")));
        }
        found
    }

    pub(crate) fn end_of_log(&self, at: usize) -> String {
        const SHOWN: usize = 40;
        let text = std::fs::read(self.starter.log_path(at)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let skipped = lines.len().saturating_sub(SHOWN);
        let shown = lines[skipped..].join("\n");
        format!("--- the log of m{at}, without its first {skipped} lines\n{shown}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for at in 0..MEMBERS {
            self.kill(at);
        }
        if std::thread::panicking() {
            for at in 0..SEATS {
                eprintln!("{}", self.end_of_log(at));
            }
            if let Some(directory) = self.directory.take() {
                let path = directory.keep();
                eprintln!("--- logs and directories are in {}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_damage;

    #[test]
    fn a_line_of_damage_is_found() {
        assert!(is_of_damage(
            "ERROR the log of this member is damaged: it begins anew"
        ));
        assert!(is_of_damage(
            "WARN no snapshot: d/1.table is damaged at offset 7: a checksum"
        ));
        assert!(!is_of_damage(
            "WARN one copy of the member's vote is damaged; error=MEMBER is damaged at offset 0"
        ));
        assert!(!is_of_damage("ERROR write d/log: Input/output error"));
        assert!(!is_of_damage(
            "ERROR a table of this member is damaged error=cannot read d/1.table"
        ));
    }
}
