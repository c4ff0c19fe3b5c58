//! [`TlsNetwork`]: TCP with TLS between members.
//!
//! Each side verifies the other. The side that connects verifies that the certificate is for the host of the peer URL; the
//! side that accepts learns the names in the certificate, and binds the member to them
//! ([`Peers::check_certificate`](super::Peers)).
//!
//! A peer whose URL is `http` is reached in the clear, so that a cluster can go over to TLS one member after the other.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_tls::{ClientTls, Connector, PeerIdentity, ServerTls};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::network::{Connection, Listener, Network, Secured, Tcp};

/// TCP with TLS.
#[derive(Debug, Clone)]
pub struct TlsNetwork {
    server: ServerTls,
    connector: Connector,
}

impl TlsNetwork {
    /// A network where this member shows others the certificate of `server` when they connect, and that of `client` when
    /// it connects to them.
    #[must_use]
    pub fn new(server: ServerTls, client: ClientTls) -> TlsNetwork {
        TlsNetwork {
            server,
            connector: Connector::new(client),
        }
    }
}

impl Network for TlsNetwork {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Tcp.listen(address)
    }

    fn channel(&self, endpoint: Endpoint) -> Channel {
        match endpoint.uri().scheme_str() {
            Some("https") => endpoint.connect_with_connector_lazy(self.connector.clone()),
            _ => Tcp.channel(endpoint),
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        if !url.starts_with("https://") {
            return Tcp.connect(url);
        }
        async move {
            let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
            let uri: Uri = { url.parse() }.map_err(|error| invalid(format!("{url:?}: {error}")))?;
            Ok(Box::new(self.connector.connect(&uri).await?) as Box<dyn Connection>)
        }
        .boxed()
    }

    fn is_secure(&self) -> bool {
        true
    }

    fn secure(&self, stream: Box<dyn Connection>, address: IpAddr) -> BoxFuture<'_, Secured> {
        async move {
            let (stream, identity) = self.server.accept(stream, address).await?;
            Ok((Box::new(stream) as Box<dyn Connection>, identity))
        }
        .boxed()
    }
}

/// Whether a certificate is for a member: for the host of one of its peer URLs.
pub(super) fn is_of_member(identity: &Arc<PeerIdentity>, peer_urls: &[String]) -> bool {
    let hosts = peer_urls.iter().filter_map(|url| {
        let uri: Uri = url.parse().ok()?;
        Some(uri.host()?.to_owned())
    });
    hosts.into_iter().any(|host| identity.has_host(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_host_of_one_of_the_urls() {
        let identity = Arc::new(PeerIdentity {
            dns_names: vec!["m1.example.com".to_owned()],
            ips: vec!["::1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
            common_name: Some("m2.example.com".to_owned()),
            ..PeerIdentity::default()
        });
        for (urls, is_right) in [
            (vec!["https://m1.example.com:2380"], true),
            (vec!["https://[::1]:2380"], true),
            (
                vec!["https://m2.example.com:2380", "https://10.0.0.1:2380"],
                true,
            ),
            (vec!["https://m2.example.com:2380"], false),
            (vec!["https://10.0.0.2:2380"], false),
            (vec![], false),
            (vec!["m1.example.com"], true),
            (vec!["://"], false),
        ] {
            let urls: Vec<String> = urls.into_iter().map(str::to_owned).collect();
            assert_eq!(is_of_member(&identity, &urls), is_right, "{urls:?}");
        }
    }
}
