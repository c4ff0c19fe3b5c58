//! One member: its runtime, its disk, its clock.
//!
//! The runtime has one thread, this one, and its time is paused: it passes only while [`Member::drive`] runs the
//! member up to a time. So a member that is not driven is a process that is stopped, and a dropped runtime is one
//! that was killed. Its time may pass at another speed than that of the others.

mod rot;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline::vfs::Vfs;
use bowline::{Background, Clock as _, Db};
use bowline_cluster::peer::PeerOptions;
use bowline_cluster::{LocalClient, Node, NodeConfig, Status};
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::crash::{CrashImage, Faults};
use bowline_testing::{FaultVfs, ManualClock, SimDisk};
use tokio::task::JoinHandle;

use crate::runtime::VirtualRuntime;
use crate::story::set_speaker;
use crate::trace::{Trace, name};
use crate::wire::{Host, Wire};
use rot::Damage;
pub(crate) use rot::RotOf;

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The system lives on: what was written is read by the next process, flushed or not, and connections are reset.
    Killed,
    /// What was not flushed may be gone, by this seed, and nobody is told.
    PowerLoss { seed: u64 },
}

/// What a machine is to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Its member is in the membership and votes.
    Member,
    /// Its member is in the membership as a learner, and stays one.
    Learner,
    /// It has no member.
    Spare,
    /// Its disk is lost, and its member is still in the membership.
    Lost,
    /// It has an empty disk and takes a place.
    Joining,
    /// Its member was removed, and its process has to stop.
    Leaving,
}

/// A process that runs.
struct Process {
    runtime: VirtualRuntime,
    /// The disk as the process sees it, which may be full.
    files: FaultVfs,
    starting: Option<JoinHandle<Result<Program, String>>>,
    program: Option<Program>,
}

/// What a process runs.
enum Program {
    /// A member alone.
    Node(Node),
    /// A member behind the server that clients reach over the network.
    Server(Server),
}

impl Program {
    fn client(&self) -> LocalClient {
        match self {
            Program::Node(node) => node.client(),
            Program::Server(server) => server.client(),
        }
    }
}

/// A member, whether its process runs or not.
pub(crate) struct Member {
    pub(crate) number: usize,
    pub(crate) role: Role,
    disk: SimDisk,
    /// By how many bytes files may grow.
    space_bytes: Option<u64>,
    /// Whether bytes of its tables have rotted since its disk was new.
    pub(crate) is_rotten: bool,
    /// What has rotted besides, and is on the disk as it was left.
    damages: Vec<Damage>,
    /// What the member has to apply before it has got back what its damaged log may have lost.
    lacks: Option<u64>,
    /// Whether flushes of the disk have failed: then the member stops by itself.
    pub(crate) disk_fails: bool,
    host: Host,
    clock: ManualClock,
    /// Whether its process is the shipped server, which clients reach over the network.
    serves: bool,
    /// The founders, or whom a machine that joins may ask.
    cluster: Vec<(String, String)>,
    is_existing: bool,
    process: Option<Process>,
    /// Whether the process is stopped, as by SIGSTOP; the time passes.
    pub(crate) is_paused: bool,
    /// Whether the machine is suspended: the process stops, and its monotonic time with it.
    pub(crate) is_suspended: bool,
    /// By how many millionths its time is faster.
    pub(crate) drift_ppm: i64,
    /// How long the disk takes before it begins with something.
    pub(crate) disk_delay: Duration,
    /// A copy of the disk, with the member's id at that time.
    copy: Option<(SimDisk, u64)>,
    /// Whether the disk is an older one than the member has had.
    pub(crate) is_older: bool,
    trace: Trace,
}

