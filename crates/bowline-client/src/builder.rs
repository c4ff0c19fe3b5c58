//! [`ClientBuilder`]: the settings of a client, and its construction.

use std::sync::Arc;
use std::time::Duration;

use bowline_tls::ClientTls;
use tonic::transport::{Channel, Endpoint};

use crate::settings::{Connector, Secret, Settings, User};
use crate::{Client, Error, Result};

/// The settings of a client. [`Client::builder`] gives one.
///
/// ```no_run
/// # async fn example() -> bowline_client::Result<()> {
/// use std::time::Duration;
/// use bowline_client::Client;
///
/// let client = Client::builder()
///     .endpoints(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])
///     .request_timeout(Duration::from_secs(2))
///     .connections_per_endpoint(4)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct ClientBuilder {
    settings: Settings,
}

impl ClientBuilder {
    /// The servers' addresses: `host:port`, `http://host:port` or `https://host:port`. Without a scheme it is `https`
    /// if there is a [`tls`](ClientBuilder::tls), and else `http`. The client uses the first reachable endpoint until
    /// it fails, then the next.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let members = ["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"];
    /// let client = Client::builder().endpoints(members).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.settings
            .endpoints
            .extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// The timeout for a connection, before the next endpoint is tried. Default: 2 s.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// # use std::time::Duration;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).connect_timeout(Duration::from_secs(1)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// The timeout for a request with all its attempts. Streams have no timeout. Default: 10 s.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// # use std::time::Duration;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).request_timeout(Duration::from_secs(3)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// The interval of keep-alive pings on connections in use, and the timeout for their answers. Default:
    /// 10 s and 5 s. etcd closes connections with pings more often than every 5 s.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// # use std::time::Duration;
    /// let builder = Client::builder().endpoints(["10.0.0.1:2379"]);
    /// let (interval, timeout) = (Duration::from_secs(30), Duration::from_secs(5));
    /// let client = builder.keep_alive(interval, timeout).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.settings.keep_alive_interval = interval;
        self.settings.keep_alive_timeout = timeout;
        self
    }

    /// Whether idle connections are pinged, too. Default: no.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).keep_alive_while_idle(true).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_alive_while_idle(mut self, yes: bool) -> Self {
        self.settings.keep_alive_while_idle = yes;
        self
    }

    /// The number of connections to an endpoint, used in turn. Default: 1, which carries any number of
    /// concurrent requests; more connections use more cores on both sides.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).connections_per_endpoint(4).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connections_per_endpoint(mut self, count: usize) -> Self {
        self.settings.connections_per_endpoint = count;
        self
    }

    /// The largest request and the largest reply, in bytes. Default: 2 MiB, the limit of etcd, and no
    /// limit.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).message_limits(4 << 20, 64 << 20).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn message_limits(mut self, request_bytes_max: usize, reply_bytes_max: usize) -> Self {
        self.settings.request_bytes_max = request_bytes_max;
        self.settings.reply_bytes_max = reply_bytes_max;
        self
    }

    /// The user to log in as, and its password.
    ///
    /// The client logs in at its first request and shows the token that it gets with every request and stream. When the
    /// token has expired, or its user has another password, the client logs in again and repeats the request, which was
    /// refused before anything was done. On a server without users the login is left out.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let password = std::env::var("BOWLINE_PASSWORD").unwrap_or_default();
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).user("ann", password).connect().await?;
    /// // A wrong password is refused here, at the first request.
    /// client.get("greeting").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.user = Some(User {
            name: name.into(),
            password: Secret(password.into()),
        });
        self
    }

    /// The authentication token, from `Authenticate` of etcd's API. [`ClientBuilder::user`] gets one by itself, and another
    /// one in time; it takes the place of this one.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).token("abc.7").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.settings.token = Some(Secret(token.into()));
        self
    }

    /// The CAs that servers' certificates must be of, and the certificate that is shown to them. Without it, `https`
    /// endpoints must have certificates of a CA that this system trusts. The files are looked at before a connection is
    /// made, and read again when they have changed.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use bowline_client::Client;
    /// use bowline_client::tls::{ClientOptions, ClientTls, KeyPairFiles};
    ///
    /// let tls = ClientTls::new(ClientOptions {
    ///     trusted_ca: Some("ca.crt".into()),
    ///     key_pair: Some(KeyPairFiles { certificate: "alice.crt".into(), key: "alice.key".into() }),
    ///     ..ClientOptions::default()
    /// })?;
    /// let client = Client::builder().endpoints(["https://10.0.0.1:2379"]).tls(tls).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Whether members without a leader refuse every request at once, even reads that need no leader.
    /// Watches and keep-alives always do this, so that they leave an isolated member. Default: no.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).require_leader(true).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn require_leader(mut self, yes: bool) -> Self {
        self.settings.require_leader = yes;
        self
    }

    /// Makes its connections over something else than TCP, such as the network of a simulation. A channel connects at its
    /// first request. For [`ClientBuilder::connect_lazy`]: the check of [`ClientBuilder::connect`] is over TCP.
    #[doc(hidden)]
    pub fn connector(
        mut self,
        connector: impl Fn(&Endpoint) -> Channel + Send + Sync + 'static,
    ) -> Self {
        self.settings.connector = Some(Connector(Arc::new(connector)));
        self
    }

    /// Makes the client and checks that an endpoint is reachable.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidEndpoint` for a bad address; `Unreachable` when no endpoint can be reached.
    pub async fn connect(self) -> Result<Client> {
        let client = self.connect_lazy()?;
        client.caller().endpoints().probe().await?;
        Ok(client)
    }

    /// Makes the client; it connects at the first request. Must be called within a Tokio runtime.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// // Succeeds while no server runs; the first request connects.
    /// let client = Client::builder().endpoints(["10.0.0.1:2379"]).connect_lazy()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidEndpoint` for a bad address.
    pub fn connect_lazy(self) -> Result<Client> {
        if self.settings.endpoints.is_empty() {
            return Err(Error::InvalidArgument {
                message: "there is no endpoint: give at least one".to_owned(),
            });
        }
        Client::new(self.settings)
    }
}

impl Client {
    /// Makes a client with the default settings and checks that an endpoint is reachable.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let client = Client::connect(["127.0.0.1:2379"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidEndpoint` for a bad address; `Unreachable` when no endpoint can be reached.
    pub async fn connect<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
    ) -> Result<Client> {
        Client::builder().endpoints(endpoints).connect().await
    }

    /// The settings of a client to be made.
    ///
    /// ```no_run
    /// # async fn example() -> bowline_client::Result<()> {
    /// # use bowline_client::Client;
    /// let builder = Client::builder().endpoints(["127.0.0.1:2379"]);
    /// let client = builder.connections_per_endpoint(2).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}
