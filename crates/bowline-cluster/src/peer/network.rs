//! The transport between members: TCP ([`Tcp`]), or a network in memory with simulated delays and failures.
//!
//! [`Network`] is to connections what `Vfs` is to files: a member makes and accepts connections through it only.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bowline_tls::PeerIdentity;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

/// Makes and takes connections.
pub trait Network: fmt::Debug + Send + Sync {
    /// Listens at `address`, a `host:port`.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;

    /// A channel to a peer. The first request connects it.
    fn channel(&self, endpoint: Endpoint) -> Channel;

    /// Connects to a peer at a URL.
    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>>;

    /// Whether a connection that was accepted begins with a handshake.
    fn is_secure(&self) -> bool {
        false
    }

    /// Takes a connection that was accepted, and is counted, through its handshake if this network has one.
    fn secure(&self, stream: Box<dyn Connection>, _address: IpAddr) -> BoxFuture<'_, Secured> {
        std::future::ready(Ok((stream, None))).boxed()
    }
}

/// A connection after its handshake, and the names in the certificate that the peer has shown.
pub type Secured = io::Result<(Box<dyn Connection>, Option<Arc<PeerIdentity>>)>;

/// Takes connections at an address.
pub trait Listener: Send + Sync {
    /// The address; its port is the system's choice if that asked for was 0.
    ///
    /// # Errors
    /// Of the operating system.
    fn address(&self) -> io::Result<SocketAddr>;

    /// The next connection, and the address of the peer. No connection is lost when the future is dropped.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Connection>, SocketAddr)>>;
}

/// Both directions of a connection.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// TCP.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tcp;

impl Network for Tcp {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        async move { Ok(Box::new(TcpListener::bind(address).await?) as Box<dyn Listener>) }.boxed()
    }

    fn channel(&self, endpoint: Endpoint) -> Channel {
        endpoint.tcp_nodelay(true).connect_lazy()
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        async move {
            let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
            let uri: Uri = { url.parse() }.map_err(|error| invalid(format!("{url:?}: {error}")))?;
            if uri.scheme_str() == Some("https") {
                let text =
                    "this member has no certificates for https: start it with --peer-cert-file";
                return Err(invalid(text.to_owned()));
            }
            let authority = uri.authority();
            let authority = authority.ok_or_else(|| invalid(format!("{url:?} names no host")))?;
            // An address of IPv6 stands in brackets.
            let host = authority.host().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        }
        .boxed()
    }
}

impl Listener for TcpListener {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Connection>, SocketAddr)>> {
        async move {
            loop {
                let (stream, address) = TcpListener::accept(self).await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection of a peer ended before it began");
                    continue;
                }
                return Ok((Box::new(stream) as Box<dyn Connection>, address));
            }
        }
        .boxed()
    }
}
