//! State shared by all services: the node, the limits, and the leader's status.
//!
//! Every request checks whether there is a leader and whether this member is a learner. So both are flags,
//! which [`Context::follow_node`] keeps up to date.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::Revision;
use bowline_cluster::{Applied, LocalClient, ReadLevel, ReadPoint};
use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_tls::ServerTls;
use http::{HeaderName, HeaderValue};
use tokio::sync::{Semaphore, watch};
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use crate::audit::{self, Audit};
use crate::credentials::Renewals;
use crate::jwt::Jwt;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::passwords::Hashing;
use crate::rates::Rates;
use crate::read_threads::{ReadThreads, long_threads_max, wide_threads_max};
use crate::reply_header::ReplyHeader;
use crate::settings::Settings;
use crate::status::Fault;
use crate::watch::Watches;

const READ: HeaderName = HeaderName::from_static("bowline-read");
const APPLIED: HeaderName = HeaderName::from_static("bowline-applied");

/// The most snapshots sent at once.
const SNAPSHOTS_MAX: usize = 8;

/// State shared by all services.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) client: LocalClient,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watches: Arc<Watches>,
    /// The memory budget of clients.
    pub(crate) memory: Arc<Memory>,
    /// The turn of operations that read or write the whole database: hash, defragmentation, table compaction.
    pub(crate) maintenance: Arc<Semaphore>,
    /// Threads for ranges that fit into one reply.
    pub(crate) wide_reads: Arc<ReadThreads>,
    /// Threads for long ranges. They are separate, so that clients which read everything do not delay short
    /// ranges.
    pub(crate) long_reads: Arc<ReadThreads>,
    /// How often the automatic compaction has looked whether something is due, and has done it.
    pub(crate) compaction_looks: AtomicU64,
    /// The turns of outgoing snapshots. Each holds files, and a thread while its client is slow.
    pub(crate) snapshots: Arc<Semaphore>,
    pub(crate) reply_header: Arc<ReplyHeader>,
    /// The turns of password hashes.
    pub(crate) hashing: Hashing,
    /// The renewals of tokens under way.
    pub(crate) renewals: Arc<Renewals>,
    /// `None` when calls are not written.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Signs and verifies tokens; `None` for tokens that are in the state.
    pub(crate) jwt: Option<Jwt>,
    /// The rates of each principal; `None` without limits.
    pub(crate) rates: Option<Arc<Rates>>,
    /// The certificates of the ports with TLS, each with the name of its port in metrics.
    pub(crate) ports: OnceLock<Vec<(&'static str, ServerTls)>>,
    has_leader: AtomicBool,
    is_learner: AtomicBool,
    /// Incremented when there was no leader for so long that the streams which need one end.
    leader_losses: watch::Sender<u64>,
    /// Whether there is a leader and the server is not stopping.
    serving: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
}

