//! Ports for servers whose addresses must be known before they listen, such as the members of a cluster.
//!
//! To bind port 0 and close the socket again gives a port that was free *a moment ago*: until the server binds it,
//! any other socket of the machine may be given the same one, as the local end of a connection, too. The more
//! tests run beside each other, the more often that happens (docs/bugs.md). So these ports come from below the range
//! that the kernel gives away (`ip_local_port_range`), where a socket only gets a port that it asks for by number.
//!
//! Processes share them in blocks. Whoever listens at the first port of a block has the others of the block, until
//! its process ends; nobody else looks at them. Within a process a port is handed out once.

use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

/// Ports of a block, with the one that stands for the block.
const BLOCK_PORTS: u16 = 64;
/// Below it are the ports of services that people run.
const FIRST_PORT: u16 = 10_240;
/// The lowest port that Linux gives away unless told otherwise.
const USUAL_EPHEMERAL_FROM: u16 = 32_768;

static PORTS: Mutex<Ports> = Mutex::new(Ports {
    claims: Vec::new(),
    next: 0,
    end: 0,
});

/// What this process has.
struct Ports {
    /// One listener for each block, at its first port.
    claims: Vec<TcpListener>,
    /// The ports of the newest block that were not handed out yet.
    next: u16,
    end: u16,
}

/// A port of the loopback that nobody listens at and nobody else is given.
///
/// # Panics
///
/// When all blocks are taken.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many ports in a row, as [`free_port`].
///
/// # Panics
///
/// When all blocks are taken, or when a block has fewer.
pub fn free_ports(count: u16) -> u16 {
    assert!(
        (1..BLOCK_PORTS).contains(&count),
        "a block has {BLOCK_PORTS} ports"
    );
    let mut ports = PORTS.lock();
    loop {
        while ports.end - ports.next >= count {
            let first = ports.next;
            // A program that knows nothing of blocks may listen in the middle of one.
            match (first..first + count).rfind(|port| !is_free(*port)) {
                None => {
                    ports.next = first + count;
                    return first;
                }
                Some(taken) => ports.next = taken + 1,
            }
        }
        ports.claim();
    }
}

impl Ports {
    fn claim(&mut self) {
        let blocks = (ephemeral_from() - FIRST_PORT) / BLOCK_PORTS;
        // Processes begin at different ones, so that they rarely meet.
        let own = u16::try_from(std::process::id() % u32::from(blocks)).expect("less than blocks");
        let first = |number: u16| FIRST_PORT + (own + number) % blocks * BLOCK_PORTS;
        let claimed = (0..blocks)
            .find_map(|number| Some((first(number), listen(first(number)).ok()?)))
            .expect("no block of ports is left below the ephemeral ones");
        self.next = claimed.0 + 1;
        self.end = claimed.0 + BLOCK_PORTS;
        self.claims.push(claimed.1);
    }
}

/// The lowest port that the kernel gives to sockets that ask for none. Above it nothing can be promised.
fn ephemeral_from() -> u16 {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = told
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(USUAL_EPHEMERAL_FROM);
    // A machine that gives away nearly all of them: then these are as good as any.
    if lowest < FIRST_PORT + 4 * BLOCK_PORTS {
        USUAL_EPHEMERAL_FROM
    } else {
        lowest
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn is_free(port: u16) -> bool {
    listen(port).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_nor_by_the_kernel() {
        let mut given: Vec<u16> = (0..3 * BLOCK_PORTS).map(|_| free_port()).collect();
        for count in [2, 8, BLOCK_PORTS - 1] {
            let first = free_ports(count);
            given.extend(first..first + count);
        }
        assert!(given.iter().all(|port| *port < ephemeral_from()));
        let count = given.len();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), count);
        // No process that asks the same way gets into a block that is taken.
        for claim in &PORTS.lock().claims {
            let port = claim.local_addr().unwrap().port();
            assert!(!is_free(port), "{port} stands for a block");
        }
    }

    #[test]
    fn a_port_that_somebody_listens_at_is_passed_over() {
        let before = free_port();
        let held: Vec<_> = (before + 1..before + 4)
            .filter_map(|port| listen(port).ok())
            .collect();
        let got = free_ports(4);
        let held: Vec<u16> = held
            .iter()
            .map(|held| held.local_addr().unwrap().port())
            .collect();
        assert!(
            (got..got + 4).all(|port| !held.contains(&port)),
            "{got} of {held:?}"
        );
    }
}
