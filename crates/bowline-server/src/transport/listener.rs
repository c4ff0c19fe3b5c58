//! Accepts connections, and serves each until it ends or the server stops.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cluster::peer;
use bowline_tls::ServerTls;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::Dispatch;
use super::executor::EagerExecutor;
use super::read_deadline::DeadlineStream;
use crate::context::{Context, stopped};
use crate::front::{self, Limits, Rewind};
use crate::memory::Account;

/// Limits and times of connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOptions {
    /// The most connections.
    pub(crate) connections_max: u64,
    /// The most concurrent calls per connection.
    pub(crate) streams_max: u32,
    /// The largest head of a request, in bytes.
    pub(crate) header_bytes_max: u32,
    /// The deadline for a request or message to arrive completely.
    pub(crate) partial_timeout: Duration,
    /// A call ends when its client reads nothing of the reply for so long.
    pub(crate) unread_timeout: Duration,
    /// The most calls that a client may reset within ten seconds.
    pub(crate) resets_max: u32,
    /// The interval of pings on a silent connection; `None` without pings.
    pub(crate) keep_alive_interval: Option<Duration>,
    /// The timeout of a ping's answer.
    pub(crate) keep_alive_timeout: Duration,
    /// The time for calls under way to finish when the server stops.
    pub(crate) drain_timeout: Duration,
    /// Whether the front serves HTTP/2, and not the library alone.
    pub(crate) has_front: bool,
}

/// Where connections come from.
pub(crate) struct Listener {
    inner: Inner,
    address: SocketAddr,
    /// Whether its URL is `https`.
    expects_tls: bool,
    tls: Option<ServerTls>,
}

enum Inner {
    /// A listening socket.
    Socket(TcpListener),
    /// A network in memory.
    Given(Box<dyn peer::Listener>),
}

/// A connection that was accepted.
enum Accepted {
    Socket(TcpStream, SocketAddr),
    Given(Box<dyn peer::Connection>),
}

impl Listener {
    /// Listens on an address.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Listener> {
        const BACKLOG: i32 = 4096;
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        // A recently used port can be bound again.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let inner = TcpListener::from_std(socket.into())?;
        let address = inner.local_addr()?;
        Ok(Listener::new(Inner::Socket(inner), address))
    }

    fn new(inner: Inner, address: SocketAddr) -> Listener {
        Listener {
            inner,
            address,
            expects_tls: false,
            tls: None,
        }
    }

    /// Whether it is to speak TLS.
    pub(crate) fn expecting_tls(self, expects_tls: bool) -> Listener {
        Listener {
            expects_tls,
            ..self
        }
    }

    /// Speaks TLS with these certificates, if it is to.
    pub(crate) fn secured_by(self, tls: Option<&ServerTls>) -> Listener {
        let tls = tls.filter(|_| self.expects_tls).cloned();
        Listener { tls, ..self }
    }

    /// The scheme of its URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Takes the connections of a network in memory.
    pub(crate) fn of(given: Box<dyn peer::Listener>) -> io::Result<Listener> {
        let address = given.address()?;
        Ok(Listener::new(Inner::Given(given), address))
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match &self.inner {
            Inner::Socket(socket) => {
                let (stream, address) = socket.accept().await?;
                Ok(Accepted::Socket(stream, address))
            }
            Inner::Given(given) => Ok(Accepted::Given(given.accept().await?.0)),
        }
    }

    /// The bound address, with the port that the system chose for 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections until the server stops. `alive` is dropped when the last one has ended.
    pub(crate) async fn serve(
        self,
        context: Arc<Context>,
        dispatch: Dispatch,
        options: Arc<ConnectionOptions>,
        alive: mpsc::Sender<()>,
    ) {
        let mut stopping = context.stopping();
        let (mut failures, mut refusals) = (Repeated::default(), Repeated::default());
        let mut pause = PAUSE_MIN;
        let secured = self.tls.clone().map(|tls| {
            let failures = Mutex::default();
            Arc::new(Secured { tls, failures })
        });
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stopped(&mut stopping) => return,
            };
            let stream = match accepted {
                Ok(stream) => stream,
                // The client disconnected before the accept.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    if let Some(count) = failures.count() {
                        tracing::warn!(%error, count, "connections could not be taken");
                    }
                    // Without free file descriptors an immediate retry fails again. Clients wait in the
                    // backlog.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = stopped(&mut stopping) => return,
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            };
            pause = PAUSE_MIN;
            if !context.metrics.connections.rise(options.connections_max) {
                context.metrics.connections_refused.add(1);
                let limit = options.connections_max;
                if let Some(count) = refusals.count() {
                    tracing::warn!(
                        limit,
                        count,
                        "connections were refused: there are as many as may be"
                    );
                }
                continue;
            }
            context.metrics.connections_accepted.add(1);
            let account = context.memory.account();
            let connection = Connection {
                context: context.clone(),
                dispatch: dispatch.of_connection(account.clone()),
                account,
                stopping: stopping.clone(),
                options: options.clone(),
                secured: secured.clone(),
            };
            let alive = alive.clone();
            tokio::spawn(async move {
                connection.serve(stream).await;
                drop(alive);
            });
        }
    }
}

