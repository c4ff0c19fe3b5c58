//! The network of a cluster: proxies or namespaces, behind one face, and the choice between them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bowline_testing::{Seed, skip_part};
use tokio::net::TcpListener;

use crate::cluster::SEATS;
use crate::links::Links;
use crate::namespaces::Namespaces;
use crate::nemesis::{Fault, State};

/// Names the network of a run: `namespaces` or `proxies`.
const VARIABLE: &str = "BOWLINE_FAULT_NETWORK";

/// How members reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wiring {
    /// Through [`Links`], which can be cut and slowed down.
    Switched,
    /// Directly: a member that is dead refuses connections, as its machine does.
    Direct,
    /// Each in a namespace of its own, whose packets get lost ([`Namespaces`]).
    Spaces,
}

impl Wiring {
    /// As the environment says, else as the seed does where namespaces are allowed. Says which, to repeat it.
    pub(crate) fn chosen(seed: Seed) -> Wiring {
        let asked = std::env::var(VARIABLE).ok();
        let (wiring, why_not) = choose(asked.as_deref(), seed, Namespaces::are_allowed)
            .unwrap_or_else(|why| panic!("{why}"));
        if let Some(why) = why_not {
            skip_part(format!("faults of packets: {why}"));
        }
        let name = match wiring {
            Wiring::Spaces => "namespaces",
            Wiring::Switched | Wiring::Direct => "proxies",
        };
        println!("the network of seed {}: {VARIABLE}={name}", seed.0);
        wiring
    }
}

/// The wiring, and why it is not the one that the seed has drawn.
fn choose(
    asked: Option<&str>,
    seed: Seed,
    are_allowed: impl FnOnce() -> Result<(), String>,
) -> Result<(Wiring, Option<String>), String> {
    match asked {
        Some("namespaces") => match are_allowed() {
            Ok(()) => Ok((Wiring::Spaces, None)),
            Err(why) => Err(format!("{VARIABLE}=namespaces is not possible here: {why}")),
        },
        Some("proxies") => Ok((Wiring::Switched, None)),
        Some(other) => Err(format!(
            "{VARIABLE} is namespaces or proxies, and not {other:?}"
        )),
        // A part of the seed that no round has.
        None if seed.part(u64::MAX - 1).rng().bool() => Ok(match are_allowed() {
            Ok(()) => (Wiring::Spaces, None),
            Err(why) => (Wiring::Switched, Some(why)),
        }),
        None => Ok((Wiring::Switched, None)),
    }
}

/// Where a member is, whether it runs or not.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) client: SocketAddr,
    /// Where it listens to the others.
    pub(crate) peer: SocketAddr,
    /// Where the others find it.
    pub(crate) advertised: SocketAddr,
    /// The namespace that its program runs in.
    space: Option<String>,
}

impl Seat {
    /// A command that becomes a program at this seat, with the same process id.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let Some(space) = &self.space else {
            return Command::new(program);
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space]).arg(program);
        command
    }
}

/// What is between the members.
pub(crate) enum Network {
    Direct,
    Proxies(Arc<Links>),
    Namespaces(Namespaces),
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bowline_testing::ports::free_port()))
}

impl Network {
    /// A network, and the seats in it.
    pub(crate) async fn new(wiring: Wiring) -> (Network, Vec<Seat>) {
        let on_loopback = |peer, advertised| Seat {
            client: free_address(),
            peer,
            advertised,
            space: None,
        };
        match wiring {
            Wiring::Direct => {
                let seats = (0..SEATS).map(|_| {
                    let peer = free_address();
                    on_loopback(peer, peer)
                });
                (Network::Direct, seats.collect())
            }
            Wiring::Switched => {
                let links = Links::new();
                let mut seats = Vec::new();
                for at in 0..SEATS {
                    let peer = free_address();
                    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
                    let listener = listener.expect("a free port");
                    let advertised = listener.local_addr().expect("an address");
                    links.proxy(listener, at, peer);
                    seats.push(on_loopback(peer, advertised));
                }
                (Network::Proxies(links), seats)
            }
            Wiring::Spaces => {
                let network = Namespaces::new(SEATS).expect("namespaces, which are allowed");
                if let Some(why) = network.without_netem() {
                    skip_part(format!(
                        "slow paths, and packets that are lost, doubled or reordered, as there is no netem: {why}"
                    ));
                }
                let seats = (0..SEATS).map(|at| Seat {
                    client: network.client(at),
                    peer: network.peer(at),
                    advertised: network.peer(at),
                    space: Some(network.space(at)),
                });
                let seats = seats.collect();
                (Network::Namespaces(network), seats)
            }
        }
    }

    /// Makes the paths between the members what a state says, so far as [`Network::can`].
    pub(crate) fn apply(&self, state: &State) {
        match self {
            Network::Direct => {}
            Network::Proxies(links) => links.apply(state),
            Network::Namespaces(network) => network.apply(state),
        }
    }

    /// Proxies know a member by its process.
    pub(crate) fn set_pid(&self, member: usize, pid: Option<u32>) {
        if let Network::Proxies(links) = self {
            links.set_pid(member, pid);
        }
    }

    /// Whether single packets can be hurt.
    pub(crate) fn has_netem(&self) -> bool {
        matches!(self, Network::Namespaces(network) if network.without_netem().is_none())
    }

    /// Whether a fault takes place here.
    pub(crate) fn can(&self, fault: Fault) -> bool {
        match fault {
            Fault::Slow(..) => matches!(self, Network::Proxies(_)) || self.has_netem(),
            Fault::LostPackets(..) | Fault::DoubledPackets(..) | Fault::ReorderedPackets(..) => {
                self.has_netem()
            }
            Fault::Isolate(..)
            | Fault::OneWay(..)
            | Fault::Mute(_)
            | Fault::Deaf(_)
            | Fault::Bridge(_) => !matches!(self, Network::Direct),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_the_one_asked_for_or_the_one_drawn_where_it_is_allowed() {
        let yes = || Ok(());
        let no = || Err("no root".to_owned());
        let asked = |name, is_allowed: bool| {
            let allowed = move || if is_allowed { yes() } else { no() };
            choose(Some(name), Seed(1), allowed)
        };
        assert_eq!(asked("namespaces", true), Ok((Wiring::Spaces, None)));
        assert_eq!(asked("proxies", false), Ok((Wiring::Switched, None)));
        let refused = asked("namespaces", false).expect_err("not allowed");
        assert!(refused.contains("no root"), "{refused}");
        assert!(asked("pigeons", true).is_err());
        let drawn = |seed| choose(None, Seed(seed), yes).expect("drawn").0;
        let spaces = (0..100).filter(|&seed| drawn(seed) == Wiring::Spaces);
        let spaces: Vec<u64> = spaces.collect();
        assert!((20..80).contains(&spaces.len()), "{spaces:?}");
        let instead = choose(None, Seed(spaces[0]), no).expect("proxies");
        assert_eq!(instead, (Wiring::Switched, Some("no root".to_owned())));
    }
}
