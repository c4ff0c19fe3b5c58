//! Accepts connections of peers, and serves each until it ends or the member stops.
//!
//! Every connection and request is bounded ([`PortLimits`](super::PortLimits)):
//!
//! | what | bounded by |
//! |---|---|
//! | connections | their number, in total and per address |
//! | a silent connection, an incomplete preface | [`Inbound`] |
//! | an incomplete frame or head, a dead peer | pings, which stay unanswered then |
//! | requests of a connection, their heads | HTTP/2's limits |
//! | connections that carry frames | [`frames`], with the same limits |
//! | messages | [`LimitedBody`] |
//! | replies that are not read | [`WriteDeadline`], [`UnsentReplies`] |
//! | bytes from strangers | a rate, by address ([`Port`]) |
//! | consecutive refused requests | [`Strangers`] |
//!
//! Invariant: when the future of [`serve`] is dropped, no connection is left.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tonic::codegen::{Service, http};

use super::PeerOptions;
use super::body::{Allowed, LimitedBody};
use super::frames::{self, Appends, Begun, Sniffed};
use super::network::{Connection, Listener};
use super::port::{Connected, Port};
use crate::log_limit::{LogLimit, and_more};
use crate::read_turn::charge_read;
use crate::unread::{UnsentReplies, WriteDeadline};

const APPEND: &str = "Append";

/// The largest message except appends, proposals and parts of snapshots.
const SMALL_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Serves `service`, and `appends` to connections that carry frames, at `listener`, until dropped.
pub(crate) async fn serve<S>(
    listener: Box<dyn Listener>,
    service: S,
    appends: Arc<dyn Appends>,
    port: Arc<Port>,
    options: PeerOptions,
) where
    S: Service<
            http::Request<LimitedRequestBody>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    /// Without free file descriptors an immediate retry fails again.
    const PAUSE: Duration = Duration::from_millis(50);
    let builder = builder(&options, &port);
    let mut connections = JoinSet::new();
    let mut failures = LogLimit::default();
    let handshakes: Arc<Mutex<LogLimit>> = Arc::default();
    loop {
        let accepted = tokio::select! {
            biased;
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(left_out) = failures.admit(Instant::now()) {
                    let more = and_more(left_out);
                    tracing::warn!(%error, "a connection of a peer could not be taken{more}");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // An IPv4 address counts as the same through an IPv6 socket.
        let Some(connected) = port.connect(address.ip().to_canonical()) else {
            continue;
        };
        let (builder, service) = (builder.clone(), service.clone());
        let (appends, message_bytes_max) = (appends.clone(), options.message_bytes_max);
        let (network, handshakes) = (options.network.clone(), handshakes.clone());
        connections.spawn(async move {
            let stream = match network.secure(stream, address.ip()).await {
                Ok((stream, identity)) => {
                    if let Some(identity) = identity {
                        connected.set_identity(identity);
                    }
                    stream
                }
                Err(error) => {
                    if let Some(left_out) = handshakes.lock().admit(Instant::now()) {
                        let (address, more) = (address.ip(), and_more(left_out));
                        tracing::warn!(%error, %address, "a TLS handshake with a peer failed{more}");
                    }
                    return;
                }
            };
            let mut stream = Inbound::new(stream, connected.clone());
            let ended = match frames::sniff(&mut stream).await {
                Ok(Sniffed::Frames(read)) => {
                    let serving =
                        frames::serve(stream, read, appends, connected, message_bytes_max);
                    serving.await
                }
                Ok(Sniffed::Other(read)) => {
                    let stream = Begun::new(read, stream);
                    connection(builder, stream, service, connected, message_bytes_max).await;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection of a peer ended");
            }
        });
    }
}

/// The body of a request to the service.
pub(crate) type LimitedRequestBody = tonic::body::Body;

fn builder(options: &PeerOptions, port: &Port) -> Builder<TokioExecutor> {
    const STREAM_WINDOW_BYTES: u32 = 4 << 20;
    const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
    const HEAD_BYTES_MAX: u32 = 16 << 10;
    /// A peer cancels what takes too long. After a pause of the whole cluster, a member finds all these
    /// resets at once.
    const RESETS_MAX: usize = 1024;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // Members have no use for it, and a simulation has another date.
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(port.limits().streams_max)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout);
    builder
}

async fn connection<S>(
    builder: Builder<TokioExecutor>,
    stream: Begun<Inbound<Box<dyn Connection>>>,
    service: S,
    connected: Arc<Connected>,
    message_bytes_max: usize,
) where
    S: Service<
            http::Request<LimitedRequestBody>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let strangers = Arc::new(Strangers::default());
    let counted = strangers.clone();
    let unread_timeout = connected.limits().unread_timeout;
    let unsent = Arc::new(UnsentReplies::default());
    let replies = unsent.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let path = request.uri().path();
        let allowed = allowed(path, &connected, message_bytes_max);
        let is_stream = path.ends_with(APPEND);
        // A stream's service reports its sender; `Members` and `Ask` also accept those about to join.
        let is_of_a_member = !is_stream && !path.ends_with("Members") && !path.ends_with("Ask");
        let connected = connected.clone();
        let mut request = request
            .map(|body| tonic::body::Body::new(LimitedBody::new(body, connected.clone(), allowed)));
        // So that the service can report that a member uses it.
        request.extensions_mut().insert(connected.clone());
        let (answering, counted) = (service.clone().call(request), counted.clone());
        let replies = replies.clone();
        async move {
            let answer = answering.await?;
            if counted.count(is_stream, answer.headers()) && is_of_a_member {
                connected.recognize();
            }
            Ok::<_, Infallible>(answer.map(|inner| ReplyBody { inner, replies }))
        }
    });
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        () = strangers.too_many.notified() => {
            let count = REFUSED_MAX;
            tracing::debug!(count, "a connection was closed: all it asked was refused");
            // Replies that are ready are still sent.
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving => ended,
                () = unread(&unsent, unread_timeout) => return,
            }
        }
        () = unread(&unsent, unread_timeout) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of a peer ended");
    }
}

