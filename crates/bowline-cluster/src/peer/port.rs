//! The limits of the peer port, in all and per address.
//!
//! Connections are counted, and so are the bytes of messages that have begun and not ended: those
//! are what a peer can make this member keep without ever asking for anything.
//!
//! An address is a *stranger's* until a member has spoken from it: asked something that names this member and its
//! cluster, and was taken. What comes from a stranger is read at a bounded rate, over all its connections. Reading
//! a byte costs this member more than sending it costs the stranger, and nobody else may pay for that.
//!
//! Invariants:
//!
//! - No more connections are open, and no more bytes of unfinished messages kept, than the limits say,
//!   over all and from each address; both are given back when the connection or the message goes,
//!   however that comes.
//! - A message that is there as soon as it begins costs no look at the counts.
//! - From a stranger no more is read in a time than [`PortLimits::stranger_bytes_per_second`] allows, a burst, and one
//!   read more for each of its connections. What a member sends is never delayed once it has spoken.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::log_limit::{LogLimit, and_more};

/// Limits of the port on which a member hears its peers. Each peer has four connections, one for each
/// lane.
#[derive(Clone, Debug)]
pub struct PortLimits {
    /// How many connections there may be.
    pub connections_max: usize,
    /// How many of them from one address.
    pub connections_per_address_max: usize,
    /// How many requests one connection may have under way.
    pub streams_max: u32,
    /// How many bytes of unfinished messages are kept.
    pub unfinished_bytes_max: usize,
    /// How many of them from one address: room for the largest message.
    pub unfinished_bytes_per_address_max: usize,
    /// How many bytes are read in a second from an address from which no member has spoken.
    pub stranger_bytes_per_second: usize,
    /// How many bytes more are read from there at once: a member that has not spoken yet may begin with the largest
    /// proposal.
    pub stranger_burst_bytes: usize,
    /// How long a connection may take to begin to speak.
    pub preface_timeout: Duration,
    /// How long a message may take from its first byte to its last.
    pub message_timeout: Duration,
    /// How long a request may wait for its first message, and one without a stream for its end.
    pub silence_timeout: Duration,
    /// How long a stream of appends may say nothing. The connection is kept alive by pings; the stream
    /// is made again when there is something to say.
    pub append_silence_timeout: Duration,
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
        }
    }
}

/// What is taken of the limits.
#[derive(Debug)]
pub struct Port {
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
    /// Whether a member has spoken from there.
    is_known: bool,
    /// When what was read from there would have come at the rate of a stranger.
    due: Option<Instant>,
}

impl Port {
    /// With nothing taken.
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

    /// Takes a connection from `address`; `None` when there are as many as may be.
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
        }))
    }
}

/// A connection that was taken. It is given back when the last clone goes.
#[derive(Debug)]
pub(crate) struct Connected {
    port: Arc<Port>,
    address: IpAddr,
    /// The same as of the address, and maybe later: what is known needs no lock.
    is_known: AtomicBool,
}

impl Connected {
    pub(crate) fn limits(&self) -> &PortLimits {
        &self.port.limits
    }

    /// A member has spoken on it.
    pub(crate) fn recognize(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            let mut state = self.port.state.lock();
            state.addresses.entry(self.address).or_default().is_known = true;
        }
    }

    /// So many bytes were read; says when to read on, if that is not at once.
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

    /// Changes how many bytes of an unfinished message are kept, from `held`; `false` when there is no
    /// room for more.
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

    /// Half messages from somebody who is no member, as fast as they could be read, made a put of a good client take
    /// twice as long.
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
        // What was not used before is no credit.
        let later = begun + 10 * SECOND;
        assert_eq!(first.pace(1500, later), Some(later + SECOND));
        // Where a member has spoken, nobody is a stranger.
        second.recognize();
        assert_eq!(first.pace(1 << 30, later), None);
        assert_eq!(second.pace(1 << 30, later), None);
        assert!(other.pace(1001, later).is_some());
        drop((first, second));
        let again = port.connect(address(1)).expect("again");
        assert!(again.pace(1001, later).is_some(), "nobody is left there");
    }
}
