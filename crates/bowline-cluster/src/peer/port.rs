//! The limits of the peer port, in total and per address.
//!
//! Connections and the bytes of incomplete messages are counted: a peer can make this member hold them
//! without completing any request.
//!
//! An address is a *stranger's* until a member has spoken from it: a request that names this member and its
//! cluster was accepted. Bytes from a stranger are read at a bounded rate over all its connections. Reading a
//! byte costs this member more than sending it costs the stranger, and other clients must not pay for that.
//!
//! Invariants:
//!
//! - No more connections are open, and no more bytes of incomplete messages stored, than the limits allow, in
//!   total and per address; both are released when the connection or the message ends, in any way.
//! - A message that arrives complete needs no look at the counts.
//! - From a stranger no more is read in a time than [`PortLimits::stranger_bytes_per_second`] allows, a
//!   burst, and one read more for each of its connections. A member that has spoken is never delayed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_tls::PeerIdentity;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::traffic::{Traffic, Unclaimed};
use crate::log_limit::{LogLimit, and_more};

/// Limits of the peer port. Each peer has four connections, one per lane.
#[derive(Clone, Debug)]
pub struct PortLimits {
    /// The most connections.
    pub connections_max: usize,
    /// The most connections from one address.
    pub connections_per_address_max: usize,
    /// The most concurrent requests of one connection.
    pub streams_max: u32,
    /// The most stored bytes of incomplete messages.
    pub unfinished_bytes_max: usize,
    /// The same per address: room for the largest message.
    pub unfinished_bytes_per_address_max: usize,
    /// The rate at which bytes from a stranger's address are read.
    pub stranger_bytes_per_second: usize,
    /// The burst above that rate: a member that has not spoken yet may begin with the largest proposal.
    pub stranger_burst_bytes: usize,
    /// The deadline of the preface.
    pub preface_timeout: Duration,
    /// The deadline of a message, from its first byte to its last.
    pub message_timeout: Duration,
    /// The longest wait for a request's first message, and for the end of a unary request.
    pub silence_timeout: Duration,
    /// The longest silence of a stream of appends. Pings keep the connection alive; the stream is made again
    /// when there is something to send.
    pub append_silence_timeout: Duration,
    /// A connection ends when its peer takes nothing of a reply for so long.
    pub unread_timeout: Duration,
}

impl Default for PortLimits {
    fn default() -> Self {
        PortLimits {
            connections_max: 512,
            connections_per_address_max: 64,
            streams_max: 128,
            unfinished_bytes_max: 256 << 20,
            unfinished_bytes_per_address_max: 96 << 20,
            stranger_bytes_per_second: 32 << 20,
            stranger_burst_bytes: 2 << 20,
            preface_timeout: Duration::from_secs(5),
            message_timeout: Duration::from_secs(30),
            silence_timeout: Duration::from_secs(60),
            append_silence_timeout: Duration::from_secs(300),
            unread_timeout: Duration::from_secs(60),
        }
    }
}

/// The counts of the port.
#[derive(Debug)]
pub(crate) struct Port {
    limits: PortLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: Share,
    addresses: HashMap<IpAddr, Share>,
    refusals: LogLimit,
}

#[derive(Debug, Default, Clone, Copy)]
struct Share {
    connections: usize,
    bytes: usize,
    /// Whether a member has spoken from this address.
    is_known: bool,
    /// The time at which the bytes read so far are due at a stranger's rate.
    due: Option<Instant>,
}

impl Port {
    /// With all counts at zero.
    #[must_use]
    pub fn new(limits: PortLimits) -> Arc<Port> {
        Arc::new(Port {
            limits,
            state: Mutex::default(),
        })
    }

    pub(crate) fn limits(&self) -> &PortLimits {
        &self.limits
    }

    /// Counts a connection from `address`; `None` at the limit.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Connected>> {
        let mut state = self.state.lock();
        let own = state.addresses.get(&address).copied().unwrap_or_default();
        let limits = &self.limits;
        if state.all.connections >= limits.connections_max
            || own.connections >= limits.connections_per_address_max
        {
            let (from_there, all) = (own.connections, state.all.connections);
            if let Some(left_out) = state.refusals.admit(Instant::now()) {
                tracing::warn!(
                    %address,
                    from_there,
                    all,
                    "a connection of a peer was refused: there are as many as may be{}",
                    and_more(left_out)
                );
            }
            return None;
        }
        state.all.connections += 1;
        state.addresses.entry(address).or_default().connections += 1;
        Some(Arc::new(Connected {
            port: self.clone(),
            address,
            is_known: AtomicBool::new(false),
            bytes: Unclaimed::default(),
            identity: OnceLock::new(),
        }))
    }
}

/// A counted connection. It is released with the last clone.
#[derive(Debug)]
pub(crate) struct Connected {
    port: Arc<Port>,
    address: IpAddr,
    /// A copy of the address's flag, possibly late; true needs no lock.
    is_known: AtomicBool,
    /// Its bytes, for the peer that has made it.
    bytes: Unclaimed,
    /// The names of the certificate that the peer has shown.
    identity: OnceLock<Arc<PeerIdentity>>,
}

impl Connected {
    /// Notes which peer has made the connection.
    pub(crate) fn identify(&self, traffic: impl FnOnce() -> Arc<Traffic>) {
        self.bytes.claim(traffic);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.sent(bytes);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.received(bytes);
    }