impl Member {
    /// A machine, which is a founder's if there are more than `number`.
    pub(crate) fn new(
        number: usize,
        founders: usize,
        serves: bool,
        wire: &Wire,
        trace: Trace,
    ) -> Member {
        Member {
            number,
            role: match number < founders {
                true => Role::Member,
                false => Role::Spare,
            },
            disk: SimDisk::new(),
            space_bytes: None,
            is_rotten: false,
            damages: Vec::new(),
            lacks: None,
            disk_fails: false,
            host: wire.host(number),
            clock: ManualClock::new(),
            serves,
            cluster: places(founders),
            is_existing: false,
            process: None,
            is_paused: false,
            is_suspended: false,
            drift_ppm: 0,
            disk_delay: Duration::ZERO,
            copy: None,
            is_older: false,
            trace,
        }
    }

    fn config(&self, files: &FaultVfs) -> NodeConfig {
        let database = Db::builder()
            .background(Background::Manual)
            .clock(Arc::new(self.clock.clone()))
            // So that tables are written and merged within a run.
            .memtable_bytes(256 << 10)
            .log_segment_bytes(64 << 10);
        NodeConfig {
            listen_peer_urls: vec![Wire::url(self.number)],
            advertise_client_urls: vec![match self.serves {
                true => Wire::client_url(self.number),
                false => Wire::url(self.number),
            }],
            initial_cluster: self.cluster.clone(),
            is_existing: self.is_existing,
            database,
            // So that every table is read, and members are compared, within a run.
            memory_interval: Duration::from_secs(2),
            scrub_interval: Duration::from_secs(3),
            corrupt_check_interval: Duration::from_secs(7),
            snapshot_entries: 200,
            // Two that stay such, and one that is promoted.
            learners_max: 3,
            kept_entries: 50,
            // So that some leases are recorded.
            lease_checkpoint_interval: Duration::from_millis(500),
            vfs: Arc::new(files.clone()) as Arc<dyn Vfs>,
            peers: PeerOptions {
                network: Arc::new(self.host.clone()),
                ..PeerOptions::default()
            },
            ..NodeConfig::new(name(self.number), Path::new("db"))
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process runs and is not stopped.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && !self.is_paused && !self.is_suspended
    }

    /// The disk is replaced by an empty one. No process runs.
    pub(crate) fn empty_disk(&mut self) {
        assert!(!self.is_up(), "a process runs on the disk");
        self.disk = SimDisk::new();
        self.is_rotten = false;
        self.damages.clear();
        self.lacks = None;
        self.is_older = false;
        self.copy = None;
    }

    /// Copies the disk of a running process as it is at this moment. `id` is the member's.
    pub(crate) fn copy_disk(&mut self, id: u64) {
        let recording = self.disk.recording();
        let image = CrashImage::at(&recording, recording.len(), Faults::AllKept);
        self.copy = Some((image.build(), id));
        self.trace.note(name(self.number), "its disk is copied");
    }

    /// Whether there is a copy of the disk of the member with this id.
    pub(crate) fn has_copy_of(&self, id: u64) -> bool {
        self.copy.as_ref().is_some_and(|(_, of)| *of == id)
    }

    /// Puts the copy in the place of the disk. No process runs.
    pub(crate) fn put_back(&mut self) {
        assert!(!self.is_up(), "a process runs on the disk");
        if let Some((disk, _)) = self.copy.take() {
            self.disk = disk;
            self.is_older = true;
            self.trace
                .note(name(self.number), "has the copy in place of its disk");
        }
    }

    /// The next process is of a new member, for which a place was added.
    pub(crate) fn join(&mut self, machines: usize) {
        self.role = Role::Joining;
        self.cluster = places(machines);
        self.is_existing = true;
    }

    /// Whether it belongs to the cluster, or is to.
    pub(crate) fn is_used(&self) -> bool {
        self.role != Role::Spare
    }

    /// Whether no process runs that has not stopped by itself.
    pub(crate) fn has_stopped(&self) -> bool {
        let has_stopped = self.status().is_some_and(|status| status.failure.is_some());
        !self.is_up() || self.has_failed() || has_stopped
    }

    /// Whether its process may stop, or not start, without a failure of its disk.
    pub(crate) fn may_stop(&self) -> bool {
        !matches!(self.role, Role::Member | Role::Learner)
    }

    /// Whether its files cannot grow without a limit.
    pub(crate) fn is_full(&self) -> bool {
        self.space_bytes.is_some()
    }

    /// Lets files grow by so many bytes more, or without a limit.
    pub(crate) fn limit_space(&mut self, bytes: Option<u64>) {
        if self.space_bytes == bytes {
            return;
        }
        self.space_bytes = bytes;
        if let Some(process) = &self.process {
            match bytes {
                Some(bytes) => process.files.limit_space(bytes),
                None => process.files.lift_space_limit(),
            }
        }
    }

    /// The next flush of a file after `sound` ones fails, if a process runs.
    pub(crate) fn fail_a_flush(&mut self, sound: u64) {
        self.disk_fails |= self.is_up();
        if self.is_up() {
            self.disk.fail_syncs_after(sound, 1);
        }
    }

    /// Starts the process.
    pub(crate) fn start(&mut self) {
        bowline_cluster::blocking::keep_to_this_thread();
        let runtime = VirtualRuntime::new();
        let files = FaultVfs::new(self.disk.clone());
        if let Some(bytes) = self.space_bytes {
            files.limit_space(bytes);
        }
        let config = self.config(&files);
        let starting = match self.serves {
            true => runtime.spawn(start_server(config, self.host.clone())),
            false => runtime.spawn(start_node(config)),
        };
        self.is_paused = false;
        self.begin_to_look();
        self.process = Some(Process {
            runtime,
            files,
            starting: Some(starting),
            program: None,
        });
        self.trace.note(name(self.number), "starts");
    }

    /// Ends the process, whose connections the wire must have ended before.
    pub(crate) fn end(&mut self, end: End) {
        let recording = self.disk.recording();
        let faults = match end {
            End::Killed => Faults::AllKept,
            End::PowerLoss { seed } => Faults::Random { seed },
        };
        let image = CrashImage::at(&recording, recording.len(), faults);
        if end != End::Killed {
            for fate in image.fates() {
                let what = format_args!("of what was not flushed, {fate}");
                self.trace.note(name(self.number), what);
            }
        }
        set_speaker(self.number);
        // What the process does while it is dropped happens to a disk that nobody sees. The next one reads all that a
        // killed one has written; what of it was not flushed may still be lost with the power.
        self.disk = match end {
            End::Killed => image.kill(),
            End::PowerLoss { .. } => image.build(),
        };
        if let Some(process) = self.process.take() {
            let _entered = process.runtime.enter();
            drop(process.program);
            drop(process.starting);
        }
        self.is_paused = false;
        self.disk_fails = false;
        let number = self.number;
        self.trace.note(name(number), format_args!("ends: {end:?}"));
    }

    /// Sets the wall clock, which no promise rests on.
    pub(crate) fn jump_wall(&self, by_ms: i64) {
        let now = self.clock.wall_ms();
        self.clock.jump_wall_to(now.saturating_add_signed(by_ms));
    }

    /// The monotonic time leaps forward, for all timers of the process at once.
    pub(crate) fn leap(&mut self, by: Duration) {
        if let Some(process) = &mut self.process {
            process.runtime.pass(by);
        }
        self.clock.advance(by);
    }

    /// Runs the process for a time. Gives the node once, when it has started.
    pub(crate) fn drive(&mut self, step: Duration) -> Option<LocalClient> {
        let number = self.number;
        set_speaker(number);
        if self.is_suspended {
            self.clock.suspend(step);
            return None;
        }
        let Some(process) = self.process.as_mut() else {
            self.clock.advance(step);
            return None;
        };
        let nanos = step.as_nanos() as i64;
        let local = Duration::from_nanos((nanos + nanos * self.drift_ppm / 1_000_000) as u64);
        process.runtime.pass(local);
        self.clock.advance(local);
        if self.is_paused {
            return None;
        }
        bowline_cluster::blocking::delay(self.disk_delay);
        process.runtime.drive(step);
        let starting = process.starting.as_mut()?;
        if !starting.is_finished() {
            return None;
        }
        let started = process.runtime.result_of(starting);
        process.starting = None;
        match started {
            Ok(program) => {
                let client = program.client();
                process.program = Some(program);
                self.trace.note(name(number), "has started");
                Some(client)
            }
            Err(error) => {
                self.trace
                    .note(name(number), format_args!("did not start: {error}"));
                None
            }
        }
    }

    /// Whether its process runs, but has neither started nor begun to.
    pub(crate) fn has_failed(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.program.is_none() && process.starting.is_none())
    }