impl Context {
    pub(crate) fn new(
        client: LocalClient,
        settings: Settings,
        watches: Arc<Watches>,
        memory: Arc<Memory>,
        audit: Option<Arc<Audit>>,
        jwt: Option<Jwt>,
    ) -> io::Result<Arc<Context>> {
        let status = client.status();
        Ok(Arc::new(Context {
            has_leader: AtomicBool::new(status.leader.is_some()),
            is_learner: AtomicBool::new(status.is_learner),
            reply_header: Arc::new(ReplyHeader::new(&client)),
            // What a service does without its caller is done for nobody.
            client: client.for_callers(),
            jwt,
            rates: Rates::new(settings.rates),
            hashing: Hashing::default(),
            renewals: Arc::default(),
            audit,
            ports: OnceLock::new(),
            settings,
            metrics: Arc::default(),
            watches,
            memory,
            maintenance: Arc::new(Semaphore::new(1)),
            compaction_looks: AtomicU64::new(0),
            wide_reads: ReadThreads::new("bowline-read", wide_threads_max())?,
            long_reads: ReadThreads::new("bowline-read-long", long_threads_max())?,
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)),
            leader_losses: watch::Sender::new(0),
            serving: watch::Sender::new(status.leader.is_some()),
            stopping: watch::Sender::new(false),
        }))
    }

    /// The header of a reply.
    pub(crate) fn header(&self, revision: Revision, term: u64) -> Option<ResponseHeader> {
        if self.audit.is_some() {
            audit::note_revision(revision.get());
        }
        self.reply_header.at(revision, term)
    }

    /// The reply header for the node's present state.
    pub(crate) fn header_now(&self) -> Option<ResponseHeader> {
        self.header(self.client.db().revision(), self.term())
    }

    pub(crate) fn term(&self) -> u64 {
        self.reply_header.term()
    }

    pub(crate) fn header_of_read(&self, point: &ReadPoint) -> Option<ResponseHeader> {
        self.header(point.revision, point.term)
    }

    pub(crate) fn header_of(&self, applied: &Applied) -> Option<ResponseHeader> {
        self.header(applied.reply.revision, applied.term)
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.has_leader.load(Ordering::Relaxed)
    }

    /// Whether this member leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.reply_header.leads()
    }

    pub(crate) fn is_learner(&self) -> bool {
        self.is_learner.load(Ordering::Relaxed)
    }

    /// Changes when the streams that need a leader must end.
    pub(crate) fn leader_losses(&self) -> watch::Receiver<u64> {
        self.leader_losses.subscribe()
    }

    /// Becomes true when the server stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
        self.set_serving(false);
    }

    /// Whether this member can serve.
    pub(crate) fn serving(&self) -> watch::Receiver<bool> {
        self.serving.subscribe()
    }

    /// `stopping` is set before this is called, so a stopping server never serves again.
    fn set_serving(&self, has_leader: bool) {
        self.serving.send_if_modified(|serving| {
            let now = has_leader && !*self.stopping.borrow();
            std::mem::replace(serving, now) != now
        });
    }

    /// Looks at the rights of all watches after each change of users, until the server stops.
    pub(crate) async fn follow_users(self: Arc<Context>) {
        let mut changes = self.client.users_changes();
        let mut stopping = self.stopping();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = stopped(&mut stopping) => return,
            }
            self.watches.check_rights(&self.client);
        }
    }

    /// Updates the flags until the server stops.
    pub(crate) async fn follow_node(self: Arc<Context>) {
        /// A member's role can change without a change of the leader.
        const REFRESH: Duration = Duration::from_millis(200);
        let mut leadership = self.client.leadership();
        let mut stopping = self.stopping();
        let loss_timeout = self.settings.election_timeout * 3;
        let mut leaderless_since = None;
        loop {
            let has_leader = leadership.borrow_and_update().leader.is_some();
            self.has_leader.store(has_leader, Ordering::Relaxed);
            self.set_serving(has_leader);
            self.is_learner
                .store(self.client.status().is_learner, Ordering::Relaxed);
            let now = tokio::time::Instant::now();
            let wait = if has_leader {
                leaderless_since = None;
                REFRESH
            } else {
                let since = *leaderless_since.get_or_insert(now);
                let left = loss_timeout.saturating_sub(now - since);
                if left.is_zero() {
                    // Once per loss: streams that begin later are refused at once.
                    self.leader_losses.send_modify(|count| *count += 1);
                    self.watches.end_those_that_need_a_leader();
                    leaderless_since = Some(now);
                }
                left.clamp(Duration::from_millis(1), REFRESH)
            };
            tokio::select! {
                changed = leadership.changed() => {
                    if changed.is_err() {
                        // The node has stopped, so there is no leader.
                        self.has_leader.store(false, Ordering::Relaxed);
                        self.set_serving(false);
                        return;
                    }
                }
                () = tokio::time::sleep(wait) => {}
                () = stopped(&mut stopping) => return,
            }
        }
    }
}

/// Waits until the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped: the server is gone.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// The requested read level: `serializable` in the message, or `bowline-read` in the metadata.
pub(crate) fn read_level(metadata: &MetadataMap, serializable: bool) -> Result<ReadLevel, Status> {
    if serializable {
        return Ok(ReadLevel::Eventual);
    }
    let Some(level) = metadata.get(READ.as_str()) else {
        return Ok(ReadLevel::Linearizable);
    };
    match level.as_bytes() {
        b"linearizable" => Ok(ReadLevel::Linearizable),
        b"lease" => Ok(ReadLevel::Lease),
        b"eventual" => Ok(ReadLevel::Eventual),
        _ => Err(
            Fault::Invalid("bowline-read is not one of linearizable, lease and eventual").into(),
        ),
    }
}

/// A reply with the point at which it was read.
pub(crate) fn respond_read<T>(message: T, point: &ReadPoint) -> Response<T> {
    let mut response = respond_applied(message, point.applied_index);
    respond_at_level(&mut response, point.level);
    response
}

/// Adds the level at which a reply was read.
pub(crate) fn respond_at_level<T>(response: &mut Response<T>, level: ReadLevel) {
    let headers = response.metadata_mut().as_mut();
    headers.insert(READ, HeaderValue::from_static(level.name()));
}

/// Whether a reply was made by [`respond_read`].
pub(crate) fn is_of_read<T>(response: &http::Response<T>) -> bool {
    response.headers().contains_key(READ)
}

/// A reply with the applied index.
pub(crate) fn respond_applied<T>(message: T, index: u64) -> Response<T> {
    let mut response = Response::new(message);
    let mut value = HeaderValue::from(index);
    // The value differs in every reply: keep it out of the connection's HPACK table.
    value.set_sensitive(true);
    response.metadata_mut().as_mut().insert(APPLIED, value);
    response
}
