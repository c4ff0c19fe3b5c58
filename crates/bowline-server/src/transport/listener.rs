//! Takes connections, and serves each until it ends or the server stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::Dispatch;
use super::executor::EagerExecutor;
use super::patience::Patient;
use crate::context::{Context, stopped};

/// Limits and times of connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOptions {
    /// How many there may be.
    pub(crate) connections_max: u64,
    /// How many calls one may have under way.
    pub(crate) streams_max: u32,
    /// The largest head of a request, in bytes.
    pub(crate) header_bytes_max: u32,
    /// How long a client may take to send what it has begun.
    pub(crate) partial_timeout: Duration,
    /// How many calls a client may reset within ten seconds.
    pub(crate) resets_max: u32,
    /// How often a silent one is asked whether it is there.
    pub(crate) keep_alive_interval: Duration,
    /// How long the answer may take.
    pub(crate) keep_alive_timeout: Duration,
    /// How long calls under way may take to end when the server stops.
    pub(crate) drain_timeout: Duration,
}

/// A port that is listened on.
#[derive(Debug)]
pub(crate) struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on an address.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Listener> {
        const BACKLOG: i32 = 4096;
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        // A port that was used a moment ago can be used again.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let inner = TcpListener::from_std(socket.into())?;
        let address = inner.local_addr()?;
        Ok(Listener { inner, address })
    }

    /// Where it listens: with the port that was found, if it was 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes connections until the server stops. `alive` is dropped when the last one has ended.
    pub(crate) async fn serve(
        self,
        context: Arc<Context>,
        dispatch: Dispatch,
        options: Arc<ConnectionOptions>,
        alive: mpsc::Sender<()>,
    ) {
        /// When the process has no more files to open, it does not help to try at once.
        const PAUSE: Duration = Duration::from_millis(50);
        let mut stopping = context.stopping();
        let builder = Arc::new(builder(&options));
        loop {
            let accepted = tokio::select! {
                accepted = self.inner.accept() => accepted,
                () = stopped(&mut stopping) => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !context.metrics.connections.rise(options.connections_max) {
                context.metrics.connections_refused.add(1);
                let limit = options.connections_max;
                tracing::warn!(
                    limit,
                    "a connection was refused: there are as many as may be"
                );
                continue;
            }
            context.metrics.connections_accepted.add(1);
            let connection = Connection {
                context: context.clone(),
                dispatch: dispatch.clone(),
                builder: builder.clone(),
                stopping: stopping.clone(),
                options: options.clone(),
            };
            let alive = alive.clone();
            tokio::spawn(async move {
                connection.serve(stream).await;
                drop(alive);
            });
        }
    }
}

fn builder(options: &ConnectionOptions) -> Builder<EagerExecutor> {
    const STREAM_WINDOW_BYTES: u32 = 4 << 20;
    const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
    const FRAME_BYTES: u32 = 64 << 10;
    // Of what a client does not read, the library takes so much, and a message beyond. Each stream has
    // queues of its own, with a bound over all of them, before that.
    const SEND_BUFFER_BYTES: usize = 64 << 10;
    const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
    let mut builder = Builder::new(EagerExecutor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(options.streams_max)
        .max_header_list_size(options.header_bytes_max)
        .keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout);
    builder
}

/// One connection.
struct Connection {
    context: Arc<Context>,
    dispatch: Dispatch,
    builder: Arc<Builder<EagerExecutor>>,
    stopping: watch::Receiver<bool>,
    options: Arc<ConnectionOptions>,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream) {
        // It counts as open until this goes, however that comes.
        let _open = Open(&self.context);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended before it began");
            return;
        }
        let (patience, resets_max) = (self.options.partial_timeout, self.options.resets_max);
        let stream = Patient::new(stream, patience, resets_max);
        let serving = self
            .builder
            .serve_connection(TokioIo::new(stream), self.dispatch);
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
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

/// Counts a connection while it lives.
struct Open<'a>(&'a Context);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.fall();
    }
}
