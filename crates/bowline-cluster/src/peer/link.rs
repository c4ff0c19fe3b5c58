//! The connections to one peer.
//!
//! *Back-off.* A connection that fails is made again only after a wait, which doubles with each failure up to
//! a limit, with a random variation so that members do not connect all at once. The wait belongs to the link:
//! all lanes share it. A request within it fails at once, and [`is_unsent`](super::is_unsent) says so. The
//! first answer ends it.
//!
//! *Logging.* The loss of a peer that was reached is logged at once; a peer that was never reached is logged
//! after [`UNREACHED_GRACE`], as members start one after the other. Later messages are limited
//! ([`LogLimit`]), and the end is logged.
//!
//! Invariant: after a failure each lane connects at most once per wait, whatever the number of requests. Only
//! a failure of the connection counts: a refusal by the peer is an answer.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::frames::{self, Outgoing};
use super::options::PeerOptions;
use super::traffic::{Counted, Traffic};
use crate::log_limit::{LogLimit, and_more};
use crate::types::{LeaderId, LogId, NodeId};

/// How long a peer may be unreached after the start before that is logged.
const UNREACHED_GRACE: Duration = Duration::from_secs(5);

/// How long a peer that does not speak frames is asked over gRPC. It may be replaced by a newer program at any time.
const GRPC_PERIOD: Duration = Duration::from_secs(30);

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Log,
    Heartbeat,
    Snapshot,
    Other,
}

pub(crate) struct Link {
    target: NodeId,
    traffic: Arc<Traffic>,
    /// As known when the link was made; see `Peers::sender`.
    incarnation: AtomicU64,
    options: PeerOptions,
    state: Mutex<State>,
    acknowledged: Mutex<Option<Acknowledged>>,
    /// The number of the acknowledgements that the peer was told last.
    told: AtomicU64,
    /// The number of connection failures in a row.
    failures: AtomicU32,
    /// Whether the peer has answered since the last failure. Read without the lock when an answer arrives.
    is_reached: AtomicBool,
}

/// The peer's acknowledgement to this member as the leader of one term.
#[derive(Clone, Copy)]
struct Acknowledged {
    leader: LeaderId,
    last: LogId,
    /// Whether its loss was logged.
    is_lost: bool,
}

struct State {
    urls: Vec<String>,
    /// The index of the next URL.
    next: usize,
    channels: [Option<Channel>; 4],
    /// The connections that carry frames and that no call uses, of replication and of heartbeats.
    idle: [Option<Outgoing>; 2],
    /// Grows with each failure and change of URLs: an older connection is not used again.
    generation: u64,
    /// Until when the peer, which did not speak frames, is asked over gRPC.
    grpc_until: Option<Instant>,
    /// The earliest time of the next connection.
    not_before: Option<Instant>,
    /// The time of the first failure since the last answer.
    failing_since: Option<Instant>,
    was_reached: bool,
    is_logged: bool,
    limit: LogLimit,
    refusals: LogLimit,
    unreadable: LogLimit,
}

/// Why a request was not sent: the link waits before it connects again.
#[derive(Debug)]
pub(crate) struct Waiting {
    failures: u32,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = self.failures;
        write!(
            f,
            "the peer was not reached {failures} times in a row: it is tried again soon"
        )
    }
}

impl Error for Waiting {}

impl Link {
    pub(crate) fn new(
        target: NodeId,
        urls: Vec<String>,
        options: PeerOptions,
        traffic: Arc<Traffic>,
    ) -> Link {
        Link {
            target,
            traffic,
            incarnation: AtomicU64::new(0),
            options,
            acknowledged: Mutex::default(),
            told: AtomicU64::new(0),
            state: Mutex::new(State {
                urls,
                next: 0,
                channels: [const { None }; 4],
                idle: [const { None }; 2],
                generation: 0,
                grpc_until: None,
                not_before: None,
                failing_since: None,
                was_reached: false,
                is_logged: false,
                limit: LogLimit::default(),
                refusals: LogLimit::default(),
                unreadable: LogLimit::default(),
            }),
            failures: AtomicU32::new(0),
            is_reached: AtomicBool::new(false),
        }
    }

    pub(crate) fn target(&self) -> NodeId {
        self.target
    }