    pub(crate) fn client(&self) -> Option<LocalClient> {
        let process = self.process.as_ref()?;
        process.program.as_ref().map(Program::client)
    }

    /// What the running member says of itself, by its own clock.
    pub(crate) fn status(&self) -> Option<Status> {
        let client = self.client()?;
        Some(self.within(|| client.status()))
    }

    /// Starts a task in the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(process) = &self.process {
            process.runtime.spawn(task);
        }
    }

    /// Runs something that uses the member's time.
    pub(crate) fn within<T>(&self, action: impl FnOnce() -> T) -> T {
        let _entered = self.process.as_ref().map(|process| process.runtime.enter());
        action()
    }
}

async fn start_node(config: NodeConfig) -> Result<Program, String> {
    let started = Node::start(config).await;
    started
        .map(Program::Node)
        .map_err(|error| error.to_string())
}

/// Starts the shipped server, which takes its clients from the wire.
async fn start_server(node: NodeConfig, host: Host) -> Result<Program, String> {
    let config = Config::from_layers(&Layers::default());
    let mut config = config.map_err(|error| error.to_string())?;
    config.node = node;
    // So that it notices soon that nothing comes from a client any more.
    config.keep_alive_interval = Duration::from_secs(2);
    config.keep_alive_timeout = Duration::from_secs(1);
    config.watch_progress_interval = Duration::from_secs(2);
    let listener = host.listen_for_clients();
    let listener = listener.map_err(|error| error.to_string())?;
    let started = Server::start_on(config, listener).await;
    started
        .map(Program::Server)
        .map_err(|error| error.to_string())
}

