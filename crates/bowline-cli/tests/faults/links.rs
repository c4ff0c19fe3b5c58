//! The network between the members, as connections: every member advertises the address of a proxy in this process, which
//! forwards connections to it. [`namespaces`](crate::namespaces) has the same switches for packets.
//!
//! The proxy identifies the member that connects. So each ordered pair of members has two switches: one for the connections
//! that the first opens ([`Link`]), and one for the bytes that the first sends, on whatever connection ([`Flow`]). The second
//! makes a partition in one direction: a member is heard, and hears no reply.
//!
//! The member that connects is read from `/proc`: the socket with its source port, and the process that has that socket
//! open. A connection without a process (it was closed at once) is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::SEATS;
use crate::nemesis::State;

/// What becomes of what one member sends to another, on connections that the first has opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Link {
    /// It arrives.
    #[default]
    Open,
    /// It arrives when the link is open again, with its answers: nobody is told.
    Held,
    /// New connections fail at once. Those through a proxy break; among packets there is silence on them.
    Cut,
}

/// What becomes of the bytes that one member sends to another, whoever opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Flow {
    /// They arrive.
    #[default]
    Open,
    /// They arrive so many milliseconds later, 64 KiB in that time.
    Slow(u64),
    /// They arrive when the way is open again.
    Held,
}

type Switches<T> = Vec<Vec<watch::Sender<T>>>;

/// The switches, `[from][to]`, and the process ids by which dialers are known.
pub(crate) struct Links {
    links: Switches<Link>,
    flows: Switches<Flow>,
    pids: Mutex<[Option<u32>; SEATS]>,
    sockets: Sockets,
}

fn switches<T: Default>() -> Switches<T> {
    let row = |_| (0..SEATS).map(|_| watch::Sender::default()).collect();
    (0..SEATS).map(row).collect()
}

fn set<T: PartialEq>(switch: &watch::Sender<T>, value: T) {
    switch.send_if_modified(|now| {
        let changes = *now != value;
        *now = value;
        changes
    });
}

impl Links {
    pub(crate) fn new() -> Arc<Links> {
        Arc::new(Links {
            links: switches(),
            flows: switches(),
            pids: Mutex::default(),
            sockets: Sockets::default(),
        })
    }

    pub(crate) fn apply(&self, state: &State) {
        for from in 0..SEATS {
            for to in 0..SEATS {
                set(&self.links[from][to], state.links[from][to]);
                set(&self.flows[from][to], state.flows[from][to]);
            }
        }
    }

    pub(crate) fn set_pid(&self, member: usize, pid: Option<u32>) {
        self.pids.lock().expect("no panic inside")[member] = pid;
    }

    /// Reads `/proc`: not on a thread that forwards.
    fn dialer(&self, from: SocketAddr, proxy: SocketAddr) -> Option<usize> {
        let inode = self.sockets.inode((from.port(), proxy.port()))?;
        let socket = format!("socket:[{inode}]");
        let pids = *self.pids.lock().expect("no panic inside");
        let has = |pid: Option<u32>| pid.is_some_and(|pid| has_open(pid, &socket));
        pids.into_iter().position(has)
    }

    /// Stands before `to`, for good.
    pub(crate) fn proxy(self: &Arc<Links>, listener: TcpListener, to: usize, real: SocketAddr) {
        let links = self.clone();
        let proxy = listener.local_addr().expect("a listener has an address");
        tokio::spawn(async move {
            loop {
                let Ok((inbound, address)) = listener.accept().await else {
                    continue;
                };
                let links = links.clone();
                tokio::spawn(async move {
                    let known = links.clone();
                    let dialer = tokio::task::spawn_blocking(move || known.dialer(address, proxy));
                    let Ok(Some(from)) = dialer.await else {
                        return;
                    };
                    let link = links.links[from][to].subscribe();
                    if *link.borrow() == Link::Cut {
                        return;
                    }
                    let flows = [(from, to), (to, from)];
                    let flows = flows.map(|(from, to)| links.flows[from][to].subscribe());
                    if let Ok(outbound) = TcpStream::connect(real).await {
                        hand_on(inbound, outbound, link, flows).await;
                    }
                });
            }
        });
    }
}

/// The kernel's table of connected sockets. It takes long to read when there are many, closed ones included, and after a
/// fault all members connect at once: all that have waited for a reading share it.
#[derive(Default)]
struct Sockets {
    /// How many lookups have begun.
    lookups: AtomicU64,
    read: Mutex<ReadSockets>,
}

/// The own port of a socket and that of the other side.
type Ports = (u16, u16);

#[derive(Default)]
struct ReadSockets {
    /// The lookups that had begun before the table was read: their connections are in it.
    serves: u64,
    inodes: HashMap<Ports, u64>,
}

impl Sockets {
    /// The inode of the socket that is connected by these ports.
    fn inode(&self, ports: Ports) -> Option<u64> {
        let this = self.lookups.fetch_add(1, Ordering::AcqRel) + 1;
        let mut read = self.read.lock().expect("no panic inside");
        if read.serves < this {
            read.serves = self.lookups.load(Ordering::Acquire);
            read.inodes = connected();
        }
        read.inodes.get(&ports).copied()
    }
}

/// The inodes of connected sockets by their ports.
fn connected() -> HashMap<Ports, u64> {
    const CONNECTED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let row = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (own, other) = (port(words.nth(1)?)?, port(words.next()?)?);
        if words.next()? != CONNECTED {
            return None;
        }
        Some(((own, other), words.nth(5)?.parse().ok()?))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn has_open(pid: u32, socket: &str) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == Path::new(socket)))
}

async fn hand_on(
    inbound: TcpStream,
    outbound: TcpStream,
    mut link: watch::Receiver<Link>,
    [there, back]: [watch::Receiver<Flow>; 2],
) {
    let _ = inbound.set_nodelay(true);
    let _ = outbound.set_nodelay(true);
    let (from_dialer, to_dialer) = inbound.into_split();
    let (from_member, to_member) = outbound.into_split();
    let links = [link.clone(), link.clone()];
    let [link_there, link_back] = links;
    tokio::select! {
        () = copy(from_dialer, to_member, link_there, there) => {}
        () = copy(from_member, to_dialer, link_back, back) => {}
        _ = link.wait_for(|&link| link == Link::Cut) => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
    mut flow: watch::Receiver<Flow>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let slow = *flow.borrow();
        if let Flow::Slow(delay_ms) = slow {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        let is_open = link.wait_for(|&link| link != Link::Held).await.is_ok()
            && flow.wait_for(|&flow| flow != Flow::Held).await.is_ok();
        if !is_open || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
