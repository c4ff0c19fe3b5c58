//! [`KeepAlive`]: a task that keeps a lease alive.
//!
//! The task sends a renewal every third of the time to live, so two may fail. It keeps one stream, and opens
//! another at the next endpoint when the stream breaks or is silent.
//!
//! Invariant: while the task reports the lease as alive, it is alive. So the time to live counts from when a
//! renewal was *sent*, and goes on while this machine is suspended. When it has passed without another
//! confirmed renewal, the lease counts as lost, even if a server still has it. Lost is final.

use std::sync::Arc;
use std::time::Duration;

use bowline_proto::etcdserverpb::lease_client::LeaseClient;
use bowline_proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::moment::{Moment, suspended};
use super::seconds::ttl_of;
use super::{exact, seconds};
use crate::caller::{Caller, PAUSE_MIN};
use crate::endpoints::Endpoint;
use crate::login::Shown;
use crate::{Error, Header, LeaseId, Result};

/// Keeps a lease alive until it is dropped. [`Client::keep_alive`](crate::Client::keep_alive) gives one.
///
/// Dropping it stops the renewals; the lease then ends by itself when its time has passed.
/// [`revoke`](KeepAlive::revoke) ends it at once.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use std::time::Duration;
///
/// let lease = client.grant_lease(Duration::from_secs(10)).await?;
/// let alive = client.keep_alive(lease.id).await?;
/// assert_eq!((alive.id(), alive.ttl()), (lease.id, lease.ttl));
///
/// // Works only as long as nobody else can have the lock.
/// client.put("lock", "me").lease(alive.id()).await?;
/// while alive.remaining() > Duration::from_secs(1) {
///     println!("a piece of work of less than a second");
/// }
/// alive.revoke().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it stops the renewals"]
pub struct KeepAlive {
    caller: Arc<Caller>,
    id: LeaseId,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

/// What is known of the lease.
#[derive(Debug, Clone)]
enum State {
    Alive(Renewed),
    Lost(Error),
}

/// A confirmed renewal.
#[derive(Debug, Clone, Copy)]
struct Renewed {
    ttl: Duration,
    sent: Moment,
}

impl Renewed {
    /// The time for which the lease is certain to live.
    fn remaining(&self) -> Duration {
        self.ttl.saturating_sub(self.sent.elapsed())
    }

    /// When it is time for the next one.
    fn next_due(&self) -> Instant {
        self.sent.timer_after(self.ttl / 3)
    }
}

impl KeepAlive {
    pub(crate) async fn start(
        caller: Arc<Caller>,
        id: LeaseId,
        is_exact: bool,
    ) -> Result<KeepAlive> {
        let mut renewer = Renewer {
            caller: Arc::clone(&caller),
            id,
            is_exact,
            stream: None,
            read_suspended: suspended,
        };
        let deadline = Instant::now() + caller.settings().request_timeout;
        let renewed = loop {
            match renewer.renew(deadline).await {
                Ok(renewed) => break renewed,
                Err(error) if error.is_retryable() && Instant::now() + PAUSE_MIN < deadline => {
                    tokio::time::sleep(PAUSE_MIN).await;
                }
                Err(error) => return Err(error),
            }
        };
        let (sender, state) = watch::channel(State::Alive(renewed));
        let task = tokio::spawn(renewer.run(sender, renewed));
        Ok(KeepAlive {
            caller,
            id,
            state,
            task,
        })
    }