/// The pause of a listener after a failed accept.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A frequent event that is logged now and then with a count.
#[derive(Debug, Default)]
struct Repeated {
    told: Option<Instant>,
    count: u64,
}

impl Repeated {
    /// Counts an event; returns the count since the last report when a new report is due.
    fn count(&mut self) -> Option<u64> {
        const INTERVAL: Duration = Duration::from_secs(10);
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() < INTERVAL) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

/// The most concurrent calls per connection.
fn streams_max(options: &ConnectionOptions, account: &Account) -> u32 {
    // An answered call keeps its slot until the client has taken the reply; a small reply is not charged.
    const CALL_BYTES_MAX: usize = 16 << 10;
    let streams_max = account.memory().connection_bytes_max() / CALL_BYTES_MAX;
    let streams_max = u32::try_from(streams_max).unwrap_or(u32::MAX);
    options.streams_max.min(streams_max)
}

/// What the library serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A connection of a client.
    Client,
    /// The streams of one that the front does not serve.
    Relay,
}

fn builder(
    options: &ConnectionOptions,
    account: &Arc<Account>,
    side: Side,
) -> Builder<EagerExecutor> {
    // Input is taken from the library at once and charged. The windows bound what may arrive in between.
    // The library buffers so much unsent data, and one message more. The queues before it are bounded per
    // stream and overall.
    const SEND_BUFFER_BYTES: usize = 64 << 10;
    let streams_max = streams_max(options, account);
    // A client may give up at once all calls that it may have open. `DeadlineStream` limits how often.
    let resets_max = options.resets_max.min(streams_max) as usize;
    // The library's minimum.
    const HTTP1_BUFFER_MIN: usize = 8 << 10;
    let executor = EagerExecutor::new(account.clone(), options.unread_timeout);
    let mut builder = Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        // The buffer holds a whole head, so this bounds heads, too.
        .max_buf_size((options.header_bytes_max as usize).max(HTTP1_BUFFER_MIN))
        .header_read_timeout(options.partial_timeout);
    let (connection_window, keep_alive_interval) = match side {
        Side::Client => (front::CONNECTION_WINDOW, options.keep_alive_interval),
        // The front sends the pings.
        Side::Relay => (front::RELAY_WINDOW, None),
    };
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(front::STREAM_WINDOW)
        .initial_connection_window_size(connection_window)
        .max_frame_size(front::FRAME_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(streams_max)
        .max_pending_accept_reset_streams(resets_max)
        .max_header_list_size(options.header_bytes_max)
        .keep_alive_interval(keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout);
    builder
}

/// One connection.
struct Connection {
    context: Arc<Context>,
    dispatch: Dispatch,
    account: Arc<Account>,
    stopping: watch::Receiver<bool>,
    options: Arc<ConnectionOptions>,
    /// `None` in the clear.
    secured: Option<Arc<Secured>>,
}

/// What the connections of a port with TLS share.
struct Secured {
    tls: ServerTls,
    failures: Mutex<Repeated>,
}

impl Connection {
    async fn serve(self, accepted: Accepted) {
        // Counts the connection as open until it is dropped.
        let context = self.context.clone();
        let _open = Open(&context);
        if let Accepted::Socket(_, address) = &accepted {
            self.account.locate(*address);
        }
        match accepted {
            Accepted::Socket(stream, address) => match (stream.set_nodelay(true), &self.secured) {
                (Ok(()), None) => self.serve_stream(stream).await,
                (Ok(()), Some(secured)) => {
                    let secured = secured.clone();
                    self.serve_secured(stream, address, &secured).await;
                }
                (Err(error), _) => tracing::debug!(%error, "a connection ended before it began"),
            },
            Accepted::Given(stream) => self.serve_stream(stream).await,
        }
    }

    /// Serves a connection after its handshake. It is counted already, and has its account.
    async fn serve_secured(mut self, stream: TcpStream, address: SocketAddr, secured: &Secured) {
        let accepted = tokio::select! {
            accepted = secured.tls.accept(stream, address.ip()) => accepted,
            () = stopped(&mut self.stopping) => return,
        };
        match accepted {
            Ok((stream, identity)) => {
                if let Some(identity) = identity {
                    self.account.identify(identity);
                }
                // What is behind TLS costs one call more for each read, and is not compiled a second time. A connection
                // in the clear has no room for it in its task.
                let stream: Box<dyn peer::Connection> = Box::new(stream);
                Box::pin(self.serve_stream(stream)).await;
            }
            Err(error) => {
                let count = secured.failures.lock().count();
                if let Some(count) = count {
                    let address = address.ip();
                    tracing::warn!(%error, %address, count, "a TLS handshake with a client failed");
                }
            }
        }
    }

    async fn serve_stream<S>(mut self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let options = &self.options;
        let (partial_timeout, unread_timeout) = (options.partial_timeout, options.unread_timeout);
        let account = self.account.clone();
        let resets_max = options.resets_max;
        let mut stream =
            DeadlineStream::new(stream, partial_timeout, unread_timeout, resets_max, account);
        if self.dispatch.is_for_metrics() {
            return self.serve_by_library(stream).await;
        }
        stream = stream.counted_in(self.context.metrics.clone());
        if !options.has_front {
            return self.serve_by_library(stream).await;
        }
        let read = tokio::select! {
            read = front::read_preface(&mut stream) => read,
            () = stopped(&mut self.stopping) => return,
        };
        match read {
            Ok(None) => self.serve_by_front(stream).await,
            Ok(Some(first)) => self.serve_by_library(Rewind::new(first, stream)).await,
            Err(error) => tracing::debug!(%error, "a connection ended"),
        }
    }

    /// Serves HTTP/2, whose preface was read.
    async fn serve_by_front<S>(mut self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let options = self.options.clone();
        let limits = Limits {
            streams_max: streams_max(&options, &self.account),
            header_bytes_max: options.header_bytes_max,
            partial_timeout: options.partial_timeout,
            unread_timeout: options.unread_timeout,
            keep_alive_interval: options.keep_alive_interval,
            keep_alive_timeout: options.keep_alive_timeout,
        };
        let (dispatch, account) = (self.dispatch.clone(), self.account.clone());
        let open = Box::new(move |pipe| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let builder = builder(&options, &account, Side::Relay).http2_only();
            let dispatch = dispatch.clone();
            Box::pin(async move {
                let served = builder.serve_connection(TokioIo::new(pipe), dispatch);
                if let Err(error) = served.await {
                    tracing::debug!(%error, "a relay ended");
                }
            })
        });
        let mut serving = front::serve(stream, &self.context, &self.account, limits, open);
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = unread(&self.account, self.options.unread_timeout) => {
                tracing::debug!("a connection was ended: its client does not read replies");
                return;
            }
            () = stopped(&mut self.stopping) => {
                serving.begin_drain();
                match tokio::time::timeout(self.options.drain_timeout, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }

    /// Serves HTTP/1 and HTTP/2 by the library.
    async fn serve_by_library<S>(mut self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let unread_timeout = self.options.unread_timeout;
        let builder = builder(&self.options, &self.account, Side::Client);
        let serving = builder.serve_connection(TokioIo::new(stream), self.dispatch);
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = unread(&self.account, unread_timeout) => {
                tracing::debug!("a connection was ended: its client does not read replies");
                return;
            }
            () = stopped(&mut self.stopping) => {
                serving.as_mut().graceful_shutdown();
                match tokio::time::timeout(self.options.drain_timeout, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Returns when a reply that was handed over stays unsent for a whole period.
async fn unread(account: &Account, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        if account.end_period() {
            return;
        }
    }
}

/// Counts a connection while it lives.
struct Open<'a>(&'a Context);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.fall();
    }
}
