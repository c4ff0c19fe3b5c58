//! The network between the members, as packets: every member runs in a network namespace of its own, and a bridge joins
//! them. A fault is a change of the routes of the sender, so what it meets is the kernel's TCP, and no proxy.
//!
//! ```text
//! this process ── bridge ─┬─ pair of interfaces ── eth0 │ namespace of m0
//!                         ├─ pair of interfaces ── eth0 │ namespace of m1
//!                         └─ …
//! ```
//!
//! Each namespace has one route for each of the others. The state of an ordered pair is that of this route:
//!
//! | state | route | what the sender meets |
//! |---|---|---|
//! | open | `dev eth0` | an answer |
//! | held | `via` a neighbour that is nowhere | silence: nothing is refused or reset; TCP sends again, so what was held arrives later |
//! | cut | `unreachable` | a new connection fails at once; on those that are open, silence |
//!
//! A route of the type `blackhole` would not do for *held*: with it the kernel refuses a new connection at once (`EINVAL`).
//! Packets have no connection that they belong to: if those from one member to another are held, so are its acknowledgements
//! of what the other sends. So the switches [`Link`] and [`Flow`] act on the same packets here. Clients are on the bridge, and
//! no cut meets them.
//!
//! Where the kernel has `netem`, packets are also delayed, lost, doubled and reordered: those that a member sends at its
//! interface, those that it gets at the other end of the pair. That meets clients, too. Where it does not, a slow path stays
//! as it is, and the test reports that.
//!
//! Names have the process id of the test, so runs do not meet. What a process left that has died is removed by the next;
//! everything else when the network is dropped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::links::{Flow, Link};
use crate::nemesis::State;

/// Where `ip` has the names of namespaces.
const SPACES: &str = "/run/netns";
const SPACE_PREFIX: &str = "bowline-";
/// Short: the name of an interface has at most fifteen bytes.
const INTERFACE_PREFIX: &str = "bow";
/// The interface of a member.
const OWN_INTERFACE: &str = "eth0";
/// The first address of 198.18.0.0/15, which is set aside for tests of networks.
const FIRST_ADDRESS: u32 = 0xC612_0000;
/// Addresses of one network, as a power of two, and how many networks there are.
const NETWORK_BITS: u32 = 4;
const NETWORKS: u32 = 1 << (17 - NETWORK_BITS);
/// The most that have an address in one network, beside the bridge and the neighbour that is nowhere.
const SPACES_MAX: usize = 12;
const PREFIX_LENGTH: u32 = 32 - NETWORK_BITS;
/// How long a packet may take at the first attempt.
const PROBE_WITHIN: Duration = Duration::from_secs(2);
/// A packet that overtakes others needs others that wait.
const REORDERED_DELAY_MS: u64 = 10;
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// What happens to the packets that a member sends and gets, in percent of them. Only where the kernel has `netem`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Packets {
    pub(crate) lost: u8,
    pub(crate) doubled: u8,
    pub(crate) reordered: u8,
}

/// What happens to packets at one end of a pair of interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Queue {
    delay_ms: u64,
    packets: Packets,
}

impl Queue {
    /// The command of `tc` that makes the queue of an interface this one.
    fn command(self, interface: &str) -> String {
        let Packets {
            lost,
            doubled,
            reordered,
        } = self.packets;
        if self == Queue::default() {
            return format!("qdisc del dev {interface} root\n");
        }
        let mut command = format!("qdisc replace dev {interface} root netem");
        let delay_ms = match reordered {
            0 => self.delay_ms,
            _ => self.delay_ms.max(REORDERED_DELAY_MS),
        };
        if delay_ms > 0 {
            command.push_str(&format!(" delay {delay_ms}ms"));
        }
        for (what, percent) in [
            ("loss", lost),
            ("duplicate", doubled),
            ("reorder", reordered),
        ] {
            if percent > 0 {
                command.push_str(&format!(" {what} {percent}%"));
            }
        }
        command.push('\n');
        command
    }
}

/// The queue for all packets that have these ways, from a member or to it. They are slow if none of them is open.
fn queue(ways: impl Iterator<Item = Flow>, packets: Packets) -> Queue {
    let delay_ms = match ways.min() {
        Some(Flow::Slow(delay_ms)) => delay_ms,
        _ => 0,
    };
    Queue { delay_ms, packets }
}