    /// What is counted of the peer.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Relaxed)
    }

    pub(crate) fn set_incarnation(&self, incarnation: u64) {
        self.incarnation.store(incarnation, Ordering::Relaxed);
    }

    /// The last entry that the peer has acknowledged to `leader`, which must be this member.
    pub(crate) fn acknowledged(&self, leader: &LeaderId) -> Option<LogId> {
        let known = *self.acknowledged.lock();
        known
            .filter(|known| known.leader == *leader)
            .map(|known| known.last)
    }

    /// Notes that the peer is told this number; whether that is new to it.
    pub(crate) fn is_told(&self, number: u64) -> bool {
        self.told.swap(number, Ordering::Relaxed) != number
    }

    /// Notes an acknowledgement to `leader`.
    pub(crate) fn acknowledge(&self, leader: LeaderId, last: LogId) {
        let mut known = self.acknowledged.lock();
        match &mut *known {
            Some(known) if known.leader == leader => known.last = known.last.max(last),
            known => {
                *known = Some(Acknowledged {
                    leader,
                    last,
                    is_lost: false,
                });
            }
        }
    }

    /// Notes that the peer does not have the entry `missing`. Logs once that it has lost what it had
    /// acknowledged.
    pub(crate) fn conflict(&self, leader: &LeaderId, missing: LogId) {
        let mut known = self.acknowledged.lock();
        let Some(known) = known.as_mut().filter(|known| known.leader == *leader) else {
            return;
        };
        if missing <= known.last && !std::mem::replace(&mut known.is_lost, true) {
            tracing::error!(
                member_id = %format!("{:x}", self.target),
                acknowledged = known.last.index,
                missing = missing.index,
                "a member has lost entries that it had acknowledged: its directory is an older one; \
                 it votes only after it has them again"
            );
        }
    }

    /// Logs that a snapshot for the peer cannot be read here. It is retried.
    pub(crate) fn snapshot_unreadable(&self, reason: &str) {
        if let Some(left_out) = self.state.lock().unreadable.admit(Instant::now()) {
            let more = and_more(left_out);
            tracing::error!(%reason, "cannot read a snapshot that is to be sent{more}");
        }
    }

    pub(crate) fn set_urls(&self, urls: &[String]) {
        let mut state = self.state.lock();
        if state.urls != urls {
            tracing::info!(
                target_id = self.target,
                ?urls,
                "a peer is reached elsewhere"
            );
            state.urls = urls.to_vec();
            state.next = 0;
            state.channels = [const { None }; 4];
            state.idle = [const { None }; 2];
            state.generation += 1;
            (state.not_before, state.grpc_until) = (None, None);
        }
    }

    /// A client on the connection of `lane`; the first request makes the connection.
    pub(crate) fn client(&self, lane: Lane) -> Result<GrpcClient<Channel>, Status> {
        let mut state = self.state.lock();
        if let Some(channel) = &state.channels[lane as usize] {
            return Ok(self.over(channel.clone()));
        }
        let url = self.next_url(&state)?;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Status::unavailable(format!("peer URL {url:?}: {error}")))?;
        let endpoint = endpoint
            .connect_timeout(self.options.connect_timeout)
            .http2_keep_alive_interval(self.options.keep_alive_interval)
            .keep_alive_timeout(self.options.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        let channel = self.options.network.channel(endpoint);
        state.channels[lane as usize] = Some(channel.clone());
        Ok(self.over(channel))
    }

    /// The URL at which the peer is reached next.
    fn next_url(&self, state: &State) -> Result<String, Status> {
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            let failures = self.failures.load(Ordering::Relaxed);
            let waiting = Waiting { failures };
            let mut status = Status::unavailable(waiting.to_string());
            status.set_source(Arc::new(waiting));
            return Err(status);
        }
        let url = state.urls.get(state.next).or(state.urls.first());
        let none = || Status::unavailable("the peer has no peer URL");
        url.cloned().ok_or_else(none)
    }

    /// A connection of `lane` that carries frames, and the generation with which it is given back; `None` when the peer does
    /// not speak them.
    pub(crate) async fn frames(&self, lane: Lane) -> Result<Option<(Outgoing, u64)>, Status> {
        let (url, generation) = {
            let mut state = self.state.lock();
            let generation = state.generation;
            let slot = state.idle.get_mut(lane as usize);
            // The peer closes one that is silent for minutes.
            if let Some(mut frames) = slot.and_then(Option::take)
                && frames.is_open()
            {
                return Ok(Some((frames, generation)));
            }
            if state.grpc_until.is_some_and(|until| Instant::now() < until) {
                return Ok(None);
            }
            (self.next_url(&state)?, generation)
        };
        let limit = self.options.connect_timeout;
        let connecting = async {
            let stream = self.options.network.connect(&url).await?;
            let stream = Box::new(Counted::new(stream, self.traffic.clone()));
            frames::connect(stream, self.options.message_bytes_max).await
        };
        let connected = tokio::time::timeout(limit, connecting).await;
        let connected = connected.unwrap_or_else(|_| {
            let text = format!("no connection in {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        });
        match connected.map_err(frames::broken)? {
            Some(frames) => Ok(Some((frames, generation))),
            None => {
                tracing::debug!(url, "a peer does not speak frames: it is asked over gRPC");
                self.state.lock().grpc_until = Some(Instant::now() + GRPC_PERIOD);
                Ok(None)
            }
        }
    }

    /// Takes a connection back, for the next call.
    pub(crate) fn give_back(&self, lane: Lane, generation: u64, frames: Outgoing) {
        let mut state = self.state.lock();
        if state.generation == generation
            && let Some(slot) = state.idle.get_mut(lane as usize)
        {
            *slot = Some(frames);
        }
    }

    fn over(&self, channel: Channel) -> GrpcClient<Channel> {
        GrpcClient::new(channel)
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX)
    }

    /// Notes that the peer has answered.
    pub(crate) fn reached(&self) {
        if self.is_reached.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        self.is_reached.store(true, Ordering::Relaxed);
        let failures = self.failures.swap(0, Ordering::Relaxed);
        (state.not_before, state.was_reached) = (None, true);
        let since = state.failing_since.take();
        if std::mem::take(&mut state.is_logged) {
            tracing::info!(
                peer = %format_args!("{:016x}", self.target),
                failures,
                after_ms = since.map_or(0, |since| since.elapsed().as_millis() as u64),
                "a peer is reached again"
            );
        }
    }

    /// Logs that the peer has refused a Raft request. A temporary refusal is not logged: a member that starts
    /// or stops refuses.
    pub(crate) fn log_refusal(&self, asked: &str, status: &Status) {
        let is_ordinary = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
        if is_ordinary || status.source().is_some() {
            return;
        }
        if let Some(left_out) = self.state.lock().refusals.admit(Instant::now()) {
            tracing::warn!(
                peer = %format_args!("{:016x}", self.target),
                asked,
                code = ?status.code(),
                reason = status.message(),
                "a peer refuses{}",
                and_more(left_out)
            );
        }
    }

    /// Notes a failure. After one of the connection the next URL is tried, after a wait.
    pub(crate) fn failed(&self, lane: Lane, status: &Status) {
        if is_waiting(status) || !is_unreachable(status) {
            return;
        }
        let is_answer = status.source().is_none() && status.code() != Code::DeadlineExceeded;
        match is_answer {
            true => self.reached(),
            false => self.traffic.send_failed(),
        }
        let mut state = self.state.lock();
        // A stopped member may answer while its connections live, and another may already listen at its
        // address. Any other refusal would be the same over a new connection.
        let is_stopped = status.code() == Code::Unavailable;
        if is_answer && !is_stopped && state.urls.len() < 2 {
            return;
        }
        state.channels[lane as usize] = None;
        state.idle = [const { None }; 2];
        state.generation += 1;
        state.next = (state.next + 1) % state.urls.len().max(1);
        // A request that timed out has already waited.
        if !is_answer && status.code() != Code::DeadlineExceeded {
            self.back_off(&mut state, status);
        }
    }

    fn back_off(&self, state: &mut State, status: &Status) {
        let now = Instant::now();
        // Several lanes detect the end of one peer: it counts once.
        if state.not_before.is_some_and(|at| now < at) {
            return;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failures, Ordering::Relaxed);
        self.is_reached.store(false, Ordering::Relaxed);
        // Each URL is tried once before the wait grows.
        let rounds = (failures - 1) / u32::try_from(state.urls.len().max(1)).unwrap_or(u32::MAX);
        state.not_before = Some(now + jittered(self.options.backoff, rounds));
        let since = *state.failing_since.get_or_insert(now);
        if !state.was_reached && now - since < UNREACHED_GRACE {
            return;
        }
        if let Some(left_out) = state.limit.admit(now) {
            state.is_logged = true;
            tracing::warn!(
                peer = %format_args!("{:016x}", self.target),
                urls = ?state.urls,
                error = %described(status),
                "a peer cannot be reached{}",
                and_more(left_out)
            );
        }
    }
}

/// The wait after so many failures, between the shortest and the longest, varied by a quarter.
pub(crate) fn jittered((shortest, longest): (Duration, Duration), failures: u32) -> Duration {
    let wait = shortest.saturating_mul(1 << failures.min(20)).min(longest);
    wait.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// A status and its causes, in one line.
fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Whether a request was not sent because the link waits before it connects again.
pub(crate) fn is_waiting(status: &Status) -> bool {
    status.source().is_some_and(<dyn Error>::is::<Waiting>)
}

/// Whether a status means that the peer was not reached, or must not be used: an immediate retry is useless.
pub(crate) fn is_unreachable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::Unauthenticated
            | Code::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::unreachable::Events;

    fn broken() -> Status {
        let mut status = Status::unavailable("transport error");
        status.set_source(Arc::new(io::Error::other("connection refused")));
        status
    }

    fn link(options: PeerOptions) -> Link {
        let urls = vec!["http://127.0.0.1:1".to_owned()];
        Link::new(1, urls, options, Arc::default())
    }

    /// A dead follower: each failed attempt used to be followed by the next one at once.
    #[tokio::test]
    async fn a_failed_connection_makes_every_lane_wait() {
        let options = PeerOptions {
            backoff: (Duration::from_secs(600), Duration::from_secs(600)),
            ..PeerOptions::default()
        };
        let link = link(options);
        link.client(Lane::Log).expect("the first attempt");
        link.failed(Lane::Log, &broken());
        for lane in [Lane::Log, Lane::Heartbeat, Lane::Snapshot, Lane::Other] {
            let status = link.client(lane).expect_err("it waits");
            assert!(is_waiting(&status), "{status}");
            assert!(crate::peer::is_unsent(&status), "{status}");
            // A refusal because of the wait is no further failure.
            link.failed(lane, &status);
        }
        assert_eq!(link.failures.load(Ordering::Relaxed), 1);
        assert_eq!(link.traffic.read(1).send_failures, 1);
        link.reached();
        link.client(Lane::Log).expect("at once after an answer");
    }

    /// "This member does not lead" is an answer: the connection stays, without a wait.
    #[tokio::test]
    async fn an_answer_that_refuses_is_no_failure() {
        let link = link(PeerOptions::default());
        link.client(Lane::Other).expect("a client");
        link.failed(Lane::Other, &Status::failed_precondition("not the leader"));
        assert!(link.state.lock().channels[Lane::Other as usize].is_some());
        assert_eq!(link.failures.load(Ordering::Relaxed), 0);
        assert_eq!(link.traffic.read(1).send_failures, 0);
    }

    #[test]
    fn the_wait_grows_up_to_its_limit() {
        let range = (Duration::from_millis(20), Duration::from_millis(500));
        for (failures, expected_ms) in [(0, 20.0), (1, 40.0), (4, 320.0), (5, 500.0), (99, 500.0)] {
            for _ in 0..50 {
                let wait_ms = jittered(range, failures).as_secs_f64() * 1000.0;
                let limits = 0.75 * expected_ms - 0.01..=1.25 * expected_ms + 0.01;
                assert!(limits.contains(&wait_ms), "{failures}: {wait_ms}");
            }
        }
    }

    /// A damaged table was logged at every attempt to send it, several times a second.
    #[test]
    fn what_is_tried_again_is_logged_now_and_then() {
        let events = Events::default();
        let _here = bowline_testing::listen(events.clone());
        let link = link(PeerOptions::default());
        for _ in 0..100 {
            link.snapshot_unreadable("a table is damaged");
        }
        assert_eq!(events.times_said("a table is damaged"), 1);
    }
}
