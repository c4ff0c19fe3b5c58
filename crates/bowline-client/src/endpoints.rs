//! The servers' addresses, and the connections to them.
//!
//! The client uses one endpoint until it fails, then the next. So without failures, the eventual reads of a
//! client never go back in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_tls::{ClientOptions, ClientTls, Connector};
use tonic::transport::{Channel, Endpoint as Transport};

use crate::error::{Error, Result, with_sources};
use crate::settings::Settings;

/// One address of a server.
///
/// Its connections are made when they are first used, and again when they broke. A request takes the
/// next one in turn.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: String,
    transport: Transport,
    /// For `https`.
    secure: Option<Connector>,
    connections: Vec<Channel>,
    next: AtomicUsize,
}

impl Endpoint {
    pub(crate) fn new(address: &str, settings: &Settings) -> Result<Endpoint> {
        let invalid = |message: String| Error::InvalidEndpoint {
            endpoint: address.to_owned(),
            message,
        };
        let uri = with_scheme(address, settings.tls.is_some())
            .map_err(|message| invalid(message.to_owned()))?;
        let secure = match (uri.starts_with("https://"), &settings.tls) {
            (false, _) => None,
            (true, Some(tls)) => Some(Connector::new(tls.clone())),
            (true, None) => {
                let of_system = ClientTls::new(ClientOptions::default());
                let of_system = of_system.map_err(|error| invalid(error.to_string()))?;
                Some(Connector::new(of_system))
            }
        };
        let transport = Transport::from_shared(uri)
            .map_err(|error| invalid(with_sources(&error)))?
            .connect_timeout(settings.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(settings.keep_alive_interval)
            .keep_alive_timeout(settings.keep_alive_timeout)
            .keep_alive_while_idle(settings.keep_alive_while_idle)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let connections = (0..settings.connections_per_endpoint.max(1))
            .map(|_| match (&settings.connector, &secure) {
                (Some(connector), _) => (connector.0)(&transport),
                (None, Some(secure)) => transport.connect_with_connector_lazy(secure.clone()),
                (None, None) => transport.connect_lazy(),
            })
            .collect();
        Ok(Endpoint {
            address: address.to_owned(),
            transport,
            secure,
            connections,
            next: AtomicUsize::new(0),
        })
    }

    /// As it was given.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// An error of a request to this endpoint, with what is known of its connection.
    pub(crate) fn explained(&self, error: Error) -> Error {
        let refusal = self.secure.as_ref().and_then(Connector::refusal);
        match (error, refusal) {
            (Error::Disconnected { message }, Some(refusal)) if !message.contains(&refusal) => {
                let message = format!("{message}: {refusal}");
                Error::Disconnected { message }
            }
            (error, _) => error,
        }
    }

    /// Checks that the endpoint is reachable.
    pub(crate) async fn probe(&self) -> Result<()> {
        let connected = match &self.secure {
            Some(secure) => self.transport.connect_with_connector(secure.clone()).await,
            None => self.transport.connect().await,
        };
        match connected {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Unreachable {
                endpoint: self.address.clone(),
                message: with_sources(&error),
            }),
        }
    }

    /// The next connection in turn.
    pub(crate) fn channel(&self) -> Channel {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].clone()
    }
}

/// All endpoints of a client.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// At least one.
    all: Vec<Arc<Endpoint>>,
    /// The index of the endpoint in use, modulo their number; incremented at each failure.
    current: AtomicUsize,
}

impl Endpoints {
    pub(crate) fn new(settings: &Settings) -> Result<Endpoints> {
        let all = settings
            .endpoints
            .iter()
            .map(|address| Ok(Arc::new(Endpoint::new(address, settings)?)))
            .collect::<Result<_>>()?;
        Ok(Endpoints {
            all,
            current: AtomicUsize::new(0),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Goes to the first endpoint that can be reached.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut last = None;
        for _ in &self.all {
            let (turn, endpoint) = self.current();
            match endpoint.probe().await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            self.leave(turn);
        }
        Err(last.unwrap_or(Error::TimedOut))
    }

    /// The endpoint in use, and the turn to give to [`leave`](Endpoints::leave) when it fails.
    pub(crate) fn current(&self) -> (usize, Arc<Endpoint>) {
        let turn = self.current.load(Ordering::Acquire);
        (turn, Arc::clone(&self.all[turn % self.all.len()]))
    }

    /// Goes on to the next endpoint, unless another request did so already.
    pub(crate) fn leave(&self, turn: usize) {
        // Losing this race means that the endpoint has been left.
        let _ = self.current.compare_exchange(
            turn,
            turn.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
}

/// The flow-control window: large enough for long ranges and snapshots.
const WINDOW_BYTES: u32 = 4 << 20;

/// `host:port` with its scheme.
fn with_scheme(address: &str, has_tls: bool) -> Result<String, &'static str> {
    match address.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() => Ok(address.to_owned()),
        Some(_) => Err("expected http://host:port, https://host:port, or host:port"),
        None if address.is_empty() => Err("expected host:port"),
        None if !address.contains(':') => Err("the port is missing: expected host:port"),
        None if has_tls => Ok(format!("https://{address}")),
        None => Ok(format!("http://{address}")),
    }
}

#[cfg(test)]
mod tests {
    use bowline_tls::{Authority, Request};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring::default_provider;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;

    #[test]
    fn addresses_are_checked_before_they_are_used() {
        let checked = |address| with_scheme(address, false);
        assert_eq!(checked("a:1").unwrap(), "http://a:1");
        assert_eq!(checked("[::1]:2379").unwrap(), "http://[::1]:2379");
        assert_eq!(checked("http://a:1").unwrap(), "http://a:1");
        assert_eq!(checked("https://a:1").unwrap(), "https://a:1");
        for address in ["", "a", "unix://a", "http://", "https://"] {
            assert!(checked(address).is_err(), "{address}");
        }
    }

    /// Somebody who names certificates and no scheme does not mean to send in the clear.
    #[test]
    fn with_certificates_an_address_is_of_https_unless_it_says_otherwise() {
        assert_eq!(with_scheme("a:1", true).unwrap(), "https://a:1");
        assert_eq!(with_scheme("http://a:1", true).unwrap(), "http://a:1");
    }

    /// No protocol was offered unless the caller named one. A server of Go, as etcd, then spoke HTTP/1.1, and so did most
    /// proxies: no request over `https` was answered.
    #[tokio::test]
    async fn an_https_endpoint_negotiates_h2() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::generate("a CA", 10).unwrap();
        let ca = authority.own().write(directory.path(), "ca").unwrap();
        let server = Request::server("server", ["127.0.0.1"]);
        let server = authority.issue(&server).unwrap();
        let server = server.write(directory.path(), "server").unwrap();
        let certificate = CertificateDer::from_pem_file(&server.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&server.key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let accepted = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(socket).await.unwrap();
            stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
        });
        let options = ClientOptions {
            trusted_ca: Some(ca.certificate),
            ..ClientOptions::default()
        };
        let settings = Settings {
            tls: Some(ClientTls::new(options).unwrap()),
            ..Settings::default()
        };
        let endpoint = Endpoint::new(&address, &settings).unwrap();
        // The server ends the connection after the handshake.
        let _ = endpoint.probe().await;
        assert_eq!(accepted.await.unwrap().as_deref(), Some(&b"h2"[..]));
    }
}