    /// The lease.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// assert_eq!(alive.id(), lease.id);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Whether the lease is certain to be alive now.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// assert_eq!(alive.id(), lease.id);
    /// if alive.is_alive() {
    ///     println!("for {:?} at least", alive.remaining());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// The time for which the lease is certain to live without another renewal.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// // Work that takes longer is not covered by the lease.
    /// println!("{:?} are certain", alive.remaining());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match &*self.state.borrow() {
            State::Alive(renewed) => renewed.remaining(),
            State::Lost(_) => Duration::ZERO,
        }
    }

    /// The time to live; zero once the lease is lost.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// println!("renewed for {:?} each time", alive.ttl());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ttl(&self) -> Duration {
        match &*self.state.borrow() {
            State::Alive(renewed) => renewed.ttl,
            State::Lost(_) => Duration::ZERO,
        }
    }

    /// Waits until the next renewal is confirmed; returns the remaining time.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let mut alive = client.keep_alive(lease.id).await?;
    /// while let Ok(left) = alive.renewed().await {
    ///     println!("renewed, {left:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` when the time to live passed without a confirmed renewal, or the lease has ended.
    pub async fn renewed(&mut self) -> Result<Duration> {
        // An error means that the task has ended: its last word stands.
        let _ = self.state.changed().await;
        match &*self.state.borrow_and_update() {
            State::Alive(renewed) => Ok(renewed.ttl),
            State::Lost(error) => Err(error.clone()),
        }
    }

    /// Waits until the lease is lost; returns the cause: [`Error::LeaseNotFound`] if it has ended,
    /// [`Error::LeaseLost`] if no renewal was confirmed in time. After a suspension of this machine it may return up to a
    /// third of the time to live late; [`is_alive`](KeepAlive::is_alive) says so at once.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// println!("stop the work: {}", alive.lost().await);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it says why the lease was lost"]
    pub async fn lost(&self) -> Error {
        let mut state = self.state.clone();
        let lost = state
            .wait_for(|state| matches!(state, State::Lost(_)))
            .await;
        match lost.as_deref() {
            Ok(State::Lost(error)) => error.clone(),
            // The task ended without a word: its runtime is shutting down.
            _ => Error::LeaseLost {
                cause: Box::new(Error::Stopped),
            },
        }
    }

    /// Stops the renewals, ends the lease and deletes its keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// client.put("workers/7", "up").lease(lease.id).await?;
    /// // The key goes at once, not when the lease would expire.
    /// alive.revoke().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::revoke_lease`](crate::Client::revoke_lease).
    pub async fn revoke(self) -> Result<Header> {
        self.task.abort();
        seconds::revoke(&self.caller, self.id).await
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task works with.
struct Renewer {
    caller: Arc<Caller>,
    id: LeaseId,
    /// Whether it is timed in milliseconds, by calls of their own instead of a stream.
    is_exact: bool,
    stream: Option<Renewals>,
    /// See [`Moment::now`].
    read_suspended: fn() -> Duration,
}

/// An open stream of renewals.
struct Renewals {
    turn: usize,
    endpoint: Arc<Endpoint>,
    shown: Shown,
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    replies: Streaming<LeaseKeepAliveResponse>,
}

impl Renewer {
    async fn run(mut self, state: watch::Sender<State>, mut renewed: Renewed) {
        let mut next = renewed.next_due();
        loop {
            sleep_until(next).await;
            let cause = match self.renew_in_time(&renewed).await {
                Ok(new) => {
                    renewed = new;
                    next = renewed.next_due();
                    if state.send(State::Alive(renewed)).is_err() {
                        return;
                    }
                    continue;
                }
                Err(Error::LeaseNotFound) => {
                    let _ = state.send(State::Lost(Error::LeaseNotFound));
                    return;
                }
                Err(error) => {
                    tracing::debug!(lease = %self.id, %error, "a renewal failed");
                    error
                }
            };
            let pause = match cause {
                // Each try costs the server the hash of a password.
                Error::AuthenticationFailed { .. } => (renewed.ttl / 6).max(PAUSE_MIN),
                _ => PAUSE_MIN,
            };
            if renewed.remaining() <= pause {
                let cause = Box::new(cause);
                let _ = state.send(State::Lost(Error::LeaseLost { cause }));
                return;
            }
            next = Instant::now() + pause;
        }
    }

    /// Renews the lease, if it is certain to be alive until that is confirmed.
    async fn renew_in_time(&mut self, last: &Renewed) -> Result<Renewed> {
        let remaining = last.remaining();
        if remaining.is_zero() {
            return Err(Error::TimedOut);
        }
        // One silent endpoint must not use up all the time there is.
        let attempt = (last.ttl / 6).max(Duration::from_millis(100));
        let renewed = self.renew(Instant::now() + attempt.min(remaining)).await?;
        // The machine may have been suspended meanwhile.
        match last.remaining().is_zero() {
            true => Err(Error::TimedOut),
            false => Ok(renewed),
        }
    }

    /// Sends one renewal and waits for its answer.
    async fn renew(&mut self, deadline: Instant) -> Result<Renewed> {
        let renewed = timeout_at(deadline, self.renew_once())
            .await
            .unwrap_or(Err(Error::TimedOut));
        if renewed.is_err() {
            // Whatever comes on this stream later answers an older renewal.
            let (turn, _) = self.caller.endpoints().current();
            let turn = self.stream.take().map_or(turn, |stream| stream.turn);
            // A call has gone on to the next endpoint itself, but when it was cut short.
            let is_left = self.is_exact && !matches!(renewed, Err(Error::TimedOut));
            if !is_left && !matches!(renewed, Err(Error::LeaseNotFound)) {
                self.caller.endpoints().leave(turn);
            }
        }
        renewed
    }

    async fn renew_once(&mut self) -> Result<Renewed> {
        let sent = Moment::now(self.read_suspended);
        if self.is_exact {
            let ttl = exact::keep_alive_once(&self.caller, self.id).await?;
            return Ok(Renewed { ttl, sent });
        }
        let mut shown = match &self.stream {
            Some(stream) => stream.shown.clone(),
            None => self.caller.shown().await?,
        };
        let ttl = match self.renew_on_stream(&shown).await {
            // The token has expired, or is of an older password. The lease was not looked at.
            Err(error) if self.caller.may_log_in(&error) => {
                self.stream = None;
                shown = self.caller.shown_after(&shown).await?;
                self.renew_on_stream(&shown).await?
            }
            renewed => renewed?,
        };
        Ok(Renewed { ttl, sent })
    }

    /// Sends a renewal on the stream, or on a new one.
    async fn renew_on_stream(&mut self, shown: &Shown) -> Result<Duration> {
        let request = LeaseKeepAliveRequest { id: self.id.get() };
        if let Some(stream) = &mut self.stream
            && stream.requests.send(request).await.is_err()
        {
            self.stream = None;
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            empty => empty.insert(open(&self.caller, request, shown.clone()).await?),
        };
        let reply = stream.replies.message().await;
        let reply =
            reply.map_err(|status| Error::from_status(&status, stream.endpoint.address()))?;
        ttl_of(reply)
    }
}

/// Opens a stream with its first renewal in it: a server may answer nothing before it has one.
async fn open(caller: &Caller, first: LeaseKeepAliveRequest, shown: Shown) -> Result<Renewals> {
    let (turn, endpoint) = caller.endpoints().current();
    let (requests, receiver) = mpsc::channel(1);
    // There is room for one.
    let _ = requests.send(first).await;
    let request = caller.request(ReceiverStream::new(receiver), true, &shown);
    let replies = LeaseClient::new(endpoint.channel())
        .lease_keep_alive(request)
        .await
        .map_err(|status| Error::from_status(&status, endpoint.address()))?
        .into_inner();
    Ok(Renewals {
        turn,
        endpoint,
        shown,
        requests,
        replies,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::settings::Settings;
    use crate::silent::silent_server;

    const ID: LeaseId = LeaseId::new(1).expect("not 0");

    /// One of a server at this address.
    fn renewer(address: String, read_suspended: fn() -> Duration) -> Renewer {
        let settings = Settings {
            endpoints: vec![address],
            ..Settings::default()
        };
        Renewer {
            caller: Arc::new(Caller::new(settings).unwrap()),
            id: ID,
            is_exact: false,
            stream: None,
            read_suspended,
        }
    }

    /// A holder of a lock that goes on after its lease has ended shares it with the next one.
    #[tokio::test]
    async fn a_lease_that_nothing_renews_is_lost_when_its_time_is_over() {
        // Nobody listens on it.
        let renewer = renewer("127.0.0.1:1".to_owned(), suspended);
        let renewed = Renewed {
            ttl: Duration::from_millis(300),
            sent: Moment::now(suspended),
        };
        let (sender, mut state) = watch::channel(State::Alive(renewed));
        let running = tokio::spawn(renewer.run(sender, renewed));
        let lost = state.wait_for(|state| matches!(state, State::Lost(Error::LeaseLost { .. })));
        let lost = tokio::time::timeout(Duration::from_secs(20), lost).await;
        assert!(matches!(lost, Ok(Ok(_))), "it is believed for ever");
        running.await.unwrap();
    }

    /// The clock of timers stands still while the machine is suspended. A holder of a lock whose machine woke after an hour
    /// was told that its lease is certain to be alive, and the lease was renewed if the server still had it.
    #[tokio::test]
    async fn a_lease_is_not_alive_after_a_suspension() {
        // A suspension from before the lease.
        static SUSPENDED_MS: AtomicU64 = AtomicU64::new(100_000);
        let read_suspended = || Duration::from_millis(SUSPENDED_MS.load(Ordering::SeqCst));
        let (address, asked) = silent_server(b"nothing has this in it").await;
        let renewer = renewer(address, read_suspended);
        let caller = Arc::clone(&renewer.caller);
        let renewed = Renewed {
            ttl: Duration::from_millis(1_500),
            sent: Moment::now(read_suspended),
        };
        let (sender, state) = watch::channel(State::Alive(renewed));
        let task = tokio::spawn(renewer.run(sender, renewed));
        let alive = KeepAlive {
            caller,
            id: ID,
            state,
            task,
        };
        // The clocks are read a little apart.
        SUSPENDED_MS.fetch_add(1, Ordering::SeqCst);
        assert!(alive.is_alive());
        SUSPENDED_MS.fetch_add(3_600_000, Ordering::SeqCst);
        assert!(!alive.is_alive());
        assert_eq!(alive.remaining(), Duration::ZERO);
        let lost = tokio::time::timeout(Duration::from_secs(20), alive.lost()).await;
        assert!(matches!(lost, Ok(Error::LeaseLost { .. })), "{lost:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 0, "it is not renewed");
    }
}
