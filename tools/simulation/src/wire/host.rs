//! The wire as a host sees it: where it listens, and the connections that its programs hold.

use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bowline_cluster::peer;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::{Channel, Endpoint, Uri};

use super::{CLIENT_PORT, End, Event, Listening, Stream, WINDOW_BYTES, Wire, address, place_at};

/// The network as one host sees it.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(super) wire: Wire,
    pub(super) host: usize,
}

impl Host {
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<Socket>> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (target, port) = place_at(authority)?;
        let stream = {
            let mut state = self.wire.0.lock();
            if target >= state.paths.len() {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            state.next_number += 1;
            let stream = state.next_number;
            let end = |host| End {
                host,
                ..End::default()
            };
            let ends = [end(self.host), end(target)];
            let opened = Stream {
                ends,
                port,
                connecting: None,
                is_accepted: false,
            };
            state.streams.insert(stream, opened);
            state.send(stream, Event::Connect);
            stream
        };
        let wire = self.wire.clone();
        let side = 0;
        // Dropped with this future, it ends what was not accepted yet.
        let socket = Socket { wire, stream, side };
        std::future::poll_fn(|context| {
            let mut state = self.wire.0.lock();
            let gone = io::Error::from(io::ErrorKind::ConnectionAborted);
            let Some(stream) = state.streams.get_mut(&stream) else {
                return Poll::Ready(Err(gone));
            };
            if let Some(failure) = stream.ends[0].failure {
                return Poll::Ready(Err(failure.into()));
            }
            if stream.is_accepted {
                return Poll::Ready(Ok(()));
            }
            stream.connecting = Some(context.waker().clone());
            Poll::Pending
        })
        .await?;
        Ok(TokioIo::new(socket))
    }

    /// A channel to another host. The first request connects it.
    pub(crate) fn channel(&self, endpoint: &Endpoint) -> Channel {
        let host = self.clone();
        endpoint
            .connect_with_connector_lazy(tower::service_fn(move |uri| host.clone().connect(uri)))
    }

    /// Listens for clients.
    pub(crate) fn listen_for_clients(&self) -> io::Result<Box<dyn peer::Listener>> {
        self.listen_at(CLIENT_PORT)
    }

    fn listen_at(&self, port: u16) -> io::Result<Box<dyn peer::Listener>> {
        let mut state = self.wire.0.lock();
        match state.listening.entry((self.host, port)) {
            Entry::Occupied(_) => Err(io::ErrorKind::AddrInUse.into()),
            Entry::Vacant(free) => {
                free.insert(Listening::default());
                let host = self.clone();
                Ok(Box::new(Port { host, port }))
            }
        }
    }
}

impl peer::Network for Host {
    fn listen<'a>(
        &'a self,
        address: &'a str,
    ) -> BoxFuture<'a, io::Result<Box<dyn peer::Listener>>> {
        async move { self.listen_at(place_at(address)?.1) }.boxed()
    }

    fn channel(&self, endpoint: Endpoint) -> Channel {
        Host::channel(self, &endpoint)
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, io::Result<Box<dyn peer::Connection>>> {
        async move {
            let uri = { url.parse() }.map_err(io::Error::other)?;
            let socket = self.clone().connect(uri).await?.into_inner();
            Ok(Box::new(socket) as Box<dyn peer::Connection>)
        }
        .boxed()
    }
}

/// A port of a host that listens.
struct Port {
    host: Host,
    port: u16,
}

impl peer::Listener for Port {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok(address(self.host.host, self.port))
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn peer::Connection>, SocketAddr)>> {
        std::future::poll_fn(|context| {
            let Host { wire, host } = &self.host;
            let mut state = wire.0.lock();
            let Some(listening) = state.listening.get_mut(&(*host, self.port)) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            };
            let Some(stream) = listening.accepted.pop_front() else {
                listening.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            let known = state.streams.get(&stream);
            let from = known.map_or(*host, |known| known.ends[0].host);
            let wire = wire.clone();
            let side = 1;
            let socket: Box<dyn peer::Connection> = Box::new(Socket { wire, stream, side });
            Poll::Ready(Ok((socket, address(from, self.port))))
        })
        .boxed()
    }
}

/// One end of a connection, as a program holds it.
struct Socket {
    wire: Wire,
    stream: u64,
    side: usize,
}

impl Socket {
    fn with<T>(&self, action: impl FnOnce(&mut Stream, usize) -> T) -> io::Result<T> {
        let mut state = self.wire.0.lock();
        match state.streams.get_mut(&self.stream) {
            Some(stream) => Ok(action(stream, self.side)),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn end(&self) {
        let mut state = self.wire.0.lock();
        let from = self.side;
        let known = state.streams.get(&self.stream);
        if known.is_some_and(|known| !known.ends[from].is_dropped) {
            state.send(self.stream, Event::Ended { from });
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.wire.0.lock();
        let puts_off = state.random.u8(..16) == 0;
        let (number, side) = (self.stream, self.side);
        let Some(stream) = state.streams.get_mut(&number) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        let end = &mut stream.ends[side];
        if end.inbox.is_empty() {
            if let Some(failure) = end.failure {
                return Poll::Ready(Err(failure.into()));
            }
            if end.is_ended {
                return Poll::Ready(Ok(()));
            }
            end.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        end.is_put_off = puts_off && !end.is_put_off;
        if end.is_put_off {
            end.reader = Some(context.waker().clone());
            state.put_off.push((number, side));
            return Poll::Pending;
        }
        let count = buffer.remaining().min(end.inbox.len());
        let (first, second) = end.inbox.as_slices();
        let of_first = count.min(first.len());
        buffer.put_slice(&first[..of_first]);
        buffer.put_slice(&second[..count - of_first]);
        end.inbox.drain(..count);
        let other = &mut stream.ends[1 - side];
        other.unread_bytes -= count;
        if let Some(waker) = other.writer.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let admitted = self.with(|stream, side| {
            let end = &mut stream.ends[side];
            if let Some(failure) = end.failure {
                return Poll::Ready(Err(failure.into()));
            }
            let count = bytes.len().min(WINDOW_BYTES - end.unread_bytes);
            if count == 0 && !bytes.is_empty() {
                end.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            end.unread_bytes += count;
            Poll::Ready(Ok(count))
        });
        let admitted = admitted.unwrap_or_else(|error| Poll::Ready(Err(error)));
        if let Poll::Ready(Ok(count @ 1..)) = admitted {
            let bytes = bytes[..count].to_vec();
            let from = self.side;
            self.wire
                .0
                .lock()
                .send(self.stream, Event::Bytes { from, bytes });
        }
        admitted
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.end();
        let mut state = self.wire.0.lock();
        state.has_dropped = true;
        if let Some(stream) = state.streams.get_mut(&self.stream) {
            stream.ends[self.side].is_dropped = true;
        }
    }
}
