//! What stands between the members: every member advertises a proxy of this process, which hands
//! connections on to it. The proxy finds out who dialed, so each ordered pair has a switch of its own.
//!
//! Who dialed is read from `/proc`: the socket that has the dialer's port, and the member that has that
//! socket open. A connection of nobody (it was closed at once) is dropped.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::MEMBERS;

/// What becomes of what one member sends to another, on connections that the first has opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// It arrives.
    Open,
    /// It arrives when the link is open again, with its answers: nobody is told.
    Held,
    /// Connections break, and new ones are refused.
    Cut,
}

/// The switches, `[from][to]`, and the process ids by which dialers are known.
pub(crate) struct Links {
    switches: Vec<Vec<watch::Sender<Link>>>,
    pids: Mutex<[Option<u32>; MEMBERS]>,
}

impl Links {
    pub(crate) fn new() -> Arc<Links> {
        let row = || {
            (0..MEMBERS)
                .map(|_| watch::Sender::new(Link::Open))
                .collect()
        };
        Arc::new(Links {
            switches: (0..MEMBERS).map(|_| row()).collect(),
            pids: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, from: usize, to: usize, link: Link) {
        self.switches[from][to].send_replace(link);
    }

    /// Both directions between a member and all others.
    pub(crate) fn set_around(&self, member: usize, link: Link) {
        for other in (0..MEMBERS).filter(|&other| other != member) {
            self.set(member, other, link);
            self.set(other, member, link);
        }
    }

    pub(crate) fn open_all(&self) {
        for from in 0..MEMBERS {
            for to in 0..MEMBERS {
                self.set(from, to, Link::Open);
            }
        }
    }

    pub(crate) fn set_pid(&self, member: usize, pid: Option<u32>) {
        self.pids.lock().expect("no panic inside")[member] = pid;
    }

    fn dialer(&self, address: SocketAddr) -> Option<usize> {
        let socket = format!("socket:[{}]", inode(address.port())?);
        let pids = *self.pids.lock().expect("no panic inside");
        let has = |pid: Option<u32>| pid.is_some_and(|pid| has_open(pid, &socket));
        pids.into_iter().position(has)
    }

    /// Stands before `to`, for good.
    pub(crate) fn proxy(self: &Arc<Links>, listener: TcpListener, to: usize, real: SocketAddr) {
        let links = self.clone();
        tokio::spawn(async move {
            loop {
                let Ok((inbound, address)) = listener.accept().await else {
                    continue;
                };
                let links = links.clone();
                tokio::spawn(async move {
                    let Some(from) = links.dialer(address) else {
                        return;
                    };
                    let switch = links.switches[from][to].subscribe();
                    if *switch.borrow() == Link::Cut {
                        return;
                    }
                    if let Ok(outbound) = TcpStream::connect(real).await {
                        hand_on(inbound, outbound, switch).await;
                    }
                });
            }
        });
    }
}

/// The inode of the socket that is bound to a port and connected.
fn inode(port: u16) -> Option<u64> {
    const CONNECTED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let port = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1)?.ends_with(&port) && words.get(3) == Some(&CONNECTED);
        is_it.then(|| words.get(9)?.parse().ok())?
    })
}

fn has_open(pid: u32, socket: &str) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == Path::new(socket)))
}

async fn hand_on(inbound: TcpStream, outbound: TcpStream, mut switch: watch::Receiver<Link>) {
    let _ = inbound.set_nodelay(true);
    let _ = outbound.set_nodelay(true);
    let (from_dialer, to_dialer) = inbound.into_split();
    let (from_member, to_member) = outbound.into_split();
    let (there, back) = (switch.clone(), switch.clone());
    tokio::select! {
        () = copy(from_dialer, to_member, there) => {}
        () = copy(from_member, to_dialer, back) => {}
        _ = switch.wait_for(|&link| link == Link::Cut) => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut switch: watch::Receiver<Link>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if switch.wait_for(|&link| link != Link::Held).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
