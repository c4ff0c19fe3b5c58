//! The settings of a client.

use std::time::Duration;

use super::Client;
use crate::caller::{Caller, Settings};
use crate::error::{Error, Result};

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
    /// Where the servers are: `host:port` or `http://host:port`. The first that can be reached is used
    /// until it fails, then the next.
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.settings
            .endpoints
            .extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// How long making a connection may take before the next endpoint is tried. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long a request may take, all its tries together. Streams have no limit. Default: 10 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// How often a connection in use is asked whether it is alive, and how long it may take to answer.
    /// Default: 10 s and 5 s. etcd ends connections that ask more often than every 5 s.
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.settings.keep_alive_interval = interval;
        self.settings.keep_alive_timeout = timeout;
        self
    }

    /// Whether connections that nobody uses are asked, too. Default: no.
    pub fn keep_alive_while_idle(mut self, yes: bool) -> Self {
        self.settings.keep_alive_while_idle = yes;
        self
    }

    /// How many connections to make to an endpoint, used in turn. Default: 1, which carries any number
    /// of requests at once; more spread the work over more cores of both sides.
    pub fn connections_per_endpoint(mut self, count: usize) -> Self {
        self.settings.connections_per_endpoint = count;
        self
    }

    /// The largest request sent and the largest answer taken, in bytes. Default: 2 MiB, what etcd
    /// takes, and no limit.
    pub fn message_limits(mut self, request_bytes_max: usize, reply_bytes_max: usize) -> Self {
        self.settings.request_bytes_max = request_bytes_max;
        self.settings.reply_bytes_max = reply_bytes_max;
        self
    }

    /// The token that says who is asking, as `Authenticate` of etcd's API gives it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.settings.token = Some(token.into());
        self
    }

    /// Whether members without a leader refuse every request at once, even reads that need none.
    /// Watches and keep-alives always ask for that, so that they leave a member that is cut off.
    /// Default: no.
    pub fn require_leader(mut self, yes: bool) -> Self {
        self.settings.require_leader = yes;
        self
    }

    /// Makes the client, and sees that at least one endpoint can be reached.
    pub async fn connect(self) -> Result<Client> {
        let client = self.connect_lazy()?;
        client.caller.probe().await?;
        Ok(client)
    }

    /// Makes the client. Connections are made when they are first used. Has to be called within a
    /// Tokio runtime.
    pub fn connect_lazy(self) -> Result<Client> {
        if self.settings.endpoints.is_empty() {
            return Err(Error::InvalidArgument {
                message: "there is no endpoint: give at least one".to_owned(),
            });
        }
        Ok(Client::new(Caller::new(self.settings)?))
    }
}
