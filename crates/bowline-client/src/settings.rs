//! The settings of a client, with their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_tls::ClientTls;
use tonic::transport::{Channel, Endpoint};

/// What [`ClientBuilder`](crate::ClientBuilder) sets.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) endpoints: Vec<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) keep_alive_while_idle: bool,
    pub(crate) connections_per_endpoint: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
    pub(crate) token: Option<Secret>,
    pub(crate) user: Option<User>,
    pub(crate) require_leader: bool,
    pub(crate) connector: Option<Connector>,
    pub(crate) tls: Option<ClientTls>,
}

/// A text that no output shows: a password or a token.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The user that a client logs in as.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: Secret,
}

/// Makes connections over something else than TCP.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Arc<dyn Fn(&Endpoint) -> Channel + Send + Sync>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            endpoints: Vec::new(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
            keep_alive_while_idle: false,
            connections_per_endpoint: 1,
            request_bytes_max: 2 << 20,
            reply_bytes_max: usize::MAX,
            token: None,
            user: None,
            require_leader: false,
            connector: None,
            tls: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Client;

    /// What is printed for the developer ends in logs.
    #[tokio::test]
    async fn neither_passwords_nor_tokens_are_in_debug_output() {
        let builder = Client::builder()
            .endpoints(["127.0.0.1:1"])
            .user("ann", "open sesame")
            .token("abc.7");
        let mut shown = format!("{builder:?} {builder:#?}");
        let client = builder.connect_lazy().unwrap();
        shown += &format!("{client:?} {:?}", client.caller());
        assert!(shown.contains("ann"), "{shown}");
        for secret in ["sesame", "abc.7"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
