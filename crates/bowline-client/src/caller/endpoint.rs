//! One address of a server, and the connections to it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::transport::{Channel, Endpoint as Transport};

use super::settings::Settings;
use crate::error::{Error, Result, with_sources};

/// One address of a server.
///
/// Its connections are made when they are first used, and again when they broke. A request takes the
/// next one in turn.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: String,
    transport: Transport,
    connections: Vec<Channel>,
    next: AtomicUsize,
}

impl Endpoint {
    pub(crate) fn new(address: &str, settings: &Settings) -> Result<Endpoint> {
        let invalid = |message: String| Error::InvalidEndpoint {
            endpoint: address.to_owned(),
            message,
        };
        let uri = with_scheme(address).map_err(|message| invalid(message.to_owned()))?;
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
            .map(|_| transport.connect_lazy())
            .collect();
        Ok(Endpoint {
            address: address.to_owned(),
            transport,
            connections,
            next: AtomicUsize::new(0),
        })
    }

    /// As it was given.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sees whether it can be reached at all.
    pub(crate) async fn probe(&self) -> Result<()> {
        match self.transport.connect().await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Unreachable {
                endpoint: self.address.clone(),
                message: with_sources(&error),
            }),
        }
    }

    /// The connection whose turn it is.
    pub(crate) fn channel(&self) -> Channel {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].clone()
    }
}

/// How much a server may send ahead: enough that a long range or a snapshot is not held up.
const WINDOW_BYTES: u32 = 4 << 20;

/// `host:port` with its scheme.
fn with_scheme(address: &str) -> Result<String, &'static str> {
    match address.split_once("://") {
        Some(("http", rest)) if !rest.is_empty() => Ok(address.to_owned()),
        Some(("https", _)) => Err("TLS is not supported yet: use http"),
        Some(_) => Err("expected http://host:port, or host:port"),
        None if address.is_empty() => Err("expected host:port"),
        None if !address.contains(':') => Err("the port is missing: expected host:port"),
        None => Ok(format!("http://{address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_they_are_used() {
        assert_eq!(with_scheme("a:1").unwrap(), "http://a:1");
        assert_eq!(with_scheme("[::1]:2379").unwrap(), "http://[::1]:2379");
        assert_eq!(with_scheme("http://a:1").unwrap(), "http://a:1");
        for address in ["", "a", "https://a:1", "unix://a", "http://"] {
            assert!(with_scheme(address).is_err(), "{address}");
        }
    }
}