/// The first machines, with their URLs.
fn places(count: usize) -> Vec<(String, String)> {
    (0..count).map(|at| (name(at), Wire::url(at))).collect()
}

#[cfg(test)]
mod tests {
    use bowline::vfs::OpenMode;

    use super::*;

    /// A kill made everything durable that the process had written. So no power loss took what the next process had read
    /// and nobody had flushed.
    #[test]
    fn what_a_killed_process_has_not_flushed_may_be_lost_with_the_power() {
        let wire = Wire::new(1, 0, 1, None);
        let mut member = Member::new(0, 1, false, &wire, Trace::default());
        let path = Path::new("file");
        let file = member.disk.open(path, OpenMode::CreateNew);
        let file = file.expect("a new file");
        member.disk.sync_dir(Path::new("")).expect("sync");
        file.write_at(b"flushed", 0).expect("write");
        file.sync_data().expect("sync");
        file.write_at(b", unflushed", 7).expect("write");
        member.end(End::Killed);
        file.write_at(b"too late", 0).expect("nobody sees it");
        let read = |disk: &SimDisk| disk.read(path).expect("it is there");
        assert_eq!(read(&member.disk), b"flushed, unflushed");
        assert_eq!(read(&member.disk.after_power_loss()), b"flushed");
        // Two processes later it still is not durable.
        member.end(End::Killed);
        assert_eq!(read(&member.disk.after_power_loss()), b"flushed");
        let lost = (0..20).any(|seed| {
            let mut member = Member::new(0, 1, false, &wire, Trace::default());
            let file = member.disk.open(path, OpenMode::CreateNew);
            drop(file.expect("a new file"));
            member.end(End::Killed);
            member.end(End::PowerLoss { seed });
            member.disk.read(path).is_err()
        });
        assert!(lost, "a power loss after the kill may take it");
    }
}
