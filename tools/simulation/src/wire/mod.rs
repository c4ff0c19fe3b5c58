//! The wire: connections in memory between simulated hosts.
//!
//! A connection has two ends. Bytes that one end writes are a segment, which arrives after a delay drawn from the
//! path between the hosts, in order within the connection; connections do not wait for each other. That is what
//! TCP shows to a program. What happens to packets shows as delay: on a *cut* path segments wait until it is
//! mended, and then arrive as after a retransmission. On a path that *swallows* they are lost, and whatever follows on the
//! connection with them, until the path is mended: then the connection is reset, as one is that nobody knows any more. On a
//! path that *breaks* a connection is reset a moment after something has arrived on it: of requests the answers are lost.
//!
//! Nothing happens between two calls of [`Wire::advance`], except that programs write and read. A read is now and
//! then put off to the next step, as if the thread had been kept from it: tasks that would always run in the same
//! order run in others, too.
//!
//! Invariants: the bytes that an end reads are a prefix of what the other wrote, and end with an error or with the
//! end of the stream only when one of the two hosts, or a fault, has ended the connection; what a host that is
//! down has written before may arrive, and nothing that it writes afterwards does.

mod host;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use host::Host;

use crate::trace::{Trace, name};

/// How many bytes an end may have written that the other has not read.
const WINDOW_BYTES: usize = 256 << 10;
/// A path that breaks resets a connection within this time: about that of a request.
const BREAKS_WITHIN_MICROS: u64 = 20_000;
/// Where members listen for each other, and for clients.
const PEER_PORT: u16 = 2380;
const CLIENT_PORT: u16 = 2379;

/// The delays of one direction between two hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) is_cut: bool,
    /// Whether bytes are lost.
    pub(crate) swallows: bool,
    /// Whether a connection is reset soon after something has arrived on it.
    pub(crate) breaks: bool,
    /// The shortest and the longest delay of a segment.
    pub(crate) delay: (Duration, Duration),
}

impl Path {
    const FAST: Path = Path {
        is_cut: false,
        swallows: false,
        breaks: false,
        delay: (Duration::from_micros(100), Duration::from_millis(2)),
    };
}

/// One end of a connection.
#[derive(Default)]
struct End {
    host: usize,
    inbox: VecDeque<u8>,
    /// Whether the other end sends no more.
    is_ended: bool,
    failure: Option<io::ErrorKind>,
    /// Whether the program has dropped this end, or its host has gone down.
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Of what this end has written: the bytes that the other has not read.
    unread_bytes: usize,
    /// When the last segment of this end arrives.
    last_due: Duration,
    /// Whether the last read was put off.
    is_put_off: bool,
    /// Whether something that this end has sent was lost: nothing of it arrives any more.
    is_swallowed: bool,
}

impl End {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

struct Stream {
    ends: [End; 2],
    /// Of the host of end 1.
    port: u16,
    /// Until it is accepted or refused.
    connecting: Option<Waker>,
    is_accepted: bool,
}

#[derive(Default)]
struct Listening {
    accepted: VecDeque<u64>,
    waker: Option<Waker>,
}

enum Event {
    /// The end 0 of a stream asks the host of end 1.
    Connect,
    /// End 1 has answered.
    Answer {
        is_accepted: bool,
    },
    Bytes {
        from: usize,
        bytes: Vec<u8>,
    },
    Ended {
        from: usize,
    },
    Reset {
        from: usize,
    },
    /// Both ends are reset.
    Broken,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connect => f.write_str("is asked for"),
            Event::Answer { is_accepted: true } => f.write_str("is accepted"),
            Event::Answer { is_accepted: false } => f.write_str("is refused"),
            Event::Bytes { bytes, .. } => write!(f, "{} bytes", bytes.len()),
            Event::Ended { .. } => f.write_str("is ended"),
            Event::Reset { .. } | Event::Broken => f.write_str("is reset"),
        }
    }
}

impl Event {
    fn from(&self) -> usize {
        match self {
            Event::Connect | Event::Broken => 0,
            Event::Answer { .. } => 1,
            Event::Bytes { from, .. } | Event::Ended { from } | Event::Reset { from } => *from,
        }
    }
}

struct State {
    now: Duration,
    random: fastrand::Rng,
    next_number: u64,
    paths: Vec<Vec<Path>>,
    /// The hosts from this one on are those of clients: they do not listen, and are always up.
    clients_from: usize,
    /// Of hosts that are up: by host and port.
    listening: BTreeMap<(usize, u16), Listening>,
    streams: BTreeMap<u64, Stream>,
    /// Whether a host has let go of a stream since those without any host were removed.
    has_dropped: bool,
    /// By time and number.
    due: BTreeMap<(Duration, u64), (u64, Event)>,
    /// Ends whose reads were put off to the next step.
    put_off: Vec<(u64, usize)>,
    /// Where each delivery is noted, if that is wanted.
    trace: Option<Trace>,
}