/// What becomes of the packets from one member to another.
fn way(state: &State, from: usize, to: usize) -> Link {
    let held = match state.flows[from][to] {
        Flow::Held => Link::Held,
        Flow::Open | Flow::Slow(_) => Link::Open,
    };
    held.max(state.links[from][to])
}

/// What was done to the network.
#[derive(Debug)]
struct Applied {
    /// `[from][to]`
    ways: Vec<Vec<Link>>,
    /// Of what each sends.
    sent: Vec<Queue>,
    /// Of what each gets.
    received: Vec<Queue>,
}

/// A network whose every seat is in a namespace of its own.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// What the names of this network have in common: process id and number.
    run: String,
    base: u32,
    count: usize,
    /// `None` where there is `netem`; else why there is none.
    without_netem: Option<String>,
    applied: Mutex<Applied>,
}

/// Starts `ip` or `tc` with a list of commands, in a namespace or here.
fn start(program: &str, space: Option<&str>, commands: &str) -> Result<Child, String> {
    let mut command = Command::new(program);
    if let Some(space) = space {
        command.args(["-n", space]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let mut input = child.stdin.take().expect("it is piped");
    // One that ends before it has read everything says why.
    let _ = input.write_all(commands.as_bytes());
    Ok(child)
}

fn finish(child: Child, commands: &str) -> Result<(), String> {
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", commands.trim_end(), errors.trim_end()))
}

fn run(program: &str, space: Option<&str>, commands: &str) -> Result<(), String> {
    finish(start(program, space, commands)?, commands)
}

/// Runs `ip` with arguments of its own.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("ip");
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), errors.trim_end()))
}

/// Removes links and namespaces, those that are there.
fn remove(links: &[String], spaces: &[String]) {
    let mut commands = String::new();
    for link in links {
        commands.push_str(&format!("link del {link}\n"));
    }
    for space in spaces {
        commands.push_str(&format!("netns del {space}\n"));
    }
    let mut command = Command::new("ip");
    command
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        let mut input = child.stdin.take().expect("it is piped");
        let _ = input.write_all(commands.as_bytes());
        drop(input);
        let _ = child.wait();
    }
}

/// The process id in the name of a namespace or an interface.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(prefix)?.split_once('x')?;
    pid.parse().ok()
}

/// The namespaces and the interfaces whose names have such a process id.
fn named(is_wanted: impl Fn(u32) -> bool) -> (Vec<String>, Vec<String>) {
    let entries = std::fs::read_dir(SPACES).into_iter().flatten().flatten();
    let spaces = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let table = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let links = table.lines().filter_map(|line| line.split_once(':'));
    let links = links.map(|(name, _)| name.trim().to_owned());
    let wanted = |name: &String, prefix: &str| owner(name, prefix).is_some_and(&is_wanted);
    let spaces = spaces.filter(|name| wanted(name, SPACE_PREFIX)).collect();
    let links = links
        .filter(|name| wanted(name, INTERFACE_PREFIX))
        .collect();
    (spaces, links)
}

/// Removes what tests have left that were killed.
fn remove_leftovers() {
    let is_dead = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
    let (spaces, links) = named(is_dead);
    if !(spaces.is_empty() && links.is_empty()) {
        remove(&links, &spaces);
    }
}

/// Does something on a thread within a namespace. A socket stays in the namespace in which it was made.
fn within<T: Send>(space: &str, task: impl FnOnce() -> T + Send) -> Result<T, String> {
    let enter = || {
        let file = File::open(Path::new(SPACES).join(space))?;
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), network).map_err(std::io::Error::from)
    };
    let on_thread = || match enter() {
        Ok(()) => Ok(task()),
        Err(error) => Err(format!("the namespace {space} cannot be entered: {error}")),
    };
    std::thread::scope(|scope| scope.spawn(on_thread).join().expect("no panic inside"))
}

/// Whether packets go to an address at which nobody listens, and come back.
fn probe(address: SocketAddr) -> Result<(), String> {
    match TcpStream::connect_timeout(&address, PROBE_WITHIN) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{address} refuses no connection: {other:?}")),
    }
}