    /// Notes the names of the peer's certificate, which was verified. The first call counts.
    pub(crate) fn set_identity(&self, identity: Arc<PeerIdentity>) {
        let _ = self.identity.set(identity);
    }

    /// The names of the peer's certificate, if the connection has one.
    pub(crate) fn identity(&self) -> Option<&Arc<PeerIdentity>> {
        self.identity.get()
    }

    pub(crate) fn limits(&self) -> &PortLimits {
        &self.port.limits
    }

    /// Notes that a member has spoken on it.
    pub(crate) fn recognize(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            let mut state = self.port.state.lock();
            state.addresses.entry(self.address).or_default().is_known = true;
        }
    }

    /// Counts read bytes; returns when to continue reading, if not at once.
    pub(crate) fn pace(&self, bytes: usize, now: Instant) -> Option<Instant> {
        if self.is_known.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.port.state.lock();
        let own = state.addresses.entry(self.address).or_default();
        if own.is_known {
            self.is_known.store(true, Ordering::Relaxed);
            return None;
        }
        let limits = &self.port.limits;
        let rate = limits.stranger_bytes_per_second.max(1) as f64;
        let took = |bytes: usize| Duration::from_secs_f64(bytes as f64 / rate);
        let due = own.due.map_or(now, |due| due.max(now)) + took(bytes);
        own.due = Some(due);
        let ahead = due.saturating_duration_since(now);
        let pause = ahead.saturating_sub(took(limits.stranger_burst_bytes));
        (pause > Duration::ZERO).then(|| now + pause)
    }

    /// Changes the stored bytes of an incomplete message from `held`; `false` when there is no room for more.
    pub(crate) fn hold(&self, held: &mut usize, bytes: usize) -> bool {
        let mut state = self.port.state.lock();
        let State { all, addresses, .. } = &mut *state;
        let own = addresses.entry(self.address).or_default();
        let (all_bytes, own_bytes) = (all.bytes - *held + bytes, own.bytes - *held + bytes);
        let limits = &self.port.limits;
        if bytes > *held
            && (all_bytes > limits.unfinished_bytes_max
                || own_bytes > limits.unfinished_bytes_per_address_max)
        {
            return false;
        }
        (all.bytes, own.bytes, *held) = (all_bytes, own_bytes, bytes);
        true
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut state = self.port.state.lock();
        state.all.connections -= 1;
        if let Some(own) = state.addresses.get_mut(&self.address) {
            own.connections -= 1;
            if own.connections == 0 && own.bytes == 0 {
                state.addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// One address could take every connection, and all memory.
    #[test]
    fn an_address_takes_its_share_and_gives_it_back() {
        let port = Port::new(PortLimits {
            connections_max: 3,
            connections_per_address_max: 2,
            unfinished_bytes_max: 150,
            unfinished_bytes_per_address_max: 100,
            ..PortLimits::default()
        });
        let first = port.connect(address(1)).expect("the first");
        let second = port.connect(address(1)).expect("the second");
        assert!(port.connect(address(1)).is_none(), "a third from there");
        let other = port.connect(address(2)).expect("from elsewhere");
        assert!(port.connect(address(3)).is_none(), "a fourth");
        let (mut a, mut b, mut c) = (0, 0, 0);
        assert!(first.hold(&mut a, 60) && !second.hold(&mut b, 41) && second.hold(&mut b, 40));
        assert!(!other.hold(&mut c, 51) && other.hold(&mut c, 50));
        assert!(first.hold(&mut a, 0) && other.hold(&mut c, 100));
        assert!(second.hold(&mut b, 0) && other.hold(&mut c, 0));
        drop((first, second, other));
        let state = port.state.lock();
        assert!(state.addresses.is_empty() && state.all.connections == 0 && state.all.bytes == 0);
    }

    /// Incomplete messages from a stranger, as fast as they could be read, doubled the time of a good
    /// client's put.
    #[test]
    fn strangers_are_read_at_a_rate_and_members_are_not_delayed() {
        const SECOND: Duration = Duration::from_secs(1);
        let port = Port::new(PortLimits {
            stranger_bytes_per_second: 1000,
            stranger_burst_bytes: 500,
            ..PortLimits::default()
        });
        let begun = Instant::now();
        let first = port.connect(address(1)).expect("the first");
        let second = port.connect(address(1)).expect("the second");
        let other = port.connect(address(2)).expect("from elsewhere");
        assert_eq!(first.pace(500, begun), None, "a burst");
        // The connections of an address share its rate.
        assert_eq!(first.pace(1000, begun), Some(begun + SECOND));
        assert_eq!(second.pace(1000, begun), Some(begun + 2 * SECOND));
        assert_eq!(other.pace(1500, begun), Some(begun + SECOND));
        // Unused time is no credit.
        let later = begun + 10 * SECOND;
        assert_eq!(first.pace(1500, later), Some(later + SECOND));
        // An address from which a member has spoken is no stranger's.
        second.recognize();
        assert_eq!(first.pace(1 << 30, later), None);
        assert_eq!(second.pace(1 << 30, later), None);
        assert!(other.pace(1001, later).is_some());
        drop((first, second));
        let again = port.connect(address(1)).expect("again");
        assert!(again.pace(1001, later).is_some(), "nobody is left there");
    }
}
