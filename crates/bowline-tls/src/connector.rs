//! [`Connector`]: makes connections over TCP and TLS for a client of HTTP/2, such as tonic's.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::client::{CONNECT_TIMEOUT, ClientStream, ClientTls, Refusals};

/// Makes connections to the hosts of URIs, over TLS.
#[derive(Debug, Clone)]
pub struct Connector {
    tls: ClientTls,
    refusals: Refusals,
}

impl Connector {
    /// With these certificates.
    #[must_use]
    pub fn new(tls: ClientTls) -> Connector {
        Connector {
            tls,
            refusals: Refusals::default(),
        }
    }

    /// Why the other side has ended a connection a moment ago, if it has refused this side's certificate: with TLS 1.3
    /// that comes after the handshake, and what is above the connection may know only that it is gone.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        const MOMENT: Duration = Duration::from_secs(2);
        let last = self.refusals.lock();
        let last = last.as_ref().filter(|(at, _)| at.elapsed() < MOMENT);
        last.map(|(_, text)| text.clone())
    }

    /// Connects to the host of a URI, for another protocol than HTTP/2.
    ///
    /// # Errors
    /// Of the connection and of its handshake.
    pub async fn connect(&self, uri: &Uri) -> io::Result<ClientStream<TcpStream>> {
        self.connect_for(uri, false).await
    }

    async fn connect_for(&self, uri: &Uri, is_http2: bool) -> io::Result<ClientStream<TcpStream>> {
        const HTTPS: u16 = 443;
        let none = || {
            let text = format!("{uri} names no host");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let authority = uri.authority().ok_or_else(none)?;
        // An address of IPv6 stands in brackets.
        let host = authority.host().trim_matches(['[', ']']);
        let connecting = async {
            let port = authority.port_u16().unwrap_or(HTTPS);
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let stream = match is_http2 {
                true => self.tls.connect_http2(host, stream).await?,
                false => self.tls.connect(host, stream).await?,
            };
            Ok(stream.noting(self.refusals.clone()))
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        connected.unwrap_or_else(|_| {
            let text = format!("no connection in {CONNECT_TIMEOUT:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { Ok(TokioIo::new(connector.connect_for(&uri, true).await?)) })
    }
}