/// Returns when a part of a reply stays unsent for a whole period.
async fn unread(unsent: &UnsentReplies, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        if unsent.end_period() {
            tracing::debug!("a connection was ended: its peer does not read replies");
            return;
        }
    }
}

/// The body of a reply whose parts are counted until they are sent.
struct ReplyBody {
    inner: tonic::body::Body,
    replies: Arc<UnsentReplies>,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let polled = ready!(Pin::new(&mut self.inner).poll_frame(task));
        let replies = &self.replies;
        Poll::Ready(polled.map(|frame| Ok(frame?.map_data(|data| replies.hand_over(data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The most consecutive refused requests of a connection, before it is closed. A member's are answered; it
/// can reconnect without harm, should it ever be counted as a stranger.
const REFUSED_MAX: usize = 64;

/// Counts refused requests. Each costs nearly as much as an answered one, and nobody needs the refusals: the
/// sender is no member, or one of another cluster.
#[derive(Default)]
struct Strangers {
    refused: AtomicUsize,
    too_many: Notify,
}

impl Strangers {
    /// Counts a reply with these headers; returns whether the request was accepted. The headers of a stream
    /// only show that it has begun.
    fn count(&self, is_stream: bool, headers: &http::HeaderMap) -> bool {
        let status = headers.get("grpc-status");
        let is_refused = status.is_some_and(|status| status != "0");
        if is_refused {
            if self.refused.fetch_add(1, Ordering::Relaxed) + 1 == REFUSED_MAX {
                self.too_many.notify_one();
            }
        } else if !is_stream {
            self.refused.store(0, Ordering::Relaxed);
        }
        !is_refused
    }
}

fn allowed(path: &str, connected: &Connected, message_bytes_max: usize) -> Allowed {
    let limits = connected.limits();
    let (message_bytes_max, silence) = match path.rsplit('/').next() {
        Some(APPEND) => (message_bytes_max, limits.append_silence_timeout),
        Some("Propose" | "Snapshot") => (message_bytes_max, limits.silence_timeout),
        _ => (SMALL_MESSAGE_BYTES_MAX, limits.silence_timeout),
    };
    Allowed {
        message_bytes_max,
        silence,
    }
}

/// A connection with a deadline for the preface of HTTP/2 and the head of its first frame. Later the library
/// detects dead peers by pings. A stranger's is read at a rate. A write has a deadline.
struct Inbound<S> {
    inner: S,
    connected: Arc<Connected>,
    /// The missing bytes of the preface.
    missing: usize,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The end of a pause.
    pause: Option<Pin<Box<Sleep>>>,
    unwritten: WriteDeadline,
}

/// The preface, and the head of a frame.
const PREFACE_BYTES: usize = 24 + 9;

impl<S> Inbound<S> {
    fn new(inner: S, connected: Arc<Connected>) -> Inbound<S> {
        let limits = connected.limits();
        let deadline = tokio::time::sleep(limits.preface_timeout);
        let unwritten = WriteDeadline::new(limits.unread_timeout);
        Inbound {
            inner,
            connected,
            missing: PREFACE_BYTES,
            deadline: Some(Box::pin(deadline)),
            pause: None,
            unwritten,
        }
    }

    /// Counts what was written.
    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.connected.sent(*bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inbound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(task));
            this.pause = None;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(task, buffer);
        let read = buffer.filled().len() - before;
        charge_read(task, read);
        if read > 0 {
            this.connected.received(read);
        }
        if read > 0
            && let Some(until) = this.connected.pace(read, Instant::now())
        {
            this.pause = Some(Box::pin(tokio::time::sleep_until(until)));
        }
        let Some(deadline) = &mut this.deadline else {
            return polled;
        };
        if polled.is_ready() {
            this.missing = this.missing.saturating_sub(read);
            if this.missing == 0 {
                this.deadline = None;
            }
            return polled;
        }
        if deadline.as_mut().poll(task).is_ready() {
            let timeout = this.connected.limits().preface_timeout;
            let text = format!("it did not begin to speak within {timeout:?}");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inbound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(task, bytes);
        self.count(&written);
        self.unwritten.note(task, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(task, parts);
        self.count(&written);
        self.unwritten.note(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
