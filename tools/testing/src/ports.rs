//! Ports for servers whose addresses must be known before they listen, such as the members of a cluster.
//!
//! Binding port 0 and closing the socket yields a port that was free *a moment ago*: until the server binds
//! it, any other socket of the machine may get it, even as the local end of a connection. The more tests run
//! in parallel, the more often that happens (docs/bugs.md). So these ports come from below the kernel's
//! ephemeral range (`ip_local_port_range`), where a socket only gets a port that it requests by number.
//!
//! Processes share them in blocks. A process that listens at the first port of a block owns the block until
//! it ends; others skip it. Within a process a port is handed out once.

use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

/// The number of ports in a block, including the first one, which claims the block.
const BLOCK_PORTS: u16 = 64;
/// Lower ports are used by ordinary services.
const FIRST_PORT: u16 = 10_240;
/// The start of Linux's default ephemeral range.
const USUAL_EPHEMERAL_FROM: u16 = 32_768;

static PORTS: Mutex<Ports> = Mutex::new(Ports {
    claims: Vec::new(),
    next: 0,
    end: 0,
});

/// The ports of this process.
struct Ports {
    /// One listener for each owned block, at its first port.
    claims: Vec<TcpListener>,
    /// The next port of the newest block.
    next: u16,
    end: u16,
}

/// A free loopback port that no other caller gets.
///
/// # Panics
///
/// When all blocks are taken.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of `count` consecutive ports, as [`free_port`].
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
            // A foreign program may listen in the middle of a block.
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
        // Processes start at different blocks, so that they rarely compete.
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

/// The start of the ephemeral range. Ports above it may be taken at any time.
fn ephemeral_from() -> u16 {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = told
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(USUAL_EPHEMERAL_FROM);
    // The ephemeral range covers nearly all ports: then these are as good as any.
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
        // No process with this scheme takes a port of a claimed block.
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