/// The wire between all hosts. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Mutex<State>>);

impl Wire {
    /// Between so many machines of members, and of clients.
    pub(crate) fn new(machines: usize, clients: usize, seed: u64, trace: Option<Trace>) -> Wire {
        let hosts = machines + clients;
        Wire(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            random: fastrand::Rng::with_seed(seed),
            next_number: 0,
            paths: vec![vec![Path::FAST; hosts]; hosts],
            clients_from: machines,
            listening: BTreeMap::new(),
            streams: BTreeMap::new(),
            has_dropped: false,
            due: BTreeMap::new(),
            put_off: Vec::new(),
            trace,
        })))
    }

    /// The URL at which a host listens for other members.
    pub(crate) fn url(host: usize) -> String {
        format!("http://{}", address(host, PEER_PORT))
    }

    /// The URL at which a host listens for clients.
    pub(crate) fn client_url(host: usize) -> String {
        format!("http://{}", address(host, CLIENT_PORT))
    }

    /// The network as `host` sees it.
    pub(crate) fn host(&self, host: usize) -> Host {
        let wire = self.clone();
        Host { wire, host }
    }

    /// Changes the path between two hosts in one direction.
    pub(crate) fn set_path(&self, from: usize, to: usize, change: impl FnOnce(&mut Path)) {
        change(&mut self.0.lock().paths[from][to]);
    }

    /// All paths are fast again, and connections that have lost something are reset.
    pub(crate) fn mend(&self) {
        let mut state = self.0.lock();
        let paths = state.paths.iter_mut().flatten();
        paths.for_each(|path| *path = Path::FAST);
        for stream in state.streams.values_mut() {
            if stream.ends.iter().any(|end| end.is_swallowed) {
                for end in &mut stream.ends {
                    end.failure.get_or_insert(io::ErrorKind::ConnectionReset);
                    end.wake();
                }
            }
        }
    }

    /// Ends all connections between two hosts with an error.
    pub(crate) fn reset(&self, hosts: [usize; 2]) {
        let mut state = self.0.lock();
        for stream in state.streams.values_mut() {
            let between = stream.ends.each_ref().map(|end| end.host);
            if between == hosts || between == [hosts[1], hosts[0]] {
                for end in &mut stream.ends {
                    end.failure = Some(io::ErrorKind::ConnectionReset);
                    end.wake();
                }
            }
        }
    }

    /// A host stops at once: what it had written is on its way. With `is_silent` (its power is gone) the others
    /// are not told.
    pub(crate) fn stop(&self, host: usize, is_silent: bool) {
        let mut state = self.0.lock();
        state.listening.retain(|(known, _), _| *known != host);
        state.has_dropped = true;
        let mut ended = Vec::new();
        for (&number, stream) in &mut state.streams {
            for side in 0..2 {
                let end = &mut stream.ends[side];
                if end.host == host && !std::mem::replace(&mut end.is_dropped, true) {
                    end.failure = Some(io::ErrorKind::ConnectionAborted);
                    ended.push((number, side));
                }
            }
        }
        if !is_silent {
            ended
                .into_iter()
                .for_each(|(number, from)| state.send(number, Event::Reset { from }));
        }
    }

    /// A host is up again: it knows none of the connections from before.
    pub(crate) fn start(&self, host: usize) {
        let mut state = self.0.lock();
        let mut unknown = Vec::new();
        for (&number, stream) in &state.streams {
            for (side, end) in stream.ends.iter().enumerate() {
                if end.host == host && end.is_dropped {
                    unknown.push((number, side));
                }
            }
        }
        unknown
            .into_iter()
            .for_each(|(number, from)| state.send(number, Event::Reset { from }));
    }

    /// Delivers what arrives until `now`.
    pub(crate) fn advance(&self, now: Duration) {
        let mut state = self.0.lock();
        state.now = now;
        for (number, side) in std::mem::take(&mut state.put_off) {
            if let Some(stream) = state.streams.get_mut(&number) {
                stream.ends[side].wake();
            }
        }
        while let Some(entry) = state.due.first_entry()
            && entry.key().0 <= now
        {
            let (number, event) = entry.remove();
            state.deliver(number, event);
        }
        if std::mem::take(&mut state.has_dropped) {
            let is_held = |stream: &Stream| !stream.ends.iter().all(|end| end.is_dropped);
            state.streams.retain(|_, stream| is_held(stream));
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl State {
    /// Whether a host has a program that could be asked for a connection.
    fn is_up(&self, host: usize) -> bool {
        host >= self.clients_from || self.listening.keys().any(|(known, _)| *known == host)
    }

    /// Puts an event of a stream on its way.
    fn send(&mut self, number: u64, event: Event) {
        let from = event.from();
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        let hosts = [stream.ends[from].host, stream.ends[1 - from].host];
        let (least, most) = self.paths[hosts[0]][hosts[1]].delay;
        let micros = self
            .random
            .u64(least.as_micros() as u64..=most.as_micros() as u64);
        let end = &mut stream.ends[from];
        end.last_due = end.last_due.max(self.now + Duration::from_micros(micros));
        let due = end.last_due;
        self.next_number += 1;
        self.due.insert((due, self.next_number), (number, event));
    }

    fn deliver(&mut self, number: u64, event: Event) {
        let from = event.from();
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        let (sender, receiver) = (stream.ends[from].host, stream.ends[1 - from].host);
        if self.paths[sender][receiver].is_cut {
            // The order within the stream stays: later ones are not earlier than this.
            let again = Duration::from_micros(self.random.u64(50_000..200_000));
            let due = self.now + again;
            let end = &mut stream.ends[from];
            end.last_due = end.last_due.max(due);
            let waiting: Vec<_> = { self.due.iter() }
                .filter(|(_, (other, event))| *other == number && event.from() == from)
                .map(|(key, _)| *key)
                .collect();
            self.next_number += 1;
            self.due.insert((due, self.next_number), (number, event));
            for key in waiting {
                let later = self.due.remove(&key).expect("it was just seen");
                self.next_number += 1;
                self.due.insert((key.0.max(due), self.next_number), later);
            }
            return;
        }
        let end = &mut stream.ends[from];
        end.is_swallowed |= self.paths[sender][receiver].swallows;
        if end.is_swallowed {
            return;
        }
        if let Some(trace) = &self.trace {
            let [sender, receiver] =
                [sender, receiver].map(|host| host_name(host, self.clients_from));
            let what = format_args!("connection {number}: {event} from {sender}");
            trace.note(receiver, what);
        }
        match event {
            Event::Broken => {
                for end in &mut stream.ends {
                    end.failure.get_or_insert(io::ErrorKind::ConnectionReset);
                    end.wake();
                }
            }
            Event::Connect => {
                let listening = self.listening.get_mut(&(receiver, stream.port));
                let is_accepted = listening.is_some();
                if let Some(listening) = listening {
                    listening.accepted.push_back(number);
                    if let Some(waker) = listening.waker.take() {
                        waker.wake();
                    }
                }
                self.send(number, Event::Answer { is_accepted });
            }
            Event::Answer { is_accepted } => {
                match is_accepted {
                    true => stream.is_accepted = true,
                    false => stream.ends[0].failure = Some(io::ErrorKind::ConnectionRefused),
                }
                if let Some(waker) = stream.connecting.take() {
                    waker.wake();
                }
            }
            Event::Bytes { bytes, .. } => {
                let end = &mut stream.ends[1 - from];
                if end.is_dropped {
                    if self.is_up(receiver) {
                        self.send(number, Event::Reset { from: 1 - from });
                    }
                    return;
                }
                end.inbox.extend(bytes);
                end.wake();
                if self.paths[sender][receiver].breaks {
                    let delay = Duration::from_micros(self.random.u64(..BREAKS_WITHIN_MICROS));
                    self.next_number += 1;
                    let due = (self.now + delay, self.next_number);
                    self.due.insert(due, (number, Event::Broken));
                }
            }
            Event::Ended { .. } => {
                stream.ends[1 - from].is_ended = true;
                stream.ends[1 - from].wake();
            }
            Event::Reset { .. } => {
                let end = &mut stream.ends[1 - from];
                end.failure.get_or_insert(io::ErrorKind::ConnectionReset);
                end.wake();
                if let Some(waker) = stream.connecting.take() {
                    waker.wake();
                }
            }
        }
    }
}

/// The name of a host in the trace: of a member, or of a machine of users.
fn host_name(host: usize, clients_from: usize) -> String {
    match host.checked_sub(clients_from) {
        None => name(host),
        Some(user) => format!("u{user}"),
    }
}

fn address(host: usize, port: u16) -> SocketAddr {
    let last = u8::try_from(host + 1).expect("there are few hosts");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), port))
}

/// The host and the port of an address.
fn place_at(address: &str) -> io::Result<(usize, u16)> {
    let address: SocketAddr = { address.parse() }.map_err(io::Error::other)?;
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[3] > 0 => {
            Ok((usize::from(ip.octets()[3]) - 1, address.port()))
        }
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}