impl Namespaces {
    /// Whether this machine has them for this user; else why not.
    pub(crate) fn are_allowed() -> Result<(), String> {
        Namespaces::new(2).map(drop)
    }

    /// A network of so many seats, at least two.
    pub(crate) fn new(count: usize) -> Result<Namespaces, String> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        assert!((2..=SPACES_MAX).contains(&count), "{count} seats");
        remove_leftovers();
        let (pid, number) = (std::process::id(), NUMBERS.fetch_add(1, Ordering::Relaxed));
        let mut network = Namespaces {
            run: format!("{pid}x{number}"),
            base: 0,
            count,
            without_netem: None,
            applied: Mutex::new(Applied {
                ways: vec![vec![Link::Open; count]; count],
                sent: vec![Queue::default(); count],
                received: vec![Queue::default(); count],
            }),
        };
        let used = ip(&["-o", "-4", "addr", "show"])?;
        let first = pid.wrapping_mul(8).wrapping_add(number);
        let free = (0..NETWORKS).find(|more| {
            network.base = FIRST_ADDRESS + ((first.wrapping_add(*more) % NETWORKS) << NETWORK_BITS);
            !used.contains(&format!(" {}/", network.gateway()))
        });
        free.ok_or("every network of 198.18.0.0/15 is in use")?;
        // From here on, whatever is there is removed when it is dropped.
        network.build()?;
        ip(&["netns", "exec", &network.space(0), "true"])?;
        let other = network.peer(1);
        within(&network.space(0), || probe(other))??;
        probe(other)?;
        let some = Queue {
            delay_ms: 1,
            ..Queue::default()
        };
        let commands = some.command(OWN_INTERFACE) + &Queue::default().command(OWN_INTERFACE);
        network.without_netem = run("tc", Some(&network.space(0)), &commands).err();
        Ok(network)
    }

    fn build(&self) -> Result<(), String> {
        let bridge = self.bridge();
        let mut commands = format!(
            "link add {bridge} type bridge\naddr add {}/{PREFIX_LENGTH} dev {bridge}\nlink set {bridge} up\n",
            self.gateway()
        );
        for at in 0..self.count {
            let (space, port) = (self.space(at), self.port(at));
            ip(&["netns", "add", &space])?;
            commands.push_str(&format!(
                "link add {port} type veth peer name {OWN_INTERFACE} netns {space}\nlink set {port} master {bridge} up\n"
            ));
        }
        run("ip", None, &commands)?;
        for at in 0..self.count {
            // The neighbour has an address of hardware that nobody has.
            let mut commands = format!(
                "link set lo up\naddr add {}/{PREFIX_LENGTH} dev {OWN_INTERFACE}\nlink set {OWN_INTERFACE} up\nneigh replace {} lladdr 02:00:00:00:00:01 nud permanent dev {OWN_INTERFACE}\n",
                self.address(at),
                self.nowhere()
            );
            for other in (0..self.count).filter(|&other| other != at) {
                commands.push_str(&self.route(other, Link::Open));
            }
            run("ip", Some(&self.space(at)), &commands)?;
        }
        Ok(())
    }

    /// The namespace of a seat.
    pub(crate) fn space(&self, at: usize) -> String {
        format!("{SPACE_PREFIX}{}-{at}", self.run)
    }

    fn bridge(&self) -> String {
        format!("{INTERFACE_PREFIX}{}", self.run)
    }

    /// The end of a pair that is at the bridge.
    fn port(&self, at: usize) -> String {
        format!("{INTERFACE_PREFIX}{}s{at}", self.run)
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        let at = u32::try_from(at).expect("few seats");
        Ipv4Addr::from_bits(self.base + 1 + at)
    }

    /// The neighbour that is nowhere.
    fn nowhere(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + 13)
    }

    /// The address of this process.
    fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + 14)
    }

    /// Where the member of a seat listens to clients.
    pub(crate) fn client(&self, at: usize) -> SocketAddr {
        (self.address(at), CLIENT_PORT).into()
    }

    /// Where the member of a seat listens to the others.
    pub(crate) fn peer(&self, at: usize) -> SocketAddr {
        (self.address(at), PEER_PORT).into()
    }

    /// Why packets cannot be delayed, lost, doubled or reordered, if they cannot.
    pub(crate) fn without_netem(&self) -> Option<&str> {
        self.without_netem.as_deref()
    }

    /// The command of `ip` that makes the route to a seat such.
    fn route(&self, to: usize, way: Link) -> String {
        let to = self.address(to);
        match way {
            Link::Open => format!("route replace {to}/32 dev {OWN_INTERFACE}\n"),
            Link::Held => format!(
                "route replace {to}/32 via {} dev {OWN_INTERFACE}\n",
                self.nowhere()
            ),
            Link::Cut => format!("route replace unreachable {to}/32\n"),
        }
    }

    /// Makes the paths what a state says: one process for each namespace in which something changes.
    pub(crate) fn apply(&self, state: &State) {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        // By program and namespace; `None` is this one.
        let mut commands: BTreeMap<(&str, Option<String>), String> = BTreeMap::new();
        for from in 0..self.count {
            let others = || (0..self.count).filter(move |&other| other != from);
            for to in others() {
                let way = way(state, from, to);
                if std::mem::replace(&mut applied.ways[from][to], way) != way {
                    let place = ("ip", Some(self.space(from)));
                    let list = commands.entry(place).or_default();
                    list.push_str(&self.route(to, way));
                }
            }
            if self.without_netem.is_some() {
                continue;
            }
            let packets = state.packets.get(from).copied().unwrap_or_default();
            let sent = queue(others().map(|to| state.flows[from][to]), packets);
            if std::mem::replace(&mut applied.sent[from], sent) != sent {
                let place = ("tc", Some(self.space(from)));
                let list = commands.entry(place).or_default();
                list.push_str(&sent.command(OWN_INTERFACE));
            }
            let received = queue(others().map(|other| state.flows[other][from]), packets);
            if std::mem::replace(&mut applied.received[from], received) != received {
                let list = commands.entry(("tc", None)).or_default();
                list.push_str(&received.command(&self.port(from)));
            }
        }
        // All at once.
        let started: Vec<_> = commands
            .iter()
            .map(|((program, space), commands)| {
                (start(program, space.as_deref(), commands), commands)
            })
            .collect();
        for (child, commands) in started {
            let done = child.and_then(|child| finish(child, commands));
            done.expect("a fault of the network that takes place");
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let mut links: Vec<_> = (0..self.count).map(|at| self.port(at)).collect();
        links.push(self.bridge());
        let spaces: Vec<_> = (0..self.count).map(|at| self.space(at)).collect();
        remove(&links, &spaces);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// For what must not come.
    const SILENCE: Duration = Duration::from_millis(300);
    /// For what must come: TCP waits longer and longer before it sends again.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn read(stream: &mut TcpStream, within: Duration) -> std::io::Result<[u8; 1]> {
        let mut byte = [0];
        stream.set_read_timeout(Some(within)).expect("a timeout");
        stream.read_exact(&mut byte).map(|()| byte)
    }

    fn is_silent<T>(result: &std::io::Result<T>) -> bool {
        let silent = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
        let error = result.as_ref().err();
        error.is_some_and(|error| silent.contains(&error.kind()))
    }

    /// Seats, and a connection from the first to the second, by both of its ends.
    fn connected(network: &Namespaces) -> [TcpStream; 2] {
        let address = network.peer(1);
        let listener = within(&network.space(1), || TcpListener::bind(address));
        let listener = listener.expect("entered").expect("it listens");
        let dialer = within(&network.space(0), || TcpStream::connect(address));
        let dialer = dialer.expect("entered").expect("it connects");
        let (accepted, from) = listener.accept().expect("it is accepted");
        assert_eq!(from.ip(), network.address(0));
        [dialer, accepted]
    }

    fn dial(network: &Namespaces) -> std::io::Result<TcpStream> {
        let address = network.peer(1);
        let dialed = within(&network.space(0), || {
            TcpStream::connect_timeout(&address, SILENCE)
        });
        dialed.expect("entered")
    }

    #[test]
    fn what_is_held_arrives_later_and_what_is_cut_fails_at_once() {
        let network = match Namespaces::new(2) {
            Ok(network) => network,
            Err(why) => return bowline_testing::skip(why),
        };
        let [mut one, mut other] = connected(&network);
        one.write_all(b"a").expect("open");
        assert_eq!(read(&mut other, PATIENCE).expect("open"), *b"a");

        // The first is mute: it hears the other, and what it says waits, its acknowledgements as well.
        let mut mute = State::default();
        mute.flows[0][1] = Flow::Held;
        network.apply(&mute);
        one.write_all(b"b").expect("it is buffered");
        other.write_all(b"c").expect("open");
        assert_eq!(read(&mut one, PATIENCE).expect("it hears"), *b"c");
        let nothing = read(&mut other, SILENCE);
        assert!(is_silent(&nothing), "{nothing:?}");
        let dialed = dial(&network);
        assert!(is_silent(&dialed), "{dialed:?}");
        network.apply(&State::default());
        let later = read(&mut other, PATIENCE);
        assert_eq!(later.expect("what was held arrives, and no reset"), *b"b");

        let mut cut = State::default();
        cut.links[0][1] = Link::Cut;
        network.apply(&cut);
        let began = Instant::now();
        let dialed = dial(&network);
        let kind = dialed.as_ref().err().map(std::io::Error::kind);
        assert_eq!(kind, Some(ErrorKind::HostUnreachable), "{dialed:?}");
        assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
        one.write_all(b"d").expect("it is buffered");
        let nothing = read(&mut other, SILENCE);
        assert!(is_silent(&nothing), "{nothing:?}");
        network.apply(&State::default());
        assert_eq!(read(&mut other, PATIENCE).expect("it is healed"), *b"d");
        // Nobody listens any more.
        let dialed = dial(&network);
        let kind = dialed.as_ref().err().map(std::io::Error::kind);
        assert_eq!(kind, Some(ErrorKind::ConnectionRefused), "{dialed:?}");
    }

    /// A network is gone with its value, and what a killed process left is gone with the next.
    #[test]
    fn nothing_is_left_of_a_network() {
        let network = match Namespaces::new(2) {
            Ok(network) => network,
            Err(why) => return bowline_testing::skip(why),
        };
        let (space, bridge) = (network.space(1), network.bridge());
        let own = std::process::id();
        let is_there = |pid: u32| {
            let (spaces, links) = named(|one| one == pid);
            (spaces.contains(&space), links.contains(&bridge))
        };
        assert_eq!(is_there(own), (true, true));
        drop(network);
        assert_eq!(is_there(own), (false, false));

        let mut child = Command::new("true").spawn().expect("it starts");
        child.wait().expect("it ends");
        let left = format!("{}x0", child.id());
        ip(&["netns", "add", &format!("{SPACE_PREFIX}{left}-0")]).expect("added");
        let bridge = format!("{INTERFACE_PREFIX}{left}");
        ip(&["link", "add", &bridge, "type", "bridge"]).expect("added");
        Namespaces::new(2).expect("as before");
        let (spaces, links) = named(|pid| pid == child.id());
        assert!(
            spaces.is_empty() && links.is_empty(),
            "{spaces:?} {links:?}"
        );
    }

    #[test]
    fn a_queue_is_a_command_and_the_slowest_way_counts_only_if_all_are_slow() {
        let text = |delay_ms, lost, doubled, reordered| {
            let packets = Packets {
                lost,
                doubled,
                reordered,
            };
            Queue { delay_ms, packets }.command("x")
        };
        assert_eq!(text(0, 0, 0, 0), "qdisc del dev x root\n");
        let netem = |what: &str| format!("qdisc replace dev x root netem {what}\n");
        assert_eq!(text(70, 0, 0, 0), netem("delay 70ms"));
        assert_eq!(text(0, 5, 2, 0), netem("loss 5% duplicate 2%"));
        assert_eq!(text(0, 0, 0, 9), netem("delay 10ms reorder 9%"));
        let delay = |ways: &[Flow]| queue(ways.iter().copied(), Packets::default()).delay_ms;
        assert_eq!(delay(&[Flow::Slow(40), Flow::Held, Flow::Slow(30)]), 30);
        assert_eq!(delay(&[Flow::Slow(40), Flow::Open]), 0);
        assert_eq!(delay(&[Flow::Held, Flow::Held]), 0);
    }
}
